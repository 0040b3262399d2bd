/*
 * The form of answers and errors of the Responses API: items of reasoning, message and function
 * call, in numbered events or as a whole.  Translates no request.
 *
 * All of the reasoning is told as its summary, which is what clients show, and sealed, which is
 * what they send back; it is sealed whether or not they ask, since nothing is stored here.
 */
#include "engine/api/responses.h"

#include "engine/api/surface.h"

#include <string.h>

/* Kinds of items, as struct reply has them in `block`. */
static const char REASONING[] = "reasoning", MESSAGE[] = "message";

#define ID_HEX(r) ((r)->id + 4) /* behind "req_" */

/* ---- what is repeated -------------------------------------------------------------------------
 */

/* Members of a request that its response has too, and how it says that they were not given. */
static const struct {
    const char *name, *absent;
} ECHO[] = {
    {"instructions", "null"},
    {"max_output_tokens", "null"},
    {"metadata", "{}"},
    {"parallel_tool_calls", "true"},
    {"reasoning", "{\"effort\":null,\"summary\":null}"},
    {"temperature", "1.0"},
    {"text", "{\"format\":{\"type\":\"text\"}}"},
    {"tool_choice", "\"auto\""},
    {"tools", "[]"},
    {"top_p", "1.0"},
    {"truncation", "\"disabled\""},
};

struct json_object *responses_echo(struct json_object *body)
{
    struct json_object *echo = json_object_new_object();
    for (size_t i = 0; i < sizeof ECHO / sizeof ECHO[0]; i++) {
        struct json_object *value = json_member(body, ECHO[i].name, NULL);
        if (value != NULL)
            json_object_object_add(echo, ECHO[i].name, json_object_get(value));
    }
    return echo;
}

static void dump_echo(struct reply *r)
{
    for (size_t i = 0; i < sizeof ECHO / sizeof ECHO[0]; i++) {
        struct json_object *value = json_member(r->echo, ECHO[i].name, NULL);
        buf_printf(&r->out, "\"%s\":", ECHO[i].name);
        if (value == NULL)
            buf_puts(&r->out, ECHO[i].absent);
        else
            json_dump(&r->out, value);
        buf_puts(&r->out, ",");
    }
}

/* ---- items ------------------------------------------------------------------------------------
 */

/* How an item stands: begun, whole, or cut with the answer. */
enum progress { BEGUN, WHOLE, CUT };

static const char *const STATUSES[] = {
    [BEGUN] = "in_progress", [WHOLE] = "completed", [CUT] = "incomplete"};

/* An answer that max_tokens ended is cut in its last item; calls are always whole. */
static enum progress end_of(const struct reply *r, const char *kind)
{
    bool last = r->n_calls == 0 && (kind == MESSAGE || r->content.len == 0);
    return r->finish == FINISH_LENGTH && last ? CUT : WHOLE;
}

static const char *sealed_reasoning(struct reply *r)
{
    if (r->sealed.len == 0)
        seal_close(r->seal, r->reasoning.data, r->reasoning.len, &r->sealed);
    return buf_cstr(&r->sealed);
}

static void dump_summary(struct reply *r, enum progress progress)
{
    buf_puts(&r->out, "{\"type\":\"summary_text\",");
    surface_text(&r->out, "text", &r->reasoning, progress == BEGUN ? r->reasoning.len : 0);
    buf_puts(&r->out, "}");
}

static void dump_reasoning(struct reply *r, enum progress progress)
{
    buf_printf(&r->out, "{\"id\":\"rs_%s\",\"type\":\"reasoning\",\"status\":\"%s\",", ID_HEX(r),
               STATUSES[progress]);
    if (progress == BEGUN) {
        buf_puts(&r->out, "\"summary\":[],\"encrypted_content\":null}");
        return;
    }
    buf_puts(&r->out, "\"summary\":[");
    dump_summary(r, progress);
    buf_printf(&r->out, "],\"encrypted_content\":\"%s\"}", sealed_reasoning(r));
}

