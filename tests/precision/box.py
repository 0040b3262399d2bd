"""Profiles on a booted box, over its serial line: switched while clients stream, cut off by the power, and on a full disk.

    box.py               all parts: switch, cuts, full
    box.py NAME ... [--patches N] [--cuts N] [--seed N]      only these, only so many

switch boots once: each patch of tools/inventory.py that may serve goes into a profile of the operator's, is proven and
serves while clients stream.  Every answer, with the logarithms of its probabilities, must be what a fresh engine on this
machine says under that profile, and no request may be lost.  cuts kills QEMU at random moments of `profile copy`, `row`,
`rollback` and `set`: what serves afterwards is what was acknowledged last or what was asked for, whole.  full fills the
partition `config`.  The model on the disk is a random one that has every kind of layer once: the embedded one takes minutes for
a proof on an emulated processor.  Prints TAP and the seconds without service."""
import hashlib, http.client, json, os, random, re, subprocess, sys, threading, time

import switch

sys.path.insert(0, os.path.join(switch.ROOT, "tests", "boot"))
sys.path.insert(0, os.path.join(switch.ROOT, "tools"))
import box as qemu  # noqa: E402
import disk  # noqa: E402
from box import equal, require  # noqa: E402
from inventory import NEVER_SERVES, PATCHES  # noqa: E402
from tap import Tap  # noqa: E402

tap = Tap()
JOB_S = 1800  # a proof on an emulated processor, on a machine that does much else
TOKENS = 12
FOLDER = os.path.join(switch.ROOT, "build", "precision", "box")
MODEL = os.path.join(FOLDER, "model")
DISK = os.path.join(FOLDER, "disk.img")
TOKENIZER = ("tokenizer.json", "tokenizer_config.json")
SERVABLE = [(row, value) for _, row, value in PATCHES if (row, value) != NEVER_SERVES]
LIMITS = {"--patches": len(SERVABLE), "--cuts": 10, "--seed": 6}
CUTS_BETWEEN_SETS = 5  # the others meet changes of the store, which follow each other without a proof
STORE = "/engine/profiles"


def make_disk():
    """The image's disk, with the small model in the place of the embedded one."""
    os.makedirs(FOLDER, exist_ok=True)
    subprocess.run(["rm", "-rf", MODEL, DISK], check=True)
    subprocess.run([os.path.join(switch.ROOT, "build", "synth"), "tests/data/precision/tiny.json", MODEL, "--seed", "1"],
                   cwd=switch.ROOT, check=True, stdout=subprocess.DEVNULL)
    for name in TOKENIZER:
        subprocess.run(["cp", os.path.join(switch.MODEL, name), MODEL], check=True)
    subprocess.run(["cp", "--sparse=always", disk.IMAGE, DISK], check=True)
    with disk.Partition("models", DISK) as models:
        old = sorted(set(os.listdir(switch.MODEL)) | set(os.listdir(MODEL)))
        models.debugfs(*(f"rm /demo/{name}" for name in old),
                       *(f"write {os.path.join(MODEL, name)} /demo/{name}" for name in os.listdir(MODEL)),
                       *(f"sif /demo/{name} mode 0100444" for name in os.listdir(MODEL)))


def boot(name):
    return qemu.Box(name, "--data", DISK)


def ready(box):
    box.serial.expect(re.escape("; help lists the commands"), qemu.BOOT_S)
    box.serial.expect(re.escape(qemu.PROMPT))
    box.wait_healthy()


def at_prompt(box):
    """Behind what the start has printed between prompts."""
    box.serial.type("\r")
    box.serial.expect(re.escape(qemu.PROMPT))


def typed(box, line):
    """A command whose answer may take a proof."""
    box.serial.type(line + "\r")
    box.serial.expect(re.escape(line) + r"\r\n", JOB_S)
    start = box.serial.seen
    box.serial.expect(re.escape(qemu.PROMPT), JOB_S)
    return box.serial.text[start: box.serial.seen]


# ---- switching under load ----------------------------------------------------------------------------


class Client(threading.Thread):
    """Streams one answer after another until it is told to stop.  What it was sent is (token, log probability), ..."""

    def __init__(self, box, number):
        super().__init__(daemon=True)
        port, self.key = int(box.read("url").rsplit(":", 1)[1]), box.read("api_key")
        self.connect = lambda: http.client.HTTPSConnection("127.0.0.1", port, timeout=JOB_S,
                                                           context=qemu.ANY_CERTIFICATE)
        self.number, self.answers, self.events, self.failed, self.go = number, [], [], None, True

    def run(self):
        turn = self.number
        while self.go:
            prompt = switch.PROMPTS[turn % len(switch.PROMPTS)]
            turn += 1
            try:
                self.answers.append((prompt, *stream(self.connect, self.key, prompt, self.events)))
            except Exception as error:  # noqa: BLE001  a lost request is what this test is about
                self.failed = f"{type(error).__name__}: {error}"
                return


