"""The suite `audit`: reports of the embedded model, what two defects look like in them, and wrong input."""
import json, os, shutil, subprocess, sys, tempfile
import jsonschema
from golden import case_ids, golden
from harness import DEMO, ROOT, Tap, audit, planted, report

HERE = os.path.dirname(os.path.abspath(__file__))
SCHEMA = json.load(open(os.path.join(HERE, "report.schema.json")))


def valid(value):
    try:
        jsonschema.validate(value, SCHEMA, cls=jsonschema.Draft7Validator)
        return True
    except jsonschema.ValidationError as error:
        print(f"# {error.message}"[:300])
        return False


def whole_report(tap, folder):
    """Everything, in the published numerics: nothing may fail."""
    path, page, other = (os.path.join(folder, name) for name in ("official.json", "official.html", "golden.json"))
    json.dump(golden(DEMO, case_ids(), "reference"), open(other, "w"))
    status, text, errors = audit("all", "--model", DEMO, "--profile", "official", "--budget", "quick", "--json", path,
                                 "--html", page, "--worker", "build/engine", "--golden", other)
    official = json.load(open(path))
    verdicts = {t["name"]: t["verdict"] for t in official["tests"]}
    tap.check(status == 0 and list(verdicts) == ["prove", "rank", "prompt", "floor", "replay", "logits", "tools", "recall", "needle"],
              f"official: {verdicts}, {official['spent_s']:.0f} s {errors if status else ''}")
    states = {row["state"] for row in official["rows"] if row["counts"]}
    tap.check(verdicts["prove"] == "PASS" and len(official["rows"]) > 100 and not states,
              f"official is proven in {official['tests'][0]['numbers']}")
    tap.check(verdicts["prompt"] == verdicts["floor"] == verdicts["replay"] == verdicts["logits"] == "PASS",
              "official asks the same, equals itself, replays bit for bit, and holds its gates")
    ranked = {row["row"] for row in official["ranking"]}
    tap.check(verdicts["rank"] == "PASS" and {"moe.experts", "kv.entry"} < ranked and all(r["chosen"] for r in official["ranking"]),
              f"each of its rows alone costs what it may: {len(ranked)} of them")
    exact, cpu, made, own = official["tests"][5]["anchors"]
    tap.check(exact["what"] == cpu["what"] == "cpu" and exact["same_bits"] == cpu["same_bits"] == 1 and exact["profile"] == "reference" and
              exact["gate"] == 1e-8 and cpu["profile"] == "official" and cpu["n"] > 200 and made["what"] == own["what"] == "golden",
              f"what another process computes is what this one does: {cpu}")
    tap.check(made["profile"] == "reference" and made["kl"] < 1e-9 and made["same_top"] == 1 and 1e-6 < own["kl"] < own["gate"],
              f"another program's numbers are the reference's: {made}, and near the profile's: {own}")
    tap.check(verdicts["tools"] in ("PASS", "UNDECIDED"), f"official calls its tools: {verdicts['tools']}")
    tap.check(verdicts["recall"] == "PASS" and verdicts["needle"] == "PASS", "official loses no answer")
    tap.check(valid(official), "the report has the form of its schema")
    broken = json.loads(json.dumps(official))
    del broken["tests"][0]["gate"]
    broken["verdict"] = "FINE"
    tap.check(not valid(broken), "a report without a gate has not")
    html = open(page).read()
    tap.check("<h1>v4box audit" in html and html.count("<section>") == 9 and html.count("hsl(") >= 10,
              "the page shows every test and the cells of its grids")
    tap.check(not any(word in html for word in ("<script", "http:", "https:", "src=", "@import")),
              "the page loads nothing")
    tap.check(audit("show", path)[1] == text, "show prints what the run printed")
    tap.check(audit("diff", path, path) == (0, "", ""), "a report does not differ from itself")
    resumed(tap, folder, official)
    official["tests"][7]["verdict"], official["engine"]["isa"] = "FAIL", "abacus"
    other = os.path.join(folder, "other.json")
    json.dump(official, open(other, "w"))
    _, text, _ = audit("diff", path, other)
    tap.check("recall: PASS -> FAIL\n" in text and "-> abacus\n" in text and text.count("\n") == 2,
              "diff names what changed, and nothing else")


