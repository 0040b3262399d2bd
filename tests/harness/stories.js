// Real harnesses against the program that ships, the model's part played by a script: the story of two
// turns to its end, clients that are killed, back-off, compaction, faults.
//   node --test-reporter=tap tests/harness/stories.js [--engine FILE] [--model DIR] [--slow] [--only NAME]
import assert from "node:assert/strict";
import fs from "node:fs";
import net from "node:net";
import path from "node:path";
import test, { after } from "node:test";
import { parseArgs } from "node:util";
import { call, calls, thinks } from "../api/script.js";
import { MODEL, start, stop, untilIdle, wait } from "../api/target.js";
import { CHAT, MESSAGES, claude, opencode, proxied } from "./harness.js";

const { values: flags } = parseArgs({ options: {
  engine: { type: "string", default: "build/engine-scripted" },
  model: { type: "string", default: "rootfs/models/demo" },
  slow: { type: "boolean", default: false }, // also the one that is silent for longer than clients wait
  only: { type: "string" },
} });
const CONTEXT = 65536; // Claude Code's prompt alone is 31,600 tokens of the demo model
const REQUESTS_MAX = 8; // of one run here; a harness that repeats itself makes hundreds
const SILENCE_MS = 320_000; // beyond the 300 s after which clients give up
const TASK = "write a tic-tac-toe game in C";
const NEXT = "to a file";
const GAME = `#include <stdio.h>

/* Noughts & crosses: "X" moves first; ls 2>&1 is no move. */
static char board[3][3];

int main(void)
{
    for (int i = 0; i < 9; i++)
        putchar(board[i / 3][i % 3] ? 'X' : '.');
    return 0;
}
`;
const HARNESSES = {
  opencode: { form: CHAT, open: (server, proxy, name) => opencode(server, proxy, name, { context: CONTEXT, options: { reasoningEffort: "high" } }) },
  "opencode over the Messages API": { form: MESSAGES, open: (server, proxy, name) =>
    opencode(server, proxy, name, { npm: "@ai-sdk/anthropic", context: CONTEXT,
      options: { thinking: { type: "enabled", budgetTokens: 1024 } } }) },
  "Claude Code": { form: MESSAGES, open: claude, brief: (...where) => claude(...where, { brief: true }), gives_up: true },
};
const DONE = thinks("Hm.", "Here it is.");
const TITLE = { all: ["title"], none: ["DSML"], say: "Tic-tac-toe" };
const answersTo = (text, rule) => ({ last: [text], ...rule });

const server = await start({ ...flags, flags: ["--context", String(CONTEXT)], script: [] });
after(() => stop(server));
const proxy = await proxied(server);
after(() => proxy.close());

/** A run to its end; gives its requests as a client reads them. */
async function finished(run, { form }, from) {
  const end = await run.ended;
  const requests = proxy.seen.slice(from).filter(({ method }) => method === "POST");
  assert.ok(requests.length <= REQUESTS_MAX, `${requests.length} requests\n${run.out}`);
  assert.deepEqual(end, { code: 0, signal: null }, run.out);
  return requests.map((entry) => ({ ...form.read(entry), at: entry.at, headers: entry.headers }));
}

const isTurn = ({ request }) => request.tools?.length > 0;

async function receipt(request) {
  const response = await fetch(server.url + "/v1/receipt", { method: "POST", body: JSON.stringify(request),
    headers: { authorization: "Bearer " + server.key, "content-type": "application/json" } });
  assert.equal(response.status, 200);
  return response.json();
}

