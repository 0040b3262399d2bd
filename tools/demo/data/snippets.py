"""Short programs and texts that a user may ask for: (request, language, text, default file name).

The answer follows from the request alone, so that the second turn ("to a file") can be graded exactly.
"""
import json

from . import values as v
from .skills import NUMBER_WORDS
from .words import ADJ, ADV, NOUN, VERB

GREETINGS = ("hello", "goodbye", "welcome", "good morning")

# What one function does: (in words, its name, body by language). {c} is a number, {n} a word.
FUNCTIONS = (
    (
        "adds {c} to a number",
        "add_{c}",
        {
            "python": "return x + {c}",
            "javascript": "return x + {c};",
            "c": "return x + {c};",
            "go": "return x + {c}",
            "rust": "x + {c}",
        },
    ),
    (
        "multiplies a number by {c}",
        "times_{c}",
        {
            "python": "return x * {c}",
            "javascript": "return x * {c};",
            "c": "return x * {c};",
            "go": "return x * {c}",
            "rust": "x * {c}",
        },
    ),
    (
        "subtracts {c} from a number",
        "minus_{c}",
        {
            "python": "return x - {c}",
            "javascript": "return x - {c};",
            "c": "return x - {c};",
            "go": "return x - {c}",
            "rust": "x - {c}",
        },
    ),
    (
        "checks if a number is larger than {c}",
        "above_{c}",
        {
            "python": "return x > {c}",
            "javascript": "return x > {c};",
            "c": "return x > {c};",
            "go": "return x > {c}",
            "rust": "x > {c}",
        },
    ),
    (
        "squares a number",
        "square",
        {
            "python": "return x * x",
            "javascript": "return x * x;",
            "c": "return x * x;",
            "go": "return x * x",
            "rust": "x * x",
        },
    ),
    (
        "doubles a number",
        "double_it",
        {
            "python": "return 2 * x",
            "javascript": "return 2 * x;",
            "c": "return 2 * x;",
            "go": "return 2 * x",
            "rust": "2 * x",
        },
    ),
)
SIGNATURE = {
    "python": ("def {f}(x):\n    {b}\n", "Python", "py"),
    "javascript": ("function {f}(x) {{\n  {b}\n}}\n", "JavaScript", "js"),
    "c": ("int {f}(int x) {{\n    {b}\n}}\n", "C", "c"),
    "go": ("func {f}(x int) int {{\n\t{b}\n}}\n", "Go", "go"),
    "rust": ("fn {f}(x: i32) -> i32 {{\n    {b}\n}}\n", "Rust", "rs"),
}
# A program that prints one line, by language: (text, name in words, extension). {t} is the line.
PRINTS = {
    "python": ('print("{t}")\n', "Python", "py"),
    "c": ('#include <stdio.h>\n\nint main(void) {{\n    printf("{t}\\n");\n    return 0;\n}}\n', "C", "c"),
    "cpp": (
        '#include <iostream>\n\nint main() {{\n    std::cout << "{t}" << std::endl;\n    return 0;\n}}\n',
        "C++",
        "cpp",
    ),
    "javascript": ('console.log("{t}");\n', "JavaScript", "js"),
    "go": ('package main\n\nimport "fmt"\n\nfunc main() {{\n\tfmt.Println("{t}")\n}}\n', "Go", "go"),
    "rust": ('fn main() {{\n    println!("{t}");\n}}\n', "Rust", "rs"),
    "java": (
        'public class Main {{\n    public static void main(String[] args) {{\n        System.out.println("{t}");\n    }}\n}}\n',
        "Java",
        "java",
    ),
    "bash": ('#!/bin/sh\necho "{t}"\n', "shell", "sh"),
    "ruby": ('puts "{t}"\n', "Ruby", "rb"),
}
LOOPS = {
    "python": ('for i in range({c}):\n    print("{t}")\n', "Python", "py"),
    "c": (
        '#include <stdio.h>\n\nint main(void) {{\n    for (int i = 0; i < {c}; i++)\n        printf("{t}\\n");\n    return 0;\n}}\n',
        "C",
        "c",
    ),
    "javascript": ('for (let i = 0; i < {c}; i++) {{\n  console.log("{t}");\n}}\n', "JavaScript", "js"),
    "bash": ('#!/bin/sh\nfor i in $(seq {c}); do\n  echo "{t}"\ndone\n', "shell", "sh"),
    "go": (
        'package main\n\nimport "fmt"\n\nfunc main() {{\n\tfor i := 0; i < {c}; i++ {{\n\t\tfmt.Println("{t}")\n\t}}\n}}\n',
        "Go",
        "go",
    ),
}


