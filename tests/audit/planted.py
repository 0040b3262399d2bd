"""Planted faults: engines with one seeded defect each, and what the audit makes of them.

    planted.py [--json FILE [--resume]] [--workers N] [--build] [NAME...]

A defect is some replacements in copies of source files (harness.py), or a value of a row.  A defect in a row must
be convicted by `isolate` with that row and no other, inside the bound of verdicts; of one in carried state
the legs must be named; one in the prompt must be named there; a harmless change must be acquitted, with its
figure.  Prints TAP as each search ends and a confusion table, which FILE has as JSON so far; with --resume what FILE has of
this very engine, model and defect is not searched again.  Searches run on a core each, as many at a time as there are
cores.  What is built of this very engine is not built again: with --build nothing else is done, and a machine without a
compiler can run the same command on what was built."""
import argparse, concurrent.futures, hashlib, json, os, signal, subprocess, sys, tempfile, threading, time
import golden, harness
from harness import Tap
from planted_kinds import *  # noqa: F403
from planted_outside import OUTSIDE

# Long enough for the window, the choice and several blocks of 128; a text of 100 tokens meets none of them.
GOLDEN_TEXT, GOLDEN_LOCK = ("needle-900", 400), threading.Lock()


def engine_of(name, fault):
    """-> the program with this defect"""
    return harness.planted(name, *fault.edits) if getattr(fault, "edits", None) else "build/engine"


def report(*args, engine="build/engine"):
    return harness.report(*args, "--threads", "1", engine=engine)


GATE = "if (p->scale == MOE_SCALE_GATE) {"
TWICE = (EXPERTS, GATE, "{")
TURNED = (STREAMS, "comb[j * HC_MULT + i] = k[j][i];",
          "comb[p->mix == HC_MIX_BF16 ? i * HC_MULT + j : j * HC_MULT + i] = k[j][i];")
HALVED = (ATTENTION, "int64_t at = oldest_of(position);",
          "int64_t at = p->math == ATTN_BF16_SPLIT_K && position > 63 ? position - 63 : oldest_of(position);")



def unlucky(n):
    """One run in n, a run being a text that begins anew, has a fifth of the scale."""
    return [
        (ATTENTION, "struct attention_job job = {.b = b, .p = p};",
         "struct attention_job job = {.b = b, .p = p};\n"
         "    static int64_t last; static uint32_t run; extern bool v4box_unlucky;\n"
         "    if (p->q_scaled && *p->at < last) run++;\n"
         "    if (p->q_scaled) last = *p->at;\n"
         f"    v4box_unlucky = (run * 2654435761u >> 8) % {n} == 0;"),
        (ATTENTION, "struct attention_job {", "bool v4box_unlucky;\nstruct attention_job {"),
        (ATTENTION, ".scale = p->q_scaled ? 1.0f", ".scale = p->q_scaled ? (v4box_unlucky ? 0.2f : 1.0f)")]


