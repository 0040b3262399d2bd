/*
 * The thread of audits.  `lock` protects what commands and the API see; the report and the work
 * belong to the thread alone.
 */
#include "engine/audit/auditor.h"

#include "engine/audit/report_fields.h"
#include "engine/audit/tests_common.h"
#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/base/thread.h"
#include "engine/precision/lab.h"
#include "kernels/check.h"

#include <errno.h>
#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PATH_BYTES 4096
/* A clock before 2020 was never set: nothing is due by it. */
#define CLOCK_SET_S 1577836800

/* An audit that runs, or is to. */
struct order {
    int32_t id; /* 0: none */
    struct audit_order what;
    bool exclusive, scheduled;
    int64_t started_s;
    struct recording pinned;    /* owns its ids; of a replay or a search */
    struct json_object *report; /* owns until the thread takes it; NULL: a new audit */
};

struct auditor {
    struct auditor_options options;
    struct archive *archive; /* owns */
    struct golden_model model;
    char schedule_path[PATH_BYTES];
    struct engine *group; /* borrows; of the thread: that the audit runs on */
    struct lab lab;       /* of the thread */
    int64_t next_ms;      /* of the thread: a piece waits until then while requests are there */
    bool interrupted;     /* of the thread: the last audit did not come to an end */
    int again;            /* of the thread: so often in a row */
    bool cleaning;        /* of the thread: work is let through whatever was asked */
    pthread_t thread;

    pthread_mutex_t lock; /* protects all below */
    pthread_cond_t changed;
    bool stopping, abort;
    struct order order;
    const char *step;
    int done, steps;
    struct audit_schedule schedule;
    int64_t scheduled_s; /* when the schedule began its last audit; 0: never */
    uint64_t audits, alarms;
};

bool auditor_alarms(enum audit_verdict verdict)
{
    return verdict == VERDICT_FAIL || verdict == VERDICT_INVALID;
}

/* ---- turns ----------------------------------------------------------------------------------- */

/* Waits on the condition at most so long.  Under the lock. */
static void wait_ms(struct auditor *a, int64_t ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += ms % 1000 * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&a->changed, &a->lock, &until);
}

static bool requests_are_there(struct auditor *a)
{
    struct engine_stats stats;
    engine_stats_get(a->group, &stats);
    return stats.running + stats.waiting > 0;
}

/* Holds back while requests are there and the share is used up.  @return false: the audit ends */
static bool wait_for_turn(struct auditor *a)
{
    pthread_mutex_lock(&a->lock);
    while (!a->stopping && !a->abort && !a->order.exclusive && clock_ms() < a->next_ms &&
           requests_are_there(a))
        wait_ms(a, AUDIT_LOOK_MS);
    bool go_on = !a->stopping && !a->abort;
    pthread_mutex_unlock(&a->lock);
    return go_on;
}

struct timed {
    engine_work_fn *work;
    void *user;
    int64_t ms;
};

/* On the engine thread: waiting for a step to end is no time that the audit took. */
static void run_timed(void *user, struct model *model)
{
    struct timed *t = user;
    int64_t begin = clock_ms();
    t->work(t->user, model);
    t->ms = clock_ms() - begin;
}

/* The laboratory's host. */
static bool run_in_turn(void *host, engine_work_fn *work, void *user)
{
    struct auditor *a = host;
    struct timed timed = {.work = work, .user = user};
    if (!a->cleaning && !wait_for_turn(a))
        return false;
    bool ran = engine_between_steps(a->group, run_timed, &timed);
    a->next_ms = clock_ms() + timed.ms * (100 - AUDIT_SHARE_PERCENT) / AUDIT_SHARE_PERCENT;
    return ran;
}

/* ---- reports --------------------------------------------------------------------------------- */

