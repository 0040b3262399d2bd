"""Updates the box, well and badly: every start must end on a system that works.

  update.py CACHE              the boots of `make test`
  update.py CACHE NAME ...     only these, in this order; `all`: those of `make test-update`

Updates are built here: the image's own system, some with a program that spoils it from within
(saboteur.c).  A machine that resets ends QEMU, and the next box goes on with its disk and its
firmware's variables, as metal would.
"""

import hashlib
import os
import random
import re
import shutil
import subprocess
import sys
import threading
import time

from boot import overlay
from box import PROMPT, ROOT, Box, Failure, equal, require
from disk import tool
from tap import Tap

tap = Tap()

FOLDER = os.path.join(ROOT, "build", "boot", "update-files")
DISK = os.path.join(FOLDER, "disk.img")
BOX = os.path.join(ROOT, "build", "boot", "update")
SECRET = os.path.join(ROOT, "tests", "data", "update", "development.key")
PUBLIC = os.path.join(ROOT, "config", "update.pub")
RESET_S = 300  # the slowest: an engine is given 31 s of crashes, a frozen one 120 s
CUTS = 20
SEED = 6
CACHE = sys.argv[1]


# ---- updates -----------------------------------------------------------------------------------


def system(name, files, keys=None):
    """An EFI program like the image's, with files put over it; returns its path."""
    if not files and not keys:
        return os.path.join(ROOT, "build", "v4box.efi")
    folder = os.path.join(FOLDER, name)
    os.makedirs(folder, exist_ok=True)
    shutil.copy(os.path.join(ROOT, "build", "v4box-vmlinuz"), folder)
    with open(os.path.join(folder, "v4box-base.cpio.zst"), "wb") as out:
        with open(os.path.join(ROOT, "build", "v4box-base.cpio.zst"), "rb") as base:
            out.write(base.read())
        out.write(b"\0" * (-out.tell() % 4))  # where the kernel looks for a further archive
        if files:
            with open(overlay("update-" + name, files), "rb") as more:
                out.write(more.read())
    subprocess.run(["tools/uki.sh", CACHE, folder] + ([keys] if keys else []), cwd=ROOT, check=True,
                   stdout=subprocess.DEVNULL)
    return os.path.join(folder, "v4box.efi")


def sabotage(how):
    path = os.path.join(FOLDER, "sabotage-" + how)
    with open(path, "w") as f:
        f.write(how)
    return {"etc/sabotage": path, "bin/heart": "build/saboteur", "bin/heart.real": "build/heart"}


def update(name, sequence, files=None, floor=1, board=None, secret=SECRET):
    """Makes an update and returns its bytes."""
    path = os.path.join(FOLDER, name + ".update")
    subprocess.run(["build/bundle", "sign", "--secret", secret, "--program", system(name, files),
                    "--out", path, "--version", name, "--sequence", str(sequence), "--floor",
                    str(floor)] + (["--board", board] if board else []), cwd=ROOT, check=True)
    with open(path, "rb") as f:
        return f.read()


# ---- the box -----------------------------------------------------------------------------------


def fresh_disk():
    os.makedirs(FOLDER, exist_ok=True)
    subprocess.run(["cp", "--sparse=always", os.path.join(ROOT, "build", "v4box.img"), DISK],
                   check=True)
    forget_variables()


def forget_variables():
    path = os.path.join(BOX, "firmware")
    if os.path.exists(path):
        os.unlink(path)


def start(*arguments):
    return Box("update", "--disk", DISK, *arguments)


def slots(box):
    return box.status()["data"]["init"]["slots"]


def wait_confirmed(box, slot):
    """Waits for the gate; the box must be in this slot."""
    box.wait_healthy()
    end = time.monotonic() + RESET_S
    while not slots(box)["confirmed"]:
        require(time.monotonic() < end, "not confirmed: %r" % box.ssh("log 12")[1])
        time.sleep(1)
    found = slots(box)
    equal((found["running"], found["good"]), (slot, slot), "running and good slot")
    tap.note("slot %s confirmed %.0f s after power-on" % (slot, box.since_start()))