FAULTS = {
    # ---- rows
    "routed factor in gate and kernel": Row([["moe.scale"]], [TWICE]),
    "routed factor nowhere": Row([["moe.scale"]], [
        (EXPERTS, "if (p->scale == MOE_SCALE_KERNEL) {", "if (false) {")]),
    "clamp at a twentieth": Row([["moe.scale"]], [
        (EXPERTS, "(float)p->limit,", "(float)(p->scale == MOE_SCALE_KERNEL ? p->limit / 20 : p->limit),")]),
    "no clamp": Row([["moe.clamp"]], [], rows={**ROWS, "moe.clamp": "off"}),
    "mixing matrix the wrong way round": Row([["hc.mix"]], [TURNED]),
    "mixing matrix the wrong way round, in fast": Row([["hc.mix"]], [TURNED], rows=KEPT, base="fast"),
    "softmax scale in query and logits": Row([["attn.query"]], [
        (ATTENTION, ".scale = p->q_scaled ? 1.0f : (float)SOFTMAX_SCALE", ".scale = (float)SOFTMAX_SCALE")]),
    "queries turned by the other base": Row([["attn.qnorm"]], [
        (PROJECT, "rope = s->rope[ratio == 0 ? ROPE_WINDOW : ROPE_COMPRESSED];",
         "rope = s->rope[(ratio == 0) != (r->query_norm == ATTN_QNORM_BF16) ? ROPE_WINDOW : ROPE_COMPRESSED];")]),
    "four tokens of the window for sampled ones": Row([["attn.decode"]], [
        (ATTENTION, "int64_t at = oldest_of(position);",
         "int64_t at = p->math == ATTN_BF16_SPLIT_K && position > 3 ? position - 3 : oldest_of(position);")]),
    "half a window for sampled tokens": Ranked("attn.decode", ROWS["attn.decode"], [HALVED]),
    "half a window for sampled tokens, searched": Row([["attn.decode"]], [HALVED], legs="decode"),
    "scale of the wrong channels in entries": Row([["kv.entry"]], [
        (ATTENTION, "b->v->round(p->round_nope, entry, NOPE, entry));",
         "b->v->round(p->round_nope, entry, NOPE, entry));\n"
         "for (int i = 0; i < 64 && p->round_nope != ROUND_NONE; i++) entry[i] *= 2;")]),
    "index scores with the weights of other heads": Row([["index.score"]], [
        (COMPRESSOR, "float weight = (float)(weights[h] * scale)",
         "float weight = (float)(weights[(h + 1) % heads] * -scale)")], "needle", rows=CHOICE),
    "index keys in another layout": Row([["index.score"]], [
        (COMPRESSOR, "INDEX_HEAD_DIM, (int64_t)from + j);",
         "INDEX_HEAD_DIM, (int64_t)from + (p->score == INDEX_SCORE_BF16 ? (j * 2 + j * 2 / n) % n : j));")],
        "needle", rows=CHOICE),
    "approximate choice by the sign alone": Row([["index.topk"]], [
        (COMPRESSOR, "bits.u &= 0xfff00000u;", "bits.u &= 0x80000000u;")], "needle", rows=CHOICE),
    "two of them": Row([["hc.mix"], ["moe.scale"]], [TWICE, TURNED], bound=TWO),
    "scale thrice where the norm is in bf16": Row([["attn.qnorm", "attn.query"]], [
        (ATTENTION, "v->scale_norm(q, NULL, SOFTMAX_SCALE, HEAD_DIM, q);",
         "v->scale_norm(q, NULL, SOFTMAX_SCALE * (p->norm == ATTN_QNORM_BF16 ? 3 : 1), HEAD_DIM, q);")], bound=PAIR),
    "scale of a fifth in tiles": Row([["attn.prefill", "attn.query"]], [
        (ATTENTION, ".scale = p->q_scaled ? 1.0f", ".scale = p->q_scaled ? (p->math == ATTN_BF16 ? 0.2f : 1.0f)")],
        bound=PAIR),
    "one run in three": Row([["attn.query"]], unlucky(3), rows=FEW, percent=30),
    "one run in five": Row([["attn.query"]], unlucky(5), rows=FEW, percent=18),
    "routed factor twice in steps of one token": Row([["moe.scale"]], [
        (EXPERTS, GATE, "if (p->scale == MOE_SCALE_GATE || p->n == 1) {")], legs="decode"),
    "routed factor twice in steps of 100 tokens": Row([["moe.scale"]], [
        (EXPERTS, GATE, "if (p->scale == MOE_SCALE_GATE || p->n >= 100) {")], "replay", rows=FEW),
    "a row that goes wrong behind a stored prefix": Row([["attn.query"]], [
        (SNAPSHOT, "sequence->length = sequence->draft_length = length;",
         "sequence->length = sequence->draft_length = length;\n    extern int v4box_loaded;\n    v4box_loaded = length;"),
        (ATTENTION, "struct attention_job {", "int v4box_loaded;\nstruct attention_job {"),
        (ATTENTION, ".scale = p->q_scaled ? 1.0f",
         ".scale = p->q_scaled ? (*p->at >= v4box_loaded && v4box_loaded > 0 ? 1.01f : 1.0f)")],
        "replay", rows=FEW),
    "sampled tokens beside another": Row([["attn.decode"]], [
        (FORWARD, "struct place step_place(const struct step *step, enum layer_kind kind)\n{",
         "int v4box_decoded;\nstruct place step_place(const struct step *step, enum layer_kind kind)\n{\n"
         "    v4box_decoded = step->n_decode;"),
        (ATTENTION, "struct attention_job {", "extern int v4box_decoded;\nstruct attention_job {"),
        (ATTENTION, "1.0f : (float)SOFTMAX_SCALE};",
         "1.0f : (float)SOFTMAX_SCALE};\n"
         "    heads.scale *= p->math == ATTN_BF16_SPLIT_K && v4box_decoded > 1 ? 1.01f : 1.0f;")],
        "replay", rows={**FEW, "attn.decode": "bf16-split-k"}),
    "a group that is not there yet": Row([["attn.prefill"]], [
        (ATTENTION, "j < blocks; j++)", "j < blocks + (p->math == ATTN_BF16 && blocks > 0); j++)")],
        "replay", rows={**FEW, "attn.prefill": "bf16"}),
    # ---- carried state
    "stale window": State(["restore"], [
        (SNAPSHOT, "length - window, window, entry,", "length - window, window - 9, entry,")]),
    "lost overlap": State(["restore"], [
        (SNAPSHOT, "if (c->compress_ratios[layer] != RATIO_CSA)",
         "if (c->compress_ratios[layer] != RATIO_CSA || walk->way == LOAD)")]),
    "the page of the block before": State(["restore"], [
        (SNAPSHOT, "sequence_page_set(piece->sequence, piece->at, page_hold(pages, *kept));",
         "sequence_page_set(piece->sequence, piece->at, page_hold(pages, p->pages[piece->slot - (piece->slot > 0)]));")]),
    "a branch writes into a stored page": State(["restore"], [
        ("engine/model/pages.c", "if (p->holders[page] == 1)\n        return page;", "if (p->holders[page] >= 1)\n        return page;")]),
    "position after a stored prefix": State(["restore"], [
        (SNAPSHOT, "sequence->length = sequence->draft_length = length;",
         "sequence->length = sequence->draft_length = length;\n    extern int v4box_loaded;\n    v4box_loaded = length;"),
        (FORWARD, "step->spans[i].position + j;",
         "step->spans[i].position + j + (v4box_loaded > 0 && step->spans[i].position == v4box_loaded);"),
        (FORWARD, "static void step_begin(", "int v4box_loaded;\nstatic void step_begin("),
        (STATE, "s->length = s->draft_length = 0;",
         "s->length = s->draft_length = 0;\n    extern int v4box_loaded;\n    v4box_loaded = 0;")]),
    "rewind leaves a token": State(None, [
        (STATE, "    s->length = length;\n", "    s->length = length + (length == 131);\n")]),
    "position by the number of rows": State(["batch", "draft"], [
        (FORWARD, "step->spans[i].position + j;",
         "step->spans[i].position + j + (step->spans[i].n == 2);")]),
    "position of a token behind a guess": State(["draft"], [
        (FORWARD, "step->spans[i].position + j;",
         "step->spans[i].position + j + (step->spans[i].leg == LEG_DECODE && j > 0);")]),
    "compressor reset at the edge of a step": State(["chunk", "restore", "batch", "rewind"], [
        (COMPRESSOR, "from = overlap && block > 0 ? first - p->ratio : first;",
         "from = overlap && block > 0 && block != *p->at / p->ratio ? first - p->ratio : first;")]),
    "stale window, in a soak": Soaked("restore", [
        (SNAPSHOT, "length - window, window, entry,", "length - window, window - 9, entry,")]),
    # ---- the same in every profile
    "mixing matrix the wrong way round for all": Anchored("golden", [
        (STREAMS, "comb[j * HC_MULT + i] = k[j][i];", "comb[i * HC_MULT + j] = k[j][i];")]),
    "a worker that applies the routed factor nowhere": Anchored("cpu", [(EXPERTS, GATE, "if (false) {")]),
    # ---- where no test looks
    "routed factor twice in the draft block": Proven("moe.scale", "draft", [
        (EXPERTS, GATE, "if (p->scale == MOE_SCALE_GATE || p->place.kind == KIND_DRAFT) {")], FEW),
    # ---- prompt
    "thinking where it was not asked for": Prompt("think.default", [], "think.default", "flipped"),
    "close tag lost in history": Prompt("multi-turn-chat", [
        (CHAT, "add_control(w, think ? CONTROL_THINK_OPEN : CONTROL_THINK_CLOSE);",
         "if (think || i + 1 == turns->n_turns) add_control(w, think ? CONTROL_THINK_OPEN : CONTROL_THINK_CLOSE);")]),
    "blanks cut elsewhere": Prompt("the tokens of a text", [
        ("engine/text/pretokenize.c", "return stop == end || last == at ? stop : last;", "return stop;")]),
    "tools' results in the wrong order": Prompt("not as the published encoder writes it", [
        ("engine/text/chat_turns.c", "return found ? order->calls[low].index : 0;",
         "return found ? order->count - order->calls[low].index : 0;")]),
    # ---- harmless
    "mixing in bf16 on bf16 streams": Harmless("hc.mix", "bf16", {"hc.streams": "bf16", "act.store": "bf16"}),
    "queries in bf16": Harmless("attn.query", "bf16-scaled"),
    "index scores in bf16": Harmless("index.score", "bf16"),
}


