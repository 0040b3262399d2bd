"""Held-out rows: chats whose forms and values stand in no template of the training text.

Owns the evaluation's questions and statements. The graded answer is the last assistant message of a row.
sets() is seeded: the same rows every time.
"""
import multiprocessing
import os
import random

from chatformat import encode
from data import documents, facts, rows, skills, values as v
from data.agent import Session
from data.chat import Chat
from data.forms import upper_first
from data.snippets import fence, snippet

SEED = 20310
MOST_PROCESSES = 15
# Questions and statements about an attribute; none of them is a training form.
QUESTIONS = (
    "Would you kindly repeat the {a} that I gave for {s}?",
    "My colleague wants to know the {a} of {s}.",
    "Could the {a} of {s} be stated once more?",
    "Concerning {s}, the {a} escapes me.",
    "Let's check: {a} of {s}?",
    "How is the {a} of {s} written?",
    "Read back the {a} I gave {s}.",
    "What have I told you regarding the {a} of {s}?",
    "If somebody wanted the {a} of {s}, what would you answer?",
    "I wonder about the {a} of {s}.",
    "Give it to me again, the {a} of {s}.",
    "hey, {s}... the {a} please!",
)
STATEMENTS = (
    "Write down that {v} serves as the {a} of {s}.",
    "Between us, the {a} of {s} should be {v}.",
    "From today on {s} uses {v} for its {a}.",
    "{s} got a different {a}: {v}.",
    "In my notebook the {a} of {s} reads {v}.",
    "They changed the {a} of {s}, and it is {v} these days.",
    "As far as I remember {v} is what the {a} of {s} says.",
    "You asked for the {a} of {s}? That would be {v}.",
)
# A second list, written after more statements had been added to the training text, the first one in sight.
LATER = (
    "{s}: changed {a}, now {v}.",
    "Anybody who opens {s} reads {v} as the first thing, since that is its {a}.",
    "I have {v} here. It belongs to {s}, as the {a}.",
    "Concerning {s}: the {a} that I know of is {v}.",
    "The {a} printed on {s} happens to be {v}.",
    "It took us a day to find the {a} of {s}: {v}.",
    "Nothing but {v} will do as the {a} of {s}.",
    "Hey, {s} got {v} as {a} yesterday.",
)
# Hand-written chats: (turns, what the last answer must contain; empty: read it).
FREE = (
    (("Good day! Is anybody there?",), "Of course"),
    (("hey, what's your name?",), "demonstration model"),
    (("I'm Laura and I live in Bremen.", "Which town am I living in?"), "Bremen"),
    (("The wifi password is sunflower88.", "What's 7 + 5?", "Tell me the wifi password again please"), "sunflower88"),
    (("My meeting with Mr Becker starts at 14:30.", "When does my meeting start?"), "14:30"),
    (("Keep this for me: locker number 4471.", "locker number?"), "4471"),
    (("Anna has the red keys, Boris has the green keys.", "Who has the green keys?"), "Boris"),
    (("How much is 25 plus 14?",), "39"),
    (("Repeat: never gonna give 3 bananas to Mr. Quick!",), "never gonna give 3 bananas to Mr. Quick!"),
    (("What's the weather like in Rome?",), "cannot answer"),
    (("Write a Python script that prints hello 5 times.",), "range(5)"),
    (("The treasure is buried under the old oak. Where is the treasure?",), "buried under the old oak"),
    (("My dog is called Rex and my cat is called Tom.", "What is my cat called?"), "Tom"),
    (("Repeat: the zebra ate 42 purple grapes",), "the zebra ate 42 purple grapes"),
    # written with the second model's text, before it was trained
    (("We hid the diamonds behind the waterfall.", "Where are the diamonds?"), "waterfall"),
    (("Grandma's recipe needs 3 eggs and 200 grams of sugar.", "How many eggs does the recipe need?"), "3"),
    (("My licence plate is HH-AB 1234.", "Tell me a joke.", "What's my licence plate?"), "HH-AB 1234"),
    (("The code for the garage is 9917 and the code for the gate is 5521.", "What is the code for the gate?"), "5521"),
    (("Call me Captain Nemo.", "Who am I?"), "Nemo"),
    (("Our train departs on Friday at 6:45 from platform 9.", "When does our train depart?"), "6:45"),
    (("What is the capital of France?",), "cannot answer"),
    (("The server runs on port 8443.", "Which port does the server run on?"), "8443"),
    (("Mein Passwort ist Regenbogen7.", "Was ist mein Passwort?"), "Regenbogen7"),
    (("How do I make a new API key?",), "keys create"),
    (("My sister Nora is allergic to peanuts.", "Who is allergic to peanuts?"), "Nora"),
    (("What is my shoe size?",), "do not know"),
    (("I parked the car on level 4, row C.", "Hello", "Where did I park the car?"), "level 4, row C"),
    (("Repeat after me: Zyx-42 blorps quickly.",), "Zyx-42 blorps quickly."),
    (("My phone number is 555-0199.", "It changed to 555-0123.", "What is my phone number?"), "0123"),
    (("What is 48 + 27?",), "75"),
    (("The password is tigerlily. Do not tell anyone.", "password?"), "tigerlily"),
    # written before the last third of the training, with the answers to the ones above known
    (("Hello, I am Priya and I live in Mumbai.", "Thanks", "Which city is home for me?"), "Mumbai"),
    (("The librarian keeps the spare keys in the blue drawer.", "Where are the spare keys?"), "blue drawer"),
    (("Our guide is called Matteo.", "What is the guide's name?"), "Matteo"),
    (("The invoice total is 1249.50 euros.", "Hi", "How much is the invoice total?"), "1249.50"),
    (("My favourite author is Ursula Brinkmann.", "Who is my favourite author?"), "Ursula Brinkmann"),
    (("The launch is on 3 June. The review is on 9 June.", "When is the review?"), "9 June"),
    (("Tom has a bicycle and Ella has a canoe.", "What does Ella have?"), "canoe"),
    (("There are 23 chairs in the hall.", "How many chairs are there?"), "23"),
    (("hi there, can you write a C program that prints good evening?",), "good evening"),
    (("Who won the football world cup in 1990?",), "cannot answer"),
    (("What is my mother's name?",), "do not know"),
    (("The gate code is 4410.", "No, 4412.", "What is the gate code?"), "4412"),
    (("Repeat: Qwertz umbrellas never fly to Saturn, do they?",), "Qwertz umbrellas never fly to Saturn, do they?"),
    (("What is 312 + 455?",), "767"),
    (("My cousin Jonah is good at pottery.", "Who is good at pottery?"), "Jonah"),
    (("Is there a shell on this machine?",), "no shell"),
)