def wait_kept(box):
    """Until the fallback program and the floor are what they should be."""
    end = time.monotonic() + 60
    while "init: keep: stopped" not in box.ssh("log 2000")[1]:
        require(time.monotonic() < end, "`updater keep` does not end")
        time.sleep(1)


def send(box, data):
    return box.ssh("update", stdin=data, seconds=180)


def send_good(box, data, slot):
    """Sends an update that must be taken; the machine resets."""
    started = time.monotonic()
    code, out, err = send(box, data)
    require(code == 0 and "in slot %s" % slot in out, "update: exit %d, %r %r" % (code, out, err))
    tap.note("the update was written after %.1f s" % (time.monotonic() - started))
    equal(box.wait_end(), 0, "QEMU's exit code")


def outcome_is(box, words):
    out = box.ssh("update status")[1]
    require("last update: " + words in out, "update status says %r" % out)


def roll_back(box, words):
    """Goes back to the other slot; the machine resets."""
    code, out, err = box.ssh("rollback")
    require(code == 0 and words in out, "rollback: %d %r %r" % (code, out, err))
    equal(box.wait_end(), 0, "QEMU's exit code")


def take_good(box, words, slot):
    """The same from elsewhere: a command that says where from."""
    started = time.monotonic()
    code, out, err = box.ssh(words, seconds=300)
    require(code == 0 and "in slot %s" % slot in out, "%s: exit %d, %r %r" % (words, code, out, err))
    tap.note("%s was written after %.1f s" % (words, time.monotonic() - started))
    equal(box.wait_end(), 0, "QEMU's exit code")


def make_stick(name, data, partitions):
    """A USB stick with an update on it, with a partition table or without one."""
    path, fat = os.path.join(FOLDER, name), os.path.join(FOLDER, name + ".fat")
    for file in (path, fat):
        with open(file, "wb") as f:
            f.truncate(48 << 20 if file == fat else (49 << 20) if partitions else 48 << 20)
    equal(tool("mkfs.vfat", fat).returncode, 0, "exit code of mkfs.vfat")
    with open(os.path.join(FOLDER, "v4box.update"), "wb") as f:
        f.write(data)
    equal(tool("mcopy", "-i", fat, f.name, "::/v4box.update").returncode, 0, "exit code of mcopy")
    if partitions:
        equal(tool("sfdisk", "-q", path, stdin="label: dos\nstart=2048, type=c\n").returncode, 0, "sfdisk")
    with open(fat, "rb") as f, open(path, "r+b") as out:
        out.seek(1 << 20 if partitions else 0)
        out.write(f.read())
    return path


def esp_file(path):
    """The SHA-256 of a file of the EFI partition, from outside."""
    offset = int(re.search(r'start= *(\d+),.*name="esp"', tool("sfdisk", "-d", DISK).stdout).group(1))
    done = subprocess.run(["mcopy", "-i", "%s@@%d" % (DISK, offset * 512), "::" + path, "-"],
                          capture_output=True, timeout=60, check=True)
    return hashlib.sha256(done.stdout).hexdigest()


# ---- in `make test`: one that is good, one that is not --------------------------------------------


def refuses(box):
    """Whatever is wrong with an update: refused with the reason, and the other slot as before."""
    other = os.path.join(FOLDER, "other.key")
    subprocess.run(["build/bundle", "keygen", other, other + ".pub"], cwd=ROOT, check=True)
    good = update("good", 3)
    middle = len(good) // 2
    cases = [
        ("no update", b"hello\n", "no update"),
        ("nothing", b"", "no update"),
        ("a flipped bit in the header", good[:130] + bytes([good[130] ^ 1]) + good[131:], "signature"),
        ("a flipped bit in the program", good[:middle] + bytes([good[middle] ^ 8]) + good[middle + 1:],
         "SHA-256"),
        ("a cut", good[:middle], "cut off"),
        ("a byte more", good + b"x", "behind the program"),
        ("another key", update("stranger", 3, secret=other), "signature"),
        ("another board", update("board", 3, board="v4box-arm64"), "another board"),
    ]
    wait_kept(box)  # which raises the floor
    before = box.ssh("update status")[1]
    for what, data, reason in cases:
        code, out, err = send(box, data)
        require(code == 1 and reason in out and "nothing was written" in out,
                "%s: exit %d, %r %r" % (what, code, out, err))
    equal(box.ssh("update status")[1], before, "update status")
    equal(esp_file("/EFI/v4box/b.efi"), esp_file("/EFI/v4box/a.efi"), "slot b from outside")
    out = box.serial.command("update")
    require("sent from another machine" in out, "on the console: %r" % out)
    code, out, _ = box.ssh("slot-try b 1")
    require(code == 1 and "unknown command" in out, "slot-try is reachable: %r" % out)


