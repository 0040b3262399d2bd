#!/usr/bin/python3
"""The suite `schema`: JSON Schemas compiled into token masks, against Debian's json-schema-test-suite.

Every schema of the suite is either refused with one of its own keywords named, or held exactly: each
instance is written in several ways and given to the automaton byte by byte, which must accept it
when, and only when, the suite calls it valid.  Written in TAP.
"""
import json
import os
import subprocess
import sys

DRIVER = "build/host/mask-driver"
SUITE = "/usr/share/json-schema-test-suite/tests"
DRAFTS = ["draft6", "draft7"]  # draft 4 and older differ in boolean exclusiveMinimum

count = failed = 0


def check(good, name):
    global count, failed
    count += 1
    failed += not good
    print(f"{'ok' if good else 'not ok'} {count} - {name}")


def table():
    """class of each keyword, as config/schema.def has it"""
    rows = {}
    with open("config/schema.def") as f:
        for line in f:
            if line.startswith("SCHEMA_KEYWORD("):
                name, kind = line[line.index("(") + 1:line.index(")")].split(",")
                rows[name.strip().strip('"')] = kind.strip()
    return rows


def plain(value):
    """the same value with whole numbers written as integers: masks write no others"""
    if isinstance(value, float) and value == int(value):
        return int(value)
    if isinstance(value, list):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return value


def spellings(value):
    value = plain(value)
    yield json.dumps(value)
    yield json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    yield "\n" + json.dumps(value, ensure_ascii=False, indent=4) + " "
    # Every character of every string as an escape.
    units = [f"\\u{u:04x}" for u in range(128)]
    text = json.dumps(value)
    if isinstance(value, dict) and value and all(k.isascii() and k.isprintable() for k in value):
        escaped = ", ".join('"' + "".join(units[ord(c)] for c in k) + '" : ' + json.dumps(v)
                            for k, v in value.items())
        text = "{" + escaped + "}"
    yield text


def run(lines):
    p = subprocess.run([DRIVER, "check"], input="\n".join(json.dumps(line) for line in lines) + "\n",
                       capture_output=True, text=True, timeout=300)
    if p.returncode != 0:
        print("Bail out! " + p.stderr)
        sys.exit(1)
    return [json.loads(line) for line in p.stdout.splitlines()]


def keywords(schema, rows, found):
    """all words of a schema that stand where keywords may stand"""
    if isinstance(schema, dict):
        for key, value in schema.items():
            found.add(key)
            if key in ("properties", "definitions", "$defs", "patternProperties", "dependencies") \
                    and isinstance(value, dict):
                for inner in value.values():
                    keywords(inner, rows, found)
            elif key not in ("enum", "const", "default", "examples"):
                keywords(value, rows, found)
    elif isinstance(schema, list):
        for value in schema:
            keywords(value, rows, found)


# Since draft 2019-09 the keywords beside a $ref hold too; here they always do.
BESIDE_REF = "ref overrides any sibling keywords"
# Schemas without any refused keyword that are refused all the same, and what the error says.
SPECIAL = ["a list of schemas is not supported", "only # and #/.. are supported", "leads nowhere",
           "leads back to itself", "no value can satisfy this schema",
           "is not supported beside arrays or objects in an enum", "has a keyword that is not known"]


def suite(rows):
    for draft in DRAFTS:
        folder = os.path.join(SUITE, draft)
        for file in sorted(os.listdir(folder)):
            if not file.endswith(".json"):
                continue
            with open(os.path.join(folder, file)) as f:
                for case in json.load(f):
                    yield f"{draft}/{file[:-5]}: {case['description']}", case


def check_case(rows, name, case, answer):
    found = set()
    keywords(case["schema"], rows, found)
    refused = {k for k in found if rows.get(k) in ("REFUSED", "TEXT", "ROOT")}
    if "error" in answer:
        error = answer["error"]
        named = error.split(":")[0].split(".")[-1]
        special = any(error.endswith(text) for text in SPECIAL)
        return (named in refused or special), f"refused: {error}"
    wrong, k = [], 0
    for test in case["tests"]:
        for text in spellings(test["data"]):
            stricter = BESIDE_REF in name and test["valid"]
            if answer["accepted"][k] != test["valid"] and not stricter:
                wrong.append(f"{'accepts' if answer['accepted'][k] else 'refuses'} {text!r}")
            k += 1
    return not wrong, f"{k} texts" + "".join("; " + w for w in wrong[:3])


def main():
    rows = table()
    cases = list(suite(rows))
    lines = [{"schema": case["schema"], "mode": "strict",
              "texts": [text for test in case["tests"] for text in spellings(test["data"])]}
             for _, case in cases]
    answers = run(lines)
    held = texts = 0
    for (name, case), answer in zip(cases, answers):
        good, what = check_case(rows, name, case, answer)
        check(good, f"{name}: {what}".replace("#", "\\#"))
        if good and "accepted" in answer:
            held += 1
            texts += len(answer["accepted"])
    check(held > 100, f"{held} of {len(cases)} schemas are held, in {texts} texts")
    print(f"1..{count}")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
