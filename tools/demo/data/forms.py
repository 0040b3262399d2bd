"""The wrappings of statements and questions: openers, templates, noise.

Owns the template lists; the number of forms is their product. None of the forms in evalsets.py stands here.
"""
from .values import invented
from .words import FILLW

STATE = """the {a} of {s} is {v}|the {a} of {s} is {v}|the {a} of {s} is {v}|
please remember that the {a} of {s} is {v}|remember this: the {a} of {s} is {v}|for later: {s} has the {a} {v}|
{v} is the {a} of {s}|note that {s} has {v} as its {a}|the {a} for {s} is {v}, keep it in mind|I set the {a} of {s} to {v}|
just so you know, the {a} of {s} is {v}|keep in mind: {a} of {s} = {v}|we chose {v} as the {a} of {s}|
by the way, {s} now has the {a} {v}|{s} has {a} {v}|{s}: {a} {v}|as for {s}, its {a} is {v}|{a} of {s}: {v}|
for {s} we use the {a} {v}|the {a} that goes with {s} is {v}|{s}, {a}: {v}|the new {a} of {s} is {v}|
today the {a} of {s} became {v}|I think the {a} of {s} is {v}|my friend says that the {a} of {s} is {v}|
it is {v}, the {a} of {s}|the {a} of {s} was {v} and still is|{s} was given the {a} {v}|they told me that the {a} of {s} is {v}|
let the {a} of {s} be {v}|I want the {a} of {s} to be {v}|{v} has been the {a} of {s} for years|you will need the {a} of {s}, which is {v}|
we call {v} the {a} of {s}|the label on {s} gives {v} as the {a}|according to the manual the {a} of {s} is {v}|
store {v} under the {a} of {s}|{s} comes with {v} as {a}|there is also {s} with the {a} {v}|the {a} of {s} equals {v}|
set the {a} of {s} to {v}|use {v} for the {a} of {s}|{s} ({a}: {v})|the {a} belonging to {s} was {v}|
I have just learned that {s} has the {a} {v}|
which {a} does {s} have, you ask? {v}|if anybody asks for the {a} of {s}, say {v}|{s} swapped its {a} for {v}|{s} takes {v} as {a}|
unless I am mistaken {v} is what they use as the {a} of {s}|{v} is what you find under the {a} of {s}|my diary says {v} for the {a} of {s}|
somebody gave {s} another {a}, namely {v}|since last week {v} does duty as the {a} of {s}|{s} works with {v} as its {a}|
I was asked for the {a} of {s} and said {v}|the {a} of {s}? It is {v}|put down {v}, that is the {a} of {s}|
in the list {v} stands next to the {a} of {s}|{v} - so reads the {a} of {s}|{s} changed, its {a} is {v} by now|
we agreed on {v} when it comes to the {a} of {s}|for the {a} of {s} they picked {v} in the end|{v} counts as the {a} of {s}|
the thing with {s} is that its {a} is {v}|{s} lists {v} as {a}|it says {v} where the {a} of {s} should be|
between you and me {s} has {v} for a {a}|nobody else knows that the {a} of {s} is {v}|{a} {v} is for {s}|
whenever you see {s}, think of {v} as its {a}|on paper the {a} of {s} is {v}|the {a} of {s} will be {v}|
make a note: {a} for {s} is {v}|{s} needs the {a} {v}|to open {s} you need the {a} {v}|the answer to the {a} of {s} is {v}""".replace(
    "\n", ""
).split(
    "|"
)

ASK = """what is the {a} of {s}?|what is the {a} of {s}?|tell me the {a} of {s}.|what was the {a} of {s}?|do you remember the {a} of {s}?|
which {a} does {s} have?|what {a} did I mention for {s}?|I forgot the {a} of {s}. What is it?|remind me of the {a} for {s}.|
can you give me the {a} of {s}?|and the {a} of {s}?|what is {s}'s {a}?|please state the {a} of {s}.|which {a} goes with {s}?|
{s} has which {a}?|for {s}, what is the {a}?|about {s}: what is the {a}?|{s}, {a}?|{a} of {s}?|{a}, {s}?|what does {s} have as its {a}?|
what did I set as the {a} of {s}?|what {a} did we choose for {s}?|the {a} that {s} has, please.|I am looking for the {a} of {s}.|
I would like to know the {a} of {s}.|is there a {a} for {s}?|I want the {a} of {s}.|say the {a} of {s}.|let me have the {a} for {s}.|
what should I use as the {a} of {s}?|someone asked me for the {a} of {s}.|earlier I told you the {a} of {s}; what was it?|
what's the {a} of {s}?|whats the {a} of {s}|{s} - {a}?|find the {a} of {s}.|look up the {a} of {s}.|how about the {a} of {s}?|
and {s}? I mean its {a}.|do we have the {a} of {s}?|you know the {a} of {s}, right?|they ask for the {a} of {s}.|it is about {s} and its {a}.|
who knows the {a} of {s}?|which one was the {a} of {s}?|quickly, the {a} of {s}!|I lost the {a} of {s}.|show the {a} of {s}.|
print the {a} of {s}.|may I have the {a} of {s}?|if I ask for the {a} of {s}, what do you say?|what do you have as the {a} of {s}?|
did I mention the {a} of {s}?|help me with the {a} of {s}.|I never remember the {a} of {s}.|complete this: the {a} of {s} is ...""".replace(
    "\n", ""
).split(
    "|"
)

