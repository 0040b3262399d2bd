"""What the audit's suites share: the engine's audit command, and engines with one seeded defect.

Knows the command line and the report's fields, nothing of the engine's inside."""
import hashlib, json, os, re, subprocess, tempfile

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
DEMO = "rootfs/models/demo"
OUT = "build/audit"
LIBRARIES = ["-ljson-c", "-lmicrohttpd", "-lutf8proc", "-lsodium", "-lm", "-lpthread"]
RUN_SECONDS = 3600  # a search is minutes of a core, on a machine that may do much else; suites have limits of their own


class Tap:
    """Test results, one line each; the plan comes last."""

    def __init__(self):
        self.n, self.failed = 0, 0

    def check(self, good, what):
        self.n += 1
        self.failed += not good
        print(f"{'ok' if good else 'not ok'} {self.n} - {what}", flush=True)
        return good

    def end(self):
        print(f"1..{self.n}")
        return self.failed > 0


def audit(*args, engine="build/engine"):
    """-> (exit status, standard output, standard error)"""
    run = subprocess.run([engine, "audit", *args], capture_output=True, text=True, timeout=RUN_SECONDS, cwd=ROOT)
    return run.returncode, run.stdout, run.stderr


def report(*args, engine="build/engine", model=DEMO):
    """-> (exit status, the report)"""
    with tempfile.TemporaryDirectory(prefix="v4box-audit-") as folder:
        path = os.path.join(folder, "report.json")
        status, _, errors = audit(*args, "--model", model, "--json", path, engine=engine)
        if not os.path.exists(path):
            raise RuntimeError(f"no report, status {status}: {errors}")
        with open(path) as file:
            return status, json.load(file)


def planted(name, *edits):
    """An engine in which one text of each of some source files is another: (path, text, replacement).

    Only those files are compiled again; their objects are linked in front of the library, unless the program is there
    already, of this very engine.  -> path of the program; an exception when a text is not there exactly once."""
    base = os.path.join(ROOT, OUT, re.sub("[^a-z0-9]+", "-", name))
    os.makedirs(os.path.dirname(base), exist_ok=True)
    with open(os.path.join(ROOT, "build/engine"), "rb") as file:
        made_of = hashlib.sha256(file.read() + repr(edits).encode()).hexdigest()
    if os.path.exists(base + ".of") and open(base + ".of").read() == made_of:
        return base
    sources = {}
    for path, text, replacement in edits:
        source = sources.get(path) or open(os.path.join(ROOT, path)).read()
        if source.count(text) != 1:
            raise RuntimeError(f"{path}: {text!r} is there {source.count(text)} times")
        sources[path] = source.replace(text, replacement)
    flags = open(os.path.join(ROOT, "build/musl/flags")).read().split()
    flags = [f for f in flags if f not in ("-MMD", "-MP", "-Werror")] + ["-march=x86-64-v2", "-w"]
    objects = []
    for path, source in sources.items():
        one = f"{base}-{os.path.basename(path)[:-2]}"
        with open(one + ".c", "w") as file:
            file.write(source)
        subprocess.run(["musl-gcc", *flags, "-c", one + ".c", "-o", one + ".o"], check=True, cwd=ROOT)
        objects.append(one + ".o")
    subprocess.run(["musl-gcc", "-static", "-Lbuild/deps/prefix/lib", "build/musl/engine/main.o", *objects,
                    "build/musl/libv4box.a", *LIBRARIES, "-o", base], check=True, cwd=ROOT)
    with open(base + ".of", "w") as file:
        file.write(made_of)
    return base