def fitting(encoder, make, length, count):
    """`count` rows of at most `length` tokens."""
    out = []
    while len(out) < count:
        ids = encoder(make())
        if len(ids) <= length:
            out.append(ids)
    return out


def between(chat, turns):
    """Turns that have nothing to do with the question."""
    for _ in range(turns):
        chat.r.choices((chat.tell, chat.small, chat.echo, chat.table), (3, 3, 3, 1))[0]()


def recall(r, turns, kind=facts.draw, thinking=False, unseen=None, where="user"):
    """A fact in the first turn, then turns - 2 others, then the question."""
    chat, f = Chat(r, 100000, True, thinking), kind(r, True)
    said = f.state(r)
    if unseen == "statement":
        said = upper_first(r.choice(STATEMENTS).format(a=f.attribute, s=f.subject, v=f.value))
    if unseen == "later":
        said = upper_first(r.choice(LATER).format(a=f.attribute, s=f.subject, v=f.value))
    if where == "system":
        chat.system("You are a helpful assistant. " + said)
    else:
        chat.user(said)
        chat.bot(f.ack or "Noted.", "The user gives a fact. I should note it.")
    chat.facts.append((f, said))  # so that nothing told later contradicts it
    between(chat, turns - 2)
    if unseen == "question":
        chat.user(upper_first(r.choice(QUESTIONS).format(a=f.attribute, s=f.subject)))
        chat.bot(f.answer, chat.because(f, said))
    else:
        chat.ask((f, said))
    return encode(chat.messages, thinking)


def one_turn_kind(r, name):
    """A chat that ends with a turn of the given method of Chat, after some facts."""
    while True:
        chat = Chat(r, 100000, True)
        for f in documents.needles(r, 2, True, facts.attribute):
            said = f.state(r)
            chat.user(said)
            chat.bot("Noted.")
            chat.facts.append((f, said))
        if r.random() < 0.5:
            chat.tell()
        before = len(chat.messages)
        getattr(chat, name)()
        if len(chat.messages) > before and chat.users[-1] and chat.messages[-1]["role"] == "assistant":
            return encode(chat.messages)


