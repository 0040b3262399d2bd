/*
 * What a request looks like to the model: the one place where the API renders a prompt, and the
 * receipt that says so without asking the model.
 */
#ifndef V4BOX_ENGINE_API_RECEIPT_H
#define V4BOX_ENGINE_API_RECEIPT_H

#include "engine/api/api.h"
#include "engine/api/request.h"

/**
 * Settles the request's profile (profiles.h) and renders it for the key of `x`; what the model
 * wrote stands for what the client sent back (turns.h).
 * @own  ids_free(prompt), chat_spans_free(spans), also after false; spans may be NULL
 * @err  false, with *err
 */
bool request_render(struct exchange *x, struct request *request, struct ids *prompt,
                    struct chat_spans *spans, struct api_error *err);
/** Renders a settled request; `key`: 0 for nobody, of whom nothing is remembered. */
bool request_render_for(const struct api *api, uint64_t key, const struct request *request,
                        struct ids *prompt, struct chat_spans *spans, struct api_error *err);

/**
 * Appends the members that usage has of the newest messages of a prompt, each behind a comma: as
 * many as api->receipt_messages says, and how many are left out; nothing when that is 0.
 */
void receipt_newest(const struct exchange *x, const struct request *request,
                    const struct ids *prompt, const struct chat_spans *spans, struct buf *out);

#endif
