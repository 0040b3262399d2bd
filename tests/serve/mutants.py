"""Seeded defects in the handling of state: each must be caught by the random schedules.

    mutants.py [NAME...]

A defect is one replacement in a copy of one source file; its object is linked in front of the library, and nothing
of it touches the product.  A mutant that still calls every schedule equal fails the test, and so does one whose
text is not found exactly once.  The control goes the same way without a replacement and must pass.  Prints TAP."""
import os, subprocess, sys

NETWORK, OUT = "build/serve/nano", "build/serve/mutants"
REQUESTS, SEEDS, SECONDS = "80", ("1", "5"), 900  # tried in turn: not every schedule meets every defect
LIBRARIES = ["-ljson-c", "-lmicrohttpd", "-lutf8proc", "-lsodium", "-lm", "-lpthread"]
SNAPSHOT, PREFIX = "engine/model/snapshot.c", "engine/model/prefix.c"
NETWORK_C, FORWARD, STATE = "engine/model/network.c", "engine/model/forward.c", "engine/model/state.c"
SCHEDULE = "engine/serve/schedule.c"

# name: (file, text, replacement)
MUTANTS = {
    "control": (PREFIX, "", ""),
    # the newest entries of the window are those of whoever had the timeline before
    "stale window": (SNAPSHOT, "length - window, window, entry,", "length - window, window - 9, entry,"),
    # the block behind the prefix pools without the four rows in front of it
    "dropped overlap": (SNAPSHOT, "if (c->compress_ratios[layer] != RATIO_CSA)",
                        "if (c->compress_ratios[layer] != RATIO_CSA || walk->way == LOAD)"),
    "off-by-one block": (PREFIX, "sequence, p->nodes[at].depth - 1);",
                         "sequence, p->nodes[at].depth % p->nodes[found].depth);"),
    "wrong page": (PREFIX, "snapshot_load_block(p->snapshots, at,", "snapshot_load_block(p->snapshots, found,"),
    "foreign namespace": (PREFIX, "p->nodes[at].reuse_namespace != owner->reuse_namespace ||", ""),
    # what one profile has computed serves another
    "foreign profile": (PREFIX, "p->nodes[at].profile_hash != owner->profile->hash ||", ""),
    # a rejected guess stays in the timeline
    "rollback residue": (NETWORK_C, "    s->length = length;\n", "    s->length += 0 * length;\n"),
    # a token beside its guess turns by another position than alone
    "position drift": (FORWARD, "step->spans[i].position + j;",
                       "step->spans[i].position + j + (step->spans[i].n == 2);"),
    # behind a prefix a timeline goes on in the last page of it
    "shared page written": (STATE, "page_own(s->model->pages, s->pages[i], s->page_bytes)",
                            "s->pages[i] == PAGE_NONE && i > 0 ? page_hold(s->model->pages, s->pages[i - 1])"
                            " : page_own(s->model->pages, s->pages[i], s->page_bytes)"),
    # a page goes to somebody else while a timeline reads it
    "uncounted page": (SNAPSHOT, "piece->at, page_hold(pages, *kept));", "piece->at, *kept);"),
    # what timelines share is taken to be there for each of them
    "page counted twice": (SCHEDULE, "c->bytes - shared * c->page_bytes;", "c->bytes;"),
    # two prefixes keep their ends in one place
    "shared tail written": (PREFIX, "p->free_tails[--p->n_free_tails];", "p->free_tails[--p->n_free_tails] / 2;"),
}


def build(name):
    """@return the mutant program, or None when its text is not there exactly once"""
    path, text, replacement = MUTANTS[name]
    source = open(path).read()
    if text and source.count(text) != 1:
        print(f"# {path}: {text!r} is there {source.count(text)} times")
        return None
    base = os.path.join(OUT, name.replace(" ", "-"))
    with open(base + ".c", "w") as file:
        file.write(source.replace(text, replacement) if text else source)
    flags = open("build/musl/flags").read().split()
    flags = [f for f in flags if f not in ("-MMD", "-MP", "-Werror")] + ["-march=x86-64-v2", "-w"]
    subprocess.run(["musl-gcc", *flags, "-c", base + ".c", "-o", base + ".o"], check=True)
    subprocess.run(["musl-gcc", "-static", "-Lbuild/deps/prefix/lib", "build/musl/tests/serve/schedules.o", base + ".o",
                    "build/musl/libv4box.a", *LIBRARIES, "-o", base], check=True)
    return base


def verdict(program):
    """@return "equal", or how the difference showed with the first seed that shows one"""
    seen = (verdict_of(program, seed) for seed in SEEDS)
    return next((difference for difference in seen if difference != "equal"), "equal")


def verdict_of(program, seed):
    run = subprocess.run([program, NETWORK, "official", seed, REQUESTS], capture_output=True, text=True,
                         timeout=SECONDS)
    lines = (run.stdout + run.stderr).splitlines()
    if run.returncode == 0:
        return "equal"
    shown = [line.strip("# ") for line in lines if line.startswith("# request") or "broken invariant" in line]
    return shown[-1] if shown else f"status {run.returncode}, nothing said"


def main():
    names = sys.argv[1:] or list(MUTANTS)
    os.makedirs(OUT, exist_ok=True)
    failed = 0
    print(f"1..{len(names)}")
    for number, name in enumerate(names, 1):
        program = build(name)
        seen = verdict(program) if program else "not built"
        good = seen == "equal" if name == "control" else seen.startswith("request") or "broken invariant" in seen
        failed += not good
        print(f"{'ok' if good else 'not ok'} {number} - {name}: {seen}", flush=True)
    return failed > 0


sys.exit(main())
