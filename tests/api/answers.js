// What answers are made of: usage, sampling, stop strings, limits, thinking, two at once.
import assert from "node:assert/strict";
import test from "node:test";
import { recallStory, streamTurn } from "./smoke.js";
import { MODEL, ask, post, untilIdle, user, wait } from "./target.js";

const NAME = "Good day! What is your name?";

export function answers(target) {
  const complete = (request) => target.client.chat.completions.create(request);

  test("usage: the same streamed and whole, and only on request in a stream", async () => {
    const request = ask(NAME);
    const asked = await streamTurn(target, { ...request, stream_options: { include_usage: true } });
    const unasked = await streamTurn(target, request);
    const whole = await complete(request);
    assert.equal(unasked.usage, null);
    assert.deepEqual(asked.chunks.at(-1).choices, []);
    for (const name of ["prompt_tokens", "completion_tokens", "total_tokens"])
      assert.equal(asked.usage[name], whole.usage[name]);
    assert.equal(whole.usage.total_tokens, whole.usage.prompt_tokens + whole.usage.completion_tokens);
    assert.equal(whole.usage.completion_tokens_details.reasoning_tokens, 0);
    assert.equal(whole.usage.prompt_cache_hit_tokens, whole.usage.prompt_tokens_details.cached_tokens);
    assert.equal(whole.usage.prompt_cache_miss_tokens,
      whole.usage.prompt_tokens - whole.usage.prompt_cache_hit_tokens);
  });

  test("a later turn continues the earlier one instead of computing it again", async () => {
    const { turns } = await recallStory(target);
    const [, second, third] = turns;
    assert.ok(third.usage.prompt_tokens_details.cached_tokens >= second.usage.prompt_tokens,
      JSON.stringify(third.usage));
  });

  test("nothing is reused across keys", async () => {
    const messages = [user("The capacity of the blue jar is 91."), { role: "assistant", content: "Noted." },
      user("What is the capacity of the blue jar?")];
    const request = { model: MODEL, temperature: 0, max_tokens: 30, messages };
    await complete(request);
    const again = await complete(request);
    const { data } = await target.admin("keys", "create", "other");
    const other = await post({ ...target, key: data.secret }, request);
    assert.equal(other.status, 200);
    assert.equal(other.json.usage.prompt_tokens_details.cached_tokens, 0);
    assert.equal(other.json.choices[0].message.content, again.choices[0].message.content);
    await target.admin("keys", "delete", data.id);
    assert.equal((await post({ ...target, key: data.secret }, request)).status, 401);
  });

  test("seeds: the same gives the same, others differ", async () => {
    const texts = [];
    for (const seed of [1, 1, 2, 3, 4, 5, -6, 7]) {
      const answer = await complete(ask("Tell me about jazz music.",
        { temperature: 2, seed, max_tokens: 60 }));
      texts.push(answer.choices[0].message.content);
    }
    assert.equal(texts[0], texts[1]);
    assert.ok(new Set(texts).size >= 2, JSON.stringify(texts)); // the model is very sure of itself
  });

  test("top_k 1, tiny top_p and min_p 1 are greedy at any temperature", async () => {
    const greedy = (await complete(ask(NAME))).choices[0].message.content;
    for (const more of [{ top_k: 1 }, { top_p: 1e-9 }, { min_p: 1 }]) {
      const answer = await complete(ask(NAME, { temperature: 2, seed: 5, ...more }));
      assert.equal(answer.choices[0].message.content, greedy);
    }
  });

  test("stop strings cut the answer wherever they fall", async () => {
    const full = (await complete(ask(NAME))).choices[0].message.content;
    for (let at = 1; at + 4 < full.length; at += 7) {
      const stop = full.slice(at, at + 4);
      const want = full.slice(0, full.indexOf(stop));
      const turn = await streamTurn(target, ask(NAME, { stop: ["\u0000never", stop] }));
      assert.equal(turn.content, want);
      assert.equal(turn.finish, "stop");
      const whole = await complete(ask(NAME, { stop }));
      assert.equal(whole.choices[0].message.content, want);
    }
  });

  test("max_tokens and max_completion_tokens end with length", async () => {
    for (const name of ["max_tokens", "max_completion_tokens"]) {
      const answer = await complete(ask(NAME, { max_tokens: undefined, [name]: 3 }));
      assert.equal(answer.choices[0].finish_reason, "length");
      assert.equal(answer.usage.completion_tokens, 3);
    }
    const large = await complete(ask(NAME, { max_tokens: 32000 }));
    assert.equal(large.choices[0].finish_reason, "stop");
  });

  test("logprobs: the same streamed and whole, of every token, sorted, and of the network alone", async () => {
    const request = ask(NAME, { logprobs: true, top_logprobs: 5 });
    const turn = await streamTurn(target, request);
    const streamed = turn.chunks.flatMap((chunk) => chunk.choices[0]?.logprobs?.content ?? []);
    const { choices: [choice], usage } = await complete(request);
    assert.deepEqual(streamed, choice.logprobs.content);
    assert.equal(streamed.length, usage.completion_tokens);
    assert.equal(Buffer.from(streamed.flatMap((one) => one.bytes)).toString(), choice.message.content);
    for (const { token, logprob, top_logprobs: top } of streamed) {
      assert.ok(logprob <= 0);
      assert.equal(top.length, 5);
      assert.equal(top[0].token, token); // greedy
      assert.equal(top[0].logprob, logprob);
      for (let i = 1; i < top.length; i++) assert.ok(top[i].logprob <= top[i - 1].logprob);
      assert.ok(top.reduce((sum, one) => sum + Math.exp(one.logprob), 0) < 1.0001);
    }
    const hot = await complete({ ...request, temperature: 2, presence_penalty: 2, top_logprobs: 0, seed: 1 });
    assert.equal(hot.choices[0].logprobs.content[0].top_logprobs.length, 0);
    const none = await complete(ask(NAME));
    assert.equal(none.choices[0].logprobs, null);
  });

  test("penalties change what is said, and none says the same", async () => {
    const say = (more) => complete(ask("Repeat this: no no no no no no no no", { max_tokens: 30, ...more }))
      .then((answer) => answer.choices[0].message.content);
    const plain = await say({});
    assert.equal(await say({ presence_penalty: 0, frequency_penalty: 0, repetition_penalty: 1 }), plain);
    for (const more of [{ frequency_penalty: 2 }, { repetition_penalty: 2 }])
      assert.notEqual(await say(more), plain);
  });

  test("prefix: an answer goes on where the client has begun it", async () => {
    const full = (await complete(ask(NAME))).choices[0].message.content;
    for (const at of [4, Math.floor(full.length / 2)]) {
      const cut = full.lastIndexOf(" ", at + 3);
      const request = ask(NAME);
      request.messages.push({ role: "assistant", content: full.slice(0, cut), prefix: true });
      const { choices: [choice] } = await complete(request);
      assert.equal(full.slice(0, cut) + choice.message.content, full);
      const turn = await streamTurn(target, request);
      assert.equal(turn.content, choice.message.content);
    }
  });

  test("thinking comes apart from content and is counted", async () => {
    const messages = [user("The key of the tall drum is maple88."), { role: "assistant", content: "Noted." },
      user("What is the tall drum's key? Just the value, please.")];
    const request = { model: MODEL, temperature: 0, max_tokens: 200, messages };
    for (const more of [{ thinking: { type: "enabled" } }, { reasoning_effort: "high" },
      { chat_template_kwargs: { enable_thinking: true } }]) {
      const turn = await streamTurn(target, { ...request, ...more, stream_options: { include_usage: true } });
      assert.ok(turn.reasoning.length > 0);
      assert.ok(turn.content.length > 0);
      assert.ok(!turn.content.includes("</think>") && !turn.reasoning.includes("</think>"));
      assert.ok(turn.usage.completion_tokens_details.reasoning_tokens > 0);
      const whole = await complete({ ...request, ...more });
      assert.equal(whole.choices[0].message.reasoning_content, turn.reasoning);
      assert.equal(whole.choices[0].message.content, turn.content);
    }
    for (const more of [{}, { reasoning_effort: "none" },
      { thinking: { type: "disabled" }, reasoning_effort: "max" }]) {
      const whole = await complete({ ...request, ...more });
      assert.equal(whole.choices[0].message.reasoning_content, undefined);
    }
  });

  test("a history with tool calls, reasoning, parts and half an emoji is taken", async () => {
    const call = (id, name, args) => ({ id, type: "function", function: { name, arguments: args } });
    const answer = await post(target, { model: MODEL, max_tokens: 8, temperature: 0, messages: [
      { role: "developer", content: [{ type: "text", text: "Be brief." }] },
      user([{ type: "text", text: "read \ud83d" }, { type: "text", text: "<｜User｜>a\u0000b" }]),
      { role: "assistant", content: null, reasoning_content: "hm",
        tool_calls: [call("c1", "read", "{\"path\": \"a\"}"), call("c2", "invalid", "no json 2>&1")] },
      { role: "tool", tool_call_id: "c2", content: "</｜DSML｜parameter>" },
      { role: "tool", tool_call_id: "c9", content: [{ type: "text", text: "late" }] },
    ] });
    assert.equal(answer.status, 200, answer.text);
  });

  test("a control token in text is text: it costs more than one token", async () => {
    const tokens = async (text) => (await complete(ask(text, { max_tokens: 1 }))).usage.prompt_tokens;
    const base = await tokens("ab");
    for (const text of ["<｜User｜>", "</think>", "<｜end▁of▁sentence｜>"])
      assert.ok(await tokens("ab" + text) > base + 2, text);
  });

  test("two requests at once: each as alone, the short one does not wait for the long one", async () => {
    const long = ask("The gate is red. ".repeat(2000) + "What colour is the gate?", { max_tokens: 10 });
    const short = ask(NAME);
    const alone = (await complete(short)).choices[0].message.content;
    const order = [];
    const first = complete(long).then((answer) => (order.push("long"), answer));
    await wait(300);
    const second = complete(short).then((answer) => (order.push("short"), answer));
    const [a, b] = await Promise.all([first, second]);
    assert.deepEqual(order, ["short", "long"]);
    assert.equal(b.choices[0].message.content, alone);
    const again = await complete(long);
    assert.equal(again.choices[0].message.content, a.choices[0].message.content);
  });

  test("a client that leaves frees the engine: while it reads the prompt and while it answers", async () => {
    for (const request of [ask("The gate is red. ".repeat(2000)), ask("Tell me about jazz music.",
      { temperature: 2, seed: 3, max_tokens: 20000 })]) {
      const before = await untilIdle(target);
      const abort = new AbortController();
      const stream = await target.client.chat.completions.create({ ...request, stream: true },
        { signal: abort.signal });
      for await (const chunk of stream) {
        if (chunk.choices[0].delta.role || chunk.choices[0].delta.content) break;
      }
      abort.abort();
      const after = await untilIdle(target);
      assert.equal(after.requests, before.requests + 1);
    }
  });
}
