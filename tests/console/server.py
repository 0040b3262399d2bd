"""A server on a Unix socket that speaks the console's protocol: a line of JSON, and an answer."""
import json
import socket
import threading


class Server:
    """Answers each request with what `answer` returns: bytes, or None to say nothing."""

    def __init__(self, path, answer):
        self.requests = []
        self.answer = answer
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.bind(path)
        self.socket.listen(8)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            client, _ = self.socket.accept()
            line = b""
            while not line.endswith(b"\n"):
                data = client.recv(65536)
                if not data:
                    break
                line += data
            if line:
                self.requests.append(json.loads(line))
                answer = self.answer(self.requests[-1])
                if answer is not None:
                    try:
                        client.sendall(answer)
                    except OSError:
                        pass
            client.close()