/** Turn 1 asks, turn 2 puts the answer into a file, and what the tool says is answered. */
async function story(t, harness, box) {
  const file = path.join(box.work, "game.c");
  server.play([
    answersTo("<tool_result>", { all: ["Sure.", "game.c"], say: thinks("Written.", "I wrote it to game.c.") }),
    answersTo(NEXT, { all: [TASK], say: thinks("Into a file, then.", "Sure." +
      calls(call(box.write.tool, box.write.args(file, GAME)))) }),
    TITLE,
    answersTo(TASK, { say: thinks("A small game.", "Here it is:\n\n" + GAME) }),
  ]);
  let from = proxy.seen.length;
  const first = await finished(box.first(TASK), harness, from);
  from = proxy.seen.length;
  const second = await finished(box.next(NEXT), harness, from);
  for (const { status, done, finish } of [...first, ...second]) {
    assert.equal(status, 200);
    assert.ok(done && harness.form.finishes.includes(finish), finish);
  }
  assert.equal(fs.readFileSync(file, "utf8"), GAME);
  const [game, ask, told] = [first.find(isTurn), ...second.filter(isTurn)];
  assert.deepEqual(ask.calls, [box.write.tool]);
  assert.ok(told.content.includes("I wrote it to game.c."), told.content);
  // the history is whole; of earlier turns' thinking some send nothing back, and it is restored
  for (const text of [TASK, NEXT, "Here it is:", ...(harness.form === CHAT ? ["A small game."] : [])])
    assert.ok(JSON.stringify(told.request.messages).includes(text), text);
  if (harness.form === CHAT) {
    const proof = await receipt(told.request);
    assert.equal(proof.rendered_tokens, told.rendered);
    assert.equal(proof.messages.reduce((n, { count }) => n + count, 0), told.request.messages.length);
    assert.deepEqual(proof.messages.filter(({ role }) => role === "assistant").map(({ source }) => source),
      ["replayed", "replayed"]);
  }
  // each turn continues the one before it, whatever titles were asked for beside it
  for (const [one, before] of [[ask, game], [told, ask]]) {
    t.diagnostic(`${one.reused} of ${one.rendered} tokens reused (${(100 * one.reused / one.rendered).toFixed(1)} %)`);
    assert.ok(one.reused >= 0.95 * one.rendered && one.reused >= before.rendered);
  }
  t.diagnostic(`${first.length - first.filter(isTurn).length} requests beside the turns`);
}

/** Killed in each phase: the generation ends. */
async function killed(t, box) {
  const words = "word ".repeat(600);
  const rules = {
    reasoning: thinks(words, "Yes."), content: thinks("Hm.", words),
    arguments: thinks("Hm.", calls(call(box.write.tool, box.write.args("/nowhere", words)))),
  };
  for (const [phase, say] of Object.entries(rules)) {
    const task = "leave " + phase;
    server.play([{ ...TITLE }, { last: [task], say, token_ms: 30 }]);
    const idle = await untilIdle(server);
    const run = box.first(task);
    const mark = server.err.length;
    const title = TITLE.say.length; // at most so many tokens
    while ((await server.admin("status")).data.answer_tokens < idle.answer_tokens + title + 10) await wait(50);
    run.child.kill("SIGKILL");
    await run.ended;
    await untilIdle(server);
    const said = [...server.err.slice(mark).matchAll(/answer=(\d+) profile=\S+ finish=cancelled/g)].map(([, n]) => Number(n));
    t.diagnostic(`${phase}: ended after ${said} tokens`);
    assert.ok(said.length === 1 && said[0] < 500, `${said}`);
  }
}

/** The queue is full, then it is not. */
async function waitsFor429(t, harness, box) {
  const held = [];
  server.play([{ last: ["hold this place"], say: "word ".repeat(3000), token_ms: 20 }, TITLE,
    answersTo(TASK, { say: DONE })]);
  const body = JSON.stringify({ model: MODEL, stream: true, max_tokens: 4000,
    messages: [{ role: "user", content: "hold this place" }] });
  const hold = () => new Promise((resolve) => {
    const socket = net.connect(server.connect, () => socket.write(`POST /v1/chat/completions HTTP/1.1\r\n` +
      `Host: localhost\r\nAuthorization: Bearer ${server.key}\r\nContent-Type: application/json\r\n` +
      `Content-Length: ${body.length}\r\n\r\n${body}`));
    held.push(socket);
    socket.once("data", (text) => resolve(String(text).startsWith("HTTP/1.1 200")));
    socket.on("error", () => resolve(false));
  });
  while (await hold());
  const from = proxy.seen.length;
  const run = box.first(TASK);
  while (!proxy.seen.slice(from).some(({ status }) => status === 429)) await wait(50);
  for (const socket of held) socket.destroy();
  const requests = await finished(run, harness, from);
  const refused = requests.filter(({ status }) => status === 429);
  assert.ok(refused.length >= 1 && requests.some((one) => isTurn(one) && one.status === 200 && one.done));
  for (const one of refused) {
    assert.match(one.headers["retry-after"], /^[1-9]\d*$/);
    const again = requests.find((other) => other.at > one.at && isTurn(other) === isTurn(one));
    if (again) t.diagnostic(`told ${one.headers["retry-after"]} s, came back after ${again.at - one.at} ms`);
    assert.ok(!again || again.at - one.at >= 900 * Number(one.headers["retry-after"]));
  }
}

