"""The mean of several trainings that began with the same weights: their state.pt files become one exported model.

    python3 tools/demo/mean.py --out DIR RUN_DIR RUN_DIR ...

Owns nothing but the sum. Each RUN_DIR is the --out of a train.py; runs from different beginnings have no mean.
"""
import argparse
import json
import os
import shutil

import torch

import export
from model import Model


def mean(folders, out):
    states = [torch.load(os.path.join(f, "state.pt"), map_location="cpu") for f in folders]
    with open(os.path.join(folders[0], "model", "config.json")) as f:
        model = Model(json.load(f))
    for name, x in model.params.items():
        x.copy_(torch.stack([s["params"][name].float() for s in states]).mean(0))
    for layer, b in model.bias.items():
        b.copy_(torch.stack([s["bias"][layer].float() for s in states]).mean(0))
    size = export.export(model, out)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(os.path.join(folders[0], "model", name), out)
    print(f"{size} bytes, the mean of {len(states)} runs")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--out", required=True)
    p.add_argument("runs", nargs="+")
    a = p.parse_args()
    mean(a.runs, a.out)


if __name__ == "__main__":
    main()