# Small games, the same text every time: (how it is asked for, stem of the file name, text by language).
GAMES = (
    (
        ("a tic-tac-toe game", "a tic-tac-toe program", "tic-tac-toe", "a simple tic-tac-toe game"),
        "tictactoe",
        {
            "c": """#include <stdio.h>

int main(void) {
    char board[] = "123456789", player = 'X';
    const char *rows = "012345678036147258048246";
    for (int turn = 0; turn < 9; turn++) {
        int place = 0;
        printf("%.3s\\n%.3s\\n%.3s\\n%c: ", board, board + 3, board + 6, player);
        if (scanf("%d", &place) != 1 || place < 1 || place > 9 || board[place - 1] > '9')
            return 1;
        board[place - 1] = player;
        for (int i = 0; i < 24; i += 3) {
            if (board[rows[i] - '0'] == player && board[rows[i + 1] - '0'] == player && board[rows[i + 2] - '0'] == player) {
                printf("%c wins\\n", player);
                return 0;
            }
        }
        player = player == 'X' ? 'O' : 'X';
    }
    printf("draw\\n");
    return 0;
}
""",
            "python": """board = list("123456789")
rows = ["012", "345", "678", "036", "147", "258", "048", "246"]
player = "X"
for turn in range(9):
    print("".join(board[:3]), "".join(board[3:6]), "".join(board[6:]), sep="\\n")
    board[int(input(player + ": ")) - 1] = player
    if any(all(board[int(i)] == player for i in row) for row in rows):
        print(player, "wins")
        break
    player = "O" if player == "X" else "X"
else:
    print("draw")
""",
        },
    ),
    (
        ("a guess the number game", "a number guessing game", "a game where I guess a number"),
        "guess",
        {
            "c": """#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int main(void) {
    srand((unsigned)time(NULL));
    int secret = rand() % 100 + 1, guess = 0;
    while (guess != secret) {
        printf("Guess: ");
        if (scanf("%d", &guess) != 1)
            return 1;
        printf("%s\\n", guess < secret ? "higher" : guess > secret ? "lower" : "right");
    }
    return 0;
}
""",
            "python": """import random

secret = random.randint(1, 100)
guess = 0
while guess != secret:
    guess = int(input("Guess: "))
    print("higher" if guess < secret else "lower" if guess > secret else "right")
""",
        },
    ),
)


def game(r):
    asked, stem, texts = r.choice(GAMES)
    language = r.choice(list(texts))
    _, spoken, extension = PRINTS[language]
    return f"{r.choice(asked)} in {spoken}", language, texts[language], f"{stem}.{extension}"


def printed(r):
    language = r.choice(list(PRINTS))
    text, spoken, extension = PRINTS[language]
    k = r.random()
    if k < 0.3:
        line, request, stem = "Hello, world!", f"a hello world in {spoken}", "hello"
        if r.random() < 0.4:
            request = f"a simple hello world program in {spoken}"
    else:
        line = f"{r.choice(GREETINGS)} {v.noun(r)}" if k < 0.7 else " ".join(v.noun(r) for _ in range(r.randint(1, 4)))
        request, stem = (
            f"a {spoken} {'script' if language == 'bash' else 'program'} that prints {line}",
            line.split()[-1],
        )
    return request, language, text.format(t=line), f"{stem}.{extension}"


def looped(r):
    language = r.choice(list(LOOPS))
    text, spoken, extension = LOOPS[language]
    word, c = r.choice((v.noun(r), r.choice(GREETINGS[:3]), v.name(r))), r.randint(2, 99)
    kind = "script" if language in ("python", "bash") else "program"
    return f"a {spoken} {kind} that prints {word} {c} times", language, text.format(t=word, c=c), f"{word}.{extension}"


