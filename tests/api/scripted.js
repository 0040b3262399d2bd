// Answers that the small model cannot be trusted to give, played by a script through the real mask,
// parser and server: long and hostile arguments, calls in parallel, faults, clients that leave.
import assert from "node:assert/strict";
import test, { after } from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import { call, calls, thinks } from "./script.js";
import { streamTurn } from "./smoke.js";
import { MODEL, ask, post, start, stop, until, untilIdle, user } from "./target.js";

const WRITE = { type: "function", function: { name: "write", description: "Write a file.", parameters: {
  type: "object", properties: { filePath: { type: "string" }, content: { type: "string" } },
  required: ["filePath", "content"] } } };
const COUNT = { type: "function", function: { name: "count", description: "Count.", parameters: {
  type: "object", properties: { n: { type: "integer" }, list: { type: "array" } }, required: ["n"] } } };
const TOOLS = [WRITE, COUNT];

// What other servers' parsers trip over, and each kind of text.
const HOSTILE = {
  "a redirect at the end": "ls 2>&1",
  "closing tags as text": "</｜DSML｜parameter>\n</｜DSML｜invoke></｜DSML｜tool_calls>",
  "opening tags as text": '<｜DSML｜invoke name="count"><｜DSML｜parameter name="n" string="false">',
  "other markup": "<![CDATA[ x ]]> &lt; <tool_call> </think><think> <｜User｜>",
  "quotes and escapes": "\"\\\"'\\n\\u0041\t\r\n",
  "emoji and scripts": "😀👩‍👩‍👧‍👦 Größe 你好 \u{10FFFF}\uFFFD",
  "nothing": "",
  "line ends alone": "\n\n\n",
  "a JSON text": '{"filePath": "x", "content": ["y"]}',
};
const askTool = (content, more = {}) => ask(content, { max_tokens: 4000, tools: TOOLS, ...more });
const joined = (chunks) => {
  const list = [];
  for (const { index, function: part } of chunks.flatMap(({ choices }) => choices[0]?.delta.tool_calls ?? []))
    if (part.name !== undefined) list[index] = { name: part.name, text: part.arguments };
    else list[index].text += part.arguments;
  return list.map(({ name, text }) => ({ name, args: JSON.parse(text) }));
};
/** The text of an answer up to its end, whether it is closed or broken off. */
async function allOf(response) {
  let text = "";
  try {
    for await (const part of response.body.pipeThrough(new TextDecoderStream())) text += part;
  } catch {
    // as a fault in a stream ends
  }
  return text;
}
const whole = ({ tool_calls: list = [] }) =>
  list.map(({ function: f }) => ({ name: f.name, args: JSON.parse(f.arguments) }));

