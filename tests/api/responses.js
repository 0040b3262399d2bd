// The Responses API through its own client: streams against whole answers, the agent's loop with sealed
// reasoning, what is refused.
import assert from "node:assert/strict";
import test from "node:test";
import { MODEL, post, user } from "./target.js";

const text = (description) => ({ type: "string", description });
const tool = (name, description, properties) => ({ type: "function", name, description, strict: false,
  parameters: { type: "object", properties, required: Object.keys(properties) } });
const TOOLS = [
  tool("write", "Write a file.", { filePath: text("path of the file"), content: text("text to write") }),
  tool("read", "Read a file.", { filePath: text("path of the file") }),
  tool("bash", "Run a shell command.", { command: text("command line"), description: text("what it does") }),
];
const RUN_LS = "Run ls -la";
const LIST = { command: "ls -la", description: RUN_LS };
const ON = { reasoning: { effort: "high", summary: "auto" } };

const ask = (input, more = {}) =>
  ({ model: MODEL, temperature: 0, max_output_tokens: 300, store: false, input, ...more });
const kinds = (response) => response.output.map((item) => item.type);
/** A response without what differs from answer to answer. */
const plain = ({ status, incomplete_details, output, output_text }) => ({ status, incomplete_details, output_text,
  output: output.map(({ id: _, call_id: __, encrypted_content: ___, parsed: ____, parsed_arguments: _____,
    ...item }) => item) });

