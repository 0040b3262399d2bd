"""A GPU payload made of a driver that this file makes up, from its .run to the worker that the engine
starts; a damaged one; and updates that bring another.  What only NVIDIA's own driver could show is not
shown here.

  payload.py CACHE [PART ...]     start, update, secure; without a name all of them
"""

import hashlib
import os
import re
import subprocess
import sys
import time

from box import PROMPT, ROOT, Box, equal, require
from disk import extent
from tap import Tap
from update import falls_back, outcome_is, roll_back, send, send_good, wait_confirmed

tap = Tap()

CACHE = sys.argv[1]
VERSION, LATER = "570.0.1", "570.0.2"
SOURCES = os.path.join(ROOT, "tests", "boot", "driver")
FOLDER = os.path.join(ROOT, "build", "boot", "payload-files")
OUT, OUT_LATER = (os.path.join(FOLDER, "out-" + version) for version in (VERSION, LATER))
OUT_SIGNED, OUT_AGAIN = os.path.join(FOLDER, "out-signed"), os.path.join(FOLDER, "elsewhere", "out")
IMAGE, DISK = os.path.join(OUT, "v4box.img"), os.path.join(FOLDER, "disk.img")
FIRMWARE_BYTES = 300000
SECURE_S = 900  # the firmware that holds Secure Boot takes minutes to start, emulated on a busy machine
SECRET = "tests/data/update/development.key"
# NVIDIA's .run is a shell script of the kind of makeself: it cuts off its head and unpacks the rest.
HEAD = """#!/bin/sh
# A driver that is made up.
[ "$1" = --extract-only ] && [ "$2" = --target ] || exit 1
mkdir -p "$3" && tail -n +6 "$0" | xz -d | tar -x -C "$3"
exit $?
"""


def build(*command, **more):
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900, **more)
    require(done.returncode == 0, "%s: %s%s" % (command[0], done.stdout[-1500:], done.stderr[-1500:]))
    return done.stdout


def make_driver(version):
    """The .run, the worker and the pin; returns the path of the .run."""
    tree = os.path.join(FOLDER, "tree-" + version)
    for folder in ("firmware", "kernel-open"):
        os.makedirs(os.path.join(tree, folder))
    for name in ("libcuda", "libnvidia-ptxjitcompiler", "libnvidia-ml"):
        build("gcc", "-shared", "-fPIC", "-O2", "-o", "%s/%s.so.%s" % (tree, name, version),
              os.path.join(SOURCES, "cuda.c"))
    for name in ("gsp_ga10x.bin", "gsp_tu10x.bin"):
        with open(os.path.join(tree, "firmware", name), "wb") as f:
            f.write(bytes(i * 7 % 251 for i in range(FIRMWARE_BYTES)))
    for name in ("nvidia.c", "nvidia-uvm.c", "Makefile"):
        with open(os.path.join(SOURCES, name)) as f, open(os.path.join(tree, "kernel-open", name), "w") as out:
            out.write(f.read().replace("DRIVER_VERSION", '"%s"' % version))
    run = os.path.join(FOLDER, "NVIDIA-Linux-x86_64-%s.run" % version)
    with open(run, "wb") as f:
        f.write(HEAD.encode() + subprocess.run("tar -c . | xz -1", shell=True, cwd=tree, check=True,
                                               capture_output=True).stdout)
    build("gcc", "-O2", "-o", os.path.join(FOLDER, "worker"), os.path.join(SOURCES, "worker.c"))
    with open(run, "rb") as f, open(os.path.join(FOLDER, "pins"), "a") as pins:
        pins.write("%s  %s\n" % (hashlib.sha256(f.read()).hexdigest(), os.path.basename(run)))
    return run


def payload(run, pins, worker="worker", out=OUT, keys=()):
    os.makedirs(out, exist_ok=True)
    return subprocess.run(["tools/payload.sh", CACHE, out, run, pins, os.path.join(FOLDER, worker), *keys],
                          cwd=ROOT, capture_output=True, text=True, timeout=600)


def fresh_disk(image=IMAGE):
    """A new box: its disk, and firmware that has heard of nothing."""
    build("cp", "--sparse=always", image, DISK)
    variables = os.path.join(ROOT, "build", "boot", "payload", "firmware")
    if os.path.exists(variables):
        os.unlink(variables)


def start(*arguments):
    return Box("payload", "--disk", DISK, *arguments)


