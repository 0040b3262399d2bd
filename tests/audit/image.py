"""`make test-audit-image`: audits inside the booted image, on its serial line, with reports fetched over SSH and checked here.

The disk has the small model of tests/precision in the place of the embedded one, which takes minutes for every test on an
emulated processor: its weights are noise and know no fact, while what must be equal bit for bit is.  Prints TAP."""
import importlib.util, json, os, subprocess, sys, time

import jsonschema

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "../.."))
sys.path.insert(0, os.path.join(ROOT, "tests", "precision"))
spec = importlib.util.spec_from_file_location("profiles", os.path.join(ROOT, "tests", "precision", "box.py"))
profiles = importlib.util.module_from_spec(spec)
spec.loader.exec_module(profiles)
qemu, require, equal, tap, typed = profiles.qemu, profiles.require, profiles.equal, profiles.tap, profiles.typed

SCHEMA = json.load(open(os.path.join(HERE, "report.schema.json")))
FOLDER = profiles.FOLDER = os.path.join(ROOT, "build", "audit", "image")
MODEL = profiles.MODEL = os.path.join(FOLDER, "model")
profiles.DISK = os.path.join(FOLDER, "disk.img")
LOOK_S = 5
ROUNDS = 2
# The reference against itself needs one proof, which is most of an audit's time on an emulated processor.
ORDER = ("--profile", "reference", "--seed", "7")


def ended(box):
    end = time.monotonic() + profiles.JOB_S
    while "no audit runs" not in (said := box.ssh("audit status")[1]):
        require(time.monotonic() < end, "the audit goes on and on: " + said)
        time.sleep(LOOK_S)


def fetch(box, number):
    """A report as a file, over SSH."""
    code, out, err = box.ssh(f"audit report {number} --json")
    equal(code, 0, err or "exit code of audit report")
    path = os.path.join(FOLDER, f"report-{number}.json")
    with open(path, "w") as file:
        file.write(out)
    return path, json.loads(out)["data"]


def verify(path, key):
    return subprocess.run(["build/engine", "audit", "verify", path, "--key", key], cwd=ROOT, capture_output=True).returncode


def pinned(box):
    """A request of a client is computed again; everything by SSH."""
    equal(box.ssh("audit pin next")[0], 0, "exit code of audit pin")
    body = {"model": "deepseek-v4-precision-tiny", "max_tokens": 8, "temperature": 0,
            "messages": [{"role": "user", "content": "Where is the kettle?"}]}
    status, answer = box.http("/v1/chat/completions", box.read("api_key"), body, profiles.JOB_S)
    equal(status, 200, answer[:200])
    (pin,) = json.loads(box.ssh("audit pins --json")[1])["data"]["pins"]
    equal(box.ssh("audit replay --pinned " + pin["id"])[0], 0, "exit code of audit replay")
    ended(box)
    _, report = fetch(box, 1)
    test = report["tests"][0]
    require(report["verdict"] == "PASS" and test["numbers"]["given again by its own profile"] == test["n"] == 8, str(test)[:400])
    require("kettle" not in json.dumps(report), "the report tells the request")


def signature(box):
    key = box.ssh("audit key")[1].strip()
    path, report = fetch(box, 1)
    jsonschema.validate(report, SCHEMA, cls=jsonschema.Draft7Validator)
    equal(verify(path, key), 0, "exit code of verify")
    with open(path, "w") as file:
        json.dump({**report, "verdict": "FAIL"}, file)
    equal(verify(path, key), 1, "exit code for a report that was changed")
    code, page, _ = box.ssh("audit report 1 --html")
    require(code == 0 and page.startswith("<!doctype html>") and "http" not in page, page[:200])


def canary():
    """What this machine says of the text that all rounds of a soak share, by the arithmetic that the emulated one has."""
    path = os.path.join(FOLDER, "own.json")
    subprocess.run(["build/engine", "audit", "soak", "--model", MODEL, "--budget", "quick", *ORDER, "--isa", "baseline", "--json",
                    path], cwd=ROOT, check=True, capture_output=True)
    return json.load(open(path))["tests"][1]["canary"]


def soaks(box):
    """Rounds on the serial line until an operator has enough: the bits behind their common text are this machine's."""
    require(" runs: " in typed(box, "audit soak --budget 3h " + " ".join(ORDER)), "no soak")
    end = time.monotonic() + profiles.JOB_S
    while True:
        code, out, _ = box.ssh("audit report 2 --json")
        tests = json.loads(out)["data"]["tests"] if code == 0 else []  # it may be busy beyond the console's patience
        if len(tests) == 2 and tests[1]["n"] >= ROUNDS:
            break
        require(time.monotonic() < end, "too few rounds in time")
        time.sleep(LOOK_S)
    typed(box, "audit abort")
    ended(box)
    path, report = fetch(box, 2)
    equal(verify(path, box.ssh("audit key")[1].strip()), 0, "exit code of verify")
    proof, test = report["tests"]
    require(proof["verdict"] == "PASS", proof["why"])
    require(report["run"]["state"] == "aborted" and report["verdict"] == "UNDECIDED" and "failure" not in test, str(test)[:400])
    equal(test["canary"], canary(), "the canary")
    tap.note("proof: %.0f s; soak: %s" % (proof["seconds"], test["why"]))
    require("verdict: UNDECIDED" in typed(box, "audit report 2") and "2  " in typed(box, "audit history"), "no history")


def main():
    os.chdir(ROOT)
    if not tap.check("a disk with the small model is made", profiles.make_disk):
        return tap.end()
    started = time.monotonic()
    with profiles.boot("audit-image") as box:
        if tap.check("the box comes up", profiles.ready, box):
            profiles.at_prompt(box)
            for what, check in (("a pinned request is given again", pinned),
                                ("a report over SSH is signed, and as this tree describes it", signature),
                                ("a proof and a soak on the serial line, bit for bit as on this machine", soaks)):
                tap.check(what, check, box)
    tap.note("%.0f s" % (time.monotonic() - started))
    return tap.end()


sys.exit(main())
