"""Chunk invariance: however a prompt is cut into calls, the engine prints the same bytes.

    test_chunks.py [--engine FILE] [--synth FILE] [GROUP...]

exact, official   prompts of 1 to 700 tokens in chunks of 1, 3, 5, 64, 127, 128, 129 and all
threads           one, two and three threads print the same
controls          the comparison notices another token and other profile

Every logit of the probes, every top-1 and log-probability and the draft are in the bytes compared. Lengths
stand on both sides of the window and of the ratios 4 and 128, with every residue modulo 4."""
import os, sys
import numpy as np
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness import DEMO, Tap, arguments, isas

CHUNKS = [1, 3, 5, 64, 127, 128, 129]
# (config, seed, vocabulary, length); None: the embedded model
PROMPTS = [("nano.json", 1, 512, 700), ("wide.json", 3, 1024, 389), (None, 0, 4096, 258), ("nano.json", 2, 512, 131),
           ("nano.json", 2, 512, 129), ("nano.json", 2, 512, 128), ("nano.json", 2, 512, 127), ("nano.json", 2, 512, 5),
           ("nano.json", 2, 512, 4), ("nano.json", 2, 512, 1)]

tap = Tap()


def prompt(seed, vocab, length):
    return np.random.default_rng(7000 + seed + length).integers(2, vocab, length)


def probes(length):
    return sorted({0, 3, 4, 127, 128, 129, 255, 256, 383, 384, length // 2, length - 1} & set(range(length)))


def printed(engine, config, seed, vocab, length, profile, *flags):
    model = DEMO if config is None else engine.model(config, seed)
    draft = ["--draft"] if length > 1 else []
    at = ",".join(map(str, probes(length)))
    return engine.logits_bytes(model, prompt(seed, vocab, length), profile, "--positions", at, *draft, *flags)


def same_for_every_chunk(engine, row, profile, isa):
    whole = printed(engine, *row, profile, "--isa", isa)
    chunks = [c for c in CHUNKS if c < row[3]] or [1]          # a larger one is the whole prompt again
    different = [c for c in chunks if printed(engine, *row, profile, "--isa", isa, "--chunk", c) != whole]
    what = f"{row[0] or 'demo'} {row[3]} tokens, {profile}, {isa}: the same bytes for every chunk size"
    if different:
        tap.note(f"{what}: chunks {different} differ from the whole prompt")
    tap.check(not different, what)


def group(profile):
    def run(engine):
        here = [name for name, present in isas() if present]
        for row in PROMPTS:
            same_for_every_chunk(engine, row, profile, here[-1])
        for isa in here[:-1]:                       # the others, on the prompt with every kind of boundary but few tokens
            same_for_every_chunk(engine, PROMPTS[3], profile, isa)
    return run


def group_threads(engine):
    """Work is divided differently, sums are not."""
    for row in (PROMPTS[1], PROMPTS[3]):
        for profile in ("reference", "official"):
            one = printed(engine, *row, profile, "--threads", 1)
            same = all(printed(engine, *row, profile, "--threads", n) == one for n in (2, 3))
            tap.check(same, f"{row[0]} {row[3]} tokens, {profile}: the same bytes for 1, 2 and 3 threads")


def group_controls(engine):
    row = PROMPTS[3]
    model = engine.model(row[0], row[1])
    ids = prompt(row[1], row[2], row[3])
    flags = ["--positions", ",".join(map(str, probes(len(ids))))]
    whole = engine.logits_bytes(model, ids, "reference", *flags)
    tap.check(engine.logits_bytes(model, ids, "reference", *flags) == whole, "control: the same run twice prints the same")
    changed = ids.copy()
    changed[0] = (changed[0] + 1) % row[2]
    tap.check(engine.logits_bytes(model, changed, "reference", *flags, "--chunk", 5) != whole, "control: another first token is seen")
    tap.check(engine.logits_bytes(model, ids, "official", *flags) != whole, "control: other profile are seen")


GROUPS = {"reference": group("reference"), "official": group("official"), "threads": group_threads, "controls": group_controls}

if __name__ == "__main__":
    engine, chosen = arguments(GROUPS)
    for name in chosen:
        try:
            GROUPS[name](engine)
        except RuntimeError as fault:
            tap.check(False, f"{name}: {fault}")
    tap.end()
