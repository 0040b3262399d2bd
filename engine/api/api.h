/*
 * The API as one thing: what its handlers share, and the table of routes.  The handlers live in
 * files of their own, by noun.
 */
#ifndef V4BOX_ENGINE_API_API_H
#define V4BOX_ENGINE_API_API_H

#include "engine/api/http.h"
#include "engine/api/metrics.h"
#include "engine/api/request.h"
#include "engine/api/sensors.h"
#include "engine/api/turns.h"
#include "engine/engine.h"
#include "engine/precision/profile.h"
#include "engine/text/chat.h"
#include "engine/text/mask.h"
#include "engine/text/tokenizer.h"

#include <stdbool.h>
#include <stdint.h>

#define MODEL_ID_BYTES    64 /* "deepseek-v4-" and the row's name */
#define FINGERPRINT_BYTES 16 /* "fp_" and 10 hex digits */

struct api {
    struct engine *engine;             /* borrows */
    const struct tokenizer *tokenizer; /* borrows */
    struct turns *turns;               /* borrows; NULL: nothing is remembered */
    struct meter *meter;               /* borrows; NULL: nothing is counted */
    struct metrics *metrics;           /* borrows; NULL: the same */
    const struct mask_vocab *masks;    /* borrows; NULL: answers are held to no rule */
    struct chat_tokens tokens;
    char model[MODEL_ID_BYTES];
    const char *isa;           /* borrows */
    struct store *profiles;    /* borrows; NULL: no request can name one */
    struct control *control;   /* borrows; of GET /v1/profile */
    struct recorder *recorder; /* borrows; NULL: no request can be pinned */
    struct sensors *sensors;   /* borrows; of /metrics; NULL: nobody looks */
    struct auditor *auditor;   /* borrows; of /metrics; NULL: nothing is audited here */
    int32_t receipt_messages;  /* the newest ones that usage has hashes of */
    bool thinking_default;
    int64_t created_s;
    int64_t heartbeat_ms; /* KEEPALIVE_MS, until set otherwise */
};

/** Names and defaults from the model's row; borrows `isa`.  @err ERR_INPUT naming a
 * control token that is missing
 */
enum status MUST_CHECK api_init(struct api *out, struct engine *engine,
                                const struct tokenizer *tokenizer, const char *isa,
                                struct error *err);

/** What holds when a request says nothing, under the profile that it runs under. */
struct request_defaults api_request_defaults(const struct exchange *x);

/** Equal fingerprints and seeds give equal answers: version, model, values of the profile and ISA
 *  go in. */
void api_fingerprint(const struct api *api, const struct profile *profile,
                     char out[FINGERPRINT_BYTES]);

/** Tokens of prompt and answer that a key may have: the engine's context, or less. */
int32_t api_context_max(const struct api *api, const struct key *key);

/** Largest request body for this context. */
int64_t api_body_bytes_max(const struct api *api);

const struct route *api_routes(int *n_routes);
/** The routes of the listener for metrics; they need no key. */
const struct route *api_metrics_routes(int *n_routes);

/** Appends the page of /metrics.  `user` is the struct api. */
void api_metrics_dump(void *user, struct buf *out);

extern const struct dialect ANTHROPIC_DIALECT; /* anthropic.c */
extern const struct dialect RESPONSES_DIALECT; /* responses.c */

/* Handlers; x->user is the struct api. */
enum MHD_Result api_chat_completions(struct exchange *x); /* openai.c */
enum MHD_Result api_messages(struct exchange *x);         /* anthropic.c */
enum MHD_Result api_count_tokens(struct exchange *x);
enum MHD_Result api_responses(struct exchange *x); /* responses.c */
enum MHD_Result api_receipt(struct exchange *x);   /* receipt.c */
enum MHD_Result api_profile(struct exchange *x);   /* profiles.c */
enum MHD_Result api_models(struct exchange *x);    /* models.c */
enum MHD_Result api_model(struct exchange *x);
enum MHD_Result api_metrics(struct exchange *x); /* metrics_page.c */

#endif
