/*
 * The form of answers and errors of the Messages API (api.md 1.3): blocks of thinking, text and
 * tool use, in events or as a whole, and counting of tokens.  Translates no request.
 */
#include "engine/api/anthropic.h"

#include "engine/api/receipt.h"
#include "engine/api/surface.h"

#include "config/limits.h"

#include <string.h>

static const char *const STOP_REASONS[] = {[FINISH_STOP] = "end_turn",
                                           [FINISH_STRING] = "stop_sequence",
                                           [FINISH_LENGTH] = "max_tokens",
                                           [FINISH_CALLS] = "tool_use"};

/* Kinds of blocks, as struct reply has them in `block`. */
static const char THINKING[] = "thinking", TEXT[] = "text", TOOL_USE[] = "tool_use";

/* ---- parts of events and whole answers --------------------------------------------------------
 */

/* What is taken from the cache is no input in this API's count. */
static void dump_usage(struct reply *r)
{
    buf_printf(&r->out,
               "\"usage\":{\"input_tokens\":%d,\"cache_creation_input_tokens\":0,"
               "\"cache_read_input_tokens\":%d,\"output_tokens\":%d,",
               r->prompt_tokens - r->reused_tokens, r->reused_tokens, r->answer_tokens);
    surface_receipt(r);
    buf_puts(&r->out, "}");
}

static void dump_stop(struct reply *r)
{
    if (r->finish == FINISH_NONE)
        buf_puts(&r->out, "\"stop_reason\":null");
    else
        buf_printf(&r->out, "\"stop_reason\":\"%s\"", STOP_REASONS[r->finish]);
    buf_puts(&r->out, ",\"stop_sequence\":");
    if (r->finish == FINISH_STRING)
        json_dump_string(&r->out, r->stop.data, r->stop.len);
    else
        buf_puts(&r->out, "null");
}

/* A message up to its list of blocks. */
static void dump_front(struct reply *r)
{
    buf_printf(&r->out,
               "{\"id\":\"msg_%s\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"%s\","
               "\"content\":[",
               r->id + 4, r->api->model);
}

static void dump_back(struct reply *r)
{
    buf_puts(&r->out, "],");
    dump_stop(r);
    buf_puts(&r->out, ",");
    dump_usage(r);
    buf_puts(&r->out, "}");
}

static void dump_signature(struct reply *r)
{
    char signature[SIGNATURE_CHARS + 1];
    seal_sign(r->seal, r->reasoning.data, r->reasoning.len, signature);
    buf_printf(&r->out, "\"signature\":\"%s\"", signature);
}

static void dump_call_front(struct reply *r, const struct turn_call *call)
{
    buf_printf(&r->out, "{\"type\":\"tool_use\",\"id\":\"%s\",", call->id);
    surface_text(&r->out, "name", &call->call->name, 0);
    buf_puts(&r->out, ",\"input\":");
}

/* ---- events -----------------------------------------------------------------------------------
 */

static void begin_event(struct reply *r, const char *type)
{
    buf_printf(&r->out, "event: %s\ndata: {\"type\":\"%s\"", type, type);
}

static void end_event(struct reply *r)
{
    buf_puts(&r->out, "}\n\n");
}

/* What was reused is not known yet; the last event has the true count. */
static void begin(struct reply *r)
{
    begin_event(r, "message_start");
    buf_puts(&r->out, ",\"message\":");
    dump_front(r);
    dump_back(r);
    end_event(r);
}

static void begin_delta(struct reply *r, const char *type)
{
    begin_event(r, "content_block_delta");
    buf_printf(&r->out, ",\"index\":%d,\"delta\":{\"type\":\"%s\",", r->blocks - 1, type);
}

static void end_delta(struct reply *r)
{
    buf_puts(&r->out, "}");
    end_event(r);
}

static void end_block(struct reply *r)
{
    if (r->block == NULL)
        return;
    if (r->block == THINKING) {
        begin_delta(r, "signature_delta");
        dump_signature(r);
        end_delta(r);
    }
    begin_event(r, "content_block_stop");
    buf_printf(&r->out, ",\"index\":%d", r->blocks - 1);
    end_event(r);
    r->block = NULL;
}