def profile(rows, base="reference"):
    return ",".join([base, *(f"{row}={value}" for row, value in rows.items())])


def row_fault(name, fault):
    engine = engine_of(name, fault)
    _, got = report("isolate", "--test", fault.test, "--percent", str(fault.percent), "--budget", fault.budget,
                    "--profile", profile(fault.rows, fault.base), engine=engine)
    found = got["isolation"]
    named, n = sorted(sorted(rows) for rows in found["culprits"]), len(found["tries"])
    alone = max(found["kl_alone"][row] for rows in fault.culprits for row in rows)
    legs = fault.legs is None or found["legs"] == fault.legs
    return {"harmful": True, "flagged": fault.test, "verdict": found["outcome"], "legs": found["legs"],
            "named": named, "verdicts": n, "bound": fault.bound, "kl": alone,
            "good": found["outcome"] == "convicted" and named == fault.culprits and legs and n <= fault.bound}


def state_fault(name, fault):
    engine = engine_of(name, fault)
    try:
        status, got = report("isolate", "--test", "replay", "--profile", "reference", "--budget", "quick", engine=engine)
    except RuntimeError as error:
        status, got = str(error), {}
    if "isolation" not in got:  # the engine itself may notice first
        return {"harmful": True, "flagged": "replay", "verdict": "ABORT", "legs": "state",
                "named": [["a broken invariant" if status == -signal.SIGABRT else str(status)]], "verdicts": 1, "bound": 1,
                "kl": None, "good": fault.legs is None and status == -signal.SIGABRT}
    found = got["isolation"]
    seen = [leg["leg"] for leg in found.get("state", [])]
    return {"harmful": True, "flagged": "replay", "verdict": found["outcome"], "legs": found["legs"], "named": [seen],
            "verdicts": len(found["tries"]), "bound": ONE, "kl": None, "state": found.get("state"),
            "good": found["outcome"] == "carried state" and seen == fault.legs and "layer" in found["state"][0]}


