// Nothing of what is said to the box, and no secret, comes out of it elsewhere: a word that occurs
// nowhere else in every place of a request, then every log line, counter and state is searched for it.
import assert from "node:assert/strict";
import test, { after } from "node:test";
import { MODEL, start, stop, untilIdle } from "./target.js";

const CANARY = "zyxwcanary";
const said = (place) => `${CANARY}-${place}`;
const parameters = { type: "object", description: said("schema"), properties: { [said("property")]: { type: "string", enum: [said("enum")] } } };
const call = { id: said("call"), type: "function", function: { name: said("called"), arguments: JSON.stringify({ [said("argument")]: said("value") }) } };
const CHAT = { model: MODEL, max_tokens: 3, stop: [said("stop")], user: said("user"), metadata: { a: said("metadata") },
  prompt_cache_key: said("cache"), tools: [{ type: "function", function: { name: said("tool"), description: said("description"), parameters } }],
  messages: [{ role: "system", content: said("system") }, { role: "user", content: said("question") },
    { role: "assistant", content: said("answer"), reasoning_content: said("reasoning"), tool_calls: [call] },
    { role: "tool", tool_call_id: said("call"), content: said("result") }] };
const MESSAGES = { model: MODEL, max_tokens: 3, system: said("system"), metadata: { user_id: said("user") }, stop_sequences: [said("stop")],
  tools: [{ name: said("tool"), description: said("description"), input_schema: parameters }],
  messages: [{ role: "user", content: said("question") }, { role: "assistant", content: [
    { type: "thinking", thinking: said("thinking"), signature: said("signature") },
    { type: "tool_use", id: said("call"), name: said("called"), input: { a: said("value") } }] },
  { role: "user", content: [{ type: "tool_result", tool_use_id: said("call"), content: said("result") }] }] };
const RESPONSES = { model: MODEL, max_output_tokens: 3, store: false, instructions: said("system"), user: said("user"),
  prompt_cache_key: said("cache"), metadata: { a: said("metadata") },
  tools: [{ type: "function", name: said("tool"), description: said("description"), parameters }],
  input: [{ role: "user", content: said("question") }, { type: "reasoning", summary: [], encrypted_content: said("sealed") },
    { type: "function_call", call_id: said("call"), name: said("called"), arguments: call.function.arguments },
    { type: "function_call_output", call_id: said("call"), output: said("result") }] };

/** The same with something wrong, one thing each: refusals must not quote either. */
const wrong = (request) => [{ model: said("model") }, { [said("field")]: 1, max_tokens: said("number") }, { temperature: said("number") },
  { messages: [{ role: said("role"), content: "x" }] }, { messages: [{ role: "user", content: [{ type: said("type") }] }] },
  { tools: [{ type: said("type"), name: said("a b"), function: { name: said("a b") } }] },
  { tool_choice: { type: said("choice") } }, { thinking: { type: said("thinking") } }].map((change) => ({ ...request, ...change }));

export async function canary(program) {
  const server = await start({ ...program, flags: ["--metrics", "127.0.0.1:0"] });
  after(() => stop(server));

  test("no word and no secret of a request comes out elsewhere", async () => {
    const answers = [], served = new Set();
    for (const [where, request] of [["chat/completions", CHAT], ["receipt", CHAT], ["messages?beta=" + said("query"), MESSAGES],
      ["messages/count_tokens", MESSAGES], ["responses", RESPONSES]]) {
      const bodies = [request, { ...request, stream: true }, ...wrong(request)].map((one) => JSON.stringify(one));
      for (const body of [...bodies, bodies[0].slice(0, -1), bodies[0] + said("behind")]) {
        const response = await fetch(`${server.url}/v1/${where}`, { method: "POST", body, headers: { authorization: "Bearer " + server.key,
          "content-type": "application/json", "user-agent": said("agent"), "x-session-id": said("session"), "x-request-id": said("id") } });
        answers.push([response.status, [...response.headers].flat().join(" ") + (response.status === 200 ? "" : await response.text())]);
        if (response.status === 200) served.add(where) && await response.arrayBuffer();
      }
      await fetch(`${server.url}/v1/${said("path")}`, { headers: { authorization: "Bearer " + said("key") } });
    }
    await untilIdle(server);
    assert.equal(served.size, 5, [...served].join());
    assert.ok(answers.some(([status]) => status === 400));
    for (const [, text] of answers) assert.ok(!text.includes(CANARY), text);
    const places = { log: server.err, out: server.out, status: JSON.stringify(await server.admin("status")),
      keys: JSON.stringify(await server.admin("keys", "list")) };
    const metrics = /metrics on (\S+)/.exec(server.out + server.err)?.[1];
    assert.ok(metrics, "where the metrics are");
    places.metrics = await (await fetch(`http://${metrics}/metrics`)).text();
    assert.match(places.log, /POST \/v1\/chat\/completions status=200/); // the log is there
    assert.match(places.metrics, /vllm:/);
    for (const [name, text] of Object.entries(places))
      for (const secret of [CANARY, server.key, server.key.slice(12)]) assert.ok(!text.includes(secret), name);
  });
}
