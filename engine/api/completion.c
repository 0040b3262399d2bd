/* Answers of /v1/chat/completions: chunks, usage, finish reasons. */
#include "engine/api/completion.h"

#include "config/limits.h"
#include "engine/base/log.h"
#include "engine/text/answer.h"
#include "kernels/check.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum phase {
    PHASE_OPEN,   /* more is to come */
    PHASE_CLOSED, /* all that will be said is in `out` */
    PHASE_BROKEN, /* the same, and then the connection breaks */
};

struct completion {
    struct engine *engine;             /* borrows */
    struct MHD_Connection *connection; /* borrows */
    struct stream *stream;             /* owns one share */
    struct answer *answer;             /* owns */
    uint64_t number;                   /* of the engine request */
    char id[REQUEST_ID_CHARS + 1];
    const char *model, *fingerprint, *profile; /* borrows from struct api */
    int64_t created_s;
    bool events, include_usage; /* events: streamed, else whole */
    int32_t prompt_tokens, answer_tokens;
    enum phase phase;
    const char *finish; /* finish_reason, or NULL */
    struct api_error error;
    struct buf out; /* to be sent */
    size_t out_taken;
    struct buf reasoning, content;       /* of the answer so far */
    size_t reasoning_told, content_told; /* streamed: bytes in events */
    struct turn_call *calls;             /* owns [n_calls]: the complete ones, with their ids */
    int32_t n_calls;
    struct turns *turns; /* borrows, may be NULL */
    struct turn turn;    /* what is known of it at the start */
    struct ids ids;      /* of the answer, to its last part that is told */
    int32_t think_close;
};

/* ---- JSON
 * ---------------------------------------------------------------------------------------- */

/* The members that every chunk and every answer starts with. */
static void dump_front(struct completion *c, const char *object)
{
    buf_printf(&c->out,
               "{\"id\":\"chatcmpl-%s\",\"object\":\"%s\",\"created\":%lld,\"model\":\"%s\","
               "\"system_fingerprint\":\"%s\",\"choices\":[",
               c->id + 4, object, (long long)c->created_s, c->model, c->fingerprint);
}

static void dump_usage(struct completion *c)
{
    int32_t reused = stream_reused(c->stream);
    buf_printf(&c->out,
               "\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d,\"total_tokens\":%d,"
               "\"prompt_tokens_details\":{\"cached_tokens\":%d},"
               "\"completion_tokens_details\":{\"reasoning_tokens\":%d},"
               "\"prompt_cache_hit_tokens\":%d,\"prompt_cache_miss_tokens\":%d,"
               "\"v4box\":{\"rendered_tokens\":%d,\"reused_tokens\":%d,\"profile\":\"%s\"}}",
               c->prompt_tokens, c->answer_tokens, c->prompt_tokens + c->answer_tokens, reused,
               answer_reasoning_tokens(c->answer), reused, c->prompt_tokens - reused,
               c->prompt_tokens, reused, c->profile);
}

/* The bytes of `text` from `from` on. */
static void dump_text(struct completion *c, const char *name, const struct buf *text, size_t from)
{
    buf_printf(&c->out, "\"%s\":", name);
    json_dump_string(&c->out, text->len == from ? "" : text->data + from, text->len - from);
}

/* An event is its beginning, the members of the delta, and its end; `finish`: the reason or NULL.
 */
static void begin_chunk(struct completion *c)
{
    buf_puts(&c->out, "data: ");
    dump_front(c, "chat.completion.chunk");
    buf_puts(&c->out, "{\"index\":0,\"delta\":{");
}

static void end_chunk(struct completion *c, const char *finish)
{
    buf_puts(&c->out, "},\"logprobs\":null,\"finish_reason\":");
    if (finish != NULL)
        json_dump_string(&c->out, finish, strlen(finish));
    else
        buf_puts(&c->out, "null");
    buf_puts(&c->out, "}]}\n\n");
}

static void dump_text_chunk(struct completion *c, const char *name, const struct buf *text,
                            size_t *told)
{
    if (text->len == *told)
        return;
    begin_chunk(c);
    dump_text(c, name, text, *told);
    end_chunk(c, NULL);
    *told = text->len;
}