/* A block of this kind is open afterwards; the caller writes what it begins with and ends the
 * event. */
static void begin_block(struct reply *r, const char *kind)
{
    end_block(r);
    r->block = kind;
    begin_event(r, "content_block_start");
    buf_printf(&r->out, ",\"index\":%d,\"content_block\":", r->blocks++);
}

static void begin_text(struct reply *r, const char *kind)
{
    begin_block(r, kind);
    buf_puts(&r->out, kind == THINKING
                          ? "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}"
                          : "{\"type\":\"text\",\"text\":\"\"}");
    end_event(r);
}

static void dump_new_text(struct reply *r, const char *kind, const struct buf *text, size_t *told)
{
    if (text->len == *told)
        return;
    if (r->block != kind)
        begin_text(r, kind);
    begin_delta(r, kind == THINKING ? "thinking_delta" : "text_delta");
    surface_text(&r->out, kind, text, *told);
    end_delta(r);
    *told = text->len;
}

static void dump_call_events(struct reply *r, const struct turn_call *call)
{
    const struct buf *arguments = &call->call->arguments;
    begin_block(r, TOOL_USE);
    dump_call_front(r, call);
    buf_puts(&r->out, "{}}");
    end_event(r);
    for (size_t from = 0, n; from < arguments->len; from += n) {
        n = surface_fragment(arguments, from);
        begin_delta(r, "input_json_delta");
        buf_puts(&r->out, "\"partial_json\":");
        json_dump_string(&r->out, arguments->data + from, n);
        end_delta(r);
    }
}

static void more(struct reply *r)
{
    dump_new_text(r, THINKING, &r->reasoning, &r->reasoning_told);
    dump_new_text(r, TEXT, &r->content, &r->content_told);
    for (; r->calls_told < r->n_calls; r->calls_told++)
        dump_call_events(r, &r->calls[r->calls_told]);
}

static void message_delta(struct reply *r)
{
    begin_event(r, "message_delta");
    buf_puts(&r->out, ",\"delta\":{");
    dump_stop(r);
    buf_puts(&r->out, "},");
    dump_usage(r);
    end_event(r);
}

/* Before the first block nobody knows of which kind it will be, and one that stays empty would come
 * back in the history.  A delta of the message may come at any time; Claude Code adds the whole
 * prompt to what a session costs at each one, so that they are rare. */
static void heartbeat_without_block(struct reply *r)
{
    r->silent_ms += r->api->heartbeat_ms;
    if (r->silent_ms < MESSAGES_SILENCE_MS) {
        begin_event(r, "ping");
        end_event(r);
        return;
    }
    r->silent_ms = 0;
    message_delta(r);
}

/* Claude Code counts events only, and of these not `ping`: after 300 s without another one it asks
 * again.  A delta of nothing is one, in the block that is open. */
static void heartbeat(struct reply *r)
{
    if (r->block == NULL) {
        heartbeat_without_block(r);
        return;
    }
    if (r->block == TOOL_USE) {
        begin_delta(r, "input_json_delta");
        buf_puts(&r->out, "\"partial_json\":\"\"");
    } else {
        begin_delta(r, r->block == THINKING ? "thinking_delta" : "text_delta");
        buf_printf(&r->out, "\"%s\":\"\"", r->block);
    }
    end_delta(r);
}

static void end(struct reply *r)
{
    end_block(r);
    message_delta(r);
    begin_event(r, "message_stop");
    end_event(r);
}

/* ---- a whole answer ---------------------------------------------------------------------------
 */

static void separate(struct reply *r)
{
    if (r->blocks++ > 0)
        buf_puts(&r->out, ",");
}

