"""Our engine beside llama.cpp, as npm's @node-llama-cpp/linux-x64 carries it:  bench.py ENGINE BENCH_MODEL MODEL OUT [ROUNDS]

The same network and the same number of ids on one thread, in turns: with other programs on the machine llama.cpp's threads
spin for each other, and processor time is what can be compared.  First the check that both compute the same network: on a
text with a needle (which row says what, how far the log-probabilities are apart).  Prints a table and one JSON object."""
import json, os, statistics, subprocess, sys
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
LIBRARY = os.path.join(HERE, "node_modules/@node-llama-cpp/linux-x64/bins/linux-x64")
PREFILL, DECODE = 1024, 64  # as tools/bench_model.c
# What llama.cpp is given: name, dense matrices, layout.  bf16 holds ours exactly; Q8_0 is what its own converter writes, and
# packed it stops at a matrix of this network (ggml_backend_sched_split_graph: no backend for a tensor).
FORMS = (("bf16", "bf16", "packed"), ("Q8_0", "q8_0", "plain"))
CASE, STEPWISE = "needle-900", 64  # ids at the end that are fed one by one


def llama(form, gguf, ids, prefill, *what):
    command = [sys.executable, os.path.join(HERE, "run.py"), LIBRARY, gguf, "1", form[2], ids, str(prefill), *what]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def write_ids(path, ids, vocab):
    with open(path, "w") as f:
        json.dump({"ids": ids, "vocab": vocab}, f)
    return path


def log_softmax(rows):
    rows = rows.astype("f8")
    rows -= rows.max(1, keepdims=True)
    return rows - np.log(np.exp(rows).sum(1, keepdims=True))


def agreement(engine, model, form, gguf, out, vocab):
    """@return share of positions with the same most likely token, mean distance of the next token's log-probability"""
    ids = json.load(open("tests/data/golden/demo-cases.json"))[CASE]["ids"]
    plain = os.path.join(out, "case.json")
    with open(plain, "w") as f:
        json.dump(ids, f)
    ours = json.loads(subprocess.run([engine, "logits", "--model", model, "--ids", plain, "--profile", "official"],
                                     capture_output=True, text=True, check=True).stdout)
    rows = os.path.join(out, "rows")
    llama(form, gguf, write_ids(os.path.join(out, "ids.json"), ids, vocab), len(ids) - STEPWISE, "rows", rows)
    theirs = log_softmax(np.fromfile(rows, "<f4").reshape(len(ids), vocab))
    same = np.mean(np.array(ours["top1"]) == theirs.argmax(1))
    next_ids = np.array(ids[1:])
    apart = np.abs(np.array(ours["next_logprob"])[:len(next_ids)] - theirs[np.arange(len(next_ids)), next_ids])
    return float(same), float(apart.mean())


def main():
    engine, bench_model, model, out = sys.argv[1:5]
    rounds = int(sys.argv[5]) if len(sys.argv) > 5 else 5
    vocab = json.load(open(os.path.join(model, "config.json")))["vocab_size"]
    os.makedirs(out, exist_ok=True)
    ggufs = {}
    for name, dense, _ in FORMS:
        ggufs[name] = os.path.join(out, f"{dense}.gguf")
        subprocess.run([sys.executable, os.path.join(HERE, "gguf.py"), model, ggufs[name], "--dense", dense], check=True)
    for form in FORMS:
        same, apart = agreement(engine, model, form, ggufs[form[0]], out, vocab)
        print(f"{form[0]}: the same most likely token at {same:.1%} of {CASE}, log-probabilities {apart:.4f} apart on average")
    # random ids of no meaning, as bench_model feeds; speed does not depend on them
    ids = write_ids(os.path.join(out, "ids.json"), [17 * i * i % vocab for i in range(PREFILL + DECODE)], vocab)
    seen = {"v4box": {"prefill": [], "decode": []}, **{f[0]: {"prefill": [], "decode": []} for f in FORMS}}
    isa = "auto"  # all that the processor has, the best one last
    for _ in range(rounds):
        line = json.loads(subprocess.run([bench_model, model, "1", isa, "official"], capture_output=True, text=True,
                                         check=True).stdout.splitlines()[-1])
        isa = line["isa"]
        for phase in ("prefill", "decode"):
            seen["v4box"][phase].append(line[f"{phase}_tokens_cpu_s"])
        for form in FORMS:
            took = json.loads(llama(form, ggufs[form[0]], ids, PREFILL, "time"))
            for phase, n in (("prefill", PREFILL), ("decode", DECODE)):
                seen[form[0]][phase].append(n / took[f"{phase}_cpu_s"])
    print(f"tokens a second of processor time, one thread, median of {rounds} (lowest to highest)")
    result = {"rounds": rounds}
    for name, phases in seen.items():
        words = [f"{name:6}"]
        for phase, rates in phases.items():
            middle = statistics.median(rates)
            ratio = statistics.median(seen["v4box"][phase]) / middle
            words.append(f"{phase} {middle:6.0f} ({min(rates):.0f} to {max(rates):.0f}), ours is {ratio:.2f} times that")
            result[f"{name}_{phase}"], result[f"{name}_{phase}_ratio"] = round(middle, 1), round(ratio, 3)
        print("  ".join(words))
    print(json.dumps(result))


main()
