"""The golden suites of the CPU backend, asked of the worker program on a GPU.

    golden.py [--engine build/worker] [--synth FILE] [GROUP...]

exact, official, layers, demo, fresh   as in ../golden/test_golden.py
chunks-PROFILE                         as in ../golden/test_chunks.py, every built-in profile
controls                               what must fail does fail"""
import os, sys
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../golden"))
import harness, test_chunks, test_golden

# A GPU is one variant; the worker takes the name that chooses nothing.
for suite in (test_golden, test_chunks):
    suite.isas = lambda: [("auto", True)]
tap = test_golden.tap = test_golden.tap_real = test_chunks.tap = harness.Tap()

GROUPS = {name: test_golden.GROUPS[name] for name in ("exact", "official", "layers", "demo", "fresh", "controls")}
GROUPS |= {"chunks-" + name: test_chunks.group(name) for name in ("reference", "official", "balanced", "fast")}
GROUPS["chunks-controls"] = test_chunks.group_controls

if __name__ == "__main__":
    engine, chosen = harness.arguments(GROUPS)
    for name in chosen:
        try:
            GROUPS[name](engine)
        except RuntimeError as fault:
            tap.check(False, f"{name}: {fault}")
    tap.end()
