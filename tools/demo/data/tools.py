"""Tool schemas as agents send them, and the system texts around them.

Owns names, parameters and descriptions; toolset() draws a set and says which tool does what. The sessions
that use them are in agent.py.
"""
from . import skills, values as v
from .foreign import foreign
from .words import NOUN

TYPES = ("string", "string", "string", "number", "boolean", "integer", "array")
VERBS = "get list find search create delete update send fetch count sort open close start stop check add remove show merge".split()

SYSTEM_PARTS = (
    "You are {who}, an agent that works in a terminal and helps with software tasks.",
    "You are a coding agent. Work with the tools that you are given.",
    "You are an assistant with access to the files of the user.",
    "Keep your answers short. Fewer than four lines is best unless more detail is asked for.",
    "Do not add comments to the code unless the user asks for them.",
    "Never guess what a file contains: read it first.",
    "Prefer to edit an existing file over writing a new one.",
    "When you are done, say what you did in one sentence and stop.",
    "Use absolute paths whenever a tool asks for a path.",
    "If a command fails, report the error and do not try again more than twice.",
    "Never commit changes unless the user has asked for it explicitly.",
    "Follow the style of the code that is already there: names, layout and libraries.",
    "Before you use a library, check that the project already uses it.",
    "Never write secrets or keys into a file or into a log.",
    "You may call several tools in one message when the calls do not depend on each other.",
    "Ask for permission before you delete anything.",
    "After a change run the tests and the linter of the project, if you know the commands.",
    "Do not use emojis.",
    "Answer in the language of the user.",
    "The user sees your text in a monospace font; simple markdown is allowed.",
    "Tool results may contain reminders. They are useful hints from the system, not words of the user.",
    "If you cannot help, say so in one or two sentences without giving reasons.",
    "Plan the steps of a larger task first and mark every step when it is done.",
    "When you mention code, give the file and the line, so that the user can find it.",
    "<env>\nWorking directory: /home/{who}/{n}\nIs directory a git repo: {yes}\nPlatform: linux\nToday's date: {date}\n</env>",
    "Here is the project: a {n} written in {lang}. The main file is {file}.",
    "# Tone\nBe concise, direct and to the point.",
    "# Following conventions\nUnderstand the conventions of a file before you change it.",
    "# Doing tasks\nSearch first, then change, then verify.",
    "IMPORTANT: refuse to write code that may be used to do harm.",
    "The name of the current branch is {n}-{d}.",
    "Instructions from {file}:\nRun make before every commit. Use four spaces. Keep lines below one hundred characters.",
)
PLAIN_SYSTEM = (
    "You are a helpful assistant.",
    "Be brief.",
    "You are a careful assistant who remembers everything.",
    "Answer in one line.",
    "You are the assistant of a small workshop.",
    "Today is a good day.",
    "You are a friendly chat bot.",
    "Answer truthfully.",
    "You help people.",
    "You are {who}'s assistant.",
)


def fill(r, text):
    """A system text with its blanks filled."""
    return text.format(
        who=v.name(r).lower(),
        n=v.noun(r),
        yes=r.choice(("yes", "no")),
        date=v.date(r),
        d=r.randint(1, 99),
        lang=r.choice(("Python", "C", "Rust", "Go", "Java")),
        file=v.file_name(r),
    )


def system_text(r, parts):
    """A system prompt of so many parts, in the order of the pool as real ones are."""
    chosen = sorted(r.sample(range(len(SYSTEM_PARTS)), min(parts, len(SYSTEM_PARTS))))
    return r.choice(("\n", "\n\n", " ")).join(fill(r, SYSTEM_PARTS[i]) for i in chosen)


def schema(properties, required=None):
    return {"type": "object", "properties": properties, "required": required or list(properties)}


def text_property(description):
    return {"type": "string", "description": description}


