"""Boots the disk and its storage: what is kept, what is damaged, and what a power cut may not take.

  disk.py              the boots of `make test`
  disk.py NAME ...     only these, in this order: uefi, keep (and missing beside it), damaged, broken, cuts
  disk.py power, soak  20 or 50 power cuts, on the clock's seed

uefi starts from a fresh copy of the image; the others go on with the disk as they find it, which is a
fresh copy when they are asked for alone.
"""

import json
import os
import random
import re
import subprocess
import sys
import time

from boot import MOUNTS, wrong_mounts
from box import PROMPT, ROOT, Box, equal, require
from tap import Tap

tap = Tap()

IMAGE = os.path.join(ROOT, "build", "v4box.img")
FOLDER = os.path.join(ROOT, "build", "boot", "disk-file")
DISK = os.path.join(FOLDER, "disk.img")
MIB = 1 << 20
CUTS = 10
LONGER = {"power": 20, "soak": 50}  # not in `make test`
SEED = 4  # any: printed, so that a failure can be run again
INVENTED = "ds_AAAAAAAA_" + "A" * 32
KEYS_HELD = 40  # more than this and the next cut deletes; the box holds 256

SEALED = {"nosuid", "nodev", "noexec"}
DISK_MOUNTS = dict(MOUNTS, **{"/config": ("ext4", SEALED | {"data=journal"}),
                              "/models": ("ext4", SEALED | {"ro"}), "/log": ("ext4", SEALED)})


FIRMWARE_MOUNTS = dict(DISK_MOUNTS, **{"/sys/firmware/efi/efivars": ("efivarfs", SEALED)})


def fresh_disk():
    os.makedirs(FOLDER, exist_ok=True)
    subprocess.run(["cp", "--sparse=always", IMAGE, DISK], check=True)


# ---- the disk from outside -------------------------------------------------------------------------


def tool(*command, stdin=None):
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60,
                          env=dict(os.environ, PATH=path))


def extent(label, path):
    """Offset and size of a partition in bytes."""
    found = re.search(r'start= *(\d+), size= *(\d+),.*name="%s"' % label,
                      tool("sfdisk", "-d", path).stdout)
    return int(found.group(1)) * 512, int(found.group(2)) * 512


class Partition:
    """A partition as a file of its own, put back at the end of a `with`."""

    def __init__(self, label, disk=DISK):
        self.disk = disk
        self.offset, self.size = extent(label, disk)
        self.path = os.path.join(os.path.dirname(disk), label)

    def copy(self):
        with open(self.disk, "rb") as disk, open(self.path, "wb") as f:
            disk.seek(self.offset)
            f.write(disk.read(self.size))
        return self

    def __enter__(self):
        return self.copy()

    def __exit__(self, *_):
        with open(self.disk, "r+b") as disk, open(self.path, "rb") as f:
            disk.seek(self.offset)
            disk.write(f.read())

    def debugfs(self, *commands):
        done = tool("debugfs", "-w", "-f", "-", self.path, stdin="\n".join(commands) + "\n")
        equal(done.returncode, 0, "exit code of debugfs")
        return done.stdout

    def check(self):
        done = tool("e2fsck", "-fn", self.path)
        equal(done.returncode, 0, "exit code of e2fsck: " + done.stdout)


def overwrite(label, at, data):
    offset, _ = extent(label, DISK)
    with open(DISK, "r+b") as disk:
        disk.seek(offset + at)
        disk.write(data)


# ---- the box ---------------------------------------------------------------------------------------


def opens(box, key):
    return box.http("/v1/models", key=key)[0] == 200


def at_prompt(box):
    box.serial.expect(re.escape("; help lists the commands"), 240)
    box.serial.expect(re.escape(PROMPT))


def storage(box):
    return json.loads(box.serial.command("status --json").strip())["data"]["init"]["storage"]


def places(box):
    found = storage(box)
    return found["config"], found["models"]


