/*
 * The thread of switches.  `lock` protects everything that commands and the API see; the model is
 * used without it, between two steps of the engine.
 */
#include "engine/precision/control.h"

#include "config/limits.h"
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/thread.h"
#include "engine/precision/rank.h"
#include "kernels/check.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum job_kind { JOB_NONE, JOB_SET, JOB_VERIFY, JOB_RANK, JOB_SAVE };

struct job {
    enum job_kind kind;
    uint64_t number;
    struct profile profile;
    bool drain;
    int32_t try_s;
};

struct control {
    struct control_options options;
    struct lab lab;       /* of the thread */
    struct engine *group; /* borrows; of the thread: whose model the laboratory is */
    struct proof *proof;  /* owns; of the thread */
    struct rank *rank;    /* owns; of the thread */
    pthread_t thread;

    pthread_mutex_t lock; /* protects all below */
    pthread_cond_t changed;
    bool stopping;
    struct job job; /* runs, or is to be run */
    uint64_t jobs;  /* numbers given */
    int64_t trial_end_ms;
    bool on_trial;
    uint64_t switches, proven_hash;
    int64_t proven_s;
    bool proven;
    const char *alarm;
    struct {
        uint64_t number;
        struct control_result result; /* owns until it is taken */
    } results[CONTROL_RESULTS_MAX];
    struct buf proof_text; /* JSON of the last proof; empty: there was none */
};

/* Signed: deadlines are subtracted from it. */
static int64_t now_ms(void)
{
    return clock_ms();
}

/* Notes what went wrong where status and the log show it.  Under the lock. */
static void alarm_set(struct control *c, const char *what, const char *name)
{
    c->alarm = what;
    log_line(LOG_LEVEL_ERROR, "profile", "%s: %s", name, what);
}

/* Lets a profile serve new requests.  Under the lock.  @err ERR_INPUT: the engine refuses it */
static enum status serve(struct control *c, const struct profile *profile, bool drain,
                         struct error *err)
{
    char hash[PROFILE_HASH_BYTES];
    engine_profiles_apart(c->options.engine, drain);
    enum status status = engine_profile_set(c->options.engine, profile, err);
    if (status != OK)
        return status;
    c->switches++;
    profile_hash_text(profile, hash);
    log_line(LOG_LEVEL_INFO, "profile", "%s (%s) serves new requests", profile->name, hash);
    return OK;
}

/* Back to what the store says.  It served before, so that the engine takes it. */
static void serve_again(struct control *c)
{
    struct profile current, previous;
    struct error err;
    store_serving(c->options.store, &current, &previous);
    ASSERT(serve(c, &current, false, &err) == OK);
}

/* ---- jobs ----------------------------------------------------------------------------------- */

/* Keeps the newest proof for the report; says whether it is good.  Under the lock. */
static void proof_keep(struct control *c)
{
    c->proof_text.len = 0;
    proof_json(c->proof, &c->proof_text);
    c->proven = c->proof->good;
    c->proven_hash = c->proof->profile.hash;
    c->proven_s = c->proof->time_s;
}

/* Of every group; the first bad proof stands for all, else the last good one. */
static void prove_groups(struct control *c, const struct profile *profile, struct buf *text)
{
    int32_t n = engine_groups(c->options.engine), i = 0;
    do {
        c->group = engine_group(c->options.engine, i++);
        const struct proof_options options = {.profile = profile,
                                              .render = c->options.render,
                                              .render_user = c->options.render_user,
                                              .serve = c->options.serve,
                                              .serve_user = c->group};
        lab_begin(&c->lab);
        proof_run(&c->lab, &options, c->proof);
    } while (i < n && c->proof->good);
    if (n > 1)
        buf_printf(text, "group %d of %d:\n", (int)i, (int)n);
}

static void prove(struct control *c, const struct profile *profile, struct control_result *result)
{
    prove_groups(c, profile, &result->text);
    proof_text(c->proof, &result->text);
    proof_json(c->proof, &result->data);
    result->good = c->proof->good;
    pthread_mutex_lock(&c->lock);
    if (c->proof->complete)
        proof_keep(c);
    pthread_mutex_unlock(&c->lock);
    struct buf line = {0};
    proof_summary(c->proof, &line);
    const char *text = buf_cstr(&line), *end = strchr(text, '\n');
    log_line(result->good ? LOG_LEVEL_INFO : LOG_LEVEL_ERROR, "profile", "%.*s",
             (int)(end != NULL ? end - text : 0), text);
    buf_free(&line);
}

