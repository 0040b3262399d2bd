"""Boots the image in QEMU and drives it from outside: serial line, SSH, HTTP.

  boot.py              the boots of `make test`
  boot.py NAME ...     only these boots: normal, bare, keyboard, corrupt, crashes (and panic beside it)

What the box says about itself (status --json) is checked against fixtures here; each checker that
could pass by accident is itself checked with a changed fixture.
"""

import calendar
import json
import os
import re
import socket
import subprocess
import sys
import time

import front
import wire
from box import PROMPT, ROOT, Box, equal, require
from tap import Tap

tap = Tap()

# ---- fixtures ------------------------------------------------------------------------------------

# Mount point: type, options that must be there.  Exactly these mounts, no other.
MOUNTS = {
    "/": ("rootfs", {"ro"}),
    "/proc": ("proc", {"nosuid", "nodev", "noexec"}),
    "/sys": ("sysfs", {"nosuid", "nodev", "noexec"}),
    "/dev": ("devtmpfs", {"nosuid", "noexec"}),
    "/dev/pts": ("devpts", {"nosuid", "noexec"}),
    "/run": ("tmpfs", {"nosuid", "nodev", "noexec"}),
    "/tmp": ("tmpfs", {"nosuid", "nodev", "noexec"}),
    "/config": ("tmpfs", {"nosuid", "nodev", "noexec"}),
}

# Service: uid.  All of them without new privileges.
SERVICES = {"network": 0, "kernel": 102, "engine": 100, "front": 101, "tls": 101, "clock": 104, "heart": 0, "ssh": 0, "console": 0}

# The engine held at most 137 MiB here, most of it the model and the memory of its timelines.
ENGINE_MIB = 256

# Typed by somebody who wants out of the console.  Each is one refused command.
BREAKOUTS = [
    "sh", "/bin/sh", "-c sh", "/bin/engine version", "busybox sh", "udhcpc",
    "status; sh", "status && sh", "status | sh", "`sh`", "$(sh)", "!sh", "status > /tmp/x",
    "status\nsh", "status\rsh", "\x1b[A", "\x03", "status \xe4", "log 99999", "log -1", "log 1;sh",
    "keys create", "keys drop all", "scp -t /tmp", "env LD_PRELOAD=x", "x" * 5000,
    "1 2 3 4 5 6 7 8 9 10",
]


# ---- checks of a normal boot ---------------------------------------------------------------------


def boot_lines_are_good(box):
    box.serial.expect(re.escape("; help lists the commands"), 240)
    box.serial.expect(re.escape(PROMPT))
    tap.note("console after %.1f s, guest clock %s ms"
             % (box.since_start(), re.search(r"booted in (\d+) ms", box.serial.text).group(1)))
    require("FAILED" not in box.serial.text, "a boot step failed: " + box.serial.text)


def becomes_healthy(box):
    tap.note("healthy after %.1f s" % box.wait_healthy())
    front.begins_slow_ones(box)


def wrong_mounts(mounts, fixture):
    """What differs between a status answer's mounts and a fixture; an empty list when nothing does."""
    found = {m["path"]: (m["type"], set(m["options"].split(","))) for m in mounts}
    wrong = ["%s is mounted" % path for path in found.keys() - fixture.keys()]
    for path, (kind, options) in fixture.items():
        have_kind, have_options = found.get(path, ("nothing", set()))
        if have_kind != kind or not options <= have_options:
            wrong.append("%s: %s %s" % (path, have_kind, sorted(have_options)))
    return wrong


def mounts_are_sealed(box):
    mounts = box.status()["data"]["init"]["mounts"]
    equal(wrong_mounts(mounts, MOUNTS), [], "mounts")
    changed = dict(MOUNTS, **{"/tmp": ("tmpfs", {"ro"})})
    equal(len(wrong_mounts(mounts, changed)), 1, "differences from a changed fixture")
    fewer = {path: row for path, row in MOUNTS.items() if path != "/run"}
    equal(len(wrong_mounts(mounts, fewer)), 1, "differences from a shorter fixture")


def services_run_confined(box):
    data = box.status()["data"]
    services = {s["name"]: s for s in data["init"]["services"]}
    equal({name: s["uid"] for name, s in services.items()}, SERVICES, "services")
    for name, s in services.items():
        require(s["state"] in ("starting", "running"), "%s is %s" % (name, s["state"]))
        equal(s["restarts"], 0, name + " restarts")
        equal(s["no_new_privs"], 1, name + " no_new_privs")
    equal(data["engine"]["isa"], data["init"]["options"]["isa"], "isa")


