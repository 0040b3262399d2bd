// Rows of the contract that no other part looks at: the way in and nothing beside it, what every answer
// carries, every field that is taken, options in combination, and sizes at their limits.
import assert from "node:assert/strict";
import test, { after } from "node:test";
import { call, calls, thinks } from "./script.js";
import { streamTurn } from "./smoke.js";
import { MODEL, ask, post, raw, start, stop, until, user } from "./target.js";

const CONTEXT = 2048; // small, so that a body and a prompt of the largest size are soon there
const METHODS = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"];
const PATHS = ["/v1/chat/completions", "/chat/completions", "/v1/messages", "/v1/messages/count_tokens", "/v1/responses",
  "/responses", "/v1/receipt", "/v1/profile", "/v1/models", "/models", "/v1/models/" + MODEL];
const ELSEWHERE = ["/v1/completions", "/v1/embeddings", "/v1/files", "/v1/batches", "/v1/audio/speech", "/v1/images/generations",
  "/v1/assistants", "/metrics", "/admin", "/v1", "/docs", "/debug"];
const TOOL = { type: "function", function: { name: "count", parameters: { type: "object",
  properties: { n: { type: "integer" } }, required: ["n"] } } };
const SECOND = { type: "function", function: { name: "x".repeat(128) } };

/** The same place written in other ways, some of which servers take for it. */
const spellings = (path) => [path, path + "/", path.toUpperCase(), "/" + path, path.replace("/", "/./"), path + "?key=x",
  path.replace("m", "%6d"), path + "%00", path + ";x"];
const headOf = (text) => text.slice(0, text.indexOf("\r\n\r\n"));
const statusOf = (text) => Number(/^HTTP\/1\.1 (\d+)/.exec(text)?.[1] ?? 0);

