// The story of two turns with the embedded model itself: opencode asks for a program, then for a file,
// and the file has the bytes of the program that was shown.  Needs no script; not part of `make test`.
//   tests/harness/run.sh written.js [--engine FILE] [--model DIR] [--only WORDS]
import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import test, { after } from "node:test";
import { parseArgs } from "node:util";
import { start, stop } from "../api/target.js";
import { CHAT, MESSAGES, opencode, proxied } from "./harness.js";

const { values: flags } = parseArgs({ options: {
  engine: { type: "string", default: "build/engine" },
  model: { type: "string", default: "rootfs/models/demo" },
  only: { type: "string", default: "" },
} });
const CONTEXT = 32768; // its prompt alone is 9,000 tokens of the demo model
const NEXT = "to a file";
const TASKS = [
  "Write a C program that prints good morning lamp.",
  "write a tic-tac-toe game in C",
  "Write a guess the number game in Python.",
];
const FORMS = {
  "chat completions": { ...CHAT, npm: "@ai-sdk/openai-compatible" },
  "messages": { ...MESSAGES, npm: "@ai-sdk/anthropic" },
};

const server = await start({ ...flags, flags: ["--context", String(CONTEXT)] });
after(() => stop(server));
const proxy = await proxied(server);
after(() => proxy.close());

/** The turns of one run, without the titles that are asked for beside them. */
async function turns(form, run) {
  const from = proxy.seen.length;
  assert.deepEqual(await run.ended, { code: 0, signal: null }, run.out);
  return proxy.seen.slice(from).map(form.read).filter(({ request }) => request.tools?.length > 0);
}

const files = (folder) => fs.readdirSync(folder, { recursive: true, withFileTypes: true })
  .filter((file) => file.isFile() && file.name !== "opencode.json").map((file) => path.join(file.parentPath, file.name));

let number = 0;
for (const [name, form] of Object.entries(FORMS))
  for (const task of TASKS.filter((text) => text.includes(flags.only)))
    test(`${name}: "${task}", then "${NEXT}"`, async (t) => {
      const box = opencode(server, proxy, `written-${number++}`, { npm: form.npm, context: CONTEXT });
      const first = await turns(form, box.first(task));
      const second = await turns(form, box.next(NEXT));
      for (const { content, calls, finish } of [...first, ...second])
        t.diagnostic(`${finish} calls=[${calls}] ${JSON.stringify(content)}`);
      const shown = /```\w*\n([\s\S]*?)```/.exec(first.at(-1).content)?.[1];
      assert.ok(shown, "no program is shown");
      const written = files(box.work);
      t.diagnostic(`files: ${written.map((file) => path.relative(box.work, file)).join(" ") || "none"}`);
      assert.equal(written.length, 1);
      assert.equal(fs.readFileSync(written[0], "utf8"), shown);
    });
