"""Random clients against the program that ships, for as long as they are told:  soak_clients.py SECONDS [SEED]

Conversations grow, branch and are asked again, streamed and whole, with tools and schemas, under two keys; clients hang
up in the middle; some send what must be refused.  Claims, besides that the engine lives:
  every request ends       none takes longer than a bound, and all that hung up are gone within it
  every one is accounted   what the engine counts is what the clients sent and were not refused
  few are empty            a sampled answer that ends before it says anything is told as a fault (engine_error), by design
  nobody changes another   a greedy request gives the same text whenever it is asked again
  nothing is kept          no request, thread or descriptor is left over, and no memory: beside what is planned at the start
                           (timelines and the prefix cache, whose pages are touched when they are first used) and the
                           answers that are kept for the next turn it does not grow; looked at while everybody pauses
Prints TAP, the seed, and a line of counts and memory every tenth of the time."""
import http.client, json, os, random, re, signal, socket, statistics, subprocess, sys, tempfile, threading, time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ENGINE, MODEL = os.path.join(ROOT, "build", "engine"), os.path.join(ROOT, "rootfs", "models", "demo")
CLIENTS, SESSIONS, CONTEXT = 12, 4, 4096
STUCK_S = 600  # a bound on every wait, for a machine that has other work
GROWTH_MAX = 1 << 20  # of the median, from the second quarter of the run to the last: a hundred bytes a request show in an hour
PLANNED_MIN = 4 << 20  # a mapping of this size, when the engine is ready, is a plan's
SAMPLES = 40
EMPTY_MAX = 0.002  # of the embedded model's; an arithmetic that breaks shows in many
WORDS = ("The gate is red. My name is Nadia. The river is calm today, and the code is 7342. What is a geologist? "
         "Write a list of three cities. Say it twice, please. I live in Oslo and my dog is called Bruno.").split()
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "Weather of a city", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}}}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": {
    "type": "object", "properties": {"yes": {"type": "boolean"}}, "required": ["yes"], "additionalProperties": False}}}
REFUSED = [({"max_tokens": -1}, 400), ({"messages": []}, 400), ({"temperature": 9}, 400), ({"model": "another"}, 404),
           ({"messages": [{"role": "user", "content": "The gate is red. " * 4000}]}, 400)]


class Engine:
    """`engine serve`, and what can be seen of it from outside."""

    def __init__(self, folder):
        self.admin_path, self.log = os.path.join(folder, "admin"), open(os.path.join(folder, "log"), "wb")
        self.process = subprocess.Popen(
            [ENGINE, "serve", "--model", MODEL, "--listen", "127.0.0.1:0", "--keys", os.path.join(folder, "keys"),
             "--admin", self.admin_path, "--sessions", str(SESSIONS), "--context", str(CONTEXT), "--draft", "1"],
            stdout=subprocess.PIPE, stderr=self.log, text=True)
        self.port = int(re.search(r":(\d+)$", self.process.stdout.readline().strip()).group(1))
        self.keys = [self.admin("keys", "create", name)["secret"] for name in ("one", "two")]
        self.planned = [(first, end) for first, end, _ in self.anonymous() if end - first >= PLANNED_MIN]

    def admin(self, command, *args):
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(STUCK_S)
            link.connect(self.admin_path)
            link.sendall(json.dumps({"command": command, "args": args}).encode() + b"\n")
            text = b"".join(iter(lambda: link.recv(65536), b""))
        return json.loads(text)["data"]

    def proc(self, name):
        status = open(f"/proc/{self.process.pid}/status").read()
        return int(re.search(rf"{name}:\s+(\d+)", status).group(1))

    def anonymous(self):
        """@return (first, end, resident bytes) of every mapping without a file"""
        maps, found = open(f"/proc/{self.process.pid}/smaps").read(), []
        for head, first, end, node in re.findall(r"^(([0-9a-f]+)-([0-9a-f]+) \S+ \S+ \S+ (\d+).*)$", maps, re.M):
            resident = int(re.search(r"^Rss:\s+(\d+) kB", maps[maps.index(head):], re.M).group(1)) << 10
            if node == "0":
                found.append((int(first, 16), int(end, 16), resident))
        return found

    def unplanned(self):
        """@return resident bytes outside the mappings that were large when the engine was ready"""
        return sum(resident for first, end, resident in self.anonymous()
                   if not any(first < stop and start < end for start, stop in self.planned))

    def held(self):
        """@return what must be as few at the end as before the first request"""
        return {"threads": self.proc("Threads"), "descriptors": len(os.listdir(f"/proc/{self.process.pid}/fd"))}

    def until(self, wanted):
        """Waits, bounded, for a state.  @return whether it came"""
        end = time.monotonic() + STUCK_S
        while time.monotonic() < end:
            if wanted():
                return True
            time.sleep(0.5)
        return False

    def idle(self):
        status = self.admin("status")
        return status["running"] == 0 and status["waiting"] == 0