/* The member of a message's texts that has them from `told` on. */
static void dump_logprobs(struct reply *r, size_t told)
{
    buf_puts(&r->out, ",\"logprobs\":[");
    surface_logprobs(r, &told);
    buf_puts(&r->out, "]");
}

static void dump_part(struct reply *r, enum progress progress)
{
    buf_puts(&r->out, "{\"type\":\"output_text\",\"annotations\":[],");
    surface_text(&r->out, "text", &r->content, progress == BEGUN ? r->content.len : 0);
    dump_logprobs(r, progress == BEGUN ? r->logprobs.len : 0);
    buf_puts(&r->out, "}");
}

static void dump_message(struct reply *r, enum progress progress)
{
    buf_printf(&r->out,
               "{\"id\":\"msg_%s\",\"type\":\"message\",\"status\":\"%s\",\"role\":\"assistant\","
               "\"content\":[",
               ID_HEX(r), STATUSES[progress]);
    if (progress != BEGUN)
        dump_part(r, progress);
    buf_puts(&r->out, "]}");
}

/* The item's own id is made of that of its call. */
static void dump_call(struct reply *r, const struct turn_call *call, enum progress progress)
{
    const struct buf *arguments = &call->call->arguments;
    buf_printf(&r->out,
               "{\"id\":\"fc_%s\",\"type\":\"function_call\",\"status\":\"%s\",\"call_id\":\"%s\",",
               call->id + 5, STATUSES[progress], call->id);
    surface_text(&r->out, "name", &call->call->name, 0);
    buf_puts(&r->out, ",");
    surface_text(&r->out, "arguments", arguments, progress == BEGUN ? arguments->len : 0);
    buf_puts(&r->out, "}");
}

/* ---- a response -------------------------------------------------------------------------------
 */

static void separate(struct reply *r, bool *begun)
{
    if (*begun)
        buf_puts(&r->out, ",");
    *begun = true;
}

static void dump_output(struct reply *r)
{
    bool begun = false;
    if (r->reasoning.len > 0) {
        separate(r, &begun);
        dump_reasoning(r, end_of(r, REASONING));
    }
    if (r->content.len > 0) {
        separate(r, &begun);
        dump_message(r, end_of(r, MESSAGE));
    }
    for (int32_t i = 0; i < r->n_calls; i++) {
        separate(r, &begun);
        dump_call(r, &r->calls[i], WHOLE);
    }
}

static void dump_usage(struct reply *r)
{
    buf_printf(&r->out,
               "\"usage\":{\"input_tokens\":%d,\"input_tokens_details\":{\"cached_tokens\":%d},"
               "\"output_tokens\":%d,\"output_tokens_details\":{\"reasoning_tokens\":%d},"
               "\"total_tokens\":%d,",
               r->prompt_tokens, r->reused_tokens, r->answer_tokens, r->reasoning_tokens,
               r->prompt_tokens + r->answer_tokens);
    surface_receipt(r);
    buf_puts(&r->out, "}");
}

static enum progress progress_of(const struct reply *r)
{
    return r->finish == FINISH_NONE ? BEGUN : r->finish == FINISH_LENGTH ? CUT : WHOLE;
}

static void dump_response(struct reply *r)
{
    enum progress progress = progress_of(r);
    buf_printf(&r->out,
               "{\"id\":\"resp_%s\",\"object\":\"response\",\"created_at\":%lld,"
               "\"status\":\"%s\",\"model\":\"%s\",\"background\":false,\"error\":null,"
               "\"incomplete_details\":%s,\"previous_response_id\":null,\"store\":false,",
               ID_HEX(r), (long long)r->created_s, STATUSES[progress], r->api->model,
               progress == CUT ? "{\"reason\":\"max_output_tokens\"}" : "null");
    dump_echo(r);
    buf_puts(&r->out, "\"output\":[");
    if (progress != BEGUN)
        dump_output(r);
    buf_puts(&r->out, "],");
    if (progress == BEGUN)
        buf_puts(&r->out, "\"usage\":null");
    else
        dump_usage(r);
    buf_puts(&r->out, "}");
}

