// What a real harness makes of a conversation, and of a body, that the box cannot hold; the model's part
// is played by a script.
//   node --test-reporter=tap tests/harness/overflow.js [--engine FILE] [--model DIR]
import assert from "node:assert/strict";
import test, { after } from "node:test";
import { parseArgs } from "node:util";
import { start, stop } from "../api/target.js";
import { CHAT, MESSAGES, claude, opencode, proxied } from "./harness.js";

const { values: flags } = parseArgs({ options: {
  engine: { type: "string", default: "build/engine-scripted" },
  model: { type: "string", default: "rootfs/models/demo" },
} });
const REQUESTS_MAX = 12; // of one run; a harness that repeats itself makes hundreds
const TOLD = 200_000; // what the harness believes
const OVERFLOW = /context_length_exceeded|prompt is too long/;

/** A server of `context` tokens behind a proxy. */
async function open(context) {
  const server = await start({ ...flags, flags: ["--context", String(context)], script: [] });
  const proxy = await proxied(server);
  after(() => (proxy.close(), stop(server)));
  return { server, proxy };
}

/** One run to its end; its requests as a client reads them. */
async function finished(proxy, form, begin) {
  const from = proxy.seen.length;
  const run = begin();
  const end = await run.ended;
  const entries = proxy.seen.slice(from).filter(({ method }) => method === "POST");
  assert.ok(entries.length <= REQUESTS_MAX, `${entries.length} requests\n${run.out}`);
  return { end, out: run.out, requests: entries.map((entry) => ({ ...form.read(entry), text: entry.text })) };
}

// opencode's own prompt has 9,000 tokens; an answer of 3,000 and a question of 2,000 do not fit beside it.
const OPENCODE_CONTEXT = 13_000;
const LONG = "The river is calm today. ".repeat(450);
const QUESTION = "And what of the river? " + "It was said that it is calm. ".repeat(220);

test("opencode: the answer does not fit any more, so it summarises and goes on", async (t) => {
  const { server, proxy } = await open(OPENCODE_CONTEXT);
  const box = opencode(server, proxy, "compacts", { context: TOLD });
  server.play([{ all: ["summar"], none: ["You are opencode"], say: "They spoke of a river." }, { all: ["title"], last: ["Tell me of the river"], none: ["You are opencode"], say: "A river" },
    { last: ["And what of the river?"], say: "Calm, as I said." },
    { all: ["And what of the river?"], say: "Calm, as I said." },
    { last: ["Tell me of the river"], say: LONG },
    { say: "They spoke of a river." }]);
  const first = await finished(proxy, CHAT, () => box.first("Tell me of the river"));
  assert.deepEqual(first.end, { code: 0, signal: null }, first.out);
  const second = await finished(proxy, CHAT, () => box.next(QUESTION));
  for (const { status, finish, text, request } of second.requests)
    t.diagnostic(`${status} ${finish ?? ""} tools=${request.tools?.length ?? 0} messages=${request.messages.length} ` +
      `${status === 200 ? "" : text.slice(0, 160)}`);
  assert.equal(second.end.signal, null); // the code is 1: it shows the refusal, and goes on
  const [refused, ...rest] = second.requests;
  assert.equal(refused.status, 400);
  assert.match(refused.text, OVERFLOW);
  const summary = rest.findIndex(({ request }) => !request.tools?.length);
  assert.ok(summary >= 0 && rest[summary].status === 200, "a request for a summary");
  const last = rest.at(-1);
  assert.ok(last.status === 200 && last.request.tools.length > 0 && last.done);
  assert.ok(JSON.stringify(last.request.messages).includes("They spoke of a river.")); // the summary is in it
  assert.ok(!JSON.stringify(last.request.messages).includes(LONG));
});

test("opencode: a body that is too large ends in a bounded number of requests", async (t) => {
  const { server, proxy } = await open(OPENCODE_CONTEXT);
  const box = opencode(server, proxy, "too-large", { context: TOLD });
  server.play([{ say: "Fine." }]);
  // a tool result is what becomes large without anyone's meaning it; here a file says it at once
  const { requests, out, end } = await finished(proxy, CHAT, () => box.first("x ".repeat(60_000)));
  for (const { status, text } of requests) t.diagnostic(`${status} ${status === 200 ? "" : text.slice(0, 120)}`);
  t.diagnostic(`ended with ${end.code}: ${out.trim().slice(-200)}`);
  assert.ok(requests.some(({ status, text }) => status === 400 && OVERFLOW.test(text)));
  assert.equal(end.signal, null);
});

// Claude Code's own prompt has 31,600.
const CLAUDE_CONTEXT = 32_768;

test("Claude Code: says that the prompt is too long, and asks no second time", async (t) => {
  const { server, proxy } = await open(CLAUDE_CONTEXT);
  const box = claude(server, proxy, "too-long");
  server.play([{ say: "Fine." }]);
  const { requests, out, end } = await finished(proxy, MESSAGES, () => box.first(QUESTION));
  for (const { status, text } of requests) t.diagnostic(`${status} ${text.slice(0, 200)}`);
  t.diagnostic(`ended with ${end.code}: ${out.trim().slice(-200)}`);
  assert.ok(requests.length >= 1 && requests.every(({ status, text }) => status === 400 && OVERFLOW.test(text)));
  assert.match(out, /too long/i);
});
