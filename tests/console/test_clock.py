"""The clock program against time servers that this file plays, in a network of its own and without the
right to set a clock: what it asks, believes and says.  Runs as root, which alone may make such a place.

  test_clock.py           makes it, and runs itself in it
  test_clock.py inside    the tests
"""

import fcntl
import json
import os
import re
import socket
import struct
import subprocess
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "boot"))
from tap import Tap  # noqa: E402  the same runner as the boots

CLOCK = os.path.join(ROOT, "build", "host", "clock")
SOCKET = "/run/clock.sock"
SECONDS = 60
NTP_EPOCH = 2208988800  # 1970, from 1900
tap = Tap()


def require(condition, text):
    if not condition:
        raise AssertionError(text)


def stamp(seconds):
    seconds += NTP_EPOCH
    return struct.pack(">II", int(seconds) & 0xFFFFFFFF, int(seconds % 1 * 2**32))


class Server:
    """Answers on 127.0.0.1:123 with a clock that is `shift` seconds ahead; `spoil` may change an answer."""

    def __init__(self, shift, spoil=lambda packet, question: [packet]):
        self.shift, self.spoil, self.questions = shift, spoil, []
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 123))
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self):
        while True:
            question, address = self.socket.recvfrom(1000)
            if question == b"end":
                return
            self.questions.append(question)
            now = stamp(time.time() + self.shift)
            packet = bytes([0x24, 2]) + bytes(22) + question[40:48] + now + now
            for answer in self.spoil(packet, question):
                self.socket.sendto(answer, address)

    def close(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.sendto(b"end", ("127.0.0.1", 123))
        self.thread.join()
        self.socket.close()


class Clock:
    def __enter__(self):
        # Not a right that it could keep: this machine's clock stays as it is.
        self.process = subprocess.Popen(
            ["setpriv", "--bounding-set", "-sys_time", "--inh-caps", "-sys_time", CLOCK, "127.0.0.1"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=dict(os.environ, ASAN_OPTIONS="detect_leaks=0"))
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.said = self.process.communicate()[0]

    def ask(self, *words):
        answer = b""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
            s.settimeout(SECONDS)
            s.connect(SOCKET)
            s.sendall(json.dumps({"command": words[0], "args": list(words[1:])}).encode() + b"\n")
            while data := s.recv(65536):
                answer += data
        return json.loads(answer)

    def wait(self, wanted):
        """Asks for the time until the answer is as wanted; returns it."""
        end, answer = time.monotonic() + SECONDS, None
        while time.monotonic() < end:
            try:
                answer = self.ask("time")
                if wanted(answer):
                    return answer
            except OSError:
                pass  # it has no socket yet
            time.sleep(0.2)
        raise AssertionError("it says %r" % answer)


def believes_a_server():
    server = Server(0.25)
    with Clock() as clock:
        answer = clock.wait(lambda a: a["data"]["answer"] is not None)
        require(abs(answer["data"]["answer"]["offset_us"] - 250000) < 50000, "it says %r" % answer)
        require(answer["data"]["right"] and "stratum 2" in answer["text"], "it says %r" % answer)
        with open("/proc/%d/status" % clock.process.pid) as f:
            status = f.read()
        require(re.search(r"^Uid:\t104\t104\t104\t104$", status, re.M), "it is another user: %s" % status)
        require(not clock.ask("time", "set", "2030-01-01T00:00:00Z")["ok"], "it has set this machine's clock")
    server.close()
    require(server.questions[0][:40] == b"\x23" + bytes(39), "the question tells %r" % server.questions[0])


def steps_after_two():
    server = Server(400)
    with Clock() as clock:
        clock.wait(lambda a: a["data"]["right"])
    server.close()
    require(len(server.questions) == 2, "it asked %d times" % len(server.questions))
    require(re.search(r"was (399\.9|400\.0)\d* s wrong .* can not be set", clock.said), "it said %r" % clock.said)


def knows_forgeries():
    """Packets that answer nothing come before the true one."""
    def forge(packet, question):
        return [b"", packet[:47], packet[:24] + bytes(8) + packet[32:], b"\xff" * 48, bytes(48),
                b"\x23" + packet[1:], packet]
    server = Server(0.25, forge)
    with Clock() as clock:
        answer = clock.wait(lambda a: a["data"]["answer"] is not None)
        require(abs(answer["data"]["answer"]["offset_us"] - 250000) < 50000, "it says %r" % answer)
    server.close()


def tells_trouble():
    with Clock() as clock:
        answer = clock.wait(lambda a: "trouble: nobody answers" in a["text"])
        require(not answer["data"]["right"] and answer["data"]["answer"] is None, "it says %r" % answer)
    server = Server(0, lambda packet, question: [packet[:1] + b"\x00" + packet[2:]])
    with Clock() as clock:
        clock.wait(lambda a: "trouble: the server wants to be asked less" in a["text"])
    server.close()


def inside():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:  # the loopback interface, up
        fcntl.ioctl(s, 0x8914, struct.pack("16sh14x", b"lo", 1))  # SIOCSIFFLAGS, IFF_UP
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
    for name, check in [("clock: a server's time and the way there", believes_a_server),
                        ("clock: a step takes two answers", steps_after_two),
                        ("clock: forged answers change nothing", knows_forgeries),
                        ("clock: trouble is told", tells_trouble)]:
        tap.check(name, check)
    tap.end()


if __name__ == "__main__":
    if sys.argv[1:] == ["inside"]:
        inside()
    else:
        os.execvp("unshare", ["unshare", "--net", "--mount", sys.executable, os.path.abspath(__file__), "inside"])
