/*
 * The engine thread: takes requests from a bounded queue, gives each a timeline, feeds the model
 * what schedule.c chooses, samples, and tells the callers.  Everything it works on is allocated in
 * engine_create.  Knows no text, no HTTP and no keys.
 *
 * Ownership: a request record belongs to the queue or to one timeline until finish() frees it; the
 * timelines belong to the engine thread alone.  `lock` protects what other threads see.  No
 * callback runs under it.
 */
#include "engine/engine.h"

#include "config/limits.h"
#include "engine/base/log.h"
#include "engine/base/thread.h"
#include "engine/model/prefix.h"
#include "engine/serve/sampler.h"
#include "engine/serve/schedule.h"
#include "kernels/check.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(STEP_PREFILL_MIXED_MAX + SESSIONS_MAX * (1 + DRAFT_DEPTH_MAX) <= STEP_TOKENS_MAX,
               "guesses fit beside what schedule.c deals");

enum request_state { REQUEST_FREE, REQUEST_WAITING, REQUEST_RUNNING };

struct request {
    enum request_state state; /* lock */
    bool cancel;              /* lock */
    uint64_t number;          /* lock */
    int32_t *ids;             /* owns; [context_max], the prompt */
    int32_t n_ids, tokens_max, n_stop_ids;
    int32_t stop_ids[STOP_IDS_MAX];
    struct sampling sampling;
    struct engine_mask mask;
    uint64_t reuse_namespace;
    engine_event_fn *on_event;
    void *user;       /* borrows */
    int32_t n_reused; /* prompt tokens that its timeline held already */
    int32_t n_answer; /* tokens delivered */
};

/* A token timeline: what the model has been fed, kept after the answer for a later continuation. */
struct timeline {
    struct sequence *sequence; /* owns */
    int32_t *ids;              /* owns; [context_max], the tokens fed */
    int32_t n_ids;             /* equals sequence_length */
    uint64_t reuse_namespace;  /* who may continue it; 0: nobody, and then it is empty */
    uint64_t used;             /* turn of its last request: the smallest is given away first */
    struct request *request;   /* borrows; NULL: idle */
    /* Fed next: the sampled token, then guesses of what follows it.  None: n_next is 0. */
    int32_t next[1 + DRAFT_DEPTH_MAX], n_next;
    float *logits; /* owns; [1 + DRAFT_DEPTH_MAX, vocab_size] */
};

struct engine {
    struct model *model; /* owns */
    struct engine_options options;
    struct prefix *prefix; /* owns; NULL: no prefix cache */
    struct sampler sampler;
    uint64_t *allowed;          /* owns; [(vocab_size + 63) / 64], of one mask */
    struct timeline *timelines; /* owns; [sessions_max] */
    struct request *requests;   /* owns; [n_requests] */
    int32_t n_requests;         /* sessions_max + queue_max */
    uint64_t turn;              /* requests started so far */
    pthread_t thread;

    pthread_mutex_t lock;   /* protects all below and the marked members of requests */
    pthread_cond_t work;    /* something was submitted, or stopping */
    struct request **queue; /* owns; [n_requests], oldest first */
    uint64_t next_number;
    bool stopping;
    struct engine_stats stats;
};

/* ---- the end of a request ------------------------------------------------------------------- */

/* Frees the record, then delivers the last event: who is told may submit again at once. */
static void finish(struct engine *e, struct request *r, enum end_reason reason)
{
    engine_event_fn *on_event = r->on_event;
    void *user = r->user;
    pthread_mutex_lock(&e->lock);
    ASSERT(r->state != REQUEST_FREE);
    if (r->state == REQUEST_RUNNING)
        e->stats.running--;
    r->state = REQUEST_FREE;
    pthread_mutex_unlock(&e->lock);
    on_event(user, &(struct engine_event){.kind = EVENT_END, .reason = reason});
}

/* Lets other threads see what the prefix cache holds. */
static void note_prefixes(struct engine *e)
{
    struct prefix_stats stats;
    prefix_stats_get(e->prefix, &stats);
    pthread_mutex_lock(&e->lock);
    e->stats.prefix_blocks = stats.blocks;
    e->stats.prefix_tails = stats.tails;
    e->stats.prefix_evicted = stats.evicted;
    pthread_mutex_unlock(&e->lock);
}

