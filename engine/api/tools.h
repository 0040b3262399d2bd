/*
 * The tools that a request offers and its wish which of them to call: checked.  Knows the form of
 * OpenAI's `tools` and `tool_choice`, and nothing of what a schema means.
 */
#ifndef V4BOX_ENGINE_API_TOOLS_H
#define V4BOX_ENGINE_API_TOOLS_H

#include "engine/api/errors.h"
#include "engine/base/json.h"

#include <stdbool.h>

/* Whether the answer may or must call tools. */
enum tool_choice {
    CHOICE_AUTO, /* as the model likes */
    CHOICE_NONE, /* no tool is offered to the model at all */
    CHOICE_REQUIRED,
    CHOICE_NAMED, /* this tool */
};

/**
 * Checks `tools`: at most TOOLS_MAX functions and TOOLS_BYTES_MAX bytes, names of letters, digits,
 * "_" and "-", none twice.  The schemas stay as they came, order of keys and text of numbers
 * included.
 * @err false, with *err naming tools[i]...
 */
bool tools_check(struct json_object *tools, struct api_error *err);

/**
 * Reads `tool_choice`; *name is the tool of CHOICE_NAMED, borrowed from `value`.
 * `tools` is NULL when the request has none.
 * @err false, with *err: an unknown word or name, or a call demanded without tools
 */
bool tool_choice_read(struct json_object *value, struct json_object *tools, enum tool_choice *out,
                      struct json_object **name, struct api_error *err);

#endif