/* The proof is good: from here the switch happens or nothing does.  Under the lock. */
static void switch_over(struct control *c, const struct job *job, struct control_result *result)
{
    struct error err;
    enum switch_kind kind = job->try_s > 0 ? SWITCH_TRIED : SWITCH_SET;
    enum status status = serve(c, &job->profile, job->drain, &err);
    if (status == OK) {
        status = store_note(c->options.store, kind, job->profile.name, &err);
        if (status != OK)
            serve_again(c);
    }
    if (status != OK) {
        alarm_set(c,
                  status == ERR_INPUT ? "can not serve here"
                                      : "could not be stored, so it does not serve",
                  job->profile.name);
        buf_printf(&result->text, "not switched: %s\n", err.text);
        result->good = false;
        return;
    }
    c->alarm = "";
    c->on_trial = job->try_s > 0;
    c->trial_end_ms = now_ms() + (int64_t)job->try_s * 1000;
    buf_printf(&result->text, "%s serves new requests%s\n", job->profile.name,
               job->drain ? " once those that run have ended" : "");
    if (job->try_s > 0)
        buf_printf(&result->text, "on trial: goes back in %d s without `profile confirm`\n",
                   job->try_s);
}

static void run_set(struct control *c, const struct job *job, struct control_result *result)
{
    struct error err;
    prove(c, &job->profile, result);
    pthread_mutex_lock(&c->lock);
    if (result->good) {
        switch_over(c, job, result);
    } else if (c->proof->complete) {
        alarm_set(c, "is not proven, so it does not serve", job->profile.name);
        if (store_note(c->options.store, SWITCH_UNPROVEN, job->profile.name, &err) != OK)
            log_line(LOG_LEVEL_ERROR, "profile", "%s", err.text);
        buf_puts(&result->text, "not switched: the proof failed\n");
    }
    pthread_mutex_unlock(&c->lock);
}

static void run_rank(struct control *c, const struct job *job, struct control_result *result)
{
    (void)job;
    const struct profile *reference = profile_builtin_at(PROFILE_REFERENCE);
    struct ids ids = {0};
    if (c->options.render != NULL)
        c->options.render(c->options.render_user, reference, &ids);
    for (int i = 0; ids.len == 0 && i < RANK_PROMPT_MAX; i++) { /* no text: any tokens will do */
        int32_t id;
        lab_ids(&id, 1, c->lab.config->vocab_size, (uint64_t)i);
        ids_add(&ids, id);
    }
    rank_run(&c->lab, ids.data, (int32_t)ids.len, NULL, c->rank);
    ids_free(&ids);
    rank_text(c->rank, &result->text);
    rank_json(c->rank, &result->data);
    result->good = c->rank->complete;
}

static void run_verify(struct control *c, const struct job *job, struct control_result *result)
{
    prove(c, &job->profile, result);
}

static void run_save(struct control *c, const struct job *job, struct control_result *result)
{
    (void)job;
    struct error err;
    struct engine_stats stats;
    result->good = engine_save(c->options.engine, &err) == OK;
    if (!result->good) {
        buf_puts(&result->text, err.text);
        return;
    }
    engine_stats_get(c->options.engine, &stats);
    buf_printf(&result->text, "%d blocks of prefixes are saved\n", (int)stats.prefix_saved_blocks);
    buf_printf(&result->data, "{\"saved_blocks\": %d}", (int)stats.prefix_saved_blocks);
}

static const struct {
    const char *name; /* the command that asks for it */
    void (*run)(struct control *c, const struct job *job, struct control_result *result);
} JOBS[] = {
    [JOB_NONE] = {"", NULL},
    [JOB_SET] = {"profile set", run_set},
    [JOB_VERIFY] = {"profile verify", run_verify},
    [JOB_RANK] = {"profile rank", run_rank},
    [JOB_SAVE] = {"prefixes save", run_save},
};

static void job_run(struct control *c, const struct job *job)
{
    struct control_result result = {0};
    c->group = engine_group(c->options.engine, 0);
    lab_begin(&c->lab);
    JOBS[job->kind].run(c, job, &result);
    pthread_mutex_lock(&c->lock);
    size_t at = job->number % CONTROL_RESULTS_MAX;
    buf_free(&c->results[at].result.text); /* of somebody who never came for it */
    buf_free(&c->results[at].result.data);
    c->results[at].number = job->number;
    c->results[at].result = result;
    c->job = (struct job){0};
    pthread_mutex_unlock(&c->lock);
}

/* ---- the thread ----------------------------------------------------------------------------- */

static void trial_expire(struct control *c)
{
    struct profile current, before;
    struct error err;
    store_serving(c->options.store, &current, &before);
    alarm_set(c, "was not confirmed in time; what was before serves again", current.name);
    if (store_note(c->options.store, SWITCH_EXPIRED, before.name, &err) != OK)
        log_line(LOG_LEVEL_ERROR, "profile", "%s", err.text);
    c->on_trial = false;
    serve_again(c);
}

