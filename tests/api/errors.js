// Every way to be refused, by the real program, and abuse of HTTP and JSON; after each it still serves.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import test from "node:test";
import { MODEL, ask, post, raw, user } from "./target.js";

const RSS_BYTES_GROWTH_MAX = 256 << 20; // bodies in flight, JSON trees and connection memory

// Changes of a good request: [what is added, status, code, param]
const ROWS = [
  [{ model: undefined }, 400, "missing_field", "model"],
  [{ model: "gpt-4" }, 404, "model_not_found", "model"],
  [{ messages: undefined }, 400, "missing_field", "messages"],
  [{ messages: [] }, 400, "invalid_value", "messages"],
  [{ messages: [{ role: "wizard", content: "x" }] }, 400, "invalid_value", "messages[0].role"],
  [{ messages: [user([{ type: "image_url", image_url: { url: "x" } }])] }, 400, "unsupported_content",
    "messages[0].content[0].type"],
  [{ messages: [user("x"), { role: "assistant", content: "y" }] }, 400, "unsupported_value",
    "messages[1].role"],
  [{ temperature: 3 }, 400, "invalid_value", "temperature"],
  [{ top_p: 0 }, 400, "invalid_value", "top_p"],
  [{ top_k: 1.5 }, 400, "invalid_value", "top_k"],
  [{ min_p: -1 }, 400, "invalid_value", "min_p"],
  [{ max_tokens: 0 }, 400, "invalid_value", "max_tokens"],
  [{ seed: "x" }, 400, "invalid_value", "seed"],
  [{ stream: "yes" }, 400, "invalid_value", "stream"],
  [{ stop: Array(17).fill("x") }, 400, "invalid_value", "stop"],
  [{ stop: "" }, 400, "invalid_value", "stop"],
  [{ stop: "x".repeat(5000) }, 400, "invalid_value", "stop"],
  [{ thinking: { type: "perhaps" } }, 400, "invalid_value", "thinking.type"],
  [{ reasoning_effort: "extreme" }, 400, "invalid_value", "reasoning_effort"],
  [{ n: 2 }, 400, "unsupported_value", "n"],
  [{ top_logprobs: 3 }, 400, "missing_field", "logprobs"],
  [{ logprobs: true, top_logprobs: 21 }, 400, "invalid_value", "top_logprobs"],
  [{ messages: [user("x"), { role: "assistant", content: "y" }] }, 400, "unsupported_value", "messages[1].role"],
  [{ tools: [{ type: "function", function: { name: "a b" } }] }, 400, "invalid_value", "tools[0].function.name"],
  [{ tools: [{ type: "web_search" }] }, 400, "unsupported_value", "tools[0].type"],
  [{ tool_choice: "required" }, 400, "missing_field", "tools"],
  [{ response_format: { type: "xml" } }, 400, "invalid_value", "response_format.type"],
  [{ response_format: { type: "json_schema" } }, 400, "missing_field", "response_format.json_schema"],
  [{ logit_bias: { 5: 1 } }, 400, "unsupported_parameter", "logit_bias"],
  [{ messages: [user("word ".repeat(40000))] }, 400, "context_length_exceeded", "messages"],
];

// Bodies as bytes: [body, status, code]
const deep = (n) => `{"model":"${MODEL}","messages":${"[".repeat(n)}${"]".repeat(n)}}`;
const BODIES = [
  ["", 400, "invalid_json"],
  ["null", 400, "invalid_json"],
  ["{", 400, "invalid_json"],
  [`{"model":"${MODEL}"} x`, 400, "invalid_json"],
  [`{"model":"${MODEL}","model":"${MODEL}"}`, 400, "invalid_json"],
  [deep(100_000), 400, "invalid_json"],
  ["[".repeat(1_000_000), 400, "invalid_json"],
  [Buffer.alloc(32 << 20, "["), 413, "request_too_large"],
  [Buffer.from(`{"model":"\xff\xfe"}`, "latin1"), 400, "invalid_json"],
  [`{"model":"${MODEL}","max_tokens":1e400,"messages":[{"role":"user","content":"x"}]}`, 400, "invalid_value"],
  [`{"model":"${MODEL}","messages":[${"{},".repeat(300_000)}{}]}`, 400, "invalid_value"],
];

const HEAD = (line, more = "") => `${line} HTTP/1.1\r\nHost: localhost\r\n${more}`;