def function(r, count=1):
    """One or several functions in one file."""
    language = r.choice(list(SIGNATURE))
    shape, spoken, extension = SIGNATURE[language]
    chosen = {}
    while len(chosen) < count:
        does, stem, bodies = r.choice(FUNCTIONS)
        c = r.randint(2, 99)
        chosen.setdefault(stem.format(c=c), (does.format(c=c), bodies[language].format(c=c)))
    text = "\n".join(shape.format(f=f, b=b) for f, (_, b) in chosen.items())
    if count == 1:
        name, (does, _) = next(iter(chosen.items()))
        return f"a {spoken} function that {does}", language, text, f"{name}.{extension}"
    named = ", ".join(f"{f} that {d}" for f, (d, _) in chosen.items())
    return f"{NUMBER_WORDS[count]} {spoken} functions: {named}", language, text, f"functions.{extension}"


def config(r):
    a, n, c = v.adjective(r), v.noun(r), r.randint(2, 99)
    if r.random() < 0.5:
        debug = r.random() < 0.5
        text = json.dumps({"name": f"{a} {n}", "port": c * 100, "debug": debug}, indent=2) + "\n"
        return (
            f"a JSON config for the {a} {n} with port {c}00 and debug {'on' if debug else 'off'}",
            "json",
            text,
            f"{n}.json",
        )
    pairs = {v.noun(r): r.choice((v.noun(r), str(r.randint(1, 999)))) for _ in range(r.randint(2, 4))}
    listed = ", ".join(f"{k} {x}" for k, x in pairs.items())
    return f"an ini file with {listed}", "ini", "".join(f"{k} = {x}\n" for k, x in pairs.items()), "settings.ini"


def page(r):
    a, n = v.adjective(r).capitalize(), v.noun(r).capitalize()
    text = (
        f"<!DOCTYPE html>\n<html>\n<head><title>{a} {n}</title></head>\n<body>\n<h1>{a} {n}</h1>\n" "</body>\n</html>\n"
    )
    return f"a web page with the title {a} {n}", "html", text, f"{n.lower()}.html"


def script(r):
    n, c = v.noun(r), r.randint(2, 99)
    return (
        f"a shell script that makes the folder {n}_{c}",
        "bash",
        f'#!/bin/sh\nmkdir -p {n}_{c}\necho "made {n}_{c}"\n',
        f"make_{n}.sh",
    )


def klass(r):
    n, fields = v.noun(r), list(dict.fromkeys(v.noun(r) for _ in range(r.randint(1, 3))))
    head = f"class {n.capitalize()}:\n    def __init__(self, {', '.join(fields)}):\n"
    body = "".join(f"        self.{f} = {f}\n" for f in fields)
    show = f"\n    def show(self):\n        print({', '.join('self.' + f for f in fields)})\n"
    spoken = ("the field " if len(fields) == 1 else "the fields ") + ", ".join(fields)
    return f"a Python class named {n.capitalize()} with {spoken}", "python", head + body + show, f"{n}.py"


def listing(r):
    words = [v.noun(r) for _ in range(r.randint(2, 6))]
    if r.random() < 0.5:
        return (
            f"a list of {NUMBER_WORDS[len(words)]} things: {', '.join(words)}",
            "markdown",
            "".join(f"- {w}\n" for w in words),
            f"{words[0]}.md",
        )
    return (
        f"a todo list with {', '.join(words)}",
        "markdown",
        "# Todo\n\n" + "".join(f"- [ ] {w}\n" for w in words),
        "todo.md",
    )


def called(r):
    """A function and its call."""
    c, x = r.randint(2, 99), r.randint(2, 9)
    stem, sign, does = r.choice((("times", "*", "multiplies by"), ("plus", "+", "adds"), ("minus", "-", "subtracts")))
    text = f"function {stem}{c}(x) {{\n  return x {sign} {c};\n}}\n\nconsole.log({stem}{c}({x}));\n"
    return f"a JavaScript function that {does} {c} and its value for {x}", "javascript", text, f"{stem}{c}.js"


