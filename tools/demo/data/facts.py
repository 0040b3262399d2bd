"""Facts: something stated once in a chat and asked for later.

Owns the kinds of facts, the ways to state and to ask them, and the one answer that each has. The answer
repeats the statement's own words with I and you exchanged, whatever the question: a small model can learn
that for any words. Knows nothing of conversations; forms.py holds the wrappings around the kinds.
"""
import re
from dataclasses import dataclass, replace

from . import values as v
from .forms import ASK, PERSONAL, STATE, ask_words, frame, noisy, open_question, open_statement, passing, upper_first
from .words import ANIMAL, ATTR, COLOR, DAY, EVENT, FOOD, JOB, NOUN, RELATION

ONLY = (
    " Answer with the value only.",
    " Just the value, please.",
    " Reply with only the value.",
    " Only the value.",
    " One word is enough.",
    " Give me nothing but the value.",
)


@dataclass
class Fact:
    """One fact.

    said: ways to state it, without the final period. asked: list of (questions, short value).
    topic: what is asked for, as it stands after "I do not know". hints: phrases that identify the
    question among noise.
    """

    key: tuple
    value: str
    said: list
    asked: list
    answer: str
    topic: str
    hints: tuple
    ack: str = ""
    plain: bool = False  # said and asked go without wrapping
    attribute: str = ""
    subject: str = ""
    also: tuple = ()  # keys of what else it says: no second fact of a chat may share one

    def led(self, text):
        """Whether a value stands at the head: a capital there would leave its case open."""
        return bool(self.attribute) and text.startswith(self.value)

    def bare(self):
        """The first way to state it, without wrapping."""
        text = self.said[0]
        return (text if self.led(text) else upper_first(text)) + "."

    def state(self, r):
        """A message that states the fact."""
        text = r.choice(self.said)
        if self.plain and r.random() < 0.6:
            return upper_first(text) + "."
        return open_statement(r, text, self.led(text))

    def ask(self, r):
        """(question, answer)."""
        i = r.randrange(len(self.asked))
        questions, short = self.asked[i]
        if i == 0 and r.random() < 0.15 and self.hints:  # the hints identify the first question alone
            question = noisy(r, *self.hints)
        else:
            question = open_question(r, r.choice(questions))
        if r.random() < 0.22:
            return question + r.choice(ONLY), short
        return question, self.answer


def you(text):
    """The listener's view of what was said."""
    return re.sub(
        r"\b(my|My|me|I am|I)\b",
        lambda m: {"my": "your", "My": "Your", "me": "you", "I am": "you are", "I": "you"}[m.group()],
        text,
    )


def thing(r, heldout=False):
    """A thing as one would mention it: 'the red key', 'my key', 'Anna's key'."""
    adjective, noun = v.pair(r, heldout)
    if r.random() < 0.35:
        noun = v.noun(r)
    if r.random() < 0.15:
        adjective = v.adjective(r)
    k = r.random()
    if k < 0.36:
        return f"the {adjective} {noun}"
    if k < 0.54:
        return f"the {noun}"
    if k < 0.7:
        return f"my {noun}" if r.random() < 0.7 else f"my {adjective} {noun}"
    if k < 0.8:
        return f"{v.name(r)}'s {noun}"
    if k < 0.86:
        return f"the {noun} of {v.person(r)}"
    if k < 0.93:
        return f"the {noun} {r.choice(('in', 'from', 'at'))} {v.place_name(r)}"
    return f"the {noun} {r.choice(NOUN)}"


KEY_WORDS = "code number name key colour price date size word password id level time".split()


def attribute_name(r):
    """What a value is called: from the list, or joined from a word and a kind of value."""
    k = r.random()
    if k < 0.6:
        return r.choice(ATTR)
    if k < 0.85:
        return v.noun(r) + " " + r.choice(KEY_WORDS)
    return f"{v.adjective(r)} {r.choice(('code', 'number', 'word', 'key', 'name'))}" if r.random() < 0.6 else v.noun(r)


BARE = (
    "{a} of {s}={v}",
    "{s}/{a}={v}",
    "{a} ({s}):{v}",
    '"{v}" is the {a} of {s}',
    "{v} is the {a} of {s}",
    "{v}: {a} of {s}",
    "{s}: {a}={v}",
    "the {a} of {s}... {v}",
)


