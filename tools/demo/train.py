"""One command that makes the demo model: tokenizer, training, export, evaluation. Needs one large GPU.

    python3 tools/demo/train.py --plan demo --out DIR
    python3 tools/demo/train.py --plan demo --out DIR --stop 540      ends in time, to be continued by the same command

Training is boxed by time: a plan says which lengths are drawn from which share of its seconds on. DIR gets
state.pt (masters, optimiser, progress: what the next call resumes from), train.log, model/ (the checkpoint in
the official layout with its tokenizer) and results.json. Seeds fix the text; the number of steps that fit into
the time depends on the machine.
"""
import argparse
import json
import os
import random
import shutil
import time

import torch

import evaluate
import export
import tokenizer
from feed import AHEAD, ANSWER, CONTEXT, Feed
from model import Model
from optimiser import Optimiser

HERE = os.path.dirname(os.path.abspath(__file__))
TOKENIZER = ("tokenizer.json", "tokenizer_config.json")
LAST_RATE = 0.04  # of the plan's rate, at the end
DEEPER = 0.6  # weight of the draft of a draft against that of a draft
SAVE_EVERY = 120  # seconds
REPORT_EVERY = 15
END_MARGIN = 16  # seconds that saving and export need before --stop
SAME = 0.02  # how far a captured pass may be from the same pass without capture, relative: sums are not ordered


def rate(plan, progress, steps):
    """Learning rate of a step, relative: constant up to the plan's "hold", then linear."""
    decay = 1.0 if progress < plan["hold"] else max(LAST_RATE, (1 - progress) / (1 - plan["hold"]))
    return min(1.0, (steps + 1) / plan["warm_up"]) * decay * plan["rate"]


class Captured:
    """Forward and backward pass of one kind of batch as a CUDA graph: starting some thousand small kernels one by one
    takes the processor longer than they run. kind: (length, top-k on, weight of the draft's loss, context's loss)."""

    def __init__(self, trainer, kind, pool):
        self.kind, m = kind, trainer.model
        count = max(1, trainer.plan["tokens"] // kind[0])
        self.ids = torch.randint(3, m.config["vocab_size"] - 96, (count, kind[0] + AHEAD), device="cuda")
        self.marks = torch.full_like(self.ids, ANSWER, dtype=torch.uint8)
        m.weights, m.counts = {}, {}
        wanted = self.figures(m, trainer.losses(self.ids, self.marks, *kind))  # compiles what is not yet
        m.weights, m.counts = {}, {}
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, pool=pool):
            self.shown = trainer.losses(self.ids, self.marks, *kind)
        self.weights, self.counts = m.weights, m.counts
        self.graph.replay()
        found = self.figures(m, self.shown)
        if not all(abs(x - y) <= SAME * abs(y) for x, y in zip(found, wanted)):  # no NaN passes
            raise RuntimeError(f"captured pass {kind}: {found} instead of {wanted}")

    @staticmethod
    def figures(m, shown):
        """What both ways must agree in: losses, and a gradient that went through every layer."""
        return [float(x) for x in (*shown[:2], m.weights["embed.weight"].grad.float().norm())]

    def __call__(self, model, ids, marks):
        """The pass over a batch in memory of the host; gradients are where the optimiser looks for them."""
        self.ids.copy_(torch.from_numpy(ids.astype("int64")).pin_memory(), non_blocking=True)
        self.marks.copy_(torch.from_numpy(marks).pin_memory(), non_blocking=True)
        self.graph.replay()
        model.weights, model.counts = self.weights, self.counts
        return self.shown


