"""Profiles switched on the console while clients stream: no request is lost, no answer is mixed, and what is left when
the power goes is what was or what is.

Every answer names the profile it was computed under.  It must be, byte for byte, what a fresh engine says under that
profile alone to the same prompt: greedy and with the log-probability of every token, so that one token of another
profile shows whatever the model says.  The console runs on a terminal of its own, as on the serial line.  Prints TAP and how long clients were without service."""
import http.client, json, os, pty, re, select, signal, subprocess, sys, threading, time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FOLDER = os.path.join(ROOT, "build", "precision", "switch")
ENGINE, CONSOLE = os.path.join(ROOT, "build", "engine"), os.path.join(ROOT, "build", "console")
MODEL = os.path.join(ROOT, "rootfs", "models", "demo")
SECONDS = 600  # bound of every wait
CLIENTS, TOKENS = 3, 24
PROMPTS = ["Hello, my name is Nadia and I live in Oslo.", "What is a geologist?", "Write a list of three cities.",
           "Explain how a kettle works, please.", "My code is 7342. Say it twice."]
results = []


def check(name, good, note=""):
    results.append(bool(good))
    print(f"{'ok' if good else 'not ok'} {len(results)} - {name}", flush=True)
    if not good and note:
        print("# " + note.replace("\n", "\n# "), flush=True)