def new_key(box, name):
    out = box.serial.command("keys create " + name)
    found = re.search(r"ds_[A-Za-z0-9]{8}_[A-Za-z0-9]{32}", out)
    require(found is not None, "keys create says %r" % out)
    return found.group(0)


def end(box, command, said):
    box.serial.type(command + "\r")
    box.serial.expect("type yes to do it: ")
    box.serial.type("yes\r")
    equal(box.wait_end(), 0, "QEMU's exit code")
    require(said in box.serial.text, "no `%s` from the kernel" % said)


kept = {}  # what one boot leaves for the next to find: keys, fingerprint


def fingerprint(box):
    """Of the SSH host key and of the certificate."""
    log = box.serial.command("log 2000")
    return (re.search(r"Fingerprint: (SHA256:\S+)", log).group(1),
            re.search(r"tls: certificate SHA-256 ([0-9a-f]{64})", log).group(1))


# ---- by the firmware -------------------------------------------------------------------------------


def starts(box):
    at_prompt(box)
    tap.note("console %.1f s after power-on, guest clock %s ms"
             % (box.since_start(), re.search(r"booted in (\d+) ms", box.serial.text).group(1)))
    require("FAILED" not in box.serial.text, "a boot step failed: " + box.serial.text)
    kept["code"] = re.search(r"claim code: (\S+)", box.serial.text).group(1)
    tap.note("API %.1f s after power-on" % box.wait_healthy())
    kept["first"] = new_key(box, "first")


def is_on_disk(box):
    equal(places(box), ("disk", "disk"), "places")
    mounts = json.loads(box.serial.command("status --json").strip())["data"]["init"]["mounts"]
    equal(wrong_mounts(mounts, FIRMWARE_MOUNTS), [], "mounts")
    require(wrong_mounts(mounts, MOUNTS) != [], "a fixture without the disk fits as well")


def chats(box):
    require(opens(box, kept["first"]), "the first key does not open the API")
    status, body = box.http("/v1/chat/completions", key=kept["first"], seconds=240, body={
        "model": "deepseek-v4-demo", "temperature": 0, "max_tokens": 8,
        "messages": [{"role": "user", "content": "Good day!"}]})
    equal(status, 200, "status of a chat")
    require(json.loads(body)["usage"]["completion_tokens"] > 0, "no token in " + body)


def sets_things(box):
    for line, answer in [("net static 10.0.2.15", "not one that"), ("net static 10.0.2.15/33", "not one"),
                         ("net confirm", "nothing is being tried"), ("net dhcp --try 0", "--try takes"),
                         ("net fixed", "net static ADDRESS"), ("settings hostname -x", "not one that"),
                         ("settings net.mode static", "by the command net"), ("settings x y", "no setting"),
                         ("settings metrics 9464", "not one that"), ("settings metrics open", "set"),
                         ("settings hostname kept", "set"), ("net static 10.0.2.15/24 10.0.2.2", "done")]:
        out = box.serial.command(line)
        require(answer in out, "%s says %r" % (line, out))
    box.wait_healthy()
    deadline = time.monotonic() + 20
    while not re.search(r"^network +stopped", box.serial.command("status"), re.M):
        require(time.monotonic() < deadline, "DHCP still runs")
        time.sleep(0.2)


def leaves_things(box):
    kept["second"] = new_key(box, "second")
    kept["fingerprint"] = fingerprint(box)
    end(box, "poweroff", "Power down")
    with Partition("config") as config:
        config.check()


def uefi():
    fresh_disk()
    with Box("disk-uefi", "--bare", "--disk", DISK) as box:
        if tap.check("uefi: the firmware starts the disk, the API answers", starts, box):
            tap.check("uefi: config and models are on the disk, sealed", is_on_disk, box)
            tap.check("uefi: the model of the disk chats", chats, box)
            tap.check("uefi: settings are checked, and a static address holds", sets_things, box)
            tap.check("uefi: poweroff leaves a sound file system", leaves_things, box)


# ---- what is kept ----------------------------------------------------------------------------------