def attribute(r, heldout=False):
    """'The access code of the red door is X'."""
    a = r.choice(ATTR) if r.random() < 0.75 else attribute_name(r)
    s = " ".join(("the", *v.pair(r, heldout))) if r.random() < 0.6 else thing(r, heldout)
    x = v.value(r, a)
    said = (
        [frame(r, a, s, x)]
        if r.random() < 0.35
        else [t.format(a=a, s=s, v=x) for t in (r.choice(STATE), r.choice(STATE))]
    )
    if r.random() < 0.25:
        said = [passing(r, a, s, x)]
    if r.random() < 0.12:  # the value at the head or behind a sign: other tokens than behind a space
        said = [r.choice(BARE).format(a=a, s=s, v=x)]
    asked = [t.format(a=a, s=s) for t in (r.choice(ASK), r.choice(ASK))]
    asked.append(ask_words(r, r.choice((f"the {a} of {s}", f"the {a} for {s}", f"{s}'s {a}"))))
    answer = f"The {a} of {you(s)} is {x}."
    return Fact((a, s), x, said, [(asked, x)], answer, f"the {a} of {you(s)}", (a, s), attribute=a, subject=s)


def simple(r, heldout=False):
    """'The wifi password is X', 'my locker number is X'."""
    a = attribute_name(r)
    s = r.choice(
        (f"the {a}", f"the {a}", f"my {a}", f"the {a} for {thing(r, heldout)}", f"our {a}", f"{v.name(r)}'s {a}")
    )
    x = v.value(r, a if r.random() < 0.7 else r.choice(ATTR))
    bare = re.sub(r"^(the|my|our) ", "", s)
    if r.random() < 0.3:  # whose it is remains unsaid, also in the answer
        said = [
            r.choice((f"{bare} {x}", f"{bare}: {x}", f"{bare} = {x}", f"{bare} is {x}", f"{bare}={x}", f"{bare}:{x}"))
        ]
        s = s if s == bare else "the " + bare
    else:
        said = [f"{s} is {x}", f"{s} is {x}", f"{s} is {x}", f"{s} was set to {x}", f"{s}: {x}"]
    asked = [ask_words(r, s), ask_words(r, s), f"{bare}?"]
    topic = you(s).replace("our ", "your ", 1) if s.startswith("our ") else you(s)
    return Fact(("simple", bare), x, said, [(asked, x)], upper_first(f"{topic} is {x}."), topic, (bare,))


PLACES = (
    "in the {n}",
    "in the {a} {n}",
    "under the {n}",
    "behind the {n}",
    "on the {n}",
    "next to the {n}",
    "in {c}",
    "at the {n} in {c}",
    "under the old {n}",
    "inside the {a} {n}",
    "near the {n}",
    "above the {n}",
    "between the {n} and the {m}",
    "at home",
    "on the {o} floor",
    "in room {d}",
    "in {p}'s {n}",
    "on level {d}, row {l}",
    "on shelf {d}",
    "at number {d}, {a} {n}",
    "in box {d} of the {n}",
    "on the left of the {n}",
    "in the {n} room",
)
STAYS = (
    "hidden",
    "kept",
    "parked",
    "stored",
    "waiting",
    "lying",
    "standing",
    "locked",
    "placed",
    "stuck",
    "sleeping",
    "hanging",
    "located",
    "found",
    "safe",
)


def place(r, heldout=False):
    """'The treasure is hidden under the tree'."""
    s = thing(r, heldout)
    where = r.choice(PLACES).format(
        a=v.adjective(r),
        n=v.noun(r),
        m=v.noun(r),
        c=v.place_name(r),
        p=v.name(r),
        o=r.choice(("first", "second", "third", "top")),
        d=r.randint(1, 400),
        l=r.choice(v.UPPER),
    )
    is_ = "is" if r.random() < 0.6 else f"is {r.choice(STAYS) if r.random() < .7 else v.verb(r)}"
    if s.split()[-1].isalpha() and r.random() < 0.25:  # several things
        s, is_ = s + "s", is_.replace("is", "are", 1)
    answer = upper_first(f"{you(s)} {is_} {where}.")
    said = [f"{s} {is_} {where}"]
    be = is_.split()[0]
    put, base = r.choice(
        (
            ("put", "put"),
            ("left", "leave"),
            ("hid", "hide"),
            ("parked", "park"),
            ("placed", "place"),
            ("stored", "store"),
            ("keep", "keep"),
        )
    )
    if is_ == be and r.random() < 0.5:
        said = [f"{r.choice(('I', 'I', 'we', 'I have'))} {put} {s} {where}".replace("have hid ", "have hidden ")]
    asked = [
        f"where {be} {s}?",
        f"where {be} {s}?",
        f"where did I {base} {s}?",
        f"where can I find {s}?",
        f"what is the place of {s}?",
        f"where did we {base} {s}?",
        f"where {be} {s}{is_[len(be):]}?",
        f"in which place {be} {s}?",
        f"where {be} {s} now?",
        f"do you know where {s} {be}?",
        f"can you tell me where {s} {be}?",
        f"I am looking for {s}.",
        f"where should I look for {s}?",
    ]
    return Fact(("place", s), where, said, [(asked, where)], answer, f"where {you(s)} {be}", ("where", s))


