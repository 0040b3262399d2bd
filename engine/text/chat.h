/*
 * The chat encoding of DeepSeek-V4 (model.md section 5): messages and tools in OpenAI form to
 * token ids.  Works at token level: control tokens are placed by id, and all client text is encoded
 * with special-token parsing off, so no client can forge a turn.  Knows no HTTP.
 */
#ifndef V4BOX_ENGINE_TEXT_CHAT_H
#define V4BOX_ENGINE_TEXT_CHAT_H

#include "engine/base/buf.h"
#include "engine/base/json.h"
#include "engine/base/status.h"
#include "engine/text/tokenizer.h"

/*
 * What the renderer takes: roles system, user, assistant, tool, developer (the encoding's own: a
 * user turn that may carry tools) and latest_reminder; content as a string, as an array of parts
 * (texts joined by a blank line, others as "[Unsupported TYPE]"), or null for system and assistant;
 * reasoning_content (or reasoning), tool_calls, tool_call_id, and the encoder's own task, wo_eos,
 * response_format and tools.  Which of these a client may send is the caller's rule.
 */
struct chat_request {
    struct json_object *messages; /* borrows: array, OpenAI form */
    struct json_object *tools;    /* borrows: array or NULL; attached to the first system message */
    bool thinking;                /* open the answer with <think>, else with </think> */
    const char *effort; /* NULL, "high" or "max" (preview checkpoint: only max has a text) */
    bool drop_thinking; /* forget reasoning of earlier turns; forced off by tools */
};

/* Ids of the control tokens, looked up once by their text. */
struct chat_tokens {
    int32_t bos, eos, user, assistant, think_open, think_close, dsml, latest_reminder;
    int32_t task[6]; /* action, query, authority, domain, title, read_url */
};

/** @err ERR_INPUT naming the token that the tokenizer lacks */
enum status MUST_CHECK chat_tokens_find(const struct tokenizer *tokenizer, struct chat_tokens *out,
                                        struct error *err);

/**
 * Renders a request: appends the token ids to `ids` and the same prompt as text to `text` (either
 * may be NULL; without `ids` tokenizer and tokens may be too).  Both stay as they are on an error.
 * Numbers in tool schemas and response_format keep their text; in tool-call arguments they are
 * printed as the official encoder prints them after parsing.  Arguments that are no JSON object as
 * json_parse has it (also: a duplicate key) become one string parameter.
 * @err ERR_INPUT, text "PATH: what", e.g. "messages[2].content: expected a string or an array of
 *      parts"; nothing of the client's
 */
enum status MUST_CHECK chat_render(const struct tokenizer *tokenizer,
                                   const struct chat_tokens *tokens,
                                   const struct chat_request *request, struct ids *ids,
                                   struct buf *text, struct error *err);

#endif
