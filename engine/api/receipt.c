/* POST /v1/receipt: takes what /v1/chat/completions takes, and answers with counts and hashes. */
#include "engine/api/receipt.h"

#include "engine/api/profiles.h"

#include "kernels/check.h"

#include <string.h>

#define HASH_HEX_BYTES (2 * TURN_HASH_BYTES + 1)

bool request_render_for(const struct api *api, uint64_t key, const struct request *request,
                        struct ids *prompt, struct chat_spans *spans, struct api_error *err)
{
    struct turns_reader reader;
    turns_reader_init(&reader, api->turns, key);
    struct chat_request chat = {.messages = request->messages,
                                .tools = request->tools,
                                .response_format = request->schema,
                                .thinking = request->thinking,
                                .effort = request->effort,
                                .drop_thinking =
                                    request->profile.values[ROW_THINK_DROP] == THINK_DROP_OFFICIAL,
                                .recall = turns_recall,
                                .recall_user = &reader,
                                .spans = spans};
    struct error why;
    if (chat_render(api->tokenizer, &api->tokens, &chat, prompt, NULL, &why) == OK)
        return true;
    return api_fail(err, API_RENDER, "messages");
}

bool request_render(struct exchange *x, struct request *request, struct ids *prompt,
                    struct chat_spans *spans, struct api_error *err)
{
    return request_settle(x, request, err) &&
           request_render_for(x->user, x->key.number, request, prompt, spans, err);
}

/* `"name":` and the SHA-256 of ids[0..n) as little-endian 32-bit numbers. */
static void dump_hash(struct buf *out, const int32_t *ids, size_t n)
{
    uint8_t hash[TURN_HASH_BYTES];
    char hex[HASH_HEX_BYTES];
    turns_hash(ids, n, hash);
    sodium_bin2hex(hex, sizeof hex, hash, sizeof hash);
    buf_printf(out, "\"sha256\":\"%s\"", hex);
}

static const char *role_of(const struct request *request, const struct chat_span *span)
{
    if (span->n_messages == 0)
        return "system";
    struct json_object *message = json_object_array_get_idx(request->messages, span->first_message);
    return json_object_get_string(json_member(message, "role", NULL));
}

static void dump_span(struct buf *out, const struct request *request, const struct chat_span *span,
                      const int32_t *ids, size_t n)
{
    static const char *const SOURCES[] = {[CHAT_SENT] = "request",
                                          [CHAT_REASONING] = "reasoning restored",
                                          [CHAT_REPLAYED] = "replayed"};
    buf_printf(
        out, "{\"first\":%zu,\"count\":%zu,\"role\":\"%s\",\"source\":\"%s\",\"tokens\":%zu,",
        span->first_message, span->n_messages, role_of(request, span), SOURCES[span->source], n);
    dump_hash(out, ids, n);
    buf_puts(out, "}");
}

/* The spans from `first` on as a list. */
static void dump_spans(struct buf *out, const struct request *request, const struct ids *prompt,
                       const struct chat_spans *spans, size_t first)
{
    size_t begin = first == 0 ? 0 : spans->data[first - 1].ids_end;
    buf_puts(out, "[");
    for (size_t i = first; i < spans->len; i++) {
        if (i > first)
            buf_puts(out, ",");
        dump_span(out, request, &spans->data[i], prompt->data + begin,
                  spans->data[i].ids_end - begin);
        begin = spans->data[i].ids_end;
    }
    ASSERT(begin == prompt->len);
    buf_puts(out, "]");
}

void receipt_newest(const struct exchange *x, const struct request *request,
                    const struct ids *prompt, const struct chat_spans *spans, struct buf *out)
{
    const struct api *api = x->user;
    size_t n = (size_t)api->receipt_messages;
    size_t first = spans->len > n ? spans->len - n : 0;
    if (n == 0)
        return;
    buf_puts(out, ",");
    dump_hash(out, prompt->data, prompt->len);
    buf_printf(out, ",\"omitted\":%zu,\"messages\":", first);
    dump_spans(out, request, prompt, spans, first);
}

static void dump_receipt(struct buf *out, const struct exchange *x, const struct request *request,
                         const struct ids *prompt, const struct chat_spans *spans)
{
    const struct api *api = x->user;
    char hash[PROFILE_HASH_BYTES];
    profile_hash_text(&x->profile, hash);
    buf_printf(out,
               "{\"object\":\"v4box.receipt\",\"model\":\"%s\",\"profile\":\"%s\","
               "\"profile_hash\":\"%s\",\"context_length\":%d,\"rendered_tokens\":%zu,",
               api->model, x->profile.name, hash, api_context_max(api, &x->key), prompt->len);
    dump_hash(out, prompt->data, prompt->len);
    buf_printf(out, ",\"control_texts\":%zu,\"messages\":", spans->control_texts);
    dump_spans(out, request, prompt, spans, 0);
    buf_puts(out, "}");
}

enum MHD_Result api_receipt(struct exchange *x)
{
    struct request_defaults defaults = api_request_defaults(x);
    struct request request;
    struct ids prompt = {0};
    struct chat_spans spans = {0};
    struct buf body = {0};
    struct api_error err;
    bool good = request_parse(x->body.len == 0 ? "" : x->body.data, x->body.len, &defaults,
                              &request, &err) &&
                request_render(x, &request, &prompt, &spans, &err);
    if (good)
        dump_receipt(&body, x, &request, &prompt, &spans);
    request_clear(&request);
    ids_free(&prompt);
    chat_spans_free(&spans);
    http_body_done(x);
    return good ? http_reply(x, 200, "application/json", &body) : http_reply_error(x, &err);
}
