/*
 * The Messages API of Anthropic's clients, from its request to that of request.h.  After the
 * translation everything is shared with /v1/chat/completions: rendering, masks, memory, engine.
 * The form of answers and errors is in anthropic.c.
 */
#ifndef V4BOX_ENGINE_API_ANTHROPIC_H
#define V4BOX_ENGINE_API_ANTHROPIC_H

#include "engine/api/api.h"
#include "engine/api/request.h"

/**
 * Translates and checks the body of `x`; see engine/api/anthropic_request.c for the rules.
 * `counting`: the request of count_tokens, which needs no max_tokens.
 * @own  request_clear(out), also after false
 * @err  false, with *err naming the field, in the client's words or in those of request.h (see
 *       anthropic_path)
 */
bool anthropic_parse(const struct exchange *x, bool counting, struct request *out,
                     struct api_error *err);

/** The path of a field of request.h in the words of the Messages API. */
void anthropic_path(const char *path, char out[API_PARAM_BYTES]);

#endif
