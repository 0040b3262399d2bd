"""`engine serve --worker PROGRAM` over HTTP: what another process computes is what this one would, and what becomes
of clients when it is lost.  worker.py [--worker PROGRAM] [--ranks N] [--gpus N] [--model DIR] [GROUP...]

chat     a conversation by curl, as a person would have it
same     answers, prefix reuse, guesses and the proof of a profile equal those of an engine that computes by itself
killed   kill -9 of the worker under load: what ran is told, what waits is answered, and all is as before
hung     a worker that is stopped is noticed by the watchdog, and by a proof that ran
faults   each way in which GPUs and ranks fail, planted in a worker: its reason is told, and it serves again
groups   two engines, each with a worker and a profile of its own, under load at once: what each says alone
load     a model that can not be loaded, and memory that is not there: clients are told, until it can
layout   how GPUs, made up here, are shared out by themselves and as they are told; what does not fit is not, and it serves
several  one engine with two groups: requests go to both, a conversation to who knows it; one of them is killed
gauges   what the console says of GPUs under load is what nvidia-smi says (where there is one)
size     kill -9 of a worker whose weights are made of a seed; on GPUs those of the published size (only when named)
Prints TAP, and after how long each worker computed again.  PROGRAM is the engine unless it is given; `same` holds for
that one alone, since a GPU sums in another order."""
import argparse, http.client, json, os, re, resource, signal, socket, subprocess, sys, tempfile, threading, time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ENGINE, NANO = os.path.join(ROOT, "build", "engine"), os.path.join(ROOT, "build", "serve", "nano")
STUCK_S = 300  # a bound on every wait, for a machine that has other work
HANGS_S = 10   # a step that takes longer hangs: far more than the longest takes on a machine that is busy
CONTEXT, SESSIONS = 2048, 2
LONG = "Tell me all about " + ", ".join(f"the gate {n}" for n in range(1, 60)) + "."
TURNS = [{"role": "user", "content": "Hello, my name is Nadia and I live in Oslo."}]
ASKED = [{"messages": TURNS, "temperature": 0, "max_tokens": 40},
         {"messages": TURNS, "temperature": 1, "seed": 7, "max_tokens": 40, "logprobs": True, "top_logprobs": 2},
         {"messages": [{"role": "user", "content": LONG}], "temperature": 0, "max_tokens": 20},
         {"messages": [{"role": "user", "content": LONG}, {"role": "assistant", "content": "Gates."},
                       {"role": "user", "content": "And the river?"}], "temperature": 0, "max_tokens": 20},
         {"messages": [{"role": "user", "content": "Is the gate red?"}], "seed": 3, "max_tokens": 40,
          "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": {
              "type": "object", "properties": {"yes": {"type": "boolean"}}, "required": ["yes"],
              "additionalProperties": False}}}}]
# Answers that a test ends, not the network: its rules let no end come before a million characters, and so many tokens
# are half a minute of the quickest GPU there is.
ENDLESS_TOKENS = 30000
ENDLESS = {"temperature": 0, "max_tokens": ENDLESS_TOKENS, "response_format": {"type": "json_schema", "json_schema": {
    "name": "endless", "strict": True, "schema": {
        "type": "object", "properties": {"text": {"type": "string", "minLength": 1000000}}, "required": ["text"],
        "additionalProperties": False}}}}
ROOM = ("--context", str(ENDLESS_TOKENS + CONTEXT))
results = []
GPUS = 0


def check(name, good, note=""):
    results.append(bool(good))
    print(f"{'ok' if good else 'not ok'} {len(results)} - {name}", flush=True)
    if not good:
        print("# " + str(note)[:1000].replace("\n", "\n# "), flush=True)