/* Some clients decide by the first delta that an assistant speaks. */
static void dump_role_chunk(struct completion *c)
{
    begin_chunk(c);
    buf_puts(&c->out, "\"role\":\"assistant\",\"content\":\"\"");
    end_chunk(c, NULL);
}

static void dump_call_front(struct completion *c, const struct turn_call *call)
{
    buf_printf(&c->out, "\"id\":\"%s\",\"type\":\"function\",\"function\":{", call->id);
    dump_text(c, "name", &call->call->name, 0);
    buf_puts(&c->out, ",\"arguments\":");
}

/* How much of the text fits one delta, in whole characters. */
static size_t fragment_length(const struct buf *text, size_t from)
{
    size_t n = text->len - from;
    if (n <= TOOL_FRAGMENT_BYTES)
        return n;
    for (n = TOOL_FRAGMENT_BYTES; ((unsigned char)text->data[from + n] & 0xC0) == 0x80;)
        n--;
    return n;
}

/* A complete call: its name, then its arguments piece by piece (api.md 1.2). */
static void dump_call_chunks(struct completion *c, int32_t idx)
{
    const struct buf *arguments = &c->calls[idx].call->arguments;
    begin_chunk(c);
    buf_printf(&c->out, "\"tool_calls\":[{\"index\":%d,", idx);
    dump_call_front(c, &c->calls[idx]);
    buf_puts(&c->out, "\"\"}}]");
    end_chunk(c, NULL);
    for (size_t from = 0, n; from < arguments->len; from += n) {
        n = fragment_length(arguments, from);
        begin_chunk(c);
        buf_printf(&c->out, "\"tool_calls\":[{\"index\":%d,\"function\":{\"arguments\":", idx);
        json_dump_string(&c->out, arguments->data + from, n);
        buf_puts(&c->out, "}}]");
        end_chunk(c, NULL);
    }
}

static void dump_last_events(struct completion *c)
{
    begin_chunk(c);
    end_chunk(c, c->finish);
    if (c->include_usage) {
        buf_puts(&c->out, "data: ");
        dump_front(c, "chat.completion.chunk");
        buf_puts(&c->out, "],");
        dump_usage(c);
        buf_puts(&c->out, "}\n\n");
    }
    buf_puts(&c->out, "data: [DONE]\n\n");
}

static void dump_whole(struct completion *c)
{
    dump_front(c, "chat.completion");
    buf_puts(&c->out, "{\"index\":0,\"message\":{\"role\":\"assistant\",");
    dump_text(c, "content", &c->content, 0);
    if (c->reasoning.len > 0) {
        buf_puts(&c->out, ",");
        dump_text(c, "reasoning_content", &c->reasoning, 0);
    }
    for (int32_t i = 0; i < c->n_calls; i++) {
        const struct buf *arguments = &c->calls[i].call->arguments;
        buf_puts(&c->out, i == 0 ? ",\"tool_calls\":[{" : ",{");
        dump_call_front(c, &c->calls[i]);
        json_dump_string(&c->out, arguments->data, arguments->len);
        buf_puts(&c->out, i == c->n_calls - 1 ? "}}]" : "}}");
    }
    buf_printf(&c->out, "},\"logprobs\":null,\"finish_reason\":\"%s\"}],", c->finish);
    dump_usage(c);
    buf_puts(&c->out, "}");
}

/* ---- steps: one piece of news each
 * ---------------------------------------------------------------- */

/* Takes the calls that have become complete. */
static void take_calls(struct completion *c)
{
    int32_t n;
    const struct dsml_call *calls = answer_calls(c->answer, &n);
    if (n == c->n_calls)
        return;
    c->calls = realloc(c->calls, (size_t)n * sizeof *c->calls);
    ASSERT(c->calls != NULL);
    for (int32_t i = 0; i < n; i++)
        c->calls[i].call = &calls[i]; /* may have moved */
    for (; c->n_calls < n; c->n_calls++) {
        unsigned char bytes[(CALL_ID_CHARS - 5) / 2];
        char *id = c->calls[c->n_calls].id;
        randombytes_buf(bytes, sizeof bytes);
        memcpy(id, "call_", 5);
        sodium_bin2hex(id + 5, CALL_ID_CHARS - 5 + 1, bytes, sizeof bytes);
        if (c->events)
            dump_call_chunks(c, c->n_calls);
    }
}

