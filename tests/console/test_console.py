"""The console program from outside, on this machine: exit codes, forms of output, hostile servers,
hostile typing.  Runs the build with sanitizers, against servers that this file plays."""

import json
import os
import pty
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "boot"))
from server import Server  # noqa: E402
from tap import Tap  # noqa: E402  the same runner as the boots

CONSOLE = os.path.join(ROOT, "build", "host", "console")
# The leak check opens /proc when the program ends, which the console has forbidden itself by then.
os.environ["ASAN_OPTIONS"] = "detect_leaks=0"
SECONDS = 60  # bound of every run; one takes 0.1
tap = Tap()


def run(*argv, stdin=b""):
    done = subprocess.run([CONSOLE, *argv], input=stdin, capture_output=True, timeout=SECONDS)
    return done.returncode, done.stdout, done.stderr


def equal(got, wanted, what):
    if got != wanted:
        raise AssertionError("%s: %r, not %r" % (what, got, wanted))


def line(ok, text, data=None):
    answer = {"ok": ok, "text": text}
    if data is not None:
        answer["data"] = data
    return json.dumps(answer).encode() + b"\n"


def echo(request):
    words = [request["command"]] + request["args"]
    return line(request["args"] != ["fail"], " ".join(words) + "\n", {"n": len(words)})


def one_socket(path):
    server = Server(path, echo)
    equal(run("--socket", path, "-c", "keys create a"), (0, b"keys create a\n", b""), "keys")
    equal(run("--socket", path, "-c", "keys fail"), (1, b"keys fail\n", b""), "a refusal")
    equal(run("--socket", path, "-c", "status"), (0, b"status\n", b""), "status of the engine alone")
    code, out, _ = run("--socket", path, "-c", "keys list", "--json")
    equal((code, json.loads(out)["data"]), (0, {"n": 2}), "--json")
    code, out, _ = run("--socket", path, "-c", "keys fail --json")
    equal((code, json.loads(out)["ok"]), (1, False), "--json as last word")
    equal(server.requests[-1], {"command": "keys", "args": ["fail"]}, "the request")
    equal(run("--socket", path, "-c", "log")[0], 1, "a command of init without init")
    code, out, _ = run("--socket", path, "-c", "nonsense", "--json")
    equal((code, json.loads(out)["ok"]), (1, False), "an unknown command as JSON")


def two_sockets(path):
    Server(path + "e", lambda r: line(True, "engine says\n", {"e": 1}))
    Server(path + "i", lambda r: line(True, "init says", {"i": [2]}))
    both = ("--socket", path + "e", "--init", path + "i")
    equal(run(*both, "-c", "status"), (0, b"init says\nengine says\n", b""), "status")
    code, out, _ = run(*both, "-c", "status", "--json")
    equal((code, json.loads(out)["data"]), (0, {"init": {"i": [2]}, "engine": {"e": 1}}), "data")
    code, out, _ = run("--socket", path + "x", "--init", path + "i", "-c", "status")
    equal((code, out), (1, b"init says\nengine: not running\n"), "without an engine")
    equal(run(*both, "-c", "log 3"), (0, b"init says\n", b""), "log goes to init")


def usage():
    for argv in [["--socket"], ["-c"], ["--wait", "x", "-c", "help"], ["--wait", "-1", "-c", "help"],
                 ["--wait", "601", "-c", "help"], ["stray"], ["--socket", "a", "stray"]]:
        code, out, err = run(*argv)
        equal((code, out, err[:6]), (2, b"", b"usage:"), repr(argv))
    code, out, _ = run("-c", "help")
    equal((code, b"poweroff" in out), (0, True), "help needs no server")
    equal([row for row in out.splitlines() if len(row) > 80], [], "lines of help that a terminal would break")
    code, out, _ = run("-c", "help ssh-keys")
    equal((code, b"  ssh-keys delete NAME\n" in out, b"the role admin" in out), (0, True, True), "help ssh-keys")
    equal(run("-c", "help sh")[:2], (1, b"sh: unknown command, try help\n"), "help of what is none")