def refuses(run):
    pins = os.path.join(FOLDER, "pins")
    renamed = os.path.join(FOLDER, "driver.run")
    old = os.path.join(FOLDER, "NVIDIA-Linux-x86_64-535.1.run")
    for path in (renamed, old):
        subprocess.run(["cp", run, path], check=True)
    for path, pinned, reason in [(run, "config/drivers.txt", "is not in drivers.txt"),
                                 (renamed, pins, "not named NVIDIA"), (old, pins, "older than 570")]:
        done = payload(path, pinned)
        require(done.returncode != 0 and reason in done.stderr, "%s: %r" % (reason, done.stderr))
    require("no file" in payload(run, pins, "no-worker").stderr, "a worker that is not there")
    require(not os.path.exists(os.path.join(OUT, "gpu.img")), "something refused left a payload")


def makes(run):
    done = payload(run, os.path.join(FOLDER, "pins"))
    require(done.returncode == 0, "payload.sh: %s%s" % (done.stdout, done.stderr))
    tap.note(done.stdout.strip())
    with open(os.path.join(OUT, "gpu.img"), "rb") as f:
        first = hashlib.sha256(f.read()).hexdigest()
    require(payload(run, os.path.join(FOLDER, "pins"), out=OUT_AGAIN).returncode == 0, "a second time")
    with open(os.path.join(OUT_AGAIN, "gpu.img"), "rb") as f:
        equal(hashlib.sha256(f.read()).hexdigest(), first, "the SHA-256 of a second payload, made elsewhere")
    build("tools/image.sh", CACHE, OUT)
    build("tools/uki.sh", CACHE, OUT)
    build("tools/disk.sh", OUT, SECRET)


def at_prompt(box):
    box.serial.expect(re.escape("; help lists the commands"), 300)
    box.serial.expect(re.escape(PROMPT))


def log(box):
    return box.ssh("log 2000")[1]


def serves_by_the_worker(box):
    at_prompt(box)
    box.wait_healthy()
    said = log(box)
    for what in ("gpu: driver %s, whole, on vda2" % VERSION, "made-up driver: firmware of %d bytes" % FIRMWARE_BYTES,
                 "made-up worker: libcuda answers 7, 2 nodes", "disable ACS redirect"):
        require(what in said, "the log lacks %r: %r" % (what, said[-3000:]))
    require("init: gpu: ok" in said and "init: seal: ok" in said, "a step failed: %r" % said[:3000])
    mounts = {m["path"]: m for m in box.status()["data"]["init"]["mounts"]}
    gpu = mounts["/gpu"]
    require(gpu["type"] == "erofs" and {"ro", "nosuid", "nodev"} <= set(gpu["options"].split(",")), "mounted %r" % gpu)
    status, body = box.http("/v1/chat/completions", key=box.read("api_key"), seconds=300, body={
        "model": "deepseek-v4-demo", "temperature": 0, "max_tokens": 4,
        "messages": [{"role": "user", "content": "Good day!"}]})
    equal(status, 200, "status of a chat through the worker: " + body)


def flip(label, at):
    offset, _ = extent(label, DISK)
    with open(DISK, "r+b") as disk:
        disk.seek(offset + at)
        byte = disk.read(1)[0]
        disk.seek(offset + at)
        disk.write(bytes([byte ^ 4]))


def names_the_byte(box):
    at_prompt(box)
    box.wait_healthy()
    status = box.ssh("status")[1]
    for what in ("on vda2 is not the one of this system, or damaged, at byte 8192\n",
                 "on vda3 is not the one of this system, or damaged, at byte 16384\n", "computes on the processor"):
        require(what in status, "status lacks %r: %r" % (what, status))
    require("made-up worker" not in log(box), "a worker was started from a damaged payload")
    require("/gpu" not in [m["path"] for m in box.status()["data"]["init"]["mounts"]], "it is mounted")


def other_slot(box):
    at_prompt(box)
    box.wait_healthy()
    said = log(box)
    require("damaged, at byte 8192" in said and "whole, on vda3" in said, "the log says %r" % said[:3000])


def starts():
    fresh_disk()
    with start() as box:
        if not tap.check("payload: modules, firmware, library and worker come from it", serves_by_the_worker, box):
            return
    flip("gpu-a", 2 * 4096 + 5)
    with start() as box:
        tap.check("payload: with one byte flipped, the other slot's serves", other_slot, box)
    flip("gpu-b", 4 * 4096 + 4095)
    with start() as box:
        tap.check("payload: with both flipped, block and partition are named, and the box serves", names_the_byte, box)


# ---- updates ------------------------------------------------------------------------------------


def makes_later():
    run = make_driver(LATER)
    done = payload(run, os.path.join(FOLDER, "pins"), out=OUT_LATER)
    require(done.returncode == 0, "payload.sh: %s%s" % (done.stdout, done.stderr))
    build("tools/image.sh", CACHE, OUT_LATER)
    build("tools/uki.sh", CACHE, OUT_LATER)


