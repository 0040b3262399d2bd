"""Models on a booted box: sent over SSH, cut off by a power cut, attached on a disk, tried and removed.

  models.py            the boots of `make test`: a small thing that is no model comes in and is refused
  models.py serve      a second copy of the demo model comes in, is tried, and serves
"""

import hashlib
import os
import random
import re
import subprocess
import sys
import time

from box import PROMPT, ROOT, Box, equal, require
from disk import DISK, fresh_disk, tool
from tap import Tap

tap = Tap()

sys.path.insert(0, os.path.join(ROOT, "tools"))
import manifest  # noqa: E402  the same as people use

FOLDER = os.path.join(ROOT, "build", "boot", "models")
THING = os.path.join(FOLDER, "thing")  # whole, and no model
DEMO = os.path.join(ROOT, "rootfs", "models", "demo")
MORE = os.path.join(FOLDER, "more.img")
MIB = 1 << 20
SENT_S = 900  # 24 MB over SSH under TCG take 20, on a machine that does much else ten times as long


def make_thing():
    os.makedirs(THING, exist_ok=True)
    chance = random.Random(6)
    with open(os.path.join(THING, "blob"), "wb") as f:
        f.write(chance.randbytes(4 * MIB + 5))
    with open(os.path.join(THING, "config.json"), "w") as f:
        f.write("{}\n")
    manifest.main(THING)