def keeps(box):
    at_prompt(box)
    box.wait_healthy()
    require(opens(box, kept["first"]) and opens(box, kept["second"]), "a key is gone")
    require(not opens(box, INVENTED), "an invented key opens, too")
    equal(fingerprint(box), kept["fingerprint"], "the fingerprints of host key and certificate")
    code = re.search(r"claim code: (\S+)", box.serial.text).group(1)
    require(code != kept["code"], "two starts have the same claim code")


def comes_back(box):
    """A change that locks everybody out goes back by itself."""
    require(re.search(r"hostname +kept", box.serial.command("settings")), "the host name is gone")
    require("metrics on 0.0.0.0:9464" in box.serial.command("log 2000"), "the metrics are not open")
    out = box.serial.command("net")
    require(re.search(r"net.mode +static", out), "net says %r" % out)
    require("network" not in box.serial.command("status"), "DHCP runs")
    changes = box.serial.command("log changes")
    stored = box.serial.command("log stored 2000")
    require(stored.count("---- 20") >= 2 and "init: this start is good" in stored.split("---- 20")[1],
            "the log of the start before says %r" % stored[:2000])
    for what in ("serial admin: keys create first", "serial admin: settings hostname kept",
                 "serial admin: failed: net dhcp --try 0"):
        require(what in changes, "log changes of before says %r" % changes)
    box.serial.command("net static 10.9.9.9/24 --try 30")
    # The answer goes out before the address changes: over SSH there would be none after it.
    deadline = time.monotonic() + 20
    while box.http("/healthz", seconds=3)[0] != 0:
        require(time.monotonic() < deadline, "an address that is not the box's answers")
        time.sleep(0.2)
    require("goes back in" in box.serial.command("net"), "net does not say that it is tried")
    missing()  # until it goes back there is nothing to be seen here
    deadline = time.monotonic() + 90
    while box.http("/healthz", seconds=3)[0] != 200:
        require(time.monotonic() < deadline, "the box did not come back: " + box.serial.command("net"))
    box.serial.command("net dhcp --try 60")
    box.wait_healthy()
    require("done" in box.serial.command("net confirm"), "net confirm")
    require(re.search(r"net.mode +dhcp", box.serial.command("net")), "net after confirm")


def takes_ssh_keys(box):
    equal(box.ssh("status")[0], 255, "exit code of SSH without any key")
    with open(os.path.join(box.dir, "ssh_key.pub")) as f:
        public = f.read().split()
    require("not a public" in box.serial.command("ssh-keys add ssh-ed25519 AAAA anna"), "a bad key")
    box.serial.command("ssh-keys add %s %s anna" % (public[0], public[1]))
    deadline = time.monotonic() + 30
    while box.ssh("status")[0] != 0:
        require(time.monotonic() < deadline, "no SSH 30 s after its first key")
        time.sleep(0.5)
    require("anna" in box.serial.command("ssh-keys list"), "anna is not listed")
    box.serial.command("ssh-keys delete anna")
    equal(box.ssh("status")[0], 255, "exit code of SSH with a deleted key")
    box.serial.command("ssh-keys add %s %s anna" % (public[0], public[1]))


def keep():
    with Box("disk-keep", "--bare", "--data", DISK) as box:
        if tap.check("keep: keys and the SSH host key outlive a poweroff", keeps, box):
            tap.check("keep: so do the settings, and a lock-out goes back by itself", comes_back, box)
            tap.check("keep: SSH keys are added and deleted on the console", takes_ssh_keys, box)
            tap.check("keep: poweroff", end, box, "poweroff", "Power down")


# ---- damaged files, a full disk --------------------------------------------------------------------


