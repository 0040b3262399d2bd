"""What the golden suites share: the engine driven by its command line, models, TAP, comparisons.

Knows the command-line contract of `engine logits` and `engine layer` and nothing of the engine's inside."""
import argparse, json, os, subprocess, sys, tempfile
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "../.."))
DATA = os.path.join(ROOT, "tests/data/golden")
DEMO = os.path.join(ROOT, "rootfs/models/demo")
RUN_SECONDS = 300        # one run of a program; the slowest takes a tenth


class Tap:
    """Test results, one line each; the plan comes last."""

    def __init__(self):
        self.n, self.failed = 0, 0

    def check(self, good, what):
        self.n += 1
        self.failed += not good
        print(f"{'ok' if good else 'not ok'} {self.n} - {what}", flush=True)
        return good

    def skip(self, what, why):
        self.n += 1
        print(f"ok {self.n} - {what} # SKIP {why}", flush=True)

    def note(self, text):
        print(f"# {text}", flush=True)

    def end(self):
        print(f"1..{self.n}")
        sys.exit(1 if self.failed else 0)


class Engine:
    """Runs of the engine program. Files go into a folder that ends with the process."""

    def __init__(self, engine, synth):
        self.engine, self.synth = engine, synth
        self.folder = tempfile.TemporaryDirectory(prefix="v4box-golden-")
        self.models = {}

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def run(self, *args):
        """-> (exit status, stdout bytes, stderr text)"""
        p = subprocess.run([self.engine, *map(str, args)], capture_output=True, timeout=RUN_SECONDS)
        return p.returncode, p.stdout, p.stderr.decode("utf-8", "replace")

    def model(self, config, seed, *flags):
        """Folder of the synthetic model of a golden config."""
        key = (config, seed, *flags)
        if key not in self.models:
            out = self.path("-".join(map(str, key)))
            subprocess.run([self.synth, os.path.join(DATA, config), out, "--seed", str(seed), *flags], check=True,
                           stdout=subprocess.DEVNULL, timeout=RUN_SECONDS)
            self.models[key] = out
        return self.models[key]

    def ids(self, ids, name="ids.json"):
        with open(self.path(name), "w") as f:
            json.dump([int(i) for i in ids], f)
        return self.path(name)

    def logits_bytes(self, model, ids, profile, *flags):
        status, out, err = self.run("logits", "--model", model, "--ids", self.ids(ids), "--profile", profile, *flags)
        if status != 0:
            raise RuntimeError(f"engine logits ended with {status}: {err.strip()}")
        return out

    def logits(self, model, ids, profile, positions=(), *flags):
        if positions:
            flags = ("--positions", ",".join(map(str, positions)), *flags)
        return json.loads(self.logits_bytes(model, ids, profile, *flags))

    def layer(self, model, ids, layer, profile, x, *flags):
        """One layer from streams x [S, hc_mult, hidden]; returns the streams behind it."""
        into, out = self.path("in.f32"), self.path("out.f32")
        x.astype("<f4").tofile(into)
        status, _, err = self.run("layer", "--model", model, "--ids", self.ids(ids), "--layer", layer,
                                  "--profile", profile, "--in", into, "--out", out, *flags)
        if status != 0:
            raise RuntimeError(f"engine layer ended with {status}: {err.strip()}")
        return np.fromfile(out, "<f4").reshape(x.shape).astype(np.float64)


def isas():
    """[(name, this processor has it)], as /proc/cpuinfo says."""
    with open("/proc/cpuinfo") as f:
        flags = next((set(l.split(":")[1].split()) for l in f if l.startswith("flags")), set())
    avx2 = {"avx2", "fma", "f16c"}
    need = {"baseline": set(), "avx2": avx2,
            "avx512": avx2 | {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vbmi"}}
    return [(name, flags >= n) for name, n in need.items()]


def relative(a, b):
    """|a - b| / |b| of the last axis; NaN anywhere is as far as can be."""
    with np.errstate(all="ignore"):
        e = np.linalg.norm(a - b, axis=-1) / np.linalg.norm(b, axis=-1)
    return np.where(np.isfinite(e), e, np.inf)


def log_softmax(x):
    x = np.asarray(x, np.float64)
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def kl(reference, logits):
    """KL(reference || logits) of the last axis."""
    p, q = log_softmax(reference), log_softmax(logits)
    d = (np.exp(p) * (p - q)).sum(-1)
    return np.where(np.isfinite(d), d, np.inf)


def agreement(a, b):
    return float(np.mean(np.asarray(a) == np.asarray(b))) if len(a) == len(b) else 0.0


def tensor_range(folder, name):
    """(path, offset, bytes) of a stored tensor in a single-file checkpoint."""
    path = os.path.join(folder, "model.safetensors")
    with open(path, "rb") as f:
        n = int.from_bytes(f.read(8), "little")
        begin, end = json.loads(f.read(n))[name]["data_offsets"]
    return path, 8 + n + begin, end - begin


def arguments(groups):
    """Command line of a suite -> (engine, chosen groups)."""
    ap = argparse.ArgumentParser()
    ap.add_argument("--engine", default=os.path.join(ROOT, "build/engine"))
    ap.add_argument("--synth", default=os.path.join(ROOT, "build/synth"))
    ap.add_argument("groups", nargs="*", metavar="group", help=", ".join(groups))
    a = ap.parse_args()
    unknown = set(a.groups) - set(groups)
    if unknown:
        ap.error(f"no such group: {', '.join(sorted(unknown))}")
    return Engine(a.engine, a.synth), a.groups or list(groups)