static void whole(struct reply *r)
{
    dump_response(r);
}

/* ---- events -----------------------------------------------------------------------------------
 */

static void begin_event(struct reply *r, const char *type)
{
    buf_printf(&r->out, "event: %s\ndata: {\"type\":\"%s\",\"sequence_number\":%d", type, type,
               r->events++);
}

static void end_event(struct reply *r)
{
    buf_puts(&r->out, "}\n\n");
}

static void dump_response_event(struct reply *r, const char *type)
{
    begin_event(r, type);
    buf_puts(&r->out, ",\"response\":");
    dump_response(r);
    end_event(r);
}

/* An event of the item that is open, up to its own members; `prefix` and `hex` are its id. */
static void begin_item_event(struct reply *r, const char *type, const char *prefix, const char *hex)
{
    begin_event(r, type);
    buf_printf(&r->out, ",\"output_index\":%d,\"item_id\":\"%s_%s\"", r->blocks - 1, prefix, hex);
}

/* The item itself, begun or done; the caller writes it and ends the event. */
static void begin_item(struct reply *r, const char *type)
{
    begin_event(r, type);
    buf_printf(&r->out, ",\"output_index\":%d,\"item\":", r->blocks - 1);
}

/* An item with one part of text: the names of its events and how it is written. */
static const struct text_item {
    const char *kind, *prefix, *index; /* `index`: the name that its events number the part by */
    const char *part_added, *delta, *text_done, *part_done;
    void (*dump_item)(struct reply *r, enum progress progress);
    void (*dump_part)(struct reply *r, enum progress progress);
    void (*dump_more)(struct reply *r, size_t told); /* what texts have besides; NULL: nothing */
} TEXT_ITEMS[] = {
    {REASONING, "rs", "summary_index", "response.reasoning_summary_part.added",
     "response.reasoning_summary_text.delta", "response.reasoning_summary_text.done",
     "response.reasoning_summary_part.done", dump_reasoning, dump_summary, NULL},
    {MESSAGE, "msg", "content_index", "response.content_part.added", "response.output_text.delta",
     "response.output_text.done", "response.content_part.done", dump_message, dump_part,
     dump_logprobs},
};

static void begin_part_event(struct reply *r, const struct text_item *item, const char *type)
{
    begin_item_event(r, type, item->prefix, ID_HEX(r));
    buf_printf(&r->out, ",\"%s\":0,", item->index);
}

static void dump_part_event(struct reply *r, const struct text_item *item, const char *type,
                            enum progress progress)
{
    begin_part_event(r, item, type);
    buf_puts(&r->out, "\"part\":");
    item->dump_part(r, progress);
    end_event(r);
}

static void begin_text_item(struct reply *r, const struct text_item *item)
{
    r->block = item->kind;
    r->blocks++;
    begin_item(r, "response.output_item.added");
    item->dump_item(r, BEGUN);
    end_event(r);
    dump_part_event(r, item, item->part_added, BEGUN);
}

static void end_text_item(struct reply *r, const struct text_item *item, const struct buf *text)
{
    enum progress progress = end_of(r, item->kind);
    if (r->block != item->kind)
        return;
    begin_part_event(r, item, item->text_done);
    surface_text(&r->out, "text", text, 0);
    if (item->dump_more != NULL)
        item->dump_more(r, 0);
    end_event(r);
    dump_part_event(r, item, item->part_done, progress);
    begin_item(r, "response.output_item.done");
    item->dump_item(r, progress);
    end_event(r);
    r->block = NULL;
}

static void end_open_item(struct reply *r)
{
    end_text_item(r, &TEXT_ITEMS[0], &r->reasoning);
    end_text_item(r, &TEXT_ITEMS[1], &r->content);
}

static void dump_new_text(struct reply *r, const struct text_item *item, const struct buf *text,
                          size_t *told)
{
    if (text->len == *told)
        return;
    if (r->block != item->kind) {
        end_open_item(r);
        begin_text_item(r, item);
    }
    begin_part_event(r, item, item->delta);
    surface_text(&r->out, "delta", text, *told);
    if (item->dump_more != NULL) {
        item->dump_more(r, r->logprobs_told);
        r->logprobs_told = r->logprobs.len;
    }
    end_event(r);
    *told = text->len;
}

