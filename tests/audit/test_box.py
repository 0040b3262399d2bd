"""The suite `audit-box`: audits of an engine that serves, over its console, with kills and damage in between."""
import hashlib, json, os, signal, sys, tempfile, time

import jsonschema

from box import Box
from golden import case_ids, golden
from harness import DEMO, Tap, audit, planted, report

HERE = os.path.dirname(os.path.abspath(__file__))
SCHEMA = json.load(open(os.path.join(HERE, "report.schema.json")))
QUESTION = "Explain how a kettle works, please."


def wrong_words(tap, box):
    for line, word in (("audit guess", "usage"), ("audit all --budget 9m", "--budget"),
                       ("audit all --profile quickest", "quickest"), ("audit all --seed x", "--seed"),
                       ("audit all --seed", "--seed"), ("audit recall --items 0", "--items"), ("audit isolate", "--test"), ("audit logits --cpu", "no worker"),
                       ("audit isolate --test logits --pinned x", "--pinned"), ("audit soak --test logits", "--test"),
                       ("audit isolate --test floor", "--test"), ("audit floor --test logits", "--test"),
                       ("audit isolate --test logits --percent 4", "--percent"), ("audit abort", "no audit"),
                       ("audit report", "no audit"), ("audit report 1", "no report"), ("audit report x", "number"),
                       ("audit report 1 2", "usage"), ("audit diff 1 2", "no report"),
                       ("audit schedule daily 24:00 5m", "usage"), ("audit schedule daily 3:00 5m", "usage"),
                       ("audit schedule daily 03:00 9m", "usage"), ("audit schedule weekly", "usage")):
        answer = box.answer(line)
        tap.check(not answer["ok"] and word in answer["text"], f"refused: {line}")
    alone, status = box.answer("audit"), box.answer("audit status")
    tap.check(alone["ok"] and alone == status, "its name alone is `audit status`")
    listed = box.ask("audit list")
    rows, (budget,) = listed["rows"], [b for b in listed["budgets"] if b["budget"] == "5m"]
    tap.check(budget["seconds"] == 300 and budget["items"] == 64 and budget["needle_tokens"] == 8192, f"what a budget holds: {budget}")
    tap.check(len(rows) > 25 and all(row["legs"] for row in rows), f"{len(rows)} rows can be audited")


def killed(tap, box):
    """Killed behind its first test, and again and again."""
    begun = box.ask("audit floor --budget quick --seed 7 --profile official")
    _, quiet = box.say(QUESTION)
    other = box.answer("audit prompt")
    tap.check(begun["id"] == 1 and not other["ok"] and "audit 1 runs" in other["text"], "one audit at a time")
    box.until(lambda s: s["runs"] == 0 or s["done"] == 1, "its first test")
    box.stop(signal.SIGKILL)
    box.start()
    box.ended()
    whole = box.ask("audit report 1")
    tests = {test["name"]: test for test in whole["tests"]}
    tap.check(list(tests) == ["prove", "floor"] and whole["run"]["starts"] == 2 and whole["verdict"] == "PASS" and
              whole["run"]["state"] == "finished", f"killed behind its first test, it goes on: {whole['run']}")
    _, alone = report("floor", "--budget", "quick", "--seed", "7", "--profile", "official", "--context", "4096")
    own = {test["name"]: test for test in alone["tests"]}["floor"]
    tap.check({**own, "seconds": 0} == {**tests["floor"], "seconds": 0}, "it says what a model that nobody else uses says")
    tap.check(box.say(QUESTION)[1] == quiet, "an answer beside the audit is the one without")
    box.ask("audit recall --budget 3h --seed 7 --exclusive")
    for _ in range(3):
        box.until(lambda s: s["runs"] == 2 and s["step"], "its going on")
        box.stop(signal.SIGKILL)
        box.start()
    box.ended()
    cut = box.ask("audit report 2")
    tap.check(cut["run"]["state"] == "cut" and cut["verdict"] == "UNDECIDED",
              f"what kills its engine three times is cut: {cut['run']}")
    return whole


def soaked(box, rounds):
    """Waits until so many rounds of an audit that soaks are in its report."""
    def count(status):
        tests = box.ask("audit report")["tests"] if status["step"] == "soak" else []
        return len(tests) == 2 and tests[1]["n"] >= rounds
    return box.until(count, f"{rounds} rounds")


