#!/usr/bin/python3
"""Checks that kernels and the precision table name each other:  precision_rows.py [control]

A kernel variant without a row, or a row that no kernel answers for, is printed, one a line:

rows        what the table says is witnessed by an operation has such operations in kernels/backend.h, and
            the CPU backend reports the row (a row whose other values need a GPU is left to that backend)
values      the CPU backend reports every value of such a row that needs nothing else
variants    every rounding and every arithmetic that kernels/backend.h has is a value of some row: the
            table of witnesses (kernels/cpu/cpu_witness.c) or an assertion in backend.h says which

control     takes each row and each variant away in turn and says which of them nobody missed
"""
import glob
import re
import sys

MULTI_GPU = "gather"  # one processor has no such operation


def read(pattern):
    return "".join(open(path).read() for path in sorted(glob.glob(pattern)))


def enum_members(text, name):
    body = re.search(r"enum %s \{(.*?)\};" % name, text, re.S).group(1)
    return [m for m in re.findall(r"^\s+(\w+)", re.sub(r"/\*.*?\*/", "", body, flags=re.S), re.M) if m != "ROUNDS"]


def table_of(text):
    """[(row id, by, operations, [(value id, needs)])]"""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    rows = []
    for kind, row, rest in re.findall(r"^(ROW|VALUE)\((\w+),(.*?)\)\s*(?=^\w|\Z)", text, re.S | re.M):
        if kind == "ROW":
            by, operations = re.search(r"(OPERATION|MODULE),\s*\"([^\"]*)\"", rest).groups()
            rows.append((row, by, operations.split(", "), []))
        else:
            value, needs = re.match(r"\s*(\w+),\s*\"[^\"]*\",\s*(\w+)", rest).groups()
            rows[-1][3].append((f"{row}_{value}", needs))
    return rows


def findings(table, backend, cpu):
    out = []
    witnessed = set()
    for row, by, operations, values in table_of(table):
        if by != "OPERATION" or operations == [MULTI_GPU]:
            continue
        out += [f"{row}: kernels/backend.h has no operation {o}" for o in operations if f"(*{o})(" not in backend]
        if not re.search(r"\bROW_%s\b" % row, cpu):
            out.append(f"{row}: the CPU backend never reports it")
        for value, needs in values:
            witnessed.add(value)
            if needs == "ANY" and not re.search(r"\b%s\b" % value, cpu + backend):
                out.append(f"{value}: the CPU backend never reports it")
    for variant in enum_members(backend, "round"):
        named = re.findall(r"\[%s\] = 1 \+ (\w+)" % variant, cpu) + re.findall(r"%s\)\s+cpu_saw\(s, \w+, (\w+)\)" % variant, cpu)
        if not any(n in witnessed for n in named):
            out.append(f"{variant}: no value of a row is this rounding")
    for variant in enum_members(backend, "attn_math"):
        if not any(f"(int){variant} == (int)ATTN_{leg}_{variant[5:]}" in " ".join(backend.split()) for leg in ("PREFILL", "DECODE")):
            out.append(f"{variant}: no value of attn.prefill or attn.decode is this arithmetic")
    return out


def control(table, backend, cpu):
    missed = []
    for row, by, operations, _ in table_of(table):
        without = re.sub(r"^ROW\(%s,.*?^END\(%s\)\n" % (row, row), "", table, flags=re.S | re.M)
        other = re.sub(r"\bROW_%s\b" % row, "GONE", cpu)
        if by == "OPERATION" and operations != [MULTI_GPU] and not findings(table, backend, other):
            missed.append(f"{row}: not reported")
        if without == table:
            missed.append(f"{row}: not found in the table")
    for variant in ("    ROUND_FP2_8,\n", "    ROUND_MX,  /* anything */\n"):
        if not findings(table, backend.replace("    ROUNDS\n", variant + "    ROUNDS\n"), cpu):
            missed.append(f"{variant.split(',')[0].strip()}: a rounding without a row")
    more = backend.replace("    ATTN_BF16,", "    ATTN_FP8,\n    ATTN_BF16,")
    if more == backend or not findings(table, more, cpu):
        missed.append("ATTN_FP8: an arithmetic without a row")
    return missed


def main():
    texts = read("config/precision.def"), read("kernels/backend.h"), read("kernels/cpu/*.[ch]")
    for line in (control if sys.argv[1:] == ["control"] else findings)(*texts):
        print(line)


main()
