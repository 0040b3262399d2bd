"""Byte-level BPE with the three split stages of the DeepSeek tokenizers: trainer, writer, small encoder.

Owns tokenizer.json. Digits are never merged: a number is a row of digits, which a small model copies and
adds more reliably than pairs of digits. Needs the `regex` module.

    python3 tokenizer.py OUT_DIR     trains on seeded text and writes tokenizer.json, tokenizer_config.json
"""
import collections
import heapq
import json
import os
import random
import sys

import regex

SPLITS = (
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)
LOW = ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>")
# The added tokens of the family, at the upper end of the vocabulary in this order.
HIGH = (
    "<｜fim▁hole｜>",
    "<｜fim▁begin｜>",
    "<｜fim▁end｜>",
    "<｜User｜>",
    "<｜Assistant｜>",
    "<|EOT|>",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁outputs▁begin｜>",
    "<｜tool▁outputs▁end｜>",
    "<｜tool▁output▁begin｜>",
    "<｜tool▁output▁end｜>",
    "<｜tool▁sep｜>",
    "<｜begin▁of▁repo▁name｜>",
    "<｜end▁of▁repo▁name｜>",
    "<｜begin▁of▁file▁name｜>",
    "<｜end▁of▁file▁name｜>",
    "<｜begin▁of▁file｜>",
    "<｜end▁of▁file｜>",
    "<think>",
    "</think>",
    "<｜place▁holder▁for▁copy｜>",
    "<｜place▁holder▁for▁pointer▁replace｜>",
    "｜DSML｜",
    "<｜begin▁sys｜>",
    "<｜end▁sys｜>",
    "<｜latest_reminder｜>",
    "<｜action｜>",
    "<｜query｜>",
    "<｜authority｜>",
    "<｜domain｜>",
    "<｜task｜>",
    "<｜political｜>",
    "<｜entity｜>",
    "<｜title｜>",
    "<｜safety｜>",
    "<｜answer｜>",
    "<｜search｜>",
    "<dsml:",
    "</dsml:",
    "<｜search▁begin｜>",
    "<｜search▁end｜>",
    "<｜extracted_url｜>",
    "<｜read_url｜>",
    "<｜end_of_query｜>",
)
VOCAB = 4096
SEED = 12345
ROWS, PLAIN = 3000, 4000  # texts counted: conversations, plain word texts
WORD_BONUS = 60  # every word of the lists is seen at least so often


