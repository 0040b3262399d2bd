/* Orders as lists of steps, and the report that they fill. */
#include "engine/audit/work.h"

#include "config/audit_gates.h"
#include "config/version.h"
#include "engine/audit/culprit.h"
#include "engine/audit/evidence.h"
#include "engine/audit/pinned.h"
#include "engine/audit/report_fields.h"
#include "engine/audit/soak.h"
#include "engine/audit/stats.h"
#include "engine/audit/tests_common.h"
#include "engine/base/clock.h"
#include "engine/model/model.h"
#include "kernels/check.h"
#include "kernels/gauges.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define STEP_PROVE   "prove"
#define STEP_RANK    "rank"
#define STEP_ISOLATE "isolate"
#define STEP_PINNED  "pinned"
#define STEP_SOAK    "soak"
#define STEP_ALL     "all"

/* ---- orders ---------------------------------------------------------------------------------- */

/* Beside the tests themselves: what stands alone, and what is made of several steps. */
static const char *const WORDS[] = {STEP_PROVE, STEP_RANK, STEP_ALL, STEP_SOAK, STEP_ISOLATE};
#define WORDS_N (sizeof WORDS / sizeof *WORDS)

void audit_order_words(struct buf *out)
{
    for (size_t i = 0; i < WORDS_N; i++)
        buf_printf(out, "%s ", WORDS[i]);
    for (int i = 0; i < AUDIT_TESTS; i++)
        buf_printf(out, "%s%s", audit_test_name((enum audit_test)i),
                   i + 1 < AUDIT_TESTS ? " " : "");
}

static const char *word_find(const char *what)
{
    enum audit_test test;
    for (size_t i = 0; i < WORDS_N; i++) {
        if (strcmp(WORDS[i], what) == 0)
            return WORDS[i];
    }
    return audit_test_parse(what, &test) ? audit_test_name(test) : NULL;
}

enum status audit_order_what(struct audit_order *order, const char *what, const char *test,
                             struct error *err)
{
    const char *word = word_find(what);
    if (word == NULL)
        return error_set(err, ERR_USAGE, "no audit is named so");
    bool searches = strcmp(word, STEP_ISOLATE) == 0;
    enum audit_test searched = TEST_LOGITS;
    if (searches && (test == NULL || !audit_test_parse(test, &searched) || searched == TEST_FLOOR))
        return error_set(err, ERR_USAGE,
                         "--test: want prompt, replay, logits, tools, recall or needle");
    if (!searches && test != NULL)
        return error_set(err, ERR_USAGE, "--test: belongs to isolate");
    order->what = word;
    order->test = searched;
    return OK;
}

int audit_order_steps(const struct audit_order *order, const char *steps[AUDIT_STEPS_MAX])
{
    int n = 0;
    enum audit_test test;
    if (order->pinned != NULL && strcmp(order->what, STEP_ISOLATE) != 0) {
        steps[n++] = STEP_PINNED;
        return n;
    }
    if (strcmp(order->what, STEP_RANK) != 0)
        steps[n++] = STEP_PROVE; /* no verdict stands without it */
    if (strcmp(order->what, STEP_RANK) == 0 || strcmp(order->what, STEP_ISOLATE) == 0 ||
        strcmp(order->what, STEP_SOAK) == 0)
        steps[n++] = order->what;
    bool all = strcmp(order->what, STEP_ALL) == 0;
    if (all) /* in front of what shares the time that is left */
        steps[n++] = STEP_RANK;
    for (int i = 0; i < AUDIT_TESTS && all; i++)
        steps[n++] = audit_test_name((enum audit_test)i);
    if (audit_test_parse(order->what, &test))
        steps[n++] = audit_test_name(test);
    return n;
}

/* ---- the report ------------------------------------------------------------------------------ */

static struct json_object *profile_json(const struct profile *profile)
{
    struct json_object *out = json_object_new_object(), *values = json_object_new_object();
    char hash[PROFILE_HASH_BYTES];
    profile_hash_text(profile, hash);
    json_set(out, "name", json_object_new_string(profile->name));
    json_set(out, "hash", json_object_new_string(hash));
    for (int row = 0; row < PRECISION_ROWS; row++)
        json_set(values, PRECISION[row].name,
                 json_object_new_string(profile_value_name(profile, (enum precision_row)row)));
    json_set(out, "values", values);
    return out;
}

