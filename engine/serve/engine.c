/*
 * The engine thread: takes requests from a bounded queue, gives each a timeline, and runs steps
 * until nobody waits.  Everything it works on is allocated in engine_create.  Knows no text, no
 * HTTP and no keys; timelines are timeline.c's, what is fed and answered is step.c's.
 */
#include "engine/engine.h"

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/thread.h"
#include "engine/serve/core.h"

#include "config/defaults.h"
#include "kernels/check.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- the end of a request ------------------------------------------------------------------- */

void request_finish(struct engine *e, struct request *r, enum end_reason reason)
{
    engine_event_fn *on_event = r->on_event;
    void *user = r->user;
    pthread_mutex_lock(&e->lock);
    ASSERT(r->state != REQUEST_FREE);
    if (r->state == REQUEST_RUNNING) {
        double ran_ms = (double)(clock_ms() - r->started_ms);
        /* The last eight or so count. */
        e->mean_ms = e->mean_ms == 0 ? ran_ms : e->mean_ms + (ran_ms - e->mean_ms) / 8;
        e->stats.running--;
    }
    r->state = REQUEST_FREE;
    int32_t guessed = r->guessed;
    pthread_mutex_unlock(&e->lock);
    on_event(user, &(struct engine_event){.kind = EVENT_END, .reason = reason, .guessed = guessed});
}

/* ---- early ends and admission --------------------------------------------------------------- */

/* Why a request has to end now.  @return false: it need not */
static bool has_to_end(const struct engine *e, const struct request *r, int64_t now_ms,
                       enum end_reason *reason)
{
    bool late = r->deadline_ms != 0 && now_ms >= r->deadline_ms;
    *reason = r->cancel || e->stopping ? END_CANCELLED : END_DEADLINE;
    return r->cancel || e->stopping || late;
}

void queue_close_gap(struct engine *e, int32_t at)
{
    ASSERT(at >= 0 && at < e->stats.waiting);
    e->stats.waiting--;
    memmove(&e->queue[at], &e->queue[at + 1],
            (size_t)(e->stats.waiting - at) * sizeof(struct request *));
}

/* Takes the first request that has to end out of the queue.  @return NULL: none */
static struct request *queue_take_ended(struct engine *e, int64_t now_ms, enum end_reason *reason)
{
    struct request *taken = NULL;
    pthread_mutex_lock(&e->lock);
    for (int32_t i = 0; i < e->stats.waiting && taken == NULL; i++) {
        if (!has_to_end(e, e->queue[i], now_ms, reason))
            continue;
        taken = e->queue[i];
        queue_close_gap(e, i);
    }
    pthread_mutex_unlock(&e->lock);
    return taken;
}

/* Of the waiting ones no more than the queue holds: clients that cancel as fast as this ends them
 * may not keep the others from their step (tests/serve/queue.pml). */
static void end_some(struct engine *e)
{
    struct request *r;
    enum end_reason reason;
    int64_t now_ms = clock_ms();
    for (int32_t n = 0; n < e->n_requests; n++) {
        r = queue_take_ended(e, now_ms, &reason);
        if (r == NULL)
            break;
        request_finish(e, r, reason);
    }
    for (int32_t i = 0; i < e->options.sessions_max; i++) {
        struct timeline *t = &e->timelines[i];
        if (t->request == NULL)
            continue;
        pthread_mutex_lock(&e->lock);
        bool ends = has_to_end(e, t->request, now_ms, &reason);
        pthread_mutex_unlock(&e->lock);
        if (ends)
            timeline_finish(e, t, reason);
    }
}

/* The request that starts next, and its place.  @return NULL: nobody waits */
static struct request *queue_first(struct engine *e, int32_t *at)
{
    struct request *first = NULL;
    pthread_mutex_lock(&e->lock);
    int32_t n = e->stats.waiting;
    for (int32_t i = 0; i < n; i++)
        e->waiting[i] = e->queue[i]->waiting;
    if (n > 0) {
        *at = schedule_first(e->waiting, n);
        first = e->queue[*at];
    }
    pthread_mutex_unlock(&e->lock);
    return first;
}

