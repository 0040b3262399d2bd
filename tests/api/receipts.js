// A server that is told to prove in every answer what reached the model: hashes of the newest messages in the
// usage of all three APIs, equal to what /v1/receipt says.
import assert from "node:assert/strict";
import test, { after, before } from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import { MODEL, start, stop, user } from "./target.js";

const NEWEST = 2;
const MESSAGES = [user("My dog is called Rex."), { role: "assistant", content: "Noted." },
  user("And my cat is Tom."), { role: "assistant", content: "Noted." }, user("Who is Rex?")];

export function receipts(program) {
  let server;
  before(async () => (server = await start({ ...program, flags: ["--receipts", String(NEWEST)] })));
  after(() => stop(server));
  const said = async (messages) => {
    const response = await fetch(server.url + "/v1/receipt", { method: "POST",
      headers: { authorization: "Bearer " + server.key, "content-type": "application/json" },
      body: JSON.stringify({ model: MODEL, messages }) });
    const receipt = await response.json();
    const [name, hash] = /^(\w+); hash=([0-9a-f]{16})$/.exec(response.headers.get("x-v4box-profile")).slice(1);
    assert.deepEqual([receipt.profile, receipt.profile_hash], [name, hash]);
    return receipt;
  };
  const check = ({ v4box }, receipt) => {
    const { reused_tokens: reused, ...rest } = v4box;
    assert.ok(reused >= 0 && reused < receipt.rendered_tokens);
    assert.deepEqual(rest, { rendered_tokens: receipt.rendered_tokens, profile: receipt.profile,
      profile_hash: receipt.profile_hash, sha256: receipt.sha256,
      omitted: Math.max(0, receipt.messages.length - NEWEST), messages: receipt.messages.slice(-NEWEST) });
  };

  test("receipts: every answer of every API carries the hashes of its newest messages", async () => {
    for (const messages of [MESSAGES, MESSAGES.slice(-1)]) {
      const receipt = await said(messages);
      const request = { model: MODEL, max_tokens: 1, messages };
      check((await server.client.chat.completions.create(request)).usage, receipt);
      const stream = await server.client.chat.completions.create(
        { ...request, stream: true, stream_options: { include_usage: true } });
      let last;
      for await (const chunk of stream) last = chunk;
      check(last.usage, receipt);
      const { usage } = await server.client.responses.create({ model: MODEL, max_output_tokens: 1, input: messages });
      check(usage, receipt);
      const anthropic = new Anthropic({ baseURL: server.url, apiKey: server.key });
      check((await anthropic.messages.create(request)).usage, receipt);
    }
  });

  test("receipts: a message that is lost or changed shows", async () => {
    const whole = await said(MESSAGES);
    const lost = (await server.client.chat.completions.create(
      { model: MODEL, max_tokens: 1, messages: MESSAGES.slice(2) })).usage.v4box;
    assert.notEqual(lost.sha256, whole.sha256);
    assert.notEqual(lost.omitted, whole.messages.length - NEWEST);
    const changed = [...MESSAGES.slice(0, -1), user("Who is Tom?")];
    const { v4box } = (await server.client.chat.completions.create({ model: MODEL, max_tokens: 1, messages: changed })).usage;
    assert.notEqual(v4box.messages.at(-1).sha256, whole.messages.at(-1).sha256);
    assert.equal(v4box.messages.at(-2).sha256, whole.messages.at(-2).sha256);
  });
}
