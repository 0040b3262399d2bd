"""Calls that the model writes freely over the HTTP API, parsed by the engine: are they well-formed, are they right?

    python3 tools/demo/calls.py --engine build/engine --model DIR --out FILE [--calls 1000] [--temperature 0] [--threads 2]

Owns the requests (sessions of data/agent.py with held-out words, cut off before their first call) and the judgement.
A call is well-formed if the engine gives it as one, its tool was offered, its arguments are JSON with every required
parameter, no unknown one, each of its type. FILE gets the counts and every call that is not as asked. Needs no PyTorch;
profile `official`, thinking off. Exit code 1 below WANTED.
"""
import argparse
import collections
import concurrent.futures
import copy
import json
import random
import sys
import tempfile
import urllib.error

from check_engine import Server, interval
from data.agent import Session

WANTED = 0.995  # share of well-formed calls
SHARING = 25  # requests behind one list of tools and system text
ROOM = 6000  # characters of the turns behind them
ANSWER_MOST = 2500  # tokens
AT_ONCE = 8  # requests
KINDS = {
    "program": 17,
    "read": 6,
    "run": 4,
    "several": 2,
    "earlier": 2,
    "read_two": 2,
    "shown": 7,
    "pasted": 6,
    "copied": 5,
    "look_up": 4,
}
TYPES = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict}


def messages(chat):
    """The messages of a session as the API takes them."""
    out, open_ = [], []
    for number, m in enumerate(chat):
        if m["role"] == "tool":
            out.append({"role": "tool", "tool_call_id": open_.pop(0), "content": m["content"]})
        elif m.get("calls"):
            open_ = [f"call_{number}_{i}" for i in range(len(m["calls"]))]
            calls = [
                {"id": i, "type": "function", "function": {"name": name, "arguments": json.dumps(given, ensure_ascii=False)}}
                for i, (name, given) in zip(open_, m["calls"])
            ]
            out.append({"role": "assistant", "content": m["content"] or "", "tool_calls": calls})
        elif m["role"] != "latest_reminder":
            out.append({"role": m["role"], "content": m["content"]})
    return out


def requests(count):
    """(kind of turn, tools, messages, calls of the text) of so many sessions."""
    group = 0
    while count > 0:
        group += 1
        r, left = random.Random(f"calls {group}"), min(SHARING, count)
        base = Session(r, 100000, True, False, r.choice((0, 2, 4, 8)), r.choice((0, 0, 3)))
        tries = 0
        while left and {"write", "read"} <= base.roles.keys():
            tries += 1
            s = copy.deepcopy(base)
            s.r, s.chars = random.Random(f"call {group} {tries}"), base.used + ROOM
            (kind,) = s.r.choices(list(KINDS), list(KINDS.values()))
            getattr(s, kind)()
            at = next((i for i, m in enumerate(s.messages) if m.get("calls")), None)
            if at is not None and sum(len(m["content"]) for m in s.messages[len(base.messages) : at]) < ROOM:
                left, count = left - 1, count - 1
                yield kind, s.tools, messages(s.messages[:at]), s.messages[at]["calls"]


def fault(calls, tools):
    """What is wrong with the form of an answer's calls; empty: nothing."""
    if not calls:
        return "no call"
    for c in calls:
        tool = next((t for t in tools if t["name"] == c["function"]["name"]), None)
        if not tool:
            return "unknown tool"
        try:
            given = json.loads(c["function"]["arguments"])
        except ValueError:
            return "arguments are no JSON"
        shapes = tool["parameters"]["properties"]
        if not isinstance(given, dict) or not given.keys() <= shapes.keys():
            return "unknown parameter"
        if not set(tool["parameters"]["required"]) <= given.keys():
            return "parameter missing"
        if any(not isinstance(x, TYPES[shapes[k]["type"]]) for k, x in given.items()):
            return "type of an argument"
        if any("DSML" in str(x) for x in given.values()):
            return "mark inside an argument"
    return ""


def ask(server, name, temperature, number, request):
    """(fault, whether the calls are those of the text, what came) of one request."""
    _, tools, chat, wanted = request
    body = {
        "model": name,
        "messages": chat,
        "tools": [{"type": "function", "function": t} for t in tools],
        "temperature": temperature,
        "seed": number,
        "max_tokens": ANSWER_MOST,
        "thinking": {"type": "disabled"},
    }
    try:
        choice = server.call("/v1/chat/completions", body)["choices"][0]
    except urllib.error.HTTPError as e:
        return f"status {e.code}", False, e.read().decode(errors="replace")
    calls = choice["message"].get("tool_calls") or []
    wrong = fault(calls, tools)
    got = [] if wrong else [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in calls]
    return wrong, got == [tuple(c) for c in wanted], choice


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--engine", required=True)
    p.add_argument("--model", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--calls", type=int, default=1000)
    p.add_argument("--temperature", type=float, default=0)
    p.add_argument("--threads", type=int, default=2)
    a = p.parse_args()
    work, faults, kinds, notes = list(requests(a.calls)), collections.Counter(), {}, []
    with tempfile.TemporaryDirectory() as folder, Server(a.engine, a.model, folder, a.threads) as server:
        name = server.call("/v1/models")["data"][0]["id"]
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            came = pool.map(lambda x: ask(server, name, a.temperature, *x), enumerate(work))
            for (kind, _, chat, wanted), (wrong, right, got) in zip(work, came):
                count = kinds.setdefault(kind, collections.Counter())
                count.update(asked=1, formed=int(not wrong), right=int(right))
                faults.update([wrong] if wrong else [])
                if not right:
                    notes.append({"kind": kind, "fault": wrong, "last": chat[-1]["content"], "wanted": wanted, "got": got})
    total = sum(kinds.values(), collections.Counter())
    with open(a.out, "w") as f:
        json.dump({"total": total, "kinds": kinds, "faults": faults, "notes": notes}, f, ensure_ascii=False, indent=1)
    low, high = interval(total["formed"], total["asked"])
    for kind, count in kinds.items():
        print(f"{kind:10s} {count['asked']:4d} asked, {count['formed']} well-formed, {count['right']} right")
    print(
        f"{total['asked']} calls at temperature {a.temperature:g}: {total['formed']} well-formed "
        f"({max(0, low):.3f} to {min(1, high):.3f}), {total['right']} right; {dict(faults)}"
    )
    sys.exit(total["formed"] < WANTED * total["asked"])


if __name__ == "__main__":
    main()
