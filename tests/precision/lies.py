"""Planted lies: places where something else runs than the precision profile says.  `engine profile verify` must find
every one and name the row, the layer kind and the leg.

    lies.py [NAME...]

A lie is one replacement in a copy of one source file; its object is linked in front of the library, and nothing of it
touches the product.  Some lie to the witnesses too.  A lie that the proof does not find fails the test, and so does
one whose text is not found exactly once.  Without a replacement all four built-in profiles must be proven.  Prints
TAP."""
import os, re, subprocess, sys

NETWORK, OUT = "build/serve/nano", "build/precision/lies"
SECONDS = 600
LIBRARIES = ["-ljson-c", "-lmicrohttpd", "-lutf8proc", "-lsodium", "-lm", "-lpthread"]
ATTENTION, COMPRESSOR = "kernels/cpu/cpu_attention.c", "kernels/cpu/cpu_compressor.c"
EXPERTS, STREAMS = "kernels/cpu/cpu_experts.c", "kernels/cpu/cpu_streams.c"
FORWARD, NUMERICS = "engine/model/forward.c", "engine/model/numerics.c"
SCHEDULE, TIMELINE, STEP = "engine/serve/schedule.c", "engine/serve/timeline.c", "engine/serve/step.c"
ATTEND = """        p->math == ATTN_FP32
            ? attend_at_once(b, s, p->precise, n, &heads)
            : attend_in_tiles(b, s, p->math == ATTN_BF16 ? ATTENDED_MAX : ATTN_SPLIT, n, &heads);
"""

# name: (profile, file, text, replacement, what must be named: state, row, kind, leg), and nothing of other rows
LIES = {
    # says bf16 to the witnesses and runs fp32
    "bf16 attention is fp32": ("balanced", ATTENTION, ATTEND,
                               "        (attend_at_once(b, s, p->precise, n, &heads), p->math);\n"
                               "    (void)attend_in_tiles;\n", "inert", "attn.decode", "csa", "decode"),
    # the fast kernel is chosen for chunks of some size alone
    "only above a chunk size": ("balanced", ATTENTION, "p->math == ATTN_FP32\n            ?",
                                "p->math == ATTN_FP32 || p->n < 4\n            ?",
                                "wrong", "attn.prefill", "window", "prefill"),
    # the same by the number of sequences in a step
    "only above a batch size": ("official", EXPERTS, "cpu_rounded(b, ROW_MOE_EXPERTS, p->round_in,",
                                "cpu_rounded(b, ROW_MOE_EXPERTS, p->n > 4 ? p->round_in : ROUND_NONE,",
                                "wrong", "moe.experts", "score", "decode"),
    "clamp never reached": ("official", EXPERTS, "(float)p->limit,", "1e30f,", "inert", "moe.clamp", "hash", "prefill"),
    "factor in gate and kernel": ("official", EXPERTS, "weight[i] = 1.0f;",
                                  "weight[i] = i < p->top ? (float)p->scaling : 1.0f;",
                                  "wrong", "moe.scale", "score", "decode"),
    "factor never in hash layers": ("official", EXPERTS, "scaling = p->scaling;",
                                    "scaling = p->tid2eid.data != NULL ? 1 : p->scaling;",
                                    "wrong", "moe.scale", "hash", "prefill"),
    # what a graph that was captured under another profile does
    "the old variant is replayed": ("fast", STREAMS, "enum precision_HC_MIX mix, const float *streams, double *mixes)\n{",
                                    "enum precision_HC_MIX mix, const float *streams, double *mixes)\n{\n"
                                    "    static int first = -1;\n    first = first < 0 ? (int)mix : first;\n"
                                    "    mix = (enum precision_HC_MIX)first;",
                                    "wrong", "hc.mix", "hca", "decode"),
    "queries are not rotated": ("official", COMPRESSOR, "rotate_key(v, s, p->rotate, p->round, q);",
                                "cpu_saw(s, ROW_INDEX_ROTATE, p->rotate ? INDEX_ROTATE_ON : INDEX_ROTATE_OFF);",
                                "inert", "index.rotate", "csa", "prefill"),
    # entries that decoding writes stay wider than they are called
    "fp8 entries in prefill alone": ("official", ATTENTION, "b->v->round(p->round_nope, entry, NOPE, entry)",
                                     "p->place.n_decode > 0 ? p->round_nope\n"
                                     "            : b->v->round(p->round_nope, entry, NOPE, entry)",
                                     "inert", "kv.entry", "window", "decode"),
    "router in bf16": ("reference", EXPERTS, "p->round, p->precise, ROW_MOE_ROUTE",
                       "p->place.kind == KIND_SCORE ? ROUND_BF16 : p->round, p->precise, ROW_MOE_ROUTE",
                       "wrong", "moe.route", "score", "prefill"),
    "approximate choice is exact": ("fast", COMPRESSOR, "p->choice == INDEX_TOPK_EXACT\n"
                                    "                        ? select_best(score, n, p->topk, s->heap, out)\n"
                                    "                        : select_roughly(score, n, p->topk, s->heap, out)",
                                    "((void)select_roughly, select_best(score, n, p->topk, s->heap, out), p->choice)",
                                    "inert", "index.topk", "csa", "decode"),
    "bf16 scores are fp32": ("fast", COMPRESSOR, "p->score == INDEX_SCORE_BF16 ? add_heads_bf16(v, dots, weights, p->heads, score)\n"
                             "                                         : add_heads(v, dots, weights, p->heads, score)",
                             "((void)add_heads_bf16, add_heads(v, dots, weights, p->heads, score), p->score)",
                             "inert", "index.score", "csa", "prefill"),
    "draft block with wide inputs": ("official", FORWARD, ".round_in = r->routed_in,",
                                     ".round_in = place.kind == KIND_DRAFT ? ROUND_NONE : r->routed_in,",
                                     "wrong", "moe.experts", "draft", "decode"),
    # the engine around the network: what it does with a request is looked at, not what it was told
    "every chunk fills its step": ("official,prefill.chunk=quarter", SCHEDULE,
                                   "tokens[profile->values[ROW_PREFILL_CHUNK]]",
                                   "((void)profile, (void)tokens, step_tokens)",
                                   "wrong", "prefill.chunk", "box", "prefill"),
    "nothing is continued": ("official", TIMELINE, "PREFIX_REUSE_ON;", "PREFIX_REUSE_ON && r->n_ids == 0;",
                             "wrong", "prefix.reuse", "box", "state"),
    "guesses one token ahead whatever is asked": ("official,draft.depth=3", STEP,
                                                  "int32_t depth = r->profile.values[ROW_DRAFT_DEPTH];",
                                                  "int32_t depth = r->profile.values[ROW_DRAFT_DEPTH] > 0;",
                                                  "wrong", "draft.depth", "box", "decode"),
    "guesses without being asked": ("official", STEP, "int32_t depth = r->profile.values[ROW_DRAFT_DEPTH];",
                                    "int32_t depth = 1;", "wrong", "draft.depth", "box", "decode"),
    "continues a timeline whose last token is another": (
        "official", TIMELINE, "(size_t)t->n_ids * sizeof *t->ids) == 0 ?",
        "(size_t)(t->n_ids - 1) * sizeof *t->ids) == 0 ?", "wrong", "prefix.reuse", "box", "state"),
    "finds stored blocks by their first half": (
        "official", "engine/model/prefix.c", "memcmp(p->nodes[at].ids, ids, sizeof p->nodes[at].ids) != 0",
        "memcmp(p->nodes[at].ids, ids, sizeof p->nodes[at].ids / 2) != 0", "wrong", "prefix.reuse", "box", "state"),
    "no witness": ("balanced", ATTENTION, "    cpu_testify(b, ROW_ATTN_QNORM, &p->place, p->n);\n", "",
                   "unproven", "attn.qnorm", "csa", "prefill"),
}
# Lies about attention for both legs name both of its rows.
ALLOWED = {"attn.decode": {"attn.prefill"}, "attn.prefill": {"attn.decode"}}


