"""Rows of training text: which turns make a conversation, how long it gets, where the loss applies."""
from chatformat import encode

from . import schemas, tools, values as v
from .agent import Session
from .chat import Chat
from .documents import code_line
from .tools import PLAIN_SYSTEM, fill
from .words import ADJ, ADV, ANIMAL, CITY, CODEW, COLOR, FILLW, FOOD, JOB, LAST, NOUN, PEOPLE, PREP, SPORT, VERB

# A turn of a chat without tools and its weight.
TURNS = (
    ("tell", 33),
    ("ask", 52),
    ("ask_two", 1.5),
    ("ask_unknown", 6),
    ("correct", 4),
    ("verify", 18),
    ("two_steps", 2),
    ("contrast", 2),
    ("first", 3),
    ("previous", 3),
    ("own", 1.5),
    ("say_back", 2),
    ("choose", 1),
    ("title", 0.7),
    ("small", 19),
    ("echo", 17),
    ("copy_code", 4),
    ("own_fact", 1),
    ("table", 7),
    ("code", 4),
)

# The same of a row of weak spots: what the model fails at most, among what keeps it from being alone there.
WEAK_TURNS = (
    ("tell", 30),
    ("headed", 8),
    ("ask", 42),
    ("verify", 30),
    ("ask_unknown", 5),
    ("small", 8),
    ("echo", 6),
    ("first", 2),
    ("code", 3),
)
WEAK_THINKING = 0.45  # share of them with reasoning
WEAK_FAR = 0.5  # share of those with room that remember over many turns
WEAK_LONGEST = 4096  # tokens: longer rows are what they always are


def turn(chat):
    """Add one turn to the chat."""
    if chat.tools and chat.r.random() < 0.6:
        return chat.turn()
    names, weights = zip(*TURNS)
    if chat.left() > 600 and chat.r.random() < 0.07:
        return chat.document()
    if chat.left() > 900 and chat.r.random() < 0.05:
        return chat.remember(chat.r.randint(3, 45))
    return getattr(chat, chat.r.choices(names, weights)[0])()


def start(r, length, chars, heldout, thinking):
    """An empty chat or session that suits the length in tokens."""
    if length >= 1024 and r.random() < (0.5 if length <= 2048 else 0.45):
        most = 3 if length <= 1024 else 10 if length <= 2048 else 24 if length <= 4096 else 40
        if length >= 4096 and r.random() < AGENT:
            # An agent's prompt fills a good part of the row, as it does in front of a first request.
            prompt = min(40000, chars) * r.uniform(0.3, 0.8)
            return Session(r, chars, heldout, thinking, r.randint(3, 14), 0, prompt)
        extra = r.randint(0, most) if r.random() < 0.6 else 0
        parts = 0 if r.random() < 0.4 else r.randint(1, 6 if length <= 1024 else 32)
        session = Session(r, chars, heldout, thinking, extra, parts)
        if r.random() < FORCED_FIRST:
            session.must_call()
        return session
    chat = Chat(r, chars, heldout, thinking)
    chat.opening(0 if r.random() < 0.93 or length < 1024 else r.randint(2, 12))
    return chat


THINKING = 0.33  # share of the rows with reasoning
AGENT = 0.6  # share of the long sessions behind an agent's prompt of many KB
FORMED = 0.1  # share of the rows whose answers have a prescribed form
FORMED_MOST = 2048  # tokens of such a row
FORCED_FIRST = 0.15  # share of the sessions that begin with a call that was demanded


def formed(r, length, chars, heldout, thinking):
    """A chat whose every answer is JSON of one form."""
    chat, form = Chat(r, chars, heldout, thinking), schemas.Form(r, 2 if length <= 256 else 7)
    plain = fill(r, r.choice(PLAIN_SYSTEM)) if r.random() < 0.4 else ""
    chat.system(f"{plain}\n\n{form.text}")
    while chat.left() > (250 if thinking else -100):
        chat.formed(form)
    return chat


