"""TAP for a list of checks: each is a function; what it raises is what went wrong."""

import sys
import traceback


class Tap:
    def __init__(self):
        self.count = 0
        self.failed = 0

    def check(self, name, run, *arguments):
        """Runs one check and prints its line; returns whether it passed."""
        self.count += 1
        try:
            run(*arguments)
            print("ok %d - %s" % (self.count, name), flush=True)
            return True
        except Exception:  # a check may fail in any way; the run goes on
            self.failed += 1
            print("not ok %d - %s" % (self.count, name), flush=True)
            for line in traceback.format_exc().splitlines()[-6:]:
                print("#   " + line, flush=True)
            return False

    def note(self, text):
        print("# " + text, flush=True)

    def end(self):
        print("1..%d" % self.count, flush=True)
        sys.exit(1 if self.failed else 0)