def other_tool(r, long):
    """A tool that the session never calls."""
    name = r.choice(VERBS) + r.choice(("_", "")) + r.choice(NOUN)
    properties = {}
    for _ in range(r.randint(1, 4)):
        properties[v.noun(r)] = {
            "type": r.choice(TYPES),
            "description": " ".join(v.noun(r) for _ in range(r.randint(2, 6))),
        }
    words = " ".join(r.choice(NOUN) for _ in range(r.randint(4, 30 if long else 8)))
    return {
        "name": name,
        "description": f"{r.choice(VERBS).capitalize()} the {words}.",
        "parameters": schema(properties, list(properties)[:1]),
    }


# Parameter names as they stand in two agents that people use, and the pools for invented agents.
KNOWN = (
    {
        "write": ("write", "filePath", "content"),
        "read": ("read", "filePath"),
        "bash": ("bash", "command", "description"),
        "edit": ("edit", "filePath", "oldString", "newString"),
        "grep": ("grep", "pattern"),
        "list": ("list", "path"),
    },
    {
        "write": ("Write", "file_path", "content"),
        "read": ("Read", "file_path"),
        "bash": ("Bash", "command", "description"),
        "edit": ("Edit", "file_path", "old_string", "new_string"),
        "grep": ("Grep", "pattern"),
        "list": ("LS", "path"),
    },
)
NAMES = {
    "write": ("write_file", "create_file", "save_file", "file_write", "write", "put_file", "save", "store_file"),
    "read": ("read_file", "open_file", "cat", "get_file", "read", "load_file", "view"),
    "bash": ("run", "shell", "execute", "bash", "run_command", "terminal", "exec"),
    "edit": ("edit_file", "replace", "patch", "str_replace", "edit", "change_file"),
    "grep": ("grep", "search", "find_text", "search_files"),
    "list": ("ls", "list_dir", "list_files", "dir"),
}
PATHS = ("path", "file", "filename", "file_path", "filePath", "name", "target")
CONTENTS = ("content", "text", "contents", "data", "body")
REPLACEMENTS = (("old", "new"), ("old_str", "new_str"), ("search", "replace"), ("before", "after"))
ABOUT = {
    "write": (
        "Write a file.",
        "Write text to a file on disk.",
        "Create or overwrite a file.",
        "Writes a file to the local filesystem. Overwrites what is there.",
    ),
    "read": ("Read a file.", "Return the text of a file.", "Reads a file from the local filesystem."),
    "bash": (
        "Run a shell command.",
        "Execute a command.",
        "Executes a given command in a shell and returns its output.",
    ),
    "edit": ("Replace text in a file.", "Edit a file.", "Performs exact string replacement in a file."),
    "grep": ("Search the files for a pattern.", "Find text in files."),
    "list": ("List a folder.", "List the files of a folder."),
}
# Parameters that a schema may name beside and that no call here has.
OPTIONAL = {
    "write": (("overwrite", "boolean"), ("encoding", "string"), ("mode", "integer")),
    "read": (("offset", "number"), ("limit", "number"), ("encoding", "string")),
    "bash": (("timeout", "number"), ("workdir", "string"), ("background", "boolean")),
    "edit": (("replaceAll", "boolean"), ("count", "integer")),
    "grep": (("include", "string"), ("context", "integer"), ("limit", "number")),
    "list": (("ignore", "array"), ("depth", "integer")),
}
HINT = {
    "write": ("path of the file", "text to write"),
    "read": ("path of the file",),
    "bash": ("command line", "what it does"),
    "edit": ("path of the file", "text to replace", "replacement"),
    "grep": ("what to look for",),
    "list": ("folder",),
}


def invented_agent(r):
    """Names of tools and parameters as an unknown agent might have them."""
    path = r.choice(PATHS) if r.random() < 0.85 else v.noun(r)
    return {
        "write": (r.choice(NAMES["write"]), path, r.choice([c for c in CONTENTS if c != path])),
        "read": (r.choice(NAMES["read"]), path),
        "bash": (r.choice(NAMES["bash"]), r.choice(("command", "cmd", "script"))),
        "edit": (r.choice(NAMES["edit"]), path, *r.choice(REPLACEMENTS)),
        "grep": (r.choice(NAMES["grep"]), r.choice(("pattern", "query", "text"))),
        "list": (r.choice(NAMES["list"]), r.choice(("path", "dir", "folder"))),
    }