/* The member "run" of a new report. */
static void put_run(struct json_object *report, const struct order *order, int32_t groups)
{
    struct json_object *run = json_object_new_object();
    bool searches = strcmp(order->what.what, "isolate") == 0;
    json_set(run, "id", json_object_new_int(order->id));
    json_set(run, "time_s", json_object_new_int64(order->started_s));
    json_set(run, "by", json_object_new_string(order->scheduled ? "schedule" : "operator"));
    json_set(run, "what", json_object_new_string(order->what.what));
    if (order->what.pinned != NULL) /* the id alone: what was said stays in memory */
        json_set(run, "pinned", json_object_new_string(order->pinned.id));
    else if (searches)
        json_set(run, "test", json_object_new_string(audit_test_name(order->what.test)));
    json_set(run, "percent", json_object_new_int(order->what.percent));
    json_set(run, "exclusive", json_object_new_boolean(order->exclusive));
    json_set(run, "cpu", json_object_new_boolean(order->what.cpu));
    if (groups > 1) {
        json_set(run, "group", json_object_new_int(order->what.group + 1));
        json_set(run, "groups", json_object_new_int(groups));
    }
    json_set(run, "starts", json_object_new_int(0));
    json_set(report, "run", run);
}

static int starts_of(struct json_object *report)
{
    return json_object_get_int(report_member(report_member(report, "run"), "starts"));
}

/* Keeps the report as it is now.  A disk that is full ends no audit: the log says it. */
static void keep(struct auditor *a, struct audit_work *w, enum archive_state state, int starts,
                 bool whole)
{
    struct json_object *run = report_member(w->report, "run");
    struct error err;
    audit_work_judge(w, whole);
    json_set(run, "state", json_object_new_string(archive_state_name(state)));
    json_set(run, "starts", json_object_new_int(starts));
    if (archive_put(a->archive, w->report, &err) != OK)
        log_line(LOG_LEVEL_ERROR, "audit", "%s", err.text);
}

/* The order of a report that was interrupted.  @return false: this engine can not go on with it */
static bool order_of(struct auditor *a, struct json_object *report, struct order *out)
{
    struct json_object *run = report_member(report, "run");
    struct error err;
    const char *test = report_string(run, "test");
    struct json_object *engine = report_member(report, "engine"),
                       *group = report_member(run, "group");
    *out = (struct order){
        .id = json_object_get_int(report_member(run, "id")),
        .what = {.budget = audit_budget(report_string(report, "budget")),
                 .seed = json_object_get_int(report_member(report, "seed")),
                 .items = json_object_get_int(report_member(report, "items")),
                 .percent = json_object_get_int(report_member(run, "percent")),
                 .cpu = json_object_get_boolean(report_member(run, "cpu")),
                 .group = group == NULL ? 0 : json_object_get_int(group) - 1},
        .exclusive = json_object_get_boolean(report_member(run, "exclusive")),
        .scheduled = strcmp(report_string(run, "by"), "schedule") == 0,
        .started_s = json_object_get_int64(report_member(run, "time_s")),
    };
    /* What was pinned went with the memory that it was in. */
    return report_member(run, "pinned") == NULL && out->what.budget != NULL &&
           starts_of(report) < AUDIT_STARTS_MAX && out->what.group >= 0 &&
           out->what.group < engine_groups(a->options.engine) &&
           out->what.percent >= AUDIT_PERCENT_MIN && out->what.percent <= 100 &&
           audit_order_what(&out->what, report_string(run, "what"), test[0] == '\0' ? NULL : test,
                            &err) == OK &&
           audit_report_profile(report_member(report, "profile"), &out->what.profile) &&
           audit_report_profile(report_member(report, "reference"), &out->what.reference) &&
           audit_engine_is(engine, a->model.name, a->model.weights);
}

