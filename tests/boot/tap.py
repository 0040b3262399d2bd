"""TAP for a list of checks: each is a function; what it raises is what went wrong."""

import re
import subprocess
import sys
import time
import traceback

LONG_S = 10  # a check that takes longer says so: it may wait where it could work


def note(text):
    print("# " + text, flush=True)


class Tap:
    def __init__(self):
        self.count = 0
        self.failed = 0

    def check(self, name, run, *arguments):
        """Runs one check and prints its line; returns whether it passed."""
        started = time.monotonic()
        try:
            run(*arguments)
            self._result("ok", name)
            if time.monotonic() - started >= LONG_S:
                note("that took %.0f s" % (time.monotonic() - started))
            return True
        except Exception:  # a check may fail in any way; the run goes on
            self._result("not ok", name)
            for line in traceback.format_exc().splitlines()[-6:]:
                print("#   " + line, flush=True)
            return False

    def relay(self, prefix, command, seconds, cwd):
        """Runs a program that prints TAP and passes its results on; no result at all is a failure."""
        done = subprocess.run(command, cwd=cwd, timeout=seconds, capture_output=True, text=True)
        results = re.findall(r"^(ok|not ok) \d+ - (.*)$", done.stdout, re.M)
        for result, name in results:
            self._result(result, prefix + name)
        if done.returncode != 0 or not results:
            for line in (done.stdout + done.stderr).splitlines():
                self.note("  " + line)
            if not any(result == "not ok" for result, _ in results):
                raise RuntimeError("%s: exit code %d" % (command[0], done.returncode))

    def _result(self, result, name):
        self.count += 1
        self.failed += result != "ok"
        print("%s %d - %s" % (result, self.count, name), flush=True)

    note = staticmethod(note)

    def end(self):
        print("1..%d" % self.count, flush=True)
        sys.exit(1 if self.failed else 0)
