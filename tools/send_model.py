"""Sends a model to a box, and goes on where an earlier call was cut off:

  send_model.py DIR NAME SSH...      for example: send_model.py model flash ssh admin@box7

DIR has manifest.sha256 and leaves.sha256 (tools/manifest.py).  Asks the box what it lacks, sends
that, and asks again, until nothing is missing and the box has read all of it back.  Everything after
NAME is a command that runs what the console is told, its input included.
"""

import os
import subprocess
import sys
import time

LEAF = 1 << 20  # LEAF_BYTES of config/limits.h
DONE = "nothing is missing"
TRIES = 60  # in a row that brought nothing: a box starts again in less than five minutes
PAUSE_S = 5


class Refused(Exception):
    """The box does not want this model; the text says why."""


def tell(ssh, *words, feed=None):
    """Runs one command; `feed` writes its input.  Returns (good, what was said)."""
    process = subprocess.Popen([*ssh, "model " + " ".join(words)], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        if feed is not None:
            feed(process.stdin)
        process.stdin.close()
    except BrokenPipeError:
        pass  # the box has heard enough, and says why
    said = process.stdout.read().decode("utf-8", "replace")
    return process.wait() == 0, said.strip()


def begin(ssh, folder, name):
    def feed(pipe):
        for part in ("manifest.sha256", "leaves.sha256"):
            with open(os.path.join(folder, part), "rb") as f:
                pipe.write(f.read())

    good, said = tell(ssh, "receive", name, feed=feed)
    if not good:
        raise Refused(said)
    print(said, flush=True)


def send(ssh, folder, name, run):
    """Sends one run of leaves, "FILE FIRST COUNT"; True when all of it was taken."""
    file, first, count = run.rsplit(" ", 2)

    def feed(pipe):
        with open(os.path.join(folder, file), "rb") as f:
            f.seek(int(first) * LEAF)
            for _ in range(int(count)):
                pipe.write(f.read(LEAF))

    good, said = tell(ssh, "receive", name, file, first, feed=feed)
    print(said, flush=True)
    return good


def main(folder, name, ssh):
    begin(ssh, folder, name)
    missing, tries = None, 0
    while tries < TRIES:
        good, said = tell(ssh, "missing", name)
        if good and said.startswith(DONE):
            good, said = tell(ssh, "finish", name)
            print(said, flush=True)
            if good:
                return 0
        elif good:
            tries = tries + 1 if said == missing else 0
            missing = said
            if all(send(ssh, folder, name, run) for run in said.splitlines()):
                continue
        tries += not good
        time.sleep(PAUSE_S)
    print("send_model.py: given up; the same call goes on", file=sys.stderr)
    return 1


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit("usage: send_model.py DIR NAME SSH...")
    try:
        sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
    except Refused as refusal:
        sys.exit("send_model.py: " + str(refusal))
