"""A booted box as the tests see it: its serial line, SSH and HTTP, each wait with a bound.

Owns one QEMU started through tools/run.sh (so the tests boot what people boot).  Knows no test.
"""

import json
import os
import re
import signal
import socket
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# A boot takes 10 s of guest time; the limits are for a machine that does much else.
BOOT_S = 240
ANSWER_S = 60
END_S = 60
PROMPT = "v4box> "
# A box of a test is new and signs for itself; what its certificate says is a test of its own.
ANY_CERTIFICATE = ssl._create_unverified_context()


class Failure(Exception):
    """Something did not happen, or not in time; the text says what."""


def require(condition, text):
    if not condition:
        raise Failure(text)


def equal(got, wanted, what):
    require(got == wanted, "%s: %r, not %r" % (what, got, wanted))


class Serial:
    """The serial line: everything received since the start, and what was typed."""

    def __init__(self, path, alive):
        self.text = ""
        self.seen = 0  # up to here expect() has looked
        self.lock = threading.Condition()
        self.closed = False
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        end = time.monotonic() + ANSWER_S
        while True:  # QEMU makes the socket, after the probe for KVM
            try:
                self.socket.connect(path)
                break
            except OSError:
                if time.monotonic() > end or not alive():
                    raise Failure("no serial socket at " + path)
                time.sleep(0.1)
        threading.Thread(target=self._receive, daemon=True).start()

    def _receive(self):
        while True:
            try:
                data = self.socket.recv(65536)
            except OSError:
                data = b""
            with self.lock:
                self.text += data.decode("utf-8", "replace")
                self.closed = self.closed or not data
                self.lock.notify_all()
            if not data:
                return

    def expect(self, pattern, seconds=ANSWER_S):
        """Waits for a pattern in what came after the last match; returns the match."""
        end = time.monotonic() + seconds
        with self.lock:
            while True:
                match = re.compile(pattern, re.S).search(self.text, self.seen)
                if match:
                    self.seen = match.end()
                    return match
                left = end - time.monotonic()
                if left <= 0 or self.closed:
                    why = "the line was closed" if self.closed else "not in %d s" % seconds
                    raise Failure("serial: /%s/: %s; last: %r" % (pattern, why, self.text[-300:]))
                self.lock.wait(left)

    def type(self, text):
        self.socket.sendall(text if isinstance(text, bytes) else text.encode())

    def command(self, line):
        """Types a command and returns what it printed, up to the next prompt."""
        self.type(line + "\r")
        self.expect(re.escape(line) + r"\r\n")
        start = self.seen
        self.expect(re.escape(PROMPT))
        return self.text[start : self.seen - len(PROMPT)].rstrip("\r")