function transport(box) {
  /** A request as bytes, without what fetch would add or tidy up. */
  const send = (method, path, headers = [], body = "") => raw(box, [`${method} ${path} HTTP/1.1`, "Host: localhost",
    "Connection: close", ...headers, ...(body === "" ? [] : [`Content-Length: ${Buffer.byteLength(body)}`]), "", body].join("\r\n"));
  const json = "Content-Type: application/json", key = "Authorization: Bearer " + box.key;

  test("contract: every answer has an id of our own, twice, and nothing that lets web pages in", async () => {
    box.play([{ say: "Yes." }]);
    const good = JSON.stringify(ask("x")), stream = JSON.stringify(ask("x", { stream: true }));
    const id = "x-request-id: mine";
    const rows = [["GET", "/", [], "", 200], ["GET", "/v1/models", [key], "", 200], ["GET", "/v1/models", [], "", 401],
      ["GET", "/nothing", [], "", 404], ["PUT", "/v1/models", [], "", 405], ["POST", "/v1/chat/completions", [key, json], good, 200],
      ["POST", "/v1/chat/completions", [key, json], stream, 200], ["POST", "/v1/chat/completions", [key, json], "{", 400],
      ["POST", "/v1/chat/completions", [key], good, 415], ["POST", "/v1/chat/completions", [key, json, "Origin: http://a.example"], good, 403],
      ["POST", "/chat/completions", [key, "Content-Type: application/json; charset=utf-8"], good, 200],
      ["POST", "/v1/messages?beta=true", [key, json], good, 200], ["GET", "/models/" + MODEL, [key], "", 200]];
    const ids = new Set();
    for (const [method, path, headers, body, status] of rows) {
      const text = await send(method, path, [...headers, id], body);
      const head = headOf(text);
      assert.equal(statusOf(text), status, method + path + text);
      const [, own] = /^x-request-id: (req_[0-9a-f]{24})\r?$/mi.exec(head) ?? assert.fail(head);
      assert.match(head, new RegExp(`^request-id: ${own}\\r?$`, "mi"));
      assert.doesNotMatch(head, /access-control|^server:|x-powered-by|mine/mi);
      ids.add(own);
    }
    assert.equal(ids.size, rows.length);
  });

  test("contract: no path in any spelling, by any method, does anything without a key", async () => {
    const { requests } = (await box.admin("status")).data;
    for (const path of PATHS.flatMap(spellings))
      for (const method of METHODS) {
        const text = await send(method, path, [json], method === "POST" ? JSON.stringify(ask("x")) : "");
        // 429: so often without a valid key; who has one does not hear it
        assert.ok([400, 401, 404, 405, 429].includes(statusOf(text)), `${method} ${path} -> ${text}`);
      }
    assert.equal(statusOf(await send("GET", "/v1/models", [key])), 200);
    assert.equal((await box.admin("status")).data.requests, requests);
    for (const path of ["/", "/healthz"]) assert.equal(statusOf(await send("GET", path)), 200);
    for (const path of ELSEWHERE) assert.equal(statusOf(await send("GET", path, [key])), 404, path);
    assert.equal(statusOf(await send("POST", "/v1/completions", [key, json], '{"prompt":"<｜User｜>"}')), 404);
  });

  test("contract: bodies of no byte, of one, of the limit and of one more", async () => {
    const { json: refused } = await post(box, "x".repeat(8 << 20));
    const { limit } = refused.error;
    assert.equal(refused.error.code, "request_too_large");
    assert.ok(limit >= 8 * CONTEXT && limit <= 32 << 20, String(limit));
    const filled = (size) => {
      const body = JSON.stringify(ask("x", { user: "" }));
      return body.replace('"user":""', () => `"user":"${"y".repeat(size - body.length)}"`);
    };
    box.play([{ say: "Yes." }]);
    for (const [body, status] of [["", 400], ["1", 400], [filled(limit - 1), 200], [filled(limit), 200], [filled(limit + 1), 413]])
      assert.equal((await post(box, body)).status, status, String(body.length));
    for (const length of ["9223372036854775807", "9223372036854775808", "18446744073709551615", "18446744073709551616"]) {
      const text = await raw(box, `POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n${key}\r\n${json}\r\n` +
        `Content-Length: ${length}\r\n\r\n`, { until: "\r\n\r\n" });
      assert.ok([400, 413].includes(statusOf(text)), length + text); // at once: such a body never ends
    }
    assert.equal((await post(box, ask("x"))).status, 200);
  });
}

