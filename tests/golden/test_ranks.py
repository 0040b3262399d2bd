"""Ranks: however many compute one network together, the engine prints the same bytes.

    test_ranks.py [--ranks N,N..] [--gpus N] [--engine FILE] [--synth FILE] [GROUP...]

ranks      every kind of layer, ratios and slices of uneven sizes, NVFP4 too, by 1 to 8 ranks: bytes of one alone
worker     the same through a worker that has ranks
made       weights made of a seed, of which no file is read: the bytes of the checkpoint of that seed, by any ranks
groups     the ranks of a machine in every cut, all groups at once, each under its own profile: the bytes that two have
few        each network under its first profile, by as many as --ranks says; only when it is named: for GPUs
contract   a number of ranks that there is not is refused
controls   the comparison notices another token and other profile

One rank is what the golden suites hold against the reference; what is equal to it to the byte needs no gate."""
import os, shutil, sys, threading
import numpy as np
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness import DATA, DEMO, Engine, Tap, arguments

# (what, config, seed, flags of synth, vocabulary, tokens, profiles).  nano has 2 groups of heads, wide 4 and 3 units
# of hidden rows, so that no number of ranks divides everything; the profiles take every path of the operations.
NETWORKS = [("nano", "nano.json", 1, (), 512, 300, ("reference", "official", "fast")),
            ("wide", "wide.json", 3, (), 1024, 140, ("reference", "balanced,moe.scale=kernel")),
            ("nano in NVFP4", "nano.json", 1, ("--nvfp4",), 512, 131, ("official,moe.experts=nvfp4",)),
            ("demo", None, 0, (), 4096, 150, ("official",))]
RANKS = (2, 4, 8)
RANKS_MOST = 8

tap = Tap()