def chats_left_it_healthy(box):
    data = box.status()["data"]
    services = {s["name"]: s for s in data["init"]["services"]}
    for name, s in services.items():
        require(s["state"] == "running" or name == "console", "%s is %s" % (name, s["state"]))
        require(s["restarts"] == 0 or name == "console", "%s restarted" % name)
    peak_mib = services["engine"]["rss_peak_kib"] / 1024
    require(peak_mib < ENGINE_MIB, "the engine took %.1f MiB" % peak_mib)
    tap.note("engine: isa %s, resident %.1f MiB at most; memory %d of %d MiB available" % (
        data["engine"]["isa"], peak_mib, data["init"]["memory"]["available_kib"] // 1024,
        data["init"]["memory"]["total_kib"] // 1024))


def serial_console_answers(box):
    out = box.serial.command("status")
    for word in ["v4box", "engine", "ssh", "network", "listening"]:
        require(word in out, "no %s in %r" % (word, out))
    require("poweroff" in box.serial.command("help"), "help names no poweroff")
    gpu = box.serial.command("gpu")
    require("no NVIDIA GPU on the PCI bus" in gpu and "no worker" in gpu, "gpu says %r" % gpu)
    require("unknown command" in box.serial.command("nonsense"), "nonsense was taken")


def serial_survives_garbage(box):
    box.serial.type(bytes(b for b in range(256) if b not in b"\x04\r\n"))
    box.serial.type(b"y" * 3000)
    box.serial.type(b"\x03")
    box.serial.expect(r"\^C")
    box.serial.expect(re.escape(PROMPT))
    require("v4box" in box.serial.command("status"), "no status after garbage")
    box.serial.type(b"\x04")  # leaves; the next session follows by itself
    box.serial.expect(re.escape("; help lists the commands"))
    box.serial.expect(re.escape(PROMPT))


def serial_asks_before_the_end(box):
    box.serial.type("poweroff\r")
    box.serial.expect("type yes to do it: ")
    box.serial.type("no\r")
    box.serial.expect("not done")
    box.serial.expect(re.escape(PROMPT))
    require("engine" in box.serial.command("status"), "no status after a refused poweroff")


def ssh_reaches_the_console(box):
    code, out, err = box.ssh("status")
    equal((code, err), (0, ""), "exit code and errors")
    require("engine" in out and "listening" in out, "status says %r" % out)
    code, out, _ = box.ssh("log", "5")
    equal((code, len(out.splitlines())), (0, 5), "exit code and lines of log 5")
    code, out = box.ssh_terminal(["status", "exit"])
    require(code == 0 and "listening" in out, "a terminal session: exit %d, %r" % (code, out))
    code, out, _ = box.ssh(stdin=b"status\nlog 1\n")
    require(code == 0 and PROMPT not in out and "engine" in out, "a piped session says %r" % out)


def ssh_refuses(box):
    other = os.path.join(box.dir, "other_key")
    if not os.path.exists(other):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", other], check=True)
    refused = [
        ("an unknown key", dict(key=other)),
        ("a password", dict(options=("-o", "PubkeyAuthentication=no", "-o",
                                     "PreferredAuthentications=password,keyboard-interactive"))),
        ("user root", dict(user="root")),
        ("user engine", dict(user="engine")),
    ]
    for what, how in refused:
        code, out, err = box.ssh("status", **how)
        require(code == 255 and out == "" and "Permission denied" in err,
                "%s: exit %d, %r %r" % (what, code, out, err))
    equal(box.ssh("help")[0], 0, "the right key, as control")


def ssh_forwards_nothing(box):
    code, out, err = box.ssh(options=("-W", "127.0.0.1:443"), stdin=b"GET / HTTP/1.0\r\n\r\n")
    require(code != 0 and "HTTP" not in out, "-W: exit %d, %r %r" % (code, out, err))
    code, _, err = box.ssh("help", options=("-R", "0:127.0.0.1:1", "-o", "ExitOnForwardFailure=yes"))
    require(code != 0, "-R: exit %d, %r" % (code, err))
    code, out, _ = box.ssh("sftp", options=("-s",))
    require(code != 0 and out == "", "sftp: exit %d, %r" % (code, out))


def roles_hold_over_ssh(box):
    """A viewer's key looks and changes nothing; what others change is recorded with their names."""
    keys = {}
    for role in ("viewer", "operator"):
        keys[role] = os.path.join(box.dir, role + "_key")
        if not os.path.exists(keys[role]):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", keys[role]], check=True)
        with open(keys[role] + ".pub") as f:
            kind, text = f.read().split()[:2]
        code, out, _ = box.ssh("ssh-keys add %s %s %s-1 %s" % (kind, text, role, role))
        equal(code, 0, "ssh-keys add says %r" % out)
    require(re.search(r"^viewer +ssh-ed25519 \S+ viewer-1$", box.ssh("ssh-keys list")[1], re.M), "no role listed")
    equal(box.ssh("status", key=keys["viewer"])[0], 0, "exit code of a viewer's status")
    for asked in ("keys create x", "poweroff", "as admin x", "ssh-keys delete developer", "change a b c"):
        require("role" in box.ssh(asked, key=keys["viewer"])[1] or
                "unknown command" in box.ssh(asked, key=keys["viewer"])[1], "a viewer may " + asked)
    code, out, _ = box.ssh("keys create by-operator", key=keys["operator"])
    equal(code, 0, "exit code of an operator's keys create")
    code, _, _ = box.ssh("net dhcp", key=keys["operator"])
    equal(code, 1, "exit code of an operator's net dhcp")
    equal(box.ssh("keys delete " + re.search(r"ds_(\w{8})_", out).group(1), key=keys["operator"])[0], 0, "keys delete")
    log = box.ssh("log changes", key=keys["viewer"])[1]
    for who, what in [("ssh admin", "ssh-keys add ssh-ed25519 \\S+ viewer-1 viewer"),
                      ("operator-1 operator", "keys create by-operator")]:
        require(re.search(r"^20\d\d-\S+Z %s: %s$" % (who, what), log, re.M), "log changes says %r" % log)
    require("ds_" not in log and "viewer-1 viewer:" not in log, "log changes says %r" % log)
    for role in keys:
        equal(box.ssh("ssh-keys delete %s-1" % role)[0], 0, "ssh-keys delete")
    equal(box.ssh("status", key=keys["viewer"])[0], 255, "exit code with a deleted key")


def there_is_no_shell(box):
    before = box.status()["data"]["init"]
    for text in BREAKOUTS:
        argument = text.encode("latin-1")
        code, out, err = box.ssh(argument)
        require(code == 1, "%r: exit %d, %r %r" % (text[:40], code, out[:200], err[:200]))
        require("v4box" not in out and "\x1b" not in out, "%r printed %r" % (text[:40], out[:200]))
    after = box.status()["data"]["init"]
    pids = [{s["name"]: s["pid"] for s in data["services"] if s["name"] != "console"}
            for data in (before, after)]
    equal(pids[1], pids[0], "processes after all attempts")


def keys_open_and_close_the_api(box):
    equal(box.http("/v1/models")[0], 401, "without a key")
    equal(box.http("/v1/models", key="ds_AAAAAAAA_" + "A" * 32)[0], 401, "with an invented key")
    equal(box.http("/v1/models", key=box.read("api_key"))[0], 200, "with the site's key")
    code, out, _ = box.ssh("keys create boot-test")
    equal(code, 0, "keys create")
    secret = re.search(r"ds_([A-Za-z0-9]{8})_[A-Za-z0-9]{32}", out)
    require(secret is not None, "no key in %r" % out)
    equal(box.http("/v1/models", key=secret.group(0))[0], 200, "with the new key")
    listed = box.ssh("keys list")[1]
    require("boot-test" in listed and secret.group(0) not in listed, "keys list says %r" % listed)
    require("self-test" not in listed, "the key of the self-test is kept: %r" % listed)
    require("heart: self-test passed" in box.ssh("log 2000")[1], "no self-test in the log")
    equal(box.ssh("keys delete " + secret.group(1))[0], 0, "keys delete")
    equal(box.http("/v1/models", key=secret.group(0))[0], 401, "with the deleted key")
    equal(box.ssh("keys delete " + secret.group(1))[0], 1, "keys delete again")


def metrics_are_for_operators(box):
    """The page comes over SSH; nothing listens for scrapers that come over the network."""
    code, out, _ = box.ssh("metrics")
    equal(code, 0, "exit code of metrics")
    answers = re.findall(r"^vllm:request_success_total\{.*\} (\d+)$", out, re.M)
    require(sum(map(int, answers)) > 0, "after a chat metrics says %r" % out[:2000])
    require("metrics on unix:/run/v4box/metrics.sock" in box.ssh("log 2000")[1], "another listener")
    equal(box.http("/metrics")[0], 404, "/metrics of the chat API")


# What the box may listen on, as it says itself and as it looks from outside.
OPEN = {"tcp 0.0.0.0:22", "tcp6 [::]:22", "tcp 0.0.0.0:443"}
CLOSED = [1, 21, 23, 25, 53, 80, 111, 123, 514, 2222, 5000, 8000, 8080, 8443, 8888, 9090, 9464]


def is_open(box, port, host_port):
    """Whether the guest takes a connection; QEMU does in any case, and ends it when the guest does not."""
    box.monitor("hostfwd_add net tcp:127.0.0.1:%d-:%d" % (host_port, port))
    end = time.monotonic() + 20  # the monitor answers before it has done it
    while True:
        try:
            s = socket.create_connection(("127.0.0.1", host_port), 60)
            break
        except ConnectionRefusedError:
            require(time.monotonic() < end, "QEMU does not forward port %d" % host_port)
            time.sleep(0.1)
    with s:
        s.settimeout(10)
        try:
            return s.recv(1) != b""
        except TimeoutError:
            return True
        except OSError:
            return False


def only_named_ports_are_open(box):
    equal(set(box.status()["data"]["init"]["open"]), OPEN, "what it says to be open")
    with socket.create_server(("127.0.0.1", 0)) as free:
        host_port = free.getsockname()[1]
    found = [port for i, port in enumerate(CLOSED + [22]) if is_open(box, port, host_port + i)]
    equal(found, [22], "open ports, with that of SSH as control")


def the_kernel_is_heard(box):
    log = box.ssh("log 2000")[1]
    require(re.search(r"kernel: Linux version \d", log), "no word of the kernel: %r" % log[:500])


def the_log_has_no_content(box):
    """After conversations: neither a planted word nor a key stands in the log."""
    out = box.ssh("log 2000")[1]
    require("engine:" in out and "init:" in out, "the log says %r" % out[:200])
    for secret in ["cellar", "scooter", box.read("api_key"), box.read("api_key")[12:]]:
        require(secret not in out, "the log holds content")


def wait_said(box, command, pattern, seconds=60):
    """Asks on the serial line, which needs no handshake, until the answer has the pattern."""
    end = time.monotonic() + seconds
    while not re.search(pattern, box.serial.command(command), re.M):
        require(time.monotonic() < end, "%s does not say /%s/: %r" % (command, pattern, box.serial.command(command)))
        time.sleep(0.5)


def clock_is_told_and_set(box):
    """There is no server to reach here: the box says so, and takes an operator's word."""
    for line, answer in [("time", "no time server"), ("time set 1970-01-01T00:00:00Z", "in UTC"),
                         ("time set 2030-02-30T00:00:00Z", "in UTC"), ("time set now", "in UTC"),
                         ("time set 2030-01-01T00:00:00Z", "2030-01-01T00:00:0"),
                         ("settings time.server pool.example", "not one that"),
                         ("settings time.server 10.0.2.2", "set")]:
        out = box.serial.command(line)
        require(answer in out, "%s says %r" % (line, out))
    wait_said(box, "time", r"^trouble: \w")
    box.serial.command("settings time.server -")
    wait_said(box, "time", "no time server")


def gpus_are_shared_out(box):
    """There is none here: what takes some is refused, with what to do, and what holds is as before."""
    for line, answer in [("settings gpus 3x4", "not one that"),
                         ("settings gpus 2x4", "gpus 2x4 takes 8 GPUs, and 0 are on the PCI bus (see: gpu); choose fewer, or auto")]:
        out = box.serial.command(line)
        require(answer in out, "%s says %r" % (line, out))
    require(re.search(r"^gpus +auto ", box.serial.command("settings"), re.M), "another layout of GPUs is kept")


def log_is_sent_away(box):
    """Nobody takes it here; what is sent, and how, tests/console/test_remote.py shows."""
    require("not one that" in box.serial.command("settings log.remote 10.0.2.2"), "a target without a port was taken")
    box.serial.command("settings log.remote tcp:10.0.2.2:9")
    wait_said(box, "log 40", r"remote: tcp:10\.0\.2\.2:9 is not reached: ")
    box.serial.command("settings log.remote -")
    wait_said(box, "status", "^remote +stopped")


def support_tells_no_secret(box):
    """A secret typed where none belongs stands in the log of changes, and not in what goes to others."""
    planted = "ds_Ab3dEf9h_0123456789ABCDEFGHIJKLMNOPQRSTuv"
    box.serial.command("keys delete " + planted)
    require(planted in box.serial.command("log changes"), "the control: it was not recorded")
    code, out, err = box.ssh("support", seconds=240)
    equal((code, err), (0, ""), "exit code and errors")
    for section in ("status", "time", "keys list", "metrics", "log changes 200", "log 2000"):
        require("==== %s\n" % section in out, "no %s in the bundle" % section)
    require("heart: self-test passed" in out and "worker " in out and "audit " in out, "the bundle says %r" % out)
    for secret in (planted[12:], box.read("api_key")[12:], "PRIVATE KEY", "cellar"):
        require(secret not in out, "the bundle holds a secret")
    tap.note("the support bundle has %d bytes" % len(out))


def poweroff_ends_it(box):
    box.serial.type("poweroff\r")
    box.serial.expect("type yes to do it: ")
    started = time.monotonic()
    box.serial.type("yes\r")
    equal(box.wait_end(), 0, "QEMU's exit code")
    require("Power down" in box.serial.text, "no `Power down` from the kernel")
    tap.note("poweroff took %.1f s" % (time.monotonic() - started))


def real_client(box):
    """The chat through the real OpenAI client, the same tests as on the host; each is passed on."""
    started = time.monotonic()
    pem, _ = front.shown_fingerprint(box)
    with open(os.path.join(box.dir, "trusted.pem"), "w") as f:
        f.write(pem)
    tap.relay("client: ", ["env", "NODE_EXTRA_CA_CERTS=" + f.name, "tests/api/run.sh", "--url",
                           box.read("url"), "--key", box.read("api_key"), "--smoke"], 400, ROOT)
    tap.note("the client's tests took %.1f s" % (time.monotonic() - started))


def first_token(box):
    """Time to the first token and between tokens, of one short streamed answer."""
    body = {"model": "deepseek-v4-demo", "stream": True, "temperature": 0, "max_tokens": 12,
            "messages": [{"role": "user", "content": "Good day!"}]}
    path = os.path.join(box.dir, "body.json")
    with open(path, "w") as f:
        json.dump(body, f)
    started, times = time.monotonic(), []
    argv = ["curl", "-skN", "--max-time", "240", box.read("url") + "/v1/chat/completions", "-H",
            "Authorization: Bearer " + box.read("api_key"), "-H", "Content-Type: application/json",
            "-d", "@" + path]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as curl:
        for line in curl.stdout:
            if line.startswith("data: {") and '"content":"' in line and '"content":""' not in line:
                times.append(time.monotonic() - started)
    equal(curl.returncode, 0, "curl's exit code")
    require(len(times) >= 2, "%d pieces of content" % len(times))
    tap.note("first token after %.1f s, then %.2f s a token (%.2f tokens/s)" % (
        times[0], (times[-1] - times[0]) / (len(times) - 1),
        (len(times) - 1) / (times[-1] - times[0])))


def normal():
    with Box("normal") as box:
        if not tap.check("serial: the boot has no failed step", boot_lines_are_good, box):
            return
        if not tap.check("http: /healthz answers", becomes_healthy, box):
            return
        for name, check in [
            ("mounts: sealed as the fixture says", mounts_are_sealed),
            ("services: right users, no new privileges, no restart", services_run_confined),
            ("serial: status, help, nonsense", serial_console_answers),
            ("serial: garbage and Ctrl-D", serial_survives_garbage),
            ("ssh: command, terminal and pipe reach the console", ssh_reaches_the_console),
            ("ssh: unknown key, password, other users refused", ssh_refuses),
            ("ssh: no forwarding, no sftp", ssh_forwards_nothing),
            ("ssh: no way to a shell", there_is_no_shell),
            ("ssh: roles hold, and changes are recorded", roles_hold_over_ssh),
            ("tls: the told certificate, 1.3, h2 and 1.1", front.answers),
            ("tls: 1.2 and large bodies refused", front.refuses),
            ("tls: one address holds 32 connections at most", front.bounds_an_address),
            ("tls: another certificate, without dropping streams", front.certificate_is_changed),
            ("keys: create, use, list, delete", keys_open_and_close_the_api),
            ("chat: a streamed answer", first_token),
            ("chat: the real client's tests ran", real_client),
            ("tls: a head that comes a byte at a time is ended", front.ends_slow_heads),
            ("tls: a body that comes a byte at a time is ended", front.ends_slow_bodies),
            ("tls: bad keys are throttled by the true address", front.names_its_clients),
            ("services: nothing restarted, memory bounded", chats_left_it_healthy),
            ("metrics: over SSH alone", metrics_are_for_operators),
            ("ports: only those of TLS and SSH are open", only_named_ports_are_open),
            ("log: what the kernel says is in it", the_kernel_is_heard),
            ("log: no content, no keys", the_log_has_no_content),
            ("gpus: what there are too few GPUs for is refused", gpus_are_shared_out),
            ("time: told, set, and without a server", clock_is_told_and_set),
            ("log: to a collector that is away", log_is_sent_away),
            ("support: a bundle without secrets", support_tells_no_secret),
            ("serial: poweroff asks first", serial_asks_before_the_end),
            ("serial: poweroff ends the machine", poweroff_ends_it),
        ]:
            tap.check(name, check, box)


# ---- a box that nobody gave anything ---------------------------------------------------------------


def claim_code(box):
    """The code as the serial line shows it, and the box at its prompt behind it."""
    code = box.serial.expect(r"claim code: (\w{4}-\w{4}-\w{4})\r", 240).group(1)
    box.serial.expect(re.escape(PROMPT), 240)
    return code


def claim(box, *words):
    """What `ssh claim@BOX` answers: (exit code, output).  It is a login without a key."""
    code, out, err = box.ssh(*words, key="/dev/null", user="claim")
    return code, out + err


def nobody_is_served(box):
    """Before the claim the API is closed, and the only login is that of a claim, with the code."""
    box.code = claim_code(box)
    box.serial.command("settings time.server " + wire.ADDRESS)
    box.wait_healthy()
    equal(box.http("/v1/models")[0], 401, "without a key")
    require("nobody's yet" in box.serial.command("status"), "status does not say that it is nobody's")
    equal(box.ssh("status")[:2], (255, ""), "a login as admin")
    equal(claim(box, "status")[0], 2, "exit code of another command")
    require("ssh claim@BOX CODE" in claim(box)[1], "a login without words is told nothing")
    code, out, _ = box.ssh(options=("-W", "127.0.0.1:443"), user="claim", key="/dev/null")
    require(code != 0 and out == "", "-W: exit %d, %r" % (code, out))


def wrong_claims_are_refused(box):
    public = box.read("ssh_key.pub").split()
    code, out = claim(box, "0000-0000-0000", *public[:2], "anna")
    require(code == 1 and "not the code" in out, "a wrong code hears %r" % out)
    code, out = claim(box, box.code, "ssh-ed25519", "AAAA", "anna")
    require(code == 1 and "not a public" in out, "the code with a key that is none: %d %r" % (code, out))


def the_code_claims_once(box):
    public = box.read("ssh_key.pub").split()
    equal(claim(box, box.code.lower(), *public[:2], "anna"), (0, "the box is yours\n"), "the claim")
    end = time.monotonic() + 60
    while box.ssh("status")[0] != 0:
        require(time.monotonic() < end, "no SSH a minute after the claim")
        time.sleep(1)
    other = claim(box, box.code, *public[:2], "otto")
    require(other[0] == 255 and "Permission denied" in other[1], "a second claim: %r" % (other,))
    require(re.search(r"^admin +ssh-ed25519 \S+ anna\r?$", box.serial.command("ssh-keys list"), re.M), "anna is no admin")
    require("anna admin: claimed the box" in box.serial.command("log changes"), "it is not recorded")
    require("has been claimed" in box.serial.command("claim"), "claim says something else")
    key = re.search(r"ds_\w{8}_\w{32}", box.ssh("keys create first")[1]).group(0)
    equal(box.http("/v1/models", key=key)[0], 200, "with the new owner's API key")


def the_code_is_nowhere_else(box):
    log = "".join(box.serial.command(c) for c in ("log 2000", "log changes", "status --json"))
    for form in (box.code, box.code.replace("-", "")):
        require(form.lower() not in log.lower(), "the log has the code")
    equal(box.serial.text.count(box.code), 1, "times the code was shown")
    require("a claim with a wrong code" in log and "claimed by anna" in log, "the log says %r" % log)


# What a time server says to a box whose clock is a year behind; it lies until a test lets it be honest.
YEAR_S = 365 * 86400
LIE_S = 10 * YEAR_S


class Oracle:
    def __init__(self):
        self.honest = False

    def answers(self, question):
        now, cookie = time.time(), question[40:48]

        def packet(shift, first=0x24, stratum=2, origin=cookie):
            moment = wire.stamp(now + shift)
            return bytes([first, stratum]) + bytes(22) + origin + moment + moment
        foreign = [b"", cookie, packet(LIE_S)[:47], packet(LIE_S, origin=bytes(8)), packet(LIE_S, first=0x23)]
        return foreign + [packet(0) if self.honest else packet(LIE_S, first=0xE4)]


def utc(box):
    """What the box holds for the time, in seconds since the epoch."""
    said = re.search(r"^(20\S+)Z", box.serial.command("time"), re.M).group(1)
    return calendar.timegm(time.strptime(said, "%Y-%m-%dT%H:%M:%S"))


def liars_set_no_clock(box):
    """The hardware's clock was a year behind, and every answer so far was wrong in some way."""
    wait_said(box, "time", "^trouble: the server does not know the time itself", 120)
    require(box.server.questions > 0, "nobody was asked")
    require(abs(utc(box) + YEAR_S - time.time()) < 60, "time says %r" % box.serial.command("time"))
    require("by the hardware's clock alone" in box.serial.command("time"), "it counts as right")


def a_server_sets_the_clock(box):
    box.oracle.honest = True
    box.serial.command("settings time.server -")  # so that it asks at once
    box.serial.command("settings time.server " + wire.ADDRESS)
    wait_said(box, "time", r"^last answer \d+ s ago: .* stratum 2", 240)
    wait_said(box, "log 60", r"clock: the clock was 3153\d{4}\.\d+ s wrong by 10\.0\.2\.77, and is set", 240)
    require(abs(utc(box) - time.time()) < 60, "time says %r" % box.serial.command("time"))
    require("alone" not in box.serial.command("time"), "it does not count as right")
    box.serial.command("settings hostname timed")
    changes = [line.split()[0] for line in box.serial.command("log changes").splitlines() if line.startswith("20")]
    years = [int(line[:4]) for line in changes]
    equal((years[0], years[-1]), (time.gmtime(time.time() - YEAR_S).tm_year, time.gmtime().tm_year), "years of changes")
    equal(sorted(changes), changes, "changes, by their times")
    dates = re.findall(r"^(?:from|to) (\d{4}-\d\d-\d\d)", box.ssh("tls status")[1], re.M)
    today = time.strftime("%Y-%m-%d", time.gmtime())
    require(len(dates) == 2 and dates[0] <= today < dates[1], "the certificate holds %r" % (dates,))


def reboot_resets(box):
    box.serial.type("reboot\r")
    box.serial.expect("type yes to do it: ")
    box.serial.type("yes\r")
    equal(box.wait_end(), 0, "QEMU's exit code (it ends at a reset)")
    require("Restarting system" in box.serial.text, "no `Restarting system` from the kernel")


def bare():
    path = os.path.join(ROOT, "build", "boot", "bare-wire")
    began = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() - YEAR_S))
    oracle = Oracle()
    with wire.TimeServer(path, oracle.answers) as server, \
            Box("bare", "--bare", "--wire", path, "--clock", began) as box:
        box.server, box.oracle = server, oracle
        if tap.check("bare: nobody is served, and nobody but a claim gets in", nobody_is_served, box):
            tap.check("bare: a wrong code is refused, and so is a wrong key", wrong_claims_are_refused, box)
            tap.check("bare: the code with a key claims the box, once", the_code_claims_once, box)
            tap.check("bare: the code stood on the serial line and nowhere else", the_code_is_nowhere_else, box)
            tap.check("time: a clock that is a year wrong, and a server that lies", liars_set_no_clock, box)
            tap.check("time: a server sets it; changes and certificate go by it", a_server_sets_the_clock, box)
            tap.check("bare: reboot resets the machine", reboot_resets, box)


