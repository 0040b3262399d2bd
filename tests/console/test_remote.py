"""The log over the network, on this machine: `remote` between an init and a collector that this file
plays, over UDP and TCP; a collector that is away, and lines that the ring has lost meanwhile."""

import json
import os
import re
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

REMOTE = os.path.join(ROOT, "build", "host", "remote")
os.environ["ASAN_OPTIONS"] = "detect_leaks=0"  # the check opens /proc, which it has forbidden itself
SECONDS = 60
RING = 50  # lines that this init keeps
tap = Tap()


def require(condition, text):
    if not condition:
        raise AssertionError(text)


class Init:
    """Answers log-since as init does: the number of lines so far, and those still kept."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "init.sock")
        self.lines, self.count, self.lock = [], 0, threading.Lock()
        Server(self.path, self._answer)

    def add(self, *texts):
        with self.lock:
            for text in texts:
                self.lines.append("%6d.%03d %s" % (self.count, self.count % 1000, text))
                self.count += 1
            del self.lines[:-RING]

    def _answer(self, request):
        require(request["command"] == "log-since", request)
        with self.lock:
            n = min(self.count - int(request["args"][0]), len(self.lines))
            kept = self.lines[len(self.lines) - n:]
            text = "%d\n" % self.count + "".join(l + "\n" for l in kept)
        return json.dumps({"ok": True, "text": text}).encode() + b"\n"


class Sender:
    def __init__(self, init, target):
        self.process = subprocess.Popen([REMOTE, init.path, target], stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True)
        self.said = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.said.append(line.rstrip("\n"))

    def wait_said(self, pattern):
        end = time.monotonic() + SECONDS
        while not any(re.search(pattern, line) for line in self.said):
            require(time.monotonic() < end and self.process.poll() is None,
                    "it did not say /%s/ but %r" % (pattern, self.said))
            time.sleep(0.05)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


FORM = re.compile(r"<(134|5)>1 20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z \S+ (\S+) - - - (.*)")


def parsed(message):
    found = FORM.fullmatch(message)
    require(found is not None, "no message of RFC 5424: %r" % message)
    return found.group(2), found.group(3)


def frames(stream):
    """The messages of a TCP stream, each behind its length."""
    data = b""
    while True:
        space = data.find(b" ")
        if space > 0 and len(data) >= space + 1 + int(data[:space]):
            n = int(data[:space])
            yield data[space + 1:space + 1 + n].decode()
            data = data[space + 1 + n:]
            continue
        more = stream.recv(65536)
        if not more:
            return
        data += more


def over_udp(folder):
    init = Init(folder)
    init.add("kernel: Linux version", "engine: one", "engine: two")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as collector:
        collector.bind(("127.0.0.1", 0))
        collector.settimeout(SECONDS)
        with Sender(init, "127.0.0.1:%d" % collector.getsockname()[1]) as sender:
            got = [parsed(collector.recv(65536).decode()) for _ in range(3)]
            init.add("init: three")
            got.append(parsed(collector.recv(65536).decode()))
            require(sender.said == [], "it said %r" % sender.said)
    require(got == [("kernel", "Linux version"), ("engine", "one"), ("engine", "two"), ("init", "three")],
            "the collector got %r" % got)


def over_tcp(folder):
    """A collector that ends, stays away while more comes than the ring holds, and comes again."""
    init = Init(folder)
    init.add("engine: first")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        server.settimeout(SECONDS)
        with Sender(init, "tcp:127.0.0.1:%d" % port) as sender:
            stream, _ = server.accept()
            stream.settimeout(SECONDS)
            stream.sendall(b"what a collector says is not read\n" * 100)
            require(parsed(next(frames(stream))) == ("engine", "first"), "another first line")
            server.close()
            stream.close()
            init.add("engine: nobody hears this")
            sender.wait_said("is not reached: ")
            init.add(*["engine: line %d" % i for i in range(3 * RING)])
            again = socket.create_server(("127.0.0.1", port))
            again.settimeout(SECONDS)
            stream, _ = again.accept()
            stream.settimeout(SECONDS)
            got = [parsed(m)[1] for _, m in zip(range(RING), frames(stream))]
            require(got == ["line %d" % i for i in range(2 * RING, 3 * RING)], "it got %r" % got)
            sender.wait_said(r"is reached; 10[01] lines were lost")
            require(len(sender.said) == 2, "it said %r" % sender.said)
            again.close()
            stream.close()


def bad_targets(folder):
    for target in ("", "collector:514", "127.0.0.1", "udp:127.0.0.1:514", "127.0.0.1:0"):
        done = subprocess.run([REMOTE, folder, target], capture_output=True, text=True, timeout=SECONDS)
        require(done.returncode == 2 and "usage" in done.stderr, "%r: %r" % (target, done))


for name, check in [("remote: lines come over UDP, in order", over_udp),
                    ("remote: over TCP; a collector that was away hears what was lost", over_tcp),
                    ("remote: what is no target is refused", bad_targets)]:
    with tempfile.TemporaryDirectory() as folder:
        tap.check(name, check, folder)
tap.end()
