"""Texts that no template of answers would have written: programs, tables and notes with random identifiers.

Owns their making, and the small damage that makes a known program an unknown one. They are shown, pasted or
read, then copied: whoever leans on the wording of snippets.py instead of the text in sight gets them wrong.
"""
import json
import string

from . import skills, snippets, values as v
from .words import CODEW, VERB

# language: (comment, end of a statement, block opens, block closes, function, how to print, extension)
LANGUAGES = {
    "python": ("#", "", ":", "", "def {f}({a}):", "print({x})", "py"),
    "javascript": ("//", ";", " {", "}", "function {f}({a}) {{", "console.log({x})", "js"),
    "typescript": ("//", ";", " {", "}", "export function {f}({a}): number {{", "console.log({x})", "ts"),
    "c": ("//", ";", " {", "}", "int {f}(int {a}) {{", 'printf("%d\\n", {x})', "c"),
    "go": ("//", "", " {", "}", "func {f}({a} int) int {{", "fmt.Println({x})", "go"),
    "rust": ("//", ";", " {", "}", "fn {f}({a}: i32) -> i32 {{", 'println!("{{}}", {x})', "rs"),
    "java": ("//", ";", " {", "}", "static int {f}(int {a}) {{", "System.out.println({x})", "java"),
    "bash": ("#", "", "; then", "fi", "{f}() {{", "echo ${x}", "sh"),
    "lua": ("--", "", " then", "end", "function {f}({a})", "print({x})", "lua"),
    "ruby": ("#", "", "", "end", "def {f}({a})", "puts {x}", "rb"),
    "sql": ("--", ";", " BEGIN", "END", "CREATE FUNCTION {f}({a} INT)", "SELECT {x}", "sql"),
}
INDENTS = ("    ", "    ", "  ", "\t", "   ", "        ")
SIGNS = ("+", "-", "*", "/", "%", "&", "|", "^", "<<", "==", "!=", "<", ">=", "+=")


def identifier(r):
    """A name in one of the usual styles, often with digits glued to it."""
    words, k = [v.noun(r) if r.random() < 0.6 else r.choice(VERB) for _ in range(r.choice((1, 1, 2, 2, 3)))], r.random()
    if k < 0.1:
        return r.choice(string.ascii_letters) + r.choice(("", str(r.randint(0, 9))))
    if k < 0.2:
        return "".join(r.choices(string.ascii_letters + "_", k=r.randint(3, 9)))
    if k < 0.4:
        name = words[0] + "".join(w.capitalize() for w in words[1:])
    elif k < 0.5:
        name = "".join(w.capitalize() for w in words)
    elif k < 0.58:
        name = "_".join(words).upper()
    else:
        name = "_".join(words) if k < 0.85 else "".join(words)
    return name + (r.choice(("", "_")) + str(r.randint(0, 10 ** r.randint(1, 4))) if r.random() < 0.35 else "")


def literal(r):
    k = r.random()
    if k < 0.3:
        return str(r.randint(0, 10 ** r.randint(1, 6)))
    if k < 0.4:
        return f"{r.randint(0, 999)}.{r.randint(0, 99):02d}"
    if k < 0.5:
        return hex(r.randint(0, 1 << r.choice((8, 16, 32))))
    if k < 0.6:
        return "[" + ", ".join(str(r.randint(-99, 999)) for _ in range(r.randint(0, 6))) + "]"
    quote = r.choice('""\'')
    return quote + skills.any_text(r).replace("\n", " ").replace(quote, "")[:40] + quote


def expression(r, names):
    k, a, b = r.random(), r.choice(names), r.choice(names)
    if k < 0.25:
        return literal(r)
    if k < 0.45:
        return f"{a} {r.choice(SIGNS[:9])} {r.choice((b, literal(r)))}"
    if k < 0.6:
        return f"{a}({', '.join(r.choice((r.choice(names), literal(r))) for _ in range(r.randint(0, 3)))})"
    if k < 0.7:
        return f"{a}.{b}"
    if k < 0.8:
        return f"{a}[{r.choice((b, str(r.randint(0, 99))))}]"
    return a