def aborted(tap, box):
    box.ask("audit soak --budget 3h --seed 7 --exclusive")
    soaked(box, 1)
    box.stop()
    box.start()
    status = soaked(box, 2)
    tap.check(status["runs"] == 3, "a clean stop interrupts it, too, and it goes on with its next round")
    box.ask("audit abort")
    box.ended()
    gone = box.ask("audit report")
    jsonschema.validate(gone, SCHEMA, cls=jsonschema.Draft7Validator)
    tap.check(gone["run"]["state"] == "aborted" and gone["run"]["id"] == 3 and gone["verdict"] == "UNDECIDED",
              f"aborted, it is {gone['verdict']}")
    numbers = gone["tests"][1]["numbers"]
    tap.check(numbers["prompt: PASS"] == numbers["floor: PASS"] == 1 and numbers["rounds"] == gone["tests"][1]["n"],
              f"its rounds are counted: {gone['tests'][1]['why']}")


def signed(tap, box, folder, whole):
    path = os.path.join(folder, "report.json")
    key = box.ask("audit key")["key"]

    def verify(value, by=key):
        json.dump(value, open(path, "w"))
        return audit("verify", path, "--key", by)[0]

    jsonschema.validate(whole, SCHEMA, cls=jsonschema.Draft7Validator)
    answer = box.answer("audit report 1")
    tap.check(verify(answer) == verify(answer["data"]) == 0, "a report is signed by the box, as an answer and alone")
    tap.check(verify(whole, key[:-1] + ("0" if key[-1] != "0" else "1")) == 1, "not by another key")
    tap.check(verify({**whole, "verdict": "FAIL"}) == 1, "a changed one is not")
    tap.check(verify({k: v for k, v in whole.items() if k != "signature"}) == 1, "nor one without signature")
    tap.check(verify(whole, key[1:]) == 2 and audit("verify", path)[0] == 2, "half a key, or none, is an error")
    page = box.answer("audit report 1 --html")["text"]
    tap.check(page.startswith("<!doctype html>") and "<h3>History</h3>" in page and
              page.index("<td>aborted</td>") < page.index("<td>cut</td>") < page.index("<td>finished</td>"),
              "it is a page, too, with the audits so far, newest first")
    tap.check(box.answer("audit diff 1 1")["text"] == "no difference\n" and
              "floor: was run in the first report only" in box.answer("audit diff 1 3")["text"], "diff by number")
    tap.check(os.stat(os.path.join(box.audits, "key")).st_mode & 0o077 == 0, "nobody else can read the secret key")


def scheduled(tap, box):
    tap.check(box.ask("audit schedule daily 03:00 5m")["schedule"] == "daily 03:00 5m", "scheduled")
    box.stop()
    box.start()
    status = box.ask("audit status")
    tap.check(status["schedule"] == "daily 03:00 5m" and status["runs"] == 0, "a restart keeps it, and begins nothing")
    box.stop()
    minute = time.strftime("%H:%M", time.gmtime(time.time() - 60))
    open(os.path.join(box.audits, "schedule"), "w").write(f"daily {minute} quick 0\n")
    box.start()
    status = box.until(lambda s: s["runs"] != 0, "the scheduled audit")
    box.ask("audit abort")
    box.ended()
    run = box.ask("audit report")["run"]
    tap.check(run["by"] == "schedule" and run["what"] == "all" and run["id"] == status["runs"], f"it is due: {run}")
    box.ask("audit schedule off")
    tap.check(not os.path.exists(os.path.join(box.audits, "schedule")), "off")
    box.stop()
    open(os.path.join(box.audits, "schedule"), "w").write("daily 03:00 5m\n")
    box.start()
    tap.check(box.ask("audit status")["schedule"] == "off", "a damaged schedule is none, and the box serves")


def measured(tap, box):
    numbers = box.metrics()
    last = box.ask("audit status")["last"]
    tap.check(numbers["v4box_audit_verdict"] == 3 and numbers["v4box_audit_alarm"] == 0 and last["state"] == "cut" and
              numbers["v4box_audit_timestamp_seconds"] == last["time"] and numbers["v4box_audit_running"] == 0,
              f"metrics of the last audit: {numbers}")


def replayed(tap, box, *words):
    box.ask("audit replay --pinned " + " ".join(words))
    box.ended()
    found = box.ask("audit report")
    jsonschema.validate(found, SCHEMA, cls=jsonschema.Draft7Validator)
    return found["tests"][0], found


