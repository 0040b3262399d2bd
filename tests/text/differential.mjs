// The engine's tokenizer against the Rust implementation of npm:  differential.mjs ENGINE SEED
//
// Texts are joined with an added token between and encoded in one run of `engine tokenize --special`,
// which starts each text anew; the reference encodes them one by one.  Prints TAP.
import { spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { everyCharacter, random, randomText } from './texts.mjs';

const { Tokenizer } = createRequire(import.meta.url)('@anush008/tokenizers');
const [engine, seedText] = process.argv.slice(2);
const seed = Number(seedText);
const OUT = 'build/tokenizer';
const LIMITS = { maxBuffer: 1 << 30, timeout: 120000 };
const TEXTS = 4000;
// Texts of everyCharacter in one run; their ids stay below what the engine reads back (4 M values).
const SLICE = 440;

let tests = 0;
let failures = 0;
function report(what, fault) {
  tests++;
  failures += fault === undefined ? 0 : 1;
  console.log(`${fault === undefined ? 'ok' : 'not ok'} ${tests} - ${what}`);
  if (fault !== undefined) console.log(`# ${fault}`);
}

function run(command, args, input) {
  const result = spawnSync(engine, [command, ...args], { ...LIMITS, input });
  if (result.status !== 0) throw new Error(`engine ${command}: ${result.status} ${result.stderr}`);
  return result.stdout;
}

// ---- the tokenizers -------------------------------------------------------------------------------

// Any two bytes merge, so nearly every change of a piece's bounds changes ids.  Merges as arrays.
function pairsTokenizer(model) {
  const bytes = Object.keys(model.model.vocab).filter((word) => [...word].length === 1);
  const vocab = Object.fromEntries(bytes.map((word, i) => [word, i]));
  const merges = [];
  for (const left of bytes) {
    for (const right of bytes) {
      vocab[left + right] = bytes.length + merges.length;
      merges.push([left, right]);
    }
  }
  const flags = { single_word: false, lstrip: false, rstrip: false, normalized: false, special: true };
  // Texts that begin alike: the longest match counts.
  const contents = ['<sep>', '<x>', '<x><', '<x><yz>', 'é<x'];
  const first = bytes.length + merges.length;
  const added_tokens = contents.map((content, i) => ({ id: first + i, content, ...flags }));
  return { ...model, added_tokens, model: { ...model.model, vocab, merges } };
}

function load(name, path, separator) {
  const json = JSON.parse(readFileSync(path, 'utf8'));
  const id = json.added_tokens.find((token) => token.content === separator).id;
  return { name, path, json, separator, id, reference: Tokenizer.fromFile(path) };
}

async function referenceIds(tokenizer, text) {
  return (await tokenizer.encode(text, null, { addSpecialTokens: false })).getIds();
}

function engineIds(t, texts) {
  const input = texts.join(t.separator);
  const ids = JSON.parse(run('tokenize', ['--tokenizer', t.path, '--special'], input));
  const lists = [[]];
  for (const id of ids) {
    if (id === t.id) lists.push([]);
    else lists.at(-1).push(id);
  }
  return { ids, lists, input };
}

function firstDifference(texts, got, want) {
  if (got.length !== texts.length) return `${got.length} lists for ${texts.length} texts`;
  for (let i = 0; i < texts.length; i++) {
    if (JSON.stringify(got[i]) !== JSON.stringify(want[i])) {
      const [text, a, b] = [texts[i], got[i], want[i]].map((x) => JSON.stringify(x).slice(0, 400));
      return `text ${i} ${text}: engine ${a}, reference ${b}`;
    }
  }
  return undefined;
}

// ---- the tests ------------------------------------------------------------------------------------

async function compare(t, what, texts) {
  const want = [];
  for (const text of texts) want.push(await referenceIds(t.reference, text));
  const { ids, lists, input } = engineIds(t, texts);
  const count = want.reduce((n, list) => n + list.length, 0);
  report(`${t.name}: ${what}: ${texts.length} texts, ${count} ids as the reference`,
    firstDifference(texts, lists, want));
  const back = run('detokenize', ['--tokenizer', t.path], JSON.stringify(ids));
  report(`${t.name}: ${what}: ids give the text back`,
    back.equals(Buffer.from(input)) ? undefined : 'the bytes differ');
}

// Added tokens and pieces of them amid other text.
function addedTexts(t, pick, count) {
  const added = t.json.added_tokens.map((token) => token.content).filter((c) => c !== t.separator);
  return Array.from({ length: count }, () => {
    let text = randomText(pick, 3);
    for (let i = 0; i < 4; i++) {
      const content = [...added[pick(added.length)]];
      text += content.slice(pick(3) === 0 ? pick(content.length) : 0,
        pick(3) === 0 ? pick(content.length) + 1 : content.length).join('') + randomText(pick, 2);
    }
    return text;
  });
}

// Parsing off: as a reference that has no added tokens at all.
async function comparePlain(t, texts) {
  const bare = Tokenizer.fromString(JSON.stringify({ ...t.json, added_tokens: [] }));
  const added = new Set(t.json.added_tokens.map((token) => token.id));
  const text = t.json.added_tokens.map((token) => token.content).join(' ') + texts.join('\n');
  const ids = JSON.parse(run('tokenize', ['--tokenizer', t.path], text));
  report(`${t.name}: parsing off: ${ids.length} ids as a reference without added tokens`,
    firstDifference([text], [ids], [await referenceIds(bare, text)]));
  report(`${t.name}: parsing off: no id of an added token`,
    ids.some((id) => added.has(id)) ? 'an added token was produced' : undefined);
}

// A comparison that cannot fail proves nothing.
async function compareWrong(t) {
  const texts = ['one', 'two three', 'four'];
  const want = [];
  for (const text of ['one', 'two  three', 'four']) want.push(await referenceIds(t.reference, text));
  const fault = firstDifference(texts, engineIds(t, texts).lists, want);
  report(`${t.name}: one space more is seen as a difference`,
    fault !== undefined && fault.startsWith('text 1 ') ? undefined : `it says: ${fault}`);
}

// Bytes that are no text survive both ways; wrong use ends with code 2 and one line that says where.
function commands(t, pick) {
  const bytes = Buffer.from(Array.from({ length: 20000 }, () => pick(256)));
  const ids = run('tokenize', ['--tokenizer', t.path], bytes);
  const back = run('detokenize', ['--tokenizer', t.path], ids);
  report('random bytes come back', back.equals(bytes) ? undefined : 'the bytes differ');
  const size = t.json.added_tokens.at(-1).id + 1;
  const wrong = [
    ['tokenize', [], '', '--tokenizer FILE is needed'],
    ['tokenize', ['--tokenizer'], '', "'--tokenizer'"],
    ['tokenize', ['--tokenizer', 'tests/none.json'], '', 'tests/none.json'],
    ['tokenize', ['--tokenizer', 'tests'], '', 'tests'],
    ['tokenize', ['--tokenizer', 'tests/data/tokenizer/golden_v4.json'], '', 'golden_v4.json: not a JSON object'],
    ['tokenize', ['--tokenizer', 'tests/text/package.json'], '', 'package.json: decoder.type'],
    ['detokenize', ['--tokenizer', t.path, '--special'], '[]', "'--special'"],
    ['detokenize', ['--tokenizer', t.path], '[1, 2', 'standard input: invalid JSON'],
    ['detokenize', ['--tokenizer', t.path], '{"ids": [1]}', 'not a JSON array'],
    ['detokenize', ['--tokenizer', t.path], `[1, ${size}]`, '[1] is not an id'],
    ['detokenize', ['--tokenizer', t.path], '[-1]', '[0] is not an id'],
    ['detokenize', ['--tokenizer', t.path], '[1.0]', '[0] is not an id'],
  ];
  for (const [command, args, input, named] of wrong) {
    const { status, stdout, stderr } = spawnSync(engine, [command, ...args], { ...LIMITS, input });
    const fine = status === 2 && stdout.length === 0 && /^engine [^\n]*\n$/.test(stderr)
      && stderr.includes(named);
    report(`${command} ${args.join(' ')}: ends with 2 and names ${named}`,
      fine ? undefined : `${status} ${stdout} ${stderr}`);
  }
}

async function main() {
  mkdirSync(OUT, { recursive: true });
  console.log(`# seed ${seed}`);
  const v4 = load('V4', `${OUT}/v4.json`, '<｜place▁holder▁no▁0｜>');
  const demo = load('demo', 'rootfs/models/demo/tokenizer.json', '<｜end▁of▁sentence｜>');
  writeFileSync(`${OUT}/pairs.json`, JSON.stringify(pairsTokenizer(demo.json)));
  const pairs = load('pairs', `${OUT}/pairs.json`, '<sep>');

  const golden = JSON.parse(readFileSync('tests/data/tokenizer/golden_v4.json', 'utf8'));
  const texts = golden.map((row) => row.text);
  report(`V4: the ${golden.length} golden texts`,
    firstDifference(texts, engineIds(v4, texts).lists, golden.map((row) => row.ids)));
  await compareWrong(v4);
  commands(demo, random(seed));
  const characters = [...everyCharacter()];
  for (let i = 0; i < characters.length; i += SLICE) {
    await compare(pairs, `every character, part ${i / SLICE + 1}`, characters.slice(i, i + SLICE));
  }
  for (const t of [v4, demo, pairs]) {
    const pick = random(seed);
    await compare(t, 'random', Array.from({ length: TEXTS }, () => randomText(pick, 1 + pick(60))));
    await compare(t, 'added tokens', addedTexts(t, pick, 500));
    await comparePlain(t, addedTexts(t, pick, 500));
  }
  console.log(`1..${tests}`);
  process.exit(failures === 0 ? 0 : 1);
}

await main();