bool audit_report_profile(struct json_object *profile, struct profile *out)
{
    struct json_object *values = report_member(profile, "values");
    const char *name = report_string(profile, "name");
    char hash[PROFILE_HASH_BYTES];
    *out = *profile_builtin_at(PROFILE_REFERENCE);
    if (strlen(name) >= sizeof out->name)
        return false;
    for (int row = 0; row < PRECISION_ROWS; row++) {
        const char *value = report_string(values, PRECISION[row].name);
        int found = profile_value_parse((enum precision_row)row, value);
        if (found < 0 || !profile_set(out, (enum precision_row)row, found))
            return false;
    }
    strcpy(out->name, name);
    profile_hash_text(out, hash);
    return strcmp(hash, report_string(profile, "hash")) == 0; /* of the table's version, too */
}

static enum audit_verdict isolation_verdict(enum isolate_outcome outcome)
{
    return outcome == ISOLATE_NO_FAULT    ? VERDICT_PASS
           : outcome == ISOLATE_MODEL     ? VERDICT_MODEL
           : outcome == ISOLATE_UNDECIDED ? VERDICT_UNDECIDED
                                          : VERDICT_FAIL;
}

enum audit_verdict audit_report_worst(struct json_object *report)
{
    enum audit_verdict worst = VERDICT_PASS;
    struct json_object *tests = report_member(report, "tests");
    for (size_t i = 0; i < report_count(tests); i++) {
        struct json_object *test = json_object_array_get_idx(tests, i);
        worst = audit_verdict_worst(worst, audit_verdict_parse(report_string(test, "verdict")));
    }
    const char *outcome = report_string(report_member(report, "isolation"), "outcome");
    for (int i = 0; i < ISOLATE_OUTCOMES; i++) {
        if (strcmp(isolate_outcome_name((enum isolate_outcome)i), outcome) == 0)
            return worst == VERDICT_INVALID
                       ? worst /* the search tried rows that are not what they are said to be */
                       : audit_verdict_worst(worst, isolation_verdict((enum isolate_outcome)i));
    }
    return worst;
}

bool audit_engine_is(struct json_object *engine, const char *model, const char *weights)
{
    return strcmp(report_string(engine, "version"), V4BOX_VERSION) == 0 &&
           strcmp(report_string(engine, "model"), model) == 0 &&
           strcmp(report_string(engine, "weights"), weights) == 0;
}

/* What computes. */
struct computer {
    const char *isa;
    bool worker, gpus;
    struct gauges gauges; /* where there are GPUs: all of the machine */
};

static void ask_computer(void *user, struct model *model)
{
    struct computer *c = user;
    c->isa = model_isa_name(model);
    c->worker = model_worker(model) != 0;
    c->gpus = model_gauges(model, &c->gauges) && c->gauges.n > 0;
}

static void put_computer(const struct computer *c, struct json_object *engine)
{
    json_set(engine, "isa", json_object_new_string(c->isa));
    json_set(engine, "computes", json_object_new_string(c->worker ? "a worker" : "this program"));
    if (!c->gpus)
        return;
    struct json_object *gpus = json_object_new_array();
    for (int32_t i = 0; i < c->gauges.n; i++) {
        const struct gpu_gauges *gpu = &c->gauges.gpu[i];
        char text[GAUGE_BUS_BYTES + GAUGE_NAME_BYTES];
        snprintf(text, sizeof text, "%s %s", gpu->bus, gpu->name);
        if (gpu->value[GAUGE_RANK] !=
            GAUGE_UNKNOWN) /* the others compute something else, or nothing */
            json_object_array_add(gpus, json_object_new_string(text));
    }
    json_set(engine, "gpus", gpus);
    json_set(engine, "driver", json_object_new_string(c->gauges.driver));
}

