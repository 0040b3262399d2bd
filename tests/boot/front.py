"""The TLS front of a booted box, from outside: what it answers, refuses and bounds, and another certificate.  Each check
is a function of the box; boot.py runs them."""

import hashlib
import json
import os
import re
import select
import socket
import ssl
import subprocess
import threading
import time
import urllib.request

from box import ANY_CERTIFICATE, Failure, equal, require
from tap import note


def curl_tls(box, *options):
    """Returns (exit code, what was received) of /healthz through the front."""
    done = subprocess.run(["curl", "-sk", "--max-time", "60", *options, box.read("url") + "/healthz"],
                          capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout


def port_of(box):
    return int(box.read("url").rsplit(":", 1)[1])


def shown_fingerprint(box):
    pem = ssl.get_server_certificate(("127.0.0.1", port_of(box)))
    return pem, hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()


def answers(box):
    told = re.search(r"tls: certificate SHA-256 ([0-9a-f]{64})", box.serial.text)
    require(told is not None, "no fingerprint on the serial line")
    pem, shown = shown_fingerprint(box)
    equal(shown, told.group(1), "fingerprint")
    equal(box.ssh("tls show")[1], pem, "tls show")
    require("SHA-256 " + shown in box.ssh("tls")[1], "tls says %r" % box.ssh("tls")[1])
    for version in ("2", "1.1"):
        form = ["-o", "/dev/null", "-w", "%{http_code} %{http_version}", "--http" + version]
        equal(curl_tls(box, *form), (0, "200 " + version), "HTTP/" + version)
    with open(os.path.join(box.dir, "trusted.pem"), "w") as f:
        f.write(pem)
    strict = ssl.create_default_context(cafile=f.name)
    with socket.create_connection(("127.0.0.1", port_of(box)), 60) as plain:
        with strict.wrap_socket(plain, server_hostname="127.0.0.1") as stream:
            equal(stream.version(), "TLSv1.3", "protocol")


def sent_raw(box, data):
    """What the front says to these bytes until it ends the connection."""
    said = b""
    with socket.create_connection(("127.0.0.1", port_of(box)), 60) as plain:
        with ANY_CERTIFICATE.wrap_socket(plain) as stream:
            stream.sendall(data)
            while more := stream.recv(4096):
                said += more
    return said


def refuses(box):
    equal(curl_tls(box, "--tls-max", "1.2")[0], 35, "curl's exit code with TLS 1.2")
    head = ["-o", "/dev/null", "-w", "%{http_code}", "-X", "POST"]
    code, out = curl_tls(box, *head, "-H", "Content-Length: 33554433", "--http1.1")
    equal(out, "413", "a body beyond the limit")
    require('"body_too_large"' in curl_tls(box, "-X", "POST", "-H", "Content-Length: 33554433", "--http1.1")[1],
            "no JSON with it")
    equal(curl_tls(box, *head)[1], "405", "a POST within it, as control")
    equal(curl_tls(box, *head, "--http1.1", "-H", "Transfer-Encoding: x")[1], "400", "an unknown framing")
    for bad in (b"GET / HTTP/1.1\r\nHost: localhost\r\nno head\r\n\r\n", b"\x16\x03\x01\r\n\r\n"):
        said = sent_raw(box, bad)
        require(said.startswith(b"HTTP/1.1 400 "), "the front said %r" % said)
        equal(json.loads(said.split(b"\r\n\r\n", 1)[1])["error"]["code"], "invalid_request", "the code of its error")


def trickle(box, head, period_s):
    """Sends a head, and then a byte a period until the box ends it; (seconds, what it said)."""
    started, said = time.monotonic(), b""
    with socket.create_connection(("127.0.0.1", port_of(box)), 60) as plain:
        with ANY_CERTIFICATE.wrap_socket(plain) as stream:
            stream.sendall(head)
            stream.settimeout(period_s)
            while time.monotonic() - started < 240:
                try:
                    data = stream.recv(4096)
                    said += data
                    if not data:
                        return time.monotonic() - started, said
                except TimeoutError:
                    pass
                except OSError:
                    return time.monotonic() - started, said
                try:
                    stream.sendall(b"x")
                except OSError:
                    return time.monotonic() - started, said
    raise Failure("still open after 240 s of one byte each %d s" % period_s)


# Of threads: a head takes ten seconds and a body a minute, in which other things are looked at.
slow = {}


def send_slowly(box, what, head, period_s):
    try:
        slow[what] = trickle(box, head.encode(), period_s)
    except (OSError, Failure) as error:
        slow[what] = error


def begins_slow_ones(box):
    """Whoever sends a byte at a time keeps nobody from what follows."""
    body = ("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n"
            "Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n" % box.read("api_key"))
    head = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: "
    for sent in (("head", head, 1), ("body", body, 2)):
        threading.Thread(target=send_slowly, args=(box, *sent), daemon=True).start()


def slow_end(what):
    """After how many seconds it was, and what was said to it."""
    end = time.monotonic() + 240
    while what not in slow:
        require(time.monotonic() < end, "the slow %s is not ended" % what)
        time.sleep(0.2)
    require(isinstance(slow[what], tuple), "the slow %s: %r" % (what, slow[what]))
    return slow[what]


def ends_slow_heads(box):
    seconds, said = slow_end("head")
    require(said.startswith(b"HTTP/1.1 408 "), "the front said %r" % said)
    equal(json.loads(said.split(b"\r\n\r\n", 1)[1])["error"]["code"], "request_timeout", "the code of its error")
    note("a head of one byte a second was ended after %.0f s" % seconds)


def ends_slow_bodies(box):
    seconds, said = slow_end("body")
    require(b" 200 " not in said, "the front said %r" % said)
    note("a body of one byte each 2 s was ended after %.0f s: %r" % (seconds, said[:30]))


def bounds_an_address(box):
    """Of 48 connections from one address the front keeps 32 at most, and serves again after them."""
    held = [socket.create_connection(("127.0.0.1", port_of(box)), 60) for _ in range(48)]
    end = time.monotonic() + 60
    while True:
        ended, _, _ = select.select(held, [], [], 0.2)
        closed = [s for s in ended if not peeked(s)]
        if len(closed) >= 16:
            break
        require(time.monotonic() < end, "only %d of 48 were closed" % len(closed))
    require(len(closed) < 40, "%d of 48 were closed" % len(closed))
    for s in held:
        s.close()
    box.wait_healthy()


def peeked(s):
    try:
        return s.recv(1, socket.MSG_PEEK)
    except OSError:
        return b""


def names_its_clients(box):
    """What a client says of its own address counts for nothing: bad keys from it are throttled."""
    codes = set()
    for i in range(40):
        _, out = curl_tls(box, "-o", "/dev/null", "-w", "%{http_code}", "-H",
                          "X-Forwarded-For: 192.0.2.%d" % i, "-H", "Authorization: Bearer x",
                          "--request-target", "/v1/models")
        codes.add(out)
    equal(codes, {"401", "429"}, "answers to bad keys")
    equal(box.http("/v1/models", key=box.read("api_key"))[0], 200, "with the site's key")


def make_certificate(box, name):
    """A key and a certificate as an operator would bring them; returns both files' bytes."""
    path = os.path.join(box.dir, name)
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-384",
                    "-nodes", "-subj", "/CN=" + name, "-addext", "subjectAltName=DNS:" + name, "-days",
                    "365", "-keyout", path + ".key", "-out", path + ".pem"], check=True, capture_output=True)
    with open(path + ".key", "rb") as key, open(path + ".pem", "rb") as pem:
        return key.read(), pem.read()