def stream(connect, key, prompt, events, **more):
    """@return the profile of the header, and ((token, log probability), ...); adds a time for each event"""
    connection = connect()
    body = {"model": "deepseek-v4-precision-tiny", "temperature": 0, "max_tokens": TOKENS, "stream": True, "logprobs": True,
            "messages": [{"role": "user", "content": prompt}], **more}
    connection.request("POST", "/v1/chat/completions", json.dumps(body),
                       {"Authorization": f"Bearer {key}", "Content-Type": "application/json"})
    answer = connection.getresponse()
    require(answer.status == 200, f"status {answer.status}: {answer.read(300)}")
    said, reasoning, last = [], "", None
    for line in answer:
        if not line.startswith(b"data: "):
            continue
        last = line[6:].strip()
        for choice in json.loads(last)["choices"] if last != b"[DONE]" else []:
            tokens = (choice.get("logprobs") or {}).get("content") or []
            thought = choice["delta"].get("reasoning_content") or ""
            said += [(t["token"], t["logprob"]) for t in tokens]
            reasoning += thought
            events += [time.monotonic()] * bool(tokens or thought)
    said += [(reasoning, None)] * bool(reasoning)  # an answer's probabilities are those of its content
    require(last == b"[DONE]" and said, f"the stream ends with {last}")
    return answer.getheader("x-v4box-profile").split(";")[0], tuple(said)


def name_of(patch):
    return "only-" + patch[0].replace(".", "-")


def patch_lines(patch):
    return [f"profile copy official {name_of(patch)}", f"profile row {name_of(patch)} {patch[0]} {patch[1]}"]


def served(box, clients, profile):
    """Waits until every client was answered under a profile."""
    end = time.monotonic() + JOB_S
    while not all(any(a[1] == profile for a in c.answers) for c in clients):
        require(all(c.failed is None for c in clients), str([c.failed for c in clients]))
        require(time.monotonic() < end, f"nobody was answered under {profile}")
        time.sleep(0.5)


def longest_gap(clients, start, end):
    """The longest time in which a client was sent nothing."""
    gap = 0
    for client in clients:
        times = [start] + [t for t in client.events if start < t < end] + [end]
        gap = max([gap] + [b - a for a, b in zip(times, times[1:])])
    return gap


def switches(box, clients, patches):
    served(box, clients, "official")
    for line in patch_lines(NEVER_SERVES):
        said = typed(box, line)
    require("for audits alone" in said, said)
    for number, patch in enumerate(patches):
        for line in patch_lines(patch):
            require("is stored" in typed(box, line), line)
        how = "--drain" if number % 2 else "--now"
        start = time.monotonic()
        said = typed(box, f"profile set {name_of(patch)} {how}")
        proof = time.monotonic()
        require(": proven in" in said and "serves new requests" in said, said[:600])
        require(re.search(rf"^{re.escape(patch[0])} +{patch[1]} +live", said, re.M), said)
        served(box, clients, name_of(patch))
        end = time.monotonic()
        tap.note("%s %s %s: proven and answered in %.0f s, new answers for every client %.0f s later; the longest pause of a "
                 "client %.1f s" % (*patch, how, proof - start, end - proof, longest_gap(clients, start, end)))


def equals_fresh(answers, patches):
    """An engine of its own on this machine says the same."""
    fresh = switch.Box("fresh-patches", "--profile", "official", "--isa", "baseline", model=MODEL)

    def connect():
        return http.client.HTTPConnection("127.0.0.1", fresh.port, timeout=JOB_S)

    try:
        fresh.console(f"keys limit {fresh.key.split('_')[1]} profiles yes")
        for patch in patches:
            for line in patch_lines(patch):
                fresh.console(line)
        names = ["official", *map(name_of, patches)]
        said = {(p, n): stream(connect, fresh.key, p, [], profile=n)[1] for p in switch.PROMPTS for n in names}
    finally:
        fresh.stop()
    require({a[1] for a in answers} == set(names), "not every profile has answered")
    mixed = [(p, name) for p, name, text in answers if text != said[p, name]]
    require(not mixed, f"{len(mixed)} of {len(answers)} answers differ: {mixed[:4]}")
    same = [n for n in names[1:] if all(said[p, n] == said[p, "official"] for p in switch.PROMPTS)]
    require(len(same) <= len(patches) / 2, f"{same} can not be told from official by these answers")
    tap.note("told from official by these answers: all but %s" % (", ".join(same) or "none"))