/** The engine fails behind some words, or is not there: the harness comes back, and is served. */
async function comesBack(harness, box, first) {
  server.play([TITLE, ...first.rules, answersTo(TASK, { say: DONE })]);
  let left = 1;
  proxy.inject = (entry) => {
    if (!entry.body.includes('"tools":[{') || left-- <= 0) return null;
    return first.instead(entry);
  };
  const from = proxy.seen.length;
  const run = box.first(TASK);
  try {
    if (first.rules.length > 0) {
      while (!proxy.seen.slice(from).some(({ text }) => text.includes("engine_error"))) await wait(50);
      server.play([TITLE, answersTo(TASK, { say: DONE })]);
    }
    const requests = (await finished(run, harness, from)).filter(isTurn);
    assert.equal(requests.length, 2);
    assert.ok(requests[1].done && requests[1].content === "Here it is.", requests[1].content);
  } finally {
    proxy.inject = () => null;
  }
}

/** The engine fails behind some words, and the harness leaves it at that. */
async function saysSo(box) {
  server.play([TITLE, ...FAULT.rules]);
  const from = proxy.seen.length;
  const run = box.first(TASK);
  const { signal } = await run.ended;
  assert.equal(signal, null);
  assert.match(run.out, /the engine could not finish this answer/);
  assert.equal(proxy.seen.slice(from).filter(({ method }) => method === "POST").length, 1);
}

const DOWN = { rules: [], instead: () => ({ status: 503,
  headers: { "content-type": "application/json", "retry-after": "1", "retry-after-ms": "1000" },
  body: '{"error":{"message":"The server is shutting down.","type":"server_error","param":null,"code":"shutting_down"}}' }) };
const FAULT = { rules: [answersTo(TASK, { say: thinks("Hm.", "Here"), fault: true })], instead: () => null };

for (const [name, harness] of Object.entries(HARNESSES)) {
  if (flags.only && flags.only !== name) continue;
  const place = name.replaceAll(" ", "-");
  const box = harness.brief ? harness.brief(server, proxy, place + "-brief") : harness.open(server, proxy, place);
  test(`${name}: "${TASK}", then "${NEXT}"`, (t) =>
    story(t, harness, harness.brief ? harness.open(server, proxy, place) : box));
  test(`${name}: killed while the model thinks, speaks and calls`, (t) => killed(t, box));
  test(`${name}: waits as long as a full queue says, and is served`, (t) => waitsFor429(t, harness, box));
  test(`${name}: comes back after 503`, () => comesBack(harness, box, DOWN));
  if (harness.gives_up)
    test(`${name}: says that the engine failed, and asks no second time`, () => saysSo(box));
  else
    test(`${name}: comes back after a fault in the stream`, () => comesBack(harness, box, FAULT));
  if (flags.slow)
    test(`${name}: one request, though the prompt takes longer than clients wait`, async () => {
      server.play([TITLE, answersTo(TASK, { say: DONE, wait_ms: SILENCE_MS })]);
      const from = proxy.seen.length;
      const turns = (await finished(box.first(TASK), harness, from)).filter(isTurn);
      assert.equal(turns.length, 1);
      assert.ok(turns[0].done && turns[0].content === "Here it is.");
    });
}