def pinned(tap, box):
    """A request is pinned behind its answer, and one before it came; both are computed again."""
    for line, word in (("audit pin", "usage"), ("audit pin nobody", "newest"), ("audit unpin next", "pinned"),
                       ("audit replay --pinned nobody", "pinned"), ("audit floor --pinned nobody", "replay")):
        answer = box.answer(line)
        tap.check(not answer["ok"] and word in answer["text"], f"refused: {line}")
    drawn = {"temperature": 1, "top_p": 0.9, "frequency_penalty": 0.2}
    name, text = box.say(QUESTION, 40, **drawn, seed=11)
    box.ask(f"audit pin {name}")
    box.ask("audit pin next")
    box.say(QUESTION, 40, **drawn, tools=[{"type": "function", "function": {"name": "kettle", "parameters": {}}}])
    pins = box.ask("audit pins")["pins"]
    tap.check(len(pins) == 2 and pins[0]["id"] in name and pins[0]["answer_tokens"] <= 40 and
              pins[0]["seed"] != pins[1]["seed"], f"two are pinned: {[p['id'] for p in pins]}")
    test, found = replayed(tap, box, name)
    n = test["numbers"]
    tap.check(found["verdict"] == "PASS" and n["given again by its own profile"] == test["n"] == pins[0]["answer_tokens"] and
              n["parted"] == 0 and n["KL most"] == 0, f"it is drawn again from its seed: {test['why']}")
    test, found = replayed(tap, box, name, "--profile", "reference")
    tap.check(found["profile"]["name"] == "reference" and test["numbers"]["KL most"] > 0 and
              (test["numbers"]["first parted"] >= 0) == (test["verdict"] == "FAIL"), f"beside reference: {test['why']}")
    whole = json.dumps(found)
    tap.check(found["run"]["pinned"] == pins[0]["id"] and text[:16] not in whole,
              "the report has its id, and no word of it")
    box.ask(f"audit unpin {name}")
    tap.check(not box.answer(f"audit replay --pinned {name}")["ok"] and len(box.ask("audit pins")["pins"]) == 1, "unpinned")
    box.stop()
    box.start()
    tap.check(box.ask("audit pins")["pins"] == [], "nothing of it outlives the engine")


def broken(tap, folder):
    """A window that a stored prefix does not bring back: the request itself cannot be had again."""
    stale = planted("most of a window stale", ("engine/model/snapshot.c", "length - window, window, entry,",
                                     "length - window, window - 100, entry,"))
    box = Box(folder, "--sessions", "1", engine=stale)
    story = " ".join(f"Item {i} of the list is in box {i * 37 % 101}." for i in range(40))
    for text in (story, QUESTION):  # the second one takes the only timeline
        box.say(text, 4)
    name, _ = box.say(story, 64, temperature=2, seed=3)
    box.ask(f"audit pin {name}")
    test, found = replayed(tap, box, name)
    tap.check(test["numbers"]["tokens that were reused"] >= 128 and found["verdict"] == "FAIL" and
              test["numbers"]["given again by its own profile"] < test["n"] and test["numbers"]["parted"] == 0,
              f"control: a stale window is seen: {test['why']}")
    numbers = box.metrics()
    tap.check(numbers["v4box_audit_alarm"] == 1 and numbers["v4box_audit_alarms_total"] == 1 and "1 of them alarms" in
              box.answer("audit status")["text"], f"and somebody is woken: {numbers}")
    box.stop()