def resumed(tap, folder, whole):
    """An audit that was cut goes on with the test that is missing, and with no report but its own."""
    path = os.path.join(folder, "cut.json")
    args = ("all", "--model", DEMO, "--profile", "official", "--budget", "quick", "--resume", path, "--json", path)
    cut = {**whole, "tests": [t for t in whole["tests"] if t["name"] != "prompt"], "verdict": "UNDECIDED"}
    for wrong, word in (({"engine": {**whole["engine"], "weights": "0" * 64}}, "engine"), ({"seed": 2}, "seed"), ({"tests": 1}, "report")):
        json.dump({**cut, **wrong}, open(path, "w"))
        status, _, errors = audit(*args)
        tap.check(status == 2 and word in errors, f"not resumed: {errors.strip()[-80:]}")
    json.dump(cut, open(path, "w"))
    status, _, errors = audit(*args)
    again = json.load(open(path))
    tap.check(status == 0 and errors.startswith("audit: prompt .. PASS") and errors.count("..") == 1 and valid(again) and
              sorted(t["name"] for t in again["tests"]) == sorted(t["name"] for t in whole["tests"]) and
              again["verdict"] == whole["verdict"] and again["spent_s"] > whole["spent_s"], f"resumed: {errors.strip()}")


def defects(tap):
    """One in carried state, one in a row."""
    stale = planted("stale window", ("engine/model/snapshot.c", "length - window, window, entry,",
                                     "length - window, window - 9, entry,"))
    status, bad = report("replay", "--profile", "reference", engine=stale)
    why, (leg, *others) = bad["tests"][1]["why"], bad["tests"][1]["state"]
    tap.check(valid(bad) and status == 1 and bad["verdict"] == "FAIL" and not others and leg["leg"] == "restore" and
              leg["ways"] == ["stored prefix", "stored prefix, decoded"] and leg["layer"] == 0 and
              why.startswith("differs: carried state: restore (stored prefix; stored prefix, decoded), first in layer 0 at token "),
              f"a window that is not brought back: {why}")
    twice = planted("scaling twice", ("kernels/cpu/cpu_experts.c", "if (p->scale == MOE_SCALE_GATE) {", "{"))
    rows = "moe.scale=kernel,hc.mix=bf16,attn.decode=bf16,index.score=bf16"
    args = ("isolate", "--test", "logits", "--budget", "quick", "--profile", "reference," + rows)
    status, bad = report(*args, engine=twice)
    found = bad["isolation"]
    tap.check(valid(bad) and status == 1 and found["culprits"] == [["moe.scale"]] and len(found["tries"]) <= 12,
              f"the routed factor in gate and kernel: {found['culprits']} in {len(found['tries'])} verdicts")
    wrong = {(row["row"], row["state"]) for row in bad["rows"] if row["counts"]}
    tap.check(wrong == {("moe.scale", "wrong")} and bad["verdict"] == "INVALID" and len(bad["reference_rows"]) > 100,
              f"a search among rows that are not what they say is {bad['verdict']}: {wrong}")
    tap.check(set(found["acquitted"]) == {"hc.mix", "attn.decode", "index.score"},
              "the rows beside it are acquitted")
    status, good = report(*args)
    tap.check(status == 0 and [t["verdict"] for t in good["tests"]] == ["PASS"] and good["isolation"]["outcome"] == "no fault" and len(good["isolation"]["tries"]) == 1,
              "without the defect there is no fault to find")


