"""The inventory of well-known shortcuts on the embedded model, as a table of Markdown:  inventory.py

Each patch is one value of one row.  `engine profile verify` says where it is live, from witnesses, with all of them in
one profile; `engine profile rank` says what each costs alone in the reference and what it buys, in one run on a probe
conversation that holds every kind of layer and is long enough for the indexer to choose.  A patch of what is asked has
no cost in nats: `engine audit prompt` says how many prompts it makes others of."""
import json, os, subprocess, sys, tempfile

ENGINE, MODEL, CASES = "build/engine", "rootfs/models/demo", "tests/data/golden/demo-cases.json"
CASE = "needle-900"
# What it is called, row, value.
PATCHES = [("decode attention in bf16", "attn.decode", "bf16-split-k"), ("prompt attention in bf16", "attn.prefill", "bf16"),
           ("scaled queries in bf16", "attn.query", "bf16-scaled"), ("own indexer: scores", "index.score", "bf16"),
           ("own indexer: choice", "index.topk", "approximate"), ("mixing in bf16", "hc.mix", "bf16"),
           ("routed scaling in the kernel", "moe.scale", "kernel"), ("NVFP4 experts", "moe.experts", "nvfp4"),
           ("no clamps", "moe.clamp", "off"), ("thinking by default", "think.default", "flipped")]
NEVER_SERVES = ("moe.clamp", "off")  # AUDIT in the table of rows


def engine(*words, report=None):
    """@return what the command prints as JSON, or has written into the file `report`"""
    run = subprocess.run([ENGINE, *words[:2], "--model", MODEL, *words[2:]], stdout=subprocess.PIPE)
    if run.returncode not in (0, 1) or not run.stdout:
        sys.exit(f"engine {' '.join(words[:2])}: status {run.returncode}")
    if report is None:
        return json.loads(run.stdout)
    with open(report) as file:
        return json.load(file)


def places(rows, row):
    """@return legs, and the worst state of any place"""
    found = next(r for r in rows if r["row"] == row)["places"]
    states = ["live", "unproven", "inert", "wrong"]
    worst = max((p["state"] for p in found), key=states.index)
    return ", ".join(leg for leg in ("prefill", "state", "decode") if any(p["leg"] == leg for p in found)), worst


def of_numbers(row, value, rank, rows):
    cost = next(r for r in rank["rows"] if (r["row"], r["value"]) == (row, value))
    legs, state = places(rows, row)
    return (f"{legs} | {state} | {100 * cost['exposure']:.1f} % | {cost['kl']:.1e} | {100 * cost['top1_loss']:.2f} % | "
            f"{cost['speed_prefill']:.2f}x | {cost['speed_decode']:.2f}x | {cost['tier']}")


def of_prompts(row, value, folder):
    path = os.path.join(folder, "report")
    report = engine("audit", "prompt", "--profile", f"official,{row}={value}", "--budget", "quick", "--json", path, report=path)
    test = next(t for t in report["tests"] if t["name"] == "prompt")
    live = test["verdict"] == "FAIL" and row in test["why"]
    return (f"prompt | {'live' if live else 'inert'} | {100 * test['estimate']:.0f} % | other ids in {test['n']} prompts | | | | "
            f"{'other prompt' if live else 'equal'}")


def main():
    with open(CASES) as file:
        ids = json.load(file)[CASE]["ids"]
    numbers = [(row, value) for _, row, value in PATCHES if not row.startswith("think.")]
    with tempfile.TemporaryDirectory() as folder:
        probe = os.path.join(folder, "ids")
        with open(probe, "w") as file:
            json.dump(ids, file)
        rank = engine("profile", "rank", "--json", "--ids", probe)
        rows = engine("profile", "verify", "--json", "--profile",
                      "official," + ",".join(f"{row}={value}" for row, value in numbers))["rows"]
        print(f"The last {rank['prefill_tokens']} tokens of the probe and {rank['decode_tokens']} of its answer; each value "
              "alone in the reference.\n")
        print("| patch | row | value | legs | state | exposure | KL | top-1 loss | prefill | decode | tier |\n"
              "|---|---|---|---|---|---|---|---|---|---|---|")
        for patch, row, value in PATCHES:
            cells = of_numbers(row, value, rank, rows) if (row, value) in numbers else of_prompts(row, value, folder)
            print(f"| {patch} | {row} | {value} | {cells} |")


if __name__ == "__main__":
    os.chdir(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    main()
