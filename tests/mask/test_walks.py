#!/usr/bin/python3
"""The suite `mask`: answers drawn at random under token masks, each checked by other means.

Token by token, anything that the mask allows is taken, until the end of the answer.  JSON is then
read by Python and validated by Debian's python3-jsonschema; blocks of tool calls are read by the
parser below, written from the chat format alone.  The driver ends on the first empty mask.
test_walks.py [SEED]; written in TAP.
"""
import json
import random
import re
import subprocess
import sys

import jsonschema

DRIVER = "build/host/mask-driver"
DEMO = "rootfs/models/demo/tokenizer.json"
V4 = "build/tokenizer/v4.json"
SCHEMAS, WALKS_EACH = 290, 8
CALL_WALKS = 600
V4_WALKS = 60

count = failed = 0


def check(good, name):
    global count, failed
    count += 1
    failed += not good
    print(f"{'ok' if good else 'not ok'} {count} - {name}")


def run(tokenizer, lines):
    text = "\n".join(json.dumps(line) for line in lines) + "\n"
    p = subprocess.run([DRIVER, "walk", tokenizer], input=text.encode(), capture_output=True,
                       timeout=900)
    if p.returncode != 0:
        print("Bail out! " + p.stderr.decode(errors="replace")[-2000:])
        sys.exit(1)
    return [json.loads(line) for line in p.stdout.decode().split("\n") if line]


# ---- random schemas ------------------------------------------------------------------------------

WORDS = ["a", "ab", "abc", "b", "é", "日本", "a\"b", "back\\slash", "line\nend", "😀", "", "zeta", "null", "1"]