def statement(r, names, language):
    """One line without its indent."""
    comment, end, _, _, _, show, _ = LANGUAGES[language]
    k, a = r.random(), r.choice(names)
    if k < 0.12:
        return f"{comment} {skills.sentence(r)}"
    if k < 0.5:
        return f"{r.choice(('', '', 'const ', 'let ', 'int ', 'local '))}{a} {r.choice(('=', '=', '=', '+=', ':='))} {expression(r, names)}{end}"
    if k < 0.65:
        return show.format(x=expression(r, names)) + end
    if k < 0.8:
        return f"return {expression(r, names)}{end}"
    if k < 0.9:
        return expression(r, names) + end
    return f"{a}({expression(r, names)}, {expression(r, names)}){end}" + (
        f"  {comment} {v.noun(r)}" if r.random() < 0.5 else ""
    )


def block(r, names, language, indent, depth, lines, most):
    """Statements and nested blocks, appended to `lines`."""
    _, _, opens, closes, _, _, _ = LANGUAGES[language]
    for _ in range(r.randint(1, 4)):
        if len(lines) >= most:
            return
        if depth < 4 and r.random() < 0.25:
            lines.append(f"{indent * depth}{r.choice(('if', 'while', 'for'))} {expression(r, names)}{opens}")
            block(r, names, language, indent, depth + 1, lines, most)
            if closes:
                lines.append(indent * depth + closes)
        else:
            lines.append(indent * depth + statement(r, names, language))


def program(r, most):
    """(text, language, extension, stem) of at most about `most` lines."""
    language = r.choice(list(LANGUAGES))
    _, _, _, closes, function, _, extension = LANGUAGES[language]
    names, indent, lines = [identifier(r) for _ in range(r.randint(3, 8))], r.choice(INDENTS), []
    stem = names[0]
    while len(lines) < most:
        if r.random() < 0.6 or not lines:
            f = stem if not lines else identifier(r)
            lines.append(function.format(f=f, a=r.choice(names)))
            block(r, names, language, indent, 1, lines, most)
            if closes:
                lines.append("}" if function.endswith("{{") else closes)
        else:
            block(r, names, language, indent, 0, lines, most)
        if r.random() < 0.6:
            lines.append("")
        if r.random() < 0.25:
            break
    while lines and not lines[-1]:
        lines.pop()
    return "\n".join(lines) + "\n", language, extension, stem


def table(r, most):
    columns, joint = r.randint(2, 5), r.choice((",", ",", ";", "\t", " | ", ", "))
    make = [r.choice((v.noun, v.number, v.code, v.name, v.place_name, v.date, lambda r: "")) for _ in range(columns)]
    rows = [joint.join(m(r) for m in make) for _ in range(r.randint(2, max(2, most)))]
    return "\n".join([joint.join(identifier(r) for _ in range(columns)), *rows]) + "\n", "csv", "csv", v.noun(r)


def settings(r, most):
    """ini, yaml, env or make lines."""
    sign = r.choice(("=", " = ", ": ", ":=", ":\t"))
    lines = []
    for _ in range(r.randint(2, max(2, most))):
        k = r.random()
        lines.append(
            f"[{identifier(r)}]"
            if k < 0.1
            else ""
            if k < 0.14
            else f"# {skills.sentence(r)}"
            if k < 0.2
            else r.choice(("", "", "  ")) + identifier(r) + sign + r.choice((literal(r), v.code(r), v.path(r)))
        )
    language, extension = r.choice((("ini", "ini"), ("yaml", "yaml"), ("", "cfg"), ("", "txt"), ("toml", "toml")))
    return "\n".join(lines).strip("\n") + "\n", language, extension, v.noun(r)


def nested(r, most, depth=0):
    """A random JSON value."""
    k = r.random()
    if depth < 3 and (k < 0.35 or not depth):
        return {identifier(r): nested(r, most, depth + 1) for _ in range(r.randint(1, min(5, most)))}
    if depth < 3 and k < 0.5:
        return [nested(r, most, depth + 1) for _ in range(r.randint(0, 3))]
    return r.choice((v.noun(r), v.code(r), r.randint(-9, 9999), r.random() < 0.5, None, v.path(r)))


