"""Answers one HTTP request on stdin and stdout, as QEMU starts it for a connection of the guest:

  web.py FILE      gives FILE to who asks for /update, and to everybody else status 404
"""

import os
import sys


def main(path):
    request = b""
    while not request.endswith(b"\r\n\r\n"):
        piece = os.read(0, 1)
        if not piece:
            return
        request += piece
    if request.split()[1] != b"/update":
        os.write(1, b"HTTP/1.0 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        return
    with open(path, "rb") as f:
        body = f.read()
    answer = b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    while answer:
        answer = answer[os.write(1, answer[:65536]):]


if __name__ == "__main__":
    main(sys.argv[1])