def update(name, sequence, out=OUT_LATER, brings=True):
    """Makes an update of what lies in a folder; returns its bytes, and how many are not the payload."""
    path = os.path.join(FOLDER, name + ".update")
    program = os.path.join(out, "v4box.efi")
    build("build/bundle", "sign", "--secret", SECRET, "--program", program, "--out", path, "--version", name,
          "--sequence", str(sequence), *(["--payload", os.path.join(out, "gpu.img")] if brings else []))
    shown = build("build/bundle", "show", "--public", "config/update.pub", path)
    require(("driver " in shown) == brings, "bundle show: %r" % shown)
    with open(path, "rb") as f:
        return f.read(), 256 + os.path.getsize(program)


def no_pair_is_made():
    done = subprocess.run(["build/bundle", "sign", "--secret", SECRET, "--program", os.path.join(OUT, "v4box.efi"),
                           "--payload", os.path.join(OUT_LATER, "gpu.img"), "--out", os.path.join(FOLDER, "no")],
                          cwd=ROOT, capture_output=True, text=True)
    require(done.returncode == 2 and "not the GPU payload" in done.stderr, "sign: %r" % done.stderr)


def has(box, *lines):
    said = box.ssh("update status")[1]
    for line in lines:
        require(line in said, "update status lacks %r: %r" % (line, said))


def refuses_updates(box):
    """What can be told at once is refused before anything is written; the rest costs the other slot alone."""
    wait_confirmed(box, "a")
    good, head = update("later", 3)
    own, own_head = update("own", 3, OUT)
    lean, _ = update("lean", 3, brings=False)
    at = len(good) - 77  # the last block, when all before it is written
    for what, data, reason, written in [
            ("a payload that is missing", lean, "does not bring and the box does not have", False),
            ("another one", good[:head] + own[own_head:own_head + len(good) - head], "not the one that the program names",
             False),
            ("a damaged tree", good[:head + 9] + bytes([good[head + 9] ^ 1]) + good[head + 10:], "or damaged", False),
            ("half a tree", good[:head + 100], "cut off", False),
            ("a damaged block", good[:at] + bytes([good[at] ^ 16]) + good[at + 1:], "damaged", True),
            ("a byte less", good[:-1], "cut off", True),
            ("a byte more", good + b"x", "bytes behind", True)]:
        code, out, _ = send(box, data)
        require(code == 1 and reason in out, "%s: exit %d, %r" % (what, code, out))
        equal("nothing was written" in out, not written, what + ": nothing was written")
        if written:
            has(box, "slot b: not to be used: ")
        has(box, "sequence 1, driver %s on vda3, good, runs" % VERSION)


def later_is_confirmed(box):
    wait_confirmed(box, "b")
    require("gpu: driver %s, whole, on vda2" % LATER in log(box), "the log says %r" % log(box)[:3000])
    require("made-up worker: libcuda answers 7" in log(box), "no worker")
    has(box, "slot a: 0", "driver %s on vda3" % VERSION, "slot b: later, sequence 3, driver %s on vda2, good" % LATER)


def first_is_back(box):
    wait_confirmed(box, "a")
    require("gpu: driver %s, whole, on vda3" % VERSION in log(box), "the log says %r" % log(box)[:3000])
    has(box, "driver %s on vda3, good, runs" % VERSION, "slot b: later, sequence 3, driver %s on vda2" % LATER)


def says_why(box):
    wait_confirmed(box, "a")
    outcome_is(box, "lean fell back: the GPU payload can not be used")


def updates():
    """Slot a runs from the other slot's partition, since its own is damaged: that one must stay as it is."""
    fresh_disk()
    flip("gpu-a", 5)
    if not tap.check("update: another driver's payload is made", makes_later):
        return
    tap.check("update: a system and another's payload are not signed", no_pair_is_made)
    with start() as box:
        tap.check("update: damaged, cut, missing and foreign payloads are refused", refuses_updates, box)
        tap.check("update: a good one is taken, payload included", send_good, box, update("later", 3)[0], "b")
    with start() as box:
        tap.check("update: it runs in slot b, with its own payload", later_is_confirmed, box)
        tap.check("update: rollback is taken", roll_back, box, "in slot a")
    with start() as box:
        tap.check("update: and goes back to both", first_is_back, box)
        tap.check("update: what the box has need not come again", send_good, box, update("lean", 4, brings=False)[0], "b")
    flip("gpu-a", 5)
    with start() as box:
        tap.check("update: a trial whose payload is damaged falls back", falls_back, box, "lean")
    with start() as box:
        tap.check("update: slot a is back, and says why", says_why, box)