export function responses(target) {
  const { client } = target;
  const create = (request) => client.responses.create(request);

  for (const [name, request] of Object.entries({
    text: ask("Good day! What is your name?"),
    thinking: ask("Good day! What is your name?", ON),
    "a call": ask(RUN_LS, { tools: TOOLS }),
    "thinking and a call": ask(RUN_LS, { tools: TOOLS, ...ON }),
    "an answer cut": ask("Good day! What is your name?", { max_output_tokens: 3 }),
    "thinking cut": ask("Good day! What is your name?", { ...ON, max_output_tokens: 3 }),
  }))
    test(`responses: the stream of ${name} equals the whole answer`, async () => {
      const stream = await create({ ...request, stream: true });
      const events = [], output = [], texts = {};
      let last = null;
      for await (const event of stream) {
        assert.equal(event.sequence_number, events.length);
        events.push(event.type);
        if (event.delta !== undefined)
          texts[event.item_id] = (texts[event.item_id] ?? "") + event.delta;
        if (event.type === "response.output_item.done") output.push(event.item);
        last = event;
      }
      const whole = await create(request);
      assert.deepEqual(events.slice(0, 2), ["response.created", "response.in_progress"]);
      assert.equal(last.type, "response." + whole.status);
      assert.deepEqual(plain({ ...last.response, output_text: whole.output_text }), plain(whole));
      assert.deepEqual(output, last.response.output);
      for (const item of output)
        assert.equal(texts[item.id] ?? "", item.arguments ?? (item.content ?? item.summary)[0].text);
      assert.equal(whole.usage.output_tokens, last.response.usage.output_tokens);
      assert.equal(whole.usage.input_tokens, last.response.usage.input_tokens);
      assert.equal(whole.usage.total_tokens, whole.usage.input_tokens + whole.usage.output_tokens);
    });

  test("responses: the client's own stream helper puts together the same", async () => {
    const request = ask(RUN_LS, { tools: TOOLS, ...ON });
    const helped = await client.responses.stream(request).finalResponse();
    assert.deepEqual(kinds(helped), ["reasoning", "function_call"]);
    assert.deepEqual(JSON.parse(helped.output[1].arguments), LIST);
    const spoken = await client.responses.stream(ask("Good day! What is your name?")).finalResponse();
    assert.equal(spoken.output_text, (await create(ask("Good day! What is your name?"))).output_text);
    assert.ok(spoken.output_text.length > 0);
  });

  test("responses: the agent's loop runs a tool, keeps its reasoning and reuses the prompt", async () => {
    const request = ask([user(RUN_LS)], { tools: TOOLS, include: ["reasoning.encrypted_content"], ...ON });
    const first = await create(request);
    assert.deepEqual(kinds(first), ["reasoning", "function_call"]);
    const [reasoning, call] = first.output;
    assert.ok(reasoning.encrypted_content.length > reasoning.summary[0].text.length);
    assert.ok(!Buffer.from(reasoning.encrypted_content, "base64url").includes(reasoning.summary[0].text));
    const next = (items) => ({ ...request, input: [...request.input, ...items,
      { type: "function_call_output", call_id: call.call_id, output: "notes.txt" }] });
    const second = await create(next(first.output));
    assert.ok(second.usage.input_tokens_details.cached_tokens >=
      0.95 * (first.usage.total_tokens - 1), JSON.stringify([first.usage, second.usage]));
    // whatever becomes of the reasoning, the model is shown the same
    const { encrypted_content: sealed, ...open } = reasoning;
    for (const items of [[call], [{ ...reasoning, summary: [] }, call], [open, call],
      [{ ...open, summary: [] }, call], [{ ...open, encrypted_content: "AAAA" + sealed.slice(4) }, call],
      [{ ...open, summary: [], encrypted_content: "x" }, call]])
      assert.equal((await create(next(items))).usage.input_tokens, second.usage.input_tokens);
    // an unknown call, which no memory can help: only what was sealed comes through
    const moved = { ...call, call_id: "call_moved", arguments: '{"command": "pwd"}' };
    const count = async (items) => (await create({ ...next(items), input: [user("Another question"), ...items,
      { type: "function_call_output", call_id: "call_moved", output: "notes.txt" }] })).usage.input_tokens;
    const bare = await count([moved]);
    assert.ok(await count([{ ...reasoning, summary: [] }, moved]) > bare);
    assert.equal(await count([{ ...open, summary: [], encrypted_content: sealed.slice(0, -8) }, moved]), bare);
  });

  test("responses: sealed reasoning is nothing to another key", async () => {
    const first = await create(ask(RUN_LS, { tools: TOOLS, ...ON }));
    const [reasoning, call] = first.output;
    const { data } = await target.admin("keys", "create", "other");
    const input = (items) => [user(RUN_LS), ...items,
      { type: "function_call_output", call_id: call.call_id, output: "x" }];
    const foreign = async (items) => {
      const response = await fetch(target.url + "/v1/responses", { method: "POST",
        headers: { authorization: "Bearer " + data.secret, "content-type": "application/json" },
        body: JSON.stringify(ask(input(items), { tools: TOOLS, ...ON, max_output_tokens: 1 })) });
      assert.equal(response.status, 200);
      return (await response.json()).usage.input_tokens;
    };
    assert.equal(await foreign([{ ...reasoning, summary: [] }, call]), await foreign([call]));
    await target.admin("keys", "delete", data.id);
  });

  test("responses: both APIs show the model the same", async () => {
    const { usage } = await create(ask([user("Hi"), { role: "assistant", content: "Hello." },
      { type: "message", role: "user", content: [{ type: "input_text", text: "So?" }] }],
    { instructions: "Be brief.", max_output_tokens: 1 }));
    const { json } = await post(target, { model: MODEL, max_tokens: 1, messages: [
      { role: "system", content: "Be brief." }, user("Hi"), { role: "assistant", content: "Hello." }, user("So?")] });
    assert.equal(json.usage.prompt_tokens, usage.input_tokens);
  });

  test("responses: tool_choice and structured output", async () => {
    const named = await create(ask("Hello", { tools: TOOLS, max_output_tokens: 1000, parallel_tool_calls: false,
      tool_choice: { type: "function", name: "read" } }));
    assert.deepEqual(named.output.map((item) => item.name), ["read"]);
    const schema = { type: "object", additionalProperties: false, required: ["level"],
      properties: { level: { type: "integer", minimum: 3, maximum: 7 } } };
    const parsed = await client.responses.parse(ask("Hello",
      { text: { format: { type: "json_schema", name: "n", strict: true, schema } } }));
    assert.ok(parsed.output_parsed.level >= 3 && parsed.output_parsed.level <= 7);
    await assert.rejects(create(ask("Hello", { text: { format: { type: "json_schema", name: "n", strict: true,
      schema: { ...schema, not: {} } } } })),
    (error) => error.status === 400 && error.code === "invalid_schema" && error.param === "text.format.schema.not");
  });

  test("responses: what would need a memory is refused by name, and errors are told in this API's words", async () => {
    for (const [more, param, code] of [
      [{ store: true }, "store", "unsupported_value"],
      [{ previous_response_id: "resp_1" }, "previous_response_id", "unsupported_value"],
      [{ background: true }, "background", "unsupported_value"],
      [{ tools: [{ type: "web_search" }] }, "tools[0].type", "unsupported_value"],
      [{ input: [{ type: "item_reference", id: "x" }] }, "input[0].type", "unsupported_content"],
      [{ reasoning: { effort: "huge" } }, "reasoning.effort", "invalid_value"],
      [{ max_output_tokens: 0 }, "max_output_tokens", "invalid_value"],
      [{ input: "x ".repeat(60_000) }, "input", "context_length_exceeded"]])
      await assert.rejects(create(ask("Hi", more)),
        (error) => error.status === 400 && error.param === param && error.code === code, param);
  });
}