/* Sleeps until something is to be done, at most until a trial ends.  Under the lock. */
static void wait_for_work(struct control *c)
{
    struct timespec until;
    if (!c->on_trial) {
        pthread_cond_wait(&c->changed, &c->lock);
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t left_ms = c->trial_end_ms - now_ms();
    until.tv_sec += left_ms / 1000 + 1;
    pthread_cond_timedwait(&c->changed, &c->lock, &until);
}

static void *run(void *context)
{
    struct control *c = context;
    pthread_mutex_lock(&c->lock);
    while (!c->stopping) {
        if (c->on_trial && now_ms() >= c->trial_end_ms) {
            trial_expire(c);
        } else if (c->job.kind != JOB_NONE) {
            struct job job = c->job;
            pthread_mutex_unlock(&c->lock);
            job_run(c, &job);
            pthread_mutex_lock(&c->lock);
        } else {
            wait_for_work(c);
        }
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* Steps of a job stop when the box does; the engine itself goes down later. */
static bool run_between(void *host, engine_work_fn *work, void *user)
{
    struct control *c = host;
    pthread_mutex_lock(&c->lock);
    bool go_on = !c->stopping;
    pthread_mutex_unlock(&c->lock);
    return go_on && engine_between_steps(c->group, work, user);
}

/* ---- public --------------------------------------------------------------------------------- */

static void control_free(struct control *c)
{
    for (int i = 0; i < CONTROL_RESULTS_MAX; i++) {
        buf_free(&c->results[i].result.text);
        buf_free(&c->results[i].result.data);
    }
    buf_free(&c->proof_text);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    free(c->proof);
    free(c->rank);
    free(c);
}

enum status control_start(const struct control_options *options, struct control **out,
                          struct error *err)
{
    struct control *c = calloc(1, sizeof *c);
    ASSERT(c != NULL);
    c->options = *options;
    c->alarm = store_lost(options->store)[0] == '\0' ? "" : "the file of profiles was damaged";
    c->proof = calloc(1, sizeof *c->proof);
    c->rank = calloc(1, sizeof *c->rank);
    ASSERT(c->proof != NULL && c->rank != NULL);
    lab_open_engine(&c->lab, options->engine);
    c->lab.run = run_between;
    c->lab.host = c;
    pthread_condattr_t clock;
    ASSERT(pthread_condattr_init(&clock) == 0);
    ASSERT(pthread_condattr_setclock(&clock, CLOCK_MONOTONIC) == 0);
    ASSERT(pthread_cond_init(&c->changed, &clock) == 0);
    pthread_condattr_destroy(&clock);
    ASSERT(pthread_mutex_init(&c->lock, NULL) == 0);
    struct profile current, previous, now;
    store_serving(options->store, &current, &previous);
    engine_profile_get(options->engine, &now);
    enum status status = OK;
    if (strcmp(now.name, current.name) != 0) /* else what was asked for at the start goes on */
        status = serve(c, &current, false, err);
    if (status == OK)
        status = thread_start(&c->thread, "profile", run, c, err);
    if (status != OK) {
        control_free(c);
        return status;
    }
    *out = c;
    return OK;
}

void control_stop(struct control *c)
{
    if (c == NULL)
        return;
    pthread_mutex_lock(&c->lock);
    c->stopping = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    ASSERT(pthread_join(c->thread, NULL) == 0);
    control_free(c);
}

void control_status_get(struct control *c, struct control_status *out)
{
    *out = (struct control_status){0};
    pthread_mutex_lock(&c->lock);
    store_serving(c->options.store, &out->current, &out->previous);
    engine_profile_get(c->options.engine, &out->current);
    out->phase = c->job.kind != JOB_NONE ? CONTROL_BUSY
                 : c->on_trial           ? CONTROL_TRIAL
                                         : CONTROL_SERVING;
    if (c->on_trial)
        out->trial_s = (c->trial_end_ms - now_ms()) / 1000;
    bool same = c->proven_s != 0 && c->proven_hash == out->current.hash;
    out->proven = same && c->proven;
    out->proven_s = same ? c->proven_s : 0;
    out->switches = c->switches;
    out->alarm = c->alarm;
    out->job = JOBS[c->job.kind].name;
    pthread_mutex_unlock(&c->lock);
}

/* Hands a job to the thread. */
static enum status job_give(struct control *c, struct job *job, const char *name, uint64_t *number,
                            struct error *err)
{
    struct profile current, previous;
    enum status status = OK;
    pthread_mutex_lock(&c->lock);
    store_serving(c->options.store, &current, &previous);
    if (c->job.kind != JOB_NONE)
        status = error_set(err, ERR_CAPACITY, "%s runs; wait for its end", JOBS[c->job.kind].name);
    else if (c->on_trial && job->kind == JOB_SET)
        status = error_set(err, ERR_CAPACITY,
                           "a trial is under way: `profile confirm` or `profile rollback` first");
    else if (name != NULL && !store_find(c->options.store, name, &job->profile))
        status = error_set(err, ERR_INPUT, "no profile is named %.32s", name);
    else if (job->kind == JOB_SET && strcmp(current.name, name) == 0)
        status = error_set(err, ERR_INPUT, "%s serves already; `profile verify` proves it", name);
    if (status == OK) {
        *number = job->number = ++c->jobs;
        c->job = *job;
        pthread_cond_broadcast(&c->changed);
    }
    pthread_mutex_unlock(&c->lock);
    return status;
}

enum status control_set(struct control *c, const struct control_set *set, uint64_t *job,
                        struct error *err)
{
    struct job new = {.kind = JOB_SET, .drain = set->drain, .try_s = set->try_s};
    return job_give(c, &new, set->name, job, err);
}

enum status control_verify(struct control *c, const char *name, uint64_t *job, struct error *err)
{
    struct job new = {.kind = JOB_VERIFY};
    return job_give(c, &new, name, job, err);
}

enum status control_rank(struct control *c, uint64_t *job, struct error *err)
{
    struct job new = {.kind = JOB_RANK};
    return job_give(c, &new, NULL, job, err);
}

enum status control_save(struct control *c, uint64_t *job, struct error *err)
{
    struct job new = {.kind = JOB_SAVE};
    return job_give(c, &new, NULL, job, err);
}

bool control_take(struct control *c, uint64_t job, struct control_result *out)
{
    pthread_mutex_lock(&c->lock);
    size_t at = job % CONTROL_RESULTS_MAX;
    bool done = c->results[at].number == job;
    if (done) {
        *out = c->results[at].result;
        c->results[at].result = (struct control_result){0};
        c->results[at].number = 0;
    }
    pthread_mutex_unlock(&c->lock);
    return done;
}

enum status control_confirm(struct control *c, struct error *err)
{
    struct profile current, previous;
    enum status status = OK;
    pthread_mutex_lock(&c->lock);
    store_serving(c->options.store, &current, &previous);
    if (!c->on_trial)
        status = error_set(err, ERR_INPUT, "no trial is under way");
    else
        status = store_note(c->options.store, SWITCH_CONFIRMED, current.name, err);
    if (status == OK) {
        c->on_trial = false;
        log_line(LOG_LEVEL_INFO, "profile", "%s is confirmed", current.name);
    }
    pthread_mutex_unlock(&c->lock);
    return status;
}

enum status control_rollback(struct control *c, struct error *err)
{
    struct profile current, previous;
    enum status status = OK;
    pthread_mutex_lock(&c->lock);
    store_serving(c->options.store, &current, &previous);
    if (c->job.kind == JOB_SET)
        status = error_set(err, ERR_CAPACITY, "a switch is under way; wait for its end");
    else if (strcmp(current.name, previous.name) == 0)
        status = error_set(err, ERR_INPUT, "nothing served before %s", current.name);
    else
        status = store_note(c->options.store, SWITCH_ROLLED_BACK, previous.name, err);
    if (status == OK) {
        log_line(LOG_LEVEL_WARN, "profile", "rolled back from %s", current.name);
        c->on_trial = false;
        serve_again(c);
    }
    pthread_mutex_unlock(&c->lock);
    return status;
}

void control_report(struct control *c, struct buf *out)
{
    struct control_status s;
    char hash[PROFILE_HASH_BYTES];
    control_status_get(c, &s);
    profile_hash_text(&s.current, hash);
    buf_printf(out,
               "{\"object\": \"v4box.profile\", \"profile\": \"%s\", \"hash\": \"%s\", "
               "\"previous\": \"%s\", \"trial\": %s, \"proven\": %s, \"values\": {",
               s.current.name, hash, s.previous.name, s.phase == CONTROL_TRIAL ? "true" : "false",
               s.proven ? "true" : "false");
    for (int row = 0; row < PRECISION_ROWS; row++)
        buf_printf(out, "%s\"%s\": \"%s\"", row == 0 ? "" : ", ", PRECISION[row].name,
                   profile_value_name(&s.current, (enum precision_row)row));
    buf_puts(out, "}, \"proof\": ");
    pthread_mutex_lock(&c->lock);
    if (c->proof_text.len == 0)
        buf_puts(out, "null");
    else
        buf_add(out, c->proof_text.data, c->proof_text.len);
    pthread_mutex_unlock(&c->lock);
    buf_puts(out, "}");
}
