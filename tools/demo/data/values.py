"""How words, names, codes and values are drawn. Owns the open classes: half of what stands in a fact is
invented, so that a model can only copy it. Knows nothing of sentences.

Every function takes a random.Random and returns text.
"""
import string

from .words import (
    ADJ,
    CITY,
    COLOR,
    DAY,
    EMOJI,
    FILLW,
    FOOD,
    HELD_OUT,
    JOB,
    LAST,
    MONTH,
    NOUN,
    OTHER,
    PEOPLE,
    SPORT,
    VERB,
)

ONSET = (
    "b c d f g h j k l m n p r s t v w z bl br ch cl cr dr fl fr gl gr kl kn kr pl pr qu sc sh sk sl sm sn sp st str sw th tr tw wh wr".split()
    + [""] * 4
)
NUCLEUS = "a e i o u a e i o u ai au ea ee ei ie oa oo ou ue y".split()
CODA = "b ck d f g k l ll m n ng nk nt p r rd rk rn rt s sh ss st t th x z".split() + [""] * 22
SUFFIX = "er ing ed ness ly ful less tion ment able ish ist ity ous al ive ship hood dom est".split()
EXTENSION = "txt py c md json csv log cfg ini html js sh yaml h cpp rs go ts toml sql xml java rb css".split()
UPPER, LOWER, DIGIT = string.ascii_uppercase, string.ascii_lowercase, string.digits
PAIR = [(a, n) for a in sorted(ADJ) for n in sorted(NOUN)]


def held(adjective, noun):
    """One (adjective, noun) pair in ten belongs to the evaluation."""
    return (sum(map(ord, adjective)) * 31 + sum(map(ord, noun))) % 10 == 0


def pair(r, heldout=False):
    """(adjective, noun) of the training or of the evaluation side."""
    while True:
        p = r.choice(PAIR)
        if held(*p) == heldout:
            return p


def invented(r, syllables=None):
    """A word that nobody has seen, lower case."""
    while True:
        n = syllables or r.choice((1, 2, 2, 2, 3, 3, 4))
        word = "".join(
            r.choice(ONSET) + r.choice(NUCLEUS) + (r.choice(CODA) if r.random() < 0.6 else "") for _ in range(n)
        )
        if r.random() < 0.1:
            word += r.choice(SUFFIX)
        if len(word) > 2 and word not in HELD_OUT:
            return word


def compound(r):
    """Two list words in one: 'lampbridge'."""
    first = r.choice(NOUN if r.random() < 0.7 else ADJ)
    word = first + r.choice(NOUN)
    return word if word not in HELD_OUT else first


def noun(r):
    """A noun of any origin: known, invented, joined, or a word of another class."""
    k = r.random()
    if k < 0.62:
        return r.choice(NOUN)
    if k < 0.82:
        return invented(r)
    if k < 0.9:
        return compound(r)
    if k < 0.95:
        return r.choice(NOUN) + r.choice(("s", "er", "let", "box", "room", "man"))
    return r.choice(FILLW + FOOD + JOB)


def adjective(r):
    k = r.random()
    return r.choice(ADJ) if k < 0.75 else invented(r) if k < 0.9 else r.choice(COLOR + NOUN)


def name(r):
    """A first name, known or invented."""
    return r.choice(PEOPLE) if r.random() < 0.65 else invented(r, r.choice((1, 2, 2, 3))).capitalize()


def surname(r):
    return r.choice(LAST) if r.random() < 0.6 else invented(r, r.choice((1, 2, 2))).capitalize()


def person(r):
    """A person as one would mention it in a fact."""
    k = r.random()
    if k < 0.5:
        return name(r)
    if k < 0.75:
        return f"{name(r)} {surname(r)}"
    return f"{r.choice(('Mr', 'Mrs', 'Ms', 'Dr', 'Mr.', 'Professor'))} {surname(r)}"


def place_name(r):
    return r.choice(CITY) if r.random() < 0.65 else invented(r, r.choice((2, 2, 3))).capitalize()


def number(r):
    return str(r.randint(10, 10 ** r.randint(2, 6)))


def clock(r):
    if r.random() < 0.8:
        return f"{r.randint(0, 23):02d}:{r.randint(0, 59):02d}"
    return f"{r.randint(1, 12)} {r.choice(('am', 'pm', 'o clock'))}"


def date(r):
    k = r.random()
    if k < 0.4:
        return f"{r.randint(1, 28)} {r.choice(MONTH)} {r.randint(2020, 2039)}"
    if k < 0.6:
        return f"{r.choice(MONTH)} {r.randint(1, 28)}"
    if k < 0.8:
        return f"{r.randint(2020, 2039)}-{r.randint(1, 12):02d}-{r.randint(1, 28):02d}"
    return r.choice(DAY)


def phrase(r):
    """Some words that form a name or a password."""
    return " ".join(noun(r) if r.random() < 0.6 else adjective(r) for _ in range(r.randint(1, 3)))


def doubled(r, text):
    """The text with some signs said twice or thrice, or its head again: a copy must count."""
    if r.random() < 0.3:
        return text + text[: r.randint(1, 4)]
    return "".join(c * r.choice((1, 1, 1, 2, 2, 3)) for c in text)