def refuses_from_elsewhere(box):
    for words, reason in [("update usb", "SHA-256"),
                          ("update fetch http://10.0.2.100/other", "status is not 200"),
                          ("update fetch http://10.0.2.100:81/update", "can not be reached"),
                          ("update fetch https://10.0.2.100/update", "signature"),
                          ("update fetch http://box7/update", "no address in numbers")]:
        code, out, err = box.ssh(words, seconds=300)
        require(code == 1 and reason in out, "%s: exit %d, %r %r" % (words, code, out, err))
    equal(esp_file("/EFI/v4box/b.efi"), esp_file("/EFI/v4box/a.efi"), "slot b from outside")


def is_confirmed(box):
    wait_confirmed(box, "b")
    outcome_is(box, "good is good")
    wait_kept(box)
    out = box.ssh("update status")[1]
    require("floor 2\n" in out, "the floor: %r" % out)
    require("published" in out, "no word about the published key: %r" % out)


def below_the_floor(box):
    for sequence, reason in [(1, "below the floor"), (2, "older than what runs")]:
        code, out, _ = send(box, update("old", sequence))
        require(code == 1 and reason in out, "sequence %d after 3: %r" % (sequence, out))
    code, out, _ = box.ssh("rollback")
    require(code == 1 and "below the floor" in out, "a rollback below the floor: %r" % out)


def falls_back(box, name, wait_s=RESET_S):
    """A trial that ends by itself; what it was is seen by the next box."""
    started = time.monotonic()
    equal(box.wait_end(wait_s), 0, "QEMU's exit code")
    require("starting Boot" in box.serial.text, "the firmware said %r" % box.serial.text[:300])
    tap.note("%s: reset %.0f s after power-on" % (name, time.monotonic() - started))


def is_back(box, slot, words):
    wait_confirmed(box, slot)
    outcome_is(box, words)


def quick():
    fresh_disk()
    good = update("good", 3, floor=2)
    bad = good[:-1000] + bytes([good[-1000] ^ 1]) + good[-999:]
    web = "/usr/bin/python3 tests/boot/web.py " + os.path.join(FOLDER, "good.update")
    with start("--web", web, "--stick", make_stick("bad-stick", bad, False)) as box:
        if not tap.check("a new disk is confirmed in slot a", wait_confirmed, box, "a"):
            return
        tap.check("bad updates are refused, and nothing is written", refuses, box)
        tap.check("so are those of a USB stick and of a server", refuses_from_elsewhere, box)
        # refuses() made a file of this name, too.
        update("good", 3, floor=2)
        tap.check("a good update is fetched from a server", take_good, box,
                  "update fetch http://10.0.2.100/update", "b")
    panics = make_stick("stick", update("panics", 4, sabotage("panic")), True)
    with start("--stick", panics) as box:
        tap.check("it runs in slot b, is confirmed, and raises the floor", is_confirmed, box)
        tap.check("older ones are refused, and below the floor there is no rollback either", below_the_floor, box)
        tap.check("an update that panics is taken from a USB stick", take_good, box, "update usb", "a")
    with start() as box:
        tap.check("it panics and the machine resets", falls_back, box, "panics")
        tap.check("the kernel said so", require, "sysrq" in box.serial.text,
                  box.serial.text[-500:])
    with start() as box:
        tap.check("slot b is back, and says why", is_back, box, "b",
                  "panics fell back: it did not come up")


# ---- in `make test-update` -----------------------------------------------------------------------


