// The speed of the engine's tokenizer beside the Rust one of npm, on the same texts in the same run:
//   bench.mjs BENCH_PROGRAM TOKENIZER FILE...
// Both encode file by file, five rounds, the best counts.  Fails when their ids differ in number or
// the engine is slower than the goal.
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

const { Tokenizer } = createRequire(import.meta.url)('@anush008/tokenizers');
const ROUNDS = 5;
const GOAL = 160000; // ids a second: what the Rust implementation was first measured at

async function rust(path, texts) {
  const start = performance.now();
  const tokenizer = Tokenizer.fromFile(path);
  const open = (performance.now() - start) / 1000;
  let seconds = Infinity;
  let ids = 0;
  for (let round = 0; round < ROUNDS; round++) {
    const encodings = [];
    const begin = performance.now();
    for (const text of texts) encodings.push(await tokenizer.encode(text, null, { addSpecialTokens: false }));
    seconds = Math.min(seconds, (performance.now() - begin) / 1000);
    ids = encodings.reduce((n, encoding) => n + encoding.getLength(), 0);
  }
  return { ids, seconds, open_seconds: open };
}

function line(name, { ids, seconds, open_seconds }) {
  const rate = Math.round(ids / seconds).toLocaleString('en');
  console.log(`${name.padEnd(24)} ${rate.padStart(12)} ids/s   opened in ${open_seconds.toFixed(2)} s`);
}

const [program, path, ...files] = process.argv.slice(2);
const run = spawnSync(program, [path, ...files], { timeout: 60000, encoding: 'utf8' });
if (run.status !== 0) throw new Error(`${program}: ${run.status} ${run.stderr}`);
const engine = JSON.parse(run.stdout);
const other = await rust(path, files.map((file) => readFileSync(file, 'utf8')));
console.log(`${files.length} C files, ${engine.bytes} bytes, ${engine.ids} ids, one core`);
line('engine', engine);
line('@anush008/tokenizers', other);
console.log(`ratio ${(other.seconds / engine.seconds).toFixed(1)}`);
if (engine.ids !== other.ids) throw new Error(`the reference makes ${other.ids} ids`);
if (engine.ids / engine.seconds < GOAL) throw new Error(`below the goal of ${GOAL} ids/s`);