def certificate_is_changed(box):
    """While an answer streams: it goes on, and new connections see the new certificate."""
    key, pem = make_certificate(box, "box.example")
    before = shown_fingerprint(box)[1]
    for what, data, reason in [("no key", pem, "no private key"), ("half", (key + pem)[:400], "no certificate"),
                               ("nothing", b"", "no private key"), ("too much", pem * 40, "too large")]:
        code, out, _ = box.ssh("tls install", stdin=data)
        require(code == 1 and reason in out and "old certificate stays" in out, "%s: %d %r" % (what, code, out))
    equal(shown_fingerprint(box)[1], before, "fingerprint after refusals")
    body = {"model": "deepseek-v4-demo", "stream": True, "temperature": 0, "max_tokens": 400,
            "messages": [{"role": "user", "content": "Tell a long story."}]}
    request = urllib.request.Request(box.read("url") + "/v1/chat/completions", json.dumps(body).encode(),
                                     {"Authorization": "Bearer " + box.read("api_key"),
                                      "Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=240, context=ANY_CERTIFICATE) as stream:
        stream.readline()
        code, out, err = box.ssh("tls install", stdin=key + pem)
        require(code == 0 and "DNS:box.example" in out, "install: exit %d, %r %r" % (code, out, err))
        after = shown_fingerprint(box)[1]
        require(after in out and after != before, "the front shows %s, not what %r says" % (after, out))
        require(stream.read().decode().endswith("data: [DONE]\n\n"), "the stream was cut off")
    require("key" not in box.ssh("tls show")[1].lower().replace("v4box", ""), "tls show tells the key")
    code, out, _ = box.ssh("tls reset v4box 127.0.0.1")
    require(code == 0 and shown_fingerprint(box)[1] in out, "reset: exit %d, %r" % (code, out))
    equal(box.ssh("tls reset a,DNS:b")[0], 1, "exit code of a name that is none")
