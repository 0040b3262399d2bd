/*
 * How likely the tokens of an answer were, as OpenAI's APIs say it.  Knows no request and no order
 * of events.
 */
#ifndef V4BOX_ENGINE_API_LOGPROBS_H
#define V4BOX_ENGINE_API_LOGPROBS_H

#include "engine/base/buf.h"
#include "engine/engine.h"
#include "engine/text/tokenizer.h"

/**
 * Appends {"token", "logprob", "bytes", "top_logprobs"} of one token and its alternatives.  `token`
 * is text for people: bytes that are no character become U+FFFD there, and are whole in `bytes`.
 * @shape  tokens [1 + n_top]: the chosen one first
 */
void logprobs_dump(struct buf *out, const struct tokenizer *tokenizer,
                   const struct token_logprob *tokens, int32_t n_top);

#endif