def part_switch(limits):
    patches = SERVABLE[: limits["--patches"]]
    with boot("profiles") as box:
        if not tap.check("switch: the box comes up", ready, box):
            return
        tap.note("healthy %.0f s after power-on" % box.since_start())
        clients = [Client(box, number) for number in range(2)]
        for client in clients:
            client.start()
        done = tap.check("switch: %d patches are copied, proven and served on the serial line while clients stream"
                         % len(patches), switches, box, clients, patches)
        for client in clients:
            client.go = False
        for client in clients:
            client.join(JOB_S)
        history = box.serial.command("profile history") if done else ""
    lost = [c.failed for c in clients if c.failed is not None]
    tap.check("switch: no request is lost", require, not lost, str(lost))
    if done:
        tap.check("switch: the box remembers each of them", equal, len(re.findall(r"  set  ", history)), len(patches),
                  "switches in its history")
        answers = [a for c in clients for a in c.answers]
        tap.note("%d answers" % len(answers))
        tap.check("switch: each answer is that of a fresh engine under its profile", equals_fresh, answers, patches)


# ---- power cuts --------------------------------------------------------------------------------------


class Ledger:
    """What the store must say: who serves, who did before, and the own profiles with their hashes.  `may` is what it says
    if the command that the cut met was done as well; None: none was under way."""

    def __init__(self):
        self.is_now = {"serves": "official", "before": "official", "own": {}}
        self.may = None
        self.hashes = {}  # of official, and of official with the row changed
        self.made = self.acknowledged = 0
        self.seen = set()
        self.set_s = None  # how long a switch takes, once one has ended

    def next(self):
        """@return a command, having noted what it makes"""
        self.may = now = json.loads(json.dumps(self.is_now))
        spare = [n for n in now["own"] if n not in (now["serves"], now["before"], "mine")]
        fresh = [n for n in spare if now["own"][n] == self.hashes["copied"]]
        if fresh:
            now["own"][fresh[0]] = self.hashes["changed"]
            return f"profile row {fresh[0]} hc.mix bf16"
        if self.made % 3 == 2 and now["serves"] != now["before"]:
            self.made += 1
            now["serves"], now["before"] = now["before"], now["serves"]
            return "profile rollback"
        self.made += 1
        if len(spare) > 4:
            del now["own"][spare[0]]
            return f"profile delete {spare[0]}"
        now["own"][f"cut-{self.made}"] = self.hashes["copied"]
        return f"profile copy official cut-{self.made}"

    def acknowledge(self):
        self.is_now, self.may = self.may, None
        self.acknowledged += 1

    def check(self, found):
        require(found in (self.is_now, self.may), f"{found} is neither {self.is_now} nor {self.may}")
        self.seen.add("what was" if found == self.is_now else "what was asked for")
        self.is_now, self.may = found, None


def store_says(box):
    """@return what the console says of the store, as a Ledger has it"""
    shown, listed, history = (typed(box, "profile " + verb) for verb in ("show", "list", "history"))
    found = re.search(r"([\w-]+) \([0-9a-f]{16}\) serves, [\w ]+; before it ([\w-]+)", shown)
    require(found is not None and "ALARM" not in shown, shown[:300])
    require("lost" not in history, history)
    serves = re.search(r"^\* ([\w-]+) ", listed, re.M)
    require(serves and serves.group(1) == found.group(1), "list and show name two profiles: " + listed)
    own = dict(re.findall(r"^[* ] ([\w-]+) +([0-9a-f]{16})  own", listed, re.M))
    return {"serves": found.group(1), "before": found.group(2), "own": own}


def stored():
    """The file of profiles as the disk has it, its checksum checked here."""
    config = disk.Partition("config", DISK).copy()
    # The journal holds what the power did not let through; on the disk itself the box's kernel reads it.
    require(disk.tool("e2fsck", "-p", config.path).returncode in (0, 1), "the file system is damaged")
    config.check()
    text = config.debugfs("cat " + STORE)
    found = re.search(r"(v4box-profiles 1\n.*\n)sum ([0-9a-f]{64})\n", text, re.S)
    require(found is not None, "no file of profiles: " + text[-300:])
    equal(hashlib.sha256(found.group(1).encode()).hexdigest(), found.group(2), "the checksum of the file")
    return found.group(1)


def learn(box, ledger):
    """The two hashes."""
    for line, what in (("profile copy official mine", "copied"), ("profile row mine hc.mix bf16", "changed")):
        ledger.hashes[what] = re.search(r"\(([0-9a-f]{16})\) is stored", typed(box, line)).group(1)
    ledger.is_now["own"] = {"mine": ledger.hashes["changed"]}