static void dump_call_events(struct reply *r, const struct turn_call *call)
{
    static const char DELTA[] = "response.function_call_arguments.delta";
    const struct buf *arguments = &call->call->arguments;
    end_open_item(r);
    r->blocks++;
    begin_item(r, "response.output_item.added");
    dump_call(r, call, BEGUN);
    end_event(r);
    for (size_t from = 0, n; from < arguments->len; from += n) {
        n = surface_fragment(arguments, from);
        begin_item_event(r, DELTA, "fc", call->id + 5);
        buf_puts(&r->out, ",\"delta\":");
        json_dump_string(&r->out, arguments->data + from, n);
        end_event(r);
    }
    begin_item_event(r, "response.function_call_arguments.done", "fc", call->id + 5);
    buf_puts(&r->out, ",");
    surface_text(&r->out, "name", &call->call->name, 0);
    buf_puts(&r->out, ",");
    surface_text(&r->out, "arguments", arguments, 0);
    end_event(r);
    begin_item(r, "response.output_item.done");
    dump_call(r, call, WHOLE);
    end_event(r);
}

static void begin(struct reply *r)
{
    dump_response_event(r, "response.created");
    dump_response_event(r, "response.in_progress");
}

static void more(struct reply *r)
{
    dump_new_text(r, &TEXT_ITEMS[0], &r->reasoning, &r->reasoning_told);
    dump_new_text(r, &TEXT_ITEMS[1], &r->content, &r->content_told);
    for (; r->calls_told < r->n_calls; r->calls_told++)
        dump_call_events(r, &r->calls[r->calls_told]);
}

static void end(struct reply *r)
{
    end_open_item(r);
    dump_response_event(r, progress_of(r) == CUT ? "response.incomplete" : "response.completed");
}

/* ---- errors -----------------------------------------------------------------------------------
 */

void responses_path(const char *path, char out[API_PARAM_BYTES])
{
    static const struct api_path_row ROWS[] = {
        {"response_format.json_schema", "text.format", true},
        {"response_format", "text.format", true},
        {"reasoning_effort", "reasoning.effort", true},
        {"max_completion_tokens", "max_output_tokens", true},
        {"logprobs", "include", true},
        {"messages", "input", true},
        {".function", "", false},
    };
    api_path(ROWS, sizeof ROWS / sizeof ROWS[0], path, out);
}

static void dump_error(struct buf *out, const struct api_error *err)
{
    struct api_error own = *err;
    responses_path(err->param, own.param);
    api_error_dump(out, &own);
}

static void dump_exchange_error(struct buf *out, const struct exchange *x,
                                const struct api_error *err)
{
    (void)x;
    dump_error(out, err);
}

/* Clients look for the error's members in the event, or for the error as one member: both. */
static void fault(struct reply *r, const struct api_error *err)
{
    const struct api_error_row *row = api_error_row(err->code);
    struct buf error = {0};
    dump_error(&error, err);
    begin_event(r, "error");
    buf_printf(&r->out, ",\"code\":\"%s\",\"message\":\"%s\",\"param\":null,", row->code,
               row->text);
    buf_add(&r->out, error.data + 1, error.len - 2); /* without its braces */
    end_event(r);
    buf_free(&error);
}

/* ---- the route --------------------------------------------------------------------------------
 */

const struct dialect RESPONSES_DIALECT = {.dump_error = dump_exchange_error};

const struct surface RESPONSES_SURFACE = {.parse = responses_parse,
                                          .begin = begin,
                                          .more = more,
                                          .end = end,
                                          .fault = fault,
                                          .heartbeat = surface_comment,
                                          .whole = whole};

enum MHD_Result api_responses(struct exchange *x)
{
    return surface_answer(x, &RESPONSES_SURFACE);
}
