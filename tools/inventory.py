"""The inventory of the eight patches on the embedded model, as a table of Markdown:  inventory.py

Each patch is one value of one row.  `engine profile verify` says where it is live, from witnesses, with all eight in
one profile; `engine profile rank` says what each costs alone in the reference and what it buys, in one run on a probe
conversation that holds every kind of layer and is long enough for the indexer to choose."""
import json, os, subprocess, sys, tempfile

ENGINE, MODEL, CASES = "build/engine", "rootfs/models/demo", "tests/data/golden/demo-cases.json"
CASE = "needle-900"
PATCHES = [("attn.decode", "bf16-split-k"), ("attn.prefill", "bf16"), ("attn.query", "bf16-scaled"),
           ("index.score", "bf16"), ("index.topk", "approximate"), ("hc.mix", "bf16"), ("moe.experts", "w4a4"),
           ("moe.scale", "kernel")]


def engine(verb, *flags):
    run = subprocess.run([ENGINE, "profile", verb, "--model", MODEL, "--json", *flags], stdout=subprocess.PIPE)
    if run.returncode not in (0, 1) or not run.stdout:
        sys.exit(f"engine profile {verb}: status {run.returncode}")
    return json.loads(run.stdout)


def places(rows, row):
    """@return legs, and the worst state of any place"""
    found = next(r for r in rows if r["row"] == row)["places"]
    states = ["live", "unproven", "inert", "wrong"]
    worst = max((p["state"] for p in found), key=states.index)
    return ", ".join(leg for leg in ("prefill", "state", "decode") if any(p["leg"] == leg for p in found)), worst


def main():
    with open(CASES) as file:
        ids = json.load(file)[CASE]["ids"]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(ids, file)
        file.flush()
        rank = engine("rank", "--ids", file.name)
    rows = engine("verify", "--profile", "official," + ",".join(f"{row}={value}" for row, value in PATCHES))["rows"]
    print(f"The last {rank['prefill_tokens']} tokens of the probe and {rank['decode_tokens']} of its answer; each value alone "
          "in the reference.\n")
    print("| row | value | legs | state | exposure | KL | top-1 loss | speed prefill | speed decode | tier |\n"
          "|---|---|---|---|---|---|---|---|---|---|")
    for row, value in PATCHES:
        cost = next(r for r in rank["rows"] if (r["row"], r["value"]) == (row, value))
        legs, state = places(rows, row)
        print(f"| {row} | {value} | {legs} | {state} | {100 * cost['exposure']:.1f} % | {cost['kl']:.1e} | "
              f"{100 * cost['top1_loss']:.2f} % | {cost['speed_prefill']:.2f}x | {cost['speed_decode']:.2f}x | "
              f"{cost['tier']} |")


if __name__ == "__main__":
    os.chdir(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    main()