def three_keys_reset(box):
    box.monitor("sendkey ctrl-alt-delete")
    equal(box.wait_end(), 0, "QEMU's exit code (it ends at a reset)")
    require("Restarting system" in box.serial.text, "no `Restarting system` from the kernel")


def key_stick(lines):
    """A USB stick with this authorized_keys."""
    folder = os.path.join(ROOT, "build", "boot")
    path, keys = os.path.join(folder, "key-stick"), os.path.join(folder, "key-stick-file")
    with open(path, "wb") as f:
        f.truncate(4 << 20)
    with open(keys, "w") as f:
        f.write(lines)
    for command in (["/usr/sbin/mkfs.vfat", path], ["mcopy", "-o", "-i", path, keys, "::/authorized_keys"]):
        subprocess.run(command, check=True, capture_output=True)
    return path


def stick_claims(box):
    claim_code(box)
    end = time.monotonic() + 240
    while box.ssh("status")[0] not in (0, 1):
        require(time.monotonic() < end, "no SSH with the key of the stick: " + box.serial.command("log 30"))
        time.sleep(1)
    listed = box.serial.command("ssh-keys list")
    require(re.search(r"^operator +ssh-ed25519 \S+ anna\r?$", listed, re.M) and listed.count("ssh-ed25519") == 1,
            "ssh-keys list says %r" % listed)
    require("usb admin: ssh-keys add anna operator" in box.serial.command("log changes"), "it is not recorded")
    require("line 3: not ssh-ed25519" in box.serial.command("log 200"), "the bad line is not named")
    require("has been claimed" in box.serial.command("claim"), "it can still be claimed")


