// A real agent harness against the program that ships: opencode writes a game, then puts it into a
// file.  What is shown is the server's part: requests accepted, history complete, prompt reused,
// cancel obeyed.  What the small model makes of the task is printed and not judged.
//   node --test-reporter=tap tests/harness/opencode.js [--engine FILE] [--model DIR]
import assert from "node:assert/strict";
import fs from "node:fs";
import test, { after } from "node:test";
import { parseArgs } from "node:util";
import { start, stop, until, untilIdle, wait } from "../api/target.js";
import { CHAT, MESSAGES, opencode, proxied } from "./harness.js";

const { values: flags } = parseArgs({ options: {
  engine: { type: "string", default: "build/engine" },
  model: { type: "string", default: "rootfs/models/demo" },
} });
const CONTEXT = 32768; // its prompt alone is 9,000 tokens of the demo model, 11,600 with all its tools
const REQUESTS_MAX = 20; // of one run; a harness that repeats itself makes hundreds
const TASK = "write a tic-tac-toe game in C";
const NEXT = "to a file";

const server = await start({ ...flags, flags: ["--context", String(CONTEXT)] });
after(() => stop(server));
const proxy = await proxied(server);
after(() => proxy.close());
const { seen } = proxy;

const FORMS = {
  "chat completions": { ...CHAT, npm: "@ai-sdk/openai-compatible" },
  "messages": { ...MESSAGES, npm: "@ai-sdk/anthropic" },
};
const open = (name, { npm }) => opencode(server, proxy, name.replace(" ", "-"), { npm, context: CONTEXT });

/** One run to its end; the requests with tools are the turns, the others titles and summaries. */
async function turn(form, begin) {
  const from = seen.length;
  const run = begin();
  assert.deepEqual(await run.ended, { code: 0, signal: null }, run.out);
  assert.ok(seen.slice(from).every(({ path: where }) => where === form.path));
  const requests = seen.slice(from).map(form.read);
  assert.ok(requests.length <= REQUESTS_MAX, `${requests.length} requests`);
  for (const { status, done, finish } of requests) {
    assert.equal(status, 200);
    assert.ok(done && form.finishes.includes(finish), finish);
  }
  return requests.filter(({ request }) => request.tools?.length > 0);
}

async function receipt(request) {
  const response = await fetch(server.url + "/v1/receipt", { method: "POST", body: JSON.stringify(request),
    headers: { authorization: "Bearer " + server.key, "content-type": "application/json" } });
  assert.equal(response.status, 200);
  return response.json();
}

test("killing it ends the generation", async () => {
  const run = open("killed", FORMS["chat completions"]).first(TASK);
  await until(server, ({ running }) => running > 0);
  while (!seen.some(({ body }) => body.includes('"tools"'))) await wait(50);
  await until(server, ({ running }) => running > 0);
  run.child.kill("SIGKILL");
  await run.ended;
  await untilIdle(server);
  assert.match(server.err, /finish=cancelled/);
  assert.ok(!seen.find(({ body }) => body.includes('"tools"')).text.includes("[DONE]"));
});

for (const [name, form] of Object.entries(FORMS))
  test(`${name}: "${TASK}", then "${NEXT}"`, async (t) => {
    const box = open(name, form);
    const first = await turn(form, () => box.first(TASK));
    const second = await turn(form, () => box.next(NEXT));
    const [game, file] = [first.at(-1), second[0]];
    for (const { content, calls, finish } of [...first, ...second])
      t.diagnostic(`the model: ${JSON.stringify(content.slice(0, 200))} calls=[${calls}] finish=${finish}`);
    t.diagnostic(`files: ${fs.readdirSync(box.work).filter((file) => file !== "opencode.json").join(" ") || "none"}`);

    // the history is whole: what was asked, what was answered, what is asked now
    const { messages } = file.request;
    const said = messages.filter(({ role }) => role === "assistant");
    for (const text of [TASK, NEXT]) assert.ok(JSON.stringify(messages).includes(text));
    assert.equal(said.length, first.length);
    assert.ok(JSON.stringify(said.at(-1)).includes(JSON.stringify(game.content.trim()).slice(1, -1)));
    if (form.npm === "@ai-sdk/openai-compatible") {
      const proof = await receipt(file.request);
      assert.equal(proof.rendered_tokens, file.rendered);
      assert.equal(proof.messages.reduce((n, { count }) => n + count, 0), messages.length);
      assert.ok(proof.messages.every(({ tokens }) => tokens > 0));
      assert.deepEqual(proof.messages.filter(({ role }) => role === "assistant").map(({ source }) => source),
        said.map(() => "replayed"));
    }
    const { rendered, reused } = file;
    t.diagnostic(`second turn: ${reused} of ${rendered} tokens reused (${(100 * reused / rendered).toFixed(1)} %)`);
    assert.ok(reused >= 0.95 * rendered);
  });
