"""Writes a golden file for `engine audit logits --golden`: what the numpy reference of tests/golden says about a text.

    golden.py MODEL OUT [--profile reference|official] [--case NAME] [--top N]

The text is a conversation of tests/data/golden/demo-cases.json, the numerics are the reference's `exact` or `official`:
another program by another hand, that shares no line with the engine.  Knows the form of engine/audit/golden.h."""
import argparse, hashlib, json, os, sys
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "..", "golden"))
import reference  # noqa: E402

CASES = os.path.join(HERE, "..", "data", "golden", "demo-cases.json")
NUMERICS = {"reference": "exact", "official": "official"}
TOKENS = 100  # of a text: all layers see each other, and the reference takes a second
MADE_BY = "tests/golden/reference.py, numpy in float64, numerics "


def weights(folder):
    """-> SHA-256 of the manifest, "" without one"""
    path = os.path.join(folder, "manifest.sha256")
    return hashlib.sha256(open(path, "rb").read()).hexdigest() if os.path.exists(path) else ""


def rows(logits, top):
    """-> the rows of a golden file: the likeliest ids and the mass of the others"""
    logprobs = logits - logits.max(-1, keepdims=True)
    logprobs = logprobs - np.log(np.exp(logprobs).sum(-1, keepdims=True))
    for position, row in enumerate(logprobs):
        order = np.argsort(-row, kind="stable")[:top]
        kept = [[int(i), float(min(row[i], 0))] for i in order]
        yield {"position": position, "tail": float(max(1 - np.exp(row[order]).sum(), 0)), "top": kept}


def case_ids(name="recall-3", tokens=TOKENS):
    return json.load(open(CASES))[name]["ids"][:tokens]


def golden(folder, ids, profile, top=64):
    """-> a golden file's value"""
    logits = reference.Model(folder, NUMERICS[profile]).forward(ids)[0]
    return {"schema": "v4box-golden/1", "made": {"by": MADE_BY + NUMERICS[profile], "profile": profile},
            "model": {"name": "demo", "weights": weights(folder)},
            "ids": list(ids), "rows": list(rows(logits, min(top, logits.shape[1])))}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("out")
    parser.add_argument("--profile", choices=list(NUMERICS), default="reference")
    parser.add_argument("--case", default="recall-3")
    parser.add_argument("--top", type=int, default=64)
    args = parser.parse_args()
    with open(args.out, "w") as file:
        json.dump(golden(args.model, case_ids(args.case), args.profile, args.top), file)


if __name__ == "__main__":
    main()
