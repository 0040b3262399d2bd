/*
 * The wire constants of the chat encoding (model.md 4 and 5): the control tokens by their text and
 * the fixed prompt texts, byte for byte as DeepSeek-V4 was trained on them.  No logic.
 * In the texts, control tokens stand as themselves; the renderer places them by id.
 */
#ifndef V4BOX_CONFIG_PROMPT_H
#define V4BOX_CONFIG_PROMPT_H

/* CONTROL(name, member of struct chat_tokens, text).  The bars are U+FF5C, the blanks U+2581. */
/* clang-format off */
#define CONTROL_TOKENS(CONTROL)                                          \
    CONTROL(BOS,             bos,             "<｜begin▁of▁sentence｜>") \
    CONTROL(EOS,             eos,             "<｜end▁of▁sentence｜>")   \
    CONTROL(USER,            user,            "<｜User｜>")              \
    CONTROL(ASSISTANT,       assistant,       "<｜Assistant｜>")         \
    CONTROL(THINK_OPEN,      think_open,      "<think>")                 \
    CONTROL(THINK_CLOSE,     think_close,     "</think>")                \
    CONTROL(DSML,            dsml,            "｜DSML｜")                \
    CONTROL(LATEST_REMINDER, latest_reminder, "<｜latest_reminder｜>")   \
    CONTROL(TASK_ACTION,     task[0],         "<｜action｜>")            \
    CONTROL(TASK_QUERY,      task[1],         "<｜query｜>")             \
    CONTROL(TASK_AUTHORITY,  task[2],         "<｜authority｜>")         \
    CONTROL(TASK_DOMAIN,     task[3],         "<｜domain｜>")            \
    CONTROL(TASK_TITLE,      task[4],         "<｜title｜>")             \
    CONTROL(TASK_READ_URL,   task[5],         "<｜read_url｜>")
/* clang-format on */

/* Values of a message's `task`, in the order of struct chat_tokens.task. */
#define PROMPT_TASKS                                                                               \
    {                                                                                              \
        "action", "query", "authority", "domain", "title", "read_url"                              \
    }

/* Between the parts of one message: text blocks, tool results, tools block, tool calls. */
#define PROMPT_GAP "\n\n"

/* clang-format off */
/* model.md 5.4, P1: thinking with effort max, preview checkpoint. */
#define PROMPT_EFFORT_MAX                                                                          \
    "Reasoning Effort: Absolute maximum with no shortcuts permitted.\n"                            \
    "You MUST be very thorough in your thinking and comprehensively decompose the problem to "     \
    "resolve the root cause, rigorously stress-testing your logic against all potential paths, "   \
    "edge cases, and adversarial scenarios.\n"                                                     \
    "Explicitly write out your entire deliberation process, documenting every intermediate step, " \
    "considered alternative, and rejected hypothesis to ensure absolutely no assumption is left "  \
    "unchecked.\n\n"

/* model.md 5.3: before and behind the schemas, which are one JSON a line. */
#define PROMPT_TOOLS_HEAD                                                                          \
    "## Tools\n\n"                                                                                 \
    "You have access to a set of tools to help answer the user's question. You can invoke tools "  \
    "by writing a \"<｜DSML｜tool_calls>\" block like the following:\n\n"                          \
    "<｜DSML｜tool_calls>\n"                                                                       \
    "<｜DSML｜invoke name=\"$TOOL_NAME\">\n"                                                       \
    "<｜DSML｜parameter name=\"$PARAMETER_NAME\" string=\"true|false\">$PARAMETER_VALUE"           \
    "</｜DSML｜parameter>\n"                                                                       \
    "...\n"                                                                                        \
    "</｜DSML｜invoke>\n"                                                                          \
    "<｜DSML｜invoke name=\"$TOOL_NAME2\">\n"                                                      \
    "...\n"                                                                                        \
    "</｜DSML｜invoke>\n"                                                                          \
    "</｜DSML｜tool_calls>\n\n"                                                                    \
    "String parameters should be specified as is and set `string=\"true\"`. For all other types "  \
    "(numbers, booleans, arrays, objects), pass the value in JSON format and set "                 \
    "`string=\"false\"`.\n\n"                                                                      \
    "If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning " \
    "inside <think>...</think> BEFORE any tool calls or final response.\n\n"                       \
    "Otherwise, output directly after </think> with tool calls or final response.\n\n"             \
    "### Available Tool Schemas\n\n"
#define PROMPT_TOOLS_TAIL                                                                          \
    "\n\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke "    \
    "tool calls.\n"

/* clang-format on */

/* model.md 5.2 */
#define PROMPT_RESPONSE_FORMAT                                                                     \
    "## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n"
#define PROMPT_RESULT_OPEN       "<tool_result>"
#define PROMPT_RESULT_CLOSE      "</tool_result>"
#define PROMPT_UNSUPPORTED_OPEN  "[Unsupported "
#define PROMPT_UNSUPPORTED_CLOSE "]"
#define PROMPT_CALLS_OPEN        "<｜DSML｜tool_calls>\n"
#define PROMPT_CALLS_CLOSE       "\n</｜DSML｜tool_calls>"
#define PROMPT_INVOKE_OPEN       "<｜DSML｜invoke name=\""
#define PROMPT_INVOKE_NAMED      "\">\n"
#define PROMPT_INVOKE_CLOSE      "\n</｜DSML｜invoke>"
#define PROMPT_PARAMETER_OPEN    "<｜DSML｜parameter name=\""
#define PROMPT_PARAMETER_STRING  "\" string=\"true\">"
#define PROMPT_PARAMETER_JSON    "\" string=\"false\">"
#define PROMPT_PARAMETER_CLOSE   "</｜DSML｜parameter>"
/* The one parameter that carries arguments which are no JSON object. */
#define PROMPT_PARAMETER_RAW "arguments"

#endif
