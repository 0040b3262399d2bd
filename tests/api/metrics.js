// The metrics listener of a server of its own: promtool reads it, its numbers are those of what was asked,
// and nothing of requests, keys or the API is there.
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import test, { after, before } from "node:test";
import { ask, post, start, stop, wait } from "./target.js";

export function metrics(program) {
  let server, url, promtool;
  before(async () => {
    server = await start({ ...program, flags: ["--metrics", "127.0.0.1:0"] });
    url = "http://" + /^metrics on (.*)$/m.exec(server.out)[1];
    promtool = execFileSync("tests/api/promtool.sh", { encoding: "utf8" }).trim();
  });
  after(() => stop(server));
  const page = async () => {
    const response = await fetch(url + "/metrics");
    assert.equal(response.status, 200);
    assert.match(response.headers.get("content-type"), /^text\/plain; version=0\.0\.4/);
    return response.text();
  };
  /** What promtool says against a page, line by line; the exit code 1 is a page that it cannot read. */
  const complaints = (text) => {
    const { status, stderr } = spawnSync(promtool, ["check", "metrics"], { input: text, encoding: "utf8" });
    return { status, lines: stderr.split("\n").filter((line) => line !== "") };
  };
  const value = (text, series) => {
    const line = text.split("\n").find((one) => one.startsWith(series));
    assert.ok(line, series);
    return Number(line.slice(line.lastIndexOf(" ")));
  };
  const sum = (text, name) => text.split("\n").filter((one) => one.startsWith(name + "{"))
    .reduce((all, line) => all + Number(line.slice(line.lastIndexOf(" "))), 0);

  test("metrics: promtool reads the page and says nothing but that vLLM's names have colons", async () => {
    const text = await page();
    const { status, lines } = complaints(text);
    assert.ok(status === 0 || status === 3, String(status));
    for (const line of lines) assert.match(line, /^vllm:\w+ metric names should not contain ':'$/);
    // it would say more
    assert.equal(complaints(text.replace("# TYPE vllm:prompt_tokens_total counter",
      "# TYPE vllm:prompt_tokens_total numbers")).status, 1);
    assert.equal(complaints(text.replace('le="+Inf"', 'le="much"')).status, 1);
    assert.ok(complaints(text.replaceAll("v4box_errors_total", "v4box_errors")).lines.length > lines.length);
  });

  test("metrics: the numbers are those of what was asked", async () => {
    const request = ask("Good day! What is your name?", { user: "me", invented: 1, "and more": {} });
    const first = await server.client.chat.completions.create(request);
    const cut = await server.client.chat.completions.create({ ...request, max_tokens: 2 });
    await assert.rejects(server.client.chat.completions.create({ ...request, top_p: 2 }));
    const stream = await server.client.chat.completions.create({ ...request, stream: true, temperature: 2, max_tokens: 900 });
    for await (const chunk of stream) if (chunk.choices[0].delta.content) break; // and gone
    assert.equal((await post({ ...server, key: "wrong" }, request)).status, 401);
    let text;
    for (let i = 0; i < 100; i++) {
      text = await page();
      if (sum(text, "vllm:request_success_total") === 3 && value(text, "vllm:num_requests_running") === 0) break;
      await wait(50);
    }
    const finished = (reason) => value(text, text.split("\n").find((line) =>
      line.startsWith("vllm:request_success_total{") && line.includes(`finished_reason="${reason}"`)));
    assert.deepEqual(["length", "error"].map(finished), [1, 0]);
    assert.equal(finished("stop") + finished("abort"), 2); // who leaves may come late
    const usages = [first.usage, cut.usage];
    assert.ok(value(text, "vllm:prompt_tokens_total") >= usages.reduce((all, one) => all + one.prompt_tokens, 0));
    assert.ok(value(text, "vllm:generation_tokens_total") >= usages.reduce((all, one) => all + one.completion_tokens, 0));
    assert.ok(value(text, "vllm:prefix_cache_hits_total") >= cut.usage.prompt_tokens_details.cached_tokens);
    assert.equal(value(text, "vllm:e2e_request_latency_seconds_count"), 3);
    assert.equal(value(text, "vllm:time_to_first_token_seconds_count"), 3);
    assert.ok(value(text, "vllm:e2e_request_latency_seconds_sum") > value(text, "vllm:time_to_first_token_seconds_sum"));
    const errors = text.split("\n").filter((line) => line.startsWith("v4box_errors_total") && !line.endsWith(" 0"))
      .map((line) => /error="(\w+)"/.exec(line)[1]);
    assert.deepEqual(errors.sort(), ["KEY", "RANGE"]);
    assert.equal(value(text, "v4box_unknown_fields_total"), 2 * 4); // of each request that was read
  });

  test("metrics: neither listener has what is the other's, and nothing of requests is told", async () => {
    for (const path of ["/v1/models", "/v1/chat/completions", "/"])
      assert.equal((await fetch(url + path)).status, 404, path);
    assert.equal((await fetch(server.url + "/metrics", { headers: { authorization: "Bearer " + server.key } })).status, 404);
    assert.equal((await fetch(url + "/healthz")).status, 200);
    const text = await page();
    assert.equal((await server.admin("metrics")).text.replaceAll(/ \S+$/gm, ""), text.replaceAll(/ \S+$/gm, ""));
    for (const secret of [server.key, server.key.slice(3, 11), "127.0.0.1", "name?"]) assert.ok(!text.includes(secret));
  });
}
