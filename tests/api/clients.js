// What the clients of harnesses do with the box by themselves: back off, run tools in a loop, send
// reasoning back, parse formats.  Answers are played by a script where the model's talent is the limit.
import assert from "node:assert/strict";
import net from "node:net";
import test, { after } from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateObject, generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";
import { call, calls, thinks } from "./script.js";
import { MODEL, ask, raw, start, stop, wait } from "./target.js";

const ON = { type: "enabled" };
const PERSON = z.object({ name: z.string(), age: z.number().int(), mood: z.enum(["good", "bad"]) });

/** Takes every slot and place of the queue; gives what lets them go. */
async function fill(server) {
  const body = JSON.stringify(ask("hold this place", { stream: true, max_tokens: 4000 }));
  const sockets = [];
  const one = () => new Promise((resolve) => {
    const socket = net.connect(server.connect, () => socket.write("POST /v1/chat/completions HTTP/1.1\r\n" +
      `Host: localhost\r\nAuthorization: Bearer ${server.key}\r\nContent-Type: application/json\r\n` +
      `Content-Length: ${body.length}\r\n\r\n${body}`));
    sockets.push(socket);
    socket.once("data", (text) => resolve(String(text).startsWith("HTTP/1.1 200")));
    socket.on("error", () => resolve(false));
  });
  while (await one());
  return () => sockets.forEach((socket) => socket.destroy());
}

const refusals = (server) => (server.err.match(/status=429/g) ?? []).length;

