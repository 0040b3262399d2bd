"""An engine that serves and audits itself: started, asked over its console and its API, killed and started again.

Knows the command lines and the admin protocol, nothing of the engine's inside."""
import http.client, json, os, re, signal, subprocess, time

from harness import DEMO, ROOT

CONSOLE = os.path.join(ROOT, "build/console")
SECONDS = 600  # bound of every wait


class Box:
    def __init__(self, folder, *flags, engine="build/engine"):
        self.folder, self.flags, self.engine = folder, flags, os.path.join(ROOT, engine)
        self.socket, self.audits = os.path.join(folder, "admin"), os.path.join(folder, "audits")
        self.key = None
        self.start()

    def start(self):
        self.log = open(os.path.join(self.folder, "log"), "ab")
        self.process = subprocess.Popen(
            [self.engine, "serve", "--model", DEMO, "--listen", "127.0.0.1:0", "--keys",
             os.path.join(self.folder, "keys"), "--admin", self.socket, "--profiles",
             os.path.join(self.folder, "profiles"), "--audits", self.audits, "--metrics", "127.0.0.1:0", "--context",
             "4096", *self.flags], stdout=subprocess.PIPE, stderr=self.log, text=True, cwd=ROOT)
        ports = {}
        for _ in range(2):
            name, port = re.match(r"(\w+) on .*:(\d+)$", self.process.stdout.readline().strip()).groups()
            ports[name] = int(port)
        self.port, self.metrics_port = ports["listening"], ports["metrics"]
        self.key = self.key or self.ask("keys create test")["secret"]

    def stop(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        self.process.wait(timeout=SECONDS)
        self.process.stdout.close()
        self.log.close()

    def answer(self, line, file=""):
        """-> the whole answer of one command; `file` is what a console gets on its input"""
        run = subprocess.run([CONSOLE, "--socket", self.socket, "--wait", "60", "--json", "-c", line],
                             input=file, capture_output=True, text=True, timeout=SECONDS)
        return json.loads(run.stdout)

    def ask(self, line, file=""):
        """-> the data of a command that goes well"""
        answer = self.answer(line, file)
        if not answer["ok"]:
            raise RuntimeError(f"{line}: {answer['text']}")
        return answer["data"]

    def until(self, wanted, what):
        """Waits until wanted(status of audits) is true.  -> that status"""
        end = time.monotonic() + SECONDS
        while True:
            status = self.ask("audit status")
            if wanted(status):
                return status
            if time.monotonic() > end:
                raise RuntimeError(f"{what}: not within {SECONDS} s; {status}")
            time.sleep(0.2)

    def ended(self):
        return self.until(lambda s: s["runs"] == 0, "the end of an audit")

    def say(self, text, tokens=24, **more):
        """-> (id of the answer, its text): greedy"""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        body = {"model": "deepseek-v4-demo", "temperature": 0, "max_tokens": tokens,
                "messages": [{"role": "user", "content": text}], **more}
        connection.request("POST", "/v1/chat/completions", json.dumps(body),
                           {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"})
        answer = json.loads(connection.getresponse().read())
        return answer["id"], answer["choices"][0]["message"]["content"]

    def metrics(self):
        """-> {name: value} of what has no label but the model's"""
        connection = http.client.HTTPConnection("127.0.0.1", self.metrics_port, timeout=SECONDS)
        connection.request("GET", "/metrics")
        page = connection.getresponse().read().decode()
        return {m[1]: float(m[2]) for m in re.finditer(r"^(v4box_audit\w*)\S* (\S+)$", page, re.M)}
