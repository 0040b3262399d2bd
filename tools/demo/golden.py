"""Golden cases of the demo model, computed by the reference of the tests in both numerics.

    /usr/bin/python3 tools/demo/golden.py MODEL_DIR OUT.json

Five rows of 60 to 900 tokens with top-1, log-probability of the next token and the last logits: the form that
tests/golden reads. Owns which rows: of every kind the first that the model answers in exact numerics, since at an
answer that it misses two tokens are close and the order of a sum decides. The reference is tests/golden/reference.py.
Needs numpy and regex.
"""

import json
import multiprocessing
import os
import random
import sys

import numpy as np

import evalsets
import tokenizer

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/golden"))
import reference

SEED = 5


TRIES = 8  # rows of a kind before the model is called too weak for golden cases


def makers(r, encoder):
    """name -> maker of the ids of one row."""
    return {
        "recall-3": lambda: encoder(evalsets.recall(r, 3)),
        "recall-6": lambda: encoder(evalsets.recall(r, 6)),
        "recall-thinking": lambda: encoder(evalsets.recall(r, 4, thinking=True)),
        "tool-file": lambda: encoder(evalsets.tool_write(r)),
        "needle-900": lambda: evalsets.needle(r, encoder, 900, 0.4),
    }


def scores(folder, numerics, ids):
    """What a case says of a row under one kind of numerics."""
    logits, _ = reference.Model(folder, numerics).forward(ids)
    z = logits - logits.max(-1, keepdims=True)
    logp = z - np.log(np.exp(z).sum(-1, keepdims=True))
    return {
        "top1": logits.argmax(-1).tolist(),
        "next_logprob": [float(f"{x:.7g}") for x in logp[np.arange(len(ids) - 1), ids[1:]]],
        "last_logits": [float(f"{x:.6g}") for x in logits[-2]],
    }


def answered(job):
    """The case of the first row of a kind that the model answers."""
    folder, name = job
    words = os.path.join(folder, "tokenizer.json")
    decode, assistant = tokenizer.decoder(words), tokenizer.special(words)["assistant"]
    make = makers(random.Random(f"{SEED} {name}"), tokenizer.fast(words))[name]
    for _ in range(TRIES):
        ids = make()
        start, exact = len(ids) - 1 - ids[::-1].index(assistant), scores(folder, "exact", ids)
        if exact["top1"][start + 1 : -1] == ids[start + 2 :]:
            official = scores(folder, "official", ids)
            same = np.mean(np.array(exact["top1"]) == np.array(official["top1"]))
            print(f"{name} {len(ids)} tokens, top-1 of the numerics equal {same:.3f}", flush=True)
            head = {"text": decode(ids), "ids": ids, "answer_from": start + 2}
            return head | {"exact": exact, "official": official, "answer_is_top1": True}
    sys.exit(f"golden: none of {TRIES} rows was answered")


def main():
    folder, path = sys.argv[1:]
    names = list(makers(random.Random(SEED), None))
    with multiprocessing.Pool(2) as pool:  # the long rows first
        cases = dict(zip(names[::-1], pool.map(answered, [(folder, name) for name in names[::-1]], chunksize=1)))
    cases = {name: cases[name] for name in names}
    with open(path, "w") as f:
        json.dump(cases, f, ensure_ascii=False, separators=(",", ":"))


if __name__ == "__main__":
    main()
