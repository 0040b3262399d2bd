/*
 * The Responses API of OpenAI's newer clients, stateless: from its request to that of request.h.
 * After the translation everything is shared with /v1/chat/completions.  The form of answers and
 * errors is in responses.c.
 */
#ifndef V4BOX_ENGINE_API_RESPONSES_H
#define V4BOX_ENGINE_API_RESPONSES_H

#include "engine/api/api.h"
#include "engine/api/request.h"

/**
 * Translates and checks the body of `x`; see engine/api/responses_request.c for the rules.
 * @own  request_clear(out), also after false
 * @err  false, with *err naming the field, in the client's words or in those of request.h (see
 *       responses_path)
 */
bool responses_parse(const struct exchange *x, struct request *out, struct api_error *err);

/** The path of a field of request.h in the words of the Responses API. */
void responses_path(const char *path, char out[API_PARAM_BYTES]);

/** What every answer repeats of the request `body`.  @own the caller */
struct json_object *responses_echo(struct json_object *body);

#endif
