// A server under test: started here, or given by URL.  Knows how to reach it, not what it should say.
import { spawn } from "node:child_process";
import fs from "node:fs";
import net from "node:net";
import os from "node:os";
import path from "node:path";
import OpenAI from "openai";

export const MODEL = "deepseek-v4-demo";
const READY_MS_MAX = 60_000; // loading the demo model, also with the whole machine busy
const ANSWER_MS_MAX = 900_000; // a bound for emulated machines, never a measure

/** One command on the admin socket.  The engine closes who is silent for seconds, as we may be on a busy machine:
 * before it has read anything, so that the command may be sent again. */
export async function admin(socketPath, command, ...args) {
  for (let tries = 1; ; tries++) {
    try {
      return await adminOnce(socketPath, command, args);
    } catch (error) {
      if (!["EPIPE", "ECONNRESET"].includes(error.code) || tries === 10) throw error;
    }
  }
}

function adminOnce(socketPath, command, args) {
  return new Promise((resolve, reject) => {
    let text = "";
    const socket = net.connect(socketPath, () =>
      socket.write(JSON.stringify({ command, args }) + "\n"));
    socket.setEncoding("utf8");
    socket.on("data", (part) => (text += part));
    socket.on("error", reject);
    socket.on("end", () => {
      try {
        resolve(JSON.parse(text));
      } catch (error) {
        reject(error);
      }
    });
  });
}

function client(url, key) {
  return new OpenAI({ baseURL: url + "/v1", apiKey: key, maxRetries: 0, timeout: ANSWER_MS_MAX });
}

/** A server that runs already. */
export function attach(url, key) {
  const { hostname, port } = new URL(url);
  return { url, key, connect: { host: hostname, port: Number(port) }, client: client(url, key) };
}

/** Starts `engine serve`; resolves when it listens, rejects with its words when it ends before.
 * `script`: rules of answers (script.js), for the program that takes them. */
export async function start({ engine, model, listen = "127.0.0.1:0", flags = [], keys, script }) {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), "v4box-api-"));
  const sock = path.join(dir, "admin.sock");
  const keysPath = keys ?? path.join(dir, "keys");
  const rules = path.join(dir, "script.json");
  const play = (list) => fs.writeFileSync(rules, JSON.stringify(list));
  if (script) play(script);
  const child = spawn(engine, [...(script ? [rules] : []), "serve", "--model", model, "--listen", listen.replace("DIR", dir),
    "--keys", keysPath, "--admin", sock, ...flags], { stdio: ["ignore", "pipe", "pipe"] });
  const server = { child, dir, keysPath, play, out: "", err: "" };
  server.ended = new Promise((resolve) => child.on("exit", (code, signal) => resolve({ code, signal })));
  child.stdout.setEncoding("utf8").on("data", (text) => (server.out += text));
  child.stderr.setEncoding("utf8").on("data", (text) => (server.err += text));
  const ready = new Promise((resolve) => child.stdout.on("data", () => {
    const line = /listening on (.*)\n/.exec(server.out);
    if (line) resolve(line[1]);
  }));
  const late = new Promise((resolve) => setTimeout(resolve, READY_MS_MAX).unref());
  server.listening = await Promise.race([ready, server.ended.then(() => null), late]);
  if (!server.listening) {
    child.kill("SIGKILL");
    throw Object.assign(new Error("the server did not start: " + server.err),
      await server.ended, { err: server.err });
  }
  server.admin = (command, ...args) => admin(sock, command, ...args);
  server.key = (await server.admin("keys", "create", "test")).data.secret;
  if (server.listening.startsWith("unix:")) {
    server.connect = { path: server.listening.slice(5) };
  } else {
    server.url = "http://" + server.listening;
    server.connect = attach(server.url, server.key).connect;
    server.client = client(server.url, server.key);
  }
  server.rssBytes = () => {
    const text = fs.readFileSync(`/proc/${child.pid}/status`, "utf8");
    return Number(/VmRSS:\s+(\d+) kB/.exec(text)[1]) * 1024;
  };
  return server;
}

/** Ends it with SIGTERM; gives how it ended. */
export async function stop(server) {
  server.child.kill("SIGTERM");
  const how = await server.ended;
  fs.rmSync(server.dir, { recursive: true, force: true });
  return how;
}

/** Sends bytes as they are; gives all that comes back until the server closes or `until` is there. */
export function raw(target, pieces, { until, hangUp = false, waitMs = 90_000 } = {}) {
  return new Promise((resolve, reject) => {
    const socket = net.connect(target.connect);
    let text = "";
    const timer = setTimeout(() => {
      socket.destroy();
      reject(new Error("no end after " + waitMs + " ms, got: " + text));
    }, waitMs);
    const done = () => {
      clearTimeout(timer);
      socket.destroy();
      resolve(text);
    };
    socket.setEncoding("latin1");
    socket.on("data", (part) => {
      text += part;
      if (until && text.includes(until)) done();
    });
    socket.on("error", done); // a reset after the answer is an end like any other
    socket.on("close", done);
    socket.on("connect", async () => {
      for (const piece of [pieces].flat()) {
        if (typeof piece === "number") await new Promise((go) => setTimeout(go, piece));
        else if (!socket.destroyed) socket.write(piece);
      }
      if (hangUp) socket.end(done);
    });
  });
}

/** POST of a body (text, bytes or value) to chat/completions by fetch. */
export async function post(target, body, headers = {}) {
  const text = typeof body === "string" || body instanceof Uint8Array ? body : JSON.stringify(body);
  const response = await fetch(target.url + "/v1/chat/completions", {
    method: "POST", body: text,
    headers: { authorization: "Bearer " + target.key, "content-type": "application/json", ...headers },
  });
  const answer = await response.text();
  let json = null;
  try {
    json = JSON.parse(answer);
  } catch {
    // an event stream
  }
  return { status: response.status, headers: response.headers, text: answer, json };
}

export const wait = (ms) => new Promise((go) => setTimeout(go, ms));

/** Waits (bounded) until the engine's counters are as wanted; gives them. */
export async function until(target, wanted) {
  for (let i = 0; i < 600; i++) {
    const { data } = await target.admin("status");
    if (wanted(data)) return data;
    await wait(50);
  }
  throw new Error("the engine did not come to the wanted state");
}

export const untilIdle = (target) => until(target, (data) => data.running === 0 && data.waiting === 0);

export const user = (content) => ({ role: "user", content });
export const ask = (content, more = {}) =>
  ({ model: MODEL, temperature: 0, max_tokens: 100, messages: [user(content)], ...more });
