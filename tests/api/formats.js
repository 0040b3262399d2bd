// response_format through the real client: whatever the model has to say, the answer has the form that
// was asked for.
import assert from "node:assert/strict";
import test from "node:test";
import { streamTurn } from "./smoke.js";
import { ask, post } from "./target.js";

const QUESTION = "Good day! What is your name?";
const SCHEMA = {
  type: "object",
  properties: {
    name: { type: "string", minLength: 1, maxLength: 12 },
    age: { type: "integer", minimum: 18, maximum: 99 },
    mood: { enum: ["good", "bad", null] },
    tags: { type: "array", items: { type: "string", maxLength: 4 }, maxItems: 2 },
    next: { anyOf: [{ type: "null" }, { $ref: "#/$defs/pair" }] },
  },
  required: ["name", "age", "mood", "tags", "next"],
  additionalProperties: false,
  $defs: { pair: { type: "object", properties: { a: { type: "boolean" } }, required: ["a"], additionalProperties: false } },
};
const format = (schema, strict) => ({
  response_format: { type: "json_schema", json_schema: { name: "person", strict, schema } } });

/** What is wrong with a value by SCHEMA. */
function complaint(v) {
  const characters = (s) => [...s].length;
  if (Object.keys(v).sort().join() !== "age,mood,name,next,tags") return "names";
  if (typeof v.name !== "string" || characters(v.name) < 1 || characters(v.name) > 12) return "name";
  if (!Number.isInteger(v.age) || v.age < 18 || v.age > 99) return "age";
  if (!["good", "bad", null].includes(v.mood)) return "mood";
  if (!Array.isArray(v.tags) || v.tags.length > 2 || v.tags.some((t) => characters(t) > 4)) return "tags";
  if (v.next !== null && JSON.stringify(Object.keys(v.next)) !== '["a"]') return "next";
  return v.next === null || typeof v.next.a === "boolean" ? null : "next.a";
}

export function formats(target) {
  const complete = async (request) => (await target.client.chat.completions.create(request)).choices[0];

  test("json_schema: valid at any temperature, with and without thinking", async () => {
    assert.equal(complaint({ name: "x", age: 17, mood: null, tags: [], next: null }), "age"); // it can see
    let ended = 0;
    for (let seed = 0; seed < 8; seed++) {
      const choice = await complete(ask(QUESTION, { ...format(SCHEMA, true), seed, max_tokens: 400,
        temperature: seed % 4 * 0.6, thinking: { type: seed % 2 ? "enabled" : "disabled" } }));
      if (choice.finish_reason === "length") continue; // the reasoning may ramble
      ended++;
      assert.equal(complaint(JSON.parse(choice.message.content)), null, choice.message.content);
    }
    assert.ok(ended >= 4, `${ended} answers came to an end`);
  });

  test("json_schema: streamed and whole are the same", async () => {
    const request = ask(QUESTION, { ...format(SCHEMA, true), max_tokens: 300, seed: 3, temperature: 1 });
    const whole = await complete(request);
    const turn = await streamTurn(target, request);
    assert.equal(turn.content, whole.message.content);
    assert.equal(turn.finish, whole.finish_reason);
  });

  test("json_object: an object, and nothing before or behind it", async () => {
    for (let seed = 0; seed < 4; seed++) {
      const choice = await complete(ask(QUESTION, { response_format: { type: "json_object" }, seed,
        temperature: seed / 2, max_tokens: 300 }));
      assert.match(choice.message.content, /^\s*\{/);
      if (choice.finish_reason === "stop") assert.equal(typeof JSON.parse(choice.message.content), "object");
    }
  });

  test("the schema stands in the prompt, behind what the system says", async () => {
    const count = async (more) => {
      const { json } = await post(target, ask(QUESTION, { max_tokens: 1, ...more }));
      return json.usage.prompt_tokens;
    };
    const plain = await count({});
    assert.equal(await count({ response_format: { type: "text" } }), plain);
    assert.equal(await count({ response_format: { type: "json_object" } }), plain);
    assert.ok(await count(format(SCHEMA, true)) > plain + 50);
  });

  test("what cannot be enforced is refused with the keyword named", async () => {
    const nested = (n, inner) => (n === 0 ? inner : { type: "array", items: nested(n - 1, inner) });
    const rows = [
      [{ oneOf: [{ type: "null" }] }, true, "schema.oneOf"],
      [{ type: "object", properties: { a: {}, b: { type: "string", pattern: "SECRET" } } }, true,
        "schema.properties[1].pattern"],
      [{ type: "object", properties: { SECRET: { multipleOf: 2 } } }, false, "schema.properties[0].multipleOf"],
      [{ $ref: "https://SECRET/" }, true, "schema.$ref"],
      [{ enum: [] }, true, "schema"],
      [{ anyOf: Array(40).fill({ type: "null" }) }, true, "schema"], // more than are followed at once
    ];
    for (const [schema, strict, param] of rows) {
      const { status, json } = await post(target, ask(QUESTION, format(schema, strict)));
      assert.equal(status, 400);
      assert.equal(json.error.code, "invalid_schema");
      assert.equal(json.error.param, "response_format.json_schema." + param);
      assert.doesNotMatch(JSON.stringify(json), /SECRET/);
    }
    const { json } = await post(target, ask(QUESTION, format(nested(40, { not: {} }), true)));
    assert.match(json.error.param, /^response_format\.json_schema\.\.\..*\.items\.not$/);
    const fine = await post(target, ask(QUESTION, { max_tokens: 5, ...format({ type: "string", pattern: "a" }, false) }));
    assert.equal(fine.status, 200);
  });

  test("a format and tools: a call by the rules, or the format", async () => {
    const tool = { type: "function", function: { name: "look", strict: true, parameters: {
      type: "object", properties: { n: { type: "integer", minimum: 5, maximum: 6 } }, required: ["n"],
      additionalProperties: false } } };
    for (const tool_choice of ["auto", "required"]) {
      const choice = await complete(ask(QUESTION, { ...format(SCHEMA, true), tools: [tool], tool_choice,
        parallel_tool_calls: false, max_tokens: 400 }));
      if (choice.finish_reason === "tool_calls") {
        const { name, arguments: text } = choice.message.tool_calls[0].function;
        assert.equal(name, "look");
        assert.ok([5, 6].includes(JSON.parse(text).n));
      } else {
        assert.equal(tool_choice, "auto");
        if (choice.finish_reason === "stop") assert.equal(complaint(JSON.parse(choice.message.content)), null);
      }
    }
  });
}
