"""Evaluation of an exported model: exact match on held-out rows, drafts, free chats.

Teacher forcing decides exactness: greedy decoding gives the graded message if and only if every token of it
is the most likely one. Owns the scoring; the rows are in evalsets.py, or frozen in a file of texts.

    python3 evaluate.py MODEL_DIR --out results.json [--rows FILE]     FILE: {name: [text, ...]}
"""
import argparse
import gzip
import json
import os
import time

import torch

import evalsets
import export
import tokenizer
from chatformat import encode
from data import rows

TOKENS = 32768  # of one batch
DEPTH = 3  # tokens guessed ahead in a row
ANSWER_MOST = 64  # tokens of a free answer
FREE_LENGTH = 384


def pad(batch, length, special, device):
    t = torch.full((len(batch), length), special["pad"], dtype=torch.long)
    for i, ids in enumerate(batch):
        t[i, : len(ids)] = torch.tensor(ids)
    return t.to(device)


def drafted(model, streams, ids):
    """For a batch [B, L] the tokens that the draft block guesses from each position on: DEPTH of [B, L].

    The block's own streams go in again for the next; the tokens between are the right ones, as they are
    wherever the guess counts."""
    out = []
    for ahead in range(1, DEPTH + 1):
        streams = model.draft(streams, ids.roll(-ahead, 1))
        hidden = model.head(streams, "mtp.0.")
        out.append(torch.cat([model.logits(h).argmax(-1) for h in hidden.split(4096)]).view(ids.shape))
    return out


def accepted(guesses, best, start, end):
    """(right guesses, right guesses of the first depth, positions) of an answer at start..end."""
    right, first, n = 0, 0, 0
    for at in range(start - 1, end - 1 - DEPTH):
        hits = [int(g[at]) == int(best[at + 1 + d - (start - 1)]) for d, g in enumerate(guesses)]
        n, first = n + 1, first + hits[0]
        right += next((d for d, hit in enumerate(hits) if not hit), DEPTH)
    return right, first, n


def well_formed(ids, best, special, ends):
    """Whether the calls of an answer keep the protocol: every token of a tag, from its mark to its `>`, is the right one,
    and no mark or end stands where a value goes on. Right values are not asked for."""
    inside, marks = False, (special["dsml"], special["eos"])
    for token, guess in zip(ids, best):
        if (inside or token in marks or guess in marks) and guess != token:
            return False
        inside = token == special["dsml"] or inside and token not in ends
    return True


