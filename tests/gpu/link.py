"""The engine with a worker of its own process: the steps of `engine logits --worker PROGRAM` against what PROGRAM
computes when it is asked by itself, and against the stored golden values.

    link.py [--engine build/engine] [--worker build/worker] [--synth FILE] [GROUP...]

same      to the same byte: profiles, drafts, legs, cuts; cuts of any length
golden    stored cases, both numerics
demo      the embedded model on stored conversations, both profiles
killed    kill -9 of either ends the other

PROGRAM may be the engine, on a machine without a GPU."""
import argparse, json, os, sys
import numpy as np
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../golden"))
import harness, test_golden
from harness import DEMO, Engine, ROOT, agreement, relative
from test_golden import EXACT_LOGITS, EXACT_LOGPROB, PROFILES, stored

tap = test_golden.tap


class Linked(Engine):
    """An engine whose steps another process takes; `alone` is that process by itself."""

    def __init__(self, engine, worker, synth):
        super().__init__(engine, synth)
        self.worker, self.alone = worker, Engine(worker, synth)

    def logits_bytes(self, model, ids, profile, *flags):
        return super().logits_bytes(model, ids, profile, *flags, "--worker", self.worker)


def group_same(engine):
    rng = np.random.default_rng(8)
    for config in ("nano.json", "wide.json"):
        model, ids = engine.model(config, 1), rng.integers(0, 256, 420)
        cases = {name: (name,) for name in ("reference", "balanced", "fast")}
        cases["official, drafts"] = ("official", "--draft")
        cases["two legs"] = ("official", "--decode-from", "300", "--decode-profile", "fast", "--chunk", "50")
        outs = {}
        for what, flags in cases.items():
            flags = (*flags, "--positions", "0,200,-1")
            outs[what] = engine.alone.logits_bytes(model, ids, *flags)
            tap.check(engine.logits_bytes(model, ids, *flags) == outs[what], f"same: {config}, {what}")
        tap.check(len(set(outs.values())) == len(outs), f"same: {config}, control: the cases differ")
        whole = engine.logits_bytes(model, ids[:150], "official", "--draft")
        for chunk in ("1", "7", "64", "129"):
            cut = engine.logits_bytes(model, ids[:150], "official", "--draft", "--chunk", chunk)
            tap.check(cut == whole, f"same: {config}, in cuts of {chunk}")


def exact_agrees(out, case, what):
    got, want = [out["logits"][str(p)] for p in case["probes"]], case["logits"]
    e = relative(np.array(got), np.array(want)).max()
    d = np.abs(np.array(out["next_logprob"]) - np.array(case["next_logprob"])).max()
    draft = agreement(out["draft_top1"], case["draft_top1"]) if "draft_top1" in case else 1
    tap.note(f"{what}: relative error at most {e:.1e}, log-probability {d:.1e}")
    return bool(e <= EXACT_LOGITS and d <= EXACT_LOGPROB and agreement(out["top1"], case["top1"]) == 1 and draft == 1)


def group_golden(engine):
    agrees = {"exact": exact_agrees, "official": test_golden.official_agrees}
    for numerics, profile in PROFILES.items():
        for name, case in stored(numerics):
            out = engine.logits(engine.model(case["config"], case["seed"]), case["ids"], profile, case["probes"], "--draft")
            tap.check(agrees[numerics](out, case, name), f"golden: {name}")
    case["logits"] = np.roll(case["logits"], 1, axis=-1)
    tap.check(not agrees[numerics](out, case, "moved by one"), "golden: control: other values are refused")


def group_demo(engine):
    with open(os.path.join(harness.DATA, "demo-cases.json")) as f:
        rows = json.load(f)
    agrees = {"exact": test_golden.demo_exact, "official": test_golden.demo_official}
    for name, row in rows.items():
        for numerics, profile in PROFILES.items():
            out = engine.logits(DEMO, row["ids"], profile, [len(row["ids"]) - 2])
            tap.check(agrees[numerics](out, row, f"{name} {numerics}"), f"demo: {name}, {numerics}")


def group_killed(engine):
    much = engine.ids(np.random.default_rng(9).integers(0, 256, 20000), "much.json")
    args = ["logits", "--model", engine.model("nano.json", 1), "--profile", "reference", "--ids", much,
            "--worker", engine.worker]
    tap.check(test_golden.worker_killed(engine, args, False), "killed: the worker; its engine says so")
    tap.check(test_golden.worker_killed(engine, args, True), "killed: the engine; its worker goes too")


GROUPS = {"same": group_same, "golden": group_golden, "demo": group_demo, "killed": group_killed}

if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    for program in ("engine", "worker", "synth"):
        ap.add_argument("--" + program, default=os.path.join(ROOT, "build", program))
    ap.add_argument("groups", nargs="*", choices=[[], *GROUPS])
    a = ap.parse_args()
    engine = Linked(a.engine, a.worker, a.synth)
    for name in a.groups or GROUPS:
        try:
            GROUPS[name](engine)
        except (RuntimeError, KeyError) as fault:
            tap.check(False, f"{name}: {fault}")
    tap.end()