static void timeline_empty(struct timeline *t)
{
    sequence_reset(t->sequence);
    t->n_ids = 0;
    t->reuse_namespace = 0;
}

/* Ends a timeline's request.  What was fed stays for a continuation, unless it can not be trusted
 * or nobody may have it. */
static void timeline_finish(struct engine *e, struct timeline *t, enum end_reason reason)
{
    struct request *r = t->request;
    t->request = NULL;
    t->n_next = 0;
    if (reason == END_FAULT && e->prefix != NULL) {
        prefix_forget(e->prefix, t->reuse_namespace);
        note_prefixes(e);
    }
    if (reason == END_FAULT || t->reuse_namespace == 0)
        timeline_empty(t);
    finish(e, r, reason);
}

/* ---- cancel and admission ------------------------------------------------------------------- */

/* Takes the first cancelled request (any, when stopping) out of the queue.  @return NULL: none */
static struct request *queue_take_cancelled(struct engine *e)
{
    struct request *taken = NULL;
    pthread_mutex_lock(&e->lock);
    for (int32_t i = 0; i < e->stats.waiting; i++) {
        if (e->queue[i]->cancel || e->stopping) {
            taken = e->queue[i];
            e->stats.waiting--;
            memmove(&e->queue[i], &e->queue[i + 1],
                    (size_t)(e->stats.waiting - i) * sizeof(struct request *));
            break;
        }
    }
    pthread_mutex_unlock(&e->lock);
    return taken;
}

static bool cancelled(struct engine *e, const struct request *r)
{
    pthread_mutex_lock(&e->lock);
    bool yes = r->cancel || e->stopping;
    pthread_mutex_unlock(&e->lock);
    return yes;
}

static void end_cancelled(struct engine *e)
{
    struct request *r;
    while ((r = queue_take_cancelled(e)) != NULL)
        finish(e, r, END_CANCELLED);
    for (int32_t i = 0; i < e->options.sessions_max; i++) {
        struct timeline *t = &e->timelines[i];
        if (t->request != NULL && cancelled(e, t->request))
            timeline_finish(e, t, END_CANCELLED);
    }
}

/* Tokens of `t` that request `r` can continue: all of them, or none. */
static int32_t reusable(const struct timeline *t, const struct request *r)
{
    if (r->reuse_namespace == 0 || t->reuse_namespace != r->reuse_namespace || t->n_ids >= r->n_ids)
        return 0;
    return memcmp(t->ids, r->ids, (size_t)t->n_ids * sizeof *t->ids) == 0 ? t->n_ids : 0;
}

/* Tokens of the longest stored prefix that request `r` can continue. */
static int32_t stored(const struct engine *e, const struct request *r)
{
    if (e->prefix == NULL || r->reuse_namespace == 0)
        return 0;
    /* The last token is always fed: its logits are what the answer starts from. */
    return prefix_find(e->prefix, r->reuse_namespace, r->ids, r->n_ids - 1);
}

/* Tokens that `r` saves by taking `t` as it is, when the prefix cache holds `in_cache`. */
static int32_t worth(const struct timeline *t, const struct request *r, int32_t in_cache)
{
    int32_t n = reusable(t, r);
    return n >= in_cache ? n : 0;
}

/* The idle timeline that fits best: the longest continuation, unless the prefix cache holds more;
 * else an empty one, else the one that was used longest ago.  @return NULL: all are running */
static struct timeline *timeline_choose(struct engine *e, const struct request *r)
{
    struct timeline *best = NULL;
    int32_t in_cache = stored(e, r);
    for (int32_t i = 0; i < e->options.sessions_max; i++) {
        struct timeline *t = &e->timelines[i];
        if (t->request != NULL)
            continue;
        if (best == NULL || worth(t, r, in_cache) > worth(best, r, in_cache)) {
            best = t;
        } else if (worth(t, r, in_cache) == worth(best, r, in_cache)) {
            bool emptier = best->n_ids > 0 && t->n_ids == 0;
            if (emptier || ((t->n_ids == 0) == (best->n_ids == 0) && t->used < best->used))
                best = t;
        }
    }
    return best;
}

