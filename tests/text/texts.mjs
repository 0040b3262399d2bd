// Generates texts that stress a tokenizer: every kind of character the split expressions know, runs
// of them, and words of many scripts.  Knows no tokenizer.  Everything follows from the seed.

// A small generator (mulberry32); Math.random cannot be seeded.
export function random(seed) {
  let state = seed >>> 0;
  return (n) => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t = (t + Math.imul(t ^ (t >>> 7), t | 61)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) % n;
  };
}

const range = (first, last) => (pick) => String.fromCodePoint(first + pick(last - first + 1));
const oneOf = (...items) => (pick) => items[pick(items.length)];

const CHARACTERS = [
  range(0x61, 0x7a), range(0x41, 0x5a), range(0x30, 0x39), range(0x21, 0x7e), range(0, 0x7f),
  oneOf(' '), oneOf('\n', '\r', '\r\n', '\n\n'), oneOf('\t', '\v', '\f', '\x85', '\xa0'),
  oneOf('\u1680', '\u2003', '\u2028', '\u2029', '\u202f', '\u205f', '\u3000'),
  oneOf('\u200b', '\u200d', '\ufeff', '\u00ad', '\u2060', '\u180e'), // look like space, are not
  range(0xa1, 0xff), range(0x100, 0x24f), range(0x300, 0x36f), range(0x370, 0x3ff),
  range(0x400, 0x4ff), range(0x590, 0x5ff), range(0x600, 0x6ff), range(0x900, 0x97f),
  range(0xe00, 0xe7f), range(0x1100, 0x11ff), range(0xac00, 0xd7a3), range(0x3040, 0x30ff),
  range(0x4e00, 0x9fa5), range(0x9f90, 0x9fff), range(0x3000, 0x303f), range(0xff00, 0xffef),
  range(0x2000, 0x206f), range(0x2070, 0x218f), range(0x2190, 0x2bff), range(0x20d0, 0x20ff),
  range(0x1f300, 0x1faff), range(0x1f1e6, 0x1f1ff), range(0x1d400, 0x1d7ff), range(0x20000, 0x2a6df),
  range(0xe0100, 0xe01ef), range(0xe000, 0xf8ff), range(0x0, 0xd7ff), range(0xe000, 0x10ffff),
  oneOf('👩‍👩‍👧‍👦', '👍🏽', '🏴󠁧󠁢󠁥󠁮󠁧󠁿', '❤️', '१२३', '٣٤٥', '½', 'Ⅷ', '①', '〇', 'é', 'ガ', 'ﷺ', '\0'),
  oneOf("'s", "'re", '()', '{};', '//', '/*', '*/', '->', '...', '!?', '==', '_', '-', '.', ','),
  oneOf('the', ' of', 'function', 'return ', 'int', 'hello', 'World', '你好', '世界', 'привет', 'こんにちは'),
];

// `parts` random parts; now and then a part is repeated into a run.
export function randomText(pick, parts) {
  // Few kinds a text, so that neighbours of one kind are common.
  const kinds = Array.from({ length: 1 + pick(6) }, () => CHARACTERS[pick(CHARACTERS.length)]);
  let text = '';
  for (let i = 0; i < parts; i++) {
    const kind = pick(8) === 0 ? CHARACTERS[pick(CHARACTERS.length)] : kinds[pick(kinds.length)];
    const part = kind(pick);
    text += pick(30) === 0 ? part.repeat(1 + pick(200)) : part;
  }
  return text;
}

// All code points that are characters, each among such neighbours that its class shows in the cut.
export function* everyCharacter() {
  for (let first = 0; first < 0x110000; first += 256) {
    let text = '';
    for (let code = first; code < first + 256; code++) {
      const c = String.fromCodePoint(code);
      text += `a${c}a ${c}\n${c}1 ${c}${c}  ${c}`;
    }
    // Planes 4 to 13 are unassigned, 15 and 16 private: their first blocks speak for the rest.
    const plane = first >> 16;
    const uniform = (plane >= 4 && plane <= 13) || plane >= 15;
    if ((first < 0xd800 || first >= 0xe000) && (!uniform || (first & 0xffff) < 0x400)) yield text;
  }
}
