/* What all surfaces share: a request from its body to its answer.  All that can fail does so before
 * the 200. */
#include "engine/api/surface.h"

#include "engine/api/completion.h"
#include "engine/api/receipt.h"
#include "kernels/check.h"

void surface_comment(struct reply *reply)
{
    buf_puts(&reply->out, ": keep-alive\n\n");
}

size_t surface_fragment(const struct buf *text, size_t from)
{
    size_t n = text->len - from;
    if (n <= TOOL_FRAGMENT_BYTES)
        return n;
    for (n = TOOL_FRAGMENT_BYTES; ((unsigned char)text->data[from + n] & 0xC0) == 0x80;)
        n--;
    return n;
}

void surface_text(struct buf *out, const char *name, const struct buf *text, size_t from)
{
    buf_printf(out, "\"%s\":", name);
    json_dump_string(out, text->len == from ? "" : text->data + from, text->len - from);
}

void surface_logprobs(struct reply *r, size_t *told)
{
    size_t from = *told;
    if (from > 0 && from < r->logprobs.len)
        from++; /* the comma that separates it from what was told */
    if (from < r->logprobs.len)
        buf_add(&r->out, r->logprobs.data + from, r->logprobs.len - from);
    *told = r->logprobs.len;
}

void surface_receipt(struct reply *r)
{
    char hash[PROFILE_HASH_BYTES];
    profile_hash_text(&r->profile, hash);
    buf_printf(&r->out,
               "\"v4box\":{\"rendered_tokens\":%d,\"reused_tokens\":%d,\"profile\":\"%s\","
               "\"profile_hash\":\"%s\"",
               r->prompt_tokens, r->reused_tokens, r->profile.name, hash);
    buf_add(&r->out, r->receipt.data, r->receipt.len);
    buf_puts(&r->out, "}");
}

static enum MHD_Result go_on(struct exchange *x)
{
    struct api_error err;
    struct buf whole;
    switch (completion_collect(x->state, &err)) {
    case COMPLETION_WAITS:
        return MHD_YES;
    case COMPLETION_SLOW:
        return http_reply_reader(x, "application/json", completion_read, x->state);
    case COMPLETION_DONE:
        whole = completion_take(x->state);
        return http_reply(x, 200, "application/json", &whole);
    case COMPLETION_FAILED:
        return err.code == API_OK ? MHD_NO : http_reply_error(x, &err);
    }
    ASSERT(0);
}

enum MHD_Result surface_answer(struct exchange *x, const struct surface *surface)
{
    if (x->state != NULL)
        return go_on(x);
    struct request request;
    struct ids prompt = {0};
    struct chat_spans spans = {0};
    struct buf receipt = {0};
    struct completion *completion = NULL;
    struct api_error err;
    bool started =
        surface->parse(x, &request, &err) && request_render(x, &request, &prompt, &spans, &err);
    metrics_request(((const struct api *)x->user)->metrics, request.unknown_fields,
                    spans.control_texts);
    if (started)
        receipt_newest(x, &request, &prompt, &spans, &receipt);
    started = started &&
              completion_start(x->user, x, surface, &request, &prompt, &receipt, &completion, &err);
    bool stream = request.stream;
    request_clear(&request);
    ids_free(&prompt);
    chat_spans_free(&spans);
    buf_free(&receipt);
    http_body_done(x);
    if (!started)
        return http_reply_error(x, &err);
    x->state = completion;
    x->state_free = completion_free;
    http_watch(x, completion_stream(completion));
    return stream ? http_reply_reader(x, "text/event-stream", completion_read, completion)
                  : go_on(x);
}