static struct request *queue_first(struct engine *e)
{
    pthread_mutex_lock(&e->lock);
    struct request *first = e->stats.waiting > 0 ? e->queue[0] : NULL;
    pthread_mutex_unlock(&e->lock);
    return first;
}

static void tell_prefill(const struct timeline *t)
{
    struct request *r = t->request;
    r->on_event(r->user, &(struct engine_event){.kind = EVENT_PREFILL,
                                                .done = t->n_ids,
                                                .total = r->n_ids,
                                                .reused = r->n_reused});
}

/* Brings the timeline to the longest prefix of the prompt that it or the cache holds. */
static void begin_with_prefix(struct engine *e, struct timeline *t, const struct request *r)
{
    int32_t in_cache = stored(e, r);
    if (worth(t, r, in_cache) > 0)
        return;
    timeline_empty(t);
    if (in_cache == 0)
        return;
    t->n_ids =
        prefix_restore(e->prefix, r->reuse_namespace, r->ids, r->n_ids - 1, e->turn, t->sequence);
    ASSERT(t->n_ids == in_cache && t->n_ids == sequence_length(t->sequence));
    memcpy(t->ids, r->ids, (size_t)t->n_ids * sizeof *t->ids);
}

/* Keeps the prefixes that `t` has just grown over: `before` tokens were known. */
static void save_prefixes(struct engine *e, const struct timeline *t, int32_t before)
{
    if (e->prefix == NULL || t->reuse_namespace == 0)
        return;
    int32_t n = before / SNAPSHOT_TOKENS * SNAPSHOT_TOKENS + SNAPSHOT_TOKENS;
    for (; n <= t->n_ids; n += SNAPSHOT_TOKENS)
        prefix_save(e->prefix, t->reuse_namespace, t->ids, n, e->turn, t->sequence);
    note_prefixes(e);
}

static void start(struct engine *e, struct timeline *t, struct request *r)
{
    e->turn++;
    begin_with_prefix(e, t, r);
    r->n_reused = t->n_ids;
    t->request = r;
    t->reuse_namespace = r->reuse_namespace;
    t->used = e->turn;
    pthread_mutex_lock(&e->lock);
    ASSERT(e->stats.waiting > 0 && e->queue[0] == r && r->state == REQUEST_WAITING);
    e->stats.waiting--;
    memmove(&e->queue[0], &e->queue[1], (size_t)e->stats.waiting * sizeof(struct request *));
    r->state = REQUEST_RUNNING;
    e->stats.running++;
    e->stats.prompt_tokens += (uint64_t)r->n_ids;
    e->stats.reused_tokens += (uint64_t)r->n_reused;
    pthread_mutex_unlock(&e->lock);
    tell_prefill(t);
}

static void admit(struct engine *e)
{
    struct request *r;
    while ((r = queue_first(e)) != NULL) {
        struct timeline *t = timeline_choose(e, r);
        if (t == NULL)
            return;
        start(e, t, r);
    }
}

/* ---- one step ------------------------------------------------------------------------------- */

/* What the timeline could be fed next. */
static struct schedule_slot hunger(const struct timeline *t)
{
    if (t->request == NULL)
        return (struct schedule_slot){0};
    if (t->n_next > 0)
        return (struct schedule_slot){.decode = true};
    ASSERT(t->n_ids < t->request->n_ids);
    return (struct schedule_slot){.prefill = t->request->n_ids - t->n_ids};
}

static bool is_stop(const struct request *r, int32_t id)
{
    for (int32_t i = 0; i < r->n_stop_ids; i++) {
        if (r->stop_ids[i] == id)
            return true;
    }
    return false;
}