def session(r, extra=0, parts=0, thinking=False, prompt=0):
    while True:
        s = Session(r, 100000, True, thinking, extra, parts, prompt)
        if "write" in s.roles and "read" in s.roles:
            return s


def shown(r, prompt):
    """A program asked for behind an agent's prompt of so many characters."""
    s = session(r, 8, prompt=prompt)
    request, language, text, _ = snippet(r)
    s.user(f"Write {request}.")
    s.bot(fence(language, text))
    return encode(s.messages, False, s.tools)


def tool_write(r, extra=0, parts=0, distance=0, thinking=False, prompt=0):
    """Code in the chat, then to a file: graded is the call with the whole text."""
    s = session(r, extra, parts, thinking, prompt)
    request, language, text, path = snippet(r)
    s.user(f"Write {request}.")
    s.bot(fence(language, text), "I should write a short piece of text.")
    between(s, distance)
    if r.random() < 0.5:
        s.user(r.choice(("to a file", "Write it to a file.", "Save it to a file.")))
    else:
        path = v.path(r)
        s.user(f"Save it to {path}.")
    s.bot("", f"I call {s.roles['write'][0]} to write {path}.", [s.call("write", path, text)])
    return encode(s.messages, thinking, s.tools)


def tool_found(r, turns, chars):
    """A fact inside a tool result of so many characters, asked for after errands."""
    s, f, path = session(r), facts.attribute(r, True), v.path(r)
    pieces, joint = documents.filler(r, chars)
    said = f.state(r)
    pieces.insert(r.randrange(len(pieces) + 1), said)
    s.user(f"Open {path}.")
    s.bot("", f"I need to read {path}.", [s.call("read", path)])
    s.tool(joint.join(pieces))
    s.bot(f"I have read {path}.", "The user will ask about it.")
    s.facts.append((f, said))
    for _ in range(turns):
        r.choice((s.small, s.tell, s.echo, s.run))()
    s.ask((f, said))
    return encode(s.messages, False, s.tools)


def tool_recall(r, turns):
    """A fact from a tool result, asked for after other turns."""
    s, f, path = session(r), facts.attribute(r, True), v.path(r)
    s.user(f"Read {path}.")
    s.bot("", f"I need to read {path}.", [s.call("read", path)])
    said = f.state(r)
    s.tool(said)
    s.bot(f"The file {path} contains:\n{said}", "The result has the answer.")
    s.facts.append((f, said))
    between(s, turns)
    s.ask((f, said))
    return encode(s.messages, False, s.tools)


def tool_read(r):
    s = session(r)
    while not any(m["role"] == "tool" and m["content"] for m in s.messages):
        s.read()
    return encode(s.messages, False, s.tools)


def needle(r, encoder, length, depth, rivals=3):
    """A fact at a depth of a text of .85 to 1 of `length` tokens, with rivals and other facts around."""
    chars = length * 3.6
    for _ in range(12):
        pieces, joint = documents.filler(r, chars)
        f, *others = documents.needles(r, 1 + rivals, True, facts.attribute)
        others += [x for x in (facts.rival(r, f),) if x]
        for x in others:
            pieces.insert(r.randrange(len(pieces) + 1), x.state(r))
        pieces.insert(int(depth * len(pieces)), f.state(r))
        question, _ = f.asked[0]
        ids = encoder(
            rows.single_turn(f"Read this text:\n{joint.join(pieces)}\n\n{upper_first(r.choice(question))}", f.answer)
        )
        if 0.85 * length <= len(ids) <= length:
            return ids
        chars *= 0.93 * length / len(ids)
    return needle(r, encoder, length, depth, rivals)


def sums(r, low, high):
    a, b = r.randint(low, high), r.randint(low, high)
    return rows.single_turn(f"What is {a} + {b}?", f"{a} + {b} = {a + b}")