function fields(box) {
  test("contract: the form of an answer, whole and in a stream, and the order of its deltas", async () => {
    box.play([{ say: thinks("Hm.", "Yes." + calls(call("count", { n: 1 }))) }]);
    const request = ask("x", { tools: [TOOL], thinking: { type: "enabled" } });
    const { json: whole } = await post(box, request);
    assert.deepEqual(Object.keys(whole).sort(), ["choices", "created", "id", "model", "object", "system_fingerprint", "usage"]);
    assert.deepEqual([whole.object, whole.model, whole.choices.length], ["chat.completion", MODEL, 1]);
    assert.ok(Math.abs(whole.created - Date.now() / 1000) < 3600);
    const [{ index, logprobs, finish_reason, message }] = whole.choices;
    assert.deepEqual([index, logprobs, finish_reason, message.role], [0, null, "tool_calls", "assistant"]);
    const { chunks, usage } = await streamTurn(box, { ...request, stream_options: { include_usage: true } });
    for (const chunk of chunks) {
      assert.deepEqual([chunk.object, chunk.model, chunk.id, chunk.system_fingerprint],
        ["chat.completion.chunk", MODEL, chunks[0].id, whole.system_fingerprint]);
      assert.ok(chunk === chunks.at(-1) ? chunk.choices.length === 0 : chunk.usage == null);
    }
    const deltas = chunks.slice(0, -1).map(({ choices: [choice] }) => choice);
    assert.deepEqual(deltas[0].delta, { role: "assistant", content: "" });
    assert.deepEqual([deltas.at(-1).delta, deltas.at(-1).finish_reason], [{}, "tool_calls"]);
    assert.ok(deltas.slice(0, -1).every((one) => one.finish_reason === null));
    const order = deltas.slice(1, -1).map(({ delta }) => Object.keys(delta).join());
    assert.deepEqual(order.filter((one, i) => one !== order[i - 1]), ["reasoning_content", "content", "tool_calls"]);
    const { v4box: _, ...counts } = usage;
    assert.deepEqual(Object.keys(counts).sort(), ["completion_tokens", "completion_tokens_details", "prompt_cache_hit_tokens",
      "prompt_cache_miss_tokens", "prompt_tokens", "prompt_tokens_details", "total_tokens"]);
    assert.equal(counts.completion_tokens, whole.usage.completion_tokens);
    assert.deepEqual(counts.completion_tokens_details, whole.usage.completion_tokens_details);
    assert.ok(counts.completion_tokens_details.reasoning_tokens > 0);
  });

  test("contract: fields that are taken, and those that are ignored whatever they hold", async () => {
    box.play([{ say: "Yes." }]);
    const odd = { user: 5, metadata: "x", store: true, service_tier: [], prompt_cache_key: {}, safety_identifier: 1.5,
      verbosity: null, user_id: false, future_field: { a: [1] } };
    const rows = [odd, { n: 1, logprobs: false, top_logprobs: 0, logit_bias: {}, functions: [], modalities: ["text"] },
      { stream: false, stream_options: { include_usage: true } }, { tools: [TOOL, SECOND], tool_choice: "auto" },
      { tools: [{ type: "function", function: { name: "s", parameters: { $schema: "http://json-schema.org/draft-07/schema#",
        type: "object", properties: { a: { anyOf: [{ type: "string", format: "uri", pattern: "^a" }, { type: "null" }] } },
        propertyNames: { type: "string" } } } }] },
      { max_completion_tokens: 32000, max_tokens: undefined }, { temperature: 2, top_p: 1, top_k: 5, min_p: 0.1, seed: -1 },
      { presence_penalty: -2, frequency_penalty: 2 }, { stop: Array(16).fill("zz") }, { stop: "zz" },
      ...["none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra"].map((reasoning_effort) => ({ reasoning_effort })),
      ...["enabled", "disabled", "adaptive"].map((type) => ({ thinking: { type } })), { chat_template_kwargs: { thinking: false } },
      { response_format: { type: "text" } }, { model: "deepseek-chat" },
      { messages: [{ role: "developer", content: "a" }, user("b"), user("c"), { role: "system", content: "d" }, user("e"),
        { role: "assistant", content: null, tool_calls: [{ id: "1", type: "function", function: { name: "invalid", arguments: "no" } }] },
        { role: "tool", tool_call_id: "other", content: [{ type: "text", text: "f" }] },
        { role: "assistant", content: "g", reasoning_content: null }, { role: "assistant", content: "h", reasoning: "" }, user("i")] }];
    for (const change of rows) {
      const { status, json, text } = await post(box, { ...ask("x"), ...change });
      assert.equal(status, 200, JSON.stringify(change) + text);
      assert.equal(json.model, MODEL);
      assert.equal(json.choices[0].finish_reason, "stop");
    }
  });

  test("contract: thinking, tool_choice and response_format in every combination", async () => {
    const choices = ["auto", "none", "required", { type: "function", function: { name: "count" } }];
    for (const on of [false, true])
      for (const tool_choice of choices)
        for (const type of ["text", "json_object"]) {
          const must = tool_choice === "required" || typeof tool_choice === "object";
          const answer = must ? calls(call("count", { n: 7 })) : type === "text" ? "Yes." : '{"a": 1}';
          const label = JSON.stringify([on, tool_choice, type]);
          box.play([{ say: on ? thinks("Hm, {.", answer) : answer }]);
          const request = ask("x", { tools: [TOOL], tool_choice, response_format: { type },
            thinking: { type: on ? "enabled" : "disabled" } });
          const { status, text, json } = await post(box, request);
          assert.equal(status, 200, label + text);
          const { message, finish_reason } = json.choices[0];
          assert.equal(message.reasoning_content ?? "", on ? "Hm, {." : "", label);
          assert.equal(message.content, must ? "" : answer, label);
          assert.equal(finish_reason, must ? "tool_calls" : "stop", label);
          const turn = await streamTurn(box, request);
          assert.deepEqual([turn.reasoning, turn.content, turn.finish],
            [message.reasoning_content ?? "", message.content, finish_reason], label);
        }
    // what the rules forbid is not said, behind reasoning either
    for (const [change, said] of [[{ tool_choice: "required" }, "Yes."], [{ response_format: { type: "json_object" } }, "Yes."],
      [{ tool_choice: "none" }, calls(call("count", { n: 7 }))]]) {
      box.play([{ say: thinks("Hm.", said) }]);
      const answer = await post(box, ask("x", { tools: [TOOL], thinking: { type: "enabled" }, ...change }));
      assert.deepEqual([answer.status, answer.json.error?.code], [500, "engine_error"], answer.text);
    }
  });
}