/* What the last step has added, if it is to be sent now. */
static void deliver(struct completion *c)
{
    if (c->events) {
        dump_text_chunk(c, "reasoning_content", &c->reasoning, &c->reasoning_told);
        dump_text_chunk(c, "content", &c->content, &c->content_told);
    }
    take_calls(c);
}

/* Keeps the answer for the turns to come.  Its ids can stand for it only if they say what the
 * client was told, no more and no less. */
static void remember(struct completion *c)
{
    enum answer_block block = answer_block(c->answer);
    bool exact = answer_is_faithful(c->answer) && (block == BLOCK_NONE || block == BLOCK_ENDED);
    if (answer_in_reasoning(c->answer)) /* cut while thinking: the turn is closed all the same */
        ids_add(&c->ids, c->think_close);
    c->turn.reasoning = &c->reasoning;
    c->turn.content = &c->content;
    c->turn.calls = c->calls;
    c->turn.n_calls = c->n_calls;
    c->turn.ids = exact ? &c->ids : NULL;
    turns_put(c->turns, &c->turn);
}

static void break_off(struct completion *c, enum api_code code)
{
    engine_cancel(c->engine, c->number);
    c->phase = PHASE_BROKEN;
    if (code == API_OK)
        return;
    api_fail(&c->error, code, NULL);
    if (!c->events)
        return;
    buf_puts(&c->out, "data: ");
    api_error_dump(&c->out, &c->error);
    buf_puts(&c->out, "\n\n");
}

static void close_with(struct completion *c, const char *finish)
{
    c->finish = finish;
    c->phase = PHASE_CLOSED;
    remember(c);
    if (c->events)
        dump_last_events(c);
    else
        dump_whole(c);
}

/* The model has ended its answer.  Clients end in silence on an empty one (api.md 2.2), and an
 * agent whose call was lost stops in the middle of its work: both are faults that a new attempt may
 * mend. */
static void close_ended(struct completion *c)
{
    enum answer_block block = answer_block(c->answer);
    if (c->n_calls > 0) {
        close_with(c, "tool_calls");
    } else if (block == BLOCK_MALFORMED || block == BLOCK_OPEN) {
        log_line(LOG_LEVEL_WARN, "api", "%s tool call: %s", c->id,
                 block == BLOCK_OPEN ? "not finished" : answer_block_fault(c->answer));
        break_off(c, API_TOOL_CALL);
    } else if (c->reasoning.len == 0 && c->content.len == 0) {
        break_off(c, API_ENGINE);
    } else {
        close_with(c, "stop");
    }
}

static void take_token(struct completion *c, int32_t id)
{
    c->answer_tokens++;
    if (answer_block(c->answer) != BLOCK_ENDED)
        ids_add(&c->ids, id);
    bool over = answer_push(c->answer, id, &c->reasoning, &c->content);
    deliver(c);
    if (!over)
        return;
    engine_cancel(c->engine, c->number);
    if (answer_block(c->answer) == BLOCK_NONE)
        close_with(c, "stop"); /* at a stop string, perhaps before any text */
    else
        close_ended(c);
}

static void take_end(struct completion *c, enum end_reason reason)
{
    if (reason != END_STOP && reason != END_LENGTH) {
        break_off(c, API_ENGINE);
        return;
    }
    answer_finish(c->answer, &c->reasoning, &c->content);
    deliver(c);
    if (reason == END_STOP || answer_block(c->answer) == BLOCK_ENDED)
        close_ended(c);
    else
        close_with(c, "length");
}

/* Takes one piece of news.  @return false when there is none */
static bool step(struct completion *c, struct MHD_Connection *connection)
{
    struct stream_item item;
    switch (stream_next(c->stream, connection, &item)) {
    case STREAM_TOKEN:
        take_token(c, item.id);
        break;
    case STREAM_END:
        take_end(c, item.reason);
        break;
    case STREAM_HEARTBEAT:
        buf_puts(&c->out, c->events ? ": keep-alive\n\n" : "\n");
        break;
    case STREAM_GONE:
        break_off(c, API_OK);
        break;
    case STREAM_STOPPING:
        break_off(c, API_STOPPING);
        break;
    case STREAM_UNSTARTED:
        break_off(c, API_QUEUE_WAIT);
        break;
    case STREAM_WALL:
        break_off(c, API_WALL);
        break;
    case STREAM_NOTHING:
        return false;
    }
    return true;
}