WHAT = """what is {x}?|what is {x}?|what was {x}?|what is {x} again?|what was {x} again?|do you know {x}?|do you still know {x}?|
can you tell me {x}?|could you tell me {x}?|I need {x}.|give me {x}.|tell me {x}.|tell me {x} again.|{x}?|{x}, please.|
remind me, what is {x}?|I forgot {x}.|I cannot remember {x}.|what did I say about {x}?|which value did {x} have?|repeat {x}.|state {x}.|
please recall {x}.|what's {x}?|do you remember {x}?|{x} again please|what did I tell you about {x}?|I would like to have {x}.|
say {x} once more.|may I have {x}?|you know {x}, don't you?|so what is {x}?|let me know {x}.|show me {x}.""".replace(
    "\n", ""
).split(
    "|"
)

QUESTION_OPENERS = (
    [""] * 12
    + """Please tell me: |One question: |Quick question: |Now: |So, |Sorry, |Could you help me: |I have to know: |
Okay, |Well, |Hey, |By the way, |Then |And |But |Now tell me, |Thanks. |Great. |Hm, |Hello again, |One more thing: |
Back to what I said: |Let me ask you something: |Ok, |Oh, |Right, |Good, now |Alright: """.replace(
        "\n", ""
    ).split(
        "|"
    )
)
STATEMENT_OPENERS = (
    [""] * 12
    + """Remember: |Note: |FYI: |Important: |Please note that |Keep in mind that |Just so you know: |
I want you to remember that |Listen: |New information: |Please remember: |Remember that |You should know that |Don't forget: |
Save this: |For your information, |Here is a fact: |Ok, |By the way, |Let me tell you something: |
Let me tell you that |I tell you that |Also, |First of all, |To begin with: |Today I learned that |It is important that you know: |
Write this down: |Attention: |One thing to keep: |This is what I know: |Please keep this: """.replace(
        "\n", ""
    ).split(
        "|"
    )
)
TAILS = [""] * 30 + [
    " Thanks.",
    " Please keep it in mind.",
    " Do not forget it.",
    " That is all.",
    " OK?",
    " Remember it, please.",
    " This is important.",
    " I may ask you later.",
    " Just keep it.",
    " You may need it.",
]

# Frames are composed of parts, so that no single wording can be learned by heart.
LINKS = """is|is|was|equals|reads|says|became|remains|stays|should read|must be|will be|shall be|has to be|means|shows|gives|turned into|
got set to|goes by|would be|is now|is always|is still|happens to be|appears to be|comes out as|stands at|amounts to|is called|is written""".replace(
    "\n", ""
).split(
    "|"
)
ENDS = (
    [""] * 14
    + """ these weeks| for now| as always| again| from now on| since Monday| I think| they say| of course| after all| by the way| until further notice|
 as agreed| in this house| at the moment| as you know| now and later| if I am right| once and for all| nothing else|, believe me|, I am sure|, that much is certain|
, so far""".replace(
        "\n", ""
    ).split(
        "|"
    )
)
WHO = """I|we|they|somebody|my boss|my friend|the teacher|a guest|everybody|the new man|my mother|the office|our team|the customer|one of us""".split(
    "|"
)
WANTS = """need|needs|want|wants|would like|asked for|is looking for|must know|forgot|lost|has to know|wants to see|cannot find|are waiting for|wishes to have|
could use|should be given|insist on|called about|would love to hear|was curious about|has a question about|is not sure about""".replace(
    "\n", ""
).split(
    "|"
)
LEADS = """suppose {w} {v} {x}|{w} {v} {x}|what if {w} {v} {x}?|{w} {v} {x}, can you help?|{w} {v} {x}, so tell me|look into your memory for {x}|
what would you say is {x}?|would you give me {x}?|would you be so kind and say {x}?|could I see {x}?|how does {x} read?|how did I call {x}?|
in this chat, {x} was ...|return {x}|output {x}|answer with {x}|spell out {x}|check {x} for me|recite {x}|list {x}|name {x}|bring me {x}|get {x}|read out {x}|
{x} - what was that?|{x} - quick!|{x}, what is that again?|{x}: what did I say?|I am asking for {x}|my question is about {x}|now about {x}|
what do you know about {x}?|what have you got for {x}?|what is stored for {x}?|what was given as {x}?|what did you learn about {x}?|
can {x} be told?|is {x} known to you?|was {x} mentioned?""".replace(
    "\n", ""
).split(
    "|"
)