/* Bars what the request's mask does not allow.  @return false: that is every token */
static bool apply_mask(struct engine *e, const struct timeline *t, float *logits)
{
    const struct request *r = t->request;
    int32_t vocab_size = e->sampler.vocab_size;
    if (r->mask.fn == NULL)
        return true;
    memset(e->allowed, 0, (size_t)((vocab_size + 63) / 64) * sizeof *e->allowed);
    if (!r->mask.fn(r->mask.user, t->ids + r->n_ids, t->n_ids - r->n_ids, e->allowed))
        return true;
    return sampler_bar(logits, e->allowed, vocab_size);
}

/* Samples the token behind the timeline's last one, or SAMPLE_FAULT. */
static int32_t choose(struct engine *e, const struct timeline *t, float *logits)
{
    const struct request *r = t->request;
    const char *wrong = "the mask allows no token";
    int32_t id = SAMPLE_FAULT;
    if (apply_mask(e, t, logits)) {
        id = sampler_pick(&e->sampler, logits, &r->sampling, (uint64_t)t->n_ids);
        wrong = "not a number among the logits";
    }
    if (id == SAMPLE_FAULT)
        log_line(LOG_LEVEL_ERROR, "serve", "request %llu: %s", (unsigned long long)r->number,
                 wrong);
    return id;
}

/* Delivers the chosen token, or ends the request with it. */
static void answer(struct engine *e, struct timeline *t, int32_t id)
{
    struct request *r = t->request;
    if (id == SAMPLE_FAULT || is_stop(r, id)) {
        timeline_finish(e, t, id == SAMPLE_FAULT ? END_FAULT : END_STOP);
        return;
    }
    pthread_mutex_lock(&e->lock);
    e->stats.answer_tokens++;
    pthread_mutex_unlock(&e->lock);
    r->n_answer++;
    t->next[0] = id;
    t->n_next = 1;
    r->on_event(r->user, &(struct engine_event){.kind = EVENT_TOKEN, .id = id});
    if (r->n_answer == r->tokens_max)
        timeline_finish(e, t, END_LENGTH);
}

/* The tokens that the timeline is fed next: sampled and guessed ones, or the rest of the prompt. */
static const int32_t *food(const struct timeline *t)
{
    return t->n_next > 0 ? t->next : t->request->ids + t->n_ids;
}

/* Takes note of `n` tokens that the timeline has for good. */
static void keep(struct engine *e, struct timeline *t, const int32_t *ids, int32_t n)
{
    memcpy(t->ids + t->n_ids, ids, (size_t)n * sizeof *ids);
    t->n_ids += n;
    save_prefixes(e, t, t->n_ids - n);
}

static void advance_prompt(struct engine *e, struct timeline *t, int32_t n)
{
    keep(e, t, food(t), n);
    ASSERT(sequence_length(t->sequence) == t->n_ids);
    tell_prefill(t);
    if (t->n_ids == t->request->n_ids)
        answer(e, t, choose(e, t, t->logits));
}

/*
 * The model was fed the sampled token and guesses.  A guess stands when it is the very token that
 * is sampled now: the answer is what it would be without guessing, for every kind of sampling.
 * From the first wrong one on the model forgets.
 */
static void advance_answer(struct engine *e, struct timeline *t)
{
    int32_t fed[1 + DRAFT_DEPTH_MAX], n_fed = t->n_next;
    memcpy(fed, t->next, sizeof fed);
    t->n_next = 0;
    for (int32_t i = 0; i < n_fed; i++) {
        keep(e, t, &fed[i], 1);
        int32_t id = choose(e, t, t->logits + (int64_t)i * e->sampler.vocab_size);
        bool stands = i + 1 < n_fed && id == fed[i + 1] && !is_stop(t->request, id);
        if (!stands)
            sequence_rewind(t->sequence, t->n_ids);
        pthread_mutex_lock(&e->lock);
        e->stats.drafts_right += stands;
        pthread_mutex_unlock(&e->lock);
        answer(e, t, id);
        if (!stands)
            return;
        ASSERT(t->request != NULL); /* drafts never reach beyond tokens_max */
        t->n_next = 0;
    }
}

/* ---- guessing ------------------------------------------------------------------------------- */