def alone(path):
    """A name alone means a look, which nobody records, for a viewer, too."""
    server = Server(path, echo)
    sockets = ("--socket", path, "--init", path)
    for asked, meant in [("keys", ["list"]), ("keys --json", ["list"]), ("audit", ["status"]), ("net", []),
                         ("audit pins", ["pins"])]:
        equal(forced(sockets, "viewer", asked)[0], 0, "exit code of " + asked)
        equal(server.requests[-1], {"command": asked.split()[0], "args": meant}, asked)
    equal("change" in [r["command"] for r in server.requests], False, "a look was recorded")


def waiting(path):
    threading.Timer(1.2, lambda: Server(path, echo)).start()
    equal(run("--socket", path, "-c", "keys list")[0], 1, "a server that comes later")
    equal(run("--socket", path, "--wait", "30", "-c", "keys list")[0], 0, "the same with --wait")


def hostile_servers(path):
    answers = [
        b"", b"\n", b"HTTP/1.1 200 OK\r\n\r\n", b'{"ok":true}\n', b'{"ok":true,"text":"x"',
        b'{"ok":true,"text":"x"}', b'{"ok":true,"text":"' + b"x" * 2_000_000 + b'"}\n',
        b"[" * 100_000 + b"\n", b'{"ok":true,"text":"x","data":' + b"[" * 1000 + b"\n",
        b"\x00" * 5000 + b"\n", b'{"ok":true,"text":"\xff\\ud800\\u0000"',
    ]
    for i, answer in enumerate(answers):
        at = "%s%d" % (path, i)
        Server(at, lambda r, a=answer: a)
        code, out, err = run("--socket", at, "-c", "keys list")
        equal((code, err), (1, b""), "answer %d" % i)
        equal(out, b"engine: the answer was cut off or malformed\n", "answer %d" % i)
    Server(path + "s", lambda r: line(True, "\x1b]0;title\x07\x1b[2J\x9b5n caf\u00e9 \x7f\n"))
    equal(run("--socket", path + "s", "-c", "keys list")[1],
          ".]0;title..[2J.5n caf\u00e9 .\n".encode(), "an answer that would steer the terminal")


def pipes(path):
    server = Server(path, echo)
    code, out, _ = run("--socket", path, stdin=b"keys list\n\n  \nkeys create b\r\n")
    equal((code, out), (0, b"keys list\nkeys create b\n"), "two lines")
    equal(run("--socket", path, stdin=b"keys fail\nkeys list\n")[0], 1, "a failure among them")
    before = len(server.requests)
    equal(run("--socket", path, stdin=b"x" * 100_000)[0], 1, "a line without an end")
    equal(run("--socket", path, stdin=b"keys \x00list\nkeys \xff\n")[0], 1, "bytes that are no words")
    equal(len(server.requests), before, "requests those made")


class Updater:
    """Reads a request line and what follows one that has `sends` in it: all of it, or `enough` bytes; then answers."""

    def __init__(self, path, enough=None, sends=b'"update","args":[]'):
        self.got, self.sends = [], sends
        self.enough = enough
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.bind(path)
        self.socket.listen(8)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            client, _ = self.socket.accept()
            data = b""
            while self.enough is None or len(data) < self.enough:
                more = client.recv(65536)
                data += more
                if not more or data.endswith(b"]}\n") and self.sends not in data:
                    break
            self.got.append(data)
            client.sendall(line(self.enough is None, "got %d\n" % len(data)))
            client.close()


