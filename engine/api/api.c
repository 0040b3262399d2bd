/* Routes, names and defaults of the API.  Knows no JSON. */
#include "engine/api/api.h"

#include "config/defaults.h"
#include "config/limits.h"
#include "config/version.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static enum MHD_Result health(struct exchange *x)
{
    return http_reply_text(x, 200, "ok\n");
}

/* Some clients ask for / to see whether anybody is there (api.md 1.1); it says nothing about us. */
static enum MHD_Result root(struct exchange *x)
{
    return http_reply_text(x, 200, "ok\n");
}

/* Clients of both APIs list models, each with its own header for the key. */
static const struct dialect MODELS_DIALECT = {.x_api_key = true};

/* Base URLs are given with and without /v1. */
static const struct route ROUTES[] = {
    {"POST", "/v1/chat/completions", false, true, api_chat_completions, NULL},
    {"POST", "/chat/completions", false, true, api_chat_completions, NULL},
    {"POST", "/v1/messages", false, true, api_messages, &ANTHROPIC_DIALECT},
    {"POST", "/v1/messages/count_tokens", false, true, api_count_tokens, &ANTHROPIC_DIALECT},
    {"POST", "/v1/responses", false, true, api_responses, &RESPONSES_DIALECT},
    {"POST", "/responses", false, true, api_responses, &RESPONSES_DIALECT},
    {"POST", "/v1/receipt", false, true, api_receipt, NULL},
    {"GET", "/v1/profile", false, false, api_profile, NULL},
    {"GET", "/v1/models", false, false, api_models, &MODELS_DIALECT},
    {"GET", "/models", false, false, api_models, &MODELS_DIALECT},
    {"GET", "/v1/models/*", false, false, api_model, &MODELS_DIALECT},
    {"GET", "/models/*", false, false, api_model, &MODELS_DIALECT},
    {"GET", "/healthz", true, false, health, NULL},
    {"GET", "/", true, false, root, NULL},
};

const struct route *api_routes(int *n_routes)
{
    *n_routes = (int)(sizeof ROUTES / sizeof ROUTES[0]);
    return ROUTES;
}

static const struct route METRICS_ROUTES[] = {
    {"GET", "/metrics", true, false, api_metrics, NULL},
    {"GET", "/healthz", true, false, health, NULL},
};

const struct route *api_metrics_routes(int *n_routes)
{
    *n_routes = (int)(sizeof METRICS_ROUTES / sizeof METRICS_ROUTES[0]);
    return METRICS_ROUTES;
}

static bool thinking_default(const char *row)
{
    static const struct {
        const char *row;
        bool thinking;
    } ROWS[] = {THINKING_DEFAULT_ROWS};
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        if (strcmp(ROWS[i].row, row) == 0)
            return ROWS[i].thinking;
    }
    return false;
}

struct request_defaults api_request_defaults(const struct exchange *x)
{
    const struct api *api = x->user;
    const uint8_t *values = x->profile.values;
    bool flipped = values[ROW_THINK_DEFAULT] == THINK_DEFAULT_FLIPPED;
    return (struct request_defaults){
        .model = api->model,
        .thinking = api->thinking_default != flipped,
        .effort = values[ROW_THINK_EFFORT] == THINK_EFFORT_MAX ? "max" : NULL,
    };
}

void api_fingerprint(const struct api *api, const struct profile *profile,
                     char out[FINGERPRINT_BYTES])
{
    char text[256], hex[2 * crypto_hash_sha256_BYTES + 1], values[PROFILE_HASH_BYTES];
    unsigned char hash[crypto_hash_sha256_BYTES];
    profile_hash_text(profile, values);
    int n = snprintf(text, sizeof text, "%s %s %s %s", V4BOX_VERSION, api->model, values, api->isa);
    crypto_hash_sha256(hash, (const unsigned char *)text, (unsigned long long)n);
    sodium_bin2hex(hex, sizeof hex, hash, sizeof hash);
    snprintf(out, FINGERPRINT_BYTES, "fp_%.10s", hex);
}

enum status api_init(struct api *out, struct engine *engine, const struct tokenizer *tokenizer,
                     const char *isa, struct error *err)
{
    const char *row = engine_model_config(engine)->name;
    *out = (struct api){.engine = engine,
                        .tokenizer = tokenizer,
                        .isa = isa,
                        .thinking_default = thinking_default(row),
                        .created_s = (int64_t)time(NULL),
                        .heartbeat_ms = KEEPALIVE_MS};
    snprintf(out->model, sizeof out->model, "deepseek-v4-%s", row);
    return chat_tokens_find(tokenizer, &out->tokens, err);
}

int32_t api_context_max(const struct api *api, const struct key *key)
{
    int64_t context = engine_context_max(api->engine), own = key->limits.values[KEY_CONTEXT];
    return (int32_t)(own > 0 && own < context ? own : context);
}

int64_t api_body_bytes_max(const struct api *api)
{
    int64_t bytes = HTTP_BODY_BYTES_FIXED +
                    (int64_t)HTTP_BODY_BYTES_PER_TOKEN * engine_context_max(api->engine);
    return bytes < HTTP_BODY_BYTES_MAX ? bytes : HTTP_BODY_BYTES_MAX;
}