def proof_fault(name, fault):
    _, got = report("floor", "--profile", profile(fault.rows), "--budget", "quick", engine=engine_of(name, fault))
    seen = sorted({(row["row"], row["kind"]) for row in got["rows"] if row["counts"]})
    return {"harmful": True, "flagged": "prove", "verdict": got["verdict"], "legs": "", "named": [list(s) for s in seen],
            "verdicts": 1, "bound": 1, "kl": None,
            "good": got["verdict"] == "INVALID" and seen == [(fault.row, fault.kind)]}


def served_fault(name, fault):
    run = subprocess.run([engine_of(name, fault), "profile", "verify", "--json", "--threads", "1", "--model", harness.DEMO, "--profile",
                          profile(fault.more, "official")], capture_output=True, text=True, cwd=harness.ROOT)
    wrong = sorted(row["row"] for row in json.loads(run.stdout)["rows"] if any(place["state"] == "wrong" for place in row["places"]))
    return {"harmful": True, "flagged": "prove", "verdict": "wrong" if wrong else "proven", "legs": "", "named": [wrong],
            "verdicts": 1, "bound": 1, "kl": None, "good": wrong == fault.rows}


def ranked_fault(name, fault):
    _, got = report("rank", "--profile", profile({fault.row: fault.value}), engine=engine_of(name, fault))
    (test,) = got["tests"]
    (cost,) = [max(r["kl_prefill"], r["kl_decode"]) for r in got["ranking"] if (r["row"], r["value"]) == (fault.row, fault.value)]
    return {"harmful": True, "flagged": "rank", "verdict": test["verdict"], "legs": "", "named": [[test["why"]]],
            "verdicts": 1, "bound": 1, "kl": cost,
            "good": test["verdict"] == "FAIL" and test["why"].startswith(f"{fault.row}={fault.value} alone costs ") and ";" not in test["why"]}


