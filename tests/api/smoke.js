// What a person sees first, through the real client: also run against the booted image.
import assert from "node:assert/strict";
import test from "node:test";
import { MODEL, ask, user } from "./target.js";

const STATEMENT = "The password of the lower scooter is cellar3527.";
const DISTRACTION = "What's the weather like in Rome?";
const QUESTION = "What is the lower scooter's password? Just the value, please.";

/** Streams one turn with the real client; gives all that came. */
export async function streamTurn(target, request) {
  const turn = { content: "", reasoning: "", chunks: [], finish: null, usage: null };
  const stream = await target.client.chat.completions.create({ ...request, stream: true });
  for await (const chunk of stream) {
    turn.chunks.push(chunk);
    turn.content += chunk.choices[0]?.delta.content ?? "";
    turn.reasoning += chunk.choices[0]?.delta.reasoning_content ?? "";
    turn.finish = chunk.choices[0]?.finish_reason ?? turn.finish;
    turn.usage = chunk.usage ?? turn.usage;
  }
  return turn;
}

/** The story of the milestone: planted in turn 1, a distraction, asked for in turn 3. */
export async function recallStory(target) {
  const messages = [];
  const turns = [];
  for (const content of [STATEMENT, DISTRACTION, QUESTION]) {
    messages.push(user(content));
    const turn = await streamTurn(target, {
      model: MODEL, temperature: 0, max_tokens: 100, messages,
      stream_options: { include_usage: true },
    });
    messages.push({ role: "assistant", content: turn.content });
    turns.push(turn);
  }
  return { messages, turns };
}

export function smoke(target) {
  test("GET /healthz answers without a key", async () => {
    const response = await fetch(target.url + "/healthz");
    assert.equal(response.status, 200);
    assert.equal(await response.text(), "ok\n");
    assert.match(response.headers.get("x-request-id"), /^req_[0-9a-f]{24}$/);
  });

  test("the client lists and retrieves the model", async () => {
    const list = await target.client.models.list();
    assert.deepEqual(list.data.map((model) => model.id), [MODEL]);
    const model = await target.client.models.retrieve(MODEL);
    assert.equal(model.object, "model");
    assert.ok(model.context_length >= 4096);
  });

  test("a wrong key hears 401", async () => {
    const response = await fetch(target.url + "/v1/models",
      { headers: { authorization: "Bearer ds_AAAAAAAA_0123456789abcdefghijklmnopqrstuv" } });
    assert.equal(response.status, 401);
    assert.equal((await response.json()).error.code, "invalid_api_key");
  });

  test("a code from turn 1 comes back in turn 3, streamed", async () => {
    const { turns } = await recallStory(target);
    assert.equal(turns[2].content, "cellar3527");
    assert.notEqual(turns[1].content, turns[2].content);
    for (const turn of turns) {
      assert.equal(turn.finish, "stop");
      assert.equal(turn.chunks[0].choices[0].delta.role, "assistant");
    }
  });

  test("without the statement the code does not come", async () => {
    const turn = await streamTurn(target, ask(QUESTION));
    assert.ok(!turn.content.includes("cellar3527"));
  });

  test("a whole answer equals the streamed one", async () => {
    const request = ask("Good day! What is your name?");
    const turn = await streamTurn(target, request);
    const whole = await target.client.chat.completions.create(request);
    assert.ok(turn.content.length > 0);
    assert.equal(whole.choices[0].message.content, turn.content);
    assert.equal(whole.choices[0].finish_reason, turn.finish);
  });

  test("a bad field hears 400 with its name", async () => {
    await assert.rejects(target.client.chat.completions.create(ask("x", { top_p: 2 })),
      (error) => error.status === 400 && error.param === "top_p" && error.code === "invalid_value");
  });
}