/* `at`: its place in the queue, where others come behind it only. */
static void start(struct engine *e, struct timeline *t, struct request *r, int32_t at)
{
    timeline_begin(e, t, r);
    r->started_ms = clock_ms();
    pthread_mutex_lock(&e->lock);
    ASSERT(e->queue[at] == r && r->state == REQUEST_WAITING);
    for (int32_t i = 0; i < at; i++)
        e->queue[i]->waiting.passed++;
    queue_close_gap(e, at);
    r->state = REQUEST_RUNNING;
    e->stats.running++;
    e->stats.prompt_tokens += (uint64_t)r->n_ids;
    e->stats.reused_tokens += (uint64_t)r->n_reused;
    pthread_mutex_unlock(&e->lock);
    tell_prefill(t);
}

/* Profiles are kept apart, and one runs that is not that of `r`. */
static bool kept_back(struct engine *e, const struct request *r)
{
    pthread_mutex_lock(&e->lock);
    bool apart = e->apart;
    pthread_mutex_unlock(&e->lock);
    bool other = false;
    for (int32_t i = 0; i < e->options.sessions_max; i++) {
        const struct timeline *t = &e->timelines[i];
        other |= t->request != NULL && t->request->profile.hash != r->profile.hash;
    }
    return apart && other;
}

static void admit(struct engine *e)
{
    struct request *r;
    int32_t at;
    while ((r = queue_first(e, &at)) != NULL && !kept_back(e, r)) {
        struct timeline *t = timeline_choose(e, r);
        if (t == NULL || !timeline_make_room(e, t, r))
            return;
        start(e, t, r, at);
    }
}

/* ---- a network that is lost ----------------------------------------------------------------- */

static void note_lost(struct engine *e, bool lost)
{
    int64_t now_ms = clock_ms();
    pthread_mutex_lock(&e->lock);
    e->stats.lost = lost;
    e->stats.worker = model_worker(e->model);
    if (lost)
        e->stats.losses++;
    else
        e->stats.recovered_ms = (uint64_t)(now_ms - e->lost_ms);
    pthread_mutex_unlock(&e->lock);
    e->lost_ms = lost ? now_ms : 0;
    e->starts_failed = 0;
}

/* Lets other threads see how the GPUs fare. */
static void note_gauges(struct engine *e)
{
    struct gauges gauges;
    int64_t now_ms = clock_ms();
    if (!e->watched || now_ms - e->gauges_ms < GAUGE_COPY_MS)
        return;
    e->gauges_ms = now_ms;
    if (!model_gauges(e->model, &gauges))
        return;
    pthread_mutex_lock(&e->lock);
    e->gauges = gauges;
    pthread_mutex_unlock(&e->lock);
}

/* Those who wait may find another box, when this one does not come back. */
static void end_waiting(struct engine *e)
{
    int failed = model_starts_failed(e->model);
    if (failed < WORKER_STARTS_PATIENCE || failed == e->starts_failed)
        return;
    e->starts_failed = failed;
    for (;;) {
        pthread_mutex_lock(&e->lock);
        struct request *r = e->stats.waiting == 0 ? NULL : e->queue[0];
        if (r != NULL)
            queue_close_gap(e, 0);
        pthread_mutex_unlock(&e->lock);
        if (r == NULL)
            return;
        request_finish(e, r, END_LOST);
    }
}

/* Whether the network computes; else one look at whether it does so again. */
static bool computes(struct engine *e)
{
    note_gauges(e);
    if (e->lost_ms == 0 && model_lost(e->model) == NULL)
        return true;
    if (e->lost_ms == 0) {
        note_lost(e, true);
        timelines_lose(e);
    }
    if (!model_recover(e->model)) {
        end_waiting(e);
        return false;
    }
    note_lost(e, false);
    return true;
}

/* Sleeps until there is work, or until it is time to look after the network.
 *  @return false: stopping */
static bool wait_for_work(struct engine *e)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += WORKER_IDLE_LOOK_MS * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    bool late = false;
    pthread_mutex_lock(&e->lock);
    while (!e->stopping && e->stats.running == 0 && e->stats.waiting == 0 && e->work_fn == NULL &&
           !late && e->lost_ms == 0) {
        if (e->watched)
            late = pthread_cond_timedwait(&e->work, &e->lock, &until) == ETIMEDOUT;
        else
            pthread_cond_wait(&e->work, &e->lock);
    }
    bool go_on = !e->stopping;
    pthread_mutex_unlock(&e->lock);
    return go_on;
}