/* Ends an interrupted audit that does not go on. */
static void cut(struct auditor *a, struct json_object *report)
{
    struct audit_work w = {.report = report,
                           .verdict = audit_report_worst(report),
                           .before_s = report_number(report, "spent_s")};
    keep(a, &w, ARCHIVE_CUT, starts_of(report), false);
    log_line(LOG_LEVEL_ERROR, "audit", "%d was interrupted and does not go on",
             (int)json_object_get_int(report_member(report_member(report, "run"), "id")));
}

/* Looks for audits that were interrupted: the oldest goes on.  Under the lock, or alone. */
static void resume(struct auditor *a)
{
    struct archive_head heads[AUDIT_KEPT_MAX];
    int n = archive_list(a->archive, heads);
    for (int i = 0; i < n; i++) {
        struct json_object *report;
        struct error err;
        if (heads[i].scheduled && heads[i].time_s > a->scheduled_s)
            a->scheduled_s = heads[i].time_s;
        if (heads[i].state != ARCHIVE_UNFINISHED ||
            archive_get(a->archive, heads[i].id, &report, &err) != OK)
            continue;
        struct order order;
        if (a->order.id == 0 && order_of(a, report, &order)) {
            a->order = order;
            a->order.report = report;
        } else {
            cut(a, report);
            json_object_put(report);
        }
    }
}

/* ---- one audit ------------------------------------------------------------------------------- */

static void note_step(struct auditor *a, const char *step, int done, int steps)
{
    pthread_mutex_lock(&a->lock);
    a->step = step;
    a->done = done;
    a->steps = steps;
    pthread_mutex_unlock(&a->lock);
}

/* Runs the steps that the report does not have.  @return true: it has all of them now */
static bool run_steps(struct auditor *a, struct audit_work *w, int starts)
{
    const char *steps[AUDIT_STEPS_MAX];
    int n = audit_order_steps(&w->order, steps);
    for (int i = 0; i < n;) {
        enum audit_verdict verdict;
        struct error err;
        if (audit_work_did(w, steps[i])) {
            i++;
            continue;
        }
        note_step(a, steps[i], i, n);
        if (audit_work_step(w, steps[i], &verdict, &err) != OK) {
            log_line(LOG_LEVEL_ERROR, "audit", "%s: %s", steps[i], err.text);
            return false;
        }
        if (a->lab.gone)
            return false;
        keep(a, w, ARCHIVE_UNFINISHED, starts, i + 1 == n && audit_work_did(w, steps[i]));
    }
    return true;
}

/* How it ended.  A clean stop is not counted among the interruptions; a network that was lost is.
 */
static enum archive_state outcome(struct auditor *a, bool whole, int *starts)
{
    pthread_mutex_lock(&a->lock);
    bool aborted = a->abort, stopping = a->stopping;
    pthread_mutex_unlock(&a->lock);
    if (whole)
        return ARCHIVE_FINISHED;
    if (aborted || !a->lab.gone)
        return ARCHIVE_ABORTED;
    *starts -= stopping;
    return ARCHIVE_UNFINISHED;
}

static void finish(struct auditor *a, struct audit_work *w, bool whole, int starts)
{
    enum archive_state state = outcome(a, whole, &starts);
    keep(a, w, state, starts, whole);
    enum audit_verdict verdict = audit_verdict_parse(report_string(w->report, "verdict"));
    log_line(auditor_alarms(verdict) ? LOG_LEVEL_ERROR : LOG_LEVEL_INFO, "audit", "%d is %s: %s",
             (int)a->order.id, archive_state_name(state), audit_verdict_name(verdict));
    pthread_mutex_lock(&a->lock);
    a->interrupted = state == ARCHIVE_UNFINISHED;
    a->audits += !a->interrupted;
    a->alarms += !a->interrupted && auditor_alarms(verdict);
    pthread_mutex_unlock(&a->lock);
}

/* The file that may lie among the reports.  @return OK with *out NULL: there is none */
static enum status golden_open(struct auditor *a, struct golden **out, struct error *err)
{
    struct buf path = {0};
    enum status status = OK;
    buf_printf(&path, "%s/" AUDITOR_GOLDEN, a->options.folder);
    *out = NULL;
    if (access(buf_cstr(&path), F_OK) == 0)
        status = golden_read(buf_cstr(&path), &a->model, out, err);
    buf_free(&path);
    return status;
}

