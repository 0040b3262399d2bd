"""Batches of training rows from worker processes.

Owns the processes and their queue. Every row is one conversation, never packed; a row whose answers would
all be cut away is drawn again with less text.
"""
import multiprocessing as mp
import os
import queue
import random

import numpy as np

import tokenizer
from data import rows

CHARS_PER_TOKEN = 3.6  # a first guess; every worker follows what it sees
TRIES = 5
ENOUGH = 64  # answer tokens that a long row must have
QUEUE = 24  # batches kept ready
WORKERS_MOST = 7  # one makes several 100,000 tokens a second, training takes 450,000
PAD, CONTEXT, ANSWER = 0, 1, 2  # what a token is to the loss
AHEAD = 3  # tokens behind a row that are targets: of the head, the draft and the draft of the draft


def draw(r, encode, special, length, chars, weak):
    """(ids, mask, characters a token) of one row; mask is 1 on answers. weak: share of the rows of weak spots."""
    for _ in range(TRIES):
        text, silent, forced = rows.conversation(r, length, chars, weak_share=weak)
        ids = encode(text)
        ratio, mask = len(text) / len(ids), rows.answer_mask(ids[: length + AHEAD], special, silent, forced)
        if sum(mask) >= min(ENOUGH, length // 64) and len(ids) > 0.4 * length:
            break
        chars = min(0.85 * chars, ratio) if len(ids) > length else 1.1 * chars
    return ids[: length + AHEAD], mask, ratio


def batch(r, encode, special, length, tokens, chars, weak=0.0):
    """ids and marks [B, length + AHEAD]."""
    count = max(1, tokens // length)
    ids = np.full((count, length + AHEAD), special["pad"], np.uint16)
    marks = np.full((count, length + AHEAD), PAD, np.uint8)
    for b in range(count):
        x, mask, ratio = draw(r, encode, special, length, chars.get(length, CHARS_PER_TOKEN), weak)
        chars[length] = 0.98 * chars.get(length, CHARS_PER_TOKEN) + 0.02 * ratio
        ids[b, : len(x)], marks[b, : len(x)] = x, CONTEXT + np.array(mask, np.uint8)
    return ids, marks


def work(k, phase, phases, out, seed, tokens, path):
    """One worker: batches of the current phase until the phase is negative."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    encode, special = tokenizer.fast(path), tokenizer.special(path)
    r, chars = random.Random(seed * 1000 + k), {}
    while (now := phase.value) >= 0:
        lengths, shares = zip(*phases[now]["mix"])
        length = r.choices(lengths, shares)[0]
        ids, marks = batch(r, encode, special, length, tokens, chars, phases[now].get("weak", 0.0))
        while phase.value == now:
            try:
                out.put((now, length, ids, marks), timeout=1)
                break
            except queue.Full:
                pass


class Feed:
    """@own the worker processes; stop() ends them."""

    def __init__(self, phases, first, tokens, path, seed):
        context = mp.get_context("fork")
        self.phase, self.queue = context.Value("i", first), context.Queue(maxsize=QUEUE)
        args = (self.phase, phases, self.queue, seed, tokens, path)
        count = max(1, min(WORKERS_MOST, len(os.sched_getaffinity(0)) - 2))
        self.workers = [context.Process(target=work, args=(k, *args), daemon=True) for k in range(count)]
        for w in self.workers:
            w.start()

    def get(self, phase):
        """The next batch of the phase: (length, ids, marks)."""
        self.phase.value = phase
        while True:
            p, length, ids, marks = self.queue.get()
            if p == phase:
                return length, ids, marks

    def stop(self):
        self.phase.value = -1
        for w in self.workers:
            w.kill()