def action(r, heldout=False):
    """'Anna painted the old boat': who, what, sometimes when."""
    p, verb, s = v.person(r), v.verb(r), thing(r, heldout)
    when = (
        ""
        if r.random() < 0.6
        else " "
        + r.choice(
            (
                f"in {r.randint(1900, 2039)}",
                f"on {r.choice(DAY)}",
                f"in {v.place_name(r)}",
                f"at {v.clock(r)}",
                "yesterday",
                "last week",
            )
        )
    )
    text = f"{p} {verb} {s}{when}"
    asked = [
        (
            [
                f"who {verb} {s}?",
                f"who was it that {verb} {s}?",
                f"tell me who {verb} {s}.",
                f"which person {verb} {s}?",
                f"do you know who {verb} {s}?",
                f"by whom was {s} {verb}?",
            ],
            p,
        )
    ]
    if r.random() < 0.3:
        asked.append(
            ([f"what was {verb} by {p}?", f"what is it that {p} {verb}?", f"which thing was {verb} by {p}?"], you(s))
        )
    return Fact(
        ("who", verb, s),
        p,
        [text],
        asked,
        f"{p} {verb} {you(s)}{when}.",
        f"who {verb} {you(s)}",
        (f"who {verb} {s}",),
        also=(("what", verb, p),),
    )


# Verbs in the present as "she ..." and as "does she ...".
HAVING = [
    tuple(pair.split("/"))
    for pair in """has/have has/have owns/own likes/like needs/need wants/want loves/love drives/drive keeps/keep hates/hate
sells/sell collects/collect prefers/prefer wears/wear plays/play eats/eat studies/study teaches/teach uses/use
carries/carry""".split()
]


def having(r, heldout=False, verb=None):
    """'Anna has the red keys': who has it, what has she; with the given verb."""
    p = v.person(r)
    s = r.choice(
        (
            thing(r, heldout),
            f"the {v.adjective(r)} {v.noun(r)}s",
            f"a {v.adjective(r)} {v.noun(r)}",
            f"{r.randint(2, 90)} {v.noun(r)}s",
            f"a {v.noun(r)}",
        )
    )
    verb, base = r.choice([x for x in HAVING if verb in (None, x[0])])
    answer = f"{p} {verb} {you(s)}."
    asked = [
        (
            [
                f"who {verb} {s}?",
                f"who {verb} {s}?",
                f"which person {verb} {s}?",
                f"tell me who {verb} {s}.",
                f"do you know who {verb} {s}?",
            ],
            p,
        ),
        ([f"what does {p} {base}?", f"tell me what {p} {verb}.", f"what is it that {p} {verb}?"], you(s)),
    ]
    return Fact(
        ("has", verb, s),
        p,
        [f"{p} {verb} {s}"],
        asked,
        answer,
        f"who {verb} {you(s)}",
        (f"who {verb} {s}",),
        also=(("what", verb, p),),
    )


def event(r, heldout=False):
    """'My meeting with Mr X starts at 14:30'."""
    e = r.choice(EVENT) if r.random() < 0.8 else v.noun(r)
    owner = r.choice(("my", "my", "the", "our", v.name(r) + "'s"))
    s = f"{owner} {e}"
    long = s + r.choice(
        ("", "", f" with {v.person(r)}", f" in {v.place_name(r)}", f" to {v.place_name(r)}", f" about {v.noun(r)}s")
    )
    verb, base = r.choice(
        (
            ("starts", "start"),
            ("begins", "begin"),
            ("ends", "end"),
            ("leaves", "leave"),
            ("is", ""),
            ("is", ""),
            ("takes place", "take place"),
            ("opens", "open"),
            ("arrives", "arrive"),
            ("was moved", ""),
            ("finishes", "finish"),
        )
    )
    on = r.choice(
        (
            f"at {v.clock(r)}",
            f"at {v.clock(r)}",
            f"on {r.choice(DAY)}",
            f"on {v.date(r)}",
            f"on {r.choice(DAY)} at {v.clock(r)}",
            f"in {r.randint(2, 60)} minutes",
        )
    )
    if verb == "was moved":
        on = "to " + on.split(" ", 1)[1]
    whole = you(long).replace("our ", "your ", 1) if owner == "our" else you(long)
    wh = r.choice(("when", "when", "at what time"))
    if base:
        asked = [
            f"when does {s} {base}?",
            f"{wh} does {s} {base}?",
            f"when will {s} {base}?",
            f"do you know when {s} {verb}?",
            f"tell me when {s} {verb}.",
            f"when does {long} {base}?",
        ]
    else:
        asked = [
            f"when is {s}?",
            f"{wh} is {s}?",
            f"when is {long}?",
            f"what is the time of {s}?",
            f"tell me when {s} is.",
        ]
    asked += [f"{e}, when?", f"when was {s} again?", f"{s}, when was that?"]
    return Fact(
        ("event", s),
        on,
        [f"{long} {verb} {on}"],
        [(asked, on)],
        upper_first(f"{whole} {verb} {on}."),
        f"when {you(s)} is",
        ("when", s),
        also=(("event", e),),
    )