def byte_alphabet():
    """The printable stand-in of every byte."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table, extra = {b: chr(b) for b in kept}, 0
    for b in range(256):
        if b not in table:
            table[b] = chr(256 + extra)
            extra += 1
    return table


ALPHABET = byte_alphabet()
BYTE_OF = {c: b for b, c in ALPHABET.items()}
ADDED = regex.compile("|".join(regex.escape(t) for t in sorted(LOW + HIGH, key=len, reverse=True)))
COMPILED = [regex.compile(p) for p in SPLITS]


def split(text):
    """The pieces within which merges happen."""
    pieces = [text]
    for pattern in COMPILED:
        finer = []
        for piece in pieces:
            at = 0
            for m in pattern.finditer(piece):
                if m.start() > at:
                    finer.append(piece[at : m.start()])
                if m.end() > m.start():
                    finer.append(m.group())
                at = m.end()
            if at < len(piece):
                finer.append(piece[at:])
        pieces = finer
    return pieces


def plain_parts(text):
    """(plain text, added token after it or None), in order."""
    at = 0
    for m in ADDED.finditer(text):
        yield text[at : m.start()], m.group()
        at = m.end()
    yield text[at:], None


def learn(counts, wanted):
    """The merges of a byte-pair encoding, most frequent pair first. counts: piece -> how often."""
    words = [[ALPHABET[b] for b in w.encode()] for w in counts]
    weight = list(counts.values())
    pairs, where = collections.Counter(), collections.defaultdict(set)
    for i, word in enumerate(words):
        for p in zip(word, word[1:]):
            pairs[p] += weight[i]
            where[p].add(i)
    heap = [(-c, p) for p, c in pairs.items()]
    heapq.heapify(heap)
    merges = []
    while len(merges) < wanted:
        c, pair = heapq.heappop(heap)
        if pairs.get(pair, 0) != -c:
            if pairs.get(pair, 0) > 0:
                heapq.heappush(heap, (-pairs[pair], pair))
            continue
        if any(ch.isdigit() and ch.isascii() for ch in pair[0] + pair[1]):
            pairs[pair] = 0
            continue
        merges.append(pair)
        touched = set()
        for i in list(where[pair]):
            word = words[i]
            for q in zip(word, word[1:]):
                pairs[q] -= weight[i]
                touched.add(q)
            words[i] = word = merged(word, pair)
            for q in zip(word, word[1:]):
                pairs[q] += weight[i]
                where[q].add(i)
                touched.add(q)
        pairs[pair] = 0
        for q in touched:
            if pairs[q] > 0:
                heapq.heappush(heap, (-pairs[q], q))
    return merges


def merged(word, pair):
    """The word with every occurrence of the pair joined."""
    out, j = [], 0
    while j < len(word):
        step = 2 if tuple(word[j : j + 2]) == pair else 1
        out.append("".join(word[j : j + step]))
        j += step
    return out


class Tokenizer:
    """A slow encoder in plain Python, for checks and for machines without the `tokenizers` package."""

    def __init__(self, path):
        with open(path) as f:
            j = json.load(f)
        self.vocab = j["model"]["vocab"]
        self.rank = {tuple(m.split(" ")): i for i, m in enumerate(j["model"]["merges"])}
        self.added = {t["content"]: t["id"] for t in j["added_tokens"]}
        self.text = {i: t for t, i in (self.vocab | self.added).items()}
        self.cache = {}

    def piece(self, piece):
        if piece not in self.cache:
            word = [ALPHABET[b] for b in piece.encode()]
            while len(word) > 1:
                rank, i = min((self.rank.get(p, 1 << 30), i) for i, p in enumerate(zip(word, word[1:])))
                if rank == 1 << 30:
                    break
                word[i : i + 2] = [word[i] + word[i + 1]]
            self.cache[piece] = [self.vocab[x] for x in word]
        return self.cache[piece]

    def encode(self, text):
        out = []
        for plain, token in plain_parts(text):
            for piece in split(plain):
                out += self.piece(piece)
            if token:
                out.append(self.added[token])
        return out

    def decode(self, ids):
        out, pending = "", b""
        for i in ids:
            t = self.text[i]
            if t in self.added:
                out += pending.decode("utf8", "replace") + t
                pending = b""
            else:
                pending += bytes(BYTE_OF[c] for c in t)
        return out + pending.decode("utf8", "replace")


def fast(path):
    """An encoder text -> ids; the `tokenizers` package where it is installed."""
    try:
        from tokenizers import Tokenizer as Fast
    except ImportError:
        return Tokenizer(path).encode
    t = Fast.from_file(path)
    return lambda text: t.encode(text, add_special_tokens=False).ids


def decoder(path):
    """ids -> text, added tokens shown."""
    return Tokenizer(path).decode


def special(path):
    """Ids of the tokens that training and evaluation must know."""
    with open(path) as f:
        ids = {t["content"]: t["id"] for t in json.load(f)["added_tokens"]}
    return {
        "eos": ids[LOW[1]],
        "pad": ids[LOW[2]],
        "assistant": ids["<｜Assistant｜>"],
        "think": ids["<think>"],
        "endthink": ids["</think>"],
        "dsml": ids["｜DSML｜"],
    }


def count_pieces():
    """How often every piece occurs in a seeded sample of the training text."""
    from data import rows

    r, counts = random.Random(SEED), collections.Counter()
    texts = [rows.conversation(r, r.choice((256, 512, 1024)), 3.6)[0] for _ in range(ROWS)]
    texts += [rows.tokenizer_text(r) for _ in range(PLAIN)]
    for text in texts:
        for plain, _ in plain_parts(text):
            counts.update(split(plain))
    for word in rows.tokenizer_words():
        counts[" " + word] += WORD_BONUS
        counts[word] += WORD_BONUS // 6
    return collections.Counter({k: n for k, n in counts.items() if n > 1})


def document(merges):
    """The content of tokenizer.json."""
    vocab = {t: i for i, t in enumerate(LOW)} | {ALPHABET[b]: len(LOW) + b for b in range(256)}
    for a, b in merges:
        vocab[a + b] = len(vocab)
    added = [*enumerate(LOW), *((VOCAB - len(HIGH) + i, t) for i, t in enumerate(HIGH))]
    stages = [{"type": "Split", "pattern": {"Regex": p}, "behavior": "Isolated", "invert": False} for p in SPLITS]
    level = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": i,
                "content": t,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": t.startswith("<｜") or t in LOW,
            }
            for i, t in added
        ],
        "normalizer": {"type": "Sequence", "normalizers": []},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [*stages, level | {"add_prefix_space": False, "trim_offsets": True, "use_regex": False}],
        },
        "post_processor": level,
        "decoder": level | {"trim_offsets": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": vocab,
            "merges": [f"{a} {b}" for a, b in merges],
        },
    }


def config():
    """The content of tokenizer_config.json."""

    def token(text):
        return {
            "__type": "AddedToken",
            "content": text,
            "lstrip": False,
            "normalized": True,
            "rstrip": False,
            "single_word": False,
        }

    return {
        "add_bos_token": False,
        "add_eos_token": False,
        "bos_token": token(LOW[0]),
        "clean_up_tokenization_spaces": False,
        "eos_token": token(LOW[1]),
        "legacy": True,
        "model_max_length": 1048576,
        "pad_token": token(LOW[1]),
        "sp_model_kwargs": {},
        "unk_token": None,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }


def write(folder):
    """Train the tokenizer and write its two files into the folder."""
    merges = learn(count_pieces(), VOCAB - len(HIGH) - len(LOW) - 256)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "tokenizer.json"), "w") as f:
        json.dump(document(merges), f, ensure_ascii=False)
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as f:
        json.dump(config(), f, ensure_ascii=False, indent=1)


if __name__ == "__main__":
    write(sys.argv[1])
