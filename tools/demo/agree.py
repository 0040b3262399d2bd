"""PyTorch on the CPU against the engine, profile `official`, on held-out chats: the greedy answer of each, token by
token, and the log-probabilities of the graded answer.

    /usr/bin/python3 tools/demo/agree.py --engine build/engine --model DIR [--chats 200]

Owns the comparison. Teacher forcing: along the graded answer both must find the same token most likely at every
position, so a greedy answer of one that leaves the graded one leaves it at the same token in the other. Exit code 1
where more than one chat in a hundred differs.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import torch

import evalsets
import export
import tokenizer
from data import rows

LONGEST = 256  # tokens of a chat: the sets are drawn from in turn
BATCH = 8  # chats that PyTorch reads together
DIFFERENT = 0.01  # share of chats that rounding may decide otherwise


def chats(encoder, count):
    """The first rows of the short sets, one of each set in turn."""
    sets = [x for _, x in evalsets.sets(encoder, 1024).values()]
    pool = [ids for group in zip(*(s[:32] for s in sets)) for ids in group if len(ids) <= LONGEST]
    return pool[:count]


def engine_says(engine, model, ids, folder):
    """(most likely tokens, log-probability of the next token) at every position."""
    path = os.path.join(folder, "ids.json")
    with open(path, "w") as f:
        json.dump(ids, f)
    command = [engine, "logits", "--model", model, "--ids", path, "--profile", "official"]
    out = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=600).stdout)
    return out["top1"], out["next_logprob"]


@torch.no_grad()
def torch_says(model, batch, special):
    """The same of every chat of a batch."""
    padded = torch.full((len(batch), LONGEST), special["pad"], dtype=torch.long)
    for row, ids in zip(padded, batch):
        row[: len(ids)] = torch.tensor(ids)
    logits = model.logits(model.head(model.trunk(padded))).view(len(batch), LONGEST, -1)
    for z, ids in zip(torch.log_softmax(logits, -1), batch):
        yield z[: len(ids)].argmax(-1).tolist(), z[torch.arange(len(ids) - 1), torch.tensor(ids[1:])].tolist()


class Tally:
    """What was compared so far."""

    def __init__(self):
        self.chats, self.same, self.differences = 0, 0, []

    def add(self, ours, theirs, answer):
        """ours, theirs: (most likely tokens, log-probabilities); answer: the positions that predict the answer."""
        self.chats += 1
        self.same += ours[0][answer] == theirs[0][answer]
        self.differences += [abs(x - y) for x, y in zip(ours[1][answer], theirs[1][answer])]

    def __str__(self):
        mean = sum(self.differences) / len(self.differences)
        return (
            f"{self.chats} chats, {len(self.differences)} answer tokens: every most likely token equal in {self.same} "
            f"chats; log-probability differs by {mean:.2e} on average, {max(self.differences):.2e} at most"
        )


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--engine", required=True)
    p.add_argument("--model", required=True)
    p.add_argument("--chats", type=int, default=200)
    a = p.parse_args()
    words = os.path.join(a.model, "tokenizer.json")
    special, model = tokenizer.special(words), export.load(a.model)
    model.shadow(False)
    graded, tally = chats(tokenizer.fast(words), a.chats), Tally()
    with tempfile.TemporaryDirectory() as folder:
        for at in range(0, len(graded), BATCH):
            batch = graded[at : at + BATCH]
            for ids, theirs in zip(batch, torch_says(model, batch, special)):
                start, end = rows.span(ids, special)
                tally.add(engine_says(a.engine, a.model, ids, folder), theirs, slice(start - 1, end - 1))
            print(tally, flush=True)
    sys.exit(tally.same < len(graded) * (1 - DIFFERENT))


if __name__ == "__main__":
    main()