/* Runs the piece of work that waits, if there is one. */
static void work_between(struct engine *e)
{
    pthread_mutex_lock(&e->lock);
    engine_work_fn *work = e->work_fn;
    void *user = e->work_user;
    pthread_mutex_unlock(&e->lock);
    if (work == NULL)
        return;
    work(user, e->model);
    pthread_mutex_lock(&e->lock);
    e->work_fn = NULL;
    e->works_done++;
    pthread_cond_broadcast(&e->worked);
    pthread_mutex_unlock(&e->lock);
}

static void *run(void *context)
{
    struct engine *e = context;
    while (wait_for_work(e)) {
        end_some(e);
        if (computes(e)) {
            admit(e);
            group_share(e);
            step_run(e);
        } else {
            group_share(e);
        }
        work_between(e);
    }
    end_some(e);
    pthread_mutex_lock(&e->lock);
    e->down = true;
    pthread_cond_broadcast(&e->worked);
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

/* ---- public --------------------------------------------------------------------------------- */

/* Frees a half-built engine too. */
static void engine_free(struct engine *e)
{
    for (int32_t i = 0; i < e->options.sessions_max; i++)
        timeline_clear(&e->timelines[i]);
    for (int32_t i = 0; i < e->n_requests; i++)
        free(e->requests[i].ids);
    free(e->timelines);
    free(e->requests);
    free(e->queue);
    free(e->waiting);
    free(e->counts);
    free(e->pages);
    prefix_destroy(e->prefix);
    sodium_memzero(e->options.prefix_key, sizeof e->options.prefix_key);
    pthread_cond_destroy(&e->work);
    pthread_cond_destroy(&e->worked);
    pthread_mutex_destroy(&e->lock);
    model_close(e->model);
    free(e);
}

void *take_memory(int64_t count, size_t element)
{
    void *memory = calloc((size_t)count, element);
    ASSERT(memory != NULL);
    return memory;
}

/* Reads the file of prefixes, if there is one.  Whatever is wrong with it costs time, not answers.
 *  @err ERR_CAPACITY */
static enum status restore_prefixes(struct engine *e, struct error *err)
{
    const char *path = e->options.prefix_path;
    enum status status = prefix_probe(e->prefix, e->model, &e->profile, err);
    if (status != OK || access(path, F_OK) != 0)
        return status;
    struct error why = {0};
    status = prefix_read_file(e->prefix, path, e->options.prefix_key, &e->turn, &why);
    if (status == OK) {
        note_prefixes(e);
        log_line(LOG_LEVEL_INFO, "serve", "%s: %d blocks of prefixes", path,
                 (int)e->stats.prefix_blocks);
    } else {
        log_line(LOG_LEVEL_WARN, "serve", "%s; removed", why.text);
        unlink(path);
    }
    return OK;
}

/* How much memory the timelines may take.  @err ERR_INPUT: less than one of them */
static enum status plan_state(struct engine *e, struct error *err)
{
    const struct engine_options *o = &e->options;
    uint64_t context = timeline_bytes(e, &e->profile, o->context_max);
    uint64_t most = sequence_bytes(e->timelines[0].sequence); /* under any profile */
    uint64_t all = context * (uint64_t)o->sessions_max;
    if (o->state_bytes != 0 && o->state_bytes < context)
        return error_set(err, ERR_INPUT, "state: %llu bytes; a context of %d takes %llu",
                         (unsigned long long)o->state_bytes, (int)o->context_max,
                         (unsigned long long)context);
    e->state_bytes_max = o->state_bytes != 0 ? o->state_bytes : all > most ? all : most;
    e->stats.state_bytes_max = e->state_bytes_max;
    return OK;
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
    e->waiting = take_memory(e->n_requests, sizeof *e->waiting);
    e->counts = take_memory(vocab_size, sizeof *e->counts);
    e->pages = take_memory(o->context_max / SNAPSHOT_TOKENS + 1, sizeof *e->pages);
    for (int32_t i = 0; i < e->n_requests; i++)
        e->requests[i].ids = take_memory(o->context_max, sizeof(int32_t));
    enum status status = OK;
    for (int32_t i = 0; i < o->sessions_max; i++) {
        status = timeline_init(&e->timelines[i], e->model, o->context_max, err);
        if (status != OK)
            return status;
    }
    status = plan_state(e, err);
    if (status != OK)
        return status;
    if (o->prefix_bytes == 0)
        return OK;
    status = prefix_create(e->model, o->prefix_bytes, &e->profile, &e->prefix, err);
    if (status != OK)
        return status;
    note_prefixes(e);
    e->stats.prefix_file = o->prefix_path != NULL;
    return e->stats.prefix_file ? restore_prefixes(e, err) : OK;
}

/* Whether requests may be computed so, by this model. */
static enum status profile_check(const struct model *model, const struct profile *profile,
                                 struct error *err)
{
    enum precision_row row;
    if (!profile_may_serve(profile, &row))
        return error_set(err, ERR_INPUT, "profile %s: %s %s is for audits only", profile->name,
                         PRECISION[row].name, profile_value_name(profile, row));
    if (profile->values[ROW_DRAFT_DEPTH] > 0 && model_config(model)->num_nextn_predict_layers == 0)
        return error_set(err, ERR_INPUT, "profile %s: %s: this model has no draft block",
                         profile->name, PRECISION[ROW_DRAFT_DEPTH].name);
    return OK;
}

static enum status options_check(const struct engine_options *o, struct error *err)
{
    if (o->sessions_max < 1 || o->sessions_max > SESSIONS_MAX)
        return error_set(err, ERR_INPUT, "sessions: must be 1 to %d", SESSIONS_MAX);
    if (o->context_max < 2 || o->context_max > POSITIONS_MAX)
        return error_set(err, ERR_INPUT, "context: must be 2 to %d tokens", POSITIONS_MAX);
    if (o->queue_max < 0 || o->queue_max > QUEUE_MAX)
        return error_set(err, ERR_INPUT, "queue: must be 0 to %d", QUEUE_MAX);
    if (o->prefix_path != NULL && o->prefix_bytes == 0)
        return error_set(err, ERR_INPUT, "prefix file: without a prefix cache there is none");
    return OK;
}

enum status engine_create(struct model *take_model, const struct engine_options *options,
                          struct engine **out, struct error *err)
{
    const struct profile profile =
        options->profile != NULL ? *options->profile : *profile_builtin(PROFILE_DEFAULT);
    enum status status = options_check(options, err);
    if (status == OK)
        status = profile_check(take_model, &profile, err);
    if (status != OK) {
        model_close(take_model);
        return status;
    }
    struct engine *e = take_memory(1, sizeof *e);
    e->model = take_model;
    e->options = *options;
    e->profile = profile;
    e->next_number = e->number_step = 1;
    e->stats.worker = model_worker(e->model);
    e->watched = e->stats.worker != 0;
    pthread_condattr_t clock;
    ASSERT(pthread_condattr_init(&clock) == 0);
    ASSERT(pthread_condattr_setclock(&clock, CLOCK_MONOTONIC) == 0);
    ASSERT(pthread_mutex_init(&e->lock, NULL) == 0);
    ASSERT(pthread_cond_init(&e->work, &clock) == 0);
    pthread_condattr_destroy(&clock);
    ASSERT(pthread_cond_init(&e->worked, NULL) == 0);
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

/* Ends the thread, and with it all requests. */
static void engine_halt(struct engine *e)
{
    pthread_mutex_lock(&e->lock);
    e->stopping = true;
    pthread_cond_signal(&e->work);
    pthread_mutex_unlock(&e->lock);
    ASSERT(pthread_join(e->thread, NULL) == 0);
    e->halted = true;
}

void engine_destroy(struct engine *e)
{
    if (e == NULL)
        return;
    if (e->groups != NULL) { /* all threads end before the first one's memory does */
        for (int32_t i = 0; i < groups_count(e->groups); i++)
            engine_halt(groups_at(e->groups, i));
        groups_destroy(e->groups);
        free(e);
        return;
    }
    if (!e->halted)
        engine_halt(e);
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
    if (r->top_logprobs < 0 || r->top_logprobs > LOGPROBS_TOP_MAX)
        return error_set(err, ERR_INPUT, "top_logprobs: must be 0 to %d", LOGPROBS_TOP_MAX);
    if (r->priority < -PRIORITY_MAX || r->priority > PRIORITY_MAX)
        return error_set(err, ERR_INPUT, "priority: must be %d to %d", -PRIORITY_MAX, PRIORITY_MAX);
    enum status status = r->profile == NULL ? OK : profile_check(e->model, r->profile, err);
    if (status != OK)
        return status;
    for (int32_t i = 0; i < r->n_ids; i++) {
        if (r->ids[i] < 0 || r->ids[i] >= vocab_size)
            return error_set(err, ERR_INPUT, "prompt: token %d is outside the vocabulary", i);
    }
    return sampling_check(&r->sampling, err);
}

/* The profile of a request, and what it may come to.
 *  @err ERR_INPUT: more than there ever is */
static enum status state_check(struct engine *e, const struct engine_request *r,
                               struct profile *profile, uint64_t *bytes, struct error *err)
{
    if (r->profile != NULL)
        *profile = *r->profile;
    else
        engine_profile_get(e, profile);
    *bytes = timeline_bytes(e, profile, r->n_ids + r->tokens_max);
    if (*bytes <= e->state_bytes_max)
        return OK;
    return error_set(
        err, ERR_INPUT,
        "prompt: %d tokens and an answer of %d take %llu bytes under profile %s; there "
        "are %llu",
        r->n_ids, r->tokens_max, (unsigned long long)*bytes, profile->name,
        (unsigned long long)e->state_bytes_max);
}

struct request *request_free(struct engine *e)
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
    struct profile profile;
    uint64_t state_bytes;
    if (e->groups != NULL)
        e = groups_place(e->groups, request);
    enum status status = request_check(e, request, err);
    if (status == OK)
        status = state_check(e, request, &profile, &state_bytes, err);
    if (status != OK)
        return status;
    pthread_mutex_lock(&e->lock);
    struct request *r = e->stopping ? NULL : request_free(e);
    if (r == NULL) {
        const char *why = e->stopping ? "the engine goes down" : "the queue is full";
        pthread_mutex_unlock(&e->lock);
        return error_set(err, ERR_CAPACITY, "%s", why);
    }
    int32_t *ids = r->ids;
    *r = (struct request){
        .state = REQUEST_WAITING,
        .number = e->next_number,
        .ids = ids,
        .n_ids = request->n_ids,
        .tokens_max = request->tokens_max,
        .n_stop_ids = request->n_stop_ids,
        .sampling = request->sampling,
        .mask = request->mask,
        .logprobs = request->logprobs,
        .top_logprobs = request->top_logprobs,
        .waiting.priority = request->priority,
        .deadline_ms = request->deadline_ms,
        .right = 1,
        .profile = profile,
        .state_bytes = state_bytes,
        .reuse_namespace = request->reuse_namespace,
        .on_event = on_event,
        .user = user,
    };
    memcpy(r->ids, request->ids, (size_t)request->n_ids * sizeof *r->ids);
    for (int32_t i = 0; i < request->n_stop_ids; i++)
        r->stop_ids[i] = request->stop_ids[i];
    e->next_number += e->number_step;
    *out = r->number; /* before the first event can be delivered */
    e->queue[e->stats.waiting++] = r;
    e->stats.requests++;
    pthread_cond_signal(&e->work);
    pthread_mutex_unlock(&e->lock);
    return OK;
}

/* A call of engine_save. */
struct save {
    struct engine *engine;
    enum status status;
    struct error *err;
};

static void save_run(void *user, struct model *model)
{
    struct save *save = user;
    struct engine *e = save->engine;
    struct profile profile;
    engine_profile_get(e, &profile);
    int32_t n_blocks = 0;
    save->status = prefix_probe(e->prefix, model, &profile, save->err);
    if (save->status == OK)
        save->status = prefix_write_file(e->prefix, e->options.prefix_path, e->options.prefix_key,
                                         e->turn, &n_blocks, save->err);
    if (save->status != OK)
        return;
    pthread_mutex_lock(&e->lock);
    e->stats.prefix_saved_blocks = n_blocks;
    e->stats.prefix_saved_s = (int64_t)time(NULL);
    pthread_mutex_unlock(&e->lock);
}

enum status engine_save(struct engine *e, struct error *err)
{
    struct save save = {.engine = e, .err = err};
    for (int32_t i = 0; e->groups != NULL && i < groups_count(e->groups); i++) {
        enum status status = engine_save(groups_at(e->groups, i), err);
        if (status != OK || i + 1 == groups_count(e->groups))
            return status;
    }
    if (e->options.prefix_path == NULL)
        return error_set(err, ERR_INPUT, "prefix file: none was named at the start");
    if (!engine_between_steps(e, save_run, &save))
        return error_set(err, ERR_CAPACITY, "prefix file: the engine goes down");
    return save.status;
}

enum status engine_profile_set(struct engine *e, const struct profile *profile, struct error *err)
{
    enum status status = profile_check(group_first(e)->model, profile, err);
    for (int32_t i = 0; i < engine_groups(e) && status == OK; i++) {
        struct engine *group = engine_group(e, i);
        pthread_mutex_lock(&group->lock);
        group->profile = *profile;
        pthread_mutex_unlock(&group->lock);
    }
    return status;
}

void engine_profiles_apart(struct engine *e, bool apart)
{
    for (int32_t i = 0; i < engine_groups(e); i++) {
        struct engine *group = engine_group(e, i);
        pthread_mutex_lock(&group->lock);
        group->apart = apart;
        pthread_mutex_unlock(&group->lock);
    }
}

void engine_profile_get(struct engine *e, struct profile *out)
{
    e = engine_group(e, 0);
    pthread_mutex_lock(&e->lock);
    *out = e->profile;
    pthread_mutex_unlock(&e->lock);
}

int32_t engine_retry_after_s(struct engine *e)
{
    int32_t soonest = RETRY_AFTER_S_MAX;
    for (int32_t i = 0; i < engine_groups(e); i++) {
        struct engine *group = engine_group(e, i);
        pthread_mutex_lock(&group->lock);
        int32_t s = schedule_retry_after_s(group->mean_ms, group->options.sessions_max);
        pthread_mutex_unlock(&group->lock);
        soonest = s < soonest ? s : soonest;
    }
    return soonest;
}

void engine_cancel(struct engine *e, uint64_t number)
{
    if (e->groups != NULL) {
        group_cancel(e->groups, number);
        return;
    }
    pthread_mutex_lock(&e->lock);
    for (int32_t i = 0; i < e->n_requests; i++) {
        struct request *r = &e->requests[i];
        if (r->state != REQUEST_FREE && r->number == number)
            r->cancel = true;
    }
    pthread_mutex_unlock(&e->lock);
}

bool engine_between_steps(struct engine *e, engine_work_fn *work, void *user)
{
    e = engine_group(e, 0);
    pthread_mutex_lock(&e->lock);
    while (e->work_fn != NULL && !e->stopping)
        pthread_cond_wait(&e->worked, &e->lock);
    bool ran = false;
    if (!e->stopping) {
        e->work_fn = work;
        e->work_user = user;
        uint64_t mine = ++e->works_given;
        pthread_cond_signal(&e->work);
        while (e->works_done < mine && !e->down)
            pthread_cond_wait(&e->worked, &e->lock);
        ran = e->works_done >= mine;
    }
    pthread_mutex_unlock(&e->lock);
    return ran;
}

void engine_stats_get(struct engine *e, struct engine_stats *out)
{
    if (e->groups != NULL) {
        groups_stats(e->groups, out);
        return;
    }
    pthread_mutex_lock(&e->lock);
    *out = e->stats;
    out->session_bytes = sequence_bytes_under(e->model, &e->profile, e->options.context_max);
    pthread_mutex_unlock(&e->lock);
}

bool engine_gauges_get(struct engine *e, struct gauges *out)
{
    if (e->groups != NULL)
        return groups_gauges(e->groups, out);
    pthread_mutex_lock(&e->lock);
    bool told = e->gauges.at_ms != 0;
    if (told)
        *out = e->gauges;
    pthread_mutex_unlock(&e->lock);
    return told;
}

int32_t engine_step_tokens(const struct engine *e)
{
    return model_step_tokens(group_first(e)->model);
}

const struct model_config *engine_model_config(const struct engine *e)
{
    return model_config(group_first(e)->model);
}

int32_t engine_context_max(const struct engine *e)
{
    return group_first(e)->options.context_max;
}