class Trainer:
    """The state of one training: model, optimiser, progress from 0 to 1."""

    def __init__(self, plan, out, seed):
        with open(os.path.join(HERE, "config.json")) as f:
            self.model = Model(json.load(f), "cuda", seed)
        self.model.training = self.model.compiled = True
        self.optimiser = Optimiser(self.model)
        self.plan, self.out, self.seed, self.captured = plan, out, seed, {}
        self.progress, self.steps, self.tokens, self.seconds = 0.0, 0, 0, 0.0
        self.log = open(os.path.join(out, "train.log"), "a")
        self.path = os.path.join(out, "state.pt")

    def say(self, *words):
        line = " ".join(str(w) for w in words)
        print(line, flush=True)
        self.log.write(line + "\n")
        self.log.flush()

    def save(self):
        state = {
            "params": self.model.params,
            "bias": self.model.bias,
            "optimiser": self.optimiser.state(),
            "numbers": (self.progress, self.steps, self.tokens, self.seconds),
        }
        torch.save(state, self.path + ".new")
        os.replace(self.path + ".new", self.path)

    def resume(self, folder=None, progress=None):
        """From state.pt, or from the quantised weights of an exported folder, without optimiser state."""
        if folder:
            other = export.load(folder)
            state = {"params": other.params, "bias": other.bias}
            self.progress, self.seconds = progress, progress * self.plan["seconds"]
        elif os.path.exists(self.path):
            state = torch.load(self.path, map_location="cuda")
            self.optimiser.load(state["optimiser"])
            self.progress, self.steps, self.tokens, self.seconds = state["numbers"]
        else:
            return
        for n, x in state["params"].items():
            self.model.params[n].copy_(x)
        for layer, b in state["bias"].items():
            self.model.bias[layer].copy_(b)
        self.say(f"resumed at {self.progress:.3f}, step {self.steps}")

    def phase(self):
        return max(i for i, p in enumerate(self.plan["phases"]) if p["from"] <= self.progress)

    def losses(self, ids, marks, length, select, draft, context):
        """Backward pass of one batch; returns the answers' mean losses of head and draft, and the indexer's.
        draft, context: the weights of the draft block's loss and of what is no answer."""
        m = self.model
        # Another token count would compile everything again.
        m.compiled, m.select = self.plan["compile"] and ids.shape[0] * length == self.plan["tokens"], select
        weight = (marks == ANSWER).float() + (marks == CONTEXT).float() * context
        m.shadow(True)
        streams = m.trunk(ids[:, :length].contiguous())

        def cross_entropy(hidden, ahead):
            w = weight[:, ahead : length + ahead].reshape(-1)
            ce = torch.nn.functional.cross_entropy(
                m.logits(hidden), ids[:, ahead : length + ahead].reshape(-1), reduction="none"
            )
            answers = (w == 1).float()
            return (ce * w).sum() / w.sum(), (ce.detach() * answers).sum() / answers.sum()

        loss, shown = cross_entropy(m.head(streams), 1)
        drafted = torch.zeros((), device=m.device)
        if draft:
            once = m.draft(streams, ids[:, 1 : length + 1].contiguous())
            twice = m.draft(once, ids[:, 2 : length + 2].contiguous())
            ahead, drafted = cross_entropy(m.head(once, "mtp.0."), 2)
            further, _ = cross_entropy(m.head(twice, "mtp.0."), 3)
            loss = loss + draft * (ahead + DEEPER * further)
        index = sum(m.index_losses)
        m.index_losses = []  # what they hold would outlive the pass
        (loss + index).backward()
        return shown, drafted, index.detach()

    @staticmethod
    def drafting(phase):
        """(share of the batches that the draft block learns from, its weight there): it learns from a share what it would
        from all, and each of its two passes is a layer and a head."""
        share = phase.get("drafts", 1.0)
        return share, phase["draft"] / share

    def batch(self, ids, marks, length, phase):
        share, draft = self.drafting(phase)
        kind = (length, random.random() < phase["select"], draft if random.random() < share else 0, phase["context"])
        if kind in self.captured:
            return self.captured[kind](self.model, ids, marks)
        return self.losses(torch.from_numpy(ids.astype("int64")).to("cuda"), torch.from_numpy(marks).to("cuda"), *kind)

    def kinds(self):
        """Every kind of batch that the phases which are left may draw, those of the longest rows first: what they need of
        the graphs' memory is enough for the others."""
        out = set()
        for phase in self.plan["phases"][self.phase() :]:
            share, draft = self.drafting(phase)
            selects = {phase["select"] > 0, phase["select"] == 1}
            drafts = {draft if share > 0 else 0, 0 if share < 1 else draft}
            out |= {(x, s, d, phase["context"]) for x, _ in phase["mix"] for s in selects for d in drafts}
        return sorted(out, reverse=True)

    def warm_up(self, capture):
        """Before the clock runs: one pass of every kind of batch, without a step, so that all is compiled and captured."""
        started, pool = time.time(), torch.cuda.graph_pool_handle()
        for kind in self.kinds():
            if capture:
                self.captured[kind] = Captured(self, kind, pool)
            else:
                ids = torch.randint(3, 4000, (self.plan["tokens"] // kind[0] or 1, kind[0] + AHEAD), device="cuda")
                self.losses(ids, torch.full_like(ids, ANSWER), *kind)
        torch.cuda.synchronize()
        self.say(
            f"warm after {time.time() - started:.0f} s, {len(self.captured)} graphs, {torch.cuda.max_memory_allocated() / 2 ** 30:.1f} GiB, "
            f"{torch.cuda.memory_reserved() / 2 ** 30:.1f} GiB kept"
        )

    def run(self, feed, deadline):
        """Steps until the plan is done or the deadline comes."""
        started, before, shown, saved = time.time(), self.seconds, time.time(), time.time()
        last = -1
        while self.progress < 1 and time.time() < deadline:
            number = self.phase()
            phase = self.plan["phases"][number]
            if number != last:
                self.say(f"--- phase {number} at {self.seconds:.0f} s, step {self.steps}: {phase}")
                last = number
            length, ids, marks = feed.get(number)
            now = self.batch(ids, marks, length, phase)
            self.optimiser.step(rate(self.plan, self.progress, self.steps))
            self.steps, self.tokens = self.steps + 1, self.tokens + ids.shape[0] * length
            self.seconds = before + time.time() - started
            self.progress = min(1.0, self.seconds / self.plan["seconds"])
            if time.time() - shown > REPORT_EVERY or self.steps in (1, 3, 30):
                shown = time.time()
                self.say(
                    f"{self.seconds:6.1f} s step {self.steps} rate {rate(self.plan, self.progress, self.steps):.3f} L{length} loss {float(now[0]):.3f} "
                    f"draft {float(now[1]):.3f} index {float(now[2]):.3f} | {self.tokens / 1e6:.0f}M tokens, {feed.queue.qsize()} ready"
                )
            if time.time() - saved > SAVE_EVERY:
                saved = time.time()
                self.save()

    def export(self):
        folder = os.path.join(self.out, "model")
        size = export.export(self.model, folder)
        for name in TOKENIZER:
            shutil.copy(os.path.join(self.out, name), folder)
        load = {
            layer: [round(float(x), 2) for x in c.float() / c.float().mean()] for layer, c in self.model.counts.items()
        }
        self.say(
            f"exported {size} bytes at {self.progress:.3f}, step {self.steps}, {self.tokens / 1e6:.1f}M tokens; load of the experts {load}"
        )
        return folder


def arguments():
    p = argparse.ArgumentParser(description="Train, export and evaluate the demo model.")
    p.add_argument("--plan", default="demo")
    p.add_argument("--out", required=True)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--stop", type=float, default=1e9, help="end after so many seconds and keep the state")
    p.add_argument("--from-model", help="start from an exported folder instead of state.pt")
    p.add_argument("--from-progress", type=float, default=0.0, help="where in the plan --from-model stands")
    p.add_argument("--fit", action="store_true", help="the whole plan in the time that --stop leaves")
    p.add_argument("--no-evaluation", action="store_true")
    p.add_argument("--no-graphs", action="store_true", help="start every kernel by itself: half as fast, less memory")
    return p.parse_args()


def main():
    started, a = time.time(), arguments()
    with open(os.path.join(HERE, "plans.json")) as f:
        plan = json.load(f)[a.plan]
    os.makedirs(a.out, exist_ok=True)
    if not os.path.exists(os.path.join(a.out, "tokenizer.json")):
        if a.from_model:
            for name in TOKENIZER:
                shutil.copy(os.path.join(a.from_model, name), a.out)
        else:
            tokenizer.write(a.out)
    torch.backends.cuda.matmul.allow_tf32 = True
    torch._dynamo.config.cache_size_limit = 64
    random.seed(a.seed)
    trainer = Trainer(plan, a.out, a.seed)
    trainer.resume(a.from_model, a.from_progress)
    # Other text after every resumption than before it.
    feed = Feed(
        plan["phases"], trainer.phase(), plan["tokens"], os.path.join(a.out, "tokenizer.json"), a.seed + trainer.steps
    )
    if plan["compile"]:
        trainer.warm_up(not a.no_graphs)
    deadline = started + a.stop - END_MARGIN
    if a.fit:
        plan["seconds"] = deadline - time.time()
        trainer.seconds = trainer.progress * plan["seconds"]
    trainer.run(feed, deadline)
    feed.stop()
    trainer.save()
    folder = trainer.export()
    if trainer.progress >= 1 and not a.no_evaluation:
        del trainer
        torch.cuda.empty_cache()
        evaluate.evaluate(folder, os.path.join(a.out, "results.json"))


if __name__ == "__main__":
    main()
