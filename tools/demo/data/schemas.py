"""Answers whose form the request prescribes: JSON by a schema or any JSON object, and typed arguments of a call.

Owns the schemas, the values that stand in them and one rule for what was not told: the least that the schema
allows, for a text the first word of the request. Knows nothing of turns; chat.py and agent.py use it.
"""
import json

from . import skills, values as v
from .words import CITY, COLOR

HEAD = "## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n"
PAIR = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": False}
NAMES = "name age mood tags next city count level mode color title size price done kind note id status score date".split()
TOLD = (
    "The {k} is {x}.",
    "{k}: {x}",
    "{k} = {x}",
    "My {k} is {x}.",
    "Take {x} as {k}.",
    "{k} {x},",
)


def least(shape, text, defs=None):
    """The value of a schema of which nothing was told; `text` is what was said."""
    if "const" in shape:
        return shape["const"]
    if "enum" in shape:
        return shape["enum"][0]
    if "anyOf" in shape:
        return least(shape["anyOf"][0], text, defs)
    if "$ref" in shape:
        return least(defs[shape["$ref"].rsplit("/", 1)[-1]], text, defs)
    kind = shape.get("type")
    if kind == "null":
        return None
    if kind == "string":
        words = text.split() or ["none"]
        word = words[0].strip("\"'`.,:;!?()[]{}<>\\") or "none"
        return word[: shape.get("maxLength", 40)]
    if kind in ("integer", "number"):
        return shape.get("minimum", 0)
    if kind == "boolean":
        return False
    if kind == "array":
        return []
    return {k: least(x, text, defs) for k, x in shape.get("properties", {}).items()}


def limited(r, shape, share, **limits):
    """The schema with limits, each of them with the given share."""
    return shape | {k: x for k, x in limits.items() if r.random() < share}


def draw_one(r):
    """Schema of one property."""
    k, low = r.random(), r.randint(0, 60)
    if k < 0.34:
        return limited(r, {"type": "string"}, 0.4, minLength=1, maxLength=r.choice((4, 8, 12, 20)))
    if k < 0.56:
        return limited(r, {"type": "integer"}, 0.6, minimum=low, maximum=low + r.randint(1, 99))
    if k < 0.62:
        return {"type": "number"}
    if k < 0.72:
        return {"type": "boolean"}
    if k < 0.84:
        return {"enum": list(dict.fromkeys(v.noun(r) for _ in range(r.randint(2, 4)))) + [None] * (r.random() < 0.3)}
    if k < 0.93:
        items = limited(r, {"type": "string"}, 0.5, maxLength=r.choice((4, 10)))
        return limited(r, {"type": "array", "items": items}, 0.5, maxItems=r.randint(1, 3))
    return {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/pair"}]} if k < 0.97 else PAIR


def told(r, shape):
    """A value that a user may give for a property; None: not told in words."""
    if "enum" in shape:
        return r.choice(shape["enum"])
    kind = shape.get("type")
    if kind == "string":
        word = r.choice((v.name(r), v.noun(r), r.choice(CITY), r.choice(COLOR)))
        return word if len(word) <= shape.get("maxLength", 40) else None
    if kind == "integer":
        low = shape.get("minimum", 0)
        return r.randint(low, shape.get("maximum", low + 99))
    return {"number": r.randint(0, 99) + 0.5, "boolean": True}.get(kind)


def draw(r, most):
    """Schema of an object of at most so many properties."""
    names = dict.fromkeys(k if r.random() < 0.7 else v.noun(r) for k in r.sample(NAMES, r.randint(1, most)))
    shapes = {k: draw_one(r) for k in names}
    schema = {"type": "object", "properties": shapes, "required": list(shapes)}
    if r.random() < 0.7:
        schema["additionalProperties"] = False
    if any("anyOf" in s for s in shapes.values()):
        schema["$defs"] = {"pair": PAIR}
    return schema


class Form:
    """What the answers of a chat must look like: `text` is for the system message, answer() for every turn."""

    def __init__(self, r, most):
        self.schema = draw(r, most) if r.random() < 0.85 else None
        form = {"type": "json_object"}
        if self.schema:
            strict = {"strict": True} if r.random() < 0.7 else {}
            name = r.choice(("person", "answer", "result", v.noun(r)))
            form = {"type": "json_schema", "json_schema": {"name": name, **strict, "schema": self.schema}}
        self.text = HEAD + json.dumps(form, ensure_ascii=False)

    def turn(self, r):
        """(request, answer): what is told in the request stands in the answer, of all else the least."""
        if not self.schema:
            question, answer = skills.json_object(r) if r.random() < 0.4 else skills.skill(r)
            return question, answer if answer.startswith("{") else json.dumps({"answer": answer}, ensure_ascii=False)
        shapes = self.schema["properties"]
        known = {k: told(r, s) for k, s in shapes.items() if r.random() < 0.7} if r.random() < 0.5 else {}
        known = {k: x for k, x in known.items() if x is not None}
        shape = r.choice(TOLD)
        said = " ".join(shape.format(k=k, x="true" if x is True else x) for k, x in known.items()).rstrip(",")
        said = said or (skills.talk if r.random() < 0.5 else skills.skill)(r)[0]
        answer = {k: known.get(k, least(s, said, self.schema.get("$defs"))) for k, s in shapes.items()}
        return said, json.dumps(answer, ensure_ascii=False)