def quantity(r, heldout=False):
    """'There are 14 boxes in the cellar'."""
    n, what = str(r.randint(2, 10 ** r.randint(1, 4))), v.noun(r) + "s"
    where = r.choice(PLACES[:10]).format(a=v.adjective(r), n=v.noun(r), m=v.noun(r), c=v.place_name(r))
    if r.random() < 0.6:
        text, there = f"there are {n} {what} {where}", f"There are {n} {what} {where}."
        asked = [
            f"how many {what} are {where}?",
            f"how many {what} are there {where}?",
            f"how many {what} did I mention?",
            f"what is the number of {what} {where}?",
        ]
    else:
        p = v.person(r) if r.random() < 0.6 else thing(r, heldout)
        verb, base = r.choice(
            (("has", "have"), ("bought", "buy"), ("needs", "need"), ("sold", "sell"), ("counted", "count"))
        )
        text, there = f"{p} {verb} {n} {what}", upper_first(f"{you(p)} {verb} {n} {what}.")
        do = "does" if verb in ("has", "needs") else "did"
        asked = [
            f"how many {what} {do} {p} {base}?",
            f"how many {what} did I mention?",
            f"what number of {what} {do} {p} {base}?",
        ]
    return Fact(("many", what), n, [text], [(asked, n)], there, f"the number of {what}", (f"how many {what}",))


TRAITS = """allergic to|afraid of|interested in|good at|bad at|responsible for|proud of|married to|tired of|famous for|ready for|
angry about|happy with|in love with|waiting for|in charge of|worried about|late for|crazy about|similar to""".replace(
    "\n", ""
).split(
    "|"
)


def trait(r, heldout=False):
    """'Nora is allergic to nuts', 'my sister Nora is ...': who is it, to what."""
    p = v.person(r) if r.random() < 0.7 else f"my {r.choice(RELATION)} {v.name(r)}"
    t, n = r.choice(TRAITS), v.noun(r) + r.choice(("", "s"))
    asked = [
        (
            [
                f"who is {t} {n}?",
                f"who is {t} {n}?",
                f"do you know who is {t} {n}?",
                f"which person is {t} {n}?",
                f"tell me who is {t} {n}.",
            ],
            you(p),
        ),
        ([f"what is {p} {t}?", f"tell me what {p} is {t}."], n),
    ]
    return Fact(
        ("trait", t, n),
        you(p),
        [f"{p} is {t} {n}"],
        asked,
        upper_first(f"{you(p)} is {t} {n}."),
        f"who is {t} {n}",
        (f"who is {t} {n}",),
        also=(("what", t, p), *((("friend", p.split()[1]),) if p.startswith("my ") else ())),
    )


def changed(f, new):
    """The same fact with another value."""

    def swap(text):
        return text.replace(f.value, new)

    return replace(f, value=new, answer=swap(f.answer), asked=[(f.asked[0][0], new)])


ROLES = """capital|largest city|colour|symbol|leader|king|queen|president|manager|captain|inventor|founder|owner|
editor""".replace(
    "\n", ""
).split(
    "|"
)


def relation(r, heldout=False):
    """'Greta is the boss of Nils', 'Brelka is the capital of Tonia'."""
    role = r.choice((r.choice(RELATION + JOB), r.choice(ROLES), v.noun(r)))
    of = r.choice((v.name(r), v.place_name(r), thing(r, heldout), f"the {v.noun(r)} team"))
    x = v.person(r) if r.random() < 0.7 else v.noun(r).capitalize()
    text = f"{x} is the {role} of {of}"
    asked = [
        ask_words(r, f"the {role} of {of}"),
        f"who is the {role} of {of}?",
        f"who is {of}'s {role}?",
        f"name the {role} of {of}.",
    ]
    return Fact(
        ("role", role, of),
        x,
        [text, f"the {role} of {of} is {x}"],
        [(asked, x)],
        f"The {role} of {you(of)} is {x}.",
        f"the {role} of {you(of)}",
        (role, of),
    )