/* ---- the two ways to read
 * ------------------------------------------------------------------------- */

static size_t take_out(struct completion *c, char *out, size_t n_max)
{
    size_t n = c->out.len - c->out_taken;
    if (n > n_max)
        n = n_max;
    if (n > 0)
        memcpy(out, c->out.data + c->out_taken, n);
    c->out_taken += n;
    if (c->out_taken == c->out.len)
        c->out.len = c->out_taken = 0;
    return n;
}

ssize_t completion_read(void *completion, uint64_t position, char *out, size_t n_max)
{
    struct completion *c = completion;
    size_t n = 0;
    (void)position;
    for (;;) {
        n += take_out(c, out + n, n_max - n);
        if (n > STREAM_AHEAD_BYTES || n == n_max)
            return (ssize_t)n;
        if (c->phase != PHASE_OPEN)
            break;
        /* The connection waits only with empty hands. */
        if (!step(c, n == 0 ? c->connection : NULL))
            return (ssize_t)n;
    }
    if (n > 0)
        return (ssize_t)n;
    return c->phase == PHASE_CLOSED ? MHD_CONTENT_READER_END_OF_STREAM
                                    : MHD_CONTENT_READER_END_WITH_ERROR;
}

enum completion_state completion_collect(struct completion *c, struct api_error *err)
{
    while (c->phase == PHASE_OPEN) {
        if (!step(c, c->connection))
            return COMPLETION_WAITS;
        if (c->phase == PHASE_OPEN && c->out.len > 0)
            return COMPLETION_SLOW;
    }
    *err = c->error;
    return c->phase == PHASE_CLOSED ? COMPLETION_DONE : COMPLETION_FAILED;
}

struct buf completion_take(struct completion *c)
{
    struct buf whole = c->out;
    c->out = (struct buf){0};
    return whole;
}

/* ---- life
 * ------------------------------------------------------------------------------------------ */

struct stream *completion_stream(struct completion *c)
{
    return c->stream;
}

/* "PATH: what" of mask_create as an error of the API; of a long path the end, which has the
 * keyword.
 */
static bool mask_fail(enum status status, const struct error *why, struct api_error *err)
{
    enum api_code code = status == ERR_CAPACITY ? API_SCHEMA_SIZE : API_SCHEMA;
    const char *base = strncmp(why->text, "schema", 6) == 0 ? "response_format.json_schema." : "";
    size_t room = API_PARAM_BYTES - 1 - strlen(base), len = strcspn(why->text, ":");
    if (len <= room)
        return api_fail(err, code, "%s%.*s", base, (int)len, why->text);
    room -= 3;
    return api_fail(err, code, "%s...%.*s", base, (int)room, why->text + len - room);
}

/* What the answer is held to: its format; only offered tools can be called, in the form that can be
 * read, and none where none is offered (a history with calls makes models try).  *out may stay
 * NULL. */
static bool make_mask(const struct api *api, const struct request *request, struct mask **out,
                      struct api_error *err)
{
    bool must = request->choice == CHOICE_REQUIRED || request->choice == CHOICE_NAMED;
    struct mask_options options = {.thinking = request->thinking,
                                   .calls = request->tools == NULL ? MASK_CALLS_NONE
                                            : must                 ? MASK_CALLS_REQUIRED
                                                                   : MASK_CALLS_AUTO,
                                   .tools = request->tools,
                                   .tool_name = request->choice_name == NULL
                                                    ? NULL
                                                    : json_object_get_string(request->choice_name),
                                   .calls_max = request->calls_max,
                                   .format = request->format,
                                   .schema = request->schema,
                                   .schema_strict = request->schema_strict};
    struct error why;
    *out = NULL;
    if (api->masks == NULL)
        return true;
    enum status status = mask_create(api->masks, &options, out, &why);
    return status == OK || mask_fail(status, &why, err);
}

static void drop_mask(void *mask)
{
    mask_destroy(mask);
}

