"""Kinds of planted faults, and the rows that they live beside."""
from typing import NamedTuple

ATTENTION, EXPERTS = "kernels/cpu/cpu_attention.c", "kernels/cpu/cpu_experts.c"
STREAMS, COMPRESSOR = "kernels/cpu/cpu_streams.c", "kernels/cpu/cpu_compressor.c"
SNAPSHOT, STATE, FORWARD = "engine/model/snapshot.c", "engine/model/network.c", "engine/model/forward.c"
PROJECT, CHAT = "engine/model/attention.c", "engine/text/chat.c"
STEP, SAMPLER = "engine/serve/step.c", "kernels/sampler.c"

# The rows that a deployment would have made fast, live beside each other.
ROWS = {
    "moe.scale": "kernel", "hc.mix": "bf16", "attn.prefill": "bf16", "attn.decode": "bf16-split-k",
    "attn.query": "bf16-scaled", "attn.qnorm": "bf16", "kv.entry": "fp8", "head.logits": "bf16",
}
# Those of the indexer do nothing to the logits of a short text, and are looked for in needles.
CHOICE = {
    "index.score": "bf16", "index.topk": "approximate", "attn.qnorm": "bf16", "head.logits": "bf16",
}
# What `fast` has beside its experts, which cost this model more than their row may: `rank` says so, and so does a search.
KEPT = {"moe.experts": "w4a8"}
# Fewer, where each verdict is many runs.
FEW = {row: ROWS[row] for row in ("moe.scale", "attn.query", "head.logits")}
ONE, TWO, PAIR = 12, 20, 26  # verdicts that find one culprit, two, and two that need each other


class Row(NamedTuple):
    """A defect of rows' values: the culprits that must be found."""
    culprits: list
    edits: list
    test: str = "logits"
    bound: int = ONE
    rows: dict = ROWS
    percent: int = 100
    legs: str = None  # that must be named, where the defect lives in one
    base: str = "reference"  # profile that the rows are changed in
    budget: str = "quick"


class State(NamedTuple):
    """A defect of carried state: the legs that must be named; None: the engine must abort."""
    legs: list
    edits: list


class Proven(NamedTuple):
    """A defect where no test looks: the row and the kind of layer that the proof must name."""
    row: str
    kind: str
    edits: list
    rows: dict


class Ranked(NamedTuple):
    """A defect that changes no answer, but costs more than the row may: `rank` must name the row."""
    row: str
    value: str
    edits: list


class Good(NamedTuple):
    """No defect: nothing may be found in a profile."""
    profile: str


class Anchored(NamedTuple):
    """A defect that every profile shares: `what` must show it, a golden file or, of a worker, the CPU's network."""
    what: str
    edits: list


class Soaked(NamedTuple):
    """A defect that a mixture of tests must meet: what its verdict must say."""
    word: str
    edits: list


class Prompt(NamedTuple):
    """A defect in front of the network: the word that the prompt's test must say, and the row, if it is one."""
    word: str
    edits: list
    row: str = None
    value: str = None


class Harmless(NamedTuple):
    """A row's value that hurts nobody beside `rows`; of how many nats at most is its share."""
    row: str
    value: str
    rows: dict = {}
    most: float = 1e-3
    edits: list = []


class Hidden(NamedTuple):
    """Rows whose defects undo each other: together they change nothing, and `rank` must name each."""
    rows: dict
    edits: list


class Served(NamedTuple):
    """A defect of what serves around the network: the rows that the proof of `official` must call wrong."""
    rows: list
    edits: list
    more: dict = {}  # rows beside those of `official`