def keyboard():
    box = Box("keyboard", "--bare")
    key = os.path.join(box.dir, "ssh_key")
    if not os.path.exists(key):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    kind, text = box.read("ssh_key.pub").split()[:2]
    box.arguments += ["--stick", key_stick("# keys\n%s %s anna operator\r\nssh-rsa\n" % (kind, text))]
    with box:
        tap.check("keyboard: keys of a USB stick claim the box", stick_claims, box)
        tap.check("keyboard: Ctrl-Alt-Del ends everything and resets", three_keys_reset, box)


def names_the_bad_file(box):
    box.serial.expect(re.escape(PROMPT), 240)
    end, status = time.monotonic() + 120, ""
    while "engine said: " not in status:
        require(time.monotonic() < end, "status does not say why there is no engine: %r" % status)
        status = box.serial.command("status")
        time.sleep(1)
    require(re.search(r"engine said: [^\r\n]*/models/demo/%s: SHA-256 differs" % SHARD, status),
            "status says %r" % status)
    out = box.serial.command("keys list")
    require("engine: not running" in out, "keys says %r" % out)


SHARD = "model-00002-of-00002.safetensors"


def corrupt():
    """One bit of nine megabytes of weights is another one."""
    bad = os.path.join(ROOT, "build", "boot", "bad-shard")
    with open(os.path.join(ROOT, "rootfs", "models", "demo", SHARD), "rb") as f:
        data = bytearray(f.read())
    data[len(data) // 2] ^= 1
    with open(bad, "wb") as f:
        f.write(data)
    with Box("corrupt", "--bare", "--overlay", overlay("corrupt", {"models/demo/" + SHARD: bad})) as box:
        tap.check("corrupt: a model with one wrong bit is refused by name, on a console", names_the_bad_file, box)


# ---- faults, put over the image ----------------------------------------------------------------------


def overlay(name, entries):
    """Makes a second archive: {path: source file, or None for an empty file}; returns its path."""
    folder = os.path.join(ROOT, "build", "boot", name + "-overlay")
    subprocess.run(["rm", "-rf", folder], check=True)
    for path, source in entries.items():
        target = os.path.join(folder, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if source is None:
            open(target, "w").close()
        else:
            subprocess.run(["install", "-m", "0755", os.path.join(ROOT, source), target], check=True)
    names = "\n".join(entries)
    archive = folder + ".cpio"
    with open(archive, "wb") as f:
        subprocess.run(["cpio", "--quiet", "-o", "-H", "newc", "-R", "0:0"], cwd=folder,
                       input=names.encode(), stdout=f, check=True)
    return archive


def wait_engine_is(box, state):
    end = time.monotonic() + 240
    while True:
        code, out, _ = box.ssh("status")
        equal(code, 1, "exit code of status without an engine")
        require("engine: not running" in out, "status says %r" % out)
        if re.search(r"^engine +%s" % state, out, re.M):
            return
        require(time.monotonic() < end, "the engine was never seen %s: %r" % (state, out))
        time.sleep(0.5)


def crashing_backs_off(box):
    box.serial.expect(re.escape(PROMPT), 240)
    wait_engine_is(box, "backoff")


def crash_loop_is_told(box):
    wait_engine_is(box, "failed")
    log = box.ssh("log 2000")[1]
    equal(log.count("init: engine: starting"), 6, "starts")
    require("init: engine: exit code 2" in log, "no exit code in the log")
    require("engine: usage: console" in log, "no output of the engine in the log")
    require("'v4box.shell=yes' refused" in log, "an unknown option was not refused")
    equal(box.ssh("keys list")[0], 1, "exit code of keys without an engine")


def nothing_can_be_written(box):
    """What root tries in a service's place: the control is the one path that may be written."""
    log = box.ssh("log 2000")[1]
    said = dict(re.findall(r"heart: saboteur: ([^:]+): (.*)$", log, re.M))
    equal([path for path, what in said.items() if what == "WRITTEN"], ["/tmp/x"], "written")
    require(len(said) >= 12, "too few attempts: %r" % said)
    equal(said["running /tmp/x"], "Permission denied", "a program in /tmp")
    equal(said["loading a module"], "Operation not permitted", "a module")
    require("/proc/sys/kernel/modules_disabled: Invalid argument" in log, "modules were enabled again")


def stop_ends_it(box):
    done = subprocess.run(["tools/run.sh", "stop", "--dir", box.dir], cwd=ROOT, timeout=120,
                          capture_output=True, text=True)
    equal(done.returncode, 0, "exit code of run.sh stop")
    require("killing" not in done.stderr, "it had to be killed")
    equal(box.wait_end(), 0, "QEMU's exit code")


def crashes():
    # Any program that ends at once with a message will do for an engine.
    how = os.path.join(ROOT, "build", "boot", "sabotage-write")
    with open(how, "w") as f:
        f.write("write")
    archive = overlay("crashes", {"bin/engine": "build/console", "bin/heart": "build/saboteur",
                                  "etc/sabotage": how})
    with Box("crashes", "--overlay", archive, "--append", "v4box.shell=yes") as box:
        if tap.check("crashes: a crash loop backs off", crashing_backs_off, box):
            panic()  # it pauses for half a minute in all
            tap.check("crashes: it fails and is told", crash_loop_is_told, box)
            tap.check("crashes: nothing can be written, started or loaded", nothing_can_be_written, box)
            tap.check("crashes: run.sh stop ends the box", stop_ends_it, box)


def panic_reboots(box):
    box.serial.expect(r"init: PANIC: [^\n]*/proc[^\n]*; reboot in 10 s", 240)
    equal(box.wait_end(), 0, "QEMU's exit code (it ends at a reset)")


def panic():
    # Nothing can be mounted on a file.
    with Box("panic", "--overlay", overlay("panic", {"proc": None})) as box:
        tap.check("panic: said on the console, then a reboot", panic_reboots, box)


BOOTS = {"normal": normal, "bare": bare, "keyboard": keyboard, "corrupt": corrupt, "crashes": crashes}

if __name__ == "__main__":
    for chosen in sys.argv[1:] or BOOTS:
        started = time.monotonic()
        BOOTS[chosen]()
        tap.note("boot %s took %.0f s" % (chosen, time.monotonic() - started))
    tap.end()