def damage_files():
    bad, big = os.path.join(FOLDER, "bad"), os.path.join(FOLDER, "big")
    with open(bad, "wb") as f:
        f.write(b"\xff" * 300)
    with open(big, "wb") as f:
        f.write(b"x" * (64 * MIB))
    with Partition("config") as config:
        config.debugfs("rm /engine/keys", "write %s /engine/keys" % bad,
                       "set_inode_field /engine/keys uid 100", "rm /ssh_host_key",
                       "write %s /ssh_host_key" % bad, "rm /settings", "write %s /settings" % bad,
                       "rm /tls/certificate.pem", "write %s /tls/certificate.pem" % bad)
        owners = config.debugfs("stat /tls", "stat /tls/good.pem")
        equal(re.findall(r"Mode: +(\d+).*?User: +(\d+)", owners, re.S), [("0700", "101"), ("0600", "101")],
              "mode and owner of the folder and of the key")
        # Until nothing more fits: debugfs takes the reserve as well.
        config.debugfs("write %s /big" % big)
    with Partition("log") as log:
        log.debugfs("rm /current", "write %s /big" % big)


def mends(box):
    at_prompt(box)
    box.wait_healthy()
    require("claim code" not in box.serial.text, "a box with an owner has a claim code")
    notes = storage(box)["notes"]
    require("keys was damaged; the copy" in notes, "status says %r" % notes)
    require("ssh_host_key was damaged; the copy" in notes, "status says %r" % notes)
    require("settings was damaged; the copy" in notes, "status says %r" % notes)
    require(re.search(r"net.mode +static", box.serial.command("net")), "not the settings of the copy")
    require(opens(box, kept["first"]), "the first key is gone")
    equal(fingerprint(box), kept["fingerprint"], "the fingerprints of host key and certificate")
    log = box.serial.command("log 2000")
    require("tls: the copy of an earlier boot takes its place" in log, "no word of the certificate")
    require("keeper: /log: the log is not kept: No space left" in log, "no word of the full log: %r" % log[-2000:])
    equal(box.ssh("help")[0], 0, "SSH")


def tells_a_full_disk(box):
    out = box.serial.command("keys create third")
    require("No space left" in out and "ds_" not in out, "keys create on a full disk says %r" % out)
    require(opens(box, kept["first"]), "the keys are gone")
    end(box, "poweroff", "Power down")


# ---- broken partitions, and the reset --------------------------------------------------------------


def goes_on_with_defaults(box):
    at_prompt(box)
    found = storage(box)
    equal((found["config"], found["models"]), ("broken", "broken"), "places")
    require("factory-reset" in found["notes"], "status names no remedy: %r" % found["notes"])
    status = box.serial.command("status")
    require("config partition" in status and "models partition" in status, "status says %r" % status)
    log = ""
    deadline = time.monotonic() + 60
    while "engine: exit code" not in log:
        require(time.monotonic() < deadline, "no word about the missing model: %r" % log[-500:])
        log = box.serial.command("log 30")
        time.sleep(1)
    said = re.search(r"engine said: ([^\r\n]*)", box.serial.command("status"))
    require(said is not None and "/models/demo" in said.group(1), "status does not say why there is no engine")


def resets(box):
    box.serial.type("factory-reset\r")
    box.serial.expect("type yes to do it: ")
    box.serial.type("yes\r")
    box.serial.expect("to do it: factory-reset erase")
    box.serial.expect(re.escape(PROMPT))
    box.serial.type("factory-reset erase\r")
    box.serial.expect("type yes to do it: ")
    box.serial.type("no\r")
    box.serial.expect("not done")
    end(box, "factory-reset erase", "Restarting system")


def damaged():
    tap.check("damaged: files are destroyed and the disk is filled, from outside", damage_files)
    with Box("disk-keep", "--bare", "--data", DISK) as box:
        if tap.check("damaged: the copies of the last boot are back, and status says so", mends, box):
            tap.check("damaged: a full disk refuses a new key and keeps the old", tells_a_full_disk, box)


def broken():
    overwrite("config", 1024, b"\xa5" * 1024)
    overwrite("models", 1024, b"\xa5" * 1024)
    with Box("disk-broken", "--bare", "--data", DISK) as box:
        if tap.check("broken: boots with defaults, and says what is broken", goes_on_with_defaults, box):
            tap.check("broken: factory-reset asks for the word and a yes", resets, box)
    with Partition("log") as log:
        tap.check("broken: the reset made a sound file system for the log", log.check)
    with Partition("config") as config:
        tap.check("broken: the reset made a sound file system", config.check)
        with open(config.path, "rb") as f:
            tap.check("broken: and left nothing of the old one", require,
                      b"xxxxxxxx" not in f.read(), "old content is there")
        tap.check("broken: it is nobody's again", require, "admin" not in config.debugfs("ls /"), "keys are there")


