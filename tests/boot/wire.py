"""A time server on the network of a booted box, which reaches nobody else: Ethernet, ARP and UDP as QEMU
gives and takes them, a frame a datagram.  Knows no test."""

import os
import socket
import struct
import threading

ADDRESS = "10.0.2.77"  # of QEMU's own network, where nobody else has it
MAC = b"\x52\x54\x00\x12\x34\x77"
PORT = 123
NTP_EPOCH = 2208988800  # 1970, from 1900


def stamp(seconds):
    """A moment as NTP writes it."""
    seconds += NTP_EPOCH
    return struct.pack(">II", int(seconds) & 0xFFFFFFFF, int(seconds % 1 * 2**32))


def checksum(data):
    total = sum(struct.unpack(">%dH" % (len(data) // 2), data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


class TimeServer:
    """`answers(question)` gives the datagrams that follow one.  A context manager, around that of the box."""

    def __init__(self, path, answers):
        self.path, self.answers, self.questions = path, answers, 0

    def __enter__(self):
        for name in (self.path, self.path + ".qemu"):
            if os.path.exists(name):
                os.unlink(name)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()

    def _serve(self):
        while True:
            try:
                frame = self.socket.recv(4096)
            except OSError:
                return
            for reply in self._replies(frame):
                try:
                    self.socket.sendto(reply, self.path + ".qemu")
                except OSError:
                    pass  # QEMU has ended

    def _replies(self, frame):
        if not frame:
            return []
        own = socket.inet_aton(ADDRESS)
        ether, body = frame[:14], frame[14:]
        back = ether[6:12] + MAC + ether[12:14]
        if ether[12:14] == b"\x08\x06" and body[6:8] == b"\x00\x01" and body[24:28] == own:
            return [back + body[:6] + b"\x00\x02" + MAC + own + body[8:18]]
        if ether[12:14] != b"\x08\x00" or body[9] != 17 or body[16:20] != own:
            return []
        udp = body[(body[0] & 15) * 4 :]
        if struct.unpack(">H", udp[2:4])[0] != PORT:
            return []
        self.questions += 1
        return [back + self._datagram(body[12:16], udp[:2], answer) for answer in self.answers(udp[8:])]

    @staticmethod
    def _datagram(to, port, data):
        head = struct.pack(">BBHHHBBH", 0x45, 0, 28 + len(data), 0, 0, 64, 17, 0) + socket.inet_aton(ADDRESS) + to
        head = head[:10] + struct.pack(">H", checksum(head)) + head[12:]
        return head + struct.pack(">H", PORT) + port + struct.pack(">HH", 8 + len(data), 0) + data