static struct json_object *report_new(const struct audit_work *w, const struct computer *computer)
{
    struct json_object *out = json_object_new_object(), *engine = json_object_new_object();
    json_set(out, "schema", json_object_new_string(REPORT_SCHEMA));
    json_set(engine, "version", json_object_new_string(V4BOX_VERSION));
    json_set(engine, "model", json_object_new_string(w->lab->config->name));
    json_set(engine, "weights", json_object_new_string(w->weights));
    put_computer(computer, engine);
    json_set(out, "engine", engine);
    json_set(out, "profile", profile_json(&w->order.profile));
    json_set(out, "reference", profile_json(&w->order.reference));
    json_set(out, "seed", json_object_new_int(w->order.seed));
    json_set(out, "budget", json_object_new_string(w->order.budget->name));
    if (w->order.items > 0)
        json_set(out, "items", json_object_new_int(w->order.items));
    json_set(out, "tests", json_object_new_array());
    return out;
}

enum status audit_work_open(struct audit_work *w, int32_t context, struct error *err)
{
    struct computer computer = {0};
    if (!lab_work(w->lab, ask_computer, &computer))
        return error_set(err, ERR_IO, "the model is going away");
    if (w->report == NULL)
        w->report = report_new(w, &computer);
    w->verdict = audit_report_worst(w->report);
    w->before_s =
        report_member(w->report, "spent_s") != NULL ? report_number(w->report, "spent_s") : 0;
    w->begin_ms = clock_ms();
    enum status status = machine_create(w->lab, &w->text, context, &w->machine, err);
    if (status == OK && w->cpu != NULL)
        status = machine_create(w->cpu, &w->text, AUDIT_CPU_TOKENS, &w->anchors.cpu, err);
    return status;
}

void audit_work_close(struct audit_work *w)
{
    machine_destroy(w->machine);
    machine_destroy(w->anchors.cpu);
    json_object_put(w->report);
    w->machine = w->anchors.cpu = NULL;
    w->report = NULL;
}

/* ---- steps ----------------------------------------------------------------------------------- */

double audit_work_spent(const struct audit_work *w)
{
    int64_t ms = w->begin_ms == 0 ? 0 : clock_ms() - w->begin_ms; /* 0: not opened, only judged */
    return w->before_s + (double)ms / 1000;
}

static double left_s(const struct audit_work *w)
{
    double promised = w->order.budget->seconds * (1 - AUDIT_RESERVE_PERCENT / 100.0);
    return fmax(promised - audit_work_spent(w), 0);
}

/* The place of a step's outcome among the tests, or their number. */
static size_t find_test(const struct audit_work *w, const char *step)
{
    struct json_object *tests = report_member(w->report, "tests");
    size_t i = 0;
    while (i < report_count(tests) &&
           strcmp(report_string(json_object_array_get_idx(tests, i), "name"), step) != 0)
        i++;
    return i;
}

bool audit_work_did(const struct audit_work *w, const char *step)
{
    struct json_object *tests = report_member(w->report, "tests");
    size_t at = find_test(w, step);
    if (at < report_count(tests) && strcmp(step, STEP_SOAK) == 0)
        return soak_over(json_object_array_get_idx(tests, at), w->order.budget, left_s(w));
    return at < report_count(tests) ||
           (strcmp(step, STEP_ISOLATE) == 0 && report_member(w->report, "isolation") != NULL);
}

/* When a share of the time that is left ends; 0: never. */
static int64_t end_ms(const struct audit_work *w, double share)
{
    double ms = left_s(w) * 1000 * share;
    return w->order.budget->seconds == 0 ? 0 : clock_ms() + (int64_t)ms;
}

/* Until when a test may take: its share of what is left to it and to those behind it; 0: for ever.
 */
static int64_t until_ms(const struct audit_work *w, enum audit_test test)
{
    const char *steps[AUDIT_STEPS_MAX];
    int n = audit_order_steps(&w->order, steps), all = 0;
    for (int i = 0; i < n; i++) {
        enum audit_test other;
        if (audit_test_parse(steps[i], &other) && other >= test)
            all += audit_test_share(other);
    }
    return end_ms(w, (double)audit_test_share(test) / all);
}

static bool lab_gone(void *user)
{
    const struct lab *lab = user;
    return lab->gone;
}

