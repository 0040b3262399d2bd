// Starting, stopping, keys, sockets and logs of `engine serve`.
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import test from "node:test";
import { ask, post, raw, start, stop, until } from "./target.js";

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

  test("the socket of a front takes nobody else, and each of its clients is throttled alone",
    { skip: process.getuid() !== 0 && "only root can be another user" }, async () => {
    const FRONT = 12345;
    const server = await start({ ...program, listen: "unix:DIR/http.sock", flags: ["--front", String(FRONT)] });
    fs.chmodSync(server.dir, 0o711);
    const codes = (uid, forwarded, count, key) => {
      const done = spawnSync("curl", ["-s", "--max-time", "60", "--unix-socket", server.connect.path, "-w", "%{http_code}\n",
        "-o", "/dev/null", "-H", "Authorization: Bearer " + key, "-H", "X-Forwarded-For: " + forwarded,
        `http://localhost/v1/models#[1-${count}]`], { encoding: "utf8", uid, gid: uid, cwd: "/" });
      return done.stdout.trim().split("\n");
    };
    assert.deepEqual(codes(FRONT, "192.0.2.1", 1, server.key), ["200"]);
    for (const uid of [0, FRONT + 1]) assert.deepEqual(codes(uid, "192.0.2.1", 1, server.key), ["000"]);
    await until(server, () => server.err.includes("not the front's"));
    const bad = "ds_AAAAAAAA_" + "A".repeat(32);
    assert.equal(codes(FRONT, "192.0.2.1", 40, bad).at(-1), "429");
    assert.equal(codes(FRONT, "198.51.100.7, 192.0.2.1", 1, bad)[0], "429"); // the last one counts
    assert.equal(codes(FRONT, "192.0.2.2", 1, bad)[0], "401");
    assert.equal(codes(FRONT, "2001:db8:0:1::1", 40, bad).at(-1), "429");
    assert.equal(codes(FRONT, "2001:db8:0:1::2", 1, bad)[0], "429"); // the same network
    assert.equal(codes(FRONT, "2001:db8:0:2::1", 1, bad)[0], "401");
    assert.deepEqual(codes(FRONT, "192.0.2.1", 1, server.key), ["200"]);
    await stop(server);
  });

  test("SIGTERM: a stream hears why, the exit is clean, the log has no content", async () => {
    const server = await start(program);
    const body = JSON.stringify(ask("canary " + "The gate is red. ".repeat(1500), { stream: true }));
    const stream = raw(server, `POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n` +
      `Authorization: Bearer ${server.key}\r\nContent-Type: application/json\r\nX-Canary: canary\r\n` +
      `Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`);
    await until(server, (data) => data.running === 1);
    assert.deepEqual(await stop(server), { code: 0, signal: null });
    const text = await stream;
    assert.match(text, /HTTP\/1\.1 200 /);
    assert.match(text, /data: \{"error":\{[^\n]*"code":"shutting_down"/);
    assert.ok(!text.includes("[DONE]"));
    assert.match(server.err, /POST \/v1\/chat\/completions status=200/); // the log is there
    for (const secret of ["canary", "gate", server.key]) assert.ok(!server.err.includes(secret));
  });

  test("signs of life while a long prompt is read, streamed and whole", async () => {
    const server = await start({ ...program, flags: ["--keepalive-ms", "200"] });
    const text = "The river is calm. ".repeat(800);
    const [events, whole] = await Promise.all([true, false].map((stream) =>
      post(server, ask(text, { stream, max_tokens: 5 }))));
    assert.match(events.text, /\n\n: keep-alive\n\n/);
    assert.match(events.text, /data: \[DONE\]\n\n$/);
    assert.match(whole.text, /^\n+\{/);
    assert.equal(whole.json.object, "chat.completion");
    await stop(server);
  });

  test("one session: the others wait their turn, and those beyond the queue are told to come back", async () => {
    const server = await start({ ...program, flags: ["--sessions", "1", "--context", "4096"] });
    const all = await Promise.all(Array.from({ length: 30 }, () =>
      post(server, ask("The gate is red. ".repeat(100), { max_tokens: 1 }))));
    const good = all.filter((answer) => answer.status === 200);
    const refused = all.filter((answer) => answer.status === 429);
    assert.equal(good.length + refused.length, 30);
    assert.ok(good.length >= 17 && refused.length >= 1, `${good.length} good`);
    for (const answer of refused) {
      assert.equal(answer.json.error.code, "queue_full");
      assert.match(answer.headers.get("retry-after"), /^[1-9]\d?$/);
      assert.equal(answer.headers.get("x-should-retry"), null);
    }
    await stop(server);
  });

  test("Host: addresses, localhost and the names given by --host", async () => {
    const server = await start({ ...program, flags: ["--host", "box.example", "--host", "chat.example"] });
    const status = async (host) => Number(/^HTTP\/1\.1 (\d+)/.exec(await raw(server,
      `GET /healthz HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`))[1]);
    for (const host of ["box.example", "CHAT.example:8080", "localhost", "10.0.2.15:80", "[fd00::1]:80"])
      assert.equal(await status(host), 200, host);
    for (const host of ["evil.example", "box.example.evil.example", "xbox.example", "localhost.evil.example", "1.2.3"])
      assert.equal(await status(host), 403, host);
    await stop(server);
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
      [{ flags: ["--profile", "guess"] }, /--profile/],
      [{ flags: ["--threads", "0"] }, /--threads/],
      [{ flags: ["--context", "1e3"] }, /--context/],
      [{ flags: ["--frobnicate", "1"] }, /--frobnicate/],
      [{ flags: ["--isa"] }, /--isa/],
      [{ flags: ["--front", "1"] }, /--front.*unix/],
    ];
    for (const [change, message] of rows) {
      await assert.rejects(start({ ...program, ...change }),
        (error) => error.code === 2 && message.test(error.err) || assert.fail(JSON.stringify(change) + error));
    }
    fs.rmSync(dir, { recursive: true });
  });
}