/* Rows that the draft block of this timeline has to take; what its window does not reach is left
 * out. */
static int32_t draft_rows(const struct timeline *t)
{
    int32_t from = t->n_ids - SLIDING_WINDOW;
    if (sequence_draft_length(t->sequence) < from)
        sequence_draft_skip(t->sequence, from);
    return t->n_ids - sequence_draft_length(t->sequence);
}

/* A guess must be of use: the answer goes on behind the token that is fed for certain. */
static bool wants_draft(const struct engine *e, const struct timeline *t)
{
    return e->options.draft_depth > 0 && t->request != NULL && t->n_next == 1 &&
           t->request->n_answer + 1 < t->request->tokens_max;
}

/* Brings the draft block of one timeline up to its sampled token and takes its guess. */
static void draft(struct engine *e, struct timeline *t)
{
    int32_t n = draft_rows(t), ids[SLIDING_WINDOW];
    ASSERT(n >= 1 && n <= SLIDING_WINDOW);
    memcpy(ids, t->ids + t->n_ids - n + 1, (size_t)(n - 1) * sizeof *ids);
    ids[n - 1] = t->next[0];
    struct draft_segment segment = {
        .sequence = t->sequence, .next_ids = ids, .n = n, .logits_last = t->logits};
    model_draft(e->model, &segment, 1);
    /* The same draw as the token will have: guesses are right more often than the likeliest. */
    int32_t id =
        sampler_pick(&e->sampler, t->logits, &t->request->sampling, (uint64_t)t->n_ids + 1);
    if (id == SAMPLE_FAULT)
        return; /* of no consequence: the timeline itself will show it, if it is ill */
    t->next[t->n_next++] = id;
    pthread_mutex_lock(&e->lock);
    e->stats.drafts++;
    pthread_mutex_unlock(&e->lock);
}

/* ---- a step --------------------------------------------------------------------------------- */

static struct segment segment_of(const struct timeline *t, int32_t n)
{
    bool answers = t->n_next > 0 || t->n_ids + n == t->request->n_ids;
    return (struct segment){
        .sequence = t->sequence,
        .ids = food(t),
        .n = n,
        .logits_last = answers && t->n_next <= 1 ? t->logits : NULL,
        .logits_all = t->n_next > 1 ? t->logits : NULL,
    };
}

static void step(struct engine *e)
{
    struct schedule_slot slots[SESSIONS_MAX];
    int32_t take[SESSIONS_MAX];
    struct segment segments[SESSIONS_MAX];
    int n_segments = 0;
    for (int32_t i = 0; i < e->options.sessions_max; i++)
        slots[i] = hunger(&e->timelines[i]);
    if (schedule_step(slots, e->options.sessions_max, take) == 0)
        return;
    for (int32_t i = 0; i < e->options.sessions_max; i++) {
        struct timeline *t = &e->timelines[i];
        if (take[i] > 0 && wants_draft(e, t))
            draft(e, t);
        if (take[i] > 0)
            segments[n_segments++] = segment_of(t, t->n_next > 0 ? t->n_next : take[i]);
    }
    model_step(e->model, segments, n_segments);
    pthread_mutex_lock(&e->lock);
    e->stats.steps++;
    pthread_mutex_unlock(&e->lock);
    for (int32_t i = 0; i < e->options.sessions_max; i++) {
        struct timeline *t = &e->timelines[i];
        if (take[i] > 0 && t->n_next > 0)
            advance_answer(e, t);
        else if (take[i] > 0)
            advance_prompt(e, t, take[i]);
    }
}

/* Sleeps until there is work.  @return false: stopping */
static bool wait_for_work(struct engine *e)
{
    pthread_mutex_lock(&e->lock);
    while (!e->stopping && e->stats.running == 0 && e->stats.waiting == 0)
        pthread_cond_wait(&e->work, &e->lock);
    bool go_on = !e->stopping;
    pthread_mutex_unlock(&e->lock);
    return go_on;
}

static void *run(void *context)
{
    struct engine *e = context;
    while (wait_for_work(e)) {
        end_cancelled(e);
        admit(e);
        step(e);
    }
    end_cancelled(e);
    return NULL;
}

