"""Planted faults: engines with one seeded defect each, and what the audit makes of them.

    planted.py [NAME...]

Each defect is one replacement in a copy of one source file (harness.py).  A fault in a row must be convicted by
`isolate` with that row and no other; a fault in carried state must fail `replay` in the named way; a harmless
change must be acquitted, with its figure.  Prints TAP, and a confusion table at the end."""
import sys
from harness import Tap, planted, report

ATTENTION, EXPERTS = "kernels/cpu/cpu_attention.c", "kernels/cpu/cpu_experts.c"
STREAMS, COMPRESSOR = "kernels/cpu/cpu_streams.c", "kernels/cpu/cpu_compressor.c"
SNAPSHOT, STATE, FORWARD = "engine/model/snapshot.c", "engine/model/state.c", "engine/model/forward.c"

# The rows that a deployment would have made fast, live beside each other.
ROWS = {
    "moe.scale": "kernel", "hc.mix": "bf16", "attn.prefill": "bf16", "attn.decode": "bf16-split-k",
    "attn.query": "bf16-scaled", "index.score": "bf16", "index.topk": "approximate", "head.logits": "bf16",
}

# What shows a fault that logits of a short text do not.
TESTS = {"index.score": "needle", "index.topk": "needle"}

# A row's value with a defect: name: (row, file, text, replacement)
IN_ROWS = {
    "routed factor in gate and kernel": ("moe.scale", EXPERTS, "if (p->scale == MOE_SCALE_GATE) {", "{"),
    "routed factor nowhere": ("moe.scale", EXPERTS, "if (p->scale == MOE_SCALE_KERNEL) {", "if (false) {"),
    "mixing matrix the wrong way round": (
        "hc.mix", STREAMS, "comb[j * HC_MULT + i] = k[j][i];",
        "comb[p->mix == HC_MIX_BF16 ? i * HC_MULT + j : j * HC_MULT + i] = k[j][i];"),
    "softmax scale in query and logits": (
        "attn.query", ATTENTION, ".scale = p->q_scaled ? 1.0f : (float)SOFTMAX_SCALE", ".scale = (float)SOFTMAX_SCALE"),
    "index scores with the weights of other heads": (
        "index.score", COMPRESSOR, "float weight = (float)(weights[h] * scale)",
        "float weight = (float)(weights[(h + 1) % heads] * -scale)"),
    "approximate choice by the sign alone": ("index.topk", COMPRESSOR, "bits.u &= 0xfff00000u;", "bits.u &= 0x80000000u;"),
}

# Carried state: name: (file, text, replacement, ways of replay that must show it; none: the engine must abort)
IN_STATE = {
    "stale window": (SNAPSHOT, "length - window, window, HEAD_DIM,", "length - window, window - 9, HEAD_DIM,",
                     {"stored prefix"}),
    "lost overlap": (SNAPSHOT, "if (c->compress_ratios[layer] != RATIO_CSA)",
                     "if (c->compress_ratios[layer] != RATIO_CSA || walk->way == LOAD)", {"stored prefix"}),
    "rewind leaves a token": (STATE, "    s->length = length;\n", "    s->length = length + (length == 131);\n",
                              set()),
    "position by the number of rows": (FORWARD, "step->spans[i].position + j;",
                                       "step->spans[i].position + j + (step->spans[i].n == 2);", {"in company"}),
    "compressor reset at the edge of a step": (
        COMPRESSOR, "from = overlap && block > 0 ? first - p->ratio : first;",
        "from = overlap && block > 0 && block != p->block ? first - p->ratio : first;", {"one token a step", "odd steps"}),
}

# Changes that hurt nobody: they must be acquitted.
HARMLESS = {
    "mixing in bf16 on bf16 streams": ("hc.mix", "hc.mix=bf16,hc.streams=bf16,act.store=bf16"),
}


def settings(rows):
    return ",".join(f"{row}={value}" for row, value in rows.items())


def in_rows(tap, table, name):
    row, path, text, replacement = IN_ROWS[name]
    engine = planted(name, path, text, replacement)
    _, got = report("isolate", "--test", TESTS.get(row, "logits"), "--budget", "quick", "--profile",
                    "reference," + settings(ROWS), engine=engine)
    found = got["isolation"]
    good = found["culprits"] == [[row]] and len(found["tries"]) <= 12
    table.append((name, found["outcome"], found["culprits"], len(found["tries"]), found["kl_alone"][row]))
    tap.check(good, f"{name}: {found['outcome']} {found['culprits']}, {len(found['tries'])} verdicts, "
                    f"KL alone {found['kl_alone'][row]:.2g}")


def in_state(tap, table, name):
    path, text, replacement, ways = IN_STATE[name]
    engine = planted(name, path, text, replacement)
    try:
        _, got = report("replay", "--profile", "reference", "--budget", "quick", engine=engine)
    except RuntimeError as error:  # the engine itself may notice first
        table.append((name, "ABORT", [], 1, None))
        tap.check(not ways and "broken invariant" in str(error), f"{name}: {str(error)[-80:]}")
        return
    test = got["tests"][0]
    seen = {way for way, n in test["numbers"].items() if n > 0}
    table.append((name, test["verdict"], sorted(seen), 1, test.get("estimate")))
    tap.check(test["verdict"] == "FAIL" and ways <= seen, f"{name}: {test['verdict']}, {test['why']}")


def harmless(tap, table, name):
    row, rows = HARMLESS[name]
    _, got = report("logits", "--profile", "reference," + rows, "--budget", "quick")
    base = ",".join(r for r in rows.split(",") if not r.startswith(row + "="))
    _, without = report("logits", "--profile", "reference," + base, "--budget", "quick")
    a, b = got["tests"][0]["estimate"], without["tests"][0]["estimate"]
    table.append((name, got["tests"][0]["verdict"], [], 1, a - b))
    tap.check(got["tests"][0]["verdict"] == "PASS" and abs(a - b) < 1e-3,
              f"{name}: mean KL {a:.2g} with it, {b:.2g} without")


def control(tap, table, name):
    _, got = report("isolate", "--test", "logits", "--budget", "quick", "--profile",
                    "reference," + settings(ROWS))
    found = got["isolation"]
    table.append((name, found["outcome"], found["culprits"], len(found["tries"]), None))
    tap.check(found["outcome"] == "no fault", f"{name}: {found['outcome']}")


KINDS = [({"no defect": None}, control), (IN_ROWS, in_rows), (IN_STATE, in_state), (HARMLESS, harmless)]


def main():
    tap, table = Tap(), []
    for names, run in KINDS:
        for name in names:
            if len(sys.argv) == 1 or name in sys.argv[1:]:
                run(tap, table, name)
    for name, verdict, found, verdicts, number in table:
        figure = "" if number is None else f"{number:.3g}"
        print(f"# {name:46} {verdict:10} {verdicts:3} {figure:12} {found}")
    return tap.end()


sys.exit(main())
