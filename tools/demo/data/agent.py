"""The turns of an agent's session: writing, reading, editing and running with tools, in the official encoding.

Owns what is called and what comes back. Knows the set of tools from tools.py and the messages from chat.py.
"""
import re

from . import documents, facts, schemas, skills, values as v
from .chat import WRITE, Chat
from .foreign import foreign
from .skills import any_text
from .snippets import fence, snippet
from .tools import lengthened, manual, toolset

TO_FILE = (
    "to a file",
    "Write it to a file.",
    "Save it to a file.",
    "Put that in a file.",
    "Now write that to a file.",
    "save it",
    "To a file, please.",
    "now to a file",
    "Please write it to a file.",
    "Can you save that in a file?",
    "file please",
    "Store it in a file.",
    "Write that into a file now.",
    "ok, to a file",
    "Great, now save it to a file.",
    "to file",
    "write to file",
)
TO_NAME = (
    "Save it to {f}.",
    "Write that to {f}",
    "Put it in the file {f}.",
    "Now save this as {f}.",
    "to {f}",
    "Write it to {f}, please.",
    "Save as {f}",
    "Store it as {f}.",
    "Can you write that into {f}?",
)
DONE = (
    "ok",
    "Wrote file successfully.",
    "Wrote {n} bytes to {p}",
    "done",
    "File written.",
    '{{"ok": true}}',
    "success",
    "",
    "File created successfully at: {p}",
    "The file {p} has been updated.",
)
COMMANDS = (
    "ls",
    "pwd",
    "date",
    "whoami",
    "ls -la",
    "make",
    "make test",
    "cat {f}",
    "python {f}",
    "python3 {n}.py",
    "echo {n}",
    "mkdir {n}",
    "rm {f}",
    "grep {n} {f}",
    "git status",
    "git log",
    "gcc -o main main.c",
    "wc -l {f}",
    "head {f}",
    "npm test",
    "touch {f}",
    "cp {f} {n}",
)


