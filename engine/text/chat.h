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
 * Two hooks for callers that remember: `recall` puts what the model wrote in place of what a client
 * sent back, `spans` tells which ids belong to which message.
 */

/* An assistant turn of the request, as the client sent it. */
struct chat_sent {
    struct json_object *content;    /* borrows: string, array of parts or NULL */
    struct json_object *reasoning;  /* borrows: string or NULL */
    struct json_object *tool_calls; /* borrows: array or NULL */
    bool thinking;                  /* its reasoning is part of the prompt */
};

/* Where the ids of a turn come from. */
enum chat_source {
    CHAT_SENT,      /* what the client sent */
    CHAT_REASONING, /* the same with the reasoning in `reasoning` */
    CHAT_REPLAYED,  /* `ids`: all of the turn between <think> or </think> and the end of sentence */
};

struct chat_recalled {
    struct ids ids;       /* owned by the renderer; empty when the hook is called */
    struct buf reasoning; /* the same */
};

/**
 * Asked for each assistant turn that control tokens enclose: what the model itself wrote there.
 * `before`: the ids of the prompt up to the turn.
 */
typedef enum chat_source chat_recall_fn(void *user, const struct chat_sent *sent,
                                        const struct ids *before, struct chat_recalled *out);

/* Which ids came from which messages.  Neighbours that are encoded as one text share a span. */
struct chat_span {
    size_t first_message, n_messages; /* 0: the system turn that tools get where there is none */
    size_t ids_end;                   /* behind its last id; it begins where the span before ends */
    enum chat_source source;
};

struct chat_spans {
    struct chat_span *data; /* owns [len] */
    size_t len, cap;
    size_t control_texts; /* what clients' text spells like control tokens, and stays text */
};
void chat_spans_free(struct chat_spans *spans);

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
    struct json_object *response_format; /* borrows: a schema (object) or NULL; the same */
    bool thinking;                       /* open the answer with <think>, else with </think> */
    const char *effort;     /* NULL, "high" or "max" (preview checkpoint: only max has a text) */
    bool drop_thinking;     /* forget reasoning of earlier turns; forced off by tools */
    chat_recall_fn *recall; /* NULL: every turn as it was sent; only asked when ids are wanted */
    void *recall_user;
    struct chat_spans *spans; /* NULL: not wanted; filled together with ids */
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
