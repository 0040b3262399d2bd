/*
 * Which tokens may come next: the rules of one answer (thinking, tool calls, structured output) as
 * a set of allowed token ids before every draw.  What is sampled under a mask is well-formed by
 * construction: a tool-call block with offered names and arguments by their schemas, or a JSON text
 * by a schema.  Knows no HTTP and no sampling.
 *
 *   mask_vocab   of a tokenizer, built once, shared by all requests
 *   mask         of one answer; its mask_fill serves as engine_request.mask.fn
 *
 * What an answer may be, in phases:
 *   [reasoning </think>] then content, then at most one block of tool calls, then the end.
 *  - Reasoning is free, but while content is still owed (format or required calls) it cannot end
 *    the answer.
 *  - Content is free text (MASK_TEXT), or one JSON text (the other formats).  With calls REQUIRED
 *    there is none: the block comes at once.
 *  - A block opens with the DSML mark behind a '<' (MASK_CALLS_AUTO), never elsewhere; from there
 * on nothing but the block, in the form of model.md 5.2, and then the end of the answer.
 *  - No other added token can be sampled under a rule; free text stays as free as without a mask,
 *    but for the DSML mark.
 */
#ifndef V4BOX_ENGINE_TEXT_MASK_H
#define V4BOX_ENGINE_TEXT_MASK_H

#include "engine/base/json.h"
#include "engine/base/status.h"
#include "engine/text/chat.h"
#include "engine/text/tokenizer.h"

#include <stdbool.h>
#include <stdint.h>

struct mask_vocab; /* immutable; any thread may use it */
struct mask;       /* one answer; one thread at a time */

/** Builds the tables of a vocabulary: some 10 MB, a tenth of a second.  The tokenizer outlives
 * them.
 *  @own mask_vocab_destroy
 *  @err ERR_INPUT: a byte has no token of its own, so that a mask could become empty */
enum status MUST_CHECK mask_vocab_create(const struct tokenizer *tokenizer,
                                         const struct chat_tokens *tokens, struct mask_vocab **out,
                                         struct error *err);
void mask_vocab_destroy(struct mask_vocab *vocab);

enum mask_calls {
    MASK_CALLS_NONE,     /* the DSML mark cannot be sampled */
    MASK_CALLS_AUTO,     /* the model decides whether a block is opened */
    MASK_CALLS_REQUIRED, /* the answer is a block */
};

enum mask_format {
    MASK_TEXT,
    MASK_JSON_OBJECT, /* any JSON object */
    MASK_JSON_SCHEMA,
};

struct mask_options {
    bool thinking; /* the prompt ended with <think> */
    enum mask_calls calls;
    /* Array in OpenAI form, needed unless calls is NONE.  A tool with "strict": true is held to its
     * schema, unsupported keywords being errors; the others as far as their schemas are understood.
     */
    struct json_object *tools;
    const char *tool_name; /* only this one may be called; NULL: any */
    int32_t calls_max;     /* calls in the block (parallel_tool_calls false: 1); 0: any number */
    enum mask_format format;
    struct json_object *schema; /* MASK_JSON_SCHEMA */
    bool schema_strict;         /* refuse `format` and `pattern` instead of ignoring them */
};

/**
 * Compiles the rules of one answer.  Everything in `options` is needed only during the call.
 * @own  mask_destroy; `vocab` outlives the mask
 * @err  ERR_INPUT, text "PATH: what" where PATH is e.g. "tools[2].function.parameters.properties[0]
 *       .oneOf" or "schema.pattern": our words, the keyword and indices, nothing of the client's;
 *       ERR_CAPACITY likewise, when a schema is larger than the limits
 */
enum status MUST_CHECK mask_create(const struct mask_vocab *vocab,
                                   const struct mask_options *options, struct mask **out,
                                   struct error *err);
void mask_destroy(struct mask *mask);

/**
 * An engine_mask_fn (engine.h) over a mask.  Each call gives the answer so far; one that is
 * not the one before with more behind it is replayed from its start.
 * @shape  answer_ids [n], bits [(vocab_size + 63) / 64]
 * @return false: nothing is barred and `bits` is untouched.  All bits clear: the answer has left
 * the rules, which sampling under the mask cannot do.
 */
bool mask_fill(void *mask, const int32_t *answer_ids, int32_t n, uint64_t *bits);

/** True when the answer so far may end here (the last mask_fill allowed the end). */
bool mask_may_end(const struct mask *mask);

#endif
