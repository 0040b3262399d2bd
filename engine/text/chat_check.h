/*
 * The messages and tools of a request, checked field by field.  Inside engine/text only.
 */
#ifndef V4BOX_ENGINE_TEXT_CHAT_CHECK_H
#define V4BOX_ENGINE_TEXT_CHAT_CHECK_H

#include "engine/text/chat.h"

enum chat_role {
    ROLE_SYSTEM,
    ROLE_USER,
    ROLE_ASSISTANT,
    ROLE_TOOL,
    ROLE_DEVELOPER,
    ROLE_LATEST_REMINDER,
};

/* All objects are borrowed from the request, of the type said, and NULL when absent, null or (but
 * for content and call_id) empty. */
struct chat_message {
    enum chat_role role;
    int task;                            /* index into PROMPT_TASKS, or -1 */
    bool wo_eos;                         /* assistant: the answer goes on */
    struct json_object *content;         /* string or array of parts */
    struct json_object *reasoning;       /* string */
    struct json_object *tool_calls;      /* array */
    struct json_object *tools;           /* array */
    struct json_object *call_id;         /* string */
    struct json_object *response_format; /* object */
};

/* Where in the request the check is, for error texts. */
struct chat_checker {
    struct buf path;   /* owns, e.g. "messages[2]" */
    struct error *err; /* borrows, may be NULL */
};

/** Reads the message `object` at messages[index].  @err ERR_INPUT with the path of the field */
enum status MUST_CHECK chat_message_read(struct chat_checker *checker, struct json_object *object,
                                         size_t index, struct chat_message *out);
/** Checks a value (NULL: fine) that should be an array of tools.  @err ERR_INPUT with its path */
enum status MUST_CHECK chat_tools_check(struct chat_checker *checker, struct json_object *tools);

/** True for a JSON string with exactly this text. */
bool chat_text_is(struct json_object *value, const char *text);
/** The value, or NULL when it is an empty array, object or string: the encoding sees no difference.
 */
struct json_object *chat_or_null(struct json_object *value);

#endif