function sizes(box) {
  test("contract: a prompt up to the last token of the context is admitted, one more is told at once", async () => {
    box.play([{ say: "Yes." }]);
    const overhead = (await post(box, ask("x"))).json.usage.prompt_tokens - 1;
    let admitted = 0, refused = 0;
    for (const want of [CONTEXT / 2, CONTEXT - 130, CONTEXT - 2, CONTEXT - 1, CONTEXT, CONTEXT + 1, 3 * CONTEXT]) {
      // "x x x .." is a token a word, but for whatever the vocabulary joins: what counts is what it says
      const answer = await post(box, ask("x" + " x".repeat(want - overhead - 1), { max_tokens: 32000 }));
      if (answer.status === 200) {
        const { prompt_tokens, total_tokens } = answer.json.usage;
        assert.ok(total_tokens <= CONTEXT, JSON.stringify(answer.json.usage));
        assert.ok(prompt_tokens < CONTEXT);
        admitted++;
        continue;
      }
      assert.deepEqual([answer.status, answer.json.error.code], [400, "context_length_exceeded"], answer.text);
      const [, limit, got] = /maximum context length is (\d+) tokens.*resulted in (\d+) tokens/.exec(answer.json.error.message);
      assert.ok(Number(limit) === CONTEXT && Number(got) >= CONTEXT, answer.json.error.message);
      refused++;
    }
    assert.ok(admitted >= 2 && refused >= 2, `${admitted} admitted, ${refused} refused`);
  });

  test("contract: a client that leaves the queue is forgotten, and the next ones are served", async () => {
    box.play([{ last: ["hold"], say: "word ".repeat(900), token_ms: 20 }, { say: "Yes." }]);
    const held = [], abort = new AbortController();
    const hold = ask("hold", { max_tokens: 1800, stream: true });
    for (let i = 0; i < 2; i++) held.push(await box.client.chat.completions.create(hold, { signal: abort.signal }));
    await until(box, ({ running }) => running === 2);
    const stays = post(box, ask("stay"));
    for (const stream of [false, true]) {
      const leaves = new AbortController();
      const gone = fetch(box.url + "/v1/chat/completions", { method: "POST", signal: leaves.signal,
        body: JSON.stringify(ask("leave", { stream })), headers: { authorization: "Bearer " + box.key, "content-type": "application/json" } })
        .then((response) => response.text()).catch((error) => error.name);
      await until(box, ({ waiting }) => waiting === 2);
      leaves.abort();
      await until(box, ({ waiting }) => waiting === 1);
      assert.equal(await gone, "AbortError");
    }
    abort.abort();
    assert.equal((await stays).json.choices[0].message.content, "Yes.");
    assert.equal(held.length, 2);
  });
}

export async function contract({ engine, model }) {
  const box = await start({ engine: engine + "-scripted", model, script: [],
    flags: ["--context", String(CONTEXT), "--sessions", "2"] });
  after(() => stop(box));
  transport(box);
  fields(box);
  sizes(box);
}