class Tally:
    """What all clients saw."""

    def __init__(self):
        self.lock, self.counts, self.greedy, self.faults = threading.Lock(), {}, {}, []

    def count(self, what):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + 1

    def fault(self, what):
        with self.lock:
            self.faults.append(what)

    def same_again(self, asked, said):
        """The first answer to a greedy request stands for all."""
        with self.lock:
            first = self.greedy.setdefault(asked, said)
        if first != said:
            self.fault(f"another answer to the same greedy request: {first[:60]!r} and {said[:60]!r}")

    def sum(self, *names):
        with self.lock:
            return sum(self.counts.get(name, 0) for name in names)


class Client(threading.Thread):
    """One of several that ask without end, until `stop` is set."""

    def __init__(self, engine, tally, seed, stop, may_ask):
        super().__init__(daemon=True)
        self.engine, self.tally, self.stop, self.may_ask = engine, tally, stop, may_ask
        self.random = random.Random(seed)
        self.talks = []  # messages of conversations that may go on

    def say(self):
        n = self.random.choice((3, 10, 30, 90, 300))
        return " ".join(self.random.choice(WORDS) for _ in range(self.random.randint(1, n)))

    def messages(self):
        """A new conversation, the next turn of one, or another turn behind an early part of one."""
        if not self.talks or self.random.random() < 0.3:
            return [{"role": "user", "content": self.say()}]
        talk = self.random.choice(self.talks)
        turns = self.random.randint(1, len(talk) // 2) if self.random.random() < 0.3 else len(talk) // 2
        return talk[:2 * turns] + [{"role": "user", "content": self.say()}]

    def body(self):
        body = {"model": "deepseek-v4-demo", "messages": self.messages(), "max_tokens": self.random.randint(1, 60),
                "temperature": self.random.choice((0, 0, 0.8)), "stream": self.random.random() < 0.6,
                "seed": self.random.randint(0, 9)}
        extra = self.random.random()
        if extra < 0.1:
            body["tools"] = [TOOL]
        elif extra < 0.2:
            body["response_format"] = SCHEMA
        return body

    def post(self, body, key):
        link = http.client.HTTPConnection("127.0.0.1", self.engine.port, timeout=STUCK_S)
        link.request("POST", "/v1/chat/completions", json.dumps(body),
                     {"Authorization": f"Bearer {key}", "Content-Type": "application/json"})
        return link, link.getresponse()

    def refused(self):
        """Sends what must not be served."""
        change, status = self.random.choice(REFUSED + [(None, 401)])
        key = "ds_AAAAAAAA_" + "x" * 32 if change is None else self.engine.keys[0]
        link, answer = self.post({**self.body(), **(change or {})}, key)
        answer.read()
        link.close()
        self.tally.count("refused")
        # an address that keeps coming without a valid key is told to wait
        if answer.status != status and answer.status != 429:
            self.tally.fault(f"{change}: {answer.status} and not {status}")

    def hang_up(self):
        """Leaves after the first piece of a stream: by then the engine has the request."""
        body = {**self.body(), "stream": True, "max_tokens": 1000}
        link, answer = self.post(body, self.random.choice(self.engine.keys))
        if answer.status == 200:
            answer.readline()
        self.tally.count({200: "hung up", 500: "empty"}.get(answer.status, f"status {answer.status}"))
        answer.close()
        link.close()

    def read(self, answer, streamed):
        """@return text, reason"""
        try:
            data = answer.read().decode()
        except http.client.IncompleteRead as cut:  # a stream that has begun ends so behind its fault
            data = cut.partial.decode()
            if '"engine_error"' in data:
                return "", "empty"
            raise
        if answer.status == 500 and json.loads(data)["error"]["code"] == "engine_error":
            return "", "empty"
        if not streamed:
            choice = json.loads(data)["choices"][0]
            return json.dumps([choice["message"].get("content"), len(choice["message"].get("tool_calls") or [])]), \
                choice["finish_reason"]
        events = [line[6:] for line in data.split("\n") if line.startswith("data: ")]
        if not events or events[-1] != "[DONE]":
            return data[-200:], "no end"
        choices = [c for event in events[:-1] for c in json.loads(event)["choices"]]
        text = "".join(c["delta"].get("content") or "" for c in choices)
        calls = {call["index"] for c in choices for call in c["delta"].get("tool_calls") or []}
        reason = next((c["finish_reason"] for c in choices if c.get("finish_reason")), "no reason")
        return json.dumps([text or None, len(calls)]), reason

    def ask(self):
        body, number = self.body(), self.random.randrange(2)
        again = self.random.random() < 0.3
        for _ in range(2 if again else 1):
            link, answer = self.post({**body, "stream": self.random.random() < 0.5}, self.engine.keys[number])
            kind = answer.getheader("Content-Type") or ""
            if answer.status not in (200, 500):
                answer.read()
                link.close()
                self.tally.count(f"status {answer.status}")
                if answer.status not in (400, 429):  # a conversation outgrows the context; the queue is full
                    self.tally.fault(f"status {answer.status}")
                self.talks = self.talks[-2:]
                return
            said, reason = self.read(answer, kind.startswith("text/event-stream"))
            link.close()
            self.tally.count("empty" if reason == "empty" else "answered")
            if reason == "empty":
                return
            if reason not in ("stop", "length", "tool_calls"):
                self.tally.fault(f"reason {reason}: {said}")
                return
            if body["temperature"] == 0:
                self.tally.same_again(json.dumps({**body, "stream": None}), said.replace('""', "null"))
        if "tools" not in body and "response_format" not in body:
            self.talks.append(body["messages"] + [{"role": "assistant", "content": json.loads(said)[0] or ""}])
            self.talks = self.talks[-6:]

    def run(self):
        while not self.stop.is_set():
            self.may_ask.wait()
            what = self.random.random()
            act = self.refused if what < 0.05 else self.hang_up if what < 0.2 else self.ask
            try:
                act()
            except Exception as error:  # a time-out, a reset, a malformed answer: each is a finding
                self.tally.fault(f"{act.__name__}: {error!r}")


def watch(engine, tally, may_ask, seconds):
    """Samples for so long, while nobody asks.  @return memory at every sample, without the kept answers"""
    curve, from_ = [], time.monotonic()
    for i in range(1, SAMPLES + 1):
        time.sleep(max(0, from_ + seconds * i / SAMPLES - time.monotonic()))
        may_ask.clear()
        if not engine.until(engine.idle):
            tally.fault("the engine is never idle, though nobody asks")
        status, resident, unplanned = engine.admin("status"), engine.proc("VmRSS") << 10, engine.unplanned()
        may_ask.set()
        curve.append(unplanned - status["turns_bytes"])
        if i % (SAMPLES // 10) == 0:
            print(f"# {time.monotonic() - from_:.0f} s: {resident >> 10} KiB, {unplanned >> 10} of them not planned, "
                  f"{status['turns_kept']} answers in {status['turns_bytes'] >> 10} KiB, {status['prefix_blocks']} blocks, {status['prefix_evicted']} evicted, "
                  f"{dict(sorted(tally.counts.items()))}", flush=True)
    return curve


def verdicts(engine, tally, clients, held, curve):
    """@return (what, whether it holds, note) of each claim"""
    yield "no client found anything wrong", not tally.faults, "; ".join(tally.faults[:5])
    stuck = sum(client.is_alive() for client in clients)
    yield "every request ended", stuck == 0, f"{stuck} clients wait"
    yield "the engine is idle", engine.until(engine.idle), str(engine.admin("status"))
    taken, sent = engine.admin("status")["requests"], tally.sum("answered", "empty", "hung up")
    yield "every request is accounted for", taken == sent, f"the engine took {taken}, clients sent {sent}"
    empty = tally.sum("empty")
    yield "few answers are empty", empty <= 2 + sent * EMPTY_MAX, f"{empty} of {sent}"
    yield "threads and descriptors are back", engine.until(lambda: engine.held() == held), f"{held}, {engine.held()}"
    middle, end = (int(statistics.median(part)) for part in (curve[SAMPLES // 4:SAMPLES // 2], curve[-SAMPLES // 4:]))
    yield "memory is flat", end - middle <= GROWTH_MAX, f"from {middle >> 10} to {end >> 10} KiB"
    engine.process.send_signal(signal.SIGTERM)
    yield "the engine ends cleanly", engine.process.wait(timeout=STUCK_S) == 0, ""


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: soak_clients.py SECONDS [SEED]")
    seconds, seed = float(sys.argv[1]), int(sys.argv[2] if len(sys.argv) == 3 else time.time())
    print(f"# seed {seed}", flush=True)
    failed = 0
    with tempfile.TemporaryDirectory(prefix="v4box-soak-") as folder:
        engine, tally, stop, may_ask = Engine(folder), Tally(), threading.Event(), threading.Event()
        may_ask.set()
        held = engine.held()
        clients = [Client(engine, tally, seed * CLIENTS + i, stop, may_ask) for i in range(CLIENTS)]
        for client in clients:
            client.start()
        curve = watch(engine, tally, may_ask, seconds)
        stop.set()
        for client in clients:
            client.join(STUCK_S)
        print("# KiB: " + " ".join(str(bytes_ >> 10) for bytes_ in curve))
        for number, (what, good, note) in enumerate(verdicts(engine, tally, clients, held, curve), 1):
            failed += not good
            print(f"{'ok' if good else 'not ok'} {number} - {what}" + ("" if good else f"\n# {note}"), flush=True)
        print(f"1..{number}")
    return failed > 0


sys.exit(main())