def make_more(copies):
    """A disk as an operator prepares it: one partition, named, ext4, with folders of models."""
    part = MORE + ".part"
    with open(part, "wb") as f:
        f.truncate(40 * MIB)
    equal(tool("mke2fs", "-q", "-F", "-t", "ext4", part).returncode, 0, "exit code of mke2fs")
    lines = []
    for name, folder in copies.items():
        lines.append("mkdir " + name)
        for file in os.listdir(folder):
            lines.append("write %s/%s %s/%s" % (folder, file, name, file))
    equal(tool("debugfs", "-w", "-f", "-", part, stdin="\n".join(lines) + "\n").returncode, 0, "debugfs")
    with open(MORE, "wb") as f:
        f.truncate(42 * MIB)
    equal(tool("sfdisk", "-q", MORE,
               stdin="label: gpt\nstart=2048, size=%d, name=v4box-models\n" % (40 * MIB // 512)).returncode, 0, "sfdisk")
    with open(MORE, "r+b") as disk, open(part, "rb") as f:
        disk.seek(MIB)
        disk.write(f.read())
    os.unlink(part)


def start(name, *more):
    return Box(name, "--data", DISK, *more)


def sender(box, folder, name):
    argv = box.ssh_argv()
    return [sys.executable, os.path.join(ROOT, "tools", "send_model.py"), folder, name, *argv]


def sent(box, *words, stdin, good=True):
    """A command with a file behind it, over SSH."""
    code, out, err = box.ssh("model " + " ".join(words), stdin=stdin, seconds=SENT_S)
    equal(code == 0, good, "model %s says %r %r" % (" ".join(words), out, err))
    return out


def model(box, *words):
    """One without, on the serial line, where it takes a tenth of the time.  The console is there first."""
    deadline = time.monotonic() + 120
    while "models: not running" in (out := box.serial.command("model " + " ".join(words))):
        require(time.monotonic() < deadline, "the models' program does not run")
        time.sleep(1)
    return out.replace("\r\n", "\n")


def at_prompt(box):
    box.serial.expect(re.escape("; help lists the commands"), 240)
    box.serial.expect(re.escape(PROMPT))


def parts():
    text = b""
    for name in ("manifest.sha256", "leaves.sha256"):
        with open(os.path.join(THING, name), "rb") as f:
            text += f.read()
    return text


def takes_leaves(box):
    """Refuses what is wrong at once, and what does not fit the disk before a byte of it comes."""
    with open(os.path.join(THING, "blob"), "rb") as f:
        blob = f.read()
    out = sent(box, "receive", "thing", stdin=b"x\n", good=False)
    require("expected 'sha256  size  name'" in out, "a manifest that is none: %r" % out)
    require("thing begins" in sent(box, "receive", "thing", stdin=parts()), "no begin")
    wrong = blob[:2 * MIB] + bytes([blob[2 * MIB] ^ 1]) + blob[2 * MIB + 1:]
    out = sent(box, "receive", "thing", "blob", "0", stdin=wrong, good=False)
    require("MiB 2 is not what the manifest says" in out and "2 MiB taken" in out, "says %r" % out)
    equal(model(box, "missing", "thing"), "blob 2 3\nconfig.json 0 1\n", "what is missing")
    require("not everything" in model(box, "finish", "thing"), "finish")
    require("no such model" in model(box, "use", "thing"), "use of a partial model")
    require("demo serves" in model(box, "delete", "demo"), "delete of what serves")
    leaves = ("0" * 64 + "\n") * 60
    big = "%s  %d  big\n%s  %d  leaves.sha256\n%s" % (
        "0" * 64, 60 * MIB, hashlib.sha256(leaves.encode()).hexdigest(), len(leaves), leaves)
    out = sent(box, "receive", "big", stdin=big.encode(), good=False)
    require("it takes 0.063 GB, and" in out, "a model that does not fit: %r" % out)
    grown = model(box, "grow")
    free = re.search(r"partition has (\d+)\.\d+ GB; (\d+)\.\d+ GB are free", grown)
    require(free and int(free.group(1)) == 214 and int(free.group(2)) > 200, "grow says %r" % grown)
    equal(model(box, "grow"), grown, "grow, a second time")
    equal(tool("sfdisk", "--verify", DISK).returncode, 0, "exit code of sfdisk --verify after growing")
    listed = model(box, "list")
    require(re.search(r"demo +\d.* serves", listed) and "on its way: 4 of 6" in listed, "list: %r" % listed)
    require(re.search(r"other +0\.004 GB", listed) and "attached disk" in listed, "list: %r" % listed)
    require("all of it" in model(box, "verify", "other"), "verify of the attached one")
    viewer = model(box, "verify", "demo")
    require("all of it" in viewer, "verify: %r" % viewer)


def goes_on(box):
    """After a power cut: what was taken is there, the rest is sent, and what is no model goes back."""
    listed = model(box, "list")
    require("on its way: 4 of 6" in listed and re.search(r"2\d\d\.\d+ GB are free", listed), "after the cut: %r" % listed)
    done = subprocess.run(sender(box, THING, "thing"), capture_output=True, text=True, timeout=SENT_S)
    require(done.returncode == 0 and "read back and good" in done.stdout, "sender: %r" % (done,))
    box.wait_healthy()
    deadline = time.monotonic() + 120
    while "is no engine yet" in (out := model(box, "use", "thing", "--try")):
        require(time.monotonic() < deadline, "the start is not confirmed")
        time.sleep(2)
    require("goes back by itself" in out, "use --try says %r" % out)
    deadline = time.monotonic() + 120
    while "was no good: back to demo" not in box.serial.command("status"):
        require(time.monotonic() < deadline, "the trial did not go back")
        time.sleep(1)
    box.wait_healthy()
    said = re.search(r"engine serve: (/models/thing/config.json: [^\r\n]*)", box.serial.command("log 200"))
    require(said and "Permission" not in said.group(1), "the log does not say what was wrong with it: %r" % said)
    require(re.search(r"model +demo", box.serial.command("settings")), "the settings name another model")
    require("removed" in model(box, "delete", "thing"), "delete")
    require("thing" not in model(box, "list"), "it is still listed")


def in_test():
    make_thing()
    make_more({"other": THING})
    fresh_disk()
    os.truncate(DISK, 200 << 30)  # the disk of a machine is larger than the image
    with start("models", "--more", MORE) as box:
        at_prompt(box)
        good = tap.check("models: leaves are taken, checked, and what is wrong is refused", takes_leaves, box)
    # Leaving the block kills QEMU at once: the power is gone.
    if good:
        with start("models") as box:
            at_prompt(box)
            tap.check("models: a transfer goes on after a power cut; a bad model goes back", goes_on, box)


def cut_in_transfer(box):
    """Ends while the first file is on its way; leaving the box then takes its power."""
    process = subprocess.Popen(sender(box, DEMO, "second"), stdout=subprocess.PIPE, text=True)
    require("second begins" in process.stdout.readline(), "the sender does not begin")
    time.sleep(5)
    process.kill()
    process.wait()


def serves_the_second(box):
    began = time.monotonic()
    done = subprocess.run(sender(box, DEMO, "second"), capture_output=True, text=True, timeout=SENT_S)
    require(done.returncode == 0 and "goes on" in done.stdout, "sender: %r" % (done,))
    tap.note("the rest of 24 MB over SSH, read back: %.0f s" % (time.monotonic() - began))
    box.wait_healthy()
    deadline = time.monotonic() + 120
    while "is no engine yet" in (out := model(box, "use", "second", "--try")):
        require(time.monotonic() < deadline, "the start is not confirmed")
        time.sleep(2)
    deadline = time.monotonic() + 240
    while not re.search(r"model +second", box.serial.command("settings")):
        require(time.monotonic() < deadline, "the trial is not kept: %r" % out)
        time.sleep(2)
    require(re.search(r"second .*serves", model(box, "list")), "the list names another")


def keeps_the_second(box):
    box.wait_healthy()
    require(re.search(r"second .*serves", model(box, "list")), "another model serves after a restart")
    require("removed" in model(box, "delete", "demo"), "delete of the first")


def serve():
    fresh_disk()
    with start("models-serve") as box:
        at_prompt(box)
        tap.check("serve: a transfer is cut off", cut_in_transfer, box)
    with start("models-serve") as box:
        at_prompt(box)
        if not tap.check("serve: it goes on, is tried, gives a token and is kept", serves_the_second, box):
            return
    with start("models-serve") as box:
        at_prompt(box)
        tap.check("serve: it serves after a restart", keeps_the_second, box)


if __name__ == "__main__":
    {(): in_test, ("serve",): serve}[tuple(sys.argv[1:])]()
    tap.end()