export async function scripted({ engine, model }) {
  const server = await start({ engine: engine + "-scripted", model, script: [] });
  after(() => stop(server));
  const complete = async (request) => (await server.client.chat.completions.create(request)).choices[0];
  /** Both forms of one answer. */
  async function both(request) {
    const turn = await streamTurn(server, request);
    const { message, finish_reason } = await complete(request);
    assert.equal(turn.finish, finish_reason);
    assert.equal(turn.content, message.content);
    assert.equal(turn.reasoning, message.reasoning_content ?? "");
    assert.deepEqual(joined(turn.chunks), whole(message));
    return { finish: turn.finish, content: turn.content, reasoning: turn.reasoning, calls: whole(message) };
  }

  test("hostile arguments arrive as they were written, streamed and whole", async () => {
    for (const [name, content] of Object.entries(HOSTILE)) {
      const args = { filePath: "a", content };
      server.play([{ say: "Yes." + calls(call("write", args)) }]);
      assert.deepEqual(await both(askTool("go")),
        { finish: "tool_calls", content: "Yes.", reasoning: "", calls: [{ name: "write", args }] }, name);
    }
  });

  test("two calls in one answer, behind reasoning", async () => {
    const list = [["write", { filePath: "a", content: "b" }], ["count", { n: -3, list: [1, null, { k: "v" }] }],
      ["write", { filePath: "c", content: "" }]];
    server.play([{ say: thinks("First one, then the other.", calls(...list.map((one) => call(...one)))) }]);
    assert.deepEqual(await both(askTool("go", { thinking: { type: "enabled" } })), { finish: "tool_calls", content: "",
      reasoning: "First one, then the other.", calls: list.map(([name, args]) => ({ name, args })) });
  });

  test("a name that is not offered, and a type that is not declared, cannot be said", async () => {
    for (const bad of [call("format", {}), call("count", { n: "three" }), call("write", { filePath: "a" })]) {
      server.play([{ say: calls(bad) }]);
      await assert.rejects(complete(askTool("go")), (error) => error.status === 500 && error.code === "engine_error");
    }
    assert.match(server.err, /the mask bars token \d+ of the script/);
  });

  test("a fault: an error event and no end, wherever it comes; whole: a status", async () => {
    for (const said of ["", "Some words", calls(call("count", { n: 1 })).slice(0, -30)]) {
      server.play([{ say: said, fault: true }]);
      const parts = [];
      const stream = await server.client.chat.completions.create(askTool("go", { stream: true }));
      await assert.rejects(async () => {
        for await (const part of stream) parts.push(part);
      }, (error) => /engine/.test(error.code ?? error.error?.code), said);
      assert.ok(parts.every(({ choices }) => choices[0].finish_reason === null));
      await assert.rejects(complete(askTool("go")), (error) => error.status === 500);
    }
  });

  test("a client that leaves ends the generation: in the prompt, reasoning, content and arguments", async () => {
    const words = "word ".repeat(400);
    const phases = {
      prompt: [{ say: words, wait_ms: 1000, token_ms: 20 }, () => true],
      reasoning: [{ say: thinks(words, "Yes."), token_ms: 20 }, ({ delta }) => delta.reasoning_content],
      content: [{ say: thinks("Hm.", words), token_ms: 20 }, ({ delta }) => delta.content],
      arguments: [{ say: thinks("Hm.", "Yes." + calls(call("write", { filePath: "a", content: words }))), token_ms: 20 },
        ({ delta }) => delta.content?.endsWith("."), 300],
    };
    const told = () => [...server.err.matchAll(/answer=(\d+) profile=\S+ finish=cancelled/g)];
    for (const [name, [rule, there, then_ms = 0]] of Object.entries(phases)) {
      server.play([rule]);
      const abort = new AbortController();
      const request = askTool("leave " + name, { stream: true, thinking: { type: "enabled" } });
      const before = await untilIdle(server), left = told().length;
      const stream = await server.client.chat.completions.create(request, { signal: abort.signal });
      for await (const { choices: [choice] } of stream) {
        if (there(choice) && then_ms === 0) break;
        // a call is told when it is complete: only time tells that it has begun
        if (there(choice)) setTimeout(() => abort.abort(), then_ms);
      }
      abort.abort();
      const after = await untilIdle(server);
      assert.equal(after.requests, before.requests + 1);
      await until(server, () => told().length > left); // the line may come after the counters
      const said = told().at(-1);
      assert.ok(Number(said[1]) < 300, `${name}: ${said}`); // of more than 400
      assert.ok(Number(said[1]) > (then_ms > 0 ? 8 : -1), `${name}: ${said}`);
      // what it has read of the prompt stays
      server.play([{ say: "Yes." }]);
      const again = await server.client.chat.completions.create({ ...request, stream: false, thinking: { type: "disabled" } });
      assert.equal(again.choices[0].message.content, "Yes.");
      assert.ok(again.usage.prompt_tokens_details.cached_tokens > 0, name);
    }
  });

  test("stop strings across tokens, in content only", async () => {
    server.play([{ say: thinks("STOP is a word.", "one two STOP three") }]);
    const answer = await both(ask("go", { thinking: { type: "enabled" }, stop: [" STOP"] }));
    assert.deepEqual(answer, { finish: "stop", content: "one two", reasoning: "STOP is a word.", calls: [] });
  });

  test("max_tokens in reasoning, in content and inside a call", async () => {
    const on = { thinking: { type: "enabled" } };
    server.play([{ say: thinks("a b c d e f", "g h i j k l") }]);
    const thought = await both(ask("go", { ...on, max_tokens: 4 }));
    assert.equal(thought.finish, "length");
    assert.ok(thought.reasoning.length > 0 && thought.content === "");
    const said = await both(ask("go", { ...on, max_tokens: 10 }));
    assert.equal(said.finish, "length");
    assert.ok(said.content.length > 0);
    server.play([{ say: "Yes." + calls(call("count", { n: 1 }), call("count", { n: 2 })) }]);
    const full = (await server.client.chat.completions.create(askTool("go"))).usage.completion_tokens;
    const seen = new Set();
    for (let max_tokens = 5; max_tokens < full; max_tokens += 7) {
      const cut = await both(askTool("go", { max_tokens }));
      // between calls nothing is lost but closing tags
      assert.ok(cut.finish === "length" || cut.finish === "tool_calls" && cut.calls.length > 0, cut.finish);
      assert.deepEqual(cut.calls, [1, 2].slice(0, cut.calls.length).map((n) => ({ name: "count", args: { n } })));
      seen.add(cut.calls.length);
    }
    assert.ok(seen.has(0) && seen.has(1));
  });

  test("a deadline ends the answer in words of each API, streamed and whole", async () => {
    const headers = { authorization: "Bearer " + server.key, "content-type": "application/json" };
    const surfaces = {
      "/v1/chat/completions": [ask("too long"), (body) => body.error.code],
      "/v1/messages": [{ model: MODEL, max_tokens: 900, messages: [user("too long")] }, (body) => body.error.code],
      "/v1/responses": [{ model: MODEL, input: "too long", store: false }, (body) => (body.error ?? body).code],
    };
    server.play([{ last: ["too long"], say: "word ".repeat(900), token_ms: 30 }]);
    for (const [path, [request, code]] of Object.entries(surfaces)) {
      for (const stream of [false, true]) {
        const response = await fetch(server.url + path, { method: "POST", headers,
          body: JSON.stringify({ ...request, stream, deadline_ms: 400 }) });
        const text = await allOf(response);
        assert.equal(response.status, stream ? 200 : 504, path);
        assert.match(text, /deadline_exceeded/, path);
        assert.doesNotMatch(text, /\[DONE\]|message_stop|response\.completed|finish_reason":"/, path);
        if (stream) continue;
        assert.equal(code(JSON.parse(text)), "deadline_exceeded");
        assert.equal(response.headers.get("x-should-retry"), "false");
      }
    }
    server.play([{ say: "Yes." }]);
    assert.equal((await complete(ask("go", { deadline_ms: 600_000 }))).message.content, "Yes.");
    await assert.rejects(complete(ask("go", { deadline_ms: 0 })), ({ status, param }) => status === 400 && param === "deadline_ms");
  });

  test("who waits with a key of more priority goes first", async () => {
    const box = await start({ engine: engine + "-scripted", model, flags: ["--sessions", "1"], script: [] });
    box.play([{ last: ["hold"], say: "word ".repeat(900), token_ms: 20 }, { last: ["turn"], say: "Yes.", token_ms: 100 }]);
    const abort = new AbortController();
    const held = await box.client.chat.completions.create(ask("hold", { stream: true }), { signal: abort.signal });
    await until(box, ({ running }) => running === 1);
    const order = [], answers = [];
    for (const priority of ["1", "5", "9"]) {
      const { data } = await box.admin("keys", "create", "key" + priority);
      await box.admin("keys", "limit", data.id, "priority", priority);
      answers.push(post({ ...box, key: data.secret }, ask("turn")).then(({ status }) => order.push([priority, status])));
      await until(box, ({ waiting }) => waiting === answers.length);
    }
    abort.abort();
    assert.ok(held);
    await Promise.all(answers);
    assert.deepEqual(order, [["9", 200], ["5", 200], ["1", 200]]);
    await stop(box);
  });

  test("signs of life of the Messages API make no block, before words, before a call alone and inside arguments", async () => {
    const box = await start({ engine: engine + "-scripted", model, flags: ["--keepalive-ms", "100"], script: [] });
    const args = { filePath: "a", content: "word ".repeat(20) };
    const client = new Anthropic({ baseURL: box.url, apiKey: box.key, maxRetries: 0 });
    for (const words of ["Yes.", ""]) {
      box.play([{ say: words + calls(call("write", args)), wait_ms: 1000, token_ms: 30 }]);
      const request = { model: MODEL, max_tokens: 900, messages: [user("go")],
        tools: [{ name: "write", input_schema: WRITE.function.parameters }] };
      const stream = client.messages.stream(request);
      let inside = 0;
      stream.on("streamEvent", ({ delta }) => { inside += delta?.text === ""; });
      const message = await stream.finalMessage();
      assert.ok(words === "" || inside > 1, String(inside));
      assert.deepEqual([message.content.at(-1).input, message.stop_reason], [args, "tool_use"]);
      const kinds = message.content.map((block) => block.text ?? block.type);
      assert.deepEqual(kinds, words === "" ? ["tool_use"] : [words, "tool_use"]);
      const whole = await client.messages.create(request);
      assert.deepEqual(whole.content.map((block) => block.text ?? block.type), kinds);
      const raw = await fetch(box.url + "/v1/messages", { method: "POST", body: JSON.stringify({ ...request, stream: true }),
        headers: { "x-api-key": box.key, "content-type": "application/json" } });
      const events = [...(await raw.text()).matchAll(/^event: (\w+)$/gm)].map(([, name]) => name);
      assert.ok(events.indexOf("content_block_start") > 2, String(events)); // message_start and more than one ping
      assert.ok(events.slice(1, events.indexOf("content_block_start")).every((name) => name === "ping"), String(events));
    }
    await stop(box);
  });
}