TITLES = "Captain Doctor Professor King Queen Sir Lady Uncle Aunt Little Big Old".split()


def personal(r, heldout=False):
    """What the user tells of himself."""
    kind = r.choice(list(PERSONAL))
    said, asked, topic, answer, ack = PERSONAL[kind]
    who = r.choice(ANIMAL if kind == "pet" else RELATION)
    x = {
        "name": lambda r: v.name(r) if r.random() < 0.9 else f"{r.choice(TITLES)} {v.name(r)}",
        "fullname": lambda r: f"{v.name(r)} {v.surname(r)}",
        "city": v.place_name,
        "pet": v.name,
        "friend": v.name,
        "job": lambda r: r.choice(JOB) if r.random() < 0.7 else v.noun(r),
        "food": lambda r: r.choice(FOOD) if r.random() < 0.6 else v.noun(r),
        "colour": lambda r: r.choice(COLOR) if r.random() < 0.7 else v.noun(r),
        "number": v.number,
        "sport": v.sport,
        "age": lambda r: str(r.randint(5, 99)),
        "birthday": v.date,
        "drink": v.noun,
        "book": lambda r: v.phrase(r).title(),
        "company": lambda r: v.noun(r).capitalize(),
        "language": lambda r: v.invented(r).capitalize(),
    }[kind](r)
    fill = {"v": x, "p": who}
    questions = [q.format(**fill) for q in asked] + [ask_words(r, topic.format(**fill))]
    return Fact(
        (kind, who if kind in ("pet", "friend") else ""),
        x,
        [r.choice(said).format(**fill)],
        [(questions, x)],
        answer.format(**fill),
        you(topic.format(**fill)),
        (topic.format(**fill),),
        ack.format(**fill),
        plain=True,
        also=(("name", ""),) if kind == "fullname" else (),
    )


def introduction(r, heldout=False):
    """Two personal facts in one sentence; asked for one of them."""
    n, c, j = v.name(r), v.place_name(r), r.choice(JOB)
    both = r.choice(
        (
            (f"I'm {n} and I live in {c}", "city"),
            (f"my name is {n} and I live in {c}", "city"),
            (f"I am {n} from {c}", "city"),
            (f"I'm {n}, I live in {c}", "city"),
            (f"hi, I am {n} and I work as a {j}", "job"),
            (f"I'm {n}, a {j}", "job"),
            (f"{n} is my name and {c} is my home", "city"),
            (f"I live in {c} and my name is {n}", "city"),
            (f"my name is {n}, I am a {j}", "job"),
            (f"hello, {n} here, I come from {c}", "city"),
        )
    )
    text, second = both
    pick = "name" if r.random() < 0.4 else second
    _, asked, topic, answer, _ = PERSONAL[pick]
    x = {"name": n, "city": c, "job": j}[pick]
    return Fact(
        (pick, ""),
        x,
        [text],
        [([*asked, ask_words(r, topic)], x)],
        answer.format(v=x),
        you(topic),
        (topic,),
        f"Nice to meet you, {n}.",
        plain=True,
        also=(("name", ""), (second, "")),
    )


KINDS = (
    (attribute, 30),
    (simple, 17),
    (place, 9),
    (action, 5),
    (having, 8),
    (event, 8),
    (quantity, 4),
    (relation, 4),
    (trait, 5),
    (personal, 12),
    (introduction, 4),
)


def draw(r, heldout=False):
    """A fact of any kind."""
    make = r.choices([k for k, _ in KINDS], [w for _, w in KINDS])[0]
    return make(r, heldout)


def rival(r, fact):
    """A fact that is easily taken for `fact`: same subject or same attribute; None where there is none."""
    if not fact.attribute:
        return None
    other = attribute(r)
    a, s = (fact.attribute, other.subject) if r.random() < 0.5 else (r.choice(ATTR), fact.subject)
    if (a, s) == (fact.attribute, fact.subject):
        return None
    x = v.value(r, a)
    return Fact(
        (a, s),
        x,
        [t.format(a=a, s=s, v=x) for t in (r.choice(STATE),)],
        [([t.format(a=a, s=s) for t in (r.choice(ASK),)], x)],
        f"The {a} of {you(s)} is {x}.",
        f"the {a} of {you(s)}",
        (a, s),
        attribute=a,
        subject=s,
    )