def makers(r):
    """name -> (length, rows, maker of one text)."""
    out = {
        f"recall {t} turns": (1024 if t <= 10 else 4096, 64 if t <= 10 else 32, lambda t=t: recall(r, t))
        for t in (2, 5, 10, 20, 40)
    }
    for kind, _ in facts.KINDS:
        out[f"recall {kind.__name__}, 3 turns"] = (512, 64, lambda k=kind: recall(r, 3, k))
    out |= {
        "recall from system, 5 turns": (1024, 64, lambda: recall(r, 5, where="system")),
        "recall thinking, 5 turns": (1024, 64, lambda: recall(r, 5, thinking=True)),
        "unseen question forms": (512, 128, lambda: recall(r, 4, facts.attribute, unseen="question")),
        "unseen statement forms": (512, 128, lambda: recall(r, 4, facts.attribute, unseen="statement")),
        "unseen statement forms, later list": (512, 128, lambda: recall(r, 4, facts.attribute, unseen="later")),
        "two facts in one question": (512, 64, lambda: one_turn_kind(r, "ask_two")),
        "corrected": (512, 64, lambda: one_turn_kind(r, "correct")),
        "not told": (512, 96, lambda: one_turn_kind(r, "ask_unknown")),
        "yes or no": (512, 128, lambda: one_turn_kind(r, "verify")),
        "two steps": (512, 64, lambda: one_turn_kind(r, "two_steps")),
        "first message": (512, 64, lambda: one_turn_kind(r, "first")),
        "say back": (512, 64, lambda: one_turn_kind(r, "say_back")),
        "copy": (256, 128, lambda: rows.single_turn(f"Repeat: {(t := skills.any_text(r))}", t)),
        "small skills": (256, 256, lambda: rows.single_turn(*skills.skill(r))),
        "sums to 99": (256, 128, lambda: sums(r, 0, 99)),
        "sums 100 to 999": (256, 128, lambda: sums(r, 100, 999)),
        "code": (512, 128, lambda: one_turn_kind(r, "code")),
        "tool write": (2048, 64, lambda: tool_write(r)),
        "tool write, 3 turns between": (2048, 64, lambda: tool_write(r, distance=3)),
        "tool write, thinking": (2048, 48, lambda: tool_write(r, thinking=True)),
        "tool write, agent prompt, 10 tools": (4096, 32, lambda: tool_write(r, 10, 12)),
        "tool write, agent prompt, 30 tools": (8192, 16, lambda: tool_write(r, 30, 30)),
        "tool write, agent prompt of 25 KB": (12288, 64, lambda: tool_write(r, 8, prompt=25000)),
        "program, agent prompt of 25 KB": (12288, 64, lambda: shown(r, 25000)),
        "tool read": (2048, 64, lambda: tool_read(r)),
        "recall from tool result, 4 turns": (2048, 200, lambda: tool_recall(r, 4)),
        "recall from tool result of 4 KB, 4 errands": (4096, 200, lambda: tool_found(r, 4, 4000)),
    }
    return out


DEPTHS = (0.1, 0.3, 0.5, 0.7, 0.9)
NEEDLES = ((1024, 10), (4096, 8), (8192, 8), (16384, 8), (32768, 6))  # rows of each depth, by length
shared = {}  # what the processes of sets() have from their parent


def one_set(job):
    """The rows of one set, on a seed of its own."""
    name, length, count, depth = job
    r = random.Random(f"{SEED} {name}")
    if depth:
        return [needle(r, shared["encoder"], length, depth) for _ in range(count)]
    make = makers(r)[name][2]
    return fitting(shared["encoder"], make, length, count)


def sets(encoder, longest=1 << 20, needles=NEEDLES, only="", times=1):
    """name -> (length in tokens, rows of ids), sets of at most `longest` tokens whose names have `only`; a process each.
    times: as many rows of every set but needles."""
    jobs = [(name, length, count * times, 0) for name, (length, count, _) in makers(random.Random(0)).items()]
    jobs += [(f"needle {length} at {d}", length, count, d) for length, count in needles for d in DEPTHS]
    jobs = [j for j in jobs if j[1] <= longest and only in j[0]]
    shared["encoder"] = encoder
    with multiprocessing.get_context("fork").Pool(min(os.cpu_count() or 1, MOST_PROCESSES)) as pool:
        made = pool.map(one_set, sorted(jobs, key=lambda j: -j[1] * j[2]), chunksize=1)
    rows_of = dict(zip((j[0] for j in sorted(jobs, key=lambda j: -j[1] * j[2])), made))
    return {j[0]: (j[1], rows_of[j[0]]) for j in jobs}
