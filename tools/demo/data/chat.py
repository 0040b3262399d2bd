"""A conversation under construction: its messages, the facts that were stated, the room that is left.

Owns the turns without tools: telling, asking, correcting, refusing, copying, looking things up. agent.py
adds the turns with tools; rows.py decides which turns make a conversation.
"""
import re
import string

from . import documents, facts, forms, skills, values as v
from .foreign import foreign
from .snippets import fence, snippet
from .tools import PLAIN_SYSTEM, fill, system_text

WRITE = (
    "Write {x}.",
    "Please write {x}.",
    "Can you write {x}?",
    "Make {x}.",
    "I need {x}.",
    "Create {x}.",
    "write me {x}",
    "Give me {x}.",
    "write {x}",
    "Could you write {x} for me?",
    "Show me {x}.",
    "Now write {x}.",
    "Hi, please write {x}.",
)
FIRST = (
    "What was my first message?",
    "What did I say first?",
    "Repeat my first message.",
    "How did this chat begin?",
    "What did I ask first?",
    "What was the first thing I asked?",
    "What did I write at the start?",
    "what did i ask first",
)
PREVIOUS = (
    "What was my previous message?",
    "What did I just say?",
    "Repeat my last message.",
    "What did I say before this?",
    "What did I just write?",
    "What was my last message?",
)
OWN = (
    "What was your last answer?",
    "Repeat your last answer.",
    "What did you just say?",
    "What did you answer?",
    "Say your last answer again.",
)
FACTS_OF_SYSTEM = (0, 0, 0, 0, 0, 1, 1, 1, 2, 2)  # how many a system message states
GREET = ("Hi! ", "Hello. ", "Hello! ", "Hi, ", "Hey, ", "Good morning! ", "Thanks. ", "Ok. ", "Great. ")