def misses(box):
    at_prompt(box)
    equal(places(box), ("missing", "missing"), "places")
    require("no disk has" in box.serial.command("status"), "status does not say why")
    box.serial.type("factory-reset erase\r")
    box.serial.expect("type yes to do it: ")
    box.serial.type("yes\r")
    box.serial.expect("there is no disk")


def missing():
    with Box("disk-missing", "--bare", "--append", "v4box.storage=disk") as box:
        tap.check("missing: boots without its disk, and says so", misses, box)


# ---- power cuts ------------------------------------------------------------------------------------

KEY = re.compile(r"ds_([A-Za-z0-9]{8})_[A-Za-z0-9]{32}")


class Ledger:
    """Which keys must open the API and which must not; what was under way at a cut may be either."""

    def __init__(self):
        self.alive = []
        self.dead = []
        self.acknowledged = 0

    def check(self, box):
        lost = [key for key in self.alive if not opens(box, key)]
        equal(lost, [], "acknowledged keys that are gone, of %d" % len(self.alive))
        undead = [key for key in self.dead[-5:] if opens(box, key)]
        equal(undead, [], "deleted keys that open")
        require(not opens(box, INVENTED), "an invented key opens, too")


def write_until_cut(box, ledger, seconds):
    """Creates keys, deletes old ones when there are many; what the console said counts."""
    end = time.monotonic() + seconds
    deleting = len(ledger.alive) > KEYS_HELD
    while time.monotonic() < end:
        start = len(box.serial.text)
        if deleting and len(ledger.alive) > 5:
            victim = ledger.alive.pop(0)
            box.serial.type("keys delete %s\r" % KEY.match(victim).group(1))
        else:
            victim = None
            box.serial.type("keys create cut\r")
        while time.monotonic() < end and box.serial.text.find(PROMPT, start) < 0:
            time.sleep(0.005)
        said = box.serial.text[start:]
        if victim is None and KEY.search(said):
            ledger.alive.append(KEY.search(said).group(0))
            ledger.acknowledged += 1
        elif victim is not None and PROMPT in said:
            ledger.dead.append(victim)
            ledger.acknowledged += 1


def survives(ledger, chance):
    with Box("disk-cuts", "--bare", "--data", DISK) as box:
        at_prompt(box)
        box.wait_healthy()
        found = storage(box)
        equal((found["config"], found["notes"]), ("disk", ""), "config and notes after a cut")
        ledger.check(box)
        write_until_cut(box, ledger, chance.uniform(0.3, 3))
    # Leaving the block kills QEMU at once: the power is gone.


def cut_power(count, seed):
    chance, ledger = random.Random(seed), Ledger()
    fresh_disk()
    tap.note("seed %d" % seed)
    for i in range(count):
        if not tap.check("cuts: boot %d has every acknowledged key" % (i + 1), survives, ledger, chance):
            return
    tap.check("cuts: keys were written at all", require, ledger.acknowledged > 2 * count, "too few")
    tap.note("%d acknowledged changes, %d keys alive" % (ledger.acknowledged, len(ledger.alive)))


def cuts():
    cut_power(CUTS + 1, SEED)


BOOTS = {"uefi": uefi, "keep": keep, "damaged": damaged, "broken": broken, "cuts": cuts}

if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1] in LONGER:
        cut_power(LONGER[sys.argv[1]] + 1, int(time.time()))
        tap.end()
    for chosen in sys.argv[1:] or BOOTS:
        started = time.monotonic()
        BOOTS[chosen]()
        tap.note("boot %s took %.0f s" % (chosen, time.monotonic() - started))
    tap.end()