# ---- Secure Boot: the kernel is locked down, and takes signed modules alone ---------------------


def makes_signed(keys):
    """The box's driver with signed modules, twice the same; and one whose modules nobody signed."""
    run, pins, hashes = os.path.join(FOLDER, "NVIDIA-Linux-x86_64-%s.run" % VERSION), os.path.join(FOLDER, "pins"), set()
    build("tools/secure.sh", keys)
    for _ in range(2):
        done = payload(run, pins, out=OUT_SIGNED, keys=[keys])
        require(done.returncode == 0, "payload.sh: %s%s" % (done.stdout, done.stderr))
        with open(os.path.join(OUT_SIGNED, "gpu.img"), "rb") as f:
            hashes.add(hashlib.sha256(f.read()).hexdigest())
    equal(len(hashes), 1, "different signed payloads")
    build("tools/image.sh", CACHE, OUT_SIGNED)
    hashes.clear()
    for _ in range(2):
        build("tools/uki.sh", CACHE, OUT_SIGNED, keys)
        with open(os.path.join(OUT_SIGNED, "v4box.efi"), "rb") as f:
            hashes.add(hashlib.sha256(f.read()).hexdigest())
    equal(len(hashes), 1, "different signed systems")
    build("tools/disk.sh", OUT_SIGNED, SECRET)
    if not os.path.exists(OUT_LATER):
        makes_later()
    build("tools/uki.sh", CACHE, OUT_LATER, keys)


def enrols(box, keys):
    box.wait_healthy(SECURE_S)
    wait_confirmed(box, "a")
    with open(os.path.join(keys, "enrol"), "rb") as f:
        code, out, _ = box.ssh("secure-boot enrol", stdin=f.read())
    require(code == 0 and "has the keys" in out, "enrol: exit %d, %r" % (code, out))
    box.ssh("reboot")
    equal(box.wait_end(), 0, "QEMU's exit code")


def signed_modules_serve(box):
    box.wait_healthy(SECURE_S)
    wait_confirmed(box, "a")
    equal(box.ssh("secure-boot")[1], "Secure Boot: on\n", "secure-boot")
    said = log(box)
    for what in ("gpu: driver %s, whole, on vda2" % VERSION, "made-up worker: libcuda answers 7, 2 nodes"):
        require(what in said, "the log lacks %r: %r" % (what, said[-3000:]))


def unsigned_were_refused(box):
    box.wait_healthy(SECURE_S)
    wait_confirmed(box, "a")
    outcome_is(box, "unsigned fell back: the GPU payload can not be used")
    said = box.ssh("log stored 2000")[1]
    for module in ("nvidia", "nvidia-uvm"):
        line = "/gpu/modules/%s.ko: the kernel refused it: not signed by a key that it trusts" % module
        require(line in said, "the stored log lacks %r: %r" % (line, said[-3000:]))
    require("made-up worker: libcuda answers 7, 2 nodes" in log(box), "no worker")


def secures():
    keys = os.path.join(FOLDER, "keys")
    if not tap.check("secure: signed modules are made, twice the same", makes_signed, keys):
        return
    fresh_disk(os.path.join(OUT_SIGNED, "v4box.img"))
    with start("--secure") as box:
        if not tap.check("secure: the firmware takes our keys", enrols, box, keys):
            return
    with start("--secure") as box:
        tap.check("secure: modules with our signature are taken by a kernel that is locked down", signed_modules_serve, box)
        tap.check("secure: an update whose modules nobody signed is taken", send_good, box, update("unsigned", 3)[0], "b")
    with start("--secure") as box:
        tap.check("secure: it falls back", falls_back, box, "unsigned", SECURE_S)
    with start("--secure") as box:
        tap.check("secure: the kernel has refused its modules, and slot a is back", unsigned_were_refused, box)


PARTS = {"start": starts, "update": updates, "secure": secures}

if __name__ == "__main__":
    subprocess.run(["rm", "-rf", FOLDER], check=True)
    began = time.monotonic()
    driver = make_driver(VERSION)
    tap.check("payload: a driver that is not pinned, not named so, or too old is refused", refuses, driver)
    if tap.check("payload: modules, EROFS and hashes are made, twice the same", makes, driver):
        for part in sys.argv[2:] or list(PARTS):
            tap.note("after %.0f s: %s" % (time.monotonic() - began, part))
            PARTS[part]()
    tap.note("%.0f s in all" % (time.monotonic() - began))
    tap.end()
