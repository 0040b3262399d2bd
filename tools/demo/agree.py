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

LONGEST = 512  # tokens of a chat: the sets of this length or less are drawn from, in turn
DIFFERENT = 0.01  # share of chats that rounding may decide otherwise


def chats(encoder, count):
    """The first rows of the short sets, one of each set in turn."""
    sets = [x for length, x in evalsets.sets(encoder, 1024).values()]
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
def torch_says(model, ids, special):
    padded = torch.full((1, -(-len(ids) // 128) * 128), special["pad"], dtype=torch.long)
    padded[0, : len(ids)] = torch.tensor(ids)
    z = torch.log_softmax(model.logits(model.head(model.trunk(padded)))[: len(ids)], -1)
    return z.argmax(-1).tolist(), z[torch.arange(len(ids) - 1), torch.tensor(ids[1:])].tolist()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--engine", required=True)
    p.add_argument("--model", required=True)
    p.add_argument("--chats", type=int, default=200)
    a = p.parse_args()
    words = os.path.join(a.model, "tokenizer.json")
    special, model = tokenizer.special(words), export.load(a.model)
    model.shadow(False)
    same, tokens, differences = 0, 0, []
    graded = chats(tokenizer.fast(words), a.chats)
    with tempfile.TemporaryDirectory() as folder:
        for ids in graded:
            start, end = rows.span(ids, special)
            top, logprob = engine_says(a.engine, a.model, ids, folder)
            wanted, known = torch_says(model, ids, special)
            same += top[start - 1 : end - 1] == wanted[start - 1 : end - 1]
            tokens += end - start
            differences += [abs(x - y) for x, y in zip(logprob[start - 1 : end - 1], known[start - 1 : end - 1])]
    print(
        f"{len(graded)} chats, {tokens} answer tokens: every most likely token equal in {same} chats; "
        f"log-probability differs by {sum(differences) / len(differences):.2e} on average, {max(differences):.2e} at most"
    )
    sys.exit(same < len(graded) * (1 - DIFFERENT))


if __name__ == "__main__":
    main()