class Box:
    """One engine with a profiles file of its own."""

    def __init__(self, name, *flags, model=MODEL):
        self.model = model
        self.path = os.path.join(FOLDER, name)
        os.makedirs(self.path, exist_ok=True)
        self.socket = os.path.join(self.path, "admin")
        self.profiles = os.path.join(self.path, "profiles")
        self.flags = flags
        self.start()

    def start(self):
        self.log = open(os.path.join(self.path, "log"), "ab")
        self.process = subprocess.Popen(
            [ENGINE, "serve", "--model", self.model, "--listen", "127.0.0.1:0", "--keys", os.path.join(self.path, "keys"),
             "--admin", self.socket, "--profiles", self.profiles, "--context", "2048", *self.flags],
            stdout=subprocess.PIPE, stderr=self.log, text=True)
        self.port = int(re.search(r":(\d+)$", self.process.stdout.readline().strip()).group(1))
        if not hasattr(self, "key"):
            self.key = self.console("keys create test").split()[0]

    def console(self, line):
        """@return what the console prints, whether the command went well or not"""
        run = subprocess.run([CONSOLE, "--socket", self.socket, "--wait", "60", "-c", line], capture_output=True,
                             text=True, timeout=SECONDS)
        return run.stdout

    def ask(self, prompt, **more):
        """@return status, profile of the header, text with its log-probabilities or error code"""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        body = {"model": "deepseek-v4-demo", "temperature": 0, "max_tokens": TOKENS, "stream": True, "logprobs": True,
                "messages": [{"role": "user", "content": prompt}], **more}
        connection.request("POST", "/v1/chat/completions", json.dumps(body),
                           {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"})
        answer = connection.getresponse()
        data = answer.read().decode()
        profile = (answer.getheader("x-v4box-profile") or "").split(";")[0]
        if answer.status != 200:
            return answer.status, profile, json.loads(data)["error"]["code"]
        events = [line[6:] for line in data.split("\n") if line.startswith("data: ")]
        assert events[-1] == "[DONE]", events[-1]
        choices = [json.loads(event)["choices"] for event in events[:-1]]
        text = "".join(c[0]["delta"].get("content") or "" for c in choices if c)
        told = [entry["logprob"] for c in choices if c for entry in (c[0].get("logprobs") or {}).get("content") or []]
        return 200, profile, f"{text} {told}"

    def post(self, path, body, key=None):
        """@return status, the profile's header, answer"""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        connection.request("POST", path, json.dumps(body),
                           {"Authorization": f"Bearer {key or self.key}", "Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.getheader("x-v4box-profile"), json.loads(answer.read())

    def stop(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        self.process.wait(timeout=SECONDS)
        self.log.close()


class Terminal:
    """The console at a terminal."""

    def __init__(self, box):
        self.process, self.fd = pty.fork()
        if self.process == 0:
            os.execv(CONSOLE, [CONSOLE, "--socket", box.socket])
        self.until("v4box> ")

    def until(self, text):
        seen, end = "", time.monotonic() + SECONDS
        while text not in seen:
            assert time.monotonic() < end, seen
            if select.select([self.fd], [], [], 1)[0]:
                seen += os.read(self.fd, 65536).decode(errors="replace")
        return seen

    def run(self, line):
        """Types a command.  @return what comes until the next prompt"""
        os.write(self.fd, line.encode() + b"\r")
        self.until("\n")
        return self.until("v4box> ")

    def close(self):
        os.write(self.fd, b"exit\r")
        os.waitpid(self.process, 0)
        os.close(self.fd)


class Client(threading.Thread):
    """Asks without end until it is told to stop."""

    def __init__(self, box, number):
        super().__init__(daemon=True)
        self.box, self.number, self.answers, self.ends, self.failed, self.go = box, number, [], [], None, True

    def run(self):
        turn = self.number
        while self.go:
            prompt = PROMPTS[turn % len(PROMPTS)]
            turn += 1
            try:
                self.answers.append((prompt, *self.box.ask(prompt)))
            except Exception as error:  # noqa: BLE001  a lost request is what this test is about
                self.failed = repr(error)
                return
            self.ends.append(time.monotonic())


def under_load(box):
    """Switches on a terminal while clients stream.  @return the clients, and how each switch was answered"""
    terminal = Terminal(box)
    clients = [Client(box, number) for number in range(CLIENTS)]
    for client in clients:
        client.start()
    seen = [(line, terminal.run(line)) for line in (
        "profile set fast", "profile set official --drain", "profile set reference --try 10m")]
    end = time.monotonic() + SECONDS
    while not any(answer[2] == "reference" for client in clients for answer in client.answers):
        assert time.monotonic() < end, "nobody was answered on trial"
        time.sleep(0.1)
    seen.append(("profile rollback", terminal.run("profile rollback")))
    time.sleep(1)
    for client in clients:
        client.go = False
    for client in clients:
        client.join(SECONDS)
    terminal.close()
    return clients, seen


def fresh_answers():
    """What engines that know one profile alone say.  @return {(profile, prompt): text}"""
    fresh = {}
    for profile in ("official", "fast", "reference"):
        box = Box("fresh-" + profile, "--profile", profile)
        for prompt in PROMPTS:
            fresh[profile, prompt] = box.ask(prompt)[2]
        box.stop()
    return fresh


def test_streams(box):
    clients, seen = under_load(box)
    answers = [answer for client in clients for answer in client.answers]
    fresh = fresh_answers()
    gap = max(b - a for client in clients for a, b in zip(client.ends, client.ends[1:]))
    print(f"# {len(answers)} answers; the longest that a client waited for one was {gap:.2f} s")
    check("every switch is proven and answered on the terminal",
              all("proven in" in text and "serves new requests" in text for _, text in seen[:3]), str(seen)[:2000])
    check("rolling back ends the trial", "official (" in seen[3][1] and "on trial" not in seen[3][1], seen[3][1])
    check("no request is lost", all(c.failed is None for c in clients) and
              all(status == 200 for _, status, _, _ in answers), str([c.failed for c in clients]))
    profiles = {profile for _, _, profile, _ in answers}
    check("all profiles have answered", profiles == {"official", "fast", "reference"}, str(profiles))
    mixed = [(p, name) for p, _, name, text in answers if text != fresh[name, p]]
    check("no answer is mixed: each is that of a fresh engine under its profile", not mixed, str(mixed[:5]))
    differ = {p for p in PROMPTS if len({fresh[name, p] for name in profiles}) > 1}
    check("the profiles can be told apart by these answers", bool(differ), "all say the same")


SURFACES = {"/v1/messages": {"max_tokens": 4, "messages": [{"role": "user", "content": PROMPTS[0]}]},
            "/v1/responses": {"max_output_tokens": 4, "input": PROMPTS[0]},
            "/v1/chat/completions": {"max_tokens": 4, "messages": [{"role": "user", "content": PROMPTS[0]}]}}


def logged(box, pattern):
    """Waits for a line of the log, which may come behind its answer.  @return whether it came, the log's end"""
    end = time.monotonic() + SECONDS
    while True:
        with open(os.path.join(box.path, "log")) as file:
            log = file.read()
        if (found := re.search(pattern, log)) or time.monotonic() > end:
            return found, log[-500:]
        time.sleep(0.1)


def test_surfaces(box):
    """The field means the same on every surface, and who computed an answer stands everywhere."""
    other = box.console("keys create other").split()[0]
    for path, body in SURFACES.items():
        body = {"model": "deepseek-v4-demo", **body}
        status, header, answer = box.post(path, {**body, "profile": "fast"})
        name, hash = re.fullmatch(r"(\w+); hash=([0-9a-f]{16})", header).groups()
        check(f"{path}: the named profile computes it, and header and usage say so",
              status == 200 and name == "fast" and
              (answer["usage"]["v4box"]["profile"], answer["usage"]["v4box"]["profile_hash"]) == (name, hash),
              str((status, header, answer)))
        check(f"{path}: so does the log", *logged(box, f"answer=4 profile=fast/{hash} "))
        status, _, answer = box.post(path, {**body, "profile": "nobody"})
        check(f"{path}: an unknown one is refused in the surface's own form, with the field",
              status == 400 and answer["error"]["param"] == "profile" and
              (answer.get("type") == "error") == (path == "/v1/messages"), str(answer))
        status, _, answer = box.post(path, {**body, "profile": 7})
        check(f"{path}: so is a number", status == 400 and answer["error"]["param"] == "profile", str(answer))
        status, _, answer = box.post(path, {**body, "profile": "fast"}, other)
        check(f"{path}: a key without the right may not name one",
              status == 403 and answer["error"]["code"] == "profile_not_allowed", str(answer))


def test_named(box):
    """A request that names a profile."""
    refused = box.ask(PROMPTS[0], profile="fast")
    check("a key without the right may not name one", refused[0] == 403 and refused[2] == "profile_not_allowed",
              str(refused))
    box.console(f"keys limit {box.key.split('_')[1]} profiles yes")
    named = box.ask(PROMPTS[0], profile="fast")
    check("a key with the right may", named[:2] == (200, "fast"), str(named))
    check("an unknown one is refused", box.ask(PROMPTS[0], profile="nobody")[0] == 400)
    check("the others go on under theirs", box.ask(PROMPTS[0])[1] == "official")
    test_surfaces(box)


def test_cut(box):
    """The engine is killed at some moment of a switch."""
    good = True
    for delay in (0.0, 0.5, 2.0):
        before = box.console("profile list")
        asked = threading.Thread(target=box.console, args=("profile set fast --try 10m",))
        asked.start()
        time.sleep(delay)
        box.stop(signal.SIGKILL)
        asked.join(SECONDS)
        box.start()
        after = box.console("profile list")
        good = good and after == before and "damaged" not in box.console("status")
    check("a kill in the middle of a trial leaves what was", good, after)


def test_wrong(box):
    cases = {"profile set nobody": "no profile is named nobody", "profile row official hc.mix bf16": "built in",
             "profile copy fast mine": "is stored", "profile row mine hc.mux bf16": "no row is named",
             "profile row mine hc.mix fp9": "it has fp32, tf32, bf16", "profile row mine moe.clamp off": "audits alone",
             "profile delete mine": "deleted", "profile set fast --try 5": "want a time", "profile set": "usage"}
    wrong = {line: text for line, says in cases.items() if says not in (text := box.console(line))}
    check("wrong input is answered with what is wrong", not wrong, str(wrong))


def main():
    subprocess.run(["rm", "-rf", FOLDER], check=True)
    box = Box("box", "--profile", "official")
    try:
        test_streams(box)
        test_named(box)
        test_wrong(box)
        test_cut(box)
    finally:
        box.stop()
    print(f"1..{len(results)}")
    return not all(results)


if __name__ == "__main__":
    sys.exit(main())
