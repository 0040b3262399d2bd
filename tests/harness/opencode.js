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
const FINISHES = ["stop", "length", "tool_calls"];
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

const home = path.join(server.dir, "home");
const work = path.join(home, "work");
fs.mkdirSync(work, { recursive: true });
fs.writeFileSync(path.join(work, "opencode.json"), JSON.stringify({
  autoupdate: false, share: "disabled", model: "box/" + MODEL,
  permission: { bash: "deny", webfetch: "deny" }, // nothing that a model of this size makes up is run
  agent: { build: { temperature: 0 } },
  provider: { box: { npm: "@ai-sdk/openai-compatible", name: "box",
    options: { baseURL: `http://127.0.0.1:${proxy.address().port}/v1`, apiKey: server.key },
    models: { [MODEL]: { name: MODEL, temperature: true, limit: { context: CONTEXT, output: 4096 },
      interleaved: { field: "reasoning_content" } } } } },
}));
const OFF = ["AUTOUPDATE", "MODELS_FETCH", "SHARE", "LSP_DOWNLOAD", "DEFAULT_PLUGINS", "CLAUDE_CODE"];
const env = { PATH: process.env.PATH, HOME: home,
  ...Object.fromEntries(OFF.map((name) => ["OPENCODE_DISABLE_" + name, "1"])) };

function opencode(...args) {
  const child = spawn(PROGRAM, ["run", ...args], { cwd: work, env, stdio: ["ignore", "pipe", "pipe"] });
  const run = { child, out: "" };
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (text) => (run.out += text));
  const timer = setTimeout(() => child.kill("SIGKILL"), RUN_MS_MAX);
  run.ended = new Promise((resolve) => child.on("exit", (code, signal) => {
    clearTimeout(timer);
    resolve({ code, signal });
  }));
  return run;
}

/** A request and its answer as a client reads them. */
function read({ body, status, text }) {
  const request = JSON.parse(body);
  const chunks = text.split("\n\n").filter((event) => event.startsWith("data: {"))
    .map((event) => JSON.parse(event.slice(6)));
  const choices = chunks.flatMap((chunk) => chunk.choices);
  return { request, status, done: text.endsWith("data: [DONE]\n\n"),
    content: choices.map((choice) => choice.delta.content ?? "").join(""),
    calls: choices.flatMap((choice) => choice.delta.tool_calls ?? [])
      .filter((call) => call.id).map((call) => call.function.name),
    finish: choices.at(-1)?.finish_reason, usage: chunks.findLast((chunk) => chunk.usage)?.usage };
}

/** One run to its end; the requests with tools are the turns, the others titles and summaries. */
async function turn(...args) {
  const from = seen.length;
  const run = opencode(...args);
  assert.deepEqual(await run.ended, { code: 0, signal: null }, run.out);
  assert.ok(seen.slice(from).every(({ path: where }) => where === "/v1/chat/completions"));
  const requests = seen.slice(from).map(read);
  assert.ok(requests.length <= REQUESTS_MAX, `${requests.length} requests`);
  for (const { status, done, finish } of requests) {
    assert.equal(status, 200);
    assert.ok(done && FINISHES.includes(finish), finish);
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
  const run = opencode(TASK);
  await until(server, ({ running }) => running > 0);
  while (!seen.some(({ body }) => body.includes('"tools"'))) await wait(50);
  await until(server, ({ running }) => running > 0);
  run.child.kill("SIGKILL");
  await run.ended;
  await untilIdle(server);
  assert.match(server.err, /finish=cancelled/);
  assert.ok(!seen.find(({ body }) => body.includes('"tools"')).text.includes("[DONE]"));
});

test(`"${TASK}", then "${NEXT}"`, async (t) => {
  const first = await turn(TASK);
  const second = await turn("-c", NEXT);
  const [game, file] = [first.at(-1), second[0]];
  for (const { content, calls, finish } of [...first, ...second])
    t.diagnostic(`the model: ${JSON.stringify(content.slice(0, 200))} calls=[${calls}] finish=${finish}`);
  t.diagnostic(`files: ${fs.readdirSync(work).filter((name) => name !== "opencode.json").join(" ") || "none"}`);

  // the history is whole: what was asked, what was answered, what is asked now
  const sent = JSON.stringify(file.request.messages);
  assert.ok(sent.includes(TASK) && sent.includes(NEXT));
  const said = file.request.messages.filter(({ role }) => role === "assistant");
  assert.equal(said.length, first.length);
  assert.equal(said.at(-1).content.trim(), game.content.trim());
  const proof = await receipt(file.request);
  assert.equal(proof.rendered_tokens, file.usage.prompt_tokens);
  assert.equal(proof.messages.reduce((n, { count }) => n + count, 0), file.request.messages.length);
  assert.ok(proof.messages.every(({ tokens }) => tokens > 0));
  assert.deepEqual(proof.messages.filter(({ role }) => role === "assistant").map(({ source }) => source),
    said.map(() => "replayed"));

  const { prompt_tokens: rendered, prompt_tokens_details: { cached_tokens: reused } } = file.usage;
  t.diagnostic(`second turn: ${reused} of ${rendered} tokens reused (${(100 * reused / rendered).toFixed(1)} %)`);
  assert.ok(reused >= 0.95 * rendered);
});
