/*
 * The messages of a request in OpenAI form: checked, and rebuilt with only the fields the chat
 * encoding may see.  The encoder knows more fields (task, tools inside a message, ..) that are not
 * the client's to set.
 */
#ifndef V4BOX_ENGINE_API_MESSAGES_H
#define V4BOX_ENGINE_API_MESSAGES_H

#include "engine/api/errors.h"
#include "engine/base/json.h"

#include <stdbool.h>

/**
 * Checks `messages` and builds the array for chat_render: role (developer becomes system), content
 * as one string, reasoning_content, tool_calls, tool_call_id.
 * @own *out belongs to the caller  @err false, with *err naming messages[i]...
 */
bool messages_check(struct json_object *messages, struct json_object **out, struct api_error *err);

/** True for a message of the array that messages_check built, whose turn stays open: the answer
 *  goes on with it. */
bool messages_is_prefix(struct json_object *message);

/** True for exactly this string, with nothing (a NUL byte, say) behind it. */
bool json_text_is(struct json_object *value, const char *text);

#endif