class Session(Chat):
    """A chat with tools. extra: how many tools beside those that it uses; parts: length of the system text;
    prompt: characters of instructions that stand in the system text and in the descriptions of the tools."""

    def __init__(self, r, chars, heldout=False, thinking=False, extra=0, parts=0, prompt=0):
        super().__init__(r, chars, heldout, thinking)
        self.tools, self.roles = toolset(r, extra)
        if prompt:
            lengthened(r, self.tools, prompt * (share := r.uniform(0.2, 0.8)))
            self.system(manual(r, prompt * (1 - share)))
        else:
            self.opening(parts)
        self.used += 1900 + sum(len(str(t)) for t in self.tools)

    def call(self, role, *values):
        """(name, arguments) of the tool that plays the role, the arguments in the order of its schema."""
        name, parameters = self.roles[role]
        given = dict(zip(parameters, values))
        order = next(t for t in self.tools if t["name"] == name)["parameters"]["properties"]
        return name, {p: given[p] for p in order if p in given}

    def save(self, text, path, reasoning=None):
        """Write the text and report it."""
        r = self.r
        self.bot("", reasoning or f"I call {self.roles['write'][0]} to write {path}.", [self.call("write", path, text)])
        self.tool(r.choice(DONE).format(n=len(text), p=path))
        self.bot(f"I wrote it to {path}.", "The file was written.")

    def program(self):
        """Code in the chat, then to a file: the story of two turns; or at once to a file."""
        r = self.r
        if r.random() < 0.25:
            request, _, text, name = snippet(r)
            path = name if r.random() < 0.5 else v.path(r)
            question = r.choice(WRITE).format(x=request)
            self.user(f"{question.rstrip('.?')} and save it as {path}" + r.choice((".", "")))
            self.save(text, path)
            return self.change(text, path)
        self.code()
        text, path = self.codes[-1]
        if r.random() < 0.8:
            for _ in range(r.choice((0, 0, 0, 1, 2))):
                r.choice((self.small, self.tell, self.ask))()
            if r.random() < 0.55:
                self.user(r.choice(TO_FILE))
            else:
                path = v.path(r)
                self.user(r.choice(TO_NAME).format(f=path))
            self.save(text, path)
            self.change(text, path)

    def change(self, text, path):
        """An edit of the file that was just written, or its copy under another name."""
        r = self.r
        words = [w for w in text.split() if w.isalpha() and len(w) > 3 and text.count(w) == 1]
        if "edit" in self.roles and words and r.random() < 0.35:
            old, new = r.choice(words), v.noun(r)
            self.user(
                r.choice(
                    (
                        "Now change {a} to {b}.",
                        "Replace {a} with {b} in that file.",
                        "In {f}, replace {a} with {b}.",
                        "{b} instead of {a}, please.",
                    )
                ).format(a=old, b=new, f=path)
            )
            self.bot("", f"I edit {path}.", [self.call("edit", path, old, new)])
            self.tool(r.choice(("ok", "Edited.", "done", "Edit applied successfully.")))
            self.bot(f"I replaced {old} with {new} in {path}.", "The edit is done.")
        elif r.random() < 0.12:
            other = v.path(r)
            self.user(r.choice(("Save it again as {f}.", "Also to {f}.", "And a copy to {f}.")).format(f=other))
            self.save(text, other)
        elif r.random() < 0.12:
            self.user(
                r.choice(("To which file did you write it?", "What is the name of the file?", "Where did you save it?"))
            )
            self.bot(f"I wrote it to {path}.", "The file name is asked for.")

    def foreign_text(self):
        """(text, language, path) of something unknown, as long as there is room for two copies."""
        r = self.r
        text, language, extension, stem = foreign(
            r, min(r.choice((120, 300, 600, 1500, 3000, 5000)), max(80, 0.3 * self.left()))
        )
        path = f"{stem}.{extension}" if r.random() < 0.4 else v.path(r)
        return text, language, path

    def shown(self):
        """An unknown text in an answer, then to a file."""
        r = self.r
        text, language, path = self.foreign_text()
        stem = path.rsplit("/", 1)[-1]
        self.user(
            r.choice(WRITE).format(
                x=r.choice(
                    (
                        "a program for the {n}",
                        "some code that {v} the {n}",
                        "a file for the {n}",
                        "something with {n} and {v}",
                    )
                ).format(n=v.noun(r), v=v.verb(r))
            )
        )
        named = r.random() < 0.3
        self.bot(
            (r.choice(("Here is {f}:\n", "{f}\n", "This is `{f}`:\n\n")).format(f=stem) if named else "")
            + fence(language, text)
            + r.choice(("", "", "", "\n\n" + skills.sentence(r))),
            "I should write a short piece of text.",
            silent=True,
        )
        self.between()
        if named:
            self.user(r.choice(TO_FILE))
            path = stem
        else:
            self.user(r.choice(TO_NAME).format(f=path))
        self.save(text, path)
        self.change_lines(text, path)

    def pasted(self):
        """A text of the user goes to a file, at once or later."""
        r = self.r
        text, language, path = self.foreign_text()
        block = fence(language, text) if r.random() < 0.7 else text.rstrip("\n")
        if block == text.rstrip("\n"):
            text = block
        if r.random() < 0.6:
            request = r.choice(
                (
                    "Save this to {f}:",
                    "Write this to {f}:",
                    "Create {f} with this content:",
                    "Put this into the file {f}:",
                    "{f} should contain:",
                )
            ).format(f=path)
            self.user(
                request + "\n" + block if r.random() < 0.8 or block == text else block + "\n" + request.rstrip(":")
            )
        else:
            self.user(r.choice(("Here is my code:\n", "Look at this:\n", "This is a file of mine:\n")) + block)
            self.bot("Noted.", "The user shows a text.")
            self.between()
            self.user(r.choice(TO_NAME).format(f=path))
        self.save(text, path)
        self.change_lines(text, path)

    def copied(self):
        """A file is read and written again under another name, as it is or with one word replaced."""
        r = self.r
        text, _, path = self.foreign_text()
        other = v.path(r)
        words = [w for w in re.findall(r"[A-Za-z_]\w{2,}", text) if text.count(w) <= 3]
        old, new = (r.choice(words), v.noun(r)) if words and r.random() < 0.3 else ("", "")
        wanted = f"Copy {path} to {other}" if r.random() < 0.5 else f"Read {path} and write it to {other}"
        self.user(wanted + (f" with {new} instead of {old}." if old else "."))
        self.bot("", f"I need to read {path}.", [self.call("read", path)])
        self.tool(text)
        self.save(text.replace(old, new) if old else text, other)
        if r.random() < 0.3:
            self.between()
            self.user(r.choice(("Show me {f} again.", "What is in {f}?", "Print {f} once more.")).format(f=path))
            self.bot(f"The file {path} contains:\n{text}", "I have read this file before.")

    def between(self):
        for _ in range(self.r.choice((0, 0, 0, 0, 1, 1, 2, 4))):
            if self.left() > 1200:
                self.r.choice((self.small, self.tell, self.ask, self.echo))()

    def change_lines(self, text, path):
        """An edit of whole lines of a file that was just written: what stands there must be copied exactly."""
        r, lines = self.r, [x for x in text.split("\n") if x.strip() and text.count(x) == 1]
        if "edit" not in self.roles or not lines or r.random() > 0.35 or self.left() < 300:
            return
        i = r.randrange(len(lines))
        old, new = lines[i], foreign(r, 60)[0].split("\n")[0]
        if old == new or not new.strip():
            return
        self.user(
            r.choice(
                ("In {f}, replace the line\n{a}\nwith\n{b}", "Change this line of {f}:\n{a}\nIt should be:\n{b}")
            ).format(f=path, a=old, b=new)
        )
        self.bot("", f"I edit {path}.", [self.call("edit", path, old, new)])
        self.tool(r.choice(("ok", "Edited.", "done", "Edit applied successfully.")))
        self.bot(f"I edited {path}.", "The edit is done.")

    def several(self):
        """Two texts to two files in one message."""
        r = self.r
        pieces = [snippet(r) for _ in range(2)]
        if pieces[0][3] == pieces[1][3]:
            return
        for request, language, text, name in pieces:
            self.user(r.choice(WRITE).format(x=request))
            self.bot(fence(language, text), "I should write a short piece of text.")
            self.codes.append((text, name))
        self.user(r.choice(("Save both to files.", "Write both to files.", "Both to files, please.")))
        self.bot("", "I write two files.", [self.call("write", n, t) for _, _, t, n in pieces])
        for _, _, text, name in pieces:
            self.tool(r.choice(DONE).format(n=len(text), p=name))
        self.bot(f"I wrote {pieces[0][3]} and {pieces[1][3]}.", "Both files were written.")

    def earlier(self):
        """An earlier program, named by its place in the chat, goes to a file."""
        if len(self.codes) < 2:
            return self.program()
        r = self.r
        i = r.choice((0, len(self.codes) - 1))
        text, path = self.codes[i]
        self.user(
            r.choice(("Write the {o} program to {f}.", "Save the {o} code as {f}.")).format(
                o="first" if i == 0 else "last", f=(path := v.path(r))
            )
        )
        self.save(text, path)

    def read(self):
        """Read a file and answer from it."""
        r, path, k = self.r, v.path(self.r), self.r.random()
        if k < 0.3:
            rows = {v.noun(r): r.choice((v.number(r), v.place_name(r), v.code(r))) for _ in range(r.randint(2, 9))}
            key, sign = r.choice(list(rows)), r.choice(("=", ": ", " = "))
            body = "\n".join(f"{a}{sign}{b}" for a, b in rows.items())
            question, answer = f"What is {key} in {path}?", f"In {path} the value of {key} is {rows[key]}."
        elif k < 0.7:
            f = self.news()
            pieces, joint = documents.filler(r, min(r.choice((80, 200, 600, 2500, 6000)), max(60, self.left() * 0.4)))
            said = f.state(r)
            pieces.insert(r.randrange(len(pieces) + 1), said)
            body = joint.join(pieces)
            wanted = f"the {f.attribute} of {f.subject}" if f.attribute else f.topic.replace("your ", "my ")
            question, answer = f"Read {path} and tell me {wanted}.", f.answer
            self.facts.append((f, said))
        else:
            body = any_text(r) if r.random() < 0.6 else snippet(r)[2]
            if r.random() < 0.5:
                f = self.news(1)
                body = f.state(r) + r.choice(("", "", "\n" + skills.sentence(r)))
                self.facts.append((f, body))
            question = r.choice(
                ("What does {f} say?", "Show me {f}.", "Read {f}.", "What is in {f}?", "read {f}")
            ).format(f=path)
            answer = f"The file {path} contains:\n{body}"
        self.user(question)
        self.bot("", f"I need to read {path}.", [self.call("read", path)])
        if r.random() < 0.05:
            self.tool(r.choice(("error: no such file", f"File not found: {path}", "permission denied")))
            self.bot(f"I could not read {path}.", "The call failed.")
            return
        self.tool(body)
        self.bot(answer, "The result has the answer.")

    def reported(self):
        """A file that says one thing, shown whole, and the question for it after other turns: the words of its statement were
        said by nobody in the chat."""
        r, path, known = self.r, v.path(self.r), self.led() if self.r.random() < 0.3 else None
        f, said = known or ((g := self.news(0.8)), g.state(r))
        self.user(
            r.choice(
                ("What does {f} say?", "Show me {f}.", "Read {f}.", "What is in {f}?", "read {f}", "Print {f}.")
            ).format(f=path)
        )
        self.bot("", f"I need to read {path}.", [self.call("read", path)])
        self.tool(said)
        self.bot(f"The file {path} contains:\n{said}", "The result has the answer.")
        self.facts.append((f, said))
        self.apart(6)
        # Turns between may have corrected it: the fact of now.
        self.ask(next((k for k in self.facts if k[0].key == f.key), (f, said)))

    def distant(self):
        """A program goes to a file when other turns have followed it."""
        r = self.r
        self.code()
        text, path = self.codes[-1]
        self.apart(5)
        if r.random() < 0.5:
            self.user(r.choice(TO_FILE))
        else:
            path = v.path(r)
            self.user(r.choice(TO_NAME).format(f=path))
        self.save(text, path)

    def apart(self, most):
        """One to `most` turns that have nothing to do with what went before, as long as there is room."""
        for _ in range(self.r.randint(1, most)):
            if self.left() > 900:
                self.r.choices((self.tell, self.small, self.echo, self.table), (4, 3, 3, 1))[0]()

    def look_up(self):
        """A file of several KB with a fact in it, errands, and only then the question for the fact, with no further call."""
        r, path, f = self.r, v.path(self.r), self.news(0.8)
        if self.left() < 1500:
            return self.read()
        pieces, joint = documents.filler(r, min(r.choice((60, 400, 1500, 4000, 9000)), self.left() * 0.4))
        said = f.state(r)
        pieces.insert(r.randrange(len(pieces) + 1), said)
        self.user(r.choice(("Open {f}.", "Have a look at {f}.", "Load {f}.", "Look into {f}.")).format(f=path))
        self.bot("", f"I need to read {path}.", [self.call("read", path)])
        self.tool(joint.join(pieces))
        self.bot(f"I have read {path}.", "The user will ask about it.")
        self.facts.append((f, said))
        for _ in range(r.choice((0, 1, 2, 4, 6))):
            if self.left() > 1200:
                r.choices((self.small, self.tell, self.echo, self.run, self.read, self.table), (3, 3, 3, 2, 1, 1))[0]()
        known = next((k for k in self.facts if k[0].key == f.key), (f, said))
        self.ask(known)

    def news(self, share=0.6):
        """A fact that nothing told so far speaks of; an attribute with the given share."""
        while True:
            f = (facts.attribute if self.r.random() < share else facts.draw)(self.r, self.heldout)
            if not self.know(f):
                return f

    def must_call(self):
        """A call that was demanded (tool_choice) and suits nothing that was said: short, from the words at hand."""
        r = self.r
        text = r.choice((skills.sentence(r), skills.skill(r)[0], skills.talk(r)[0], skills.any_text(r)))
        tool = r.choice(self.tools)
        name, shapes, needed = tool["name"], tool["parameters"]["properties"], tool["parameters"]["required"]
        arguments = {
            p: text if shape["type"] == "string" else schemas.least(shape, text) for p, shape in shapes.items() if p in needed
        }
        self.user(text)
        self.bot(
            "",
            r.choice(("I can answer this directly.", "This is a simple request.", f"I call {name}.")),
            [(name, arguments)],
            forced=True,
        )
        self.tool(r.choice(("ok", "done", "", f"error: {v.noun(r)}")))
        self.bot("Is there anything else?", "The call was made.")

    def run(self):
        """Run a command, look for a text or list a folder."""
        r = self.r
        roles = [x for x in ("bash", "grep", "list") if x in self.roles]
        if not roles:
            return self.read()
        role, path = r.choice(roles), v.path(r)
        if role == "bash":
            command = r.choice(COMMANDS).format(f=path, n=v.noun(r))
            self.user(
                r.choice(("Run {c}", "Run the command {c}", "Execute {c}", "Please run `{c}`", "run {c}")).format(
                    c=command
                )
            )
            call = self.call("bash", command, "Run " + command)
            report = f"The command {command} printed:"
        elif role == "grep":
            what = v.noun(r)
            self.user(r.choice(("Search for {w}.", "Find {w} in the files.", "Where is {w} used?")).format(w=what))
            call, report = self.call("grep", what), f"I found {what}:"
        else:
            folder = v.noun(r)
            self.user(
                r.choice(("List the folder {d}.", "What is in the folder {d}?", "Show the files in {d}.")).format(
                    d=folder
                )
            )
            call, report = self.call("list", folder), f"The folder {folder} has:"
        self.bot("", f"I call {call[0]}.", [call])
        output = r.choice(
            (
                any_text(r),
                "\n".join(v.path(r) for _ in range(r.randint(1, 5))),
                v.number(r),
                "ok",
                f"error: {v.noun(r)} not found",
            )
        )
        self.tool(output)
        self.bot(f"{report}\n{output}", "I report the output.")

    def read_two(self):
        """Two reads in one block, then a question about one of the two."""
        r = self.r
        a, b = v.path(r), v.path(r)
        f, g = self.news(1), self.news(1)
        if a == b or f.key == g.key:
            return
        self.user(f"Read {a} and {b} and tell me the {f.attribute} of {f.subject}.")
        self.bot("", f"I need to read {a} and {b}.", [self.call("read", a), self.call("read", b)])
        first, second = (f, g) if r.random() < 0.5 else (g, f)
        for x in (first, second):
            said = x.state(r)
            self.tool(said + (" " + any_text(r) if r.random() < 0.4 else ""))
            self.facts.append((x, said))
        self.bot(f.answer, "The results have the answer.")

    def weak_turn(self):
        """One turn with tools of those that a row of weak spots is made of."""
        self.r.choices((self.reported, self.distant, self.shown, self.look_up, self.program), (6, 5, 2, 2, 1))[0]()

    def turn(self):
        """One turn with tools."""
        self.r.choices(
            (
                self.program,
                self.read,
                self.run,
                self.several,
                self.earlier,
                self.read_two,
                self.shown,
                self.pasted,
                self.copied,
                self.must_call,
                self.look_up,
            ),
            (17, 6, 3, 1, 1, 1, 7, 6, 5, 3, 6),
        )[0]()
