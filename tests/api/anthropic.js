// The Messages API through its own client: streams against whole answers, the agent's loop, thinking
// that comes back, counting, errors.
import assert from "node:assert/strict";
import test from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import { MODEL, post, user } from "./target.js";

const text = (description) => ({ type: "string", description });
const tool = (name, description, properties) => ({ name, description,
  input_schema: { type: "object", properties, required: Object.keys(properties) } });
const TOOLS = [
  tool("write", "Write a file.", { filePath: text("path of the file"), content: text("text to write") }),
  tool("read", "Read a file.", { filePath: text("path of the file") }),
  tool("bash", "Run a shell command.", { command: text("command line"), description: text("what it does") }),
];
const RUN_LS = "Run ls -la";
const LIST = { command: "ls -la", description: RUN_LS };
const ON = { thinking: { type: "enabled", budget_tokens: 1024 } };

const ask = (content, more = {}) =>
  ({ model: MODEL, temperature: 0, max_tokens: 300, messages: [user(content)], ...more });
const kinds = (message) => message.content.map((block) => block.type);
/** A message without what differs from answer to answer. */
const plain = ({ content, stop_reason, stop_sequence }) =>
  ({ stop_reason, stop_sequence, content: content.map(({ id: _, ...block }) => block) });
const total = (usage) => usage.input_tokens + usage.cache_read_input_tokens;