# kind: (statements, questions, what is asked for, answer, acknowledgement)
PERSONAL = {
    "name": (
        [
            "my name is {v}",
            "I am {v}",
            "hi, I'm {v}",
            "you can call me {v}",
            "hello, my name is {v}",
            "I'm called {v}",
            "it's {v} here",
            "{v} is my name",
            "people call me {v}",
            "hey, I'm {v}",
            "call me {v}",
            "please call me {v}",
            "I go by {v}",
            "this is {v}",
        ],
        [
            "what is my name again?",
            "do you know my name?",
            "and who am I?",
            "tell me who I am.",
            "what is my name?",
            "who am I?",
            "do you remember my name?",
            "what's my name?",
            "how am I called?",
            "do you know who I am?",
            "what do people call me?",
            "tell me my name.",
            "say my name.",
        ],
        "my name",
        "Your name is {v}.",
        "Nice to meet you, {v}.",
    ),
    "fullname": (
        ["my full name is {v}", "my complete name is {v}"],
        ["what is my full name?", "tell me my full name."],
        "my full name",
        "Your full name is {v}.",
        "Noted.",
    ),
    "city": (
        [
            "I live in {v}",
            "my home is in {v}",
            "I am from {v}",
            "I moved to {v}",
            "I have a flat in {v}",
            "I come from {v}",
            "my home town is {v}",
        ],
        [
            "what town is my home in?",
            "in what town am I living?",
            "which place do I come from?",
            "what city am I from?",
            "which village do I live in?",
            "what place do I live in?",
            "where am I living?",
            "in which town do I live?",
            "where do I live?",
            "which city do I live in?",
            "where is my home?",
            "where am I from?",
            "in which city is my home?",
            "what is my home town?",
        ],
        "the city I live in",
        "You live in {v}.",
        "{v} sounds lovely.",
    ),
    "job": (
        ["I work as a {v}", "my job is {v}", "I'm a {v} by profession", "I am a {v}", "I earn my money as a {v}"],
        ["what is my job?", "what do I do for work?", "what is my profession?", "what do I work as?"],
        "my job",
        "You work as a {v}.",
        "That is good work.",
    ),
    "pet": (
        [
            "I have a {p} called {v}",
            "my {p} is named {v}",
            "the name of my {p} is {v}",
            "my {p} is called {v}",
            "we have a {p}, {v}",
        ],
        ["what is my {p} called?", "what is the name of my {p}?", "how is my {p} named?", "what's my {p}'s name?"],
        "the name of my {p}",
        "Your {p} is called {v}.",
        "{v} is a nice name.",
    ),
    "food": (
        ["my favourite food is {v}", "I like {v} most of all foods", "I love eating {v}"],
        ["what is my favourite food?", "what do I love to eat?", "which food do I like best?"],
        "my favourite food",
        "Your favourite food is {v}.",
        "Noted.",
    ),
    "drink": (
        ["my favourite drink is {v}", "I love to drink {v}"],
        ["what is my favourite drink?", "what do I love to drink?"],
        "my favourite drink",
        "Your favourite drink is {v}.",
        "Noted.",
    ),
    "colour": (
        ["my favourite colour is {v}", "the colour I like best is {v}", "I like the colour {v}"],
        ["what is my favourite colour?", "which colour do I like best?", "which colour do I like?"],
        "my favourite colour",
        "Your favourite colour is {v}.",
        "Noted.",
    ),
    "number": (
        ["my lucky number is {v}", "my favourite number is {v}"],
        ["what is my lucky number?", "what is my favourite number?"],
        "my lucky number",
        "Your number is {v}.",
        "Noted.",
    ),
    "sport": (
        ["my favourite sport is {v}", "the sport I do is {v}"],
        ["what is my favourite sport?", "which sport do I do?"],
        "my favourite sport",
        "Your favourite sport is {v}.",
        "Noted.",
    ),
    "age": (
        ["I am {v} years old", "my age is {v}"],
        ["how old am I?", "what is my age?"],
        "my age",
        "You are {v} years old.",
        "Noted.",
    ),
    "birthday": (
        ["my birthday is on {v}", "I was born on {v}"],
        ["when is my birthday?", "when was I born?"],
        "my birthday",
        "Your birthday is on {v}.",
        "Noted.",
    ),
    "book": (
        ["my favourite book is {v}", "I like to read {v}"],
        ["what is my favourite book?", "which book do I like?"],
        "my favourite book",
        "Your favourite book is {v}.",
        "Noted.",
    ),
    "company": (
        ["I work for {v}", "my company is {v}"],
        ["who do I work for?", "what is my company?"],
        "my company",
        "You work for {v}.",
        "Noted.",
    ),
    "language": (
        ["I speak {v}", "my language is {v}"],
        ["which language do I speak?", "what is my language?"],
        "my language",
        "You speak {v}.",
        "Noted.",
    ),
    "friend": (
        ["my {p} is called {v}", "my {p}'s name is {v}", "{v} is my {p}", "the name of my {p} is {v}"],
        ["what is my {p} called?", "what is my {p}'s name?", "who is my {p}?", "what's the name of my {p}?"],
        "my {p}'s name",
        "Your {p} is called {v}.",
        "Noted.",
    ),
}
SMALL = """please now then again still also just once the a that which what it this my your i you we they can will did does was is for to
of and um well so hm ok""".split()