def streams(path):
    update = bytes(range(256)) * 8192  # 2 MiB of every byte
    whole = Updater(path)
    code, out, _ = run("--updater", path, "-c", "update", stdin=update)
    request, _, body = whole.got[0].partition(b"\n")
    equal((code, json.loads(request)), (0, {"command": "update", "args": []}), "the request")
    equal(body == update, True, "the update, byte for byte")
    equal(run("--updater", path, "-c", "update")[0], 0, "an empty update")
    for asked in ["update status", "rollback"]:
        equal(run("--updater", path, "-c", asked, stdin=update)[0], 0, asked)
        equal(whole.got[-1].count(b"\n"), 1, "lines of " + asked)
    golden = Updater(path + "g", sends=b'"audit","args":["golden"]')
    engine = ("--socket", path + "g")
    equal((run(*engine, "-c", "audit golden", stdin=update)[0], golden.got[0].partition(b"\n")[2] == update), (0, True),
          "a golden file, byte for byte")
    equal(run(*engine, "-c", "audit list", stdin=update)[0], 0, "audit list")
    equal(forced(engine, "viewer", "audit golden")[1], b"audit: not for a viewer; it takes the role operator\n", "a viewer's file")
    equal(b"sent from another machine" in run(*engine, stdin=b"audit golden\n")[1], True, "one among piped commands")
    equal([got.count(b"\n") for got in golden.got[1:]], [1], "requests that came, and lines of the second")
    before = len(whole.got)
    code, out, _ = run("--updater", path, stdin=b"update\nhelp\n")
    equal((code, b"sent from another machine" in out, b"poweroff" in out), (1, True, True),
          "update among piped commands, which stay commands")
    equal(len(whole.got), before, "requests those made")
    refusing = Updater(path + "r", enough=1000)
    code, out, _ = run("--updater", path + "r", "-c", "update", stdin=update)
    equal((code, out[:4]), (1, b"got "), "a refusal before the end")
    equal(len(refusing.got), 1, "requests")
    equal(run("--updater", path + "x", "-c", "update", stdin=update)[:2],
          (1, b"updater: not running\n"), "without an updater")
    equal(run("--init", path, "-c", "update")[:2], (1, b"updater: no socket given\n"), "no socket")


class Terminal:
    """The console on a pseudo-terminal."""

    def __init__(self, *argv):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execv(CONSOLE, ["-console", *argv])
        self.out = b""

    def until(self, wanted):
        end = time.monotonic() + SECONDS
        while wanted not in self.out:
            if not select.select([self.fd], [], [], max(0, end - time.monotonic()))[0]:
                raise AssertionError("no %r in %r" % (wanted, self.out[-300:]))
            self.out += os.read(self.fd, 65536)
        self.out = self.out[self.out.index(wanted) + len(wanted):]

    def type(self, data):
        while data:
            if select.select([self.fd], [self.fd], [], SECONDS)[0]:
                self.out += os.read(self.fd, 65536)
            data = data[os.write(self.fd, data[:256]):]

    def end(self):
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def terminal(path):
    server = Server(path, echo)
    t = Terminal("--socket", path, "--init", path)
    t.until(b"v4box> ")
    for typed, shown in [(b"ke\tlist\r", b"keys list\r\n"), (b"\x1b[A\r", b"keys list\r\n"),
                         (b"help pr\t", b"prefixes  profile\r\n"), (b"\x15pr\to\ts\t", b"show  set"), (b"\x03", b"^C"),
                         (b"poweroff\r", b"type yes to do it: "), (b"y\r", b"not done"),
                         (b"poweroff\r", b"type yes to do it: "), (b"\x03", b"^C"),
                         (b"reboot\r", b"type yes to do it: "), (b"yes\r", b"reboot\r\n")]:
        t.type(typed)
        t.until(shown)
    equal([r["command"] for r in server.requests], ["keys", "keys", "change", "reboot"], "requests")
    equal(server.requests[2]["args"], ["ssh", "admin", "reboot"], "what is recorded")
    t.type(bytes(b for b in range(256) if b not in b"\x04\r\n") * 40 + b"\x03keys list\r")
    t.until(b"keys list\r\n")
    t.type(b"\x04")
    equal(t.end(), 0, "exit code after Ctrl-D")


def live(path):
    """`top`: two samples without a terminal; at one, a view after the other until a key is typed."""
    tokens = iter(range(100, 100000, 100))
    data = {"model": "demo", "profile": "fast", "audit": "PASS", "running": 1, "waiting": 0}
    Server(path, lambda r: line(True, "", dict(data, answer_tokens=next(tokens))))
    code, out, _ = run("--socket", path, "-c", "top")
    equal((code, out.count(b"answer tok/s"), b"\x1b" in out), (0, 1, False), "top without a terminal")
    code, out, _ = run("--socket", path, "-c", "top --json")
    equal((code, json.loads(out)["data"]["running"]), (0, 1), "top as JSON")
    equal(run("--socket", path + "x", "-c", "top")[:2], (1, b"engine: not running\n"), "without an engine")
    t = Terminal("--socket", path)
    t.until(b"v4box> ")
    t.type(b"top\r")
    for _ in range(3):
        t.until(b"\x1b[H\x1b[Jdemo, profile fast\r\naudit PASS\r\nanswer tok/s")
    t.type(b"q")
    t.until(b"v4box> ")
    t.type(b"\x04")
    equal(t.end(), 0, "exit code after top")


