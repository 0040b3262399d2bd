/*
 * Splits a model's answer, token by token, into what a client sees: reasoning, content and tool
 * calls, in whole UTF-8 characters, cut at the client's stop strings.  Knows no HTTP and no
 * sampling; end-of-answer ids are the engine's matter (engine_request.stop_ids), and are dropped if
 * they come here.
 *
 * Rules, the same for streamed and whole answers, since both go through here:
 *  - The answer starts as reasoning when the prompt ended with <think>, else as content.  The first
 *    </think> in reasoning ends it; any further one is dropped, as is <think>.
 *  - No added token ever reaches the client: </think>, <think>, the DSML mark and every other one
 *    is dropped, and ends a half character in front of it (U+FFFD).
 *  - With tools offered, a tool-call block (dsml.h) behind the content is read as calls, and up to
 *    two line ends in front of it belong to it.  A block with its wrapper inside reasoning ends the
 *    reasoning, as if </think> stood before it; any other mark there is dropped.  The answer ends
 *    with the block.  A call counts once it is complete; half a call is nothing.
 *  - Without tools a tool-call block is delivered as content with its DSML marks taken out
 *    ("<tool_calls>\n<invoke name=..."): nothing the model wrote is lost in silence.
 *  - Stop strings are matched in content only, across token borders; text that may be the start of
 *    one is held back, and nothing of a completed one is delivered.  The match that ends first
 *    wins; of several ending at the same byte, the longest.
 */
#ifndef V4BOX_ENGINE_TEXT_ANSWER_H
#define V4BOX_ENGINE_TEXT_ANSWER_H

#include "engine/base/buf.h"
#include "engine/base/status.h"
#include "engine/text/chat.h"
#include "engine/text/dsml.h"
#include "engine/text/tokenizer.h"

#include <stdbool.h>
#include <stdint.h>

struct answer; /* one answer; one thread at a time */

struct answer_stop {
    const char *text; /* borrows [len], UTF-8 */
    size_t len;
};

struct answer_options {
    const struct tokenizer *tokenizer; /* borrows, outlives the answer */
    const struct chat_tokens *tokens;  /* borrows, outlives the answer */
    bool thinking;                     /* the prompt ended with <think> */
    const struct answer_stop *stops;   /* [n_stops], copied */
    int32_t n_stops;
    struct json_object *tools; /* the offered ones in OpenAI form, retained; NULL: none */
    int32_t calls_max;         /* the answer ends where a further call would begin; 0: no bound */
};

/* How the answer stands with its tool-call block. */
enum answer_block {
    BLOCK_NONE,      /* none has begun */
    BLOCK_OPEN,      /* inside; once the answer is over: cut */
    BLOCK_ENDED,     /* closed, or nothing but closing tags is missing */
    BLOCK_MALFORMED, /* answer_block_fault */
};

/** @own answer_destroy
 *  @err ERR_INPUT "stop: ..": more than STOP_STRINGS_MAX, an empty one, or one that is too long */
enum status MUST_CHECK answer_create(const struct answer_options *options, struct answer **out,
                                     struct error *err);
void answer_destroy(struct answer *answer);

/**
 * Takes one token and appends the text that has become certain; either buffer may stay as it is.
 * Reasoning always comes before content.
 * @return true once a stop string is complete, behind a tool-call block, and where that is
 *         malformed: the answer is over, further tokens are ignored
 */
bool answer_push(struct answer *answer, int32_t id, struct buf *reasoning, struct buf *content);

/** The end of the answer for any other reason: appends what was held back.  Call it once. */
void answer_finish(struct answer *answer, struct buf *reasoning, struct buf *content);

/** Appends the stop string that ended the answer, if one did. */
void answer_stop_string(const struct answer *answer, struct buf *out);

/** The tool calls that are complete.  Borrowed until the next push. */
const struct dsml_call *answer_calls(const struct answer *answer, int32_t *count);
enum answer_block answer_block(const struct answer *answer);
/** What was wrong with a malformed block: a constant, nothing of the model's. */
const char *answer_block_fault(const struct answer *answer);

/** True while no </think> and no block has ended the reasoning. */
bool answer_in_reasoning(const struct answer *answer);
/** False once anything was dropped: a token that has no place where it stood, a stop string, a call
 *  too many.  The ids of such an answer say more than the client was told. */
bool answer_is_faithful(const struct answer *answer);

/** Tokens pushed as reasoning, </think> included (usage: reasoning_tokens). */
int32_t answer_reasoning_tokens(const struct answer *answer);

#endif