class Engine:
    def __init__(self, folder, model, *flags):
        os.makedirs(folder)
        context = () if "--context" in flags else ("--context", str(CONTEXT))
        self.path, self.model = os.path.join(folder, "admin"), model
        self.log = open(os.path.join(folder, "log"), "wb")
        self.process = subprocess.Popen(
            [ENGINE, "serve", "--model", model, "--listen", "127.0.0.1:0", "--keys", os.path.join(folder, "keys"),
             "--admin", self.path, "--metrics", "127.0.0.1:0", "--sessions", str(SESSIONS),
             *context, *flags],
            stdout=subprocess.PIPE, stderr=self.log, text=True)
        ports = [int(re.search(r":(\d+)$", self.process.stdout.readline().strip()).group(1)) for _ in range(2)]
        self.metrics_port, self.port = ports
        self.key = self.admin("keys", "create", "one")["data"]["secret"]

    def admin(self, command, *args):
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(STUCK_S)
            link.connect(self.path)
            link.sendall(json.dumps({"command": command, "args": args}).encode() + b"\n")
            return json.loads(b"".join(iter(lambda: link.recv(65536), b"")))

    def open(self, body):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=STUCK_S)
        connection.request("POST", "/v1/chat/completions", json.dumps({"model": "any", **body, **self.named()}),
                           {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"})
        return connection.getresponse()

    def named(self):
        if not hasattr(self, "name"):
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=STUCK_S)
            connection.request("GET", "/v1/models", headers={"Authorization": f"Bearer {self.key}"})
            self.name = json.loads(connection.getresponse().read())["data"][0]["id"]
        return {"model": self.name}

    def ask(self, body):
        """@return status, Retry-After, the answer"""
        answer = self.open(body)
        return answer.status, answer.getheader("retry-after"), json.loads(answer.read())

    def metric(self, name):
        connection = http.client.HTTPConnection("127.0.0.1", self.metrics_port, timeout=STUCK_S)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        return int(float(re.search(rf"^{re.escape(name)}\{{.*\}} (\S+)$", text, re.M).group(1)))

    def workers(self, n):
        """The processes that compute, once there are so many."""
        children = []
        def there():
            children[:] = [int(pid) for task in os.listdir(f"/proc/{self.process.pid}/task") for pid in
                           open(f"/proc/{self.process.pid}/task/{task}/children").read().split()]
            return len(children) >= n
        until(there)
        return sorted(children)

    def worker(self):
        return self.workers(1)[0]

    def idle(self):
        return self.metric("vllm:num_requests_running") + self.metric("vllm:num_requests_waiting") == 0

    def serves(self, losses):
        """Waits until as many workers were lost and the last one was replaced; says how long it was missed."""
        good = until(lambda: self.metric("v4box_worker_losses_total") == losses and
                     self.metric("v4box_worker_lost") == 0)
        missed = re.findall(r"computes again after (\d+) ms", open(self.log.name).read())
        print(f"# computes again after {int(missed[-1]) / 1000 if missed else -1:.2f} s", flush=True)
        return good

    def held(self):
        return {"threads": len(os.listdir(f"/proc/{self.process.pid}/task")),
                "descriptors": len(os.listdir(f"/proc/{self.process.pid}/fd")), "idle": self.idle()}

    def stop(self):
        """@return whether it went as it should, and its worker with it"""
        worker = self.worker()
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(timeout=STUCK_S)
        self.log.close()
        return status == 0 and until(lambda: not os.path.exists(f"/proc/{worker}"))


def until(good):
    """Asks until it is so, bounded."""
    end = time.monotonic() + STUCK_S
    while not good():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def said(answer):
    """What must not differ: all but ids and times."""
    status, _, body = answer
    return status, body.get("choices"), {k: v for k, v in body.get("usage", {}).items()}


class Later(threading.Thread):
    """A request whose answer is taken later."""

    def __init__(self, engine, body):
        super().__init__(daemon=True)
        self.engine, self.body, self.answer = engine, body, None
        self.start()

    def run(self):
        self.answer = self.engine.ask(self.body)

    def take(self):
        self.join(STUCK_S)
        return self.answer


def stream(engine, body, n):
    """A stream whose first n events were read."""
    answer = engine.open({**body, "stream": True})
    events = []
    while len(events) < n:
        line = answer.readline().decode().strip()
        if line.startswith("data: "):
            events.append(line[6:])
    return answer


def rest(answer):
    """What a stream says in the end.  One that breaks off has no last chunk, so that no client takes it for whole."""
    try:
        text = answer.read()
    except http.client.IncompleteRead as broken:
        text = broken.partial
    return [line[6:] for line in text.decode().splitlines() if line.startswith("data: ")][-1]


def end_within(answer, seconds):
    """The same of a stream that ends before so long; None: it goes on."""
    until, said = time.monotonic() + seconds, ""
    while time.monotonic() < until:
        try:
            line = answer.readline().decode()
        except http.client.IncompleteRead:
            return said
        if not line:
            return said
        said = line[6:].strip() if line.startswith("data: ") else said
    return None


# ---- groups ---------------------------------------------------------------------------------------------------------


def group_chat(folder, model, worker):
    engine = Engine(folder + "/chat", model, *worker)
    turns = []
    for text in ("Hello, my name is Nadia and I live in Oslo.", "Where do I live?"):
        turns.append({"role": "user", "content": text})
        body = json.dumps({**engine.named(), "messages": turns, "temperature": 0, "max_tokens": 60})
        run = subprocess.run(["curl", "-s", "-H", f"Authorization: Bearer {engine.key}",
                              "-H", "Content-Type: application/json", "-d", body,
                              f"http://127.0.0.1:{engine.port}/v1/chat/completions"],
                             capture_output=True, text=True, timeout=STUCK_S)
        answer = json.loads(run.stdout)
        turns.append(answer["choices"][0]["message"])
        print(f"# {text} -> {turns[-1]['content']!r}", flush=True)
        stops = answer["choices"][0]["finish_reason"] == "stop"
        check(f"chat: answer {len(turns) // 2}", stops and turns[-1]["content"], run.stdout)
    check("chat: it has read what was said before", "Oslo" in turns[-1]["content"], turns)
    check("chat: it stops as ever", engine.stop())


def group_same(folder, model, worker):
    alone = Engine(folder + "/alone", model, "--draft", "2")
    linked = Engine(folder + "/linked", model, "--draft", "2", *worker)
    pairs = [(said(alone.ask(body)), said(linked.ask(body))) for body in ASKED]
    check("same: answers, log-probabilities, a schema, and how much was reused", all(a == b for a, b in pairs), pairs)
    reused = [a[2]["v4box"]["reused_tokens"] if "reused_tokens" in a[2].get("v4box", {}) else
              a[2]["prompt_tokens_details"]["cached_tokens"] for a, _ in pairs]
    check("same: control: no two of them are the same",
          all(a[0][1] != b[0][1] for a in pairs for b in pairs if a is not b))
    check("same: a prefix of 128 tokens and more was reused", max(reused) >= 128, reused)
    check("same: guesses were made, and as many were right",
          linked.metric("vllm:spec_decode_num_draft_tokens_total") > 0 and
          all(alone.metric(f"vllm:spec_decode_num_{what}_tokens_total") ==
              linked.metric(f"vllm:spec_decode_num_{what}_tokens_total") for what in ("draft", "accepted")))
    alone.process.kill()
    check("same: the worker goes with its engine", linked.stop())
    verify = [ENGINE, "profile", "verify", "--model", NANO, "--profile"]
    for profile in ("balanced", "official,moe.scale=kernel"):
        texts = [subprocess.run([*verify, profile, *flags], capture_output=True, text=True, timeout=STUCK_S)
                 for flags in ((), ("--worker", ENGINE))]
        proofs = [(run.returncode, re.sub(r"[0-9.]+ s\b", "", run.stdout)) for run in texts]
        check(f"same: the proof of {profile}, by what the worker's operations wrote",
              proofs[0] == proofs[1] and "live" in proofs[0][1], proofs)


def group_killed(folder, model, worker):
    engine = Engine(folder + "/killed", model, *worker, *ROOM)
    held, wanted = engine.held(), said(engine.ask(ASKED[0]))
    # Two that run until the kill, however quick the worker; the others wait behind them.
    for losses in (1, 2):
        answer = stream(engine, {**ENDLESS, "messages": [{"role": "user", "content": LONG}]}, 3)
        waits = []
        for n in range(4):
            asked = ENDLESS if n == 0 else {**ASKED[1], "max_tokens": 300}
            waits.append(Later(engine, {**asked, "messages": [{"role": "user", "content": LONG + str(n)}]}))
            until(lambda: engine.metric("vllm:num_requests_running") == SESSIONS and
                  engine.metric("vllm:num_requests_waiting") == len(waits) + 1 - SESSIONS)
        os.kill(engine.worker(), signal.SIGKILL)
        check(f"killed: the running stream is told ({losses})", "engine_restarting" in rest(answer))
        answers = [wait.take() for wait in waits]
        lost = [a for a in answers if a[0] == 503]
        check("killed: of the others the one that ran hears 503 and when to come back, those that waited are answered"
              f" ({losses})",
              len(lost) == 1 and lost[0][1] == "5" and lost[0][2]["error"]["code"] == "engine_restarting" and
              all(a[0] in (200, 503) for a in answers), [(a[0], a[1]) for a in answers])
        check(f"killed: it serves again ({losses})", engine.serves(losses))
    got = said(engine.ask(ASKED[0]))
    check("killed: the answer is what it was", got[:2] == wanted[:2], (got, wanted))
    os.kill(engine.worker(), signal.SIGKILL)  # while nobody asks for anything
    check("killed: a worker that dies in between is replaced", engine.serves(3))
    check("killed: the next request does not notice", said(engine.ask(ASKED[0]))[:2] == wanted[:2])
    until(engine.idle)
    check("killed: nothing is left over", until(lambda: engine.held() == held), (engine.held(), held))
    check("killed: and it stops as ever", engine.stop())


def group_hung(folder, model, worker):
    engine = Engine(folder + "/hung", model, *worker, *ROOM, "--worker-limit", str(HANGS_S))
    answer = stream(engine, {**ENDLESS, "messages": [{"role": "user", "content": LONG}]}, 2)
    proof = threading.Thread(target=lambda: proofs.append(engine.admin("profile", "verify")), daemon=True)
    proofs = []
    proof.start()
    until(lambda: engine.admin("profile", "list") is not None)
    stopped = engine.worker()
    os.kill(stopped, signal.SIGSTOP)
    check("hung: the watchdog ends it, and the running stream is told", "engine_restarting" in rest(answer))
    check("hung: it serves again", engine.serves(1) and engine.ask(ASKED[0])[0] == 200)
    check("hung: nothing of it is left", engine.worker() != stopped and not os.path.exists(f"/proc/{stopped}"))
    proof.join(STUCK_S)
    check("hung: a proof that ran meanwhile is none", proofs and '"complete": false' in json.dumps(proofs[0]) or
          proofs and not proofs[0].get("ok", True), proofs)
    check("hung: and it stops as ever", engine.stop())


FAULTY = os.path.join(ROOT, "build", "faulty")
LIMIT_S = 4  # of a step of a few tokens: ranks then wait three quarters of it for one that hangs


def group_faults(folder, model, _):
    program = os.path.join(folder, "faulty")
    os.symlink(FAULTY, program)
    engine = Engine(folder + "/faults", model, "--worker", program, "--ranks", "2", "--worker-limit", str(LIMIT_S))
    asked = {"messages": [{"role": "user", "content": "Hi"}], "temperature": 0, "max_tokens": 4}
    wanted = said(engine.ask(asked))
    check("faults: control: without a plan nothing fails", wanted[0] == 200 and engine.metric("v4box_worker_losses_total") == 0)
    # What is planned, and what the log then says; the last three come one behind another.
    plans = [(("device",), ["the worker ended with status 1: GPU 1 failed: an illegal memory access was encountered;"]),
             (("hang", "memory", "peers"), ["the worker ended with status 1: ranks: rank 1 of 2 has not come within 3000 ms;",
              "the worker does not serve: weights: GPU 1: 80.0 GiB of weights; 12.5 of 94.9 GiB of memory are free;",
              "the worker ended with status 1: GPU 1 failed: peer mapping resources exhausted;"])]
    for losses, (plan, says) in enumerate(plans, 1):
        with open(program + ".part", "w") as part:
            part.write("".join(word + "\n" for word in plan))
        os.rename(program + ".part", program + ".plan")
        told = engine.ask(asked)
        check(f"faults: {', '.join(plan)}: who asks hears 503 and when to come back",
              (told[0], told[1], told[2].get("error", {}).get("code")) == (503, "5", "engine_restarting"), told)
        check(f"faults: {', '.join(plan)}: it serves again, as before",
              engine.serves(losses) and said(engine.ask(asked))[:2] == wanted[:2])
        log = open(engine.log.name).read()
        check(f"faults: {', '.join(plan)}: each reason is told once, in order",
              [log.count(line) for line in says] == [1] * len(says) and
              sorted(says, key=log.index) == says and open(program + ".plan").read() == "", log)
    check("faults: and it stops as ever", engine.stop())


def loads_in_vain(engine, what, breaks, mends, says):
    wanted = said(engine.ask(ASKED[0]))
    breaks()
    os.kill(engine.worker(), signal.SIGKILL)
    until(lambda: engine.metric("v4box_worker_lost") == 1)
    status, retry, body = engine.ask(ASKED[0])
    check(f"load: {what}: who waits is told in the end",
          (status, retry, body["error"]["code"]) == (503, "5", "engine_restarting"), (status, retry, body))
    engine.log.flush()
    check(f"load: {what}: the log has the reason", says in open(engine.log.name).read(), open(engine.log.name).read())
    mends()
    check(f"load: {what}: then it serves again, as before",
          engine.serves(1) and said(engine.ask(ASKED[0]))[:2] == wanted[:2])
    check(f"load: {what}: and stops as ever", engine.stop())


def group_load(folder, model, worker):
    link = os.path.join(folder, "model")
    os.symlink(model, link)
    engine = Engine(folder + "/load", link, *worker)
    loads_in_vain(engine, "no model", lambda: os.unlink(link), lambda: os.symlink(model, link),
                  "the worker does not serve")
    engine = Engine(folder + "/memory", model, *worker)
    # A little more than the engine has: its worker needs more.
    room = 4096 * int(open(f"/proc/{engine.process.pid}/statm").read().split()[0]) + (4 << 20)
    usual = resource.prlimit(engine.process.pid, resource.RLIMIT_AS)
    loads_in_vain(engine, "no memory",
                  lambda: resource.prlimit(engine.process.pid, resource.RLIMIT_AS, (room, usual[1])),
                  lambda: resource.prlimit(engine.process.pid, resource.RLIMIT_AS, usual), "memory")


def group_groups(folder, model, worker):
    """On GPUs the second one has those behind the first one's."""
    profiles, ranks = ("official", "reference"), int(worker[worker.index("--ranks") + 1])
    engines = [Engine(f"{folder}/{profile}", model, *worker, "--profile", profile, *(("--gpu", str(at * ranks)) if at and GPUS > 1 else ()))
               for at, profile in enumerate(profiles)]
    bodies = [{"messages": [{"role": "user", "content": f"What is {n} and {n}?"}], "temperature": 1, "seed": n,
               "max_tokens": 24, "logprobs": True} for n in range(4)]
    begin = time.monotonic()
    wanted = [[said(engine.ask(body))[:2] for body in bodies] for engine in engines]
    alone = time.monotonic() - begin
    check("groups: control: two profiles do not say the same", wanted[0] != wanted[1])
    begin = time.monotonic()
    asked = [[Later(engine, body) for body in bodies for _ in range(2)] for engine in engines]
    got = [[said(later.take())[:2] for later in laters] for laters in asked]
    both = time.monotonic() - begin
    for at, profile in enumerate(profiles):
        check(f"groups: {profile}: beside another group it says what it says alone",
              got[at] == [answer for answer in wanted[at] for _ in range(2)], (got[at], wanted[at]))
    tokens = sum(len(answer[1][0]["logprobs"]["content"]) for answers in wanted for answer in answers)
    print(f"# groups: {tokens} tokens one behind another in {alone:.2f} s, {2 * tokens} at once in {both:.2f} s", flush=True)
    check("groups: both stop as ever", all([engine.stop() for engine in engines]))


def busy(pid):
    """Time that a process has computed, in ticks."""
    return sum(map(int, open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[11:13]))


def group_several(folder, model, worker):
    engine = Engine(folder + "/several", model, *worker, *ROOM, "--groups", "2")
    bodies = [{"messages": [{"role": "user", "content": f"What is {n} and {n}?"}], "temperature": 1, "seed": n,
               "max_tokens": 24, "logprobs": True} for n in range(4)]
    workers = engine.workers(2)
    wanted = [said(engine.ask(body))[:2] for body in bodies]
    before = [busy(pid) for pid in workers]
    laters = [Later(engine, body) for body in bodies for _ in range(3)]
    check("several: two groups at once say what one says alone",
          [said(later.take())[:2] for later in laters] == [answer for answer in wanted for _ in range(3)])
    check("several: both have computed", all(busy(pid) > was for pid, was in zip(workers, before)))
    turns = [said(engine.ask(ASKED[n]))[2] for n in (2, 3)]
    check("several: the next turn of a conversation finds what the first one left",
          turns[1]["prompt_tokens_details"]["cached_tokens"] >= 128, turns)
    proof = engine.admin("profile", "verify")
    check("several: a proof is that of each group", proof.get("ok") and "group 2 of 2" in json.dumps(proof), proof)
    # Both groups are full, and one request waits at each; then one group has places.
    answers = lambda end: stream(engine, {**ENDLESS, "messages": [{"role": "user", "content": LONG + end}]}, 1)
    until(engine.idle)
    said_before = engine.metric("vllm:generation_tokens_total")
    streams = [answers(end) for end in ("", "0", "1", "2")]
    waits = []
    for n in range(2):
        waits.append(Later(engine, bodies[n]))
        until(lambda: engine.metric("vllm:num_requests_waiting") == len(waits))
    for at in (0, 3):  # those of the first group: of equal ones the last that knew the beginning got the next
        streams[at].close()
    got = [said(wait.take())[:2] for wait in waits]
    check("several: who waits where there is no place goes where one is, as before",
          got == wanted[:2] and engine.metric("vllm:num_requests_running") == 2, (got, wanted[:2]))
    for at in (1, 2):
        streams[at].close()
    check("several: who leaves ends its request, whichever group has it", until(engine.idle) and
          engine.metric("vllm:generation_tokens_total") - said_before < ENDLESS_TOKENS)
    # Answers that run until the kill, as above, one in each group.
    streams = [answers(end) for end in ("3", "4")]
    os.kill(workers[0], signal.SIGKILL)
    until(lambda: engine.metric("v4box_worker_losses_total") == 1)
    ends = [end_within(answer, 1) for answer in streams]
    check("several: of two streams the one whose group is killed is told, the other goes on",
          None in ends and any("engine_restarting" in end for end in ends if end is not None), ends)
    check("several: meanwhile the other one answers", said(engine.ask(bodies[0]))[:2] == wanted[0])
    for answer in streams:
        answer.close()
    check("several: it serves again, with another worker",
          engine.serves(1) and len(set(engine.workers(2)) & set(workers)) == 1)
    check("several: and it stops as ever", engine.stop())


def made_folder(folder, model, config):
    """A model without weights: a configuration, and the model's words, with others that nobody says behind them."""
    os.makedirs(folder)
    for name in os.listdir(model):
        if name.endswith(".json") and "safetensors" not in name:
            with open(os.path.join(model, name)) as file:
                content = json.load(file)
            if name == "config.json":
                content = json.load(open(config))
            if name == "tokenizer.json":
                words = content["model"]["vocab"]
                size = json.load(open(config))["vocab_size"]
                for n in range(max([*words.values(), *(token["id"] for token in content["added_tokens"])]) + 1, size):
                    words[f"~{n}~"] = n
            with open(os.path.join(folder, name), "w") as file:
                json.dump(content, file)
    return folder


def group_size(folder, model, worker):
    config = os.path.join(ROOT, "tests", "data", "golden", "flash.json") if GPUS else os.path.join(model, "config.json")
    begin = time.monotonic()
    engine = Engine(folder + "/size", made_folder(folder + "/made", model, config), *worker, "--weights", "synth:5")
    print(f"# serves after {time.monotonic() - begin:.2f} s", flush=True)
    asked = {"messages": TURNS, "temperature": 0, "max_tokens": 16, "logprobs": True}
    begin = time.monotonic()
    wanted = said(engine.ask(asked))
    print(f"# an answer after {time.monotonic() - begin:.2f} s", flush=True)
    check("size: it answers", wanted[0] == 200 and wanted[2]["completion_tokens"] > 0, wanted)
    for losses in (1, 2):
        answer = stream(engine, {"messages": TURNS, "temperature": 1, "max_tokens": 1500}, 2)
        begin = time.monotonic()
        os.kill(engine.worker(), signal.SIGKILL)
        check(f"size: the running stream is told ({losses})", "engine_restarting" in rest(answer))
        check(f"size: it serves again, as before ({losses})",
              engine.serves(losses) and said(engine.ask(asked))[:2] == wanted[:2])
        print(f"# the next answer is whole {time.monotonic() - begin:.2f} s after the kill", flush=True)
    check("size: and it stops as ever", engine.stop())


# Number of the console, the same of nvidia-smi, a factor to its unit, and how far they may be apart: they are read up to
# seconds apart under load.  `used` has what the driver keeps for itself, which nvidia-smi tells apart.
GAUGES = [("temperature_celsius", "temperature.gpu", 1, 8), ("power_milliwatts", "power.draw", 1e3, 150e3),
          ("power_limit_milliwatts", "enforced.power.limit", 1e3, 1e3), ("memory_bytes", "memory.total", 1 << 20, 1 << 20),
          ("memory_used_bytes", "memory.used", 1 << 20, 2 << 30), ("clock_mhz", "clocks.sm", 1, 700),
          ("clock_max_mhz", "clocks.max.sm", 1, 0), ("ecc_corrected", "ecc.errors.corrected.volatile.total", 1, 0),
          ("ecc_uncorrected", "ecc.errors.uncorrected.volatile.total", 1, 0)]


def smi(*columns):
    """What nvidia-smi says, a row a GPU; None: it is not there."""
    try:
        run = subprocess.run(["nvidia-smi", "--query-gpu=" + ",".join(columns), "--format=csv,noheader,nounits"],
                             capture_output=True, text=True, timeout=STUCK_S)
    except FileNotFoundError:
        return None
    return [line.split(", ") for line in run.stdout.splitlines()]


def group_gauges(folder, model, worker):
    columns = ("pci.bus_id", "name", "driver_version", *(column for _, column, _, _ in GAUGES))
    engine = Engine(folder + "/gauges", model, *worker, *ROOM)
    load = stream(engine, {**ENDLESS, "messages": [{"role": "user", "content": LONG}]}, 1)
    told = {}
    def fresh():  # of a second reading, which is one under load
        told.update(engine.admin("gpu")["data"])
        return not GPUS or told.get("age_ms", STUCK_S * 1000) < 1000 and time.monotonic() > begin + 6
    begin = time.monotonic()
    check("gauges: the worker tells", until(fresh))
    rows = smi(*columns) or []
    load.close()
    print(f"# {json.dumps(told)}\n# {json.dumps(rows)}", flush=True)
    check("gauges: as many GPUs as nvidia-smi has", len(told["gpus"]) == len(rows) and len(rows) >= GPUS, told)
    for gpu in told["gpus"]:
        same = [row for row in rows if row[0].lower().endswith(gpu["bus"])]
        check(f"gauges: {gpu['bus']} by name and driver",
              len(same) == 1 and same[0][1:3] == [gpu["name"], told["driver"]], same)
        for at, (name, column, unit, apart) in enumerate(GAUGES, 3):
            known = same[0][at].replace(".", "", 1).isdigit()
            check(f"gauges: {gpu['bus']}: {name}", known == (gpu[name] is not None) and
                  (not known or abs(gpu[name] - float(same[0][at]) * unit) <= apart), (gpu[name], same[0][at]))
    ranks = [gpu["rank"] for gpu in told["gpus"] if gpu["rank"] is not None]
    check("gauges: the ranks are on GPUs of their own", not rows or ranks == list(range(len(ranks))) and ranks, told)
    check("gauges: and it stops as ever", engine.stop())


def group_layout(folder, model, _):
    program = os.path.join(folder, "shared")
    os.symlink(FAULTY, program)
    asked, answers = {"messages": [{"role": "user", "content": "Hi"}], "temperature": 0, "max_tokens": 4}, []
    def serves(gpus, layout, workers, says, logged=""):
        with open(program + ".gpus", "w") as file:
            file.write(gpus)
        engine = Engine(f"{folder}/layout-{gpus}-{layout}".replace(" ", "-"), model, "--worker", program, "--gpus", layout)
        answers.append(said(engine.ask(asked))[:2])
        told, log = engine.admin("gpu"), open(engine.log.name).read()
        check(f"layout: {layout} where there are {gpus}: {says}",
              len(engine.workers(workers)) == workers and told["data"]["layout"].startswith(says) and
              told["text"].startswith(says) and says in log and logged in log and logged in told["text"] + log, (told, log))
        check(f"layout: {layout} where there are {gpus}: it answers, and stops as ever",
              answers[-1][0] == 200 and answers[-1] == answers[0] and engine.stop(), answers)
    # Seen, ranks that the network needs, and those that are really there.
    serves("4 2 4", "auto", 2, "2 groups of 2 ranks (auto)")
    serves("8 4 8", "auto", 2, "2 groups of 4 ranks (auto)")
    serves("7 2 7", "auto", 3, "3 groups of 2 ranks (auto)")
    serves("1 1 1", "auto", 1, "1 group of 1 rank (auto)")
    serves("0 1 0", "auto", 1, "1 group of 1 rank (auto)")
    serves("4 2 4", "4x1", 4, "4 groups of 1 rank (set)")
    serves("4 2 4", "1x4", 1, "1 group of 4 ranks (set)")
    serves("4 2 4", "4x2", 2, "2 groups of 2 ranks (auto), for 4x2 can not be had", "8 GPUs are asked for, and 4 are there")
    serves("2 1 2", "1x4", 2, "2 groups of 1 rank (auto), for 1x4 can not be had", "GPUs 0 to 3 are asked for, and 2 are there")
    serves("4 2 2", "auto", 1, "1 group of 2 ranks (auto)", "group 2 of 2 serves not: the worker does not serve: ")
    engine = Engine(folder + "/layout-none", model, "--worker", "none", "--gpus", "2x4")
    check("layout: 2x4 without a worker: it answers", said(engine.ask(asked))[0] == 200 and
          engine.admin("gpu")["text"].startswith("no worker"))
    engine.process.kill()
    for flags, says in ((("--gpus", "3x3"), "--gpus: must be auto, or GROUPSxRANKS"),
                        (("--gpus", "1x2", "--ranks", "2"), "--gpus says what")):
        run = subprocess.run([ENGINE, "serve", "--model", model, "--listen", "127.0.0.1:0", "--keys", folder + "/none",
                              "--worker", program, *flags], capture_output=True, text=True, timeout=STUCK_S)
        check(f"layout: {' '.join(flags)} is refused", run.returncode == 2 and says in run.stderr, run.stderr)


GROUPS = {"chat": group_chat, "same": group_same, "killed": group_killed, "hung": group_hung, "faults": group_faults,
          "groups": group_groups, "load": group_load,
          "layout": group_layout, "several": group_several, "gauges": group_gauges, "size": group_size}


def main():
    global GPUS
    parser = argparse.ArgumentParser()
    parser.add_argument("--worker", default=ENGINE)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--gpus", type=int, default=0, help="of this machine; 0: the worker computes on processors")
    parser.add_argument("--model", default=os.path.join(ROOT, "rootfs", "models", "demo"))
    parser.add_argument("groups", nargs="*", choices=[[], *GROUPS])
    options = parser.parse_args()
    GPUS = options.gpus
    subprocess.run([os.path.join(ROOT, "tests", "serve", "network.sh")], check=True)
    with tempfile.TemporaryDirectory() as folder:
        for name in options.groups or [name for name in GROUPS if name not in ("gauges", "size")]:
            begin = time.monotonic()
            GROUPS[name](folder, options.model, ("--worker", options.worker, "--ranks", str(options.ranks)))
            print(f"# {name}: {time.monotonic() - begin:.0f} s", flush=True)
    print(f"1..{len(results)}")
    return not all(results)


sys.exit(main())