def build(name, path, text, replacement):
    """@return the program with the lie, or None when its text is not there exactly once"""
    source = open(path).read()
    if source.count(text) != 1:
        print(f"# {path}: {text!r} is there {source.count(text)} times")
        return None
    base = os.path.join(OUT, name.replace(" ", "-"))
    with open(base + ".c", "w") as file:
        file.write(source.replace(text, replacement))
    flags = open("build/musl/flags").read().split()
    flags = [f for f in flags if f not in ("-MMD", "-MP", "-Werror")] + ["-march=x86-64-v2", "-w"]
    subprocess.run(["musl-gcc", *flags, "-c", base + ".c", "-o", base + ".o"], check=True)
    subprocess.run(["musl-gcc", "-static", "-Lbuild/deps/prefix/lib", "build/musl/engine/main.o", base + ".o",
                    "build/musl/libv4box.a", *LIBRARIES, "-o", base], check=True)
    return base


def verify(program, profile):
    """@return whether it was proven, and what was named as (state, row, kind, leg)"""
    run = subprocess.run([program, "profile", "verify", "--model", NETWORK, "--profile", profile],
                         capture_output=True, text=True, timeout=SECONDS)
    named = re.findall(r"^  (\w+) +([\w.]+), (\w+) layers, (\w+): ", run.stdout, re.M)
    if run.returncode not in (0, 1) or (run.returncode == 1) != bool(named):
        print(f"# status {run.returncode}: {run.stdout[:200]} {run.stderr[:200]}")
        return None, set()
    return run.returncode == 0, set(named)


def main():
    names = sys.argv[1:] or ["reference", "official", "balanced", "fast", *LIES]
    os.makedirs(OUT, exist_ok=True)
    failed = 0
    print(f"1..{len(names)}")
    for number, name in enumerate(names, 1):
        if name not in LIES:
            proven, named = verify("build/engine", name)
            good, what = proven, f"the clean build is proven as {name}: {len(named)} alarms"
        else:
            profile, path, text, replacement, *wanted = LIES[name]
            program = build(name, path, text, replacement)
            proven, named = verify(program, profile) if program else (None, set())
            rows = {row for _, row, _, _ in named}
            good = tuple(wanted) in named and rows <= {wanted[1]} | ALLOWED.get(wanted[1], set())
            what = f"{name}: {', '.join(sorted(rows)) or 'nothing'} named in {len(named)} places"
            if not good:
                print(f"# wanted {wanted}, got {sorted(named)}")
        failed += not good
        print(f"{'ok' if good else 'not ok'} {number} - {what}", flush=True)
    return failed > 0


sys.exit(main())
