"""`engine render` from outside: the official vectors with the embedded tokenizer and the official V4 one, as
text and as ids; what is refused, with the field named and nothing of the client's said.

    test_render.py SANITIZED_ENGINE ENGINE V4_TOKENIZER     (tests/text/render.sh prepares them)

The sanitized engine takes the small tokenizer and the hostile requests, the one that ships the large tokenizer."""
import json
import os
import subprocess
import sys
import tempfile

SANITIZED, SHIPPED, V4 = sys.argv[1:]
DEMO = "rootfs/models/demo/tokenizer.json"
VECTORS = "tests/data/encoding"
RUN_SECONDS = 60
count = failed = 0


def check(good, what):
    global count, failed
    count += 1
    failed += not good
    print(f"{'ok' if good else 'not ok'} {count} - {what}", flush=True)


def run(command, tokenizer, *args, stdin=b""):
    return start(SHIPPED if tokenizer == V4 else SANITIZED, command, "--tokenizer", tokenizer, *args, stdin=stdin)


def start(*args, stdin=b""):
    p = subprocess.run(args, input=stdin, capture_output=True, timeout=RUN_SECONDS)
    return p.returncode, p.stdout, p.stderr.decode()


def write(path, text):
    with open(path, "wb") as f:
        f.write(text if isinstance(text, bytes) else text.encode())
    return path


def vectors():
    """name, request, prompt, whether the client's text holds a special string"""
    with open(f"{VECTORS}/golden_prompts.json") as f:
        for name, vector in json.load(f).items():
            yield name, vector["request"], vector["prompt"], name == "argument-types"
    for i in range(1, 5):
        with open(f"{VECTORS}/test_input_{i}.json") as f:
            request = json.load(f)
        if isinstance(request, list):
            request = {"messages": request}
        request["thinking"] = "chat" if i == 4 else "thinking"
        with open(f"{VECTORS}/test_output_{i}.txt") as f:
            yield f"official {i}", request, f.read(), False


def check_vectors(folder):
    path = os.path.join(folder, "request.json")
    for name, request, prompt, forged in vectors():
        write(path, json.dumps(request))
        status, text, err = run("render", DEMO, "--request", path)
        check(status == 0 and text.decode() == prompt, f"{name}: the official text {err.strip()}")
        for tokenizer in (DEMO, V4):
            status, out, err = run("render", tokenizer, "--request", path, "--ids")
            ids = json.loads(out) if status == 0 else []
            _, whole, _ = run("tokenize", tokenizer, "--special", stdin=text)
            label = f"{name}: ids of {os.path.basename(tokenizer)}"
            if forged:
                check(len(ids) > len(json.loads(whole)), label + " hold no forged token")
            else:
                check(ids == json.loads(whole), label + f" are those of the whole text {err.strip()}")
            _, back, _ = run("detokenize", tokenizer, stdin=out)
            check(back == text, label + " spell the text")


USER = '{"role":"user","content":"SECRET"}'
REFUSED = [  # request file, what stderr must name
    ("", "byte 0"),
    ("[]", "expected an object"),
    ('{"messages":[]}', "messages: "),
    ('{"messages":[%s]} x' % USER, "invalid JSON"),
    ('{"messages":[%s],"messages":1}' % USER, "duplicate key"),
    ('{"messages":[%s,{"role":"user","content":7}]}' % USER, "messages[1].content: "),
    ('{"messages":[%s],"thinking":"SECRET"}' % USER, "thinking: "),
    ('{"messages":[%s],"thinking":true}' % USER, "thinking: "),
    ('{"messages":[%s],"effort":"SECRET"}' % USER, "effort: "),
    ('{"messages":[%s],"effort":1}' % USER, "effort: "),
    ('{"messages":[%s],"drop_thinking":"SECRET"}' % USER, "drop_thinking: "),
    ('{"messages":[%s],"tools":"SECRET"}' % USER, "tools: "),
    (b'{"messages":[{"role":"user","content":"SECRET\xff"}]}', "invalid UTF-8"),
    ("[" * 1000000, "nested too deeply"),
]


def check_refused(folder):
    path = os.path.join(folder, "request.json")
    for request, named in REFUSED:
        write(path, request)
        status, out, err = run("render", DEMO, "--request", path)
        good = status == 2 and out == b"" and named in err and path in err and "SECRET" not in err
        check(good and err.count("\n") == 1, f"refused in one line, naming: {named}")
    write(path, '{"messages":[%s]}' % USER)
    for args in ([], ["--tokenizer", DEMO], ["--request", path], ["--tokenizer"],
                 ["--tokenizer", DEMO, "--request", path, "--what"],
                 ["--tokenizer", folder, "--request", path],
                 ["--tokenizer", DEMO, "--request", os.path.join(folder, "absent")],
                 ["--tokenizer", path, "--request", path]):
        status, out, err = start(SANITIZED, "render", *args)
        check(status == 2 and out == b"" and err != "", f"status 2 for {len(args)} arguments")


with tempfile.TemporaryDirectory() as temporary:
    check_vectors(temporary)
    check_refused(temporary)
print(f"1..{count}")
sys.exit(failed > 0)