def upper_first(text):
    return text[:1].upper() + text[1:]


def noise(r, most):
    """0..most words that carry no information."""
    return [
        r.choice(FILLW) if (k := r.random()) < 0.5 else r.choice(SMALL) if k < 0.8 else invented(r)
        for _ in range(r.randint(0, most))
    ]


def noisy(r, *parts):
    """The key phrases among random words: only they tell what is asked."""
    parts, out = list(parts), noise(r, 6)
    if len(parts) > 1 and r.random() < 0.5:
        parts.reverse()
    for i, part in enumerate(parts):
        out += [part, *noise(r, 6 if i == len(parts) - 1 else 3)]
    text = " ".join(out) + r.choice("???..!") * r.choice((1, 1, 1, 0))
    return upper_first(text) if r.random() < 0.7 else text


def joined(opener, text):
    """The opener decides whether the text starts with a capital."""
    if not opener or opener.endswith(("! ", ". ")):
        return opener + upper_first(text)
    return opener + text


def open_question(r, question):
    """The question behind an opener, now and then behind noise or all lower case."""
    if r.random() < 0.06:
        question = " ".join([*noise(r, 4), question])
    text = joined(r.choice(QUESTION_OPENERS), question)
    if r.random() < 0.06:
        text = text[:1].lower() + text[1:]
    if r.random() < 0.05:
        text = text.rstrip("?.")
    if r.random() < 0.03:
        text += r.choice((" Please.", " Thanks.", " Thank you!", " I need it now."))
    return text


def open_statement(r, text, led=False):
    """The statement behind an opener or noise, with a tail; led by a value it keeps its first letter."""
    k = r.random()
    if k < 0.08 and text.startswith(("the ", "my ", "our ", "there ")):  # before a value noise would belong to it
        text = " ".join([*noise(r, 4), text])
    opener = r.choice(STATEMENT_OPENERS)
    end = "." if r.random() < 0.93 else r.choice(("", "!"))
    out = (opener + text if led else joined(opener, text)) + end
    if r.random() < 0.05 and not led:
        out = out[:1].lower() + out[1:]
    return out + (r.choice(TAILS) if end else "")


def ask_words(r, what):
    """A question for a noun phrase."""
    if r.random() < 0.4:
        return r.choice(LEADS).format(x=what, w=r.choice(WHO), v=r.choice(WANTS))
    return r.choice(WHAT).format(x=what)