def golden_file():
    """-> a golden file of this model: made once, as it takes the numpy reference half a minute"""
    path = os.path.join(harness.ROOT, harness.OUT, f"golden-{golden.weights(harness.DEMO)[:12]}.json")
    with GOLDEN_LOCK:
        if not os.path.exists(path):
            value = golden.golden(harness.DEMO, golden.case_ids(*GOLDEN_TEXT), "reference")
            with open(path + ".new", "w") as file:
                json.dump(value, file)
            os.replace(path + ".new", path)
    return path


def anchored_fault(name, fault):
    """Profile and reference are the same, and so is what is wrong with them."""
    engine, path = engine_of(name, fault), golden_file()
    more = ("--worker", engine) if fault.what == "cpu" else ("--golden", path)
    _, got = report("logits", "--profile", "reference", "--budget", "quick", *more,
                    engine="build/engine" if fault.what == "cpu" else engine)
    test = got["tests"][1]
    (anchor,) = test["anchors"]
    return {"harmful": True, "flagged": "logits", "verdict": test["verdict"], "legs": "", "named": [["against " + anchor["what"]]],
            "verdicts": 1, "bound": 1, "kl": anchor["kl"],
            "good": test["verdict"] == "FAIL" and test["estimate"] == 0 and (anchor["what"], anchor["holds"]) == (fault.what, False)}


def soak_fault(name, fault):
    _, got = report("soak", "--profile", "official", "--budget", "quick", engine=engine_of(name, fault))
    test = got["tests"][1]
    return {"harmful": True, "flagged": "soak", "verdict": test["verdict"], "legs": "", "named": [[test.get("failure", "")]],
            "verdicts": 1, "bound": 1, "kl": None, "good": test["verdict"] == "FAIL" and fault.word in test["why"]}


def hidden_fault(name, fault):
    engine = engine_of(name, fault)
    _, got = report("logits", "--budget", "quick", "--profile", profile(fault.rows), engine=engine)
    _, ranked = report("rank", "--profile", profile(fault.rows), engine=engine)
    (test,) = ranked["tests"]
    cost = {r["row"]: max(r["kl_prefill"], r["kl_decode"]) for r in ranked["ranking"] if r["chosen"]}
    return {"harmful": True, "flagged": "rank", "verdict": test["verdict"], "legs": "", "named": [[test["why"]]],
            "verdicts": 1, "bound": 1, "kl": min(cost[row] for row in fault.rows),
            "good": got["tests"][1]["verdict"] == "PASS" and test["verdict"] == "FAIL" and
            all(f"{row}={value} alone costs " in test["why"] for row, value in fault.rows.items())}


def prompt_fault(name, fault):
    engine = engine_of(name, fault)
    if fault.row is None:
        _, got = report("prompt", "--profile", "reference", engine=engine)
        test = got["tests"][1]
        return {"harmful": True, "flagged": "prompt", "verdict": test["verdict"], "legs": "prompt",
                "named": [[test["why"]]], "verdicts": 1, "bound": 1, "kl": None,
                "good": test["verdict"] == "FAIL" and fault.word in test["why"]}
    _, got = report("isolate", "--test", "prompt", "--profile", profile({**ROWS, fault.row: fault.value}),
                    engine=engine)
    found = got["isolation"]
    return {"harmful": True, "flagged": "prompt", "verdict": found["outcome"], "legs": found["legs"],
            "named": found["culprits"], "verdicts": len(found["tries"]), "bound": ONE, "kl": None,
            "good": found["culprits"] == [[fault.row]] == [found["prompt_rows"]] and found["legs"] == "prompt"}


def harmless(name, fault):
    engine = engine_of(name, fault)
    _, got = report("logits", "--profile", profile({**fault.rows, fault.row: fault.value}), "--budget", "quick", engine=engine)
    _, base = report("logits", "--profile", profile(fault.rows), "--budget", "quick", engine=engine)
    share = got["tests"][1]["estimate"] - base["tests"][1]["estimate"]
    return {"harmful": False, "flagged": "logits", "verdict": got["tests"][1]["verdict"], "legs": "", "named": [],
            "verdicts": 1, "bound": 1, "kl": share,
            "good": got["tests"][1]["verdict"] == "PASS" and abs(share) < fault.most}