@torch.no_grad()
def score(model, graded, special, ends, drafts_too):
    """Exact match, share of right tokens, share of calls that keep the protocol, share of first drafts accepted and mean
    accepted length over rows of ids; `ends`: the tokens with a `>`."""
    length = -(-max(map(len, graded)) // 128) * 128
    step = max(1, TOKENS // length)
    exact, calls, right, tokens, drafts = [], [], 0, 0, [0, 0, 0]
    for a in range(0, len(graded), step):
        batch = graded[a : a + step]
        t = pad(batch, length, special, model.device)
        streams = model.trunk(t)
        hidden = model.head(streams).view(len(batch), length, -1)
        guesses = [g.tolist() for g in drafted(model, streams, t)] if drafts_too else []
        for i, ids in enumerate(batch):
            start, end = rows.span(ids, special)
            best = model.logits(hidden[i, start - 1 : end - 1]).argmax(-1)
            hit = best == t[i, start:end]
            exact.append(bool(hit.all()))
            right, tokens = right + int(hit.sum()), tokens + end - start
            if special["dsml"] in ids[start:end]:
                calls.append(well_formed(ids[start:end], best.tolist(), special, ends))
            if drafts_too:
                counted = accepted([g[i] for g in guesses], best.tolist(), start, end)
                drafts = [x + y for x, y in zip(drafts, counted)]
    return {
        "n": len(exact),
        "calls": len(calls),
        "formed": sum(calls),
        "exact": sum(exact) / len(exact),
        "token": right / tokens,
        "draft": drafts[1] / max(drafts[2], 1),
        "length": drafts[0] / max(drafts[2], 1),
    }


@torch.no_grad()
def continue_greedy(model, prompts, special):
    """The greedy continuation of every prompt, at most ANSWER_MOST tokens."""
    now, done = [list(p) for p in prompts], [False] * len(prompts)
    for _ in range(ANSWER_MOST):
        t = pad(now, FREE_LENGTH, special, model.device)
        hidden = model.head(model.trunk(t)).view(len(now), FREE_LENGTH, -1)
        best = model.logits(torch.stack([hidden[i, len(x) - 1] for i, x in enumerate(now)])).argmax(-1).tolist()
        for i, token in enumerate(best):
            if not done[i]:
                now[i].append(token)
                done[i] = token == special["eos"]
        if all(done):
            break
    return [x[len(p) :] for x, p in zip(now, prompts)]


def free_chats(model, encoder, decode, special):
    """Hand-written chats, every answer the model's own: (turns and answers, right or not)."""
    chats = [[] for _ in evalsets.FREE]
    for turn in range(max(len(turns) for turns, _ in evalsets.FREE)):
        open_ = [i for i, (turns, _) in enumerate(evalsets.FREE) if turn < len(turns)]
        for i in open_:
            chats[i].append({"role": "user", "content": evalsets.FREE[i][0][turn]})
        answers = continue_greedy(model, [encoder(encode(chats[i])) for i in open_], special)
        for i, ids in zip(open_, answers):
            chats[i].append({"role": "assistant", "content": decode(ids).replace("<｜end▁of▁sentence｜>", "")})
    return [
        ([m["content"] for m in chat], wanted in chat[-1]["content"]) for chat, (_, wanted) in zip(chats, evalsets.FREE)
    ]


def frozen(path, encoder):
    """Rows of a file of texts."""
    with gzip.open(path, "rt") if path.endswith(".gz") else open(path) as f:
        return {name: [encoder(t) for t in texts] for name, texts in json.load(f).items()}


def evaluate(folder, out, path=None, free=True, drafts=True, say=print, **chosen):
    """Score the model in `folder` on the held-out sets, or on the frozen rows, and write the results."""
    device, started = "cuda" if torch.cuda.device_count() else "cpu", time.time()
    torch.backends.cuda.matmul.allow_tf32 = True
    words = os.path.join(folder, "tokenizer.json")
    encoder, decode, special = tokenizer.fast(words), tokenizer.decoder(words), tokenizer.special(words)
    results = {"sets": {}, "free": []}
    # The processes of the sets begin before the GPU is used.
    graded = frozen(path, encoder) if path else {k: x for k, (_, x) in evalsets.sets(encoder, **chosen).items()}
    say(f"{len(graded)} sets in {time.time() - started:.0f} s")
    model = export.load(folder, device)
    model.shadow(False)
    with open(words) as f:
        ends = {i for text, i in json.load(f)["model"]["vocab"].items() if ">" in text}
    for name, ids in graded.items():
        s = results["sets"][name] = score(model, ids, special, ends, drafts)
        say(
            f"{name:44s} n {s['n']:3d} exact {s['exact']:.3f} token {s['token']:.3f} draft {s['draft']:.3f} length {s['length']:.2f}"
            + (f" calls well-formed {s['formed']} of {s['calls']}" if s["calls"] else ""),
            flush=True,
        )
    if free:
        results["free"] = free_chats(model, encoder, decode, special)
    for turns, right in results["free"]:
        say("right" if right else "WRONG", " | ".join(turns))
    say(
        f"free chats right: {sum(r for _, r in results['free'])} of {len(results['free'])}; {time.time() - started:.0f} s"
    )
    with open(out, "w") as f:
        json.dump(results, f, ensure_ascii=False, indent=1)
    return results


def main():
    p = argparse.ArgumentParser()
    p.add_argument("model")
    p.add_argument("--out", required=True)
    p.add_argument("--rows", help="a file of frozen rows instead of the held-out sets")
    p.add_argument("--only", default="", help="sets with this in their names")
    p.add_argument("--longest", type=int, default=1 << 20, help="sets of at most so many tokens")
    p.add_argument("--needles", nargs="*", default=[], metavar="LENGTH:ROWS", help="rows of each depth, by length")
    p.add_argument("--times", type=int, default=1, help="so many times the rows of every set that is no needle's")
    p.add_argument("--no-drafts", action="store_true", help="without the draft block, in two thirds of the time")
    p.add_argument("--no-free", action="store_true", help="without the hand-written chats")
    a = p.parse_args()
    needles = tuple(tuple(map(int, x.split(":"))) for x in a.needles) or evalsets.NEEDLES
    chosen = {"only": a.only, "longest": a.longest, "needles": needles, "times": a.times}
    evaluate(a.model, a.out, a.rows, not a.no_free, not a.no_drafts, **chosen)


if __name__ == "__main__":
    main()