def frame(r, attribute, subject, value):
    """A statement composed of parts: who is meant, a link, the value, perhaps an end."""
    what = r.choice(
        (
            "the {a} of {s}",
            "the {a} of {s}",
            "{s}'s {a}",
            "the {a} for {s}",
            "{s} and its {a}:",
            "the {a} that belongs to {s}",
            "the {a} in the case of {s}",
            "as {a} of {s}",
            "{a}, {s}:",
        )
    ).format(a=attribute, s=subject)
    if r.random() < 0.35:
        link = r.choice(
            (
                "is",
                "was",
                "becomes",
                "will be",
                "serves for",
                "stands for",
                "belongs to",
                "is used for",
                "acts as",
                "counts as",
                "is given as",
                "goes into",
                "is noted as",
                "is taken for",
                "has become",
                "works for",
            )
        )
        return " ".join((value, link, what.rstrip(":"))) + r.choice(ENDS)  # noise before it would belong to the value
    link = "" if what.endswith(":") else r.choice(LINKS)
    return " ".join(x for x in (*noise(r, 3), what, link, value) if x) + r.choice(ENDS)


# Statements that a person would make in passing: a clause before, somebody who does something with the value, a second half.
BEFORE = """according to {w2} |if {w2} remembers it well, |since {d} |until {d} |in the list of {w2} |when {w2} came back, |as {w2} put it, |
on the second page |at the {n} |after the {n} |before the {n} |because of the {n} |for the record, |in case of doubt |strictly speaking, |
in short, |to be honest, |as it turned out, |on {d} |during the {n} |without the {n} |like every year |back then """.replace(
    "\n", ""
).split(
    "|"
)
DEEDS = """gave|picked|took|typed in|noted|saw|found|suggested|wanted|read|kept|heard|prefer|printed out|whispered|put|proposed|entered|saved""".split(
    "|"
)
SEARCHED = """looked up|asked about|guessed|finally have|wrote down|checked|talked about|decided on|corrected|searched for|copied|announced|
settled|worked out|were told|dictated|remembered|had to repeat|spelled""".replace(
    "\n", ""
).split(
    "|"
)
MARKED = """written|shown|noted|listed|glued|engraved|saved|found|marked|given|mentioned|stored|painted""".split("|")
WHEREABOUTS = """on|in|under|beside|for|with|at|inside|next to""".split("|")
USERS = """whoever|everyone who|a person who|the one who|anyone that|all who""".split("|")
USES = """opens|sees|cleans|visits|moves|sells|uses|borrows|needs|paints|touches|looks at|asks for""".split("|")
FINDS = """finds|needs|types|hears|must say|is shown|gets|writes|remembers|expects""".split("|")
HALVES = """{u} {o} {s} {f} {v}, because that is its {a}|{u} {o} {s} {f} {v} as its {a}|the {a} {m} {p} {s} {l} {v}|
{w} {e} {v} for {s}, I mean as its {a}|{w} {e} {v} as the {a} for {s}|{w} {q} the {a} of {s}: {v}|{w} {q} the {a} of {s}, {v}|
only {v} works as the {a} of {s}|only {v} is accepted where the {a} of {s} is asked for|no other {a} than {v} fits {s}|
{s} has a new {a}, that is {v}|{s} has had several, but the present {a} is {v}|{w} {e} {v}. That is meant for {s}, for its {a}|
{v} is on the paper. It goes with {s}, it is the {a}|if {s} wants its {a}, then {v}|{s} and {v} belong together, the latter being the {a}|
{a}, as far as {s} goes, {l} {v}|{s} would not work without its {a}, {v}|the {n} says it: {a} of {s}, {v}|
{w} {e} {s} a {a}, and it is {v}|{s} received {v} when its {a} was changed|{s} from now: {a} {v}|{s}, with {v} in the place of the {a}""".replace(
    "\n", ""
).split(
    "|"
)

PARTS = {
    "w": WHO,
    "w2": ("my boss", "the office", "a guest", "our team", "the teacher"),
    "d": ("Monday", "Friday", "last week", "the summer", "yesterday", "the first of May"),
    "n": ("meeting", "letter", "move", "list", "holidays", "sign", "repair", "call"),
    "e": DEEDS,
    "q": SEARCHED,
    "m": MARKED,
    "p": WHEREABOUTS,
    "l": LINKS,
    "u": USERS,
    "o": USES,
    "f": FINDS,
}


def passing(r, attribute, subject, value):
    """A statement composed of clauses, the value anywhere in it."""
    half = r.choice(HALVES)
    before = r.choice(BEFORE) if r.random() < 0.3 and not half.startswith("{v}") else ""
    words = {k: r.choice(x) for k, x in PARTS.items()}
    return (before + half).format(a=attribute, s=subject, v=value, **words)
