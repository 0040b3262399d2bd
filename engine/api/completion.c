/* One answer step by step: tokens to text and calls, and how it ends.  Knows no wire form. */
#include "engine/api/completion.h"

#include "config/limits.h"
#include "engine/api/logprobs.h"
#include "engine/audit/recorder.h"
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
    const struct surface *surface;     /* borrows */
    uint64_t number;                   /* of the engine request */
    bool events;                       /* streamed, else whole */
    enum phase phase;
    struct reply reply; /* owns its parts */
    struct api_error error;
    struct turns *turns; /* borrows, may be NULL */
    struct turn turn;    /* what is known of it at the start */
    struct ids ids;      /* of the answer, to its last part that is told */
    int32_t think_close;
    size_t logprobs_sure; /* of reply.logprobs: belongs to text that is content */
};

/* ---- steps: one piece of news each ---------------------------------------------------------- */

/* Takes the calls that have become complete. */
static void take_calls(struct completion *c)
{
    int32_t n;
    const struct dsml_call *calls = answer_calls(c->answer, &n);
    if (n == c->reply.n_calls)
        return;
    c->reply.calls = realloc(c->reply.calls, (size_t)n * sizeof *c->reply.calls);
    ASSERT(c->reply.calls != NULL);
    for (int32_t i = 0; i < n; i++)
        c->reply.calls[i].call = &calls[i]; /* may have moved */
    for (; c->reply.n_calls < n; c->reply.n_calls++) {
        unsigned char bytes[(CALL_ID_CHARS - 5) / 2];
        char *id = c->reply.calls[c->reply.n_calls].id;
        randombytes_buf(bytes, sizeof bytes);
        memcpy(id, "call_", 5);
        sodium_bin2hex(id + 5, CALL_ID_CHARS - 5 + 1, bytes, sizeof bytes);
    }
}

/* What the last step has added, if it is to be sent now. */
static void deliver(struct completion *c)
{
    take_calls(c);
    if (c->events)
        c->surface->more(&c->reply);
}

/* Lets the flight recorder have what was sampled, whatever becomes of it. */
static void record_end(struct completion *c)
{
    struct stream_progress progress;
    if (c->reply.api->recorder == NULL)
        return;
    stream_progress_get(c->stream, &progress);
    recorder_end(c->reply.api->recorder, c->reply.id, &c->ids, progress.reused);
}

/* Keeps the answer for the turns to come.  Its ids can stand for it only if they say what the
 * client was told, no more and no less. */
static void remember(struct completion *c)
{
    enum answer_block block = answer_block(c->answer);
    bool exact = answer_is_faithful(c->answer) && (block == BLOCK_NONE || block == BLOCK_ENDED);
    if (answer_in_reasoning(c->answer)) /* cut while thinking: the turn is closed all the same */
        ids_add(&c->ids, c->think_close);
    c->turn.reasoning = &c->reply.reasoning;
    c->turn.content = &c->reply.content;
    c->turn.calls = c->reply.calls;
    c->turn.n_calls = c->reply.n_calls;
    c->turn.ids = exact ? &c->ids : NULL;
    turns_put(c->turns, &c->turn);
}

static void break_off(struct completion *c, enum api_code code)
{
    engine_cancel(c->engine, c->number);
    record_end(c);
    c->phase = PHASE_BROKEN;
    if (code == API_OK)
        return;
    api_fail(&c->error, code, NULL);
    if (!c->events) /* told, and counted, as a status */
        return;
    metrics_error(c->reply.api->metrics, code);
    c->surface->fault(&c->reply, &c->error);
}

static void close_with(struct completion *c, enum finish finish)
{
    c->reply.finish = finish;
    c->reply.reasoning_tokens = answer_reasoning_tokens(c->answer);
    struct stream_progress progress;
    stream_progress_get(c->stream, &progress);
    c->reply.reused_tokens = progress.reused;
    c->phase = PHASE_CLOSED;
    record_end(c);
    remember(c);
    if (c->events)
        c->surface->end(&c->reply);
    else
        c->surface->whole(&c->reply);
}

