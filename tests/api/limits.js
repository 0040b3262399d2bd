// Limits of keys, through real clients: what they hear, that they wait and succeed, and who else is served.
import assert from "node:assert/strict";
import test from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { MODEL, ask, user, wait } from "./target.js";

const HI = ask("Hi", { max_tokens: 1 });

export function limits(target) {
  const withKey = async (run) => {
    const { data } = await target.admin("keys", "create", "limited");
    const limit = (word, value) => target.admin("keys", "limit", data.id, word, value);
    const client = (maxRetries) => new OpenAI({ baseURL: target.url + "/v1", apiKey: data.secret, maxRetries });
    try {
      return await run({ id: data.id, key: data.secret, limit, client });
    } finally {
      await target.admin("keys", "delete", data.id);
    }
  };
  const refused = (status, code) => (error) => error.status === status && error.code === code;

  test("limits: over the rate a client hears 429, waits as long as told, and succeeds", () =>
    withKey(async ({ key, limit, client }) => {
      await limit("rate", "10"); // one more each 6 s
      const answers = await Promise.allSettled(Array.from({ length: 40 }, () => client(0).models.list()));
      assert.ok(answers.filter(({ status }) => status === "fulfilled").length >= 10);
      const { reason } = answers.find(({ status }) => status === "rejected");
      assert.ok(refused(429, "rate_limit_exceeded")(reason) && /rate limit/i.test(reason.message));
      assert.ok(Number(reason.headers.get("retry-after")) >= 1 && Number(reason.headers.get("retry-after")) <= 6);
      assert.equal((await client(5).chat.completions.create(HI)).usage.completion_tokens, 1);
      const anthropic = new Anthropic({ baseURL: target.url, apiKey: key, maxRetries: 5 });
      const message = await anthropic.messages.create({ model: MODEL, max_tokens: 1, messages: [user("Hi")] });
      assert.equal(message.usage.output_tokens, 1);
      await target.client.chat.completions.create(HI); // nobody else waits
    }));

  test("limits: one at a time", () => withKey(async ({ limit, client }) => {
    await limit("concurrent", "1");
    const stream = await client(0).chat.completions.create(
      { ...ask("Tell me about jazz music.", { max_tokens: 2000, temperature: 2, seed: 3 }), stream: true });
    for await (const chunk of stream) {
      assert.ok(chunk);
      await assert.rejects(client(0).chat.completions.create(HI), refused(429, "concurrency_limit_exceeded"));
      break;
    }
    assert.equal((await client(8).chat.completions.create(HI)).usage.completion_tokens, 1);
  }));

  test("limits: tokens of a day count what was computed", () => withKey(async ({ limit, client }) => {
    const { usage } = await client(0).chat.completions.create(HI);
    const request = { ...HI, messages: [user("word ".repeat(400))] };
    await limit("tokens", String(usage.total_tokens + 1));
    await client(0).chat.completions.create(request);
    await wait(500); // counted once the answer is gone, which the client may be faster than
    await assert.rejects(client(0).chat.completions.create(HI), (error) =>
      refused(429, "daily_limit_exceeded")(error) && Number(error.headers.get("retry-after")) > 0);
    await limit("tokens", "1000000");
    await client(0).chat.completions.create(HI);
  }));

  test("limits: a smaller context is told, and overflows as the box's own does", () =>
    withKey(async ({ limit, client }) => {
      await limit("context", "200");
      assert.equal((await client(0).models.retrieve(MODEL)).context_length, 200);
      await assert.rejects(client(0).chat.completions.create(ask("word ".repeat(400))), (error) =>
        refused(400, "context_length_exceeded")(error) && /maximum context length is 200 tokens/.test(error.message));
      const { usage } = await client(0).chat.completions.create(
        ask("Tell me about jazz music.", { max_tokens: 1000, temperature: 2, seed: 3 }));
      assert.ok(usage.total_tokens <= 200);
    }));

  test("limits: a disabled or expired key is an unknown one", () => withKey(async ({ id, limit, client }) => {
    const texts = new Set();
    const fails = () => assert.rejects(client(0).models.list(),
      (error) => texts.add(error.message) && refused(401, "invalid_api_key")(error));
    await target.admin("keys", "disable", id);
    await fails();
    await target.admin("keys", "enable", id);
    await client(0).models.list();
    await target.admin("keys", "expire", id, "2001-01-01");
    await fails();
    const list = (await target.admin("keys", "list")).data.keys.find((one) => one.id === id);
    assert.deepEqual(list, { id, name: "limited", expires: "2001-01-01" });
    await target.admin("keys", "expire", id, "never");
    await client(0).models.list();
    await assert.rejects(new OpenAI({ baseURL: target.url + "/v1", apiKey: "nonsense", maxRetries: 0 })
      .models.list(), (error) => texts.add(error.message) && error.status === 401);
    assert.equal(texts.size, 1);
    assert.equal((await limit("rate", "0")).ok, false);
  }));
}