// Raw bytes: [bytes, status or null for "closed without an answer or refused"]
function abuse(target) {
  const key = `Authorization: Bearer ${target.key}\r\n`;
  const json = "Content-Type: application/json\r\n";
  const chat = HEAD("POST /v1/chat/completions", key + json);
  return [
    [HEAD("GET /healthz", "Connection: close\r\n\r\n"), 200],
    [HEAD("GET /healthz", "Origin: http://evil.example\r\nConnection: close\r\n\r\n"), 403],
    ["GET /healthz HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n", 403],
    ["GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n", 400],
    ["GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n", 505],
    ["GET /healthz\r\n\r\n", null],
    ["\x16\x03\x01\x02\x00\x01\x00", null],
    ["PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", null],
    [HEAD("GET /healthz", "Folded: a\r\n b\r\nConnection: close\r\n\r\n"), null],
    [HEAD("GET /healthz", "No colon\r\n\r\n"), null],
    [HEAD("GET /healthz", "Nul: a\0b\r\nConnection: close\r\n\r\n"), null],
    [HEAD("GET /healthz", `Fill: ${"a".repeat(70_000)}\r\n\r\n`), null],
    [HEAD("GET /healthz", "A: b\r\n".repeat(200) + "Connection: close\r\n\r\n"), 400],
    [HEAD("OPTIONS /v1/chat/completions", "Connection: close\r\n\r\n"), 405],
    [HEAD("TRACE /", "Connection: close\r\n\r\n"), 405],
    [HEAD("GET /v1/models/..%2f..%2fkeys", key + "Connection: close\r\n\r\n"), 404],
    [HEAD("POST /v1/chat/completions", json + "Content-Length: 2\r\n\r\n{}"), 401],
    [HEAD("POST /v1/chat/completions", key + "Content-Length: 2\r\n\r\n{}"), 415],
    [chat + "Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}", 415],
    [chat + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400],
    [chat + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400],
    [chat + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", null],
    [chat + "Content-Length: -1\r\n\r\n", null],
    [chat + "Content-Length: 99999999999999999999\r\n\r\n", null],
    [chat + "Content-Length: 40000000\r\n\r\n", 413],
    [chat + "Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 400],
    [chat + "Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n", null],
  ];
}

async function assertServes(target) {
  const answer = await post(target, ask("Good day! What is your name?", { max_tokens: 2 }));
  assert.equal(answer.status, 200, answer.text);
}

export function errors(target) {
  test("every refused field: status, code, param, and no reason to retry or compact", async () => {
    for (const [change, status, code, param] of ROWS) {
      const answer = await post(target, { ...ask("canary-value"), ...change });
      const label = JSON.stringify(change).slice(0, 80) + " -> " + answer.text.slice(0, 300);
      assert.equal(answer.status, status, label);
      assert.equal(answer.json.error.code, code, label);
      assert.equal(answer.json.error.param, param, label);
      assert.ok(!answer.text.includes("canary-value"), label);
      assert.equal(answer.headers.get("x-should-retry"), "false", label);
      if (code === "context_length_exceeded")
        assert.match(answer.json.error.message, /maximum context length is \d+ tokens.*resulted in \d+ tokens/);
    }
    await assertServes(target);
  });

  test("hostile bodies: refused, and memory stays", async () => {
    await assertServes(target);
    const before = target.rssBytes();
    for (const [body, status, code] of BODIES) {
      const answer = await post(target, body);
      const label = String(body.slice(0, 60)) + " -> " + answer.text.slice(0, 200);
      assert.equal(answer.status, status, label);
      assert.equal(answer.json.error.code, code, label);
      if (code === "invalid_json") assert.ok(answer.json.error.offset >= 0, label);
    }
    await assertServes(target);
    assert.ok(target.rssBytes() - before < RSS_BYTES_GROWTH_MAX, `${before} -> ${target.rssBytes()}`);
  });

  test("hostile heads and framing", async () => {
    for (const [bytes, status] of abuse(target)) {
      const text = await raw(target, Buffer.from(bytes, "latin1"));
      const label = JSON.stringify(bytes.slice(0, 120)) + " -> " + text.slice(0, 200);
      const got = /^HTTP\/1\.1 (\d+)/.exec(text)?.[1];
      if (status === null) assert.ok(got === undefined || got[0] === "4" || got === "505", label);
      else assert.equal(Number(got), status, label);
      assert.ok(!text.includes(target.key), label);
    }
    await assertServes(target);
  });

  test("early ends, pipelining and many connections", async () => {
    const whole = HEAD("POST /v1/chat/completions", `Authorization: Bearer ${target.key}\r\n` +
      "Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n") + "{\"model\"";
    for (let n = 1; n < whole.length; n += 23)
      await raw(target, whole.slice(0, n), { hangUp: true });
    const two = await raw(target, HEAD("GET /healthz", "\r\n") + HEAD("GET /nope", "Connection: close\r\n\r\n"));
    assert.deepEqual([...two.matchAll(/HTTP\/1\.1 (\d+)/g)].map((match) => match[1]), ["200", "404"]);
    await Promise.all(Array.from({ length: 400 }, () => raw(target, "GET /", { hangUp: true })));
    await assertServes(target);
  });

  test("bytes that come too slowly end in a closed connection", async () => {
    const drip = (text, n) => Array.from({ length: n }, () => [1000, text]).flat();
    const body = HEAD("POST /v1/chat/completions", `Authorization: Bearer ${target.key}\r\n` +
      "Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n");
    const ends = await Promise.all([
      raw(target, [HEAD("GET /healthz"), ...drip("A: b\r\n", 80)]),
      raw(target, [body, ...drip("[", 80)]),
    ]);
    for (const text of ends) assert.ok(!text.includes(" 200 "), text);
    await assertServes(target);
  });

  test("curl: a stream, a large body with Expect, HEAD", async () => {
    const curl = (...args) => execFileSync("curl", ["-sS", "--max-time", "60", ...args], { encoding: "utf8" });
    const headers = ["-H", "Authorization: Bearer " + target.key, "-H", "Content-Type: application/json"];
    const url = target.url + "/v1/chat/completions";
    const text = curl("-N", ...headers, "-d", JSON.stringify(ask("hello", { stream: true })), url);
    assert.match(text, /^data: \{[^\n]*"role":"assistant"[^\n]*\}\n\ndata: /);
    assert.match(text, /data: \[DONE\]\n\n$/);
    const large = JSON.stringify(ask("x", { user: "y".repeat(1_100_000) }));
    const expected = execFileSync("curl", ["-sS", "--max-time", "60", "-o", "/dev/null", "-w", "%{http_code}",
      ...headers, "-H", "Expect: 100-continue", "--data-binary", "@-", url], { input: large, encoding: "utf8" });
    assert.equal(expected, "200");
    assert.match(curl("-I", target.url + "/"), /^HTTP\/1\.1 200 /);
  });
}
