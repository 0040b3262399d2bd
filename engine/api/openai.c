/* The OpenAI form of an answer: chunks, usage, finish reasons.  Knows nothing of when they are due.
 */
#include "engine/api/surface.h"

#include <string.h>

static const char *const FINISHES[] = {[FINISH_STOP] = "stop",
                                       [FINISH_STRING] = "stop",
                                       [FINISH_LENGTH] = "length",
                                       [FINISH_CALLS] = "tool_calls"};

/* The members that every chunk and every answer starts with. */
static void dump_front(struct reply *r, const char *object)
{
    buf_printf(&r->out,
               "{\"id\":\"chatcmpl-%s\",\"object\":\"%s\",\"created\":%lld,\"model\":\"%s\","
               "\"system_fingerprint\":\"%s\",\"choices\":[",
               r->id + 4, object, (long long)r->created_s, r->api->model, r->fingerprint);
}

static void dump_usage(struct reply *r)
{
    int32_t reused = r->reused_tokens;
    buf_printf(&r->out,
               "\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d,\"total_tokens\":%d,"
               "\"prompt_tokens_details\":{\"cached_tokens\":%d},"
               "\"completion_tokens_details\":{\"reasoning_tokens\":%d},"
               "\"prompt_cache_hit_tokens\":%d,\"prompt_cache_miss_tokens\":%d,",
               r->prompt_tokens, r->answer_tokens, r->prompt_tokens + r->answer_tokens, reused,
               r->reasoning_tokens, reused, r->prompt_tokens - reused);
    surface_receipt(r);
    buf_puts(&r->out, "}");
}

/* An event is its beginning, the members of the delta, and its end; `finish`: the reason or NULL.
 */
static void begin_chunk(struct reply *r)
{
    buf_puts(&r->out, "data: ");
    dump_front(r, "chat.completion.chunk");
    buf_puts(&r->out, "{\"index\":0,\"delta\":{");
}

/* `"logprobs":` with what was not told of them. */
static void dump_logprobs(struct reply *r)
{
    if (!r->has_logprobs) {
        buf_puts(&r->out, "\"logprobs\":null");
        return;
    }
    buf_puts(&r->out, "\"logprobs\":{\"content\":[");
    surface_logprobs(r, &r->logprobs_told);
    buf_puts(&r->out, "],\"refusal\":null}");
}

/* Text may be told later than its tokens came: the list goes with the next chunk, whatever that
 * has. */
static void end_chunk(struct reply *r, const char *finish)
{
    buf_puts(&r->out, "},");
    dump_logprobs(r);
    buf_puts(&r->out, ",\"finish_reason\":");
    if (finish != NULL)
        json_dump_string(&r->out, finish, strlen(finish));
    else
        buf_puts(&r->out, "null");
    buf_puts(&r->out, "}]}\n\n");
}

static void dump_text_chunk(struct reply *r, const char *name, const struct buf *text, size_t *told)
{
    if (text->len == *told)
        return;
    begin_chunk(r);
    surface_text(&r->out, name, text, *told);
    end_chunk(r, NULL);
    *told = text->len;
}

/* Some clients decide by the first delta that an assistant speaks. */
static void begin(struct reply *r)
{
    begin_chunk(r);
    buf_puts(&r->out, "\"role\":\"assistant\",\"content\":\"\"");
    end_chunk(r, NULL);
}

static void dump_call_front(struct reply *r, const struct turn_call *call)
{
    buf_printf(&r->out, "\"id\":\"%s\",\"type\":\"function\",\"function\":{", call->id);
    surface_text(&r->out, "name", &call->call->name, 0);
    buf_puts(&r->out, ",\"arguments\":");
}

/* A complete call: its name, then its arguments piece by piece (api.md 1.2). */
static void dump_call_chunks(struct reply *r, int32_t idx)
{
    const struct buf *arguments = &r->calls[idx].call->arguments;
    begin_chunk(r);
    buf_printf(&r->out, "\"tool_calls\":[{\"index\":%d,", idx);
    dump_call_front(r, &r->calls[idx]);
    buf_puts(&r->out, "\"\"}}]");
    end_chunk(r, NULL);
    for (size_t from = 0, n; from < arguments->len; from += n) {
        n = surface_fragment(arguments, from);
        begin_chunk(r);
        buf_printf(&r->out, "\"tool_calls\":[{\"index\":%d,\"function\":{\"arguments\":", idx);
        json_dump_string(&r->out, arguments->data + from, n);
        buf_puts(&r->out, "}}]");
        end_chunk(r, NULL);
    }
}

static void more(struct reply *r)
{
    dump_text_chunk(r, "reasoning_content", &r->reasoning, &r->reasoning_told);
    dump_text_chunk(r, "content", &r->content, &r->content_told);
    for (; r->calls_told < r->n_calls; r->calls_told++)
        dump_call_chunks(r, r->calls_told);
}

static void end(struct reply *r)
{
    begin_chunk(r);
    end_chunk(r, FINISHES[r->finish]);
    if (r->include_usage) {
        buf_puts(&r->out, "data: ");
        dump_front(r, "chat.completion.chunk");
        buf_puts(&r->out, "],");
        dump_usage(r);
        buf_puts(&r->out, "}\n\n");
    }
    buf_puts(&r->out, "data: [DONE]\n\n");
}

static void whole(struct reply *r)
{
    dump_front(r, "chat.completion");
    buf_puts(&r->out, "{\"index\":0,\"message\":{\"role\":\"assistant\",");
    surface_text(&r->out, "content", &r->content, 0);
    if (r->reasoning.len > 0) {
        buf_puts(&r->out, ",");
        surface_text(&r->out, "reasoning_content", &r->reasoning, 0);
    }
    for (int32_t i = 0; i < r->n_calls; i++) {
        const struct buf *arguments = &r->calls[i].call->arguments;
        buf_puts(&r->out, i == 0 ? ",\"tool_calls\":[{" : ",{");
        dump_call_front(r, &r->calls[i]);
        json_dump_string(&r->out, arguments->data, arguments->len);
        buf_puts(&r->out, i == r->n_calls - 1 ? "}}]" : "}}");
    }
    buf_puts(&r->out, "},");
    dump_logprobs(r);
    buf_printf(&r->out, ",\"finish_reason\":\"%s\"}],", FINISHES[r->finish]);
    dump_usage(r);
    buf_puts(&r->out, "}");
}

static void fault(struct reply *r, const struct api_error *err)
{
    buf_puts(&r->out, "data: ");
    api_error_dump(&r->out, err);
    buf_puts(&r->out, "\n\n");
}

static bool parse(const struct exchange *x, struct request *out, struct api_error *err)
{
    struct request_defaults defaults = api_request_defaults(x);
    return request_parse(x->body.len == 0 ? "" : x->body.data, x->body.len, &defaults, out, err);
}

const struct surface OPENAI_SURFACE = {.parse = parse,
                                       .begin = begin,
                                       .more = more,
                                       .end = end,
                                       .fault = fault,
                                       .heartbeat = surface_comment,
                                       .whole = whole};

enum MHD_Result api_chat_completions(struct exchange *x)
{
    return surface_answer(x, &OPENAI_SURFACE);
}