/* ---- public --------------------------------------------------------------------------------- */

/* Frees a half-built engine too. */
static void engine_free(struct engine *e)
{
    for (int32_t i = 0; i < e->options.sessions_max; i++) {
        if (e->timelines[i].sequence != NULL)
            sequence_destroy(e->timelines[i].sequence);
        free(e->timelines[i].ids);
        free(e->timelines[i].logits);
    }
    for (int32_t i = 0; i < e->n_requests; i++)
        free(e->requests[i].ids);
    free(e->timelines);
    free(e->requests);
    free(e->queue);
    free(e->allowed);
    prefix_destroy(e->prefix);
    sampler_clear(&e->sampler);
    pthread_cond_destroy(&e->work);
    pthread_mutex_destroy(&e->lock);
    model_close(e->model);
    free(e);
}

static void *take_memory(int64_t count, size_t element)
{
    void *memory = calloc((size_t)count, element);
    ASSERT(memory != NULL);
    return memory;
}

/* All the memory of the engine; pages of prompts are touched only when used. */
static enum status engine_plan(struct engine *e, struct error *err)
{
    const struct engine_options *o = &e->options;
    int32_t vocab_size = model_config(e->model)->vocab_size;
    e->n_requests = o->sessions_max + o->queue_max;
    e->timelines = take_memory(o->sessions_max, sizeof *e->timelines);
    e->requests = take_memory(e->n_requests, sizeof *e->requests);
    e->queue = take_memory(e->n_requests, sizeof *e->queue);
    e->allowed = take_memory((vocab_size + 63) / 64, sizeof *e->allowed);
    sampler_init(&e->sampler, vocab_size);
    for (int32_t i = 0; i < e->n_requests; i++)
        e->requests[i].ids = take_memory(o->context_max, sizeof(int32_t));
    for (int32_t i = 0; i < o->sessions_max; i++) {
        struct timeline *t = &e->timelines[i];
        t->ids = take_memory(o->context_max, sizeof(int32_t));
        t->logits = take_memory((int64_t)(1 + DRAFT_DEPTH_MAX) * vocab_size, sizeof(float));
        enum status status = sequence_create(e->model, o->context_max, &t->sequence, err);
        if (status != OK)
            return status;
    }
    return o->prefix_bytes == 0 ? OK : prefix_create(e->model, o->prefix_bytes, &e->prefix, err);
}

static enum status options_check(const struct engine_options *o, struct error *err)
{
    if (o->sessions_max < 1 || o->sessions_max > SESSIONS_MAX)
        return error_set(err, ERR_INPUT, "sessions: must be 1 to %d", SESSIONS_MAX);
    if (o->context_max < 2 || o->context_max > POSITIONS_MAX)
        return error_set(err, ERR_INPUT, "context: must be 2 to %d tokens", POSITIONS_MAX);
    if (o->queue_max < 0 || o->queue_max > QUEUE_MAX)
        return error_set(err, ERR_INPUT, "queue: must be 0 to %d", QUEUE_MAX);
    if (o->draft_depth < 0 || o->draft_depth > DRAFT_DEPTH_MAX)
        return error_set(err, ERR_INPUT, "draft depth: must be 0 to %d", DRAFT_DEPTH_MAX);
    return OK;
}

enum status engine_create(struct model *take_model, const struct engine_options *options,
                          struct engine **out, struct error *err)
{
    enum status status = options_check(options, err);
    int32_t drafts = model_config(take_model)->num_nextn_predict_layers;
    if (status == OK && options->draft_depth > drafts)
        status = error_set(err, ERR_INPUT, "draft depth: this model drafts %d tokens", drafts);
    if (status != OK) {
        model_close(take_model);
        return status;
    }
    struct engine *e = take_memory(1, sizeof *e);
    e->model = take_model;
    e->options = *options;
    e->next_number = 1;
    ASSERT(pthread_mutex_init(&e->lock, NULL) == 0);
    ASSERT(pthread_cond_init(&e->work, NULL) == 0);
    status = engine_plan(e, err);
    if (status == OK)
        status = thread_start(&e->thread, "engine", run, e, err);
    if (status != OK) {
        engine_free(e);
        return status;
    }
    *out = e;
    return OK;
}

