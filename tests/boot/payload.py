"""A GPU payload made of a driver that this file makes up, from its .run to the worker that the engine
starts; and a damaged one.  What only NVIDIA's own driver could show is not shown here.

  payload.py CACHE
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

tap = Tap()

CACHE = sys.argv[1]
VERSION = "570.0.1"
SOURCES = os.path.join(ROOT, "tests", "boot", "driver")
FOLDER = os.path.join(ROOT, "build", "boot", "payload-files")
OUT = os.path.join(FOLDER, "out")
DISK = os.path.join(OUT, "v4box.img")
FIRMWARE_BYTES = 300000
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


def make_driver():
    """The .run, the worker and the pin; returns the path of the .run."""
    tree = os.path.join(FOLDER, "tree")
    subprocess.run(["rm", "-rf", FOLDER], check=True)
    for folder in ("firmware", "kernel-open"):
        os.makedirs(os.path.join(tree, folder))
    for name in ("libcuda", "libnvidia-ptxjitcompiler", "libnvidia-ml"):
        build("gcc", "-shared", "-fPIC", "-O2", "-o", "%s/%s.so.%s" % (tree, name, VERSION),
              os.path.join(SOURCES, "cuda.c"))
    for name in ("gsp_ga10x.bin", "gsp_tu10x.bin"):
        with open(os.path.join(tree, "firmware", name), "wb") as f:
            f.write(bytes(i * 7 % 251 for i in range(FIRMWARE_BYTES)))
    for name in ("nvidia.c", "nvidia-uvm.c", "Makefile"):
        with open(os.path.join(SOURCES, name)) as f, open(os.path.join(tree, "kernel-open", name), "w") as out:
            out.write(f.read().replace("DRIVER_VERSION", '"%s"' % VERSION))
    run = os.path.join(FOLDER, "NVIDIA-Linux-x86_64-%s.run" % VERSION)
    with open(run, "wb") as f:
        f.write(HEAD.encode() + subprocess.run("tar -c . | xz -1", shell=True, cwd=tree, check=True,
                                               capture_output=True).stdout)
    build("gcc", "-O2", "-o", os.path.join(FOLDER, "worker"), os.path.join(SOURCES, "worker.c"))
    with open(run, "rb") as f, open(os.path.join(FOLDER, "pins"), "w") as pins:
        pins.write("%s  %s\n" % (hashlib.sha256(f.read()).hexdigest(), os.path.basename(run)))
    return run


def payload(run, pins, worker="worker"):
    os.makedirs(OUT, exist_ok=True)
    return subprocess.run(["tools/payload.sh", CACHE, OUT, run, pins, os.path.join(FOLDER, worker)],
                          cwd=ROOT, capture_output=True, text=True, timeout=600)


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
    require(payload(run, os.path.join(FOLDER, "pins")).returncode == 0, "a second time")
    with open(os.path.join(OUT, "gpu.img"), "rb") as f:
        equal(hashlib.sha256(f.read()).hexdigest(), first, "the SHA-256 of a second payload")
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
                 "made-up worker: libcuda answers 7, 2 nodes"):
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


def main():
    began = time.monotonic()
    run = make_driver()
    tap.check("payload: a driver that is not pinned, not named so, or too old is refused", refuses, run)
    if not tap.check("payload: modules, EROFS and hashes are made, twice the same", makes, run):
        return
    tap.note("made after %.0f s" % (time.monotonic() - began))
    with Box("payload", "--disk", DISK) as box:
        if not tap.check("payload: modules, firmware, library and worker come from it", serves_by_the_worker, box):
            return
    flip("gpu-a", 2 * 4096 + 5)
    with Box("payload", "--disk", DISK) as box:
        tap.check("payload: with one byte flipped, the other slot's serves", other_slot, box)
    flip("gpu-b", 4 * 4096 + 4095)
    with Box("payload", "--disk", DISK) as box:
        tap.check("payload: with both flipped, block and partition are named, and the box serves", names_the_byte, box)


if __name__ == "__main__":
    main()
    tap.end()
