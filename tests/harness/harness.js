// Real agent harnesses and what passes between them and a server: how each is started, and how a client
// reads an answer in either API.  Judges nothing.
import { spawn } from "node:child_process";
import fs from "node:fs";
import http from "node:http";
import path from "node:path";
import { MODEL } from "../api/target.js";

const RUN_MS_MAX = 900_000; // a bound, never a measure: a prompt is 30,000 tokens on a busy machine
const MODULES = path.resolve("tests/harness/node_modules");

/** Hands everything on to the server and keeps a copy.  `inject`: an answer in its place, or null. */
export async function proxied(server) {
  const proxy = { seen: [], inject: () => null };
  const listener = http.createServer((request, response) => {
    const parts = [];
    request.on("data", (part) => parts.push(part)).on("end", () => {
      const body = Buffer.concat(parts);
      const entry = { method: request.method, path: request.url, body: body.toString(), text: "", at: Date.now() };
      proxy.seen.push(entry);
      const instead = proxy.inject(entry);
      if (instead) {
        Object.assign(entry, { status: instead.status, text: instead.body });
        return response.writeHead(instead.status, instead.headers).end(instead.body);
      }
      const up = http.request({ ...server.connect, path: request.url, method: request.method,
        headers: { ...request.headers, host: "localhost" } }, (answer) => {
        entry.status = answer.statusCode;
        entry.headers = answer.headers;
        response.writeHead(answer.statusCode, answer.headers);
        answer.on("data", (part) => { entry.text += part; response.write(part); });
        answer.on("end", () => response.end()).on("error", () => response.destroy());
      });
      up.on("error", () => response.destroy()).end(body);
      response.on("close", () => up.destroy());
    });
  });
  await new Promise((resolve) => listener.listen(0, "127.0.0.1", resolve));
  proxy.url = `http://127.0.0.1:${listener.address().port}`;
  proxy.close = () => { listener.closeAllConnections(); listener.close(); };
  return proxy;
}

function launch(program, args, work, env) {
  const child = spawn(path.join(MODULES, program), args, { cwd: work, stdio: ["ignore", "pipe", "pipe"],
    env: { PATH: process.env.PATH, HOME: work + ".home", ...env } });
  const run = { child, out: "" };
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (text) => (run.out += text));
  const timer = setTimeout(() => child.kill("SIGKILL"), RUN_MS_MAX);
  run.ended = new Promise((resolve) => child.on("exit", (code, signal) => {
    clearTimeout(timer);
    resolve({ code, signal });
  }));
  return run;
}

/** A new folder to work in. */
function place(server, name) {
  const work = path.join(server.dir, "home", name);
  fs.mkdirSync(work, { recursive: true });
  fs.mkdirSync(work + ".home", { recursive: true });
  return work;
}

const OFF = ["AUTOUPDATE", "MODELS_FETCH", "SHARE", "LSP_DOWNLOAD", "DEFAULT_PLUGINS", "CLAUDE_CODE"]
  .map((name) => ["OPENCODE_DISABLE_" + name, "1"]);

/** opencode in a folder of its own; `npm`: by which of its providers, `context` and `options`: what it is
 * told of the model. */
export function opencode(server, proxy, name, { npm = "@ai-sdk/openai-compatible", context, options = {} }) {
  const work = place(server, name);
  fs.writeFileSync(path.join(work, "opencode.json"), JSON.stringify({
    autoupdate: false, share: "disabled", model: "box/" + MODEL,
    permission: { bash: "deny", webfetch: "deny" }, // nothing that a model of this size makes up is run
    agent: { build: { temperature: 0 } },
    provider: { box: { npm, name: "box", options: { baseURL: proxy.url + "/v1", apiKey: server.key },
      models: { [MODEL]: { name: MODEL, temperature: true, options, limit: { context, output: 4096 },
        interleaved: { field: "reasoning_content" } } } } },
  }));
  const run = (...args) => launch("opencode-linux-x64-baseline/bin/opencode", ["run", ...args], work, Object.fromEntries(OFF));
  return { work, first: (text) => run(text), next: (text) => run("-c", text),
    write: { tool: "write", args: (filePath, content) => ({ filePath, content }) } };
}

/** Claude Code likewise; `brief`: with one tool and a prompt of its own of 600 tokens, in place of 31,600. */
export function claude(server, proxy, name, { brief = false } = {}) {
  const work = place(server, name);
  const models = ["ANTHROPIC_MODEL", ...["HAIKU", "SONNET", "OPUS"].map((size) => `ANTHROPIC_DEFAULT_${size}_MODEL`)];
  const off = ["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_TELEMETRY", "DISABLE_ERROR_REPORTING",
    "DISABLE_AUTOUPDATER", "DISABLE_GROWTHBOOK"];
  const env = { ANTHROPIC_BASE_URL: proxy.url, ANTHROPIC_AUTH_TOKEN: server.key,
    ...Object.fromEntries(models.map((one) => [one, MODEL])), ...Object.fromEntries(off.map((one) => [one, "1"])) };
  const less = brief ? ["--tools", "Write", "--system-prompt", "You write files."] : ["--disallowedTools", "Bash"];
  const run = (...args) => launch("@anthropic-ai/claude-code-linux-x64/claude",
    [...args, "--permission-mode", "acceptEdits", ...less], work, env);
  return { work, first: (text) => run("-p", text), next: (text) => run("-c", "-p", text),
    write: { tool: "Write", args: (filePath, content) => ({ file_path: filePath, content }) } };
}

const data = (text) => text.split("\n\n").map((event) => /^data: (\{.*)$/m.exec(event)?.[1])
  .filter((json) => json).map((json) => JSON.parse(json));

/** A request and its answer as a client reads them. */
export function readChunks({ body, status, text }) {
  const chunks = data(text);
  const choices = chunks.flatMap((chunk) => chunk.choices ?? []);
  const usage = chunks.findLast((chunk) => chunk.usage)?.usage;
  return { request: JSON.parse(body), status, done: text.endsWith("data: [DONE]\n\n"),
    content: choices.map((choice) => choice.delta.content ?? "").join(""),
    calls: choices.flatMap((choice) => choice.delta.tool_calls ?? [])
      .filter((call) => call.id).map((call) => call.function.name),
    finish: choices.at(-1)?.finish_reason, error: chunks.find((chunk) => chunk.error)?.error,
    rendered: usage?.prompt_tokens, reused: usage?.prompt_tokens_details.cached_tokens };
}

export function readEvents({ body, status, text }) {
  const events = data(text);
  const end = events.findLast(({ type }) => type === "message_delta"); // others are signs of life
  const { input_tokens: fresh, cache_read_input_tokens: reused } = end?.usage ?? {};
  return { request: JSON.parse(body), status, done: events.at(-1)?.type === "message_stop",
    content: events.map(({ delta }) => delta?.text ?? "").join(""),
    calls: events.filter((event) => event.content_block?.type === "tool_use").map((event) => event.content_block.name),
    finish: end?.delta.stop_reason, error: events.find((event) => event.error)?.error,
    rendered: fresh + reused, reused };
}

/** The two APIs: their paths, how their answers may end, and how a client reads them. */
export const CHAT = { path: "/v1/chat/completions", finishes: ["stop", "length", "tool_calls"], read: readChunks };
export const MESSAGES = { path: "/v1/messages", finishes: ["end_turn", "max_tokens", "tool_use"], read: readEvents };