def printed(engine, network, profile, *flags, turn=0):
    what, config, seed, synth, vocab, n, _ = network
    model = DEMO if config is None else engine.model(config, seed, *synth)
    ids = np.random.default_rng(9000 + seed + turn).integers(2, vocab, n)
    at = ",".join(map(str, sorted({0, 3, 4, 127, 128, n // 2, n - 1})))
    return engine.logits_bytes(model, ids, profile, "--positions", at, "--draft", "--decode-from", n - 9, *flags)


def same(engine, network, profile, numbers):
    alone = printed(engine, network, profile)
    different = [r for r in numbers if printed(engine, network, profile, "--ranks", r) != alone]
    tap.check(not different, f"{network[0]}, {profile}: the same bytes from {', '.join(map(str, numbers))} ranks")
    if different:
        tap.note(f"{different} ranks differ from one")


def group_ranks(engine):
    for network in NETWORKS:
        for profile in network[-1]:
            same(engine, network, profile, RANKS)


def group_few(engine):
    for network in NETWORKS:
        same(engine, network, network[-1][0], RANKS)


def group_worker(engine):
    network = NETWORKS[0]
    alone = printed(engine, network, "official")
    for ranks in (2, 8):
        linked = printed(engine, network, "official", "--worker", engine.engine, "--ranks", ranks)
        tap.check(linked == alone, f"a worker of {ranks} ranks: the bytes of one rank here")


def config_alone(engine, config):
    """A folder that holds no weights."""
    folder = engine.path("alone-" + config)
    if not os.path.exists(folder):
        os.mkdir(folder)
        shutil.copy(os.path.join(DATA, config), os.path.join(folder, "config.json"))
    return folder


def group_made(engine):
    stored, alone = engine.model("wide.json", 3), config_alone(engine, "wide.json")
    ids = np.random.default_rng(9003).integers(2, 1024, 40)  # so many that every expert has some
    flags = ("official", "--positions", "0,-1", "--draft")
    wanted, numbers = engine.logits_bytes(stored, ids, *flags), sorted({1, RANKS[len(RANKS) // 2]})
    different = [ranks for ranks in numbers if engine.logits_bytes(
        alone, ids, *flags, "--ranks", ranks, "--weights", "synth:3") != wanted]
    tap.check(not different, f"wide made of seed 3: the bytes of its checkpoint, by {numbers} ranks {different}")
    other = engine.logits_bytes(alone, ids, *flags, "--weights", "synth:4")
    tap.check(other != wanted, "control: made of another seed it prints other bytes")
    if os.path.basename(engine.engine) == "engine":
        linked = engine.logits_bytes(alone, ids, *flags, "--weights", "synth:3", "--worker", engine.engine)
        tap.check(linked == wanted, "a worker makes them, too")


def group_groups(engine):
    """On GPUs each group has its own, by --gpu; on processors workers stand for a machine of eight."""
    network, gpus, cards = ("nano", "nano.json", 1, (), 512, 131, None), GPUS > 1, GPUS if GPUS > 1 else RANKS_MOST
    profiles = ("official", "reference")
    wanted = {profile: printed(engine, network, profile, "--ranks", 2) for profile in profiles}
    tap.check(wanted["official"] != wanted["reference"], "control: the profiles print different bytes")
    for ranks in (n for n in (1, 2, 4, 8) if n <= cards):
        groups = [Engine(engine.engine, engine.synth) for _ in range(cards // ranks)]
        wrong = []

        def run(at):
            groups[at].models = engine.models
            profile = profiles[at % 2]
            way = ("--gpu", ranks * at) if gpus else ("--worker", engine.engine)
            for _ in range(3 if gpus else 1):
                if printed(groups[at], network, profile, "--ranks", ranks, *way) != wanted[profile]:
                    wrong.append(at)

        threads = [threading.Thread(target=run, args=(at,)) for at in range(len(groups))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        tap.check(not wrong, f"{len(groups)} groups of {ranks} at once, official and reference: the bytes of two ranks")
        if wrong:
            tap.note(f"groups {wrong} differ")


def refused(engine, says, *flags):
    status, _, said = engine.run("logits", "--ids", engine.ids([5]), "--profile", "official", *flags)
    tap.check(status == 2 and says in said, f"{' '.join(map(str, flags[2:]))}: refused: {said.strip()[:100]}")


def group_contract(engine):
    alone = config_alone(engine, "nano.json")
    refused(engine, "--gpu", "--model", alone, "--weights", "synth:1", "--gpu", 1)
    for seed in ("synth", "synth:", "synth:-1", "synth:1x", "synth:18446744073709551616", "random:1"):
        refused(engine, "--weights", "--model", alone, "--weights", seed)
    refused(engine, "config.json", "--model", engine.folder.name, "--weights", "synth:1")
    refused(engine, "weights: 159", "--model", config_alone(engine, "flash.json"), "--weights", "synth:1")
    model = engine.model("nano.json", 1)
    for ranks in ("9", "-1", "two"):
        status, _, said = engine.run("logits", "--model", model, "--ids", engine.ids([5]), "--profile", "official",
                                     "--ranks", ranks)
        tap.check(status == 2 and "--ranks" in said, f"--ranks {ranks} is refused by name")


def group_controls(engine):
    network = NETWORKS[0]
    alone = printed(engine, network, "official", "--ranks", 2)
    tap.check(printed(engine, network, "official", "--ranks", 2, turn=1) != alone, "control: other tokens print other bytes")
    tap.check(printed(engine, network, "reference", "--ranks", 2) != alone, "control: another profile prints other bytes")


GROUPS = {"ranks": group_ranks, "worker": group_worker, "made": group_made, "groups": group_groups, "contract": group_contract, "controls": group_controls,
          "few": group_few}
if "--ranks" in sys.argv:
    at = sys.argv.index("--ranks")
    RANKS = tuple(map(int, sys.argv[at + 1].split(",")))
    del sys.argv[at:at + 2]
GPUS = 0  # of this machine that an engine other than the CPU's may have
if "--gpus" in sys.argv:
    at = sys.argv.index("--gpus")
    GPUS = int(sys.argv[at + 1])
    del sys.argv[at:at + 2]
ENGINE, CHOSEN = arguments(GROUPS)
for name in CHOSEN:
    GROUPS[name](ENGINE)
tap.end()
