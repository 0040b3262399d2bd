"""Long texts: filler of several styles with facts hidden in it. Knows nothing of chats."""
from . import facts, values as v
from .skills import sentence
from .words import ADJ, CITY, NOUN, VERB


def log_line(r):
    return (
        f"2031-{r.randint(1, 12):02d}-{r.randint(1, 28):02d} {r.randint(0, 23):02d}:{r.randint(0, 59):02d}:{r.randint(0, 59):02d} "
        f"{r.choice(('INFO', 'WARN', 'DEBUG', 'ERROR'))} {v.noun(r)}-{r.randint(1, 20)}: {r.choice(VERB)} {r.choice(NOUN)} in {r.randint(1, 900)} ms"
    )


def code_line(r):
    k, a, b = r.random(), v.noun(r), r.choice(NOUN)
    if k < 0.3:
        return f"{a} = {b} + {r.randint(0, 99)}"
    if k < 0.5:
        return f"def {r.choice(VERB)}_{a}({b}):"
    if k < 0.7:
        return f"    return {a}.{r.choice(VERB)}({b}, {r.randint(0, 9)})"
    if k < 0.85:
        return f"int {a} = {r.randint(0, 255)};  // {r.choice(ADJ)}"
    return f"if {a} > {r.randint(1, 50)}: print('{b}')"


def table_line(r):
    return f"{v.noun(r)},{r.choice(ADJ)},{r.randint(1, 999)},{r.choice(CITY)}"


# (share, one piece, what joins the pieces)
STYLES = (
    (0.5, sentence, " "),
    (0.12, log_line, "\n"),
    (0.1, lambda r: "- " + sentence(r), "\n"),
    (0.08, table_line, "\n"),
    (0.08, code_line, "\n"),
    (0.05, lambda r: v.foreign(r, r.randint(5, 12)) + ".", " "),
    (0.07, None, " "),
)


def filler(r, chars):
    """(pieces, joint): about `chars` characters that hold no fact."""
    make, joint = r.choices([(m, j) for _, m, j in STYLES], [w for w, _, _ in STYLES])[0]
    if make is None:  # a few sentences over and over: only the place tells them apart
        base = [sentence(r) for _ in range(r.randint(1, 6))]
        make = lambda r: r.choice(base)
    paragraphs, pieces, n = r.random() < 0.4, [], 0
    while n < chars:
        piece = make(r)
        pieces.append(piece)
        n += len(piece) + 1
    if joint == " " and paragraphs:
        for i in range(6, len(pieces), 6):
            pieces[i] = "\n\n" + pieces[i]
    return pieces, joint


def needles(r, count, heldout=False, kind=facts.draw, known=lambda f: False):
    """`count` facts, none of them `known`, that cannot be taken for one another; fewer where they run out."""
    found, keys = [], set()
    for _ in range(4 * count + 20):
        f = kind(r, heldout)
        if len(found) < count and keys.isdisjoint((f.key, *f.also)) and not known(f):
            keys.update((f.key, *f.also))
            found.append(f)
    return found


def document(r, chars, count, heldout=False, known=lambda f: False):
    """(text, facts in it), none of them known. Half of the facts have a rival: the same subject or attribute with another value."""
    pieces, joint = filler(r, chars)
    kind = facts.attribute if r.random() < 0.5 else facts.draw
    hidden = needles(r, count, heldout, kind, known)
    keys = {f.key for f in hidden}
    for f in hidden:
        pieces.insert(r.randrange(len(pieces) + 1), f.bare() if r.random() < 0.7 else f.state(r))
        if r.random() < 0.25 and (other := facts.rival(r, f)) and other.key not in keys and not known(other):
            keys.add(other.key)
            pieces.insert(r.randrange(len(pieces) + 1), other.state(r))
    return joint.join(pieces), hidden
