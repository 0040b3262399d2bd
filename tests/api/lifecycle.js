// Starting, stopping, keys, sockets and logs of `engine serve`.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import test from "node:test";
import { ask, post, raw, start, stop } from "./target.js";

export function lifecycle(program) {
  test("a unix socket serves as an address does, and is gone after a clean stop", async () => {
    const server = await start({ ...program, listen: "unix:DIR/http.sock" });
    const socketPath = server.connect.path;
    const text = execFileSync("curl", ["-sS", "--max-time", "60", "--unix-socket", socketPath,
      "-H", "Authorization: Bearer " + server.key, "http://localhost/v1/models"], { encoding: "utf8" });
    assert.equal(JSON.parse(text).object, "list");
    server.child.kill("SIGTERM");
    assert.deepEqual(await server.ended, { code: 0, signal: null });
    assert.ok(!fs.existsSync(socketPath));
    fs.rmSync(server.dir, { recursive: true });
  });

  test("SIGTERM: a stream hears why, the exit is clean, the log has no content", async () => {
    const server = await start(program);
    const body = JSON.stringify(ask("canary " + "The gate is red. ".repeat(1500), { stream: true }));
    const stream = raw(server, `POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n` +
      `Authorization: Bearer ${server.key}\r\nContent-Type: application/json\r\nX-Canary: canary\r\n` +
      `Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`);
    await new Promise((go) => setTimeout(go, 500));
    assert.deepEqual(await stop(server), { code: 0, signal: null });
    const text = await stream;
    assert.match(text, /HTTP\/1\.1 200 /);
    assert.match(text, /data: \{"error":\{[^\n]*"code":"shutting_down"/);
    assert.ok(!text.includes("[DONE]"));
    assert.match(server.err, /POST \/v1\/chat\/completions status=200/); // the log is there
    for (const secret of ["canary", "gate", server.key]) assert.ok(!server.err.includes(secret));
  });

  test("a key that is deleted closes the API at once; without keys all is closed", async () => {
    const server = await start(program);
    const request = ask("hello", { max_tokens: 1 });
    assert.equal((await post(server, request)).status, 200);
    const { data } = await server.admin("keys", "list");
    assert.equal(fs.statSync(server.keysPath).mode & 0o777, 0o600);
    for (const { id } of data.keys ?? data) await server.admin("keys", "delete", id);
    assert.equal((await post(server, request)).status, 401);
    await stop(server);
  });

  test("what cannot be served is refused at the start with exit code 2 and a name", async () => {
    const dir = fs.mkdtempSync(path.join(os.tmpdir(), "v4box-api-"));
    const bad = path.join(dir, "keys");
    fs.writeFileSync(bad, "# good\nnot a key line\n");
    const rows = [
      [{ keys: bad }, /keys.*2/],
      [{ listen: "localhost:80" }, /--listen/],
      [{ listen: "127.0.0.1:99999" }, /--listen/],
      [{ listen: "unix:" + "x".repeat(200) }, /--listen/],
      [{ model: dir }, /config\.json|model/],
      [{ flags: ["--isa", "mmx"] }, /--isa/],
      [{ flags: ["--numerics", "guess"] }, /--numerics/],
      [{ flags: ["--threads", "0"] }, /--threads/],
      [{ flags: ["--context", "1e3"] }, /--context/],
      [{ flags: ["--frobnicate", "1"] }, /--frobnicate/],
      [{ flags: ["--isa"] }, /--isa/],
    ];
    for (const [change, message] of rows) {
      await assert.rejects(start({ ...program, ...change }),
        (error) => error.code === 2 && message.test(error.err) || assert.fail(JSON.stringify(change) + error));
    }
    fs.rmSync(dir, { recursive: true });
  });
}