/* On the text of a needle: what the other tests show the model. */
static enum status rank_step(struct audit_work *w, struct json_object **result,
                             enum audit_verdict *verdict, struct error *err)
{
    const struct needle_plan plan = {
        .seed = audit_seed(w->order.seed), .length = RANK_PROMPT_MAX, .at = RANK_PROMPT_MAX / 2};
    struct audit_item item;
    enum status status = conversation_needle(&w->text, &plan, &item, err);
    if (status != OK)
        return status;
    bool own = strcmp(w->order.what, STEP_RANK) != 0; /* who asks for it alone wants to choose */
    *result = evidence_rank_in(w->lab, &w->order.profile, own, item.ids.data, (int32_t)item.ids.len,
                               w->report, verdict);
    audit_item_free(&item);
    return OK;
}

static void isolate_step(struct audit_work *w, const struct audit_run *run,
                         enum audit_verdict *verdict)
{
    enum isolate_outcome outcome;
    struct json_object *isolation = culprit_search(run, w->order.test, &outcome);
    *verdict = isolation_verdict(outcome);
    if (w->lab->gone)
        json_object_put(isolation);
    else
        json_set(w->report, "isolation", isolation);
}

/* The rounds so far, or NULL. */
static struct json_object *soaked(const struct audit_work *w)
{
    struct json_object *tests = report_member(w->report, "tests");
    size_t at = find_test(w, STEP_SOAK);
    return at < report_count(tests) ? json_object_array_get_idx(tests, at) : NULL;
}

/* Adds a step's outcome; that of one round more takes the place of those before, with their time.
 */
static void put_result(struct audit_work *w, const char *step, struct json_object *result,
                       double seconds)
{
    struct json_object *tests = report_member(w->report, "tests");
    double before = report_number(result, "seconds");
    json_set(result, "seconds", json_object_new_double(seconds + (isfinite(before) ? before : 0)));
    ASSERT(json_object_array_put_idx(tests, find_test(w, step), result) == 0);
}

/* The budget, with no more items than the order wants. */
static struct audit_budget budget_of(const struct audit_order *order)
{
    struct audit_budget budget = *order->budget;
    if (order->items > 0 && order->items < budget.items)
        budget.items = order->items;
    return budget;
}

enum status audit_work_step(struct audit_work *w, const char *step, enum audit_verdict *verdict,
                            struct error *err)
{
    const struct audit_order *o = &w->order;
    const struct audit_budget budget = budget_of(o);
    struct audit_run run = {
        .machine = w->machine,
        .text = &w->text,
        .profile = &o->profile,
        .reference = &o->reference,
        .budget = &budget,
        .given = o->given,
        .anchors = &w->anchors,
        .seed = audit_seed(o->seed),
        .repeats = o->percent == 100 ? 1 : stats_repeats(o->percent / 100.0, AUDIT_MISS),
        .cancelled = lab_gone,
        .user = w->lab};
    struct json_object *result = NULL;
    enum status status = OK;
    enum audit_test test;
    double start = (double)clock_ms();
    *verdict = VERDICT_UNDECIDED;
    if (audit_test_parse(step, &test)) {
        run.until_ms = until_ms(w, test);
        result = audit_test(&run, test, verdict);
    } else if (strcmp(step, STEP_PROVE) == 0) {
        w->proving.profile = &o->profile;
        result = evidence_prove_in(w->lab, &w->proving, &o->reference, w->report, verdict);
    } else if (strcmp(step, STEP_SOAK) == 0) {
        run.until_ms = end_ms(w, 1);
        result = soak_round(&run, o->seed, soaked(w), verdict);
    } else if (strcmp(step, STEP_PINNED) == 0) {
        result = pinned_replay(w->machine, o->pinned, &o->profile, verdict);
    } else if (strcmp(step, STEP_RANK) == 0) {
        status = rank_step(w, &result, verdict, err);
    } else {
        isolate_step(w, &run, verdict);
    }
    if (w->lab->gone) {
        *verdict = VERDICT_UNDECIDED;
        json_object_put(result);
    } else if (result != NULL) {
        put_result(w, step, result, ((double)clock_ms() - start) / 1000);
    }
    w->verdict = audit_report_worst(w->report);
    return status;
}

void audit_work_judge(struct audit_work *w, bool whole)
{
    enum audit_verdict verdict =
        whole ? w->verdict : audit_verdict_worst(w->verdict, VERDICT_UNDECIDED);
    json_set(w->report, "spent_s", json_object_new_double(audit_work_spent(w)));
    json_set(w->report, "verdict", json_object_new_string(audit_verdict_name(verdict)));
}