def searched(tap, folder):
    """A pinned request that a row of a profile answers otherwise, in a worker: the row is named, and nothing of the talk."""
    clamped = planted("clamp at a twentieth, served", ("kernels/cpu/cpu_experts.c", "(float)p->limit,",
                      "(float)(p->scale == MOE_SCALE_KERNEL ? p->limit / 20 : p->limit),"))
    box = Box(folder, "--worker", clamped)
    for line in ("copy reference mine", "row mine moe.scale kernel", "row mine attn.prefill bf16", "row mine head.logits bf16"):
        box.ask("profile " + line)
    talk = [("The serial number of the green lamp is KTM-4739.", "Noted."), ("Thank you.", "You are welcome."),
            ("What is the serial number of the green lamp? Answer with the value only.", None)]
    messages = [{"role": role, "content": text} for pair in talk for role, text in zip(("user", "assistant"), pair) if text]
    name, said = box.say("", messages=messages)
    box.ask(f"audit pin {name}")
    box.ask(f"audit isolate --pinned {name} --profile mine")
    box.ended()
    found = box.ask("audit report")
    jsonschema.validate(found, SCHEMA, cls=jsonschema.Draft7Validator)
    isolation, whole = found["isolation"], json.dumps(found)
    tap.check(isolation["test"] == "conversation" and isolation["culprits"] == [["moe.scale"]] and
              set(isolation["acquitted"]) == {"attn.prefill", "head.logits"} and len(isolation["tries"]) <= 12,
              f"a pinned request finds {isolation['culprits']} in {len(isolation['tries'])} verdicts")
    tap.check(isolation["conversation"]["exchanges"] == 3 and isolation["places"][0]["smallest"]["exchanges"] == 3 and
              found["run"]["pinned"] in name, f"it is told by its numbers: {isolation['conversation']}")
    place = isolation["places"][0]["first"]
    tap.check(found["engine"]["computes"] == "a worker" and "layer" not in place and "position" in place and
              "computed by a worker: nobody looks into its layers" in box.answer("audit report")["text"],
              f"that a worker computed is told, and no layer is made up: {place}")
    tap.check(len(said) > 3 and not any(word in whole for word in (said, "KTM", "green")), "nothing of the talk is in the report")
    box.stop()


def sent(tap, box, made):
    """A golden file comes as an operator sends it: what is none changes nothing.  -> its SHA-256"""
    text, path = json.dumps(made), os.path.join(box.audits, "golden.json")
    tap.check("audit golden <FILE" in box.ask("audit list")["golden"], "how a golden file comes here is told")
    wrong = {"of other weights": {**made, "model": {"name": "demo", "weights": "0" * 64}}, "made.by": {**made, "made": {}},
             "rows[1].position": {**made, "rows": made["rows"][:1] * 2},
             "ids: want": {**made, "ids": made["ids"] * 20 + made["ids"][:50]}}
    for word, one in wrong.items():
        answer = box.answer("audit golden", json.dumps(one))
        tap.check(not answer["ok"] and word in answer["text"] and not os.path.exists(path), f"refused: {answer['text']}")
    answers = [box.answer("audit golden", cut) for cut in ("", text[:-1], text + "x", " " * (8 << 20) + text)]
    tap.check(not any(a["ok"] for a in answers) and not os.path.exists(path), f"so is {[a['text'] for a in answers]}")
    sha256, by = hashlib.sha256(text.encode()).hexdigest(), made["made"]["by"]
    answer = box.answer("audit golden", text)
    tap.check(answer["ok"] and open(path).read() == text, f"one is taken as it is: {answer['text']}")
    box.answer("audit golden", text[:-2])
    told = f"100 rows of reference made by {by}, SHA-256 {sha256}"
    tap.check(box.ask("audit list")["golden"] == told, "who made it is told; a bad one does not take its place")
    box.ask("audit no-golden")
    tap.check(not os.path.exists(path) and not box.answer("audit no-golden")["ok"] and
              "none" in box.ask("audit list")["golden"], "it can be taken away")
    box.ask("audit golden", text)
    return sha256


def lost(tap, folder):
    """The network computes in a process of its own, which is killed: the audit goes on without a restart, and holds it
    against the CPU's, and against what another program says in a golden file."""
    made = golden(DEMO, case_ids(), "reference")
    box = Box(folder, "--worker", "build/engine")
    sha256 = sent(tap, box, made)
    box.ask("audit logits --budget quick --seed 7 --cpu")
    box.until(lambda s: s["runs"] == 0 or s["done"] == 1, "its first test")
    tasks = f"/proc/{box.process.pid}/task"
    (worker,) = [pid for task in os.listdir(tasks) for pid in open(f"{tasks}/{task}/children").read().split()]
    os.kill(int(worker), signal.SIGKILL)
    box.ended()
    found = box.ask("audit report")
    jsonschema.validate(found, SCHEMA, cls=jsonschema.Draft7Validator)
    tap.check(found["verdict"] == "PASS" and found["run"]["starts"] == 2 and len(found["tests"]) == 2,
              f"a network that is lost meanwhile: {found['verdict']}, {found['run']}")
    *cpu, exact, own = found["tests"][1]["anchors"]
    tap.check([(a["what"], a["profile"], a["same_bits"]) for a in cpu] == [("cpu", "reference", 1), ("cpu", found["profile"]["name"], 1)],
              f"the CPU says the same: {cpu}")
    tap.check((exact["what"], exact["profile"], exact["made_by"]) == ("golden", "reference", made["made"]["by"]) and
              exact["sha256"] == own["sha256"] == sha256 and exact["kl"] < 1e-9 and exact["holds"] and own["holds"], f"so does another program: {exact}, {own}")
    box.stop()