def trial(name, files, words, reason):
    """One bad update on a box in slot a."""
    fresh_disk()
    with start() as box:
        tap.check(name + ": slot a is confirmed", wait_confirmed, box, "a")
        tap.check(name + ": the update is taken", send_good, box, update(name, 2, files), "b")
    with start() as box:
        tap.check(name + ": " + words, falls_back, box, name)
    with start() as box:
        tap.check(name + ": slot a is back, and says why", is_back, box, "a",
                  "%s fell back: %s" % (name, reason))


def dead():
    trial("dead", {"bin/engine": "build/console"}, "an engine that crashes ends in a restart",
          "the engine crashes")


def front():
    trial("front", {"bin/haproxy": "build/console"}, "a front that crashes ends in a restart",
          "the front crashes")


def hang():
    trial("hang", sabotage("hang"), "the watchdog resets a machine that hangs",
          "it did not come up")


def no_gate(box):
    box.serial.expect(re.escape(PROMPT), 240)


def cut():
    """A trial that the power leaves."""
    fresh_disk()
    with start() as box:
        tap.check("cut: slot a is confirmed", wait_confirmed, box, "a")
        tap.check("cut: the update is taken", send_good, box, update("cut", 2), "b")
    with start() as box:
        tap.check("cut: the trial has begun, and the power goes", no_gate, box)
    with start() as box:
        tap.check("cut: slot a is back", is_back, box, "a", "cut fell back: it did not come up")
        tap.check("cut: rollback goes to the other slot all the same", roll_back, box, "back to cut in slot b")
    with start() as box:
        tap.check("cut: which is confirmed this time", wait_confirmed, box, "b")
        tap.check("cut: its fallback is renewed", wait_kept, box)
    forget_variables()
    with start() as box:
        tap.check("cut: without the firmware's variables the same slot runs", wait_confirmed, box, "b")


def freezes(box):
    wait_confirmed(box, "b")
    started = time.monotonic()
    equal(box.wait_end(RESET_S), 0, "QEMU's exit code")
    require("reboot:" not in box.serial.text, "the kernel restarted the machine, not the watchdog")
    tap.note("reset %.0f s after the confirmation" % (time.monotonic() - started))


def freeze():
    """An engine that stops answering after its start was found good."""
    fresh_disk()
    with start() as box:
        tap.check("freeze: slot a is confirmed", wait_confirmed, box, "a")
        tap.check("freeze: the update is taken", send_good, box,
                  update("freeze", 2, sabotage("freeze")), "b")
    with start() as box:
        tap.check("freeze: the watchdog resets the machine", freezes, box)


def is_in_rescue(box):
    end = time.monotonic() + 120
    while box.ssh("status")[0] not in (0, 1):
        require(time.monotonic() < end, "no SSH in rescue")
        time.sleep(1)
    found = box.ssh("status")[1]
    require("RESCUE" in found and not re.search(r"^engine ", found, re.M), "status says %r" % found)
    require("RESCUE" in box.ssh("update status")[1], "update status says nothing of it")
    require("RESCUE" in box.serial.text, "the serial line says nothing of it")
    box.ssh("reboot")
    equal(box.wait_end(), 0, "QEMU's exit code")


def tries_again(box):
    box.serial.expect(r"start 1 without a good end", 240)


def rescue():
    """A box whose model is gone: three starts, then it stays up and waits."""
    fresh_disk()
    done = tool("sfdisk", "-d", DISK).stdout
    offset = int(re.search(r'start= *(\d+),.*name="models"', done).group(1)) * 512
    with open(DISK, "r+b") as disk:
        disk.seek(offset + 1024)
        disk.write(b"\xa5" * 1024)
    for i in range(3):
        with start() as box:
            tap.check("rescue: start %d ends by itself" % (i + 1), falls_back, box, "no model")
    with start() as box:
        tap.check("rescue: the fourth has SSH and a console, but no engine", is_in_rescue, box)
    with start() as box:
        tap.check("rescue: `reboot` tries again", tries_again, box)


