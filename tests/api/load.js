// Hostile load, by hand: thousands of connections that say nothing or hardly anything, bodies of 32 MiB,
// framing with two meanings.  The server lives, its memory is bounded, and who behaves is served.
//   make test-load         not in `make test`: it takes minutes
import assert from "node:assert/strict";
import net from "node:net";
import test, { after } from "node:test";
import { ask, post, raw, start, stop, wait } from "./target.js";

const CONNECTIONS = 10_000;
const ADDRESSES = 250; // of 127.0.0.0/8, since each may have but some of them
const GROWTH_MAX = 256 << 20; // as in errors.js: bodies in flight, JSON trees and connection memory
const BODIES = 64; // of 32 MiB each, at once
const ENDED_S_MAX = 180; // a bound, never a measure: bodies may take 60 s
const OPEN_AT_ONCE = 500; // dialled together, so that the client's own loop does not drown

const MiB = (bytes) => Math.round(bytes / (1 << 20));
const sourceOf = (i) => `127.${1 + Math.floor(i / 200)}.0.${1 + (i % 200)}`;

/** Opens a connection from an address of its own; gives it once it is open, or null. */
const dial = (server, i) => new Promise((resolve) => {
  const socket = net.connect({ ...server.connect, localAddress: sourceOf(i % ADDRESSES) });
  socket.on("error", () => resolve(null));
  socket.on("connect", () => resolve(socket));
});

export async function load(program) {
  const server = await start(program);
  after(() => stop(server));

  /** An answer, and how long it took to come; other clients' connections may stand before it, and a client
   * that finds the backlog full gives up by itself and comes again. */
  async function serves(t, what) {
    const begin = Date.now();
    let answer = null, tries = 0;
    while (answer === null) {
      tries++;
      answer = await post(server, ask("Good day! What is your name?", { max_tokens: 2 })).catch((error) => {
        assert.equal(error.cause?.code, "UND_ERR_CONNECT_TIMEOUT", String(error.cause));
        assert.ok(Date.now() - begin < 1000 * ENDED_S_MAX, what);
        return null;
      });
    }
    assert.equal(answer.status, 200, answer.text);
    t.diagnostic(`${what}: served after ${Date.now() - begin} ms at try ${tries}, ${MiB(server.rssBytes())} MiB`);
  }

  /** Samples memory while `work` runs; gives the most that was seen. */
  async function peak(work) {
    let most = 0;
    const timer = setInterval(() => (most = Math.max(most, server.rssBytes())), 50);
    await work();
    clearInterval(timer);
    return Math.max(most, server.rssBytes());
  }

  async function bounded(t, what, work) {
    await serves(t, "before " + what);
    const before = server.rssBytes();
    const most = await peak(work);
    t.diagnostic(`${what}: from ${MiB(before)} to at most ${MiB(most)} MiB`);
    assert.ok(most - before < GROWTH_MAX, what);
    await serves(t, "after " + what);
    assert.equal(server.child.exitCode, null);
  }

  test(`${CONNECTIONS} connections from ${ADDRESSES} addresses, half of them with half a head`, (t) =>
    bounded(t, "10,000 connections", async () => {
      const sockets = [];
      for (let from = 0; from < CONNECTIONS; from += OPEN_AT_ONCE) {
        const some = Array.from({ length: OPEN_AT_ONCE }, (_, i) => dial(server, from + i));
        // the backlog is bounded: what does not get in waits, and is not waited for
        sockets.push(...await Promise.all(some.map((one) => Promise.race([one, wait(1000).then(() => null)]))));
        for (const [i, socket] of sockets.slice(from).entries()) if (i % 2) socket?.write("GET / HTTP/1.1\r\nHost: loc");
      }
      t.diagnostic(`${sockets.filter(Boolean).length} got in or into the backlog`);
      await wait(2000);
      for (const socket of sockets) socket?.destroy();
    }));

  test("slow heads and bodies on as many connections as one address may have; another is served", (t) =>
    bounded(t, "slow clients", async () => {
      const head = `POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${server.key}\r\n` +
        "Content-Type: application/json\r\nContent-Length: 100000\r\n\r\n";
      const sockets = (await Promise.all(Array.from({ length: 60 }, (_, i) => dial(server, 0).then((socket) => {
        socket?.resume().write(i % 2 ? head : "GET / HTTP/1.1\r\n");
        return socket;
      })))).filter(Boolean);
      const drip = setInterval(() => sockets.forEach((socket, i) => socket.writable && socket.write(i % 2 ? "[" : "A: b\r\n")), 500);
      await wait(2000);
      await serves(t, `beside ${sockets.length} slow clients`);
      const left = () => sockets.filter((socket) => !socket.destroyed).length;
      for (let i = 0; i < ENDED_S_MAX && left() > 0; i++) await wait(1000);
      clearInterval(drip);
      t.diagnostic(`${sockets.length - left()} slow clients were ended`);
      assert.equal(left(), 0);
    }));

  test(`${BODIES} bodies of 32 MiB of '[' at once`, (t) =>
    bounded(t, "32 MiB of '['", async () => {
      const body = Buffer.alloc(32 << 20, "[");
      const statuses = await Promise.all(Array.from({ length: BODIES }, () =>
        post(server, body).then(({ status }) => status, () => "closed")));
      t.diagnostic(`statuses: ${[...new Set(statuses)].join(" ")}`);
      assert.ok(statuses.every((status) => status === 413 || status === "closed" || status === 503 || status === 429));
    }));

  test("the largest bodies that are taken, of '[' and of small objects, at once", (t) =>
    bounded(t, "largest bodies", async () => {
      const bodies = ["[".repeat(1_300_000), `{"model":"x","messages":[${"{},".repeat(400_000)}{}]}`];
      const statuses = await Promise.all(Array.from({ length: 40 }, (_, i) =>
        post(server, bodies[i % 2]).then(({ status }) => status, () => "closed")));
      t.diagnostic(`statuses: ${[...new Set(statuses)].join(" ")}`);
      assert.ok(statuses.every((status) => status === "closed" || (status >= 400 && status < 600 && status !== 500)));
    }));

  test("framing with two meanings: one answer, then the end", async (t) => {
    const head = (more) => `POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${server.key}\r\n` +
      `Content-Type: application/json\r\n${more}\r\n`;
    const hidden = "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"; // what a proxy in front did not see
    for (const more of ["Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
      "Content-Length: 5\r\nContent-Length: 60\r\n", "Content-Length: 5, 60\r\n", "Transfer-Encoding: xchunked\r\n",
      "Transfer-Encoding: chunked, identity\r\n", "Content-Length : 5\r\n", "Content-Length: +5\r\n", "Content-Length: 0x5\r\n"]) {
      const text = await raw(server, head(more) + "0\r\n\r\n" + hidden);
      const answers = [...text.matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, status]) => status);
      assert.ok(answers.length <= 1 && answers.every((status) => status[0] === "4"), `${JSON.stringify(more)} -> ${answers}`);
      assert.ok(!text.includes('"object":"list"'), more);
    }
    await serves(t, "after framing");
  });
}
