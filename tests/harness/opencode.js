// A real agent harness against the program that ships: opencode writes a game, then puts it into a
// file.  What is shown is the server's part: requests accepted, history complete, prompt reused,
// cancel obeyed.  What the small model makes of the task is printed and not judged.
//   node --test-reporter=tap tests/harness/opencode.js [--engine FILE] [--model DIR]
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import fs from "node:fs";
import http from "node:http";
import path from "node:path";
import test, { after } from "node:test";
import { parseArgs } from "node:util";
import { MODEL, start, stop, until, untilIdle, wait } from "../api/target.js";

const { values: flags } = parseArgs({ options: {
  engine: { type: "string", default: "build/engine" },
  model: { type: "string", default: "rootfs/models/demo" },
} });
const PROGRAM = path.resolve("tests/harness/node_modules/opencode-linux-x64-baseline/bin/opencode");
const CONTEXT = 32768; // its prompt alone is 9,000 tokens of the demo model, 11,600 with all its tools
const RUN_MS_MAX = 240_000; // a bound, never a measure
const REQUESTS_MAX = 20; // of one run; a harness that repeats itself makes hundreds
const TASK = "write a tic-tac-toe game in C";
const NEXT = "to a file";

const server = await start({ ...flags, flags: ["--context", String(CONTEXT)] });
after(() => stop(server));

/** Hands everything on and keeps a copy. */
const seen = [];
const proxy = http.createServer((request, response) => {
  const parts = [];
  request.on("data", (part) => parts.push(part)).on("end", () => {
    const body = Buffer.concat(parts);
    const entry = { path: request.url, body: body.toString(), text: "" };
    seen.push(entry);
    const up = http.request({ ...server.connect, path: request.url, method: request.method,
      headers: { ...request.headers, host: "localhost" } }, (answer) => {
      entry.status = answer.statusCode;
      response.writeHead(answer.statusCode, answer.headers);
      answer.on("data", (part) => { entry.text += part; response.write(part); });
      answer.on("end", () => response.end()).on("error", () => response.destroy());
    });
    up.on("error", () => response.destroy()).end(body);
    response.on("close", () => up.destroy());
  });
});
await new Promise((resolve) => proxy.listen(0, "127.0.0.1", resolve));
after(() => proxy.close());

/** The two APIs: the provider of opencode, and how a client reads an answer. */
const FORMS = {
  "chat completions": { npm: "@ai-sdk/openai-compatible", path: "/v1/chat/completions",
    finishes: ["stop", "length", "tool_calls"], read: readChunks },
  "messages": { npm: "@ai-sdk/anthropic", path: "/v1/messages",
    finishes: ["end_turn", "max_tokens", "tool_use"], read: readEvents },
};

/** A folder to work in, with a configuration for one API. */
function place(name, { npm }) {
  const work = path.join(server.dir, "home", name.replace(" ", "-"));
  fs.mkdirSync(work, { recursive: true });
  fs.writeFileSync(path.join(work, "opencode.json"), JSON.stringify({
    autoupdate: false, share: "disabled", model: "box/" + MODEL,
    permission: { bash: "deny", webfetch: "deny" }, // nothing that a model of this size makes up is run
    agent: { build: { temperature: 0 } },
    provider: { box: { npm, name: "box",
      options: { baseURL: `http://127.0.0.1:${proxy.address().port}/v1`, apiKey: server.key },
      models: { [MODEL]: { name: MODEL, temperature: true, limit: { context: CONTEXT, output: 4096 },
        interleaved: { field: "reasoning_content" } } } } },
  }));
  return work;
}

const OFF = ["AUTOUPDATE", "MODELS_FETCH", "SHARE", "LSP_DOWNLOAD", "DEFAULT_PLUGINS", "CLAUDE_CODE"];
const env = (work) => ({ PATH: process.env.PATH, HOME: work + ".home",
  ...Object.fromEntries(OFF.map((name) => ["OPENCODE_DISABLE_" + name, "1"])) });

function opencode(work, ...args) {
  const child = spawn(PROGRAM, ["run", ...args], { cwd: work, env: env(work), stdio: ["ignore", "pipe", "pipe"] });
  const run = { child, out: "" };
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (text) => (run.out += text));
  const timer = setTimeout(() => child.kill("SIGKILL"), RUN_MS_MAX);
  run.ended = new Promise((resolve) => child.on("exit", (code, signal) => {
    clearTimeout(timer);
    resolve({ code, signal });
  }));
  return run;
}

const data = (text) => text.split("\n\n").map((event) => /^data: (\{.*)$/m.exec(event)?.[1])
  .filter((json) => json).map((json) => JSON.parse(json));

/** A request and its answer as a client reads them. */
function readChunks({ body, status, text }) {
  const chunks = data(text);
  const choices = chunks.flatMap((chunk) => chunk.choices);
  const usage = chunks.findLast((chunk) => chunk.usage)?.usage;
  return { request: JSON.parse(body), status, done: text.endsWith("data: [DONE]\n\n"),
    content: choices.map((choice) => choice.delta.content ?? "").join(""),
    calls: choices.flatMap((choice) => choice.delta.tool_calls ?? [])
      .filter((call) => call.id).map((call) => call.function.name),
    finish: choices.at(-1)?.finish_reason,
    rendered: usage?.prompt_tokens, reused: usage?.prompt_tokens_details.cached_tokens };
}

function readEvents({ body, status, text }) {
  const events = data(text);
  const end = events.find(({ type }) => type === "message_delta");
  const { input_tokens: fresh, cache_read_input_tokens: reused } = end?.usage ?? {};
  return { request: JSON.parse(body), status, done: events.at(-1)?.type === "message_stop",
    content: events.map(({ delta }) => delta?.text ?? "").join(""),
    calls: events.filter((event) => event.content_block?.type === "tool_use").map((event) => event.content_block.name),
    finish: end?.delta.stop_reason, rendered: fresh + reused, reused };
}

/** One run to its end; the requests with tools are the turns, the others titles and summaries. */
async function turn(form, work, ...args) {
  const from = seen.length;
  const run = opencode(work, ...args);
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
  const run = opencode(place("killed", FORMS["chat completions"]), TASK);
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
    const work = place(name, form);
    const first = await turn(form, work, TASK);
    const second = await turn(form, work, "-c", NEXT);
    const [game, file] = [first.at(-1), second[0]];
    for (const { content, calls, finish } of [...first, ...second])
      t.diagnostic(`the model: ${JSON.stringify(content.slice(0, 200))} calls=[${calls}] finish=${finish}`);
    t.diagnostic(`files: ${fs.readdirSync(work).filter((file) => file !== "opencode.json").join(" ") || "none"}`);

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