def json_text(r, most):
    return (
        json.dumps(nested(r, most), indent=r.choice((2, 2, 4, None)), ensure_ascii=False) + "\n",
        "json",
        "json",
        v.noun(r),
    )


def prose(r, most):
    lines = [
        r.choice(
            (
                skills.sentence,
                skills.sentence,
                skills.any_text,
                lambda r: "## " + v.phrase(r),
                lambda r: "- " + skills.any_text(r),
                lambda r: "",
            )
        )(r)
        for _ in range(r.randint(1, max(1, most)))
    ]
    return "\n".join(lines).strip() + "\n", r.choice(("", "text", "markdown")), r.choice(("txt", "md")), v.noun(r)


def noise(r, most):
    """Lines of printable characters, of code words, with repeated signs and several spaces."""
    lines = []
    for _ in range(r.randint(1, max(1, most))):
        k = r.random()
        lines.append(
            "".join(r.choices(string.printable[:94], k=r.randint(1, 30)))
            if k < 0.35
            else r.choice((" ", "  ", "\t")).join(r.choices(CODEW, k=r.randint(1, 8)))
            if k < 0.7
            else r.choice("=-*#_ab0") * r.randint(2, 30) + r.choice(("", " " + v.noun(r)))
        )
    return "\n".join(lines).strip() + "\n", "", r.choice(("txt", "dat", "log")), v.noun(r)


def damaged(r, count=None):
    """A known program with a few changes, each of them invisible to someone who recites."""
    _, language, text, name = snippets.snippet(r)
    for _ in range(count or r.randint(1, 3)):
        words = [w for w in "".join(c if c.isalnum() or c == "_" else " " for c in text).split() if len(w) > 1]
        lines, k = text.split("\n"), r.random()
        if k < 0.3 and words:
            text = text.replace(r.choice(words), identifier(r))
        elif k < 0.36 and len(text.split(" ")) > 1:
            pieces = text.split(" ")
            i = r.randrange(1, len(pieces))
            added = r.choice((f"and {v.noun(r)}", v.adjective(r), identifier(r) + ",", "not", r.choice(SIGNS)))
            text = (
                " ".join(pieces[:i] + [added] + pieces[i:])
                if r.random() < 0.6
                else " ".join(pieces[:i] + pieces[i + 1 :])
            )
        elif k < 0.42:
            text = text.replace("_", r.choice(("", "-", "__")))
        elif k < 0.55 and any(c.isdigit() for c in text):
            text = "".join(r.choice("0123456789") if c.isdigit() and r.random() < 0.5 else c for c in text)
        elif k < 0.7:
            lines.insert(r.randrange(len(lines)), r.choice((statement(r, [identifier(r), "x"], "python"), "")))
            text = "\n".join(lines)
        elif k < 0.78 and len(lines) > 2:
            i = r.randrange(len(lines) - 1)
            text = "\n".join(lines[:i] + [lines[i + 1], lines[i]] + lines[i + 2 :])
        elif k < 0.86:
            text = text.replace("    ", r.choice(("  ", "\t", "   ")))
        elif k < 0.93:
            text = text.replace('"', "'") if "'" not in text else text.upper()
        else:
            text = text.rstrip("\n") + f"\n\n{identifier(r)}({literal(r)})\n"
    stem, extension = name.rsplit(".", 1)
    return text.strip("\n") + "\n", language, extension, stem


KINDS = ((program, 40), (damaged, 26), (settings, 9), (table, 6), (json_text, 7), (prose, 6), (noise, 6))


def foreign(r, chars):
    """(text, language, extension, stem) of at most about `chars` characters, one line at least."""
    make = r.choices([k for k, _ in KINDS], [w for _, w in KINDS])[0]
    most = max(2, min(r.choice((4, 8, 12, 20, 40)), int(chars / 24)))
    text, language, extension, stem = make(r) if make is damaged else make(r, most)
    if len(text) > 1.3 * chars:
        text = text[: int(chars)].rsplit("\n", 1)[0].rstrip("\n") + "\n"
    if not text.strip() or "```" in text:
        return foreign(r, chars)
    return text, language, extension, stem