def conversation(tap, folder):
    """A talk of the user's own that a defect breaks: the row, where it departs, and how little of the talk shows it."""
    small = [("Hello", "Hello! How can I help you?"), ("Thank you.", "You are welcome.")] * 2
    talk = [("The serial number of the green lamp is KTM-4739.", "Noted."), *small]
    messages = [{"role": role, "content": text} for pair in talk for role, text in zip(("user", "assistant"), pair)]
    messages.append({"role": "user", "content": "What is the serial number of the green lamp? Answer with the value only."})
    path = os.path.join(folder, "talk.json")
    json.dump({"messages": messages, "model": "any"}, open(path, "w"))
    clamped = planted("clamp at a twentieth", (
        "kernels/cpu/cpu_experts.c", "(float)p->limit,",
        "(float)(p->scale == MOE_SCALE_KERNEL ? p->limit / 20 : p->limit),"))
    rows = "reference,moe.scale=kernel,attn.prefill=bf16,attn.decode=bf16,head.logits=bf16"
    status, bad = report("isolate", "--conversation", path, "--profile", rows, engine=clamped)
    called = {t["name"]: t for t in report("tools", "--budget", "quick", "--profile", rows, engine=clamped)[1]["tests"]}["tools"]
    tap.check(called["verdict"] == "FAIL" and called["numbers"]["lost"] > 0, f"it calls no tools any more: {called['why']}")
    found = bad["isolation"]
    tap.check(valid(bad) and status == 1 and found["culprits"] == [["moe.scale"]] and len(found["tries"]) <= 12,
              f"a given talk: {found['culprits']} in {len(found['tries'])} verdicts")
    tap.check(found["conversation"]["exchanges"] == 6 and found["conversation"]["expected"] == "by the reference",
              f"the talk is told by its numbers: {found['conversation']}")
    place = found["places"][0]
    tap.check(place["first"]["layer"] == 0 and place["first"]["position"] == 0 and place["over"]["layer"] == 0,
              f"it departs in the first layer: {place['first']}, {place['over']}")
    smallest = place["smallest"]
    tap.check(len(smallest["kept"]) < 6 and 5 in smallest["kept"] and
              [t for t in smallest["tries"] if t["shows"]][-1]["exchanges"] == len(smallest["kept"]),
              f"less of it shows the same: exchanges {smallest['kept']}")
    tap.check(not any(word in json.dumps(bad) for word in ("KTM-4739", "green", "Thank")), "nothing of the talk is in the report")
    json.dump({"messages": messages, "expected": "QQQ-2222"}, open(path, "w"))
    status, good = report("isolate", "--conversation", path, "--profile", rows)
    tap.check(good["isolation"]["outcome"] == "model" and good["isolation"]["conversation"]["expected"] == "by the file",
              "what the reference does not answer either is nobody's fault")


def prompts(tap):
    """What is asked: a row of the prompt among rows of numbers, and an encoder that forgets a tag."""
    status, bad = report("isolate", "--test", "prompt", "--profile", "fast,think.default=flipped")
    found = bad["isolation"]
    tap.check(valid(bad) and status == 1 and found["culprits"] == [["think.default"]] == [found["prompt_rows"]],
              f"thinking where it was not asked for: {found['culprits']}, by {found['legs']}")
    tag = planted("close tag lost", ("engine/text/chat.c",
                                     "add_control(w, think ? CONTROL_THINK_OPEN : CONTROL_THINK_CLOSE);",
                                     "if (think || i + 1 == turns->n_turns)\n            "
                                     "add_control(w, think ? CONTROL_THINK_OPEN : CONTROL_THINK_CLOSE);"))
    status, bad = report("prompt", "--profile", "reference", engine=tag)
    why = bad["tests"][1]["why"]
    tap.check(status == 1 and why == "not as the published encoder writes it: multi-turn-chat",
              f"a close tag that history lost: {why}")


def unproven(tap):
    """A clamp that is never reached, whatever the profile: both sides of a comparison agree, and may not pass."""
    lost = planted("clamp never reached", ("kernels/cpu/cpu_experts.c", "(float)p->limit,", "1e30f,"))
    status, bad = report("floor", "--profile", "official", "--budget", "quick", engine=lost)
    verdicts = {t["name"]: t["verdict"] for t in bad["tests"]}
    tap.check(valid(bad) and status == 1 and bad["verdict"] == "INVALID" and verdicts["floor"] == "PASS",
              f"a run with an inert row is {bad['verdict']}: {verdicts}")
    rows = {(row["row"], row["state"]) for row in bad["rows"] if row["counts"]}
    tap.check(rows == {("moe.clamp", "inert")}, f"and names it: {rows}")


