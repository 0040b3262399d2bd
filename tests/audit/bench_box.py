"""`make bench-audit`: clients stream greedy answers without an audit, beside one, and beside one that goes first, in
short turns of one run, so that what else the machine does slows all three.  Prints the median of their ratios; fails when an
answer differs from the one without an audit, or when the audit got nowhere."""
import statistics, sys, tempfile, threading, time

from box import Box
from harness import Tap

CLIENTS, TOKENS, SECONDS, TURNS = 3, 48, 4, 9
QUESTIONS = ["Hello, my name is Nadia and I live in Oslo.", "What is a geologist?", "Write a list of three cities.",
             "Explain how a kettle works, please.", "My code is 7342. Say it twice."]
KINDS = {"no audit": None, "beside": "", "exclusive": " --exclusive"}


class Client(threading.Thread):
    """Asks until it is told to stop."""

    def __init__(self, box, number):
        super().__init__(daemon=True)
        self.box, self.number, self.answers, self.go = box, number, [], True

    def run(self):
        while self.go:
            question = QUESTIONS[(self.number + len(self.answers)) % len(QUESTIONS)]
            self.answers.append((question, self.box.say(question, TOKENS)[1]))


def turn(box, kind):
    """-> (answers a second, answers): an audit runs all the while, if one is wanted"""
    if KINDS[kind] is not None:
        box.ask("audit needle --budget 3h --seed 5" + KINDS[kind])
    clients = [Client(box, i) for i in range(CLIENTS)]
    steps = box.ask("status")["answer_tokens"]
    begin = time.monotonic()
    for client in clients:
        client.start()
    time.sleep(SECONDS)
    done, seconds = box.ask("status")["answer_tokens"] - steps, time.monotonic() - begin
    for client in clients:
        client.go = False
    for client in clients:
        client.join()
    if KINDS[kind] is not None:
        box.ask("audit abort")
        box.ended()
    return done / seconds, [answer for client in clients for answer in client.answers]


def main():
    tap = Tap()
    with tempfile.TemporaryDirectory(prefix="v4box-bench-") as folder:
        box = Box(folder, "--sessions", str(CLIENTS))
        wanted = {question: box.say(question, TOKENS)[1] for question in QUESTIONS}
        box.ask("audit needle --budget quick --seed 5")  # the audit alone, to its end
        box.ended()
        rates = {kind: [] for kind in KINDS}
        for _ in range(TURNS):
            for kind in KINDS:
                rate, answers = turn(box, kind)
                rates[kind].append(rate)
                wrong = [question for question, text in answers if text != wanted[question]]
                tap.check(answers and not wrong, f"{kind}: {len(answers)} answers, {rate:.1f} tokens/s, {len(wrong)} differ")
        for kind in list(KINDS)[1:]:
            ratios = sorted(a / b for a, b in zip(rates[kind], rates["no audit"]))
            print(f"# {kind}: throughput {statistics.median(ratios):.2f} of that without, half of the turns within "
                  f"{ratios[len(ratios) // 4]:.2f} to {ratios[-1 - len(ratios) // 4]:.2f}")
        box.stop()
    return tap.end()


sys.exit(main())
