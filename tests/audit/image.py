"""`make test-audit-image`: audits inside the booted image, fetched over SSH, whose every row and figure must be this machine's.

An emulated processor computes some tokens a second, so that few facts are asked: what is shown is that the image's own audit
says the same as the program outside of it says for the same seed, bit for bit.  Prints TAP."""
import json, os, subprocess, sys, time

import jsonschema

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "../.."))
sys.path[:0] = [os.path.join(ROOT, "tests", "boot"), os.path.join(ROOT, "tests", "golden")]
import box as qemu  # noqa: E402
from box import equal, require  # noqa: E402
from tap import Tap  # noqa: E402

SCHEMA = json.load(open(os.path.join(HERE, "report.schema.json")))
FOLDER = os.path.join(ROOT, "build", "audit", "image")
MODEL = "rootfs/models/demo"
JOB_S = 2400  # the proofs of two profiles on an emulated processor, on a machine that does much else
LOOK_S = 10
# One item for each way of carrying.  What is proven and asked of `fast` is of the reference, too: it is compared with it.
ORDER = ["--profile", "fast", "--budget", "quick", "--items", "3", "--seed"]
SEED = 7
TESTS = ("recall", "needle")
tap = Tap()


def asked(box, line):
    """The data of a command over SSH, which may be busy beyond the console's patience."""
    end = time.monotonic() + JOB_S
    while True:
        code, out, err = box.ssh(line + " --json", seconds=JOB_S)
        if code == 0:
            return json.loads(out)["data"]
        require(time.monotonic() < end, f"{line}: {out[:200]} {err[:200]}")
        time.sleep(LOOK_S)


def ended(box):
    end = time.monotonic() + JOB_S
    while (said := asked(box, "audit status"))["runs"]:
        require(time.monotonic() < end, f"the audit goes on and on: {said}")
        time.sleep(LOOK_S)


def fetch(box, number):
    """A report as a file."""
    path, report = os.path.join(FOLDER, f"report-{number}.json"), asked(box, f"audit report {number}")
    with open(path, "w") as file:
        json.dump(report, file)
    return path, report


def verify(path, key):
    return subprocess.run(["build/engine", "audit", "verify", path, "--key", key], capture_output=True).returncode


def pinned(box):
    """A request of a client is computed again."""
    asked(box, "audit pin next")
    body = {"model": "deepseek-v4-demo", "max_tokens": 8, "temperature": 0,
            "messages": [{"role": "user", "content": "Where is the kettle?"}]}
    status, answer = box.http("/v1/chat/completions", box.read("api_key"), body, JOB_S)
    equal(status, 200, answer[:200])
    (pin,) = asked(box, "audit pins")["pins"]
    asked(box, "audit replay --pinned " + pin["id"])
    ended(box)
    _, report = fetch(box, 1)
    test = report["tests"][0]
    require(report["verdict"] == "PASS" and test["numbers"]["given again by its own profile"] == test["n"] > 0, str(test)[:400])
    require("kettle" not in json.dumps(report), "the report tells the request")


def signature(box):
    path, report = fetch(box, 1)
    key = asked(box, "audit key")["key"]
    jsonschema.validate(report, SCHEMA, cls=jsonschema.Draft7Validator)
    equal(verify(path, key), 0, "exit code of verify")
    with open(path, "w") as file:
        json.dump({**report, "verdict": "FAIL"}, file)
    equal(verify(path, key), 1, "exit code for a report that was changed")
    code, page, _ = box.ssh("audit report 1 --html")
    require(code == 0 and page.startswith("<!doctype html>") and "http" not in page, page[:200])


def told(report):
    """What a report says of the facts, without when and how long."""
    _, test = report["tests"]
    return {key: report[key] for key in ("profile", "reference", "budget", "items", "seed")} | {"test": {**test, "seconds": 0}}


def live(report):
    """What is proven in both profiles, and where.  On the box rows of the prompt and of serving are, too."""
    return {(key, row["row"], row["value"], row["kind"], row["leg"]) for key in ("rows", "reference_rows")
            for row in report[key] if row["state"] == "live"}


def own(test, seed=SEED):
    """What this machine says, by the arithmetic that the emulated one has."""
    path = os.path.join(FOLDER, f"own-{test}.json")
    run = subprocess.run(["build/engine", "audit", test, "--model", MODEL, *ORDER, str(seed), "--isa", "baseline", "--json", path],
                         capture_output=True, text=True)
    require(run.returncode in (0, 1), run.stderr)
    return json.load(open(path))


def facts(box, test, number):
    """Begun on the serial line."""
    require(" runs: " in box.serial.command(" ".join(["audit", test, *ORDER, str(SEED)])), "no audit")
    here, other = own(test), own(test, SEED + 1)
    ended(box)
    path, there = fetch(box, number)
    equal(verify(path, asked(box, "audit key")["key"]), 0, "exit code of verify")
    proof, answers = there["tests"]
    tap.note(f"proofs of {len(live(there))} places: {proof['seconds']:.0f} s; {test}: {answers['seconds']:.0f} s, {answers['why']}")
    require(proof["verdict"] == "PASS" and answers["n"] == 3, str(answers)[:400])
    require(len(live(here)) > 200 and live(here) <= live(there), str(live(here) - live(there))[:400])
    equal(told(there), told(here), "what is said of the facts")
    require(told(other)["test"] != told(here)["test"], "control: another seed says the same")


def main():
    os.chdir(ROOT)
    os.makedirs(FOLDER, exist_ok=True)
    started = time.monotonic()
    with qemu.Box("audit-image") as box:
        if tap.check("the box comes up", box.wait_healthy):
            tap.check("a pinned request is given again", pinned, box)
            tap.check("a report over SSH is signed, and as this tree describes it", signature, box)
            box.serial.type("\r")  # behind what the start has printed between prompts
            box.serial.expect(qemu.PROMPT)
            for number, test in enumerate(TESTS, 2):
                tap.check(f"{test}, and the proofs behind it: every row, verdict and figure is this machine's", facts, box, test, number)
    tap.note("%.0f s" % (time.monotonic() - started))
    return tap.end()


sys.exit(main())
