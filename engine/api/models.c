/* GET /v1/models: the one model that is served, with the members of both APIs. */
#include "config/limits.h"
#include "engine/api/api.h"

#include <string.h>
#include <time.h>

static void dump_model(struct buf *out, const struct exchange *x)
{
    const struct api *api = x->user;
    int32_t context = api_context_max(api, &x->key);
    time_t created = (time_t)api->created_s;
    struct tm tm;
    char when[32];
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&created, &tm));
    buf_printf(out,
               "{\"id\":\"%s\",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"v4box\","
               "\"type\":\"model\",\"display_name\":\"%s\",\"created_at\":\"%s\","
               "\"context_length\":%d,\"max_model_len\":%d,\"max_output_tokens\":%d}",
               api->model, (long long)api->created_s, api->model, when, context, context,
               context < ANSWER_TOKENS_MAX ? context : ANSWER_TOKENS_MAX);
}

enum MHD_Result api_models(struct exchange *x)
{
    struct buf body = {0};
    const struct api *api = x->user;
    buf_puts(&body, "{\"object\":\"list\",\"data\":[");
    dump_model(&body, x);
    buf_printf(&body, "],\"has_more\":false,\"first_id\":\"%s\",\"last_id\":\"%s\"}", api->model,
               api->model);
    return http_reply(x, 200, "application/json", &body);
}

enum MHD_Result api_model(struct exchange *x)
{
    const struct api *api = x->user;
    struct api_error err;
    struct buf body = {0};
    if (strcmp(x->rest, api->model) != 0) {
        api_fail(&err, API_MODEL, "model");
        return http_reply_error(x, &err);
    }
    dump_model(&body, x);
    return http_reply(x, 200, "application/json", &body);
}