def neither(tap, folder):
    """No verdict on the profile: too few items fit, or the weights are noise and the reference answers nothing."""
    small = ("--profile", "official", "--context", "512")  # no request with tools fits
    status, few = report("tools", "--budget", "quick", *small)
    test = few["tests"][1]
    tap.check(valid(few) and status == 0 and few["verdict"] == test["verdict"] == "UNDECIDED" and test["n"] == 0,
              f"nothing was asked: {test['verdict']}, {test['why']}")
    noise = os.path.join(folder, "noise")
    os.mkdir(noise)
    subprocess.run(["build/synth", DEMO + "/config.json", noise, "--seed", "1"], check=True, cwd=ROOT,
                   stdout=subprocess.DEVNULL)
    for name in ("config.json", "tokenizer.json"):
        shutil.copy(os.path.join(ROOT, DEMO, name), noise)
    status, lost = report("needle", "--budget", "quick", "--items", "4", *small, model=noise)
    test = lost["tests"][1]
    tap.check(valid(lost) and status == 0 and lost["verdict"] == test["verdict"] == "MODEL",
              f"weights of noise: {test['verdict']}, {test['why']}")
    tap.check(test["n"] + test["numbers"]["did not fit"] == lost["items"] == 4 and test["why"].endswith("none asked of 512, 1024, 2048, 4096, 8192, 16384, 32000 tokens"),
              "no more items than were asked for, and what was not asked is told")


def wrong_input(tap, folder):
    torn = os.path.join(folder, "torn.json")
    open(torn, "w").write('{"schema": "v4box-audit/1", "tests": [')
    alien = os.path.join(folder, "alien.json")
    open(alien, "w").write('{"schema": "other", "tests": []}')
    for args, word in (
        ((), "32000 tokens"),
        (("guess",), "usage"),
        (("all",), "--model"),
        (("all", "--model", DEMO, "--budget", "9m"), "--budget"),
        (("all", "--model", DEMO, "--profile", "quickest"), "--profile"),
        (("all", "--model", DEMO, "--context", "1"), "--context"),
        (("recall", "--model", DEMO, "--items", "0"), "--items"),
        (("all", "--model", DEMO, "--profile", "fast,moe.scale=thrice"), "thrice"),
        (("isolate", "--model", DEMO, "--test", "floor"), "--test"),
        (("isolate", "--model", DEMO, "--test", "prompt", "--percent", "4"), "--percent"),
        (("isolate", "--model", DEMO, "--test", "logits", "--conversation", torn), "--conversation"),
        (("recall", "--model", DEMO, "--conversation", torn), "--conversation"),
        (("isolate", "--model", DEMO, "--conversation", torn), "torn.json"),
        (("isolate", "--model", DEMO, "--conversation", alien), "messages"),
        (("isolate", "--model", DEMO, "--conversation", "/nowhere/x"), "/nowhere/x"),
        (("all", "--model", folder), "tokenizer.json"),
        (("logits", "--model", DEMO, "--golden", alien), "alien.json: schema"),
        (("logits", "--model", DEMO, "--golden", ",".join([alien] * 5)), "alien.json: schema"),
        (("logits", "--model", DEMO, "--worker", "/nowhere/engine"), "/nowhere/engine"),
        (("show", os.path.join(folder, "nowhere")), "nowhere"),
        (("show", torn), "torn.json"),
        (("show", alien), "alien.json"),
        (("diff", alien), "two files"),
    ):
        status, text, errors = audit(*args)
        tap.check(status == 2 and text == "" and word in errors, f"refused: audit {' '.join(args)[:60]}")


def main():
    tap = Tap()
    with tempfile.TemporaryDirectory(prefix="v4box-audit-") as folder:
        wrong_input(tap, folder)
        prompts(tap)
        neither(tap, folder)
        whole_report(tap, folder)
        defects(tap)
        conversation(tap, folder)
        unproven(tap)
    return tap.end()


sys.exit(main())