def weak(r, length, chars, heldout):
    """(text, silent, forced) of a row of weak spots: short results of tools, programs to a file when other turns followed them,
    yes or no, values at the head of a statement, memory over many turns, reasoning."""
    thinking, tools = r.random() < WEAK_THINKING, length >= 1024 and r.random() < 0.5
    chat = Session(r, chars, heldout, thinking, r.randint(0, 3)) if tools else Chat(r, chars, heldout, thinking)
    if not tools:
        chat.opening()
    if length >= 2048 and r.random() < WEAK_FAR:
        chat.remember(r.randint(15, 60))
    names, weights = zip(*WEAK_TURNS)
    margin = 250 if thinking and not tools else -200
    while chat.left() > margin:
        if tools and r.random() < 0.6:
            chat.weak_turn()
        else:
            getattr(chat, r.choices(names, weights)[0])()
    return encode(chat.messages, thinking, chat.tools), chat.silent, chat.forced


def conversation(r, length, chars_per_token, heldout=False, weak_share=0.0):
    """(text, silent, forced) of one row of about `length` tokens: numbers of its answers without loss, and of those
    with loss on the arguments of the call alone. weak_share: of the rows that are made of weak spots."""
    if weak_share and length <= WEAK_LONGEST and r.random() < weak_share:
        return weak(r, length, length * chars_per_token, heldout)
    thinking = r.random() < THINKING
    if length <= FORMED_MOST and r.random() < FORMED:
        chat = formed(r, length, length * chars_per_token, heldout, thinking)
        return encode(chat.messages, thinking), chat.silent, chat.forced
    chat = start(r, length, length * chars_per_token, heldout, thinking)
    agent = chat.tools and chat.used > 0.3 * chat.chars
    if not agent and length >= 2048 and r.random() < (0.5 if length < 8192 else 0.8):
        for _ in range(r.randint(0, 3)):
            chat.tell()
        chat.document(r.uniform(0.4, 0.8) * max(400, chat.left()))
    elif r.random() < 0.3 and length >= 512:
        chat.remember(r.randint(3, 60))
    # Thinking without tools keeps the last reasoning only: such a row must end inside, the others may be cut.
    margin = 250 if thinking and not chat.tools else -200
    while True:
        turn(chat)
        if chat.left() <= margin:
            break
    return (
        encode(chat.messages, thinking, chat.tools, "max" if thinking and r.random() < 0.05 else None),
        chat.silent,
        chat.forced,
    )


ARGUMENTS = 3  # the mark of the protocol that opens the first argument: after those of the block and the call


def answer_mask(ids, special, silent=(), forced=()):
    """1 on the tokens that the assistant must produce: after <think> or </think>, EOS included; not in silent answers,
    in forced ones from the first argument on."""
    mask, on, after, number, marks = [0] * len(ids), False, False, -1, 0
    for i, t in enumerate(ids):
        number += t == special["assistant"]
        if on:
            marks += t == special["dsml"]
            mask[i] = int(number not in silent and (number not in forced or marks >= ARGUMENTS))
            on = t != special["eos"]
        elif after and t in (special["think"], special["endthink"]):
            on, marks = True, 0
        after = t == special["assistant"]
    return mask


def span(ids, special):
    """Token positions of the last assistant message, EOS included."""
    mask = answer_mask(ids, special)
    end = max(i for i, x in enumerate(mask) if x)
    start = end
    while mask[start - 1]:
        start -= 1
    return start, end + 1


def tokenizer_text(r):
    """Text for the tokenizer alone: many words in several shapes."""
    k = r.random()
    if k < 0.45:
        return " ".join(r.choices(FILLW + NOUN + ADJ + VERB + PEOPLE + CITY + ADV + PREP + JOB + FOOD + LAST, k=60))
    if k < 0.52:
        return " ".join(w.capitalize() for w in r.choices(FILLW + NOUN + ADJ, k=40))
    if k < 0.68:
        return (
            "\n".join("    " * r.randint(0, 3) + code_line(r) for _ in range(8))
            + "\n"
            + " ".join(r.choices(CODEW, k=30))
        )
    if k < 0.78:
        return " ".join(v.foreign(r, 6) for _ in range(6))
    if k < 0.88:
        return tools.system_text(r, 8)
    return " ".join(v.invented(r) for _ in range(40))


def tokenizer_words():
    """Words that deserve a token of their own."""
    return FILLW + NOUN + ADJ + VERB + PEOPLE + CITY + LAST + CODEW + JOB + FOOD + SPORT + COLOR + ADV + PREP + ANIMAL


def single_turn(request, answer):
    """A chat of one request and its answer."""
    return encode([{"role": "user", "content": request}, {"role": "assistant", "content": answer}])