def support(path):
    """Servers that would tell secrets: the bundle has all sections, and none of what was planted."""
    secrets = ["ds_Ab3dEf9h_0123456789ABCDEFGHIJKLMNOPQRSTuv", "Zx9Qw8Er7Ty6Ui5Op4As3Df2Gh1Jk0Lm",
               "b3BlbnNzaC1rZXktdjEAAAAA"]
    told = ("typed %s here, and %s\n-----BEGIN OPENSSH PRIVATE KEY-----\n%s\n"
            "-----END OPENSSH PRIVATE KEY-----\nthe end of %%s\n" % tuple(secrets))
    sockets = []
    for name in ("socket", "init", "tls", "clock"):
        Server(path + name, lambda r: line(True, told % r["command"]))
        sockets += ["--" + name, path + name]
    equal(all(s.encode() in run(*sockets, "-c", "log changes")[1] for s in secrets), True, "the control")
    code, out, _ = run(*sockets, "-c", "support")
    equal(code, 0, "exit code of support")
    for wanted in ("==== status\n", "==== log stored 2000\n", "the end of profile\n", "the end of tls\n",
                   "updater: no socket given\n"):
        equal(wanted.encode() in out, True, "%r in the bundle" % wanted)
    equal([s for s in secrets if s[12:].encode() in out], [], "secrets in the bundle")


def forced(sockets, role, asked):
    """The console as dropbear starts it for a key with a role: (exit code, output)."""
    done = subprocess.run([CONSOLE, *sockets, "-c", "as %s anna" % role], stdin=subprocess.DEVNULL,
                          capture_output=True, timeout=SECONDS,
                          env=dict(os.environ, SSH_ORIGINAL_COMMAND=asked))
    return done.returncode, done.stdout


def roles(path):
    engine, init = Server(path + "e", echo), Server(path + "i", echo)
    sockets = ("--socket", path + "e", "--init", path + "i")
    for role, asked, code in [("viewer", "keys list", 0), ("viewer", "keys create x", 1),
                              ("viewer", "reboot", 1), ("operator", "keys create x", 0),
                              ("operator", "net dhcp", 1), ("admin", "net dhcp", 0),
                              ("viewer", "as admin anna", 1), ("root", "keys list", 1)]:
        equal(forced(sockets, role, asked)[0], code, "exit code of %s as %s" % (asked, role))
    equal(forced(sockets, "viewer", "poweroff")[1], b"poweroff: not for a viewer; it takes the role admin\n",
          "what a viewer hears")
    equal(forced(sockets, "viewer", "")[0], 0, "exit code of a session without a command")
    equal([r["command"] for r in engine.requests], ["keys", "keys"], "what the engine heard")
    equal([(r["command"], r["args"]) for r in init.requests],
          [("change", ["anna", "operator", "keys create x"]), ("change", ["anna", "admin", "net dhcp"]),
           ("net", ["dhcp"])], "what init heard")
    long = "settings hostname " + "x" * 120 + " " + "y" * 100
    run(*sockets, "--who", "serial", "-c", long)
    equal("".join(init.requests[3]["args"][2:]), long, "a long change, in pieces")
    run(*sockets, "-c", "keys fail")
    equal(init.requests[-1]["args"], ["ssh", "admin", "failed: keys fail"], "a change that failed")


def idle(path):
    Server(path, echo)
    t = Terminal("--socket", path, "--idle", "2")
    t.until(b"nothing typed for 2 s, the session ends")
    equal(t.end(), 0, "exit code after silence")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        for name, check in [("one socket", one_socket), ("both sockets", two_sockets),
                            ("--wait", waiting), ("hostile servers", hostile_servers),
                            ("pipes", pipes), ("streams", streams), ("a terminal", terminal), ("roles", roles),
                            ("alone", alone), ("idle", idle), ("live", live), ("support", support)]:
            tap.check("console: " + name, check, os.path.join(folder, name.replace(" ", "-")))
        tap.check("console: usage", usage)
    tap.end()