def spent(pids):
    """Time that each process has computed, in ticks."""
    return [sum(map(int, open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[11:13])) for pid in pids]


def grouped(tap, folder):
    """Two groups: an audit runs on the one that it names, says so, and goes on there after a restart."""
    box = Box(folder, "--worker", "build/engine", "--ranks", "1", "--groups", "2")
    tasks = f"/proc/{box.process.pid}/task"
    workers = sorted(int(pid) for task in os.listdir(tasks) for pid in open(f"{tasks}/{task}/children").read().split())
    refused = box.answer("audit floor --group 3"), box.answer("audit floor --group 0")
    tap.check(all(not a["ok"] and "--group: want a number from 1 to 2" in a["text"] for a in refused), "refused: groups that are not there")
    for group in (2, 1):
        before = spent(workers)
        begun = box.answer(f"audit floor --budget quick --seed 7 --profile official --group {group}")
        box.ended()
        used = [now - was for was, now in zip(before, spent(workers))]
        found = box.ask("audit report")
        jsonschema.validate(found, SCHEMA, cls=jsonschema.Draft7Validator)
        text = box.answer("audit report")["text"]
        tap.check(f"on group {group} of 2" in begun["text"] and begun["data"]["group"] == group and found["verdict"] == "PASS" and
                  (found["run"]["group"], found["run"]["groups"]) == (group, 2) and f", on group {group} of 2 alone" in text,
                  f"an audit on group {group}: {begun['text']} {found['run']}")
        tap.check(used[group - 1] > 20 * max(used[2 - group], 1), f"that group's worker has computed it: {used} ticks")
    begun = box.ask("audit floor --budget quick --seed 7 --profile official --group 2")
    box.until(lambda s: s["runs"] == 0 or s["done"] == 1, "its first test")
    box.stop(signal.SIGKILL)
    box.start()
    box.ended()
    run = box.ask(f"audit report {begun['id']}")["run"]
    tap.check((run["group"], run["starts"], run["state"]) == (2, 2, "finished"), f"it goes on where it was: {run}")
    box.stop()


def damaged(tap, box):
    box.stop()
    path = os.path.join(box.audits, "0000001.json")
    text = open(path).read()
    open(path, "w").write(text.replace('"PASS"', '"FAIL"', 1))
    open(os.path.join(box.audits, "0000002.json"), "w").write("{")
    box.start()
    states = [entry["state"] for entry in box.ask("audit history")["audits"]]
    answers = [box.answer(f"audit report {i}") for i in (1, 2)]
    tap.check(states[:2] == ["damaged", "damaged"] and not any(a["ok"] for a in answers) and
              "not what this box has signed" in answers[0]["text"], f"damaged reports are not shown: {states}")


def without_folder(tap, box):
    box.stop()
    open(os.path.join(box.audits, "key"), "w").write("short")
    box.start()
    answer = box.answer("audit list")
    tap.check(not answer["ok"] and "no audits here" in answer["text"] and len(box.say(QUESTION)[1]) > 0,
              "a folder that can not be used is no reason not to serve")


def main():
    tap = Tap()
    with tempfile.TemporaryDirectory(prefix="v4box-box-") as folder:
        box = Box(folder)
        wrong_words(tap, box)
        whole = killed(tap, box)
        measured(tap, box)
        aborted(tap, box)
        signed(tap, box, folder, whole)
        scheduled(tap, box)
        pinned(tap, box)
        damaged(tap, box)
        without_folder(tap, box)
        box.stop()
    with tempfile.TemporaryDirectory(prefix="v4box-box-") as folder:
        broken(tap, folder)
    with tempfile.TemporaryDirectory(prefix="v4box-box-") as folder:
        searched(tap, folder)
    with tempfile.TemporaryDirectory(prefix="v4box-box-") as folder:
        lost(tap, folder)
    with tempfile.TemporaryDirectory(prefix="v4box-box-") as folder:
        grouped(tap, folder)
    return tap.end()


sys.exit(main())