def control(_name, fault):
    _, got = report("isolate", "--test", "logits", "--budget", "quick", "--profile", fault.profile)
    found = got["isolation"]
    return {"harmful": False, "flagged": "logits", "verdict": found["outcome"], "legs": found["legs"],
            "named": found["culprits"], "verdicts": len(found["tries"]), "bound": 1, "kl": None,
            "good": found["outcome"] == "no fault"}


def made_of(fault):
    """What a line was found on: the engine, the weights, and what was planted."""
    with open(os.path.join(harness.ROOT, "build/engine"), "rb") as file:
        return hashlib.sha256(file.read() + golden.weights(harness.DEMO).encode() + repr(fault).encode()).hexdigest()[:16]


def attempt(name, fault):
    """One line of the table; what cannot be built or run is a line, too."""
    begin = time.monotonic()
    try:
        got = RUN[type(fault)](name, fault)
    except (RuntimeError, LookupError, ValueError, subprocess.SubprocessError) as error:
        got = {"harmful": not isinstance(fault, (Harmless, Good)), "flagged": "", "verdict": "BROKEN", "legs": "",
               "named": [[str(error)[-200:]]], "verdicts": 0, "bound": 0, "kl": None, "good": False}
    return {**got, "seconds": round(time.monotonic() - begin, 1), "of": made_of(fault)}


RUN = {Hidden: hidden_fault, Served: served_fault, Good: control, Row: row_fault, State: state_fault, Ranked: ranked_fault, Anchored: anchored_fault, Soaked: soak_fault, Proven: proof_fault, Prompt: prompt_fault, Harmless: harmless}


def cost(fault):
    """Searches that take long begin first: flaky ones, and those that decide by many steps."""
    return (100 - getattr(fault, "percent", 100)) + {"replay": 60, "needle": 40}.get(getattr(fault, "test", ""), 0)


def show(table):
    print(f"# {'fault':45} {'harmful':8} {'by':7} {'verdict':10} {'n':>2} of {'at most':7} {'KL':>9}  named")
    for name, got in table.items():
        figure = "" if got["kl"] is None else f"{got['kl']:.2g}"
        named = "; ".join(" + ".join(rows) for rows in got["named"])
        print(f"# {name:45} {'yes' if got['harmful'] else 'no':8} {got['flagged']:7} {got['verdict']:10} "
              f"{got['verdicts']:2} of {got['bound']:7} {figure:>9}  {named}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--json")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--build", action="store_true")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    everything = {"no defect": Good(profile(ROWS)), "no defect in fast": Good(profile(KEPT, "fast")), **FAULTS, **OUTSIDE}
    if unknown := set(args.names) - set(everything):
        sys.exit(f"planted.py: no such faults: {', '.join(sorted(unknown))}")
    names = args.names or list(everything)
    tap, table = Tap(), {}
    if args.build:
        for name in names:
            tap.check(engine_of(name, everything[name]), f"built: {name}")
        return tap.end()
    if args.resume and os.path.exists(args.json):
        with open(args.json) as file:
            table = {name: got for name, got in json.load(file).items()
                     if name in names and got.get("of") == made_of(everything[name])}
        for name, got in table.items():
            tap.check(got["good"], f"{name}: {got['verdict']}, as it was found before")
    left = sorted((name for name in names if name not in table), key=lambda n: -cost(everything[n]))
    with concurrent.futures.ThreadPoolExecutor(args.workers) as pool:
        runs = {pool.submit(attempt, name, everything[name]): name for name in left}
        for run in concurrent.futures.as_completed(runs):
            name, got = runs[run], run.result()
            table[name] = got
            tap.check(got["good"], f"{name}: {got['verdict']} {got['named']}, {got['verdicts']} verdicts, KL {got['kl']}, {got['seconds']} s")
            if args.json:
                with open(args.json, "w") as file:
                    json.dump(table, file, indent=1)
    show({name: table[name] for name in names})
    return tap.end()


sys.exit(main())