static void whole(struct reply *r)
{
    dump_front(r);
    if (r->reasoning.len > 0) {
        separate(r);
        buf_puts(&r->out, "{\"type\":\"thinking\",");
        surface_text(&r->out, "thinking", &r->reasoning, 0);
        buf_puts(&r->out, ",");
        dump_signature(r);
        buf_puts(&r->out, "}");
    }
    if (r->content.len > 0) {
        separate(r);
        buf_puts(&r->out, "{\"type\":\"text\",");
        surface_text(&r->out, "text", &r->content, 0);
        buf_puts(&r->out, "}");
    }
    for (int32_t i = 0; i < r->n_calls; i++) {
        separate(r);
        dump_call_front(r, &r->calls[i]);
        buf_add(&r->out, r->calls[i].call->arguments.data, r->calls[i].call->arguments.len);
        buf_puts(&r->out, "}");
    }
    dump_back(r);
}

/* ---- errors -----------------------------------------------------------------------------------
 */

void anthropic_path(const char *path, char out[API_PARAM_BYTES])
{
    static const struct api_path_row ROWS[] = {
        {"response_format.json_schema.schema", "output_config.format.schema", true},
        {"reasoning_effort", "output_config.effort", true},
        {"parallel_tool_calls", "tool_choice.disable_parallel_tool_use", true},
        {"stop", "stop_sequences", true},
        {".function.parameters", ".input_schema", false},
        {".function", "", false},
    };
    api_path(ROWS, sizeof ROWS / sizeof ROWS[0], path, out);
}

/* The words of this API where it has others. */
static const char *error_type(const struct api_error *err)
{
    const struct api_error_row *row = api_error_row(err->code);
    if (err->code == API_BODY_SIZE)
        return "request_too_large";
    return strcmp(row->type, "server_error") == 0 ? "api_error" : row->type;
}

/* The path is a member of its own: numbers in a message make some clients repeat the request. */
static void dump_error(struct buf *out, const char *id, const struct api_error *err)
{
    const struct api_error_row *row = api_error_row(err->code);
    char path[API_PARAM_BYTES];
    buf_printf(out, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":\"",
               error_type(err));
    if (err->code == API_OVERFLOW)
        buf_printf(out, ANTHROPIC_OVERFLOW_FORMAT, (long long)err->got, (long long)err->limit);
    else
        buf_puts(out, row->text);
    buf_printf(out, "\",\"code\":\"%s\",\"param\":", row->code);
    anthropic_path(err->param, path);
    if (path[0] == '\0')
        buf_puts(out, "null");
    else
        json_dump_string(out, path, strlen(path));
    buf_printf(out, "},\"request_id\":\"%s\"}", id);
}

static void dump_exchange_error(struct buf *out, const struct exchange *x,
                                const struct api_error *err)
{
    dump_error(out, x->id, err);
}

static void fault(struct reply *r, const struct api_error *err)
{
    buf_puts(&r->out, "event: error\ndata: ");
    dump_error(&r->out, r->id, err);
    buf_puts(&r->out, "\n\n");
}

/* ---- routes -----------------------------------------------------------------------------------
 */

const struct dialect ANTHROPIC_DIALECT = {.x_api_key = true, .dump_error = dump_exchange_error};

static bool parse(const struct exchange *x, struct request *out, struct api_error *err)
{
    return anthropic_parse(x, false, out, err);
}

const struct surface ANTHROPIC_SURFACE = {.parse = parse,
                                          .begin = begin,
                                          .more = more,
                                          .end = end,
                                          .fault = fault,
                                          .heartbeat = heartbeat,
                                          .whole = whole};

enum MHD_Result api_messages(struct exchange *x)
{
    return surface_answer(x, &ANTHROPIC_SURFACE);
}

enum MHD_Result api_count_tokens(struct exchange *x)
{
    struct request request;
    struct ids prompt = {0};
    struct buf body = {0};
    struct api_error err;
    bool good = anthropic_parse(x, true, &request, &err) &&
                request_render(x, &request, &prompt, NULL, &err);
    if (good)
        buf_printf(&body, "{\"input_tokens\":%zu}", prompt.len);
    request_clear(&request);
    ids_free(&prompt);
    http_body_done(x);
    return good ? http_reply(x, 200, "application/json", &body) : http_reply_error(x, &err);
}