export async function clients({ engine, model }) {
  const server = await start({ engine: engine + "-scripted", model, flags: ["--sessions", "1"], script: [] });
  after(() => stop(server));
  const openai = new OpenAI({ baseURL: server.url + "/v1", apiKey: server.key });
  const anthropic = new Anthropic({ baseURL: server.url, apiKey: server.key, authToken: null });
  const seen = []; // bodies that the AI SDK sent
  const box = createOpenAICompatible({ name: "box", baseURL: server.url + "/v1", apiKey: server.key, includeUsage: true,
    supportsStructuredOutputs: true,
    fetch: (url, init) => (seen.push(JSON.parse(init.body)), fetch(url, init)) })(MODEL);
  const requests = async () => (await server.admin("status")).data.requests;

  test("429: each client waits as long as it is told, and is served", async () => {
    server.play([{ last: ["hold this place"], say: "word ".repeat(3000), token_ms: 20 }, { say: "Yes." }]);
    const release = await fill(server);
    const before = refusals(server);
    const answers = [
      openai.chat.completions.create(ask("go")).then(({ choices }) => choices[0].message.content),
      anthropic.messages.create(ask("go")).then(({ content }) => content[0].text),
      generateText({ model: box, prompt: "go" }).then(({ text }) => text),
    ];
    while (refusals(server) < before + 3) await wait(20);
    release();
    assert.deepEqual(await Promise.all(answers), ["Yes.", "Yes.", "Yes."]);
  });

  test("AI SDK: the loop runs two calls of one answer, and sends reasoning and results back", async () => {
    server.play([{ last: ["<tool_result>"], say: thinks("Both are known.", "3 and 4.") },
      { say: thinks("Two at once.", "Let me see." + calls(call("count", { of: "a" }), call("count", { of: "b" }))) }]);
    const ran = [];
    const count = tool({ description: "Count.", inputSchema: jsonSchema({ type: "object",
      properties: { of: { type: "string" } }, required: ["of"] }),
    execute: ({ of }) => (ran.push(of), { a: 3, b: 4 }[of]) });
    const from = seen.length;
    const stream = streamText({ model: box, prompt: "Count a and b.", tools: { count }, stopWhen: stepCountIs(3),
      providerOptions: { box: { reasoningEffort: "high" } } });
    let text = "";
    for await (const part of stream.fullStream) {
      assert.notEqual(part.type, "error", JSON.stringify(part));
      if (part.type === "text-delta") text += part.text;
    }
    assert.deepEqual(ran, ["a", "b"]);
    assert.equal(text, "Let me see.3 and 4.");
    const [first, second] = (await stream.steps).map(({ usage }) => usage);
    const [, again] = seen.slice(from);
    const said = again.messages[1];
    assert.equal(said.reasoning_content, "Two at once.");
    assert.deepEqual(again.messages.slice(2).map(({ role, content }) => [role, content]), [["tool", "3"], ["tool", "4"]]);
    assert.ok(second.cachedInputTokens >= first.inputTokens, JSON.stringify([first, second]));
  });

  test("AI SDK: a fault in a stream is an error and no second request", async () => {
    server.play([{ say: "Some words", fault: true }]);
    const before = await requests();
    const parts = [];
    const stream = streamText({ model: box, prompt: "go", maxRetries: 2, onError: () => {} });
    try {
      for await (const part of stream.fullStream) parts.push(part.type);
    } catch {
      parts.push("error"); // the connection is broken off behind the error event
    }
    assert.ok(parts.includes("error") && !parts.includes("finish"), parts.join());
    assert.equal(await requests(), before + 1);
  });

  test("formats: openai's parse and AI SDK's generateObject get an object by the schema", async () => {
    server.play([]);
    const parsed = await openai.chat.completions.parse({ ...ask("Good day! What is your name?"), max_tokens: 400,
      response_format: zodResponseFormat(PERSON, "person") });
    assert.equal(PERSON.safeParse(parsed.choices[0].message.parsed).success, true);
    const { object } = await generateObject({ model: box, schema: PERSON, prompt: "Good day!", temperature: 0 });
    assert.equal(PERSON.safeParse(object).success, true);
    assert.equal(seen.at(-1).response_format.type, "json_schema");
    const refused = z.object({ name: z.string().regex(/^a/) });
    for (const ask_it of [
      () => openai.chat.completions.parse({ ...ask("x"), response_format: zodResponseFormat(refused, "person") }),
      () => generateObject({ model: box, schema: refused, prompt: "x" })])
      await assert.rejects(ask_it, (error) => (error.status ?? error.statusCode) === 400 && /schema/.test(JSON.stringify(error)));
  });

  test("characters stay whole, whatever tokens they are made of", async () => {
    const text = "😀👩‍👩‍👧‍👦 Größe 你好 \u{10FFFF} e\u0301";
    server.play([{ say: thinks(text, text) }]);
    const streams = {
      openai: await openai.chat.completions.create({ ...ask("go"), stream: true, thinking: ON }),
      anthropic: await anthropic.messages.create({ ...ask("go"), stream: true, thinking: { ...ON, budget_tokens: 1024 } }),
    };
    for (const [name, stream] of Object.entries(streams)) {
      let content = "", reasoning = "";
      for await (const part of stream) {
        const delta = part.choices?.[0]?.delta ?? part.delta ?? {};
        for (const piece of [delta.content ?? delta.text, delta.reasoning_content ?? delta.thinking].filter(Boolean))
          assert.ok(piece.isWellFormed() && !piece.includes("\uFFFD"), name + JSON.stringify(piece));
        content += delta.content ?? delta.text ?? "";
        reasoning += delta.reasoning_content ?? delta.thinking ?? "";
      }
      assert.equal(content, text, name);
      assert.equal(reasoning, text, name);
    }
  });

  test("the bytes of a stream: events of whole lines, each one JSON, nothing else", async () => {
    server.play([{ say: thinks("a\r\nb\u2028c", "line\nline\r\n\r\ndata: {}\n\n: x" + calls(call("count", { of: "\n\ndata: [DONE]\n\n" }))) }]);
    const tools = [{ name: "count", parameters: { type: "object", properties: { of: { type: "string" } } } }];
    const bodies = { "chat/completions": ask("go", { tools: tools.map((f) => ({ type: "function", function: f })), thinking: ON }),
      messages: ask("go", { tools: tools.map(({ name, parameters }) => ({ name, input_schema: parameters })), thinking: ON }) };
    for (const [where, request] of Object.entries(bodies)) {
      const body = JSON.stringify({ ...request, stream: true });
      const text = await raw(server, `POST /v1/${where} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${server.key}\r\n` +
        `Content-Type: application/json\r\nConnection: close\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`);
      const [head, ...rest] = text.split("\r\n\r\n");
      assert.match(head, /^HTTP\/1\.1 200 .*\r\n[^]*text\/event-stream/);
      // the chunks of the transfer, put together
      let chunked = rest.join("\r\n\r\n"), stream = "";
      for (let size; (size = parseInt(chunked, 16)) > 0; chunked = chunked.slice(chunked.indexOf("\n") + 1 + size + 2))
        stream += chunked.slice(chunked.indexOf("\n") + 1, chunked.indexOf("\n") + 1 + size);
      assert.ok(stream.endsWith("\n\n") && !stream.includes("\r"), where);
      const events = stream.slice(0, -2).split("\n\n");
      for (const event of events) {
        const line = where === "messages" ? /^event: [a-z_]+\ndata: (\{.*\})$/ : /^data: (\{.*\}|\[DONE\])$/;
        assert.match(event, line);
        if (!event.endsWith("[DONE]")) JSON.parse(line.exec(event)[1]);
      }
      assert.ok(events.length > 10, where);
    }
  });
}