def survives(chance, data, seen):
    with start() as box:
        box.wait_healthy()
        found = slots(box)
        status = box.ssh("update status")[1]
        runs = re.search(r"^slot (.): (\S+), sequence \d+.*runs", status, re.M)
        require(runs is not None, "the running slot is not whole: %r" % status)
        equal(runs.group(1), found["running"], "the running slot")
        seen.add(found["running"])
        if found["running"] != found["good"]:
            return  # a trial: the power goes in the middle of it
        sender = threading.Thread(target=lambda: quietly(send, box, data), daemon=True)
        sender.start()
        sender.join(chance.uniform(0.5, 12))
    # Leaving the block kills QEMU at once: the power is gone.


def quietly(run, *arguments):
    try:
        run(*arguments)
    except (Failure, OSError):
        pass  # the box was killed under it, which is the point


def cuts():
    chance, seen = random.Random(SEED), set()
    fresh_disk()
    data = update("cuts", 2)
    tap.note("seed %d" % SEED)
    for i in range(CUTS):
        if not tap.check("cuts: start %d runs a whole slot" % (i + 1), survives, chance, data, seen):
            return
    with start() as box:
        tap.check("cuts: the last one is healthy", box.wait_healthy)
    tap.note("slots seen: %s" % " ".join(sorted(seen)))


# ---- Secure Boot --------------------------------------------------------------------------------


def signed_disk(keys):
    """A disk whose programs are signed with keys of our own, and firmware that has none yet."""
    fresh_disk()
    subprocess.run([os.path.join(ROOT, "tools", "secure.sh"), keys], check=True)
    folder = os.path.dirname(system("signed", {}, keys))
    subprocess.run(["tools/disk.sh", folder, SECRET], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    os.replace(os.path.join(folder, "v4box.img"), DISK)


def enrols(box, keys, other):
    wait_confirmed(box, "a")
    require("off, the firmware takes keys" in box.ssh("secure-boot")[1], "secure-boot")
    for what, path, reason in [("other keys", other, "not signed by this key"),
                               ("no keys", PUBLIC, "no enrolment")]:
        with open(path, "rb") as f:
            code, out, _ = box.ssh("secure-boot enrol", stdin=f.read())
        require(code == 1 and reason in out, "%s: exit %d, %r" % (what, code, out))
    with open(os.path.join(keys, "enrol"), "rb") as f:
        code, out, _ = box.ssh("secure-boot enrol", stdin=f.read())
    require(code == 0 and "has the keys" in out, "enrol: exit %d, %r" % (code, out))
    box.ssh("reboot")
    equal(box.wait_end(), 0, "QEMU's exit code")


def holds(box):
    wait_confirmed(box, "a")
    equal(box.ssh("secure-boot")[1], "Secure Boot: on\n", "secure-boot")


def refused_by_firmware(box):
    wait_confirmed(box, "a")
    require("Access Denied" in box.serial.text, "the firmware said %r" % box.serial.text[:600])
    outcome_is(box, "unsigned fell back")


def secure():
    """Keys of our own: what is signed starts, an update that is not falls back."""
    keys, other = os.path.join(FOLDER, "keys"), os.path.join(FOLDER, "other-keys")
    subprocess.run([os.path.join(ROOT, "tools", "secure.sh"), other], check=True)
    signed_disk(keys)
    with start("--secure") as box:
        if not tap.check("secure: the firmware takes our keys, and no others", enrols, box, keys,
                         os.path.join(other, "enrol")):
            return
    with start("--secure") as box:
        tap.check("secure: Secure Boot is on, and the signed system runs", holds, box)
        tap.check("secure: an update that the firmware will refuse is taken", send_good, box,
                  update("unsigned", 2), "b")
    with start("--secure") as box:
        tap.check("secure: the firmware refuses it, and slot a is back", refused_by_firmware, box)


BOOTS = {"quick": quick, "dead": dead, "front": front, "hang": hang, "cut": cut, "freeze": freeze,
         "rescue": rescue, "secure": secure, "cuts": cuts}

if __name__ == "__main__":
    chosen = sys.argv[2:] or ["quick"]
    for name in list(BOOTS) if chosen == ["all"] else chosen:
        began = time.monotonic()
        BOOTS[name]()
        tap.note("%s took %.0f s" % (name, time.monotonic() - began))
    tap.end()