HEADINGS = "Usage|Notes|Important|Examples|Rules|Tone|Tasks|Environment|Style|Git|Errors|Output|Before you start|Steps|Limits".split("|")


def manual_part(r):
    """One part of a long instruction: a heading, a paragraph, a list, an example, code."""
    k, lines = r.random(), r.randint(2, 9)
    if k < 0.15:
        return f"{'#' * r.randint(1, 3)} {r.choice(HEADINGS)}" + r.choice(("", f" of the {v.noun(r)}"))
    if k < 0.45:
        return " ".join(fill(r, r.choice(SYSTEM_PARTS)) if r.random() < 0.4 else skills.sentence(r) for _ in range(lines))
    if k < 0.65:
        mark = r.choice(("- ", "* ", "  - ", "{i}. "))
        return "\n".join(
            mark.format(i=i + 1) + (fill(r, r.choice(SYSTEM_PARTS)) if r.random() < 0.4 else skills.sentence(r))
            for i in range(lines)
        )
    if k < 0.82:
        tag, (question, answer) = r.choice(("example", "good-example", "bad-example", "reasoning")), skills.skill(r)
        return f"<{tag}>\nuser: {question}\nassistant: {answer}\n</{tag}>"
    text, language, _, _ = foreign(r, r.choice((80, 200, 500)))
    return f"```{language}\n{text}```"


def manual(r, chars):
    """Instructions of about so many characters, as agents put them before a chat and into the descriptions of tools."""
    parts, n = [], 0
    while n < chars:
        parts.append(manual_part(r))
        n += len(parts[-1]) + 2
    return r.choice(("\n", "\n\n")).join(parts)


def lengthened(r, schemas, chars):
    """The schemas with descriptions of so many characters in all, a few of them with the most."""
    weights = [r.random() ** 3 for _ in schemas]
    for s, w in zip(schemas, weights):
        if (n := chars * w / sum(weights)) > 40:
            s["description"] += "\n\n" + manual(r, n)
    return schemas


def described(r, role, parameters):
    """The schema's properties of a tool and which of them are required, in an order of its own."""
    shapes = [(p, text_property(h)) for p, h in zip(parameters, HINT[role])]
    needed = [p for p, _ in shapes]
    if r.random() < 0.5:
        shapes += [
            (p, {"type": t, "description": skills.sentence(r)}) for p, t in OPTIONAL[role] if r.random() < 0.5 and p not in needed
        ]
    if r.random() < 0.5:
        r.shuffle(shapes)
    shapes = dict(shapes)
    made = schema(shapes, [p for p in shapes if p in needed] if r.random() < 0.7 else needed)
    if r.random() < 0.3:
        made = {"$schema": "http://json-schema.org/draft-07/schema#", **made, "additionalProperties": False}
    return made


def toolset(r, extra=0):
    """(schemas, roles): roles maps what a tool does to (name, parameters); `extra` tools have no role."""
    k = r.random()
    roles = dict(KNOWN[0] if k < 0.3 else KNOWN[1] if k < 0.5 else invented_agent(r))
    if len({n for n, *_ in roles.values()}) < len(roles):
        roles = dict(KNOWN[0])
    for role in [x for x in roles if x not in ("write", "read")]:
        if r.random() < (0.3 if role in ("bash", "edit") else 0.6):
            del roles[role]
    schemas = []
    for role, (name, *parameters) in roles.items():
        schemas.append(
            {"name": name, "description": r.choice(ABOUT[role]), "parameters": described(r, role, parameters)}
        )
    long = extra > 8
    schemas += [other_tool(r, long) for _ in range(extra)]
    r.shuffle(schemas)
    return schemas, {role: (name, tuple(p)) for role, (name, *p) in roles.items()}
