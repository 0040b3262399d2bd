/*
 * The messages of a request in the order and shape in which the chat encoding renders them
 * (model.md 5.1).  Inside engine/text only.
 */
#ifndef V4BOX_ENGINE_TEXT_CHAT_TURNS_H
#define V4BOX_ENGINE_TEXT_CHAT_TURNS_H

#include "engine/text/chat_check.h"

/* One piece of a user turn: a text or the result of a tool call. */
struct chat_block {
    struct json_object *content; /* borrows: string or array of parts */
    struct json_object *call_id; /* borrows, may be NULL; results only */
    bool tool_result;
};

/* One message after merging; never ROLE_TOOL.  A user turn has blocks instead of content. */
struct chat_turn {
    struct chat_message message;
    size_t first_block, n_blocks;     /* into chat_turns.blocks */
    size_t first_message, n_messages; /* of the request */
};

struct chat_turns {
    struct chat_turn *turns;   /* owns [n_turns] */
    struct chat_block *blocks; /* owns [n_blocks] */
    size_t n_turns, n_blocks;
    ptrdiff_t last_user; /* index of the last user or developer turn, or -1 */
    bool drop_thinking;  /* as the encoding applies it: never beside tools */
};

/** @own chat_turns_free, also after an error  @err ERR_INPUT with the path of the field */
enum status MUST_CHECK chat_turns_build(const struct chat_request *request, struct chat_turns *out,
                                        struct error *err);
void chat_turns_free(struct chat_turns *turns);

#endif