/* The model has ended its answer.  Clients end in silence on an empty one (api.md 2.2), and an
 * agent whose call was lost stops in the middle of its work: both are faults that a new attempt may
 * mend. */
static void close_ended(struct completion *c)
{
    enum answer_block block = answer_block(c->answer);
    if (c->reply.n_calls > 0) {
        close_with(c, FINISH_CALLS);
    } else if (block == BLOCK_MALFORMED || block == BLOCK_OPEN) {
        log_line(LOG_LEVEL_WARN, "api", "%s tool call: %s", c->reply.id,
                 block == BLOCK_OPEN ? "not finished" : answer_block_fault(c->answer));
        break_off(c, API_TOOL_CALL);
    } else if (c->reply.reasoning.len == 0 && c->reply.content.len == 0) {
        break_off(c, API_ENGINE);
    } else {
        close_with(c, FINISH_STOP);
    }
}

/* Of the content alone: reasoning and calls have no place for it in these APIs.  What was held back
 * because a block of calls might begin is taken out again when one does. */
static void take_logprobs(struct completion *c, const struct stream_item *item, size_t content_len)
{
    struct buf *list = &c->reply.logprobs;
    if (answer_block(c->answer) != BLOCK_NONE) {
        list->len = c->logprobs_sure;
        return;
    }
    if (list->len > 0)
        buf_puts(list, ",");
    logprobs_dump(list, c->reply.api->tokenizer, item->logprobs, item->n_top);
    if (c->reply.content.len > content_len)
        c->logprobs_sure = list->len;
}

static void take_token(struct completion *c, const struct stream_item *item)
{
    int32_t id = item->id;
    bool reasoning = answer_in_reasoning(c->answer);
    size_t content_len = c->reply.content.len;
    c->reply.answer_tokens++;
    if (answer_block(c->answer) != BLOCK_ENDED)
        ids_add(&c->ids, id);
    bool over = answer_push(c->answer, id, &c->reply.reasoning, &c->reply.content);
    if (c->reply.has_logprobs && !reasoning)
        take_logprobs(c, item, content_len);
    deliver(c);
    if (!over)
        return;
    engine_cancel(c->engine, c->number);
    if (answer_block(c->answer) != BLOCK_NONE) {
        close_ended(c);
        return;
    }
    answer_stop_string(c->answer, &c->reply.stop);
    close_with(c, FINISH_STRING); /* perhaps before any text */
}

static void take_end(struct completion *c, enum end_reason reason)
{
    static const enum api_code FAULTS[] = {[END_CANCELLED] = API_ENGINE,
                                           [END_FAULT] = API_ENGINE,
                                           [END_DEADLINE] = API_DEADLINE,
                                           [END_LOST] = API_LOST};
    if (reason != END_STOP && reason != END_LENGTH) {
        break_off(c, FAULTS[reason]);
        return;
    }
    answer_finish(c->answer, &c->reply.reasoning, &c->reply.content);
    deliver(c);
    if (reason == END_STOP || answer_block(c->answer) == BLOCK_ENDED)
        close_ended(c);
    else
        close_with(c, FINISH_LENGTH);
}