class Maker:
    """Random schemas of the supported subset that some value satisfies."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.defs = {}

    def schema(self, depth):
        r = self.random
        kinds = ["string", "integer", "number", "boolean", "null", "enum", "const", "types"]
        if depth > 0:
            kinds += ["object", "object", "array", "anyOf", "anyOf", "allOf", "ref", "any"]
        return getattr(self, "make_" + r.choice(kinds))(depth)

    def make_string(self, depth):
        r, out = self.random, {"type": "string"}
        if r.random() < 0.5:
            out["minLength"] = r.randint(0, 5)
        if r.random() < 0.5:
            out["maxLength"] = out.get("minLength", 0) + r.randint(0, 9)
        return out

    def make_integer(self, depth):
        r, out = self.random, {"type": "integer"}
        low = r.choice([-10**15, -1000, -3, 0, 7, 99, 12345])
        if r.random() < 0.6:
            out["minimum" if r.random() < 0.7 else "exclusiveMinimum"] = low
        if r.random() < 0.6:
            out["maximum" if r.random() < 0.7 else "exclusiveMaximum"] = low + r.choice([2, 5, 100, 10**9])
        return out

    def make_number(self, depth):
        r, out = self.random, {"type": "number"}
        low = r.choice([-2.5, -0.001, 0, 0.25, 3, 1e3])
        if r.random() < 0.5:
            out["minimum" if r.random() < 0.5 else "exclusiveMinimum"] = low
        if r.random() < 0.5:
            out["maximum" if r.random() < 0.5 else "exclusiveMaximum"] = low + r.choice([0.002, 1, 1e6])
        return out

    def make_boolean(self, depth):
        return {"type": "boolean", "description": "yes or no"}

    def make_null(self, depth):
        return {"type": "null"}

    def make_types(self, depth):
        return {"type": self.random.sample(["string", "integer", "number", "boolean", "null"], 3)}

    def make_any(self, depth):
        return self.random.choice([{}, True, {"title": "anything"}])

    def make_enum(self, depth):
        r = self.random
        pool = WORDS + [0, 1, 12, 123, -4, 2.5, None, True, False, [1, "x"], {"k": [None]}]
        return {"enum": r.sample(pool, r.randint(1, 6))}

    def make_const(self, depth):
        return {"const": self.random.choice(WORDS + [5, {"a": "b", "c": []}, [[]]])}

    def make_object(self, depth):
        r = self.random
        names = r.sample(WORDS, r.randint(0, 5))
        out = {"type": "object", "properties": {n: self.schema(depth - 1) for n in names}}
        if r.random() < 0.7:
            out["required"] = [n for n in names if r.random() < 0.6]
            if r.random() < 0.2:
                out["required"].append("undeclared")
        if r.random() < 0.6:
            closed = "undeclared" not in out.get("required", [])
            out["additionalProperties"] = False if closed else self.schema(0)
        return out

    def make_array(self, depth):
        r = self.random
        out = {"type": "array", "items": self.schema(depth - 1)}
        if r.random() < 0.6:
            out["minItems"] = r.randint(0, 3)
        if r.random() < 0.6:
            out["maxItems"] = out.get("minItems", 0) + r.randint(0, 3)
        return out

    def make_anyOf(self, depth):
        return {"anyOf": [self.schema(depth - 1) for _ in range(self.random.randint(1, 4))]}

    def make_allOf(self, depth):
        return {"allOf": [self.make_object(depth - 1), {"properties": {"more": self.schema(0)}}]}

    def make_ref(self, depth):
        name = f"d{len(self.defs)}"
        self.defs[name] = None
        if self.random.random() < 0.3:  # a list of itself
            self.defs[name] = {"type": "object", "required": ["next"], "additionalProperties": False,
                               "properties": {"next": {"anyOf": [{"type": "null"},
                                                                 {"$ref": f"#/$defs/{name}"}]}}}
        else:
            self.defs[name] = self.schema(depth - 1)
        return {"$ref": f"#/$defs/{name}"}


def make_schema(seed):
    maker = Maker(seed)
    schema = maker.schema(3)
    if not isinstance(schema, dict):
        schema = {"type": "object"}
    if maker.defs:
        schema = {"allOf": [schema], "$defs": maker.defs}
    return schema


# ---- JSON ----------------------------------------------------------------------------------------


def pairs(items):
    names = [k for k, _ in items]
    if len(names) != len(set(names)):
        raise ValueError("a key twice")
    return dict(items)


def complaint(text, schema):
    """why a text is no JSON by this schema, or None"""
    def no_constant(word):
        raise ValueError(word)
    try:
        value = json.loads(text, object_pairs_hook=pairs, parse_constant=no_constant)
        text.encode()
        json.dumps(value, ensure_ascii=False).encode()  # no half of a surrogate pair
        jsonschema.Draft202012Validator(schema).validate(value)
    except (ValueError, jsonschema.ValidationError) as e:
        return f"{str(e)[:200]!r} in {text[:200]!r}"
    return None


def check_json(seed):
    schemas = [make_schema(seed * 1000 + i) for i in range(SCHEMAS)]
    lines = [{"schema": s, "strict": True, "thinking": w % 4 == 0, "seed": seed + 31 * i + w}
             for i, s in enumerate(schemas) for w in range(WALKS_EACH)]
    for line in lines:
        if line["thinking"]:
            line["prefix"] = "Let me see {</think>"
    answers = run(DEMO, lines)
    ended = tokens = 0
    refused = set()
    for line, answer in zip(lines, answers):
        if "error" in answer:
            refused.add(answer["error"].split(": ")[-1])
            continue
        tokens += answer["tokens"]
        ended += answer["ended"]
        if answer["ended"]:
            text = answer["text"].split("</think>")[-1]
            why = complaint(text, line["schema"])
            if why is not None:
                check(False, f"valid by {json.dumps(line['schema'])}: {why}")
    allowed = {"no value can satisfy this schema",
               "is not supported beside arrays or objects in an enum"}
    check(refused <= allowed, f"refused only what cannot be: {refused - allowed or 'yes'}")
    check(ended >= 2000, f"{ended} JSON answers of {len(lines)} came to an end, {tokens} tokens")


def check_control():
    """the validator of this file finds what is wrong"""
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    check(complaint('{"a": 1}', schema) is None, "control: valid")
    for text in ['{"a": 1.5}', '{}', '{"a": 1, "a": 2}', '{"a": 1', '{"a": NaN}', '{"a": 1, "b": "\\ud800"}']:
        check(complaint(text, schema) is not None, f"control: finds {text}")


# ---- tool calls ----------------------------------------------------------------------------------

TOOLS = [
    {"name": "write_file", "strict": True, "parameters": {
        "type": "object", "additionalProperties": False, "required": ["path", "content"],
        "properties": {"path": {"type": "string", "minLength": 1, "maxLength": 12},
                       "content": {"type": "string"},
                       "mode": {"enum": ["w", "a", "w<", "</"]},
                       "lines": {"type": "array", "items": {"type": "integer"}, "maxItems": 3}}}},
    {"name": "write", "parameters": {
        "type": "object", "required": ["value"], "properties": {
            "value": {"anyOf": [{"type": "string", "maxLength": 6}, {"type": "number"}, {"type": "null"},
                                {"type": "object", "properties": {"n": {"type": "integer"}},
                                 "required": ["n"]}]},
            "limit": {"type": "integer", "minimum": 1, "maximum": 50}}}},
    {"name": "free", "parameters": {"type": "object", "additionalProperties": {"type": "boolean"}}},
    {"name": "odd", "parameters": {  # what is not understood is ignored
        "type": "object", "properties": {"x": {"oneOf": [{"type": "integer"}, {"type": "string"}],
                                               "format": "date"},
                                         "q\"uote": {"type": "integer"}},
        "required": ["x", "q\"uote"], "minProperties": 2}},
    {"name": "noop"},
]
OFFERED = [{"type": "function", "function": tool} for tool in TOOLS]
MARK = "｜DSML｜"


def read_block(text):
    """calls of a block as [(name, {key: (is string, text)})]; raises ValueError"""
    def need(piece):
        nonlocal text
        if not text.startswith(piece):
            raise ValueError(f"expected {piece!r} at {text[:60]!r}")
        text = text[len(piece):]
    calls = []
    need(f"\n\n<{MARK}tool_calls>\n")
    while True:
        head = re.match(f'<{MARK}invoke name="([^"]*)">\n', text)
        if head is None:
            raise ValueError(f"expected a call at {text[:60]!r}")
        text = text[head.end():]
        parameters = {}
        while text.startswith(f"<{MARK}parameter"):
            m = re.match(f'<{MARK}parameter name="([^"]*)" string="(true|false)">(.*?)</{MARK}parameter>\n',
                         text, re.S)
            if m is None or m.group(1) in parameters:
                raise ValueError(f"bad parameter at {text[:60]!r}")
            parameters[m.group(1)] = (m.group(2) == "true", m.group(3))
            text = text[m.end():]
        if not parameters and text.startswith("\n"):
            text = text[1:]
        need(f"</{MARK}invoke>\n")
        calls.append((head.group(1), parameters))
        if text.startswith("</"):
            break
    need(f"</{MARK}tool_calls>")
    if text:
        raise ValueError("text behind the block")
    return calls


def arguments_of(parameters):
    out = {}
    for key, (is_string, text) in parameters.items():
        out[key] = text if is_string else json.loads(text, object_pairs_hook=pairs)
        if not is_string and isinstance(out[key], str):
            raise ValueError("a string as JSON")
    return out


# What is left of the schema of a tool that is not strict.
HELD = {tool["name"]: tool.get("parameters", {"additionalProperties": False}) for tool in TOOLS}
HELD["odd"] = {"properties": {"x": {"type": ["integer", "string"]}}, "required": ["x"],
               "additionalProperties": False}
HELD["write"] = dict(HELD["write"], additionalProperties=False)


def call_complaint(text, line):
    try:
        calls = read_block(text)
        if len(calls) > line["calls_max"]:
            raise ValueError("number of calls")
        for name, parameters in calls:
            if name not in HELD or name != line.get("tool_name", name):
                raise ValueError(f"not offered: {name}")
            jsonschema.Draft202012Validator(HELD[name]).validate(arguments_of(parameters))
    except (ValueError, jsonschema.ValidationError) as e:
        return f"{str(e)[:200]!r} in {text[-300:]!r}"
    return None


def check_calls(tokenizer, walks, seed, label):
    lines = []
    for i in range(walks):
        line = {"tools": OFFERED, "seed": seed + i, "calls_max": [1, 2, 3][i % 3]}
        line["calls"] = "required" if i % 2 == 0 else "auto"
        if line["calls"] == "auto":
            line["prefix"] = f"I call.\n\n<{MARK}"
        elif i % 4 == 0:
            line["thinking"], line["prefix"] = True, "Hm <.</think>"
        if i % 5 == 0:
            line["tool_name"] = TOOLS[i // 5 % len(TOOLS)]["name"]
        lines.append(line)
    answers = run(tokenizer, lines)
    ended = calls = 0
    for line, answer in zip(lines, answers):
        if "error" in answer:
            check(False, f"{label}: {answer['error']}")
        elif answer["ended"]:
            ended += 1
            text = answer["text"].replace("I call.", "", 1).split("</think>")[-1]
            calls += text.count(f"<{MARK}invoke ")
            why = call_complaint(text, line)
            if why is not None:
                check(False, f"{label}: {why}")
    check(ended > walks // 2, f"{label}: {ended} of {walks} blocks came to an end, {calls} calls")


def check_both(seed):
    """a JSON format and tools: one or the other"""
    schema = {"type": "object", "properties": {"a": {"type": "null"}}, "additionalProperties": False}
    lines = [{"tools": OFFERED, "calls": "auto", "calls_max": 1, "schema": schema, "seed": seed + i}
             for i in range(60)]
    for line in lines[30:]:
        line["prefix"] = "\n\n<"
    kinds = {"json": 0, "calls": 0}
    for line, answer in zip(lines, run(DEMO, lines)):
        if answer["ended"]:
            block = MARK in answer["text"]
            why = call_complaint(answer["text"], line) if block else complaint(answer["text"], schema)
            if why is not None:
                check(False, f"format and tools: {why}")
            kinds["calls" if block else "json"] += 1
    check(min(kinds.values()) > 0, f"format and tools: {kinds}")


def main():
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    print(f"# seed {seed}")
    check_control()
    check_json(seed)
    check_calls(DEMO, CALL_WALKS, seed, "calls")
    check_both(seed)
    check_calls(V4, V4_WALKS, seed, "calls with the vocabulary of V4")
    print(f"1..{count}")
    sys.exit(failed > 0)


main()