static bool submit(struct completion *c, const struct api *api, const struct exchange *x,
                   const struct request *request, const struct ids *prompt, int32_t tokens_max,
                   struct mask *mask, struct api_error *err)
{
    struct engine_request job = {
        .ids = prompt->data,
        .n_ids = (int32_t)prompt->len,
        .tokens_max = tokens_max,
        .stop_ids = &api->tokens.eos,
        .n_stop_ids = 1,
        .sampling = request->sampling,
        .reuse_namespace = x->key.number,
    };
    if (mask != NULL) /* the stream keeps it until the engine's last event */
        job.mask = (struct engine_mask){.fn = mask_fill, .user = mask};
    if (!request->seeded)
        randombytes_buf(&job.sampling.seed, sizeof job.sampling.seed);
    stream_retain(c->stream);
    enum status status =
        engine_submit(c->engine, &job, stream_on_event, c->stream, &c->number, NULL);
    if (status == OK)
        return true;
    stream_release(c->stream);
    return api_fail(err, status == ERR_CAPACITY ? API_QUEUE : API_ENGINE, NULL);
}

/* What fits behind the prompt, at most what was asked for: harnesses always ask for 32000 tokens.
 */
static int32_t answer_limit(const struct request *request, int32_t room)
{
    int32_t wanted = request->tokens_max > 0 ? request->tokens_max : ANSWER_TOKENS_DEFAULT;
    if (wanted > ANSWER_TOKENS_MAX)
        wanted = ANSWER_TOKENS_MAX;
    return wanted < room ? wanted : room;
}

bool completion_start(const struct api *api, const struct exchange *x,
                      const struct request *request, const struct ids *prompt,
                      struct completion **out, struct api_error *err)
{
    int32_t context = engine_context_max(api->engine);
    if (prompt->len >= (size_t)context)
        return api_fail_limit(err, API_OVERFLOW, "messages", context, (int64_t)prompt->len);
    struct answer_options options = {.tokenizer = api->tokenizer,
                                     .tokens = &api->tokens,
                                     .thinking = request->thinking,
                                     .stops = request->stops,
                                     .n_stops = request->n_stops,
                                     .tools = request->tools,
                                     .calls_max = request->calls_max};
    struct answer *answer;
    struct mask *mask;
    if (!make_mask(api, request, &mask, err))
        return false;
    if (answer_create(&options, &answer, NULL) != OK) {
        mask_destroy(mask);
        return api_fail(err, API_VALUE, "stop");
    }

    struct completion *c = calloc(1, sizeof *c);
    ASSERT(c != NULL);
    int32_t tokens_max = answer_limit(request, context - (int32_t)prompt->len);
    c->engine = api->engine;
    c->connection = x->connection;
    c->answer = answer;
    c->stream = stream_create(tokens_max, api->heartbeat_ms);
    stream_keep(c->stream, mask, drop_mask);
    memcpy(c->id, x->id, sizeof c->id);
    c->model = api->model;
    c->fingerprint = api->fingerprint;
    c->profile = api->profile;
    c->created_s = (int64_t)time(NULL);
    c->events = request->stream;
    c->include_usage = request->include_usage;
    c->prompt_tokens = (int32_t)prompt->len;
    c->turns = api->turns;
    c->turn.key = x->key.number;
    c->turn.thinking = request->thinking;
    turns_hash(prompt->data, prompt->len, c->turn.context);
    c->think_close = api->tokens.think_close;
    if (!submit(c, api, x, request, prompt, tokens_max, mask, err)) {
        completion_free(c);
        return false;
    }
    if (c->events)
        dump_role_chunk(c);
    *out = c;
    return true;
}

void completion_free(void *completion)
{
    struct completion *c = completion;
    if (c->phase == PHASE_OPEN)
        engine_cancel(c->engine, c->number);
    log_line(LOG_LEVEL_INFO, "api", "%s prompt=%d reused=%d answer=%d finish=%s", c->id,
             c->prompt_tokens, stream_reused(c->stream), c->answer_tokens,
             c->finish != NULL         ? c->finish
             : c->error.code != API_OK ? api_error_row(c->error.code)->code
                                       : "cancelled");
    stream_detach(c->stream);
    stream_release(c->stream);
    answer_destroy(c->answer);
    buf_free(&c->out);
    buf_free(&c->reasoning);
    buf_free(&c->content);
    ids_free(&c->ids);
    free(c->calls);
    free(c);
}