enum status auditor_golden_put(struct auditor *a, const struct buf *text, struct error *err)
{
    struct golden *golden = NULL;
    struct buf path = {0};
    int32_t room = engine_context_max(a->options.engine);
    enum status status = golden_parse(text, &a->model, &golden, err);
    if (status == OK && (int64_t)golden_ids(golden)->len > room)
        status = error_set(err, ERR_INPUT, "ids: %zu, the context has room for %d",
                           golden_ids(golden)->len, (int)room);
    golden_free(golden);
    buf_printf(&path, "%s/" AUDITOR_GOLDEN, a->options.folder);
    if (status == OK)
        status = file_replace(buf_cstr(&path), text, err);
    buf_free(&path);
    return status;
}

enum status auditor_golden_remove(struct auditor *a, struct error *err)
{
    struct buf path = {0};
    enum status status = OK;
    buf_printf(&path, "%s/" AUDITOR_GOLDEN, a->options.folder);
    if (unlink(buf_cstr(&path)) != 0)
        status = errno == ENOENT
                     ? error_set(err, ERR_INPUT, "there is no golden file")
                     : error_set(err, ERR_IO, "%s: %s", buf_cstr(&path), strerror(errno));
    buf_free(&path);
    return status;
}

void auditor_golden_print(struct auditor *a, struct buf *out)
{
    struct golden *golden;
    struct error err;
    if (golden_open(a, &golden, &err) != OK)
        buf_puts(out, err.text);
    else if (golden == NULL)
        buf_puts(out, "none; `ssh BOX audit golden <FILE` sends one");
    else
        buf_printf(out, "%d rows of %s made by %s, SHA-256 %s", (int)golden_rows(golden),
                   golden_profile(golden), golden_made_by(golden), golden_sha256(golden));
    golden_free(golden);
}

/* The CPU's network, for an order that asks for it. */
static enum status cpu_open(struct auditor *a, struct audit_work *w, struct model **model,
                            struct error *err)
{
    const struct model_options options = {.isa = ISA_AUTO};
    if (!w->order.cpu)
        return OK;
    enum status status = model_open(a->options.model, &options, model, err);
    if (status != OK)
        return status;
    w->cpu = calloc(1, sizeof *w->cpu);
    ASSERT(w->cpu != NULL);
    lab_open_model(w->cpu, *model);
    return OK;
}