export function anthropic(target) {
  const options = { baseURL: target.url, maxRetries: 0, timeout: 900_000 };
  const client = new Anthropic({ ...options, apiKey: target.key, authToken: null });
  const bearer = new Anthropic({ ...options, apiKey: null, authToken: target.key });

  for (const [name, request] of Object.entries({
    text: ask("Good day! What is your name?"),
    thinking: ask("Good day! What is your name?", ON),
    "a call": ask(RUN_LS, { tools: TOOLS }),
    "thinking and a call": ask(RUN_LS, { tools: TOOLS, ...ON }),
    "max_tokens": ask("Good day! What is your name?", { max_tokens: 3 }),
    "a stop sequence": ask("Good day! What is your name?", { stop_sequences: ["built", "demonstration"] }),
  }))
    test(`anthropic: the stream of ${name} equals the whole answer`, async () => {
      const streamed = await client.messages.stream(request).finalMessage();
      const whole = await bearer.messages.create(request);
      assert.deepEqual(plain(streamed), plain(whole));
      assert.ok(whole.content.length > 0);
      assert.equal(streamed.usage.output_tokens, whole.usage.output_tokens);
      assert.equal(total(streamed.usage), total(whole.usage));
      const { max_tokens: _, temperature: __, stop_sequences: ___, ...counted } = request;
      assert.equal((await client.messages.countTokens(counted)).input_tokens, total(whole.usage));
    });

  test("anthropic: the agent's loop runs a tool, keeps its thinking and reuses the prompt", async () => {
    const request = ask(RUN_LS, { tools: TOOLS, ...ON });
    const first = await client.beta.messages.create(request);
    assert.equal(first.stop_reason, "tool_use");
    assert.deepEqual(kinds(first), ["thinking", "tool_use"]);
    const call = first.content[1];
    assert.deepEqual(call.input, LIST);
    const next = (content) => ({ ...request, messages: [...request.messages,
      { role: "assistant", content }, { role: "user", content: [
        { type: "tool_result", tool_use_id: call.id, content: [{ type: "text", text: "notes.txt" }],
          cache_control: { type: "ephemeral" } }] }] });
    const second = await client.messages.create(next(first.content));
    assert.ok(second.usage.cache_read_input_tokens >= 0.95 * (total(first.usage) + first.usage.output_tokens - 1),
      `${second.usage.cache_read_input_tokens} of ${total(first.usage)} and ${first.usage.output_tokens}`);
    // whatever becomes of the thinking, the model is shown the same
    const [thinking, rest] = [first.content[0], first.content.slice(1)];
    const variants = [first.content, [{ ...thinking, signature: "foreign" }, ...rest],
      [{ ...thinking, signature: "" }, ...rest], [{ type: "redacted_thinking", data: "AAAA" }, ...rest], rest,
      [{ ...thinking, thinking: "" }, ...rest]];
    const counts = [];
    for (const variant of variants) {
      const { max_tokens: _, temperature: __, ...counted } = next(variant);
      counts.push((await client.messages.countTokens(counted)).input_tokens);
    }
    assert.deepEqual(counts, counts.map(() => total(second.usage)));
  });

  test("anthropic: tool_choice none, any and by name", async () => {
    const none = await client.messages.create(ask(RUN_LS, { tools: TOOLS, tool_choice: { type: "none" } }));
    assert.ok(!kinds(none).includes("tool_use"));
    const any = await client.messages.create(ask("Hello", { tools: TOOLS, max_tokens: 1000,
      tool_choice: { type: "any", disable_parallel_tool_use: true } }));
    assert.equal(kinds(any).filter((kind) => kind === "tool_use").length, 1);
    const named = await client.messages.create(ask(RUN_LS, { tools: TOOLS, max_tokens: 1000,
      tool_choice: { type: "tool", name: "read", disable_parallel_tool_use: true } }));
    assert.deepEqual(named.content.filter((block) => block.type === "tool_use").map(({ name }) => name), ["read"]);
  });

  test("anthropic: both APIs show the model the same", async () => {
    const system = [{ type: "text", text: "Be brief." }, { type: "text", text: "Be kind." }];
    const { input_tokens } = await client.messages.countTokens({ model: MODEL, system,
      messages: [user("Hi"), { role: "assistant", content: "Hello." }, user([{ type: "text", text: "So?" }])] });
    const { json } = await post(target, { model: MODEL, max_tokens: 1, messages: [
      { role: "system", content: system }, user("Hi"), { role: "assistant", content: "Hello." }, user("So?")] });
    assert.equal(json.usage.prompt_tokens, input_tokens);
  });

  test("anthropic: what Claude Code sends is taken", async () => {
    const message = await client.beta.messages.create(ask("unused", {
      betas: ["mid-conversation-system-2026-01-01", "interleaved-thinking-2025-05-14"],
      system: [{ type: "text", text: "You are an agent.", cache_control: { type: "ephemeral" } }],
      messages: [{ role: "user", content: [{ type: "text", text: "Good day!", cache_control: { type: "ephemeral" } }] },
        { role: "system", content: "The date is today." }],
      thinking: { type: "adaptive" }, output_config: { effort: "high" }, max_tokens: 32000,
      metadata: { user_id: '{"device_id":"x"}' }, context_management: { edits: [] }, tools: TOOLS,
    }));
    assert.ok(message.content.length > 0);
    assert.equal(message.role, "assistant");
  });

  test("anthropic: keys come in either header, and Authorization goes first", async () => {
    const bearer = { authorization: "Bearer " + target.key }, x = { "x-api-key": target.key };
    const rows = [["messages", bearer, 200], ["messages", x, 200], ["messages?beta=true", x, 200],
      ["messages", { ...x, authorization: "Bearer wrong" }, 401], ["messages", { ...bearer, "x-api-key": "wrong" }, 200],
      ["messages", {}, 401], ["messages/count_tokens", x, 200], ["chat/completions", x, 401]];
    for (const [where, headers, status] of rows) {
      const response = await fetch(`${target.url}/v1/${where}`, { method: "POST",
        body: JSON.stringify(ask("Hi", { max_tokens: 1 })), headers: { ...headers, "content-type": "application/json" } });
      assert.equal(response.status, status, where + Object.keys(headers));
      assert.equal(response.headers.get("request-id"), response.headers.get("x-request-id"));
      await response.text();
    }
  });

  test("anthropic: the model is listed and retrieved with either kind of key", async () => {
    for (const one of [client, bearer]) {
      const list = [];
      for await (const model of one.models.list()) list.push(model);
      assert.deepEqual(list.map(({ id, type, display_name }) => [id, type, display_name]), [[MODEL, "model", MODEL]]);
      assert.ok(Math.abs(new Date(list[0].created_at) - Date.now()) < 3_600_000, list[0].created_at);
      assert.deepEqual(await one.models.retrieve(MODEL), list[0]);
    }
    await assert.rejects(client.models.retrieve("claude"), (error) => error.status === 404);
    await assert.rejects(new Anthropic({ ...options, apiKey: "wrong", authToken: null }).models.list(),
      (error) => error.status === 401);
  });

  test("anthropic: errors have its form, on streams too", async () => {
    const cases = [
      [{ ...ask("x"), max_tokens: undefined }, 400, "invalid_request_error", "max_tokens"],
      [ask("x", { model: "claude" }), 404, "not_found_error", "model"],
      [ask([{ type: "image", source: {} }]), 400, "invalid_request_error", "messages[0].content[0].type"],
      [ask("x", { tools: [{ type: "web_search_20250305", name: "w" }] }), 400, "invalid_request_error", "tools[0].type"],
    ];
    for (const [request, status, type, param] of cases)
      for (const stream of [false, true])
        await assert.rejects(client.messages.create({ ...request, stream }), (error) => {
          assert.equal(error.status, status);
          assert.equal(error.error.type, "error");
          assert.equal(error.error.error.type, type);
          assert.equal(error.error.error.param, param);
          assert.equal(error.error.request_id, error.requestID);
          return true;
        });
    await assert.rejects(client.messages.create(ask("word ".repeat(50_000))), (error) =>
      error.status === 400 && /^prompt is too long: \d+ tokens > \d+ maximum$/.test(error.error.error.message));
    const wrong = new Anthropic({ ...options, apiKey: "wrong", authToken: null });
    await assert.rejects(wrong.messages.create(ask("x")), (error) =>
      error.status === 401 && error.error.error.type === "authentication_error");
  });
}