/* Takes one piece of news.  @return false when there is none */
static bool step(struct completion *c, struct MHD_Connection *connection)
{
    struct stream_item item;
    switch (stream_next(c->stream, connection, &item)) {
    case STREAM_TOKEN:
        take_token(c, &item);
        break;
    case STREAM_END:
        take_end(c, item.reason);
        break;
    case STREAM_HEARTBEAT:
        if (c->events)
            c->surface->heartbeat(&c->reply);
        else
            buf_puts(&c->reply.out, "\n");
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

/* ---- the two ways to read ------------------------------------------------------------------- */

static size_t take_out(struct completion *c, char *out, size_t n_max)
{
    size_t n = c->reply.out.len - c->reply.out_taken;
    if (n > n_max)
        n = n_max;
    if (n > 0)
        memcpy(out, c->reply.out.data + c->reply.out_taken, n);
    c->reply.out_taken += n;
    if (n > 0)
        stream_spoke(c->stream);
    if (c->reply.out_taken == c->reply.out.len)
        c->reply.out.len = c->reply.out_taken = 0;
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
        if (c->phase == PHASE_OPEN && c->reply.out.len > 0)
            return COMPLETION_SLOW;
    }
    *err = c->error;
    return c->phase == PHASE_CLOSED ? COMPLETION_DONE : COMPLETION_FAILED;
}

struct buf completion_take(struct completion *c)
{
    struct buf whole = c->reply.out;
    c->reply.out = (struct buf){0};
    return whole;
}

/* ---- life ----------------------------------------------------------------------------------- */

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
    struct mask_options options = {.thinking = request->thinking && !request->prefix,
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

_Static_assert(KEY_PRIORITY_USUAL == PRIORITY_MAX + 1, "1 is the engine's least");

/* A key without the limit is as usual. */
static int32_t priority_of(const struct key *key)
{
    int64_t step = key->limits.values[KEY_PRIORITY];
    return step == 0 ? 0 : (int32_t)step - KEY_PRIORITY_USUAL;
}

/* Tools and formats bar tokens that matter; without them only calls that nobody offered are barred.
 */
static void record_begin(const struct completion *c, const struct api *api,
                         const struct request *request, const struct sampling *sampling,
                         const struct ids *prompt)
{
    struct recording what = {.time_s = c->reply.created_s,
                             .profile = c->reply.profile,
                             .sampling = *sampling,
                             .ruled = request->tools != NULL || request->schema != NULL ||
                                      request->format != MASK_TEXT};
    if (api->recorder == NULL)
        return;
    memcpy(what.id, c->reply.id, sizeof c->reply.id);
    recorder_begin(api->recorder, &what, prompt);
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
        .logprobs = request->logprobs,
        .top_logprobs = request->top_logprobs,
        .priority = priority_of(&x->key),
        .profile = &x->profile,
        .reuse_namespace = x->key.number,
    };
    if (request->deadline_ms > 0)
        job.deadline_ms = x->started_ms + request->deadline_ms;
    if (mask != NULL) /* the stream keeps it until the engine's last event */
        job.mask = (struct engine_mask){.fn = mask_fill, .user = mask};
    if (!request->seeded)
        randombytes_buf(&job.sampling.seed, sizeof job.sampling.seed);
    stream_retain(c->stream);
    record_begin(c, api, request, &job.sampling, prompt);
    enum status status =
        engine_submit(c->engine, &job, stream_on_event, c->stream, &c->number, NULL);
    if (status == OK)
        return true;
    stream_release(c->stream);
    api_fail(err, status == ERR_CAPACITY ? API_QUEUE : API_ENGINE, NULL);
    if (status == ERR_CAPACITY)
        err->retry_s = engine_retry_after_s(c->engine);
    return false;
}

/* What fits behind the prompt, at most what was asked for: harnesses always ask for 32000 tokens.
 */
static int32_t answer_limit(const struct request *request, int32_t room)
{
    int32_t wanted = request->tokens_max > 0 ? request->tokens_max : ANSWER_TOKENS_DEFAULT;
    if (wanted > ANSWER_TOKENS_MAX)
        wanted = ANSWER_TOKENS_MAX;
    if (request->logprobs && wanted > LOGPROBS_ENTRIES_MAX / (1 + request->top_logprobs))
        wanted = LOGPROBS_ENTRIES_MAX / (1 + request->top_logprobs);
    return wanted < room ? wanted : room;
}

bool completion_start(const struct api *api, const struct exchange *x,
                      const struct surface *surface, const struct request *request,
                      const struct ids *prompt, struct buf *take_receipt, struct completion **out,
                      struct api_error *err)
{
    int32_t context = api_context_max(api, &x->key);
    if (prompt->len >= (size_t)context)
        return api_fail_limit(err, API_OVERFLOW, "messages", context, (int64_t)prompt->len);
    struct answer_options options = {.tokenizer = api->tokenizer,
                                     .tokens = &api->tokens,
                                     .thinking = request->thinking && !request->prefix,
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
    c->stream = stream_create(tokens_max, request->logprobs ? 1 + request->top_logprobs : 0,
                              api->heartbeat_ms);
    stream_keep(c->stream, mask, drop_mask);
    c->surface = surface;
    memcpy(c->reply.id, x->id, sizeof c->reply.id);
    c->reply.api = api;
    memcpy(c->reply.seal, x->key.seal, sizeof c->reply.seal);
    c->reply.created_s = (int64_t)time(NULL);
    c->reply.profile = x->profile;
    api_fingerprint(api, &x->profile, c->reply.fingerprint);
    c->reply.has_logprobs = request->logprobs;
    c->reply.echo = json_object_get(request->echo);
    c->events = request->stream;
    c->reply.include_usage = request->include_usage;
    c->reply.prompt_tokens = (int32_t)prompt->len;
    /* What the client has begun is not the model's: such a turn is kept by the client alone. */
    c->turns = request->prefix ? NULL : api->turns;
    c->turn.key = x->key.number;
    c->turn.thinking = request->thinking;
    turns_hash(prompt->data, prompt->len, c->turn.context);
    c->think_close = api->tokens.think_close;
    if (!submit(c, api, x, request, prompt, tokens_max, mask, err)) {
        completion_free(c);
        return false;
    }
    c->reply.receipt = *take_receipt;
    *take_receipt = (struct buf){0};
    if (c->events)
        c->surface->begin(&c->reply);
    *out = c;
    return true;
}

/* Nothing was begun when the engine did not take it. */
static void account(const struct completion *c)
{
    static const char *const FINISHES[] = {[FINISH_STOP] = "stop",
                                           [FINISH_STRING] = "stop string",
                                           [FINISH_LENGTH] = "length",
                                           [FINISH_CALLS] = "tool calls"};
    const struct api *api = c->reply.api;
    bool closed = c->phase == PHASE_CLOSED, failed = !closed && c->error.code != API_OK;
    struct stream_progress progress;
    stream_progress_get(c->stream, &progress);
    char hash[PROFILE_HASH_BYTES];
    profile_hash_text(&c->reply.profile, hash);
    log_line(LOG_LEVEL_INFO, "api", "%s prompt=%d reused=%d answer=%d profile=%s/%s finish=%s",
             c->reply.id, c->reply.prompt_tokens, progress.reused, c->reply.answer_tokens,
             c->reply.profile.name, hash,
             closed   ? FINISHES[c->reply.finish]
             : failed ? api_error_row(c->error.code)->code
                      : "cancelled");
    metrics_answer(api->metrics, &(struct metrics_answer){
                                     .finish = failed                             ? METRICS_ERROR
                                               : !closed                          ? METRICS_ABORT
                                               : c->reply.finish == FINISH_LENGTH ? METRICS_LENGTH
                                                                                  : METRICS_STOP,
                                     .profile = &c->reply.profile,
                                     .started_ms = progress.started_ms,
                                     .first_token_ms = progress.first_token_ms,
                                     .last_token_ms = progress.last_token_ms,
                                     .ended_ms = progress.age_ms,
                                     .prompt_tokens = c->reply.prompt_tokens,
                                     .answer_tokens = c->reply.answer_tokens});
    if (api->meter != NULL)
        meter_tokens(api->meter, c->turn.key, meter_now(),
                     progress.computed + c->reply.answer_tokens);
}

void completion_free(void *completion)
{
    struct completion *c = completion;
    if (c->phase == PHASE_OPEN)
        engine_cancel(c->engine, c->number);
    if (c->phase == PHASE_OPEN && c->number != 0)
        record_end(c);
    if (c->number != 0)
        account(c);
    stream_detach(c->stream);
    stream_release(c->stream);
    answer_destroy(c->answer);
    buf_free(&c->reply.out);
    buf_free(&c->reply.stop);
    buf_free(&c->reply.receipt);
    buf_free(&c->reply.reasoning);
    buf_free(&c->reply.content);
    buf_free(&c->reply.sealed);
    buf_free(&c->reply.logprobs);
    json_object_put(c->reply.echo);
    sodium_memzero(c->reply.seal, sizeof c->reply.seal);
    ids_free(&c->ids);
    free(c->reply.calls);
    free(c);
}
