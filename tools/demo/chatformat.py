"""The chat encoding of DeepSeek-V4 as far as the training text needs it.

Owns the special strings and the rendering of a message list to prompt text. Knows nothing of tokens.
The wire texts are constants of the model family, the same that the engine renders (config/prompt.h).
"""
import json

BOS, EOS, PAD = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"
USER, ASSISTANT, REMINDER = "<｜User｜>", "<｜Assistant｜>", "<｜latest_reminder｜>"
THINK, END_THINK, DSML = "<think>", "</think>", "｜DSML｜"

TOOLS = """## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a "<｜DSML｜tool_calls>" block like the following:

<｜DSML｜tool_calls>
<｜DSML｜invoke name="$TOOL_NAME">
<｜DSML｜parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</｜DSML｜parameter>
...
</｜DSML｜invoke>
<｜DSML｜invoke name="$TOOL_NAME2">
...
</｜DSML｜invoke>
</｜DSML｜tool_calls>

String parameters should be specified as is and set `string="true"`. For all other types (numbers, booleans, arrays, objects), pass the value in JSON format and set `string="false"`.

If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside <think>...</think> BEFORE any tool calls or final response.

Otherwise, output directly after </think> with tool calls or final response.

### Available Tool Schemas

{SCHEMAS}

You MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.
"""
EFFORT_MAX = """Reasoning Effort: Absolute maximum with no shortcuts permitted.
You MUST be very thorough in your thinking and comprehensively decompose the problem to resolve the root cause, rigorously stress-testing your logic against all potential paths, edge cases, and adversarial scenarios.
Explicitly write out your entire deliberation process, documenting every intermediate step, considered alternative, and rejected hypothesis to ensure absolutely no assumption is left unchecked.

"""


def dumps(value):
    """JSON as the official encoder writes it."""
    return json.dumps(value, ensure_ascii=False)


def calls_text(calls):
    """The block of tool calls: a list of (name, arguments)."""
    blocks = []
    for name, arguments in calls:
        lines = [f'<{DSML}invoke name="{name}">']
        for key, value in arguments.items():
            text = isinstance(value, str)
            lines.append(
                f'<{DSML}parameter name="{key}" string="{"true" if text else "false"}">'
                f"{value if text else dumps(value)}</{DSML}parameter>"
            )
        blocks.append("\n".join(lines) + f"\n</{DSML}invoke>")
    return f"\n\n<{DSML}tool_calls>\n" + "\n".join(blocks) + f"\n</{DSML}tool_calls>"


def merge(messages, tools):
    """User texts and tool results that follow each other become one user message with blocks."""
    messages = [dict(m) for m in messages]
    if tools:
        if not messages or messages[0]["role"] != "system":
            messages.insert(0, {"role": "system", "content": ""})
        messages[0]["tools"] = tools
    merged = []
    for m in messages:
        if m["role"] not in ("tool", "user"):
            merged.append(m)
            continue
        block = f"<tool_result>{m['content']}</tool_result>" if m["role"] == "tool" else m["content"]
        if merged and merged[-1]["role"] == "user":
            merged[-1]["blocks"].append(block)
        else:
            merged.append({"role": "user", "blocks": [block]})
    return merged


def encode(messages, thinking=False, tools=None, effort=None):
    """Prompt text of a conversation.

    messages: dicts with role and content; an assistant message may have `reasoning` and `calls`
    [(name, arguments)], a tool message is one result. With tools the reasoning of all turns is kept,
    without them only that after the last user message.
    """
    merged = merge(messages, tools)
    last_user = max((i for i, m in enumerate(merged) if m["role"] == "user"), default=-1)

    def thinks(i):
        return thinking and (bool(tools) or i >= last_user)

    out = [BOS]
    if thinking and effort == "max":
        out.append(EFFORT_MAX)
    for i, m in enumerate(merged):
        if m["role"] == "system":
            out.append(m["content"])
            if m.get("tools"):
                out.append("\n\n" + TOOLS.replace("{SCHEMAS}", "\n".join(map(dumps, m["tools"]))))
        elif m["role"] == "latest_reminder":
            out.append(REMINDER + m["content"])
        elif m["role"] == "user":
            out.append(USER + "\n\n".join(m["blocks"]))
            following = merged[i + 1]["role"] if i + 1 < len(merged) else None
            if following in (None, "assistant", "latest_reminder"):
                out.append(ASSISTANT + (THINK if thinks(i) else END_THINK))
        else:
            if thinks(i):
                out.append(m.get("reasoning", "") + END_THINK)
            out.append(m["content"] + (calls_text(m["calls"]) if m.get("calls") else "") + EOS)
    return "".join(out)