def code(r):
    """A code, key or password of one of many shapes; one in eight repeats itself in parts."""
    text = plain_code(r)
    return doubled(r, text)[:24] if r.random() < 0.12 else text


def plain_code(r):
    k = r.random()
    if k < 0.2:
        return (
            "".join(r.choices(UPPER, k=r.randint(1, 4)))
            + r.choice("--- _")
            + "".join(r.choices(DIGIT, k=r.randint(2, 6)))
        )
    if k < 0.32:
        return "".join(r.choices("0123456789abcdef", k=r.choice((4, 6, 8, 12))))
    if k < 0.52:
        return (noun(r) if r.random() < 0.8 else noun(r).capitalize()) + str(r.randint(0, 9999))
    if k < 0.64:
        return r.choice("-_-.").join(noun(r) if r.random() < 0.6 else r.choice(ADJ) for _ in range(r.randint(2, 3)))
    if k < 0.74:
        return "".join(r.choices(UPPER + DIGIT, k=r.randint(4, 9)))
    if k < 0.82:
        return "".join(r.choices(LOWER + UPPER + DIGIT, k=r.randint(4, 10)))
    if k < 0.9:
        return number(r)
    return invented(r) + r.choice("!#%&*+?$@") + str(r.randint(1, 99))


def foreign(r, n=None):
    """Words of another language and script."""
    language = r.choice(list(OTHER))
    joint = "" if language in ("zh", "ja") else " "
    return joint.join(r.choices(OTHER[language], k=n or r.randint(2, 4)))


def file_name(r):
    stem = noun(r) if r.random() < 0.5 else adjective(r) + r.choice("_-") + noun(r)
    if r.random() < 0.3:
        stem += str(r.randint(1, 99))
    return stem + "." + r.choice(EXTENSION)


def path(r):
    k = r.random()
    if k < 0.6:
        return file_name(r)
    root = r.choice(("", "/", "./", "src/", "/home/" + name(r).lower() + "/", "/tmp/", "docs/"))
    return root + "".join(noun(r) + "/" for _ in range(r.randint(0, 2))) + file_name(r)


def secret(r):
    return r.choice((noun(r), phrase(r), invented(r), foreign(r), r.choice(EMOJI) + r.choice(EMOJI), code(r)))


# What a value of an attribute looks like, by a word in the attribute's name; the first match wins.
SHAPES = [
    (("owner", "contact", "author", "director", "supplier"), lambda r: f"{name(r)} {surname(r)}"),
    (("email",), lambda r: f"{name(r).lower()}@{noun(r)}.example"),
    (("colour",), lambda r: r.choice(COLOR) if r.random() < 0.6 else f"{adjective(r)} {r.choice(COLOR)}"),
    (
        ("location", "place"),
        lambda r: r.choice(
            (
                place_name(r),
                "the " + " ".join(pair(r)),
                "room " + number(r),
                f"{place_name(r)}, hall {r.randint(1, 40)}",
            )
        ),
    ),
    (
        ("street", "address"),
        lambda r: f"{r.randint(1, 200)} {noun(r).capitalize()} {r.choice(('Street', 'Road', 'Lane'))}",
    ),
    (("price", "budget"), lambda r: r.choice("$€£") + number(r)),
    (("weight",), lambda r: number(r) + r.choice((" kg", " grams", " tons"))),
    (
        ("height", "length", "width", "distance", "size"),
        lambda r: str(r.randint(2, 300)) + r.choice((" cm", " m", " km", " mm")),
    ),
    (("speed",), lambda r: number(r) + r.choice((" km/h", " m/s"))),
    (("age", "duration"), lambda r: str(r.randint(2, 99)) + r.choice((" years", " days", " minutes", " hours"))),
    (("phone",), lambda r: f"{r.randint(100, 999)}-{r.randint(100, 999)}-{r.randint(1000, 9999)}"),
    (("version",), lambda r: f"v{r.randint(0, 12)}.{r.randint(0, 30)}.{r.randint(0, 99)}"),
    (("capacity",), lambda r: number(r) + r.choice((" litres", " GB", " people"))),
    (("temperature",), lambda r: str(r.randint(-40, 400)) + " degrees"),
    (("date", "deadline"), date),
    (("time",), clock),
    (("web page",), lambda r: f"www.{noun(r)}.example"),
    (("file name",), path),
    (("title", "motto", "slogan"), lambda r: phrase(r) if r.random() < 0.5 else phrase(r).title()),
    (("material", "flavour", "brand", "nickname", "shape", "symbol", "emblem", "purpose"), noun),
    (("secret", "status", "label", "code name", "pass", "word"), secret),
    (
        ("pin", "PIN", "badge", "room", "port", "platform", "gate", "seat", "score", "rating", "quantity"),
        lambda r: str(r.randint(1, 10 ** r.randint(1, 6))),
    ),
]


def value(r, attribute):
    """A value that suits the attribute, now and then one that does not."""
    if r.random() < 0.06:
        return r.choice((code, phrase, invented, number))(r)
    for words, make in SHAPES:
        if any(w in attribute for w in words):
            return make(r)
    return code(r)


def sport(r):
    return r.choice(SPORT) if r.random() < 0.7 else invented(r)


def verb(r):
    """A verb in the past: known, or invented with -ed."""
    return r.choice(VERB) if r.random() < 0.85 else invented(r, 2) + "ed"