class Box:
    """One QEMU.  A context manager: however the test ends, nothing is left running."""

    def __init__(self, name, *arguments):
        self.dir = os.path.join(ROOT, "build", "boot", name)
        os.makedirs(self.dir, exist_ok=True)
        self.arguments = list(arguments)
        self.started = time.monotonic()

    def __enter__(self):
        path = os.path.join(self.dir, "serial")
        if os.path.exists(path):
            os.unlink(path)
        self.log = open(os.path.join(self.dir, "run.log"), "w")
        self.process = subprocess.Popen(
            ["tools/run.sh", "run", "--dir", self.dir, "--serial", path] + self.arguments,
            cwd=ROOT, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
            start_new_session=True)
        try:
            self.serial = Serial(path, lambda: self.process.poll() is None)
        except Failure:
            self.__exit__()
            raise
        self.started = time.monotonic()
        return self

    def __exit__(self, *_):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self._wait_killed()
        self.log.close()
        if hasattr(self, "serial"):
            with open(os.path.join(self.dir, "serial.log"), "w") as f:
                f.write(self.serial.text)

    def _wait_killed(self):
        """A killed QEMU gives back gigabytes before it is gone; the next one must not meet it."""
        end = time.monotonic() + END_S
        try:
            pid = self.read("qemu.pid")
            while time.monotonic() < end:
                with open("/proc/%s/comm" % pid) as f:
                    if not f.read().startswith("qemu-system"):
                        return
                time.sleep(0.05)
        except OSError:
            pass  # no such process any more

    def read(self, name):
        with open(os.path.join(self.dir, name)) as f:
            return f.read().strip()

    def since_start(self):
        return time.monotonic() - self.started

    def wait_end(self, seconds=END_S):
        """Waits for QEMU to end by itself; returns its exit code."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Failure("QEMU still runs after %d s" % seconds)

    def monitor(self, command):
        """Gives QEMU's monitor one command and waits for its next prompt."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
            s.settimeout(ANSWER_S)
            s.connect(os.path.join(self.dir, "serial.monitor"))
            for line in [command.encode() + b"\n", b""]:
                got = b""
                while not got.endswith(b"(qemu) "):
                    data = s.recv(4096)
                    if not data:
                        return  # the command ended QEMU
                    got += data
                s.sendall(line)

    # ---- HTTP ------------------------------------------------------------------------------------

    def http(self, path, key=None, body=None, seconds=ANSWER_S):
        """Returns (status, body text); status 0: nobody answered."""
        request = urllib.request.Request(self.read("url") + path)
        if key is not None:
            request.add_header("Authorization", "Bearer " + key)
        if body is not None:
            request.add_header("Content-Type", "application/json")
            request.data = json.dumps(body).encode()
        try:
            with urllib.request.urlopen(request, timeout=seconds, context=ANY_CERTIFICATE) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def wait_healthy(self, seconds=BOOT_S):
        """Waits for /healthz; returns seconds since QEMU started."""
        end = time.monotonic() + seconds
        while self.http("/healthz", seconds=5)[0] != 200:
            if time.monotonic() > end or self.process.poll() is not None:
                raise Failure("no healthy answer in %d s; serial: %r" % (seconds, self.serial.text[-500:]))
            time.sleep(0.3)
        return self.since_start()

    # ---- SSH -------------------------------------------------------------------------------------

    def ssh_argv(self, *options, key=None, user="admin"):
        return ["ssh", "-p", self.read("ssh_port"), "-i", key or os.path.join(self.dir, "ssh_key"),
                "-F", "/dev/null", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no",
                "-o", "UserKnownHostsFile=/dev/null", "-o", "IdentitiesOnly=yes",
                "-o", "ConnectTimeout=30", "-o", "LogLevel=ERROR", *options, user + "@127.0.0.1",
                "--"]

    def ssh(self, *command, options=(), key=None, user="admin", stdin=b"", seconds=ANSWER_S):
        """Runs one SSH session; returns (exit code, stdout, stderr)."""
        argv = self.ssh_argv(*options, key=key, user=user) + list(command)
        try:
            done = subprocess.run(argv, input=stdin, capture_output=True, timeout=seconds)
        except subprocess.TimeoutExpired:
            raise Failure("ssh %r: no end in %d s" % (command, seconds))
        return (done.returncode, done.stdout.decode("utf-8", "replace"),
                done.stderr.decode("utf-8", "replace"))

    def ssh_terminal(self, lines, seconds=ANSWER_S):
        """Types lines into a session with a terminal, each at a prompt; returns (exit code, output)."""
        argv = self.ssh_argv("-tt")
        session = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT)
        timer = threading.Timer(seconds, session.kill)
        timer.start()
        out = b""
        for line in lines:
            start = len(out)
            while PROMPT.encode() not in out[start:]:
                data = os.read(session.stdout.fileno(), 65536)
                if not data:
                    break
                out += data
            session.stdin.write(line.encode() + b"\r")
            session.stdin.flush()
        while data := os.read(session.stdout.fileno(), 65536):
            out += data
        session.communicate()
        timer.cancel()
        return session.returncode, out.decode("utf-8", "replace")

    def status(self):
        """The data of `status --json`, over SSH."""
        code, out, err = self.ssh("status --json")
        try:
            return json.loads(out)
        except ValueError:
            raise Failure("status --json: exit %d, %r %r" % (code, out[:200], err[:200]))
