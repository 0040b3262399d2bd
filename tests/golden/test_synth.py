"""`synth` against the independent synth.py of this folder: the same bytes, the full-size totals, refusals.

    test_synth.py [--synth FILE]"""
import hashlib, json, os, sys
import subprocess
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import synth as independent
from harness import DATA, Tap, arguments

# SHA-256 of model.safetensors, written once with synth.py: holds both programs where they were.
HASHES = {("nano.json", 1): "68bb5ab3bff0ce897a6507185c7671ab6ea79008586a664fccaf6009be3f2893",
          ("nano.json", 2): "456ec9c13b46cfe3e1f25176a2afc0c69cf47e2e1b7d6e7539513f916f8bf340",
          ("wide.json", 1): "201ef1cdd6e1f49125fa2ae9d10706e3216e9a02defecd900544f60a99a7c56d",
          ("wide.json", 3): "3ae2db97713db4f0ad564573cb10514ccd43f9cd3f150667c5005fd78a574611"}
SEED_MAX = 2**64 - 1
FLASH_TENSORS, FLASH_BYTES = 69187, 159609485896      # of the published checkpoint

tap = Tap()


def run(synth, *args):
    p = subprocess.run([synth, *map(str, args)], capture_output=True, timeout=120)
    return p.returncode, p.stdout.decode(), p.stderr.decode()


def read(*path):
    with open(os.path.join(*path), "rb") as f:
        return f.read()


def same_bytes(synth, folder, config, seed, nvfp4=False):
    ours, theirs = os.path.join(folder, "ours/deep"), os.path.join(folder, "theirs")
    status, _, err = run(synth, config, ours, "--seed", seed, *["--nvfp4"] * nvfp4)
    with open(config) as f:
        cfg = json.load(f)
    independent.write(cfg | {"moe_quant_algo": "NVFP4"} if nvfp4 else cfg, theirs, seed)
    what = f"{os.path.basename(config)} seed {seed}{', nvfp4' * nvfp4}"
    tap.check(status == 0, f"{what}: synth ends well {err.strip()}")
    for name in ("model.safetensors", "config.json"):
        tap.check(read(ours, name) == read(theirs, name), f"{what}: {name} is the same, byte for byte")
    return hashlib.sha256(read(ours, "model.safetensors")).hexdigest()


def variant(folder, name, **changes):
    """nano.json with some fields changed (None: left out)."""
    with open(os.path.join(DATA, "nano.json")) as f:
        cfg = json.load(f)
    cfg.update(changes)
    path = os.path.join(folder, name + ".json")
    with open(path, "w") as f:
        json.dump({k: v for k, v in cfg.items() if v is not None}, f)
    return path


def test_bytes(synth, folder):
    for (config, seed), wanted in HASHES.items():
        got = same_bytes(synth, folder, os.path.join(DATA, config), seed)
        tap.check(got == wanted, f"{config} seed {seed}: SHA-256 is the recorded one")
    same_bytes(synth, folder, os.path.join(DATA, "nano.json"), SEED_MAX)
    same_bytes(synth, folder, os.path.join(DATA, "wide.json"), 4, nvfp4=True)
    # No row of the engine: odd block edges, no hash layer, no draft, three drafts, text that JSON must escape.
    same_bytes(synth, folder, variant(folder, "odd", hidden_size=160, q_lora_rank=96, vocab_size=67, n_routed_experts=6,
                                      num_hidden_layers=2, compress_ratios=[4, 128, 0], num_hash_layers=0), 5)
    same_bytes(synth, folder, variant(folder, "drafts", num_hidden_layers=1, num_nextn_predict_layers=3, num_hash_layers=2,
                                      compress_ratios=[128, 0, 4, 0, 0]), 6)
    same_bytes(synth, folder, variant(folder, "nodraft", num_nextn_predict_layers=None, num_hidden_layers=1, x_text="ü\u20ac\U0001f600\"\\\n",
                                      x_floats=[1e-7, 1e16, 0.1, -0.0, 123456789.123], x_empty=[{}, []]), 7)


def test_full_size(synth, folder):
    flash = os.path.join(DATA, "flash.json")
    status, out, _ = run(synth, flash, folder + "/flash", "--dry-run")
    tap.note(out.strip())
    tap.check(status == 0 and f": {FLASH_TENSORS} tensors, {FLASH_BYTES} bytes" in out, "dry run of the full size: the published totals")
    tap.check(not os.path.exists(folder + "/flash"), "a dry run writes nothing")
    status, _, err = run(synth, flash, folder + "/flash", "--sparse")
    path = folder + "/flash/model.safetensors"
    good = status == 0 and os.path.getsize(path) > FLASH_BYTES and os.stat(path).st_blocks * 512 < 64 << 20
    tap.check(good, f"a sparse file of the full size {err.strip()}")
    status, _, err = run(synth, os.path.join(DATA, "nano.json"), folder + "/sparse", "--sparse", "--seed", 1)
    n = int.from_bytes(read(folder, "sparse/model.safetensors")[:8], "little") + 8
    run(synth, os.path.join(DATA, "nano.json"), folder + "/full", "--seed", 1)
    full, sparse = read(folder, "full/model.safetensors"), read(folder, "sparse/model.safetensors")
    tap.check(full[:n] == sparse[:n] and len(full) == len(sparse) and not any(sparse[n:]), "sparse: the same header and size, zeros behind")


def test_refusals(synth, folder):
    broken = {"vocab_size": -1, "hidden_size": 0, "num_attention_heads": 10**9, "n_routed_experts": 1, "o_groups": "4",
              "compress_ratios": [0, 4], "head_dim": 256, "hc_mult": 8, "q_lora_rank": 1.5, "index_head_dim": None}
    for field, value in broken.items():
        status, _, err = run(synth, variant(folder, "broken", **{field: value}), folder + "/broken", "--dry-run")
        tap.check(status == 2 and field in err and "broken.json" in err, f"{field} = {value} is refused by name")
    nano = os.path.join(DATA, "nano.json")
    for args in ((), (nano,), (nano, "a", "b"), (nano, "a", "--seed"), (nano, "a", "--seed", "-1"), (nano, "a", "--seed", "1x"),
                 (nano, "a", "--seed", str(2**64)), (nano, "a", "--fast")):
        status, _, err = run(synth, *args)
        tap.check(status == 2 and "usage" in err, f"usage: {len(args)} words, the last one {args[-1][-12:] if args else 'none'}")
    tap.check(run(synth, folder + "/none.json", folder + "/x")[0] == 2, "a missing config is refused")
    with open(folder + "/file", "w") as f:
        f.write("x")
    status, _, err = run(synth, nano, folder + "/file/x")
    tap.check(status == 2 and "file" in err, "an output path that cannot be made is named")


if __name__ == "__main__":
    engine, _ = arguments(["all"])
    test_bytes(engine.synth, engine.folder.name)
    test_full_size(engine.synth, engine.folder.name)
    test_refusals(engine.synth, engine.folder.name)
    tap.end()
