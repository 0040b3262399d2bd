"""The exported model in the product's own engine: the held-out rows scored by `engine logits`, the free chats
answered over the HTTP API and compared with what PyTorch answered.

    python3 check_engine.py --engine build/engine --model DIR --results results.json [--rows N] [--longest TOKENS]
                            [--jobs N]      N rows at a time, a thread each

Owns the comparison; needs no PyTorch. results.json is what evaluate.py wrote. Numerics are `official`, answers
greedy. Exit code 1 where an answer differs from PyTorch's.
"""
import argparse
import concurrent.futures
import hashlib
import json
import math
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import evalsets
import tokenizer
from data import rows

SECRET = "ds_checkkey_" + "0" * 32  # of this check's own server, on the loopback, for its lifetime
START_SECONDS = 30
ANSWER_SECONDS = 120
ROW_SECONDS = 600  # one of 32,768 tokens on one thread
ANSWER_MOST = 64  # tokens, as in evaluate.py


def top1(engine, model, ids, folder):
    """The engine's most likely next token at every position."""
    with tempfile.NamedTemporaryFile("w", dir=folder, suffix=".json") as f:
        json.dump(ids, f)
        f.flush()
        done = subprocess.run(
            [engine, "logits", "--model", model, "--ids", f.name, "--profile", "official", "--threads", "1"],
            capture_output=True,
            check=True,
            timeout=ROW_SECONDS,
        )
    return json.loads(done.stdout)["top1"]


def interval(hits, n):
    """The 95 % interval of a share (Wilson)."""
    z, p = 1.96, hits / n
    middle, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return (middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)


def line(name, hits, n):
    low, high = interval(hits, n)
    return f"{name:44s} n {n:4d} exact {hits / n:.3f} ({max(0, low):.3f} to {min(1, high):.3f})"


def score_sets(a, encoder, special, folder):
    """Exact match of the first rows of every set that is short enough; prints one line a set."""

    def exact(ids):
        start, end = rows.span(ids, special)
        return top1(a.engine, a.model, ids, folder)[start - 1 : end - 1] == ids[start:end]

    n, right = 0, 0
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        sets = evalsets.sets(encoder, a.longest)
        hits = {name: [pool.submit(exact, ids) for ids in graded[: a.rows]] for name, (_, graded) in sets.items()}
        for name, runs in hits.items():
            got = [x.result() for x in runs]
            print(line(name, sum(got), len(got)), flush=True)
            n, right = n + len(got), right + sum(got)
    print(line("all sets through the engine", right, n), flush=True)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """@own an `engine serve` process on a free loopback port; threads: 0 for as many as it takes by itself."""

    def __init__(self, engine, model, folder, threads=0):
        keys = os.path.join(folder, "keys")
        with open(keys, "w") as f:
            f.write(f"checkkey {hashlib.sha256(SECRET.encode()).hexdigest()} check\n")
        os.chmod(keys, 0o600)
        self.url = f"http://127.0.0.1:{free_port()}"
        self.process = subprocess.Popen(
            [
                engine,
                "serve",
                "--model",
                model,
                "--listen",
                self.url[len("http://") :],
                "--keys",
                keys,
                "--profile",
                "official",
                *(["--threads", str(threads)] if threads else []),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def __enter__(self):
        deadline = time.time() + START_SECONDS
        while time.time() < deadline and self.process.poll() is None:
            try:
                urllib.request.urlopen(self.url + "/healthz", timeout=1)
                return self
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                time.sleep(0.2)
        self.process.kill()
        sys.exit("check_engine: the engine did not start")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(timeout=START_SECONDS)

    def call(self, path, body=None):
        request = urllib.request.Request(
            self.url + path,
            json.dumps(body).encode() if body else None,
            {"Content-Type": "application/json", "Authorization": "Bearer " + SECRET},
        )
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as reply:
            return json.load(reply)

    def answer(self, messages):
        """The greedy answer, thinking off."""
        body = {
            "model": self.call("/v1/models")["data"][0]["id"],
            "messages": messages,
            "temperature": 0,
            "max_tokens": ANSWER_MOST,
            "thinking": {"type": "disabled"},
        }
        return self.call("/v1/chat/completions", body)["choices"][0]["message"]["content"] or ""


def free_chats(server):
    """Turns and answers of the hand-written chats, every answer the engine's own; right or not."""
    out = []
    for turns, wanted in evalsets.FREE:
        messages = []
        for text in turns:
            messages.append({"role": "user", "content": text})
            messages.append({"role": "assistant", "content": server.answer(messages)})
        out.append(([m["content"] for m in messages], wanted in messages[-1]["content"]))
        print("right" if out[-1][1] else "WRONG", " | ".join(out[-1][0]), flush=True)
    return out


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--engine", required=True)
    p.add_argument("--model", required=True)
    p.add_argument("--results", required=True)
    p.add_argument("--rows", type=int, default=8, help="of every set")
    p.add_argument("--jobs", type=int, default=1)
    p.add_argument("--longest", type=int, default=1024, help="sets of longer rows are left out")
    a = p.parse_args()
    words = os.path.join(a.model, "tokenizer.json")
    with open(a.results) as f:
        expected = {tuple(turns[::2]): turns for turns, _ in json.load(f)["free"]}
    with tempfile.TemporaryDirectory() as folder:
        with Server(a.engine, a.model, folder) as server:
            answered = free_chats(server)
        compared = [turns == expected[tuple(turns[::2])] for turns, _ in answered if tuple(turns[::2]) in expected]
        print(
            f"free chats: {sum(r for _, r in answered)} of {len(answered)} right; {sum(compared)} of {len(compared)} as PyTorch answered",
            flush=True,
        )
        score_sets(a, tokenizer.fast(words), tokenizer.special(words), folder)
    sys.exit(0 if all(compared) else 1)


if __name__ == "__main__":
    main()