class Chat:
    """r: random.Random. chars: about how long the text may become."""

    def __init__(self, r, chars, heldout=False, thinking=False):
        self.r, self.chars, self.heldout, self.thinking = r, chars, heldout, thinking
        self.messages, self.facts, self.users, self.codes = [], [], [], []
        self.used, self.tools, self.roles = 0, None, {}
        self.silent = set()  # assistant messages that no loss belongs to, by their number
        self.forced = set()  # those that had to be a call of a certain tool: loss on its arguments alone

    # ---- messages
    def left(self):
        return self.chars - self.used

    def system(self, text):
        self.messages.append({"role": "system", "content": text})
        self.used += len(text)

    def user(self, text):
        self.messages.append({"role": "user", "content": text})
        self.users.append(text)
        self.used += len(text) + 12

    def bot(self, text, reasoning="", calls=None, silent=False, forced=False):
        """An answer; a silent one is what nobody could foresee: text to be worked with, not to be learned."""
        if silent or forced:
            number = sum(m["role"] == "assistant" for m in self.messages)
            (self.silent if silent else self.forced).add(number)
        message = {"role": "assistant", "content": text, "reasoning": reasoning}
        if calls:
            message["calls"] = calls
            self.used += 220 + sum(len(str(x)) + 90 for _, a in calls for x in a.values())
        self.messages.append(message)
        self.used += len(text) + 12 + (len(reasoning) if self.thinking else 0)

    def tool(self, text):
        self.messages.append({"role": "tool", "content": text})
        self.used += len(text) + 40

    # ---- the system message
    def opening(self, parts=0):
        """A system message or none; now and then it states a fact."""
        r = self.r
        text = "" if r.random() < 0.45 else fill(r, r.choice(PLAIN_SYSTEM)) if not parts else ""
        if parts:
            text = system_text(r, parts)
        for _ in range(r.choice(FACTS_OF_SYSTEM)):
            f = facts.draw(r, self.heldout)
            if not self.know(f):
                said = f.state(r)
                text = (text + " " + said).strip()
                self.facts.append((f, said))
        if text or r.random() < 0.05:
            self.system(text)
        if r.random() < 0.04:
            self.messages.append(
                {"role": "latest_reminder", "content": f"2031-{r.randint(1, 12):02d}-{r.randint(1, 28):02d}"}
            )

    def formed(self, form):
        """A turn that is answered in the form that the request prescribes."""
        question, answer = form.turn(self.r)
        self.user(question)
        self.bot(answer, self.r.choice(("This is a simple request.", "I can answer this directly.", "I fill the form.")))

    # ---- facts
    def know(self, f):
        """Whether something that was told would be contradicted, or confused, by the fact."""
        mine = {f.key, *f.also}
        return any(not mine.isdisjoint((g.key, *g.also)) for g, _ in self.facts)

    def tell(self):
        """One to three facts in one message."""
        r, new = self.r, []
        for _ in range(r.choice((1, 1, 1, 2, 2, 3))):
            base = [f for f, _ in self.facts if f.attribute]
            f = facts.rival(r, r.choice(base)) if base and r.random() < 0.15 else facts.draw(r, self.heldout)
            if f and not self.know(f) and all({g.key, *g.also}.isdisjoint((f.key, *f.also)) for g in new):
                new.append(f)
        if not new:
            return
        said = [f.state(r) for f in new]
        text = " ".join(said)
        if len(said) == 2 and r.random() < 0.5 and said[0].endswith("."):
            second = said[1]
            if second.startswith(
                ("The ", "My ", "I ", "It ", "For ", "As ", "Our ", "There ")
            ) and not second.startswith("I "):
                second = second[0].lower() + second[1:]
            text = said[0][:-1] + r.choice((" and ", ", and ", ", ", "; ", ", but ", " while ")) + second
        if r.random() < 0.06:
            text = skills.sentence(r) + " " + text
        self.facts += list(zip(new, said))
        if r.random() < 0.1:  # told and asked in one message
            i = r.randrange(len(new))
            question, answer = new[i].ask(r)
            self.user(text + r.choice((" ", "\n", " Now: ", "\n\n")) + question)
            self.bot(answer, self.because(new[i], said[i]))
        elif len(new) == 1 and r.random() < 0.12:
            self.user(
                text
                + " "
                + r.choice(("Can you remember that?", "Please confirm.", "Will you remember it?", "Repeat it."))
            )
            f = new[0]
            self.bot(
                f"Yes: the {f.attribute} of {f.subject} is {f.value}."
                if f.attribute and not f.subject.startswith("my") and "'s" not in f.subject
                else "Yes: " + f.answer[0].lower() + f.answer[1:]
                if f.answer.startswith(("The ", "Your ", "There "))
                else "Yes: " + f.answer,
                "I should confirm the fact.",
            )
        else:
            self.user(text)
            self.bot(
                new[0].ack or ("Noted." if len(new) == 1 else "Noted, all of them."),
                "The user gives a fact. I should note it.",
            )
            if len(new) == 1 and r.random() < 0.06:
                self.revise()

    def led(self):
        """(fact, statement) with the value at its head: its first word has other tokens there than behind a blank, and the
        answer needs the latter. None where no such fact is new."""
        for _ in range(40):
            f = facts.attribute(self.r, self.heldout)
            heads = [x for x in f.said if f.led(x)]
            if heads and not self.know(f):
                return f, self.r.choice(heads) + self.r.choice((".", ".", ".", "", "!"))
        return None

    def headed(self):
        """A fact with its value at the head, asked for at once or later."""
        known = self.led()
        if known is None:
            return self.tell()
        self.user(known[1])
        self.bot("Noted.", "The user gives a fact. I should note it.")
        self.facts.append(known)
        if self.r.random() < 0.6:
            for _ in range(self.r.choice((0, 1, 2, 3))):
                self.small()
            self.ask(known)

    @staticmethod
    def because(f, said):
        return f'The user asks about something said earlier: "{said}" So the answer is {f.value}.'

    def ask(self, known=None):
        """A question for a fact that was stated."""
        if known is None:
            if not self.facts:
                return self.tell()
            known = self.r.choice(self.facts)
        question, answer = known[0].ask(self.r)
        self.user(question)
        self.bot(answer, self.because(*known))

    def ask_two(self):
        """Two facts in one question, answered in its order."""
        pool = [k for k in self.facts if k[0].attribute]
        if len(pool) < 2:
            return self.tell()
        (a, _), (b, _) = self.r.sample(pool, 2)
        self.user(
            self.r.choice(
                (
                    "What are the {a} of {s} and the {b} of {t}?",
                    "Tell me the {a} of {s} and the {b} of {t}.",
                    "I need two things: the {a} of {s} and the {b} of {t}.",
                )
            ).format(a=a.attribute, s=a.subject, b=b.attribute, t=b.subject)
        )
        self.bot(f"{a.answer} {b.answer}", f"Two facts are asked for: {a.value} and {b.value}.")

    def ask_unknown(self):
        """A question for something that was not said; the best ones are close to what was."""
        r = self.r
        base = [f for f, _ in self.facts if f.attribute]
        f = facts.rival(r, r.choice(base)) if base and r.random() < 0.5 else facts.draw(r, self.heldout)
        told = " ".join(m["content"].lower() for m in self.messages)
        if f is None or self.know(f) or any(h.lower() in told for h in f.hints[:1] if not f.attribute):
            return
        question = r.choice(f.asked[0][0])
        self.user(forms.open_question(r, question) if r.random() < 0.8 or not f.hints else forms.noisy(r, *f.hints))
        self.bot(f"I do not know {f.topic}.", "This was not said before.")

    def correct(self):
        """A stated value changes; the last word counts."""
        r = self.r
        pool = [(i, f) for i, (f, _) in enumerate(self.facts) if f.attribute]
        if not pool:
            return self.tell()
        i, f = r.choice(pool)
        old, new = f.value, v.value(r, f.attribute)
        if new == old:
            return
        fill_ = {"a": f.attribute, "s": f.subject, "v": new, "o": old}
        said = r.choice(
            (
                "Correction: the {a} of {s} is {v}.",
                "I was wrong, the {a} of {s} is {v}.",
                "The {a} of {s} has changed to {v}.",
                "No, the {a} of {s} is not {o} but {v}.",
                "Sorry, I meant {v} as the {a} of {s}.",
                "Please change the {a} of {s} to {v}.",
                "Update: the {a} of {s} is now {v}.",
                "Forget {o}, the {a} of {s} is {v}.",
                "Actually the {a} of {s} is {v}.",
                "From {o} the {a} of {s} went to {v}.",
            )
        ).format(**fill_)
        self.user(said)
        self.bot("Noted, I corrected that.", f"The old value {old} is replaced by {new}.")
        self.facts[i] = (facts.changed(f, new), said)
        if r.random() < 0.6:
            self.ask(self.facts[i])
        if r.random() < 0.15:
            self.user(r.choice(("What was it before?", "What was the old value?", "And before the change?")))
            self.bot(f"Before, the {f.attribute} of {facts.you(f.subject)} was {old}.", f"The old value was {old}.")

    def revise(self):
        """The fact that was just told changes, without being named."""
        r, (f, _) = self.r, self.facts[-1]
        new = (
            v.value(r, f.attribute)
            if f.attribute
            else v.name(r)
            if f.value[:1].isupper()
            else v.number(r)
            if f.value.isdigit()
            else v.code(r)
        )
        if len(f.asked) > 1 or f.answer.count(f.value) != 1:
            return
        said = r.choice(
            (
                "It changed to {v}.",
                "No, {v}.",
                "Sorry, {v}.",
                "Make that {v}.",
                "Correction: {v}.",
                "I meant {v}.",
                "Now it is {v}.",
                "It is {v} now.",
                "Oh, it should be {v}.",
                "Wrong, it is {v}.",
                "It was changed to {v}.",
            )
        ).format(v=new)
        self.user(said)
        self.bot("Noted, I corrected that.", f"The old value {f.value} is replaced by {new}.")
        self.facts[-1] = (facts.changed(f, new), said)
        if r.random() < 0.7:
            for _ in range(r.choice((0, 0, 1))):
                self.small()
            self.ask(self.facts[-1])

    def verify(self):
        """A yes-or-no question, true half of the time."""
        r = self.r
        pool = [f for f, _ in self.facts if f.attribute]
        if not pool:
            return self.tell()
        f = r.choice(pool)
        true = r.random() < 0.5
        others = [g.value for g in pool if g.value != f.value]
        x = f.value if true else r.choice(others) if others and r.random() < 0.6 else v.value(r, f.attribute)
        if not true and x == f.value:
            return
        self.user(
            forms.open_question(
                r,
                r.choice(
                    (
                        "is the {a} of {s} {v}?",
                        "is {v} the {a} of {s}?",
                        "the {a} of {s} is {v}, right?",
                        "did I say that the {a} of {s} is {v}?",
                    )
                ).format(a=f.attribute, s=f.subject, v=x),
            )
        )
        rest = f.answer[0].lower() + f.answer[1:]
        self.bot(f"Yes, {rest}" if true else f"No, {rest}", f"I was told {f.value}.")

    def contrast(self):
        """Two persons and the same verb in one sentence: the one must not be taken for the other."""
        r, f = self.r, facts.having(self.r, self.heldout)
        g = facts.having(r, self.heldout, f.key[1])
        if self.know(f) or self.know(g) or f.value == g.value or f.key == g.key:
            return
        one, two = f.said[0], g.said[0]
        self.user(facts.upper_first(one) + r.choice((", ", " and ", ", and ", "; ", ", but ", " while ")) + two + ".")
        self.bot("Noted, all of them.", "The user gives two facts.")
        self.facts += [(f, one), (g, two)]
        for _ in range(r.choice((0, 0, 1, 2))):
            self.small()
        for known in r.sample(self.facts[-2:], r.randint(1, 2)):
            if known[0].key in (f.key, g.key):
                self.ask(known)

    def two_steps(self):
        """The answer takes two statements."""
        r = self.r
        p, q, t, c = v.name(r), v.name(r), v.noun(r), v.place_name(r)
        if p == q:
            return
        x = v.code(r)
        told, question, answer = r.choice(
            (
                (f"{p} lives in {c}. {q} lives with {p}.", f"In which city does {q} live?", f"{q} lives in {c}."),
                (
                    f"The {t} is in the box of {p}. The box of {p} is in {c}.",
                    f"In which city is the {t}?",
                    f"The {t} is in {c}.",
                ),
                (
                    f"{p} has the {t}. The code of the {t} is {x}.",
                    f"What is the code of {p}'s {t}?",
                    f"The code of {p}'s {t} is {x}.",
                ),
                (
                    f"The boss of {p} is {q}. The phone number of {q} is {x}.",
                    f"What is the phone number of {p}'s boss?",
                    f"The phone number of {p}'s boss is {x}.",
                ),
            )
        )
        if r.random() < 0.5:
            self.user(f"{told} {question}")
        else:
            self.user(told)
            self.bot("Noted, all of them.", "The user gives two facts.")
            if r.random() < 0.4:
                self.small()
            self.user(question)
        self.bot(answer, f"I join two statements: {told}")

    def remember(self, turns):
        """Facts, then many turns without them, then questions for them."""
        r, before = self.r, len(self.facts)
        for _ in range(r.randint(1, 5)):
            self.tell()
        early = self.facts[before:]
        for _ in range(turns):
            if self.left() < 500:
                break
            r.choices((self.tell, self.small, self.echo, self.table, self.ask), (4, 4, 3, 1, 1))[0]()
        # Corrections between may have changed them: the facts of now that stand at their places.
        early = self.facts[before : before + len(early)]
        for known in r.sample(early, min(len(early), r.randint(1, 6))):
            self.ask(known)

    def said(self, text):
        """What the assistant says of its own accord, then is asked for: a fact in its place."""
        f = facts.attribute(self.r, self.heldout)
        if self.know(f) or re.search(r"\bmy\b", f.subject):
            return
        stated = f.state(self.r)
        self.user(text)
        self.bot(stated, "I tell a fact.", silent=True)
        self.facts.append((f, stated))

    # ---- the chat itself
    def first(self):
        if self.users and len(self.users[0]) <= 160:
            first = self.users[0]
            self.user(self.r.choice(FIRST))
            self.bot(f'Your first message was: "{first}"', "The first message of the user is asked for.")

    def previous(self):
        if self.users and len(self.users[-1]) <= 160:
            last = self.users[-1]
            self.user(self.r.choice(PREVIOUS))
            self.bot(f'Your previous message was: "{last}"', "The message before this one is asked for.")

    def own(self):
        if (
            self.messages
            and self.messages[-1]["role"] == "assistant"
            and len(self.messages[-1]["content"]) <= 160
            and not self.messages[-1].get("calls")
        ):
            last = self.messages[-1]["content"]
            self.user(self.r.choice(OWN))
            self.bot(f'My last answer was: "{last}"', "My own last answer is asked for.")

    def say_back(self):
        r = self.r
        text = (
            skills.any_text(r)
            if r.random() < 0.3
            else skills.sentence(r)
            if r.random() < 0.5
            else facts.draw(r).state(r)
        )
        self.user(
            text
            + r.choice((" ", "\n"))
            + r.choice(("What did I just say?", "What did I say?", "Repeat what I said.", "Say that again."))
        )
        self.bot(f'You said: "{text}"', "I should repeat the words of the user.")

    def choose(self):
        """A choice that the model makes and must stand by: a fact in its own words."""
        r = self.r
        options = list(dict.fromkeys(v.noun(r) for _ in range(r.randint(2, 4))))
        if len(options) < 2:
            return
        self.user(
            r.choice(("Choose one: {o}.", "Pick one of these: {o}.", "Which do you want: {o}?")).format(
                o=", ".join(options)
            )
        )
        self.bot(f"I choose {options[0]}.", "I take the first one.")
        for _ in range(r.choice((0, 1, 2))):
            self.small()
        self.user(r.choice(("What did you choose?", "Which one did you choose?", "What was your choice?")))
        self.bot(f"I chose {options[0]}.", "My own choice is asked for.")

    def title(self):
        """A title for the chat: the first words of the request, as agents ask for it beside the first turn."""
        r = self.r
        words = [w for w in (skills.sentence(r) if r.random() < 0.6 else "Write " + snippet(r)[0]).strip(".").split()]
        text = " ".join(words)
        self.user(
            r.choice(
                (
                    "Generate a title for this conversation:\n{t}",
                    "Give this chat a short title: {t}",
                    "A title for: {t}",
                )
            ).format(t=text)
        )
        self.bot(facts.upper_first(" ".join(words[:5])), "The first words make the title.")

    def small(self):
        r = self.r
        question, answer = skills.skill(r)
        if r.random() < 0.12:
            question = (
                r.choice(GREET) + question
                if r.random() < 0.7
                else r.choice(("hey, ", "so, ", "ok, ", "hi, ", "please, ", "well, "))
                + question[0].lower()
                + question[1:]
            )
        self.user(question)
        self.bot(answer, r.choice(("This is a simple request.", "I can answer this directly.")))

    def echo(self):
        question, answer = skills.echo(self.r)
        self.user(question)
        self.bot(answer, "I should copy the text exactly.")

    def table(self):
        """Keys and values, some of them asked for."""
        r = self.r
        count = max(2, min(r.randint(3, 14), int(self.left() / 60)))
        rows = {}
        while len(rows) < count:
            key = r.choice(
                (
                    v.noun(r),
                    f"{v.noun(r)}_{r.randint(1, 99)}",
                    "".join(r.choices(string.ascii_uppercase, k=3)),
                    v.name(r),
                )
            )
            rows[key] = r.choice((v.number(r), v.code(r), v.noun(r), v.place_name(r)))
        sign = r.choice((" = ", ": ", " -> ", "="))
        text = "\n".join(f"{k}{sign}{x}" for k, x in rows.items())
        keys = r.sample(list(rows), r.randint(1, min(3, count)))
        self.user(
            r.choice(("Here is a table:\n", "Read this:\n", "Data:\n")) + f"{text}\n\nWhat is the value of {keys[0]}?"
        )
        self.bot(rows[keys[0]], f"I look for {keys[0]} in the table.")
        for key in keys[1:]:
            self.user(r.choice(("And {k}?", "What is the value of {k}?", "Which value has {k}?")).format(k=key))
            self.bot(rows[key], f"I look for {key} in the table.")

    def document(self, chars=None):
        """A text with facts, then questions for them."""
        r = self.r
        chars = chars or r.uniform(0.2, 0.7) * max(200, self.left())
        count = max(1, min(40, int(r.choice((1, 2, 4, 8)) * (1 + chars / 9000))))
        text, hidden = documents.document(r, chars, count, self.heldout, self.know)
        r.shuffle(hidden)
        question, answer = hidden[0].ask(r)
        before = r.choice(
            ("Read this text:\n", "Here is a document.\n\n", "", "Text: ", "Please read the following and answer.\n\n")
        )
        self.user(f"{before}{text}\n\n{question}" if r.random() < 0.8 else f"{question}\n\n{before}{text}")
        self.bot(answer, f"The text says: {hidden[0].answer}")
        self.facts += [(f, "In the text") for f in hidden]
        for f in hidden[1 : 1 + r.randint(0, max(1, int(self.left() / 140)))]:
            question, answer = f.ask(r)
            self.user(question)
            self.bot(answer, f"The text says: {f.answer}")

    def code(self):
        """A program or text, shown in the chat."""
        request, language, text, name = snippet(self.r)
        self.user(self.r.choice(WRITE).format(x=request))
        self.bot(fence(language, text), "I should write a short piece of text.")
        self.codes.append((text, name))

    def own_fact(self):
        self.said(
            self.r.choice(
                ("Tell me something.", "Do you have news?", "What should I know?", "Tell me a fact.", "Anything new?")
            )
        )

    def copy_code(self):
        """A pasted program, shown again as it is or with one name replaced."""
        r = self.r
        text, language, _, _ = foreign(r, min(900, max(80, 0.35 * self.left())))
        words = [w for w in re.findall(r"[A-Za-z_]\w{2,}", text) if text.count(w) <= 3]
        pasted = fence(language, text)
        if words and r.random() < 0.3:
            old, new = r.choice(words), v.noun(r)
            request = r.choice(
                ("Replace {a} with {b} in this:", "Rename {a} to {b}:", "Here, change {a} to {b}:")
            ).format(a=old, b=new)
            text = text.replace(old, new)
        else:
            request = r.choice(
                (
                    "Repeat this code:",
                    "Show this again:",
                    "Copy this exactly:",
                    "Repeat this file:",
                    "Give it back unchanged:",
                )
            )
        self.user(request + "\n" + pasted if r.random() < 0.7 else pasted + "\n" + request.rstrip(":") + ".")
        self.bot(fence(language, text), "I should copy the text exactly.")