void engine_destroy(struct engine *e)
{
    if (e == NULL)
        return;
    pthread_mutex_lock(&e->lock);
    e->stopping = true;
    pthread_cond_signal(&e->work);
    pthread_mutex_unlock(&e->lock);
    ASSERT(pthread_join(e->thread, NULL) == 0);
    engine_free(e);
}

static enum status request_check(const struct engine *e, const struct engine_request *r,
                                 struct error *err)
{
    int32_t vocab_size = model_config(e->model)->vocab_size;
    if (r->n_ids < 1)
        return error_set(err, ERR_INPUT, "prompt: is empty");
    if (r->tokens_max < 1)
        return error_set(err, ERR_INPUT, "tokens_max: must be at least 1");
    if ((int64_t)r->n_ids + r->tokens_max > e->options.context_max)
        return error_set(err, ERR_INPUT, "prompt: %d tokens and an answer of %d do not fit %d",
                         r->n_ids, r->tokens_max, e->options.context_max);
    if (r->n_stop_ids < 0 || r->n_stop_ids > STOP_IDS_MAX)
        return error_set(err, ERR_INPUT, "stop_ids: must be at most %d", STOP_IDS_MAX);
    for (int32_t i = 0; i < r->n_ids; i++) {
        if (r->ids[i] < 0 || r->ids[i] >= vocab_size)
            return error_set(err, ERR_INPUT, "prompt: token %d is outside the vocabulary", i);
    }
    return sampling_check(&r->sampling, err);
}

static struct request *request_free(struct engine *e)
{
    for (int32_t i = 0; i < e->n_requests; i++) {
        if (e->requests[i].state == REQUEST_FREE)
            return &e->requests[i];
    }
    return NULL;
}

enum status engine_submit(struct engine *e, const struct engine_request *request,
                          engine_event_fn *on_event, void *user, uint64_t *out, struct error *err)
{
    enum status status = request_check(e, request, err);
    if (status != OK)
        return status;
    pthread_mutex_lock(&e->lock);
    struct request *r = request_free(e);
    if (r == NULL) {
        pthread_mutex_unlock(&e->lock);
        return error_set(err, ERR_CAPACITY, "the queue is full");
    }
    int32_t *ids = r->ids;
    *r = (struct request){
        .state = REQUEST_WAITING,
        .number = e->next_number++,
        .ids = ids,
        .n_ids = request->n_ids,
        .tokens_max = request->tokens_max,
        .n_stop_ids = request->n_stop_ids,
        .sampling = request->sampling,
        .mask = request->mask,
        .reuse_namespace = request->reuse_namespace,
        .on_event = on_event,
        .user = user,
    };
    memcpy(r->ids, request->ids, (size_t)request->n_ids * sizeof *r->ids);
    for (int32_t i = 0; i < request->n_stop_ids; i++)
        r->stop_ids[i] = request->stop_ids[i];
    *out = r->number; /* before the first event can be delivered */
    e->queue[e->stats.waiting++] = r;
    e->stats.requests++;
    pthread_cond_signal(&e->work);
    pthread_mutex_unlock(&e->lock);
    return OK;
}

void engine_cancel(struct engine *e, uint64_t number)
{
    pthread_mutex_lock(&e->lock);
    for (int32_t i = 0; i < e->n_requests; i++) {
        struct request *r = &e->requests[i];
        if (r->state != REQUEST_FREE && r->number == number)
            r->cancel = true;
    }
    pthread_mutex_unlock(&e->lock);
}

void engine_stats_get(struct engine *e, struct engine_stats *out)
{
    pthread_mutex_lock(&e->lock);
    *out = e->stats;
    pthread_mutex_unlock(&e->lock);
}

const struct model_config *engine_model_config(const struct engine *e)
{
    return model_config(e->model);
}

int32_t engine_context_max(const struct engine *e)
{
    return e->options.context_max;
}