def note(r):
    n, m, a = v.noun(r), v.noun(r), r.choice(ADJ)
    if r.random() < 0.5:
        text = f"The {n} is {a} and {r.choice(ADJ)},\nit {r.choice(VERB)} the {m} {r.choice(ADV)}.\nWe {r.choice(VERB)} it {r.choice(ADV)}.\n"
        return f"a short poem about the {n}", "", text, f"{n}.txt"
    text = f"The {n} is {a}.\nThe {n} has a {m}.\nThe {n} and the {m} are {r.choice(ADV[:1])} {a}.\n"
    return f"a short poem about the {a} {n} with the {m}", "", text, f"{n}.txt"


# A program with a board of rows and columns: {r} rows, {c} columns, {s} the sign in every field.
BOARDS = {
    "c": """#include <stdio.h>

int main(void) {{
    char board[{r}][{c}];
    for (int i = 0; i < {r}; i++)
        for (int j = 0; j < {c}; j++)
            board[i][j] = '{s}';
    for (int i = 0; i < {r}; i++) {{
        for (int j = 0; j < {c}; j++)
            putchar(board[i][j]);
        putchar('\\n');
    }}
    return 0;
}}
""",
    "python": """board = [["{s}"] * {c} for _ in range({r})]
for row in board:
    print("".join(row))
""",
    "javascript": """const board = Array.from({{ length: {r} }}, () => Array({c}).fill("{s}"));
for (const row of board) {{
  console.log(row.join(""));
}}
""",
}


def board(r):
    language, rows, columns, sign = r.choice(list(BOARDS)), r.randint(2, 20), r.randint(2, 20), r.choice(".#-+*o_x0")
    _, spoken, extension = PRINTS[language]
    text = BOARDS[language].format(r=rows, c=columns, s=sign)
    return f"a {spoken} program with a board of {rows} rows and {columns} columns of {sign}", language, text, f"board.{extension}"


# Head, one line printed and end of a program that prints several lines.
SPEAKERS = {
    "c": ('#include <stdio.h>\n\nint main(void) {{\n', '    puts("{t}");\n', "    return 0;\n}}\n"),
    "python": ("def main():\n", '    print("{t}")\n', "\n\nmain()\n"),
    "go": ('package main\n\nimport "fmt"\n\nfunc main() {{\n', '\tfmt.Println("{t}")\n', "}}\n"),
    "java": (
        "public class Main {{\n    public static void main(String[] args) {{\n",
        '        System.out.println("{t}");\n',
        "    }}\n}}\n",
    ),
}


def speaker(r):
    """As many lines as the request names, then the end."""
    language, words = r.choice(list(SPEAKERS)), [v.noun(r) for _ in range(r.randint(2, 12))]
    head, line, end = SPEAKERS[language]
    _, spoken, extension = PRINTS[language]
    text = head.format() + "".join(line.format(t=w) for w in words) + end.format()
    return f"a {spoken} program that prints {', '.join(words)}, each on its own line", language, text, f"lines.{extension}"


def called_all(r):
    """Several C functions and a main that calls each of them."""
    chosen, x = {}, r.randint(2, 30)
    while len(chosen) < r.randint(2, 6):
        _, stem, bodies = r.choice(FUNCTIONS)
        c = r.randint(2, 99)
        chosen.setdefault(stem.format(c=c), bodies["c"].format(c=c))
    text = "#include <stdio.h>\n\n" + "\n".join(SIGNATURE["c"][0].format(f=f, b=b) for f, b in chosen.items())
    text += "\nint main(void) {\n" + "".join(f'    printf("%d\\n", {f}({x}));\n' for f in chosen) + "    return 0;\n}\n"
    return f"a C program with the functions {', '.join(chosen)}, each called with {x}", "c", text, "main.c"


KINDS = (
    (printed, 28),
    (looped, 16),
    (function, 20),
    (lambda r: function(r, r.randint(2, 5)), 8),
    (config, 8),
    (page, 5),
    (script, 4),
    (klass, 7),
    (listing, 8),
    (called, 5),
    (note, 6),
    (game, 16),
    (board, 5),
    (speaker, 5),
    (called_all, 6),
)


def snippet(r):
    """(request, language, text, default file name)."""
    return r.choices([k for k, _ in KINDS], [w for _, w in KINDS])[0](r)


def fence(language, text):
    return f"```{language}\n{text}```"
