/* GET /v1/models: the one model that is served. */
#include "config/limits.h"
#include "engine/api/api.h"

#include <string.h>

static void dump_model(struct buf *out, const struct exchange *x)
{
    const struct api *api = x->user;
    int32_t context = api_context_max(api, &x->key);
    buf_printf(out,
               "{\"id\":\"%s\",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"v4box\","
               "\"context_length\":%d,\"max_model_len\":%d,\"max_output_tokens\":%d}",
               api->model, (long long)api->created_s, context, context,
               context < ANSWER_TOKENS_MAX ? context : ANSWER_TOKENS_MAX);
}

enum MHD_Result api_models(struct exchange *x)
{
    struct buf body = {0};
    buf_puts(&body, "{\"object\":\"list\",\"data\":[");
    dump_model(&body, x);
    buf_puts(&body, "]}");
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