def write_until_cut(box, ledger, seconds):
    """One command after another; what the console has answered counts."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        start = len(box.serial.text)
        line = ledger.next()
        box.serial.type(line + "\r")
        while time.monotonic() < end and box.serial.text.find(qemu.PROMPT, start) < 0:
            time.sleep(0.002)
        said = box.serial.text[start:]
        if qemu.PROMPT in said:
            require(re.search("is stored|deleted|serves", said), f"{line}: {said}")
            ledger.acknowledge()


def set_until_cut(box, ledger, chance):
    """A switch up to some moment of it; the first one up to its answer."""
    to = "mine" if ledger.is_now["serves"] != "mine" else "official"
    ledger.may = {**ledger.is_now, "serves": to, "before": ledger.is_now["serves"]}
    start, began = len(box.serial.text), time.monotonic()
    box.serial.type(f"profile set {to}\r")
    end = began + (JOB_S if ledger.set_s is None else chance.uniform(0.2, 1.2) * ledger.set_s)
    while time.monotonic() < end and "serves new requests" not in box.serial.text[start:]:
        time.sleep(0.002)
    if "serves new requests" in box.serial.text[start:]:
        ledger.acknowledge()
        ledger.set_s = time.monotonic() - began
        tap.note("a switch takes %.0f s" % ledger.set_s)


def survives(ledger, number, chance, cuts):
    with boot("profile-cuts") as box:
        ready(box)
        at_prompt(box)
        if number == 0:
            learn(box, ledger)
        else:
            ledger.check(store_says(box))
        if number < cuts:
            if number % CUTS_BETWEEN_SETS == CUTS_BETWEEN_SETS - 1:
                set_until_cut(box, ledger, chance)
            else:
                write_until_cut(box, ledger, chance.uniform(0.3, 4))
    # Leaving the block kills QEMU at once: the power is gone.
    stored()


def part_cuts(limits):
    cuts, chance, ledger = limits["--cuts"], random.Random(limits["--seed"]), Ledger()
    tap.note("seed %d" % limits["--seed"])
    for number in range(cuts + 1):
        what = "the box comes up" if number == 0 else f"boot {number} has what was or what is, whole"
        if not tap.check("cuts: " + what, survives, ledger, number, chance, cuts):
            return
    tap.check("cuts: changes were made at all", require, ledger.acknowledged > cuts, "too few")
    tap.check("cuts: a ledger that is one change behind is refused", refuses, ledger)
    tap.note("%d cuts; %d acknowledged changes; found: %s" % (cuts, ledger.acknowledged, ", ".join(sorted(ledger.seen))))


def refuses(ledger):
    ledger.may = None
    try:
        ledger.check({**ledger.is_now, "serves": "fast"})
    except qemu.Failure:
        return
    raise qemu.Failure("it takes anything")


# ---- a full disk -------------------------------------------------------------------------------------


def fill():
    with boot("profile-full") as box:
        ready(box)
        at_prompt(box)
        require("is stored" in typed(box, "profile copy official mine"), "no profile is stored")
        disk.end(box, "poweroff", "Power down")  # else the journal takes back what is written from outside
    big = os.path.join(FOLDER, "big")
    with open(big, "wb") as f:
        f.write(b"x" * (64 << 20))
    with disk.Partition("config", DISK) as config:
        config.debugfs("write %s /big" % big)


def refuses_changes(box, before):
    for line in ("profile copy official full", "profile row mine hc.mix bf16", "profile delete mine"):
        said = typed(box, line)
        require("No space left" in said and "is stored" not in said, f"{line}: {said[-400:]}")
    equal(store_says(box), before, "what the console says")
    require("official (" in typed(box, "profile show"), "another profile serves")


def part_full(_limits):
    if not tap.check("full: a profile is stored, and the partition filled from outside", fill):
        return
    text = stored()
    with boot("profile-full") as box:
        if tap.check("full: the box comes up", ready, box):
            at_prompt(box)
            before = store_says(box)
            tap.check("full: nothing is stored or switched, and the console says why", refuses_changes, box, before)
    tap.check("full: the file of profiles is what it was", equal, stored(), text, "its text")


PARTS = {"switch": part_switch, "cuts": part_cuts, "full": part_full}

if __name__ == "__main__":
    words = sys.argv[1:]
    limits = dict(LIMITS)
    while len(words) > 1 and words[-2] in limits:
        limits[words[-2]] = int(words[-1])
        del words[-2:]
    os.chdir(switch.ROOT)
    for part in words or PARTS:
        started = time.monotonic()
        if tap.check(part + ": a disk with the small model is made", make_disk):
            PARTS[part](limits)
        tap.note("%s took %.0f s" % (part, time.monotonic() - started))
    tap.end()
