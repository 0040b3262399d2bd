"""The mean of several trainings that began with the same weights becomes one exported model.

    python3 tools/demo/mean.py --out DIR RUN_DIR RUN_DIR ...

Owns nothing but the sum. Each RUN_DIR is the --out of a train.py, or an exported model: the beginning of a run has a
mean with its end. Runs from different beginnings have none.
"""
import argparse
import json
import os
import shutil

import torch

import export
from model import Model


def weights(folder):
    """(parameters, biases) of a run or of an exported model."""
    path = os.path.join(folder, "state.pt")
    if os.path.exists(path):
        state = torch.load(path, map_location="cpu")
        return state["params"], state["bias"]
    model = export.load(folder)
    return model.params, model.bias


@torch.no_grad()
def mean(folders, out):
    states = [weights(f) for f in folders]
    exported = os.path.join(folders[0], "model") if os.path.exists(os.path.join(folders[0], "model")) else folders[0]
    with open(os.path.join(exported, "config.json")) as f:
        model = Model(json.load(f))
    for name, x in model.params.items():
        x.copy_(torch.stack([params[name].float() for params, _ in states]).mean(0))
    for layer, b in model.bias.items():
        b.copy_(torch.stack([bias[layer].float() for _, bias in states]).mean(0))
    size = export.export(model, out)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(os.path.join(exported, name), out)
    print(f"{size} bytes, the mean of {len(states)}")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--out", required=True)
    p.add_argument("runs", nargs="+")
    a = p.parse_args()
    mean(a.runs, a.out)


if __name__ == "__main__":
    main()