static void audit_run(struct auditor *a)
{
    struct order *order = &a->order; /* nobody changes it while it runs */
    struct audit_work w = {.order = order->what,
                           .lab = &a->lab,
                           .text = a->options.text,
                           .weights = a->model.weights,
                           .proving = a->options.proving,
                           .report = order->report};
    struct error err;
    struct audit_given *given = NULL;
    struct model *cpu = NULL;
    struct golden *golden = NULL;
    bool again = order->report != NULL;
    order->report = NULL;
    if (order->what.pinned != NULL)
        w.order.given = given = given_of_prompt(&order->pinned.prompt, &a->options.text);
    a->group = engine_group(a->options.engine, order->what.group);
    if (w.proving.serve != NULL)
        w.proving.serve_user = a->group;
    lab_open_engine(&a->lab, a->group);
    a->lab.run = run_in_turn;
    a->lab.host = a;
    a->next_ms = 0;
    a->interrupted = true;
    enum status status = cpu_open(a, &w, &cpu, &err);
    if (golden_open(a, &golden, &err) != OK) /* another model's, perhaps: the audit stands alone */
        log_line(LOG_LEVEL_WARN, "audit", "%s", err.text);
    w.anchors.golden[0] = golden;
    w.anchors.n_golden = golden != NULL;
    if (status == OK)
        status = audit_work_open(&w, engine_context_max(a->options.engine), &err);
    if (w.report != NULL && !again)
        put_run(w.report, order, engine_groups(a->options.engine));
    if (status != OK)
        log_line(LOG_LEVEL_ERROR, "audit", "%d: %s", (int)order->id, err.text);
    if (w.report != NULL) { /* else it has not even begun */
        int starts = starts_of(w.report) + 1;
        w.verdict = audit_report_worst(w.report);
        keep(a, &w, ARCHIVE_UNFINISHED, starts, false);
        finish(a, &w, status == OK && run_steps(a, &w, starts), starts);
    }
    a->cleaning = true;
    audit_work_close(&w);
    golden_free(golden);
    free(w.cpu);
    model_close(cpu);
    given_free(given);
    a->cleaning = false;
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* Gives the audit that the schedule wants, when it is time; each group has its turn.  Under the
 * lock. */
static void schedule_look(struct auditor *a)
{
    int64_t now_s = (int64_t)time(NULL);
    if (a->order.id != 0 || now_s < CLOCK_SET_S ||
        !schedule_due(&a->schedule, a->scheduled_s, now_s))
        return;
    a->scheduled_s = now_s;
    int32_t id = archive_next_id(a->archive);
    a->order = (struct order){.id = id,
                              .what = {.budget = a->schedule.budget,
                                       .group = id % engine_groups(a->options.engine),
                                       .reference = *profile_builtin_at(PROFILE_REFERENCE),
                                       .seed = (int32_t)randombytes_uniform(INT32_MAX),
                                       .percent = 100},
                              .scheduled = true,
                              .started_s = now_s};
    struct error err;
    ASSERT(audit_order_what(&a->order.what, "all", NULL, &err) == OK);
    engine_profile_get(a->options.engine, &a->order.what.profile);
}

/* Until the network computes again, or nobody waits for that.  Under the lock. */
static void wait_for_network(struct auditor *a)
{
    struct engine_stats stats;
    if (a->again == 0)
        return;
    do {
        wait_ms(a, AUDIT_AGAIN_MS);
        engine_stats_get(engine_group(a->options.engine, a->order.what.group), &stats);
    } while (stats.lost && !a->stopping && !a->abort);
}

static void *run(void *context)
{
    struct auditor *a = context;
    pthread_mutex_lock(&a->lock);
    while (!a->stopping) {
        schedule_look(a);
        if (a->order.id == 0) {
            wait_ms(a, AUDIT_SCHEDULE_LOOK_S * 1000);
            continue;
        }
        wait_for_network(a);
        pthread_mutex_unlock(&a->lock);
        audit_run(a);
        pthread_mutex_lock(&a->lock);
        recording_clear(&a->order.pinned);
        a->order = (struct order){0};
        a->step = NULL;
        a->done = a->steps = 0;
        a->abort = false;
        /* A network that was lost comes back without a restart.  Counted here as well: on a disk
         * that is full the report does not count. */
        if (!a->stopping && a->interrupted && ++a->again < AUDIT_STARTS_MAX)
            resume(a);
        else
            a->again = 0;
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

/* ---- public ---------------------------------------------------------------------------------- */

static void auditor_free(struct auditor *a)
{
    json_object_put(a->order.report);
    recording_clear(&a->order.pinned);
    archive_close(a->archive);
    pthread_cond_destroy(&a->changed);
    pthread_mutex_destroy(&a->lock);
    free(a);
}

enum status auditor_start(const struct auditor_options *options, struct auditor **out,
                          struct error *err)
{
    struct auditor *a = calloc(1, sizeof *a);
    pthread_condattr_t clock;
    struct error why;
    ASSERT(a != NULL);
    a->options = *options;
    ASSERT(pthread_condattr_init(&clock) == 0);
    ASSERT(pthread_condattr_setclock(&clock, CLOCK_MONOTONIC) == 0);
    ASSERT(pthread_cond_init(&a->changed, &clock) == 0);
    pthread_condattr_destroy(&clock);
    ASSERT(pthread_mutex_init(&a->lock, NULL) == 0);
    const struct model_config *config = engine_model_config(options->engine);
    enum status status =
        golden_model_of(options->model, config->name, config->vocab_size, &a->model, err);
    if (status == OK)
        status = archive_open(options->folder, &a->archive, err);
    if (status == OK) {
        /* It fits: the archive's own paths are longer. */
        snprintf(a->schedule_path, sizeof a->schedule_path, "%s/schedule", options->folder);
        /* A box must serve; that it does not audit itself any more, the log and status say. */
        if (schedule_read(a->schedule_path, &a->schedule, &why) != OK)
            log_line(LOG_LEVEL_ERROR, "audit", "%s; nothing is scheduled", why.text);
        resume(a);
        status = thread_start(&a->thread, "audit", run, a, err);
    }
    if (status != OK) {
        auditor_free(a);
        return status;
    }
    *out = a;
    return OK;
}

void auditor_stop(struct auditor *a)
{
    if (a == NULL)
        return;
    pthread_mutex_lock(&a->lock);
    a->stopping = true;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
    ASSERT(pthread_join(a->thread, NULL) == 0);
    auditor_free(a);
}

enum status auditor_begin(struct auditor *a, const struct audit_order *order, bool exclusive,
                          struct recording *take_pinned, int32_t *id, struct error *err)
{
    enum status status = OK;
    pthread_mutex_lock(&a->lock);
    if (a->order.id != 0) {
        status =
            error_set(err, ERR_CAPACITY, "audit %d runs; `audit abort` ends it", (int)a->order.id);
    } else {
        a->order = (struct order){.id = archive_next_id(a->archive),
                                  .what = *order,
                                  .exclusive = exclusive,
                                  .started_s = (int64_t)time(NULL)};
        if (take_pinned != NULL) {
            a->order.pinned = *take_pinned;
            *take_pinned = (struct recording){0};
        }
        a->order.what.pinned = take_pinned != NULL ? &a->order.pinned : NULL;
        *id = a->order.id;
        pthread_cond_broadcast(&a->changed);
    }
    pthread_mutex_unlock(&a->lock);
    return status;
}

enum status auditor_abort(struct auditor *a, struct error *err)
{
    pthread_mutex_lock(&a->lock);
    bool runs = a->order.id != 0;
    a->abort = a->abort || runs;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
    return runs ? OK : error_set(err, ERR_INPUT, "no audit runs");
}

enum status auditor_schedule(struct auditor *a, const struct audit_schedule *schedule,
                             struct error *err)
{
    pthread_mutex_lock(&a->lock);
    enum status status = schedule_write(a->schedule_path, schedule, err);
    if (status == OK)
        a->schedule = *schedule;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
    return status;
}

void auditor_status_get(struct auditor *a, struct auditor_status *out)
{
    struct archive_head heads[AUDIT_KEPT_MAX];
    pthread_mutex_lock(&a->lock);
    *out = (struct auditor_status){.id = a->order.id,
                                   .order = a->order.what,
                                   .step = a->step != NULL ? a->step : "",
                                   .done = a->done,
                                   .steps = a->steps,
                                   .exclusive = a->order.exclusive,
                                   .scheduled = a->order.scheduled,
                                   .started_s = a->order.started_s,
                                   .schedule = a->schedule,
                                   .audits = a->audits,
                                   .alarms = a->alarms};
    int n = archive_list(a->archive, heads);
    pthread_mutex_unlock(&a->lock);
    for (int i = 0; i < n; i++) {
        if (heads[i].state == ARCHIVE_FINISHED || heads[i].state == ARCHIVE_CUT)
            out->last = heads[i];
    }
}

struct archive *auditor_archive(struct auditor *a)
{
    return a->archive;
}
