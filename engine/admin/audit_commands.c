/*
 * `audit ...`: the operator's side of audits on the serving engine, a table of verbs.  An audit is
 * begun and goes on by itself; `audit status` says how far it is.
 */
#include "config/audit_gates.h"
#include "config/limits.h"
#include "engine/admin/call.h"
#include "engine/audit/auditor.h"
#include "engine/base/json.h"
#include "engine/base/log.h"
#include "engine/model/options.h"

#include <sodium.h>
#include <string.h>
#include <time.h>

#define BUDGET_DEFAULT "5m"
#define ISOLATE        "isolate"

static bool refuse(struct call *call, const struct error *err)
{
    buf_puts(&call->text, err->text);
    return false;
}

/* ---- beginning ------------------------------------------------------------------------------- */

/* What may stand behind the word of an audit. */
struct asked {
    const char *budget, *profile, *test, *seed, *percent, *pinned, *items, *group;
    bool exclusive, cpu;
};

static const struct {
    const char *name;
    size_t offset; /* of the member of struct asked */
} FLAGS[] = {
    {"--budget", offsetof(struct asked, budget)},   {"--profile", offsetof(struct asked, profile)},
    {"--test", offsetof(struct asked, test)},       {"--seed", offsetof(struct asked, seed)},
    {"--percent", offsetof(struct asked, percent)}, {"--pinned", offsetof(struct asked, pinned)},
    {"--items", offsetof(struct asked, items)},     {"--group", offsetof(struct asked, group)},
};

static bool take_flags(struct call *call, struct asked *out)
{
    *out = (struct asked){.budget = BUDGET_DEFAULT};
    for (int i = 1; i < call->n_args; i++) {
        const char **member = NULL;
        bool exclusive = strcmp(call->args[i], "--exclusive") == 0;
        bool cpu = strcmp(call->args[i], "--cpu") == 0;
        out->exclusive = out->exclusive || exclusive;
        out->cpu = out->cpu || cpu;
        if (exclusive || cpu)
            continue;
        for (size_t f = 0; f < sizeof FLAGS / sizeof FLAGS[0]; f++) {
            if (strcmp(FLAGS[f].name, call->args[i]) == 0)
                member = (const char **)((char *)out + FLAGS[f].offset);
        }
        if (member == NULL || i + 1 == call->n_args) {
            buf_printf(&call->text, "%s: no such word here, or its value is missing; words are",
                       call->args[i]);
            for (size_t f = 0; f < sizeof FLAGS / sizeof FLAGS[0]; f++)
                buf_printf(&call->text, " %s", FLAGS[f].name);
            buf_puts(&call->text, " --exclusive --cpu");
            return false;
        }
        *member = call->args[++i];
    }
    return true;
}

/* The order that was asked for.  @return false: refused, the text says why */
static bool take_order(struct call *call, const struct asked *asked, struct audit_order *out)
{
    struct error err;
    struct engine_stats stats;
    *out = (struct audit_order){.budget = audit_budget(asked->budget),
                                .reference = *profile_builtin_at(PROFILE_REFERENCE),
                                .seed = (int32_t)randombytes_uniform(INT32_MAX),
                                .percent = 100,
                                .cpu = asked->cpu};
    engine_profile_get(call->scope->engine, &out->profile);
    engine_stats_get(call->scope->engine, &stats);
    if (asked->cpu && stats.worker == 0) {
        buf_puts(&call->text, "--cpu: no worker computes here, the CPU does so by itself");
        return false;
    }
    if (out->budget == NULL) {
        buf_puts(&call->text, "--budget: want quick, 1m, 5m, 30m or 3h");
        return false;
    }
    if (asked->seed != NULL && !number_parse(asked->seed, 0, INT32_MAX, &out->seed)) {
        buf_printf(&call->text, "--seed: want a number from 0 to %d", INT32_MAX);
        return false;
    }
    if (asked->percent != NULL &&
        !number_parse(asked->percent, AUDIT_PERCENT_MIN, 100, &out->percent)) {
        buf_printf(&call->text, "--percent: want a number from %d to 100", AUDIT_PERCENT_MIN);
        return false;
    }
    if (asked->items != NULL && !number_parse(asked->items, 1, INT32_MAX, &out->items)) {
        buf_printf(&call->text, "--items: want a number from 1 to %d", INT32_MAX);
        return false;
    }
    int32_t groups = engine_groups(call->scope->engine);
    if (asked->group != NULL && !number_parse(asked->group, 1, groups, &out->group)) {
        buf_printf(&call->text,
                   "--group: want a number from 1 to %d; `gpu` shows what each is made of",
                   (int)groups);
        return false;
    }
    out->group -= asked->group != NULL;
    if (asked->profile != NULL &&
        !store_find(call->scope->profiles, asked->profile, &out->profile)) {
        buf_printf(&call->text, "no profile is named %s; `profile list` shows them",
                   asked->profile);
        return false;
    }
    /* what a pinned request must be answered is searched as a fact that is recalled */
    bool of_pinned =
        asked->pinned != NULL && asked->test == NULL && strcmp(call->args[0], ISOLATE) == 0;
    const char *test = of_pinned ? audit_test_name(TEST_RECALL) : asked->test;
    return audit_order_what(out, call->args[0], test, &err) == OK || refuse(call, &err);
}

/* The request that a replay or a search is of; its own profile, unless another is asked for.
 *  @return false: refused, the text says why */
static bool take_pinned(struct call *call, const struct asked *asked, struct audit_order *order,
                        struct recording *out)
{
    struct error err;
    int32_t room = engine_context_max(call->scope->engine) - AUDIT_ANSWER_TOKENS;
    if (strcmp(order->what, audit_test_name(TEST_REPLAY)) != 0 &&
        (strcmp(order->what, ISOLATE) != 0 || asked->test != NULL)) {
        buf_puts(&call->text, "--pinned: belongs to replay, or to isolate without --test");
        return false;
    }
    if (recorder_get(call->scope->recorder, asked->pinned, out, &err) != OK)
        return refuse(call, &err);
    if (strcmp(order->what, ISOLATE) == 0 && (int32_t)out->prompt.len > room) {
        buf_printf(&call->text, "its prompt has %zu tokens; a search has room for %d",
                   out->prompt.len, (int)room);
        recording_clear(out);
        return false;
    }
    if (asked->profile == NULL)
        order->profile = out->profile;
    return true;
}

/* Which of several groups an audit runs on: "" of one. */
static const char *on_group(const struct call *call, const struct audit_order *order, char text[48])
{
    int32_t groups = engine_groups(call->scope->engine);
    text[0] = '\0';
    if (groups > 1)
        snprintf(text, 48, " on group %d of %d", (int)order->group + 1, (int)groups);
    return text;
}

static bool run_begin(struct call *call)
{
    struct asked asked;
    struct audit_order order;
    struct recording pinned = {0};
    struct error err;
    char group[48];
    int32_t id;
    if (!take_flags(call, &asked) || !take_order(call, &asked, &order) ||
        (asked.pinned != NULL && !take_pinned(call, &asked, &order, &pinned)))
        return false;
    if (auditor_begin(call->scope->auditor, &order, asked.exclusive,
                      asked.pinned != NULL ? &pinned : NULL, &id, &err) != OK) {
        recording_clear(&pinned);
        return refuse(call, &err);
    }
    buf_printf(&call->text,
               "audit %d runs%s: %s of %s, budget %s, seed %d%s; `audit status` says how far it "
               "is\n",
               (int)id, on_group(call, &order, group), order.what, order.profile.name,
               order.budget->name, (int)order.seed, asked.exclusive ? ", exclusively" : "");
    buf_printf(&call->data, "{\"id\": %d, \"seed\": %d, \"group\": %d}", (int)id, (int)order.seed,
               (int)order.group + 1);
    log_line(LOG_LEVEL_INFO, "audit", "%d begins: %s of %s, %s", (int)id, order.what,
             order.profile.name, order.budget->name);
    return true;
}

static bool run_abort(struct call *call)
{
    struct error err;
    if (auditor_abort(call->scope->auditor, &err) != OK)
        return refuse(call, &err);
    buf_puts(&call->text, "the audit ends; its report keeps what was finished\n");
    buf_puts(&call->data, "{}");
    return true;
}

/* ---- golden files ---------------------------------------------------------------------------- */

static bool run_golden(struct call *call)
{
    struct error err;
    struct buf golden = {0};
    if (auditor_golden_put(call->scope->auditor, call->file, &err) != OK)
        return refuse(call, &err);
    auditor_golden_print(call->scope->auditor, &golden);
    buf_printf(&call->text, "logits are held against it from the next audit on: %s\n",
               buf_cstr(&golden));
    buf_puts(&call->data, "{\"golden\": ");
    json_dump_string(&call->data, golden.data, golden.len);
    buf_puts(&call->data, "}");
    log_line(LOG_LEVEL_INFO, "audit", "golden file: %s", buf_cstr(&golden));
    buf_free(&golden);
    return true;
}

static bool run_no_golden(struct call *call)
{
    struct error err;
    if (auditor_golden_remove(call->scope->auditor, &err) != OK)
        return refuse(call, &err);
    buf_puts(&call->text, "the golden file is gone\n");
    buf_puts(&call->data, "{}");
    log_line(LOG_LEVEL_INFO, "audit", "golden file: removed");
    return true;
}

/* ---- the flight recorder --------------------------------------------------------------------- */

static bool run_pin(struct call *call)
{
    struct error err;
    if (recorder_pin(call->scope->recorder, call->args[1], &err) != OK)
        return refuse(call, &err);
    buf_printf(&call->text, "%s pinned, in memory, until `audit unpin` or a restart\n",
               strcmp(call->args[1], "next") == 0 ? "the next request will be" : "it is");
    buf_puts(&call->data, "{}");
    return true;
}

static bool run_unpin(struct call *call)
{
    struct error err;
    if (recorder_unpin(call->scope->recorder, call->args[1], &err) != OK)
        return refuse(call, &err);
    buf_puts(&call->text, "forgotten\n");
    buf_puts(&call->data, "{}");
    return true;
}

/* What is kept of each, without a token of it: counts, and what a receipt has of the prompt. */
static bool run_pins(struct call *call)
{
    struct recording pins[RECORDER_PINS_MAX];
    int n = recorder_list(call->scope->recorder, pins);
    list_begin(call, "pins");
    for (int i = 0; i < n; i++) {
        const struct recording *p = &pins[i];
        char when[CALL_TIME_BYTES];
        list_next(call);
        buf_printf(&call->text, "%s  %s  %s  prompt %zu (%d reused), answer %zu, %s\n", p->id,
                   call_time(p->time_s, when), p->profile.name, p->prompt.len, (int)p->reused,
                   p->answer.len, p->ended ? "ended" : "runs");
        buf_printf(&call->data,
                   "\"id\": \"%s\", \"time\": %lld, \"profile\": \"%s\", \"prompt_tokens\": %zu, "
                   "\"reused_tokens\": %d, \"answer_tokens\": %zu, \"seed\": \"%llu\", "
                   "\"ended\": %s, \"sha256\": \"%s\"}",
                   p->id, (long long)p->time_s, p->profile.name, p->prompt.len, (int)p->reused,
                   p->answer.len, (unsigned long long)p->sampling.seed, p->ended ? "true" : "false",
                   p->prompt_hash);
    }
    list_end(call, "no request is pinned\n");
    return true;
}

/* ---- looking --------------------------------------------------------------------------------- */

/* The braces in front are the caller's. */
static void dump_head(struct call *call, const struct archive_head *h)
{
    char when[CALL_TIME_BYTES];
    buf_printf(&call->text, "%6d  %s  %-10s %-9s %-8s %-5s %s%s\n", (int)h->id,
               call_time(h->time_s, when), archive_state_name(h->state),
               audit_verdict_name(h->verdict), h->what, h->budget, h->profile,
               h->scheduled ? ", by schedule" : "");
    buf_printf(&call->data,
               "\"id\": %d, \"time\": %lld, \"state\": \"%s\", \"verdict\": \"%s\", "
               "\"what\": \"%s\", \"budget\": \"%s\", \"profile\": \"%s\", \"scheduled\": %s}",
               (int)h->id, (long long)h->time_s, archive_state_name(h->state),
               audit_verdict_name(h->verdict), h->what, h->budget, h->profile,
               h->scheduled ? "true" : "false");
}

static bool run_status(struct call *call)
{
    struct auditor_status s;
    struct buf schedule = {0};
    char group[48];
    auditor_status_get(call->scope->auditor, &s);
    schedule_print(&s.schedule, &schedule);
    if (s.id == 0)
        buf_puts(&call->text, "no audit runs\n");
    else
        buf_printf(&call->text, "audit %d (%s of %s, %s%s) runs%s for %lld s: %s, %d of %d done\n",
                   (int)s.id, s.order.what, s.order.profile.name, s.order.budget->name,
                   s.exclusive ? ", exclusively" : "", on_group(call, &s.order, group),
                   (long long)(time(NULL) - (time_t)s.started_s), s.step, s.done, s.steps);
    buf_printf(&call->text, "schedule: %s; %llu ended since the start, %llu of them alarms\n",
               buf_cstr(&schedule), (unsigned long long)s.audits, (unsigned long long)s.alarms);
    buf_printf(&call->data,
               "{\"runs\": %d, \"step\": \"%s\", \"done\": %d, \"steps\": %d, \"schedule\": \"%s\","
               " \"audits\": %llu, \"alarms\": %llu, \"last\": ",
               (int)s.id, s.step, s.done, s.steps, buf_cstr(&schedule),
               (unsigned long long)s.audits, (unsigned long long)s.alarms);
    buf_puts(&call->data, s.last.id != 0 ? "{" : "null");
    if (s.last.id != 0)
        dump_head(call, &s.last);
    buf_puts(&call->data, "}");
    buf_free(&schedule);
    return true;
}

static bool run_history(struct call *call)
{
    struct archive_head heads[AUDIT_KEPT_MAX];
    int n = archive_list(auditor_archive(call->scope->auditor), heads);
    list_begin(call, "audits");
    for (int i = 0; i < n; i++) {
        list_next(call);
        dump_head(call, &heads[i]);
    }
    list_end(call, "no audit was run yet\n");
    return true;
}

static void list_budgets(struct call *call)
{
    buf_puts(&call->data, "\"budgets\": [");
    for (int i = 0; audit_budget_at(i) != NULL; i++) {
        const struct audit_budget *b = audit_budget_at(i);
        buf_puts(&call->text, "budget ");
        audit_budget_print(b, &call->text);
        buf_printf(&call->data,
                   "%s{\"budget\": \"%s\", \"seconds\": %d, \"items\": %d, \"turns\": %d, "
                   "\"needle_tokens\": %d, \"texts\": %d, \"text_tokens\": %d}",
                   i == 0 ? "" : ", ", b->name, (int)b->seconds, (int)b->items, (int)b->turns_max,
                   (int)b->needle_max, (int)b->texts, (int)b->text_tokens);
    }
    buf_puts(&call->data, "], ");
}

/* Whose numbers the engine's are held against. */
static void list_golden(struct call *call)
{
    struct buf golden = {0};
    auditor_golden_print(call->scope->auditor, &golden);
    buf_printf(&call->text, "golden file: %s\n", buf_cstr(&golden));
    buf_puts(&call->data, "\"golden\": ");
    json_dump_string(&call->data, golden.data, golden.len);
    buf_puts(&call->data, ", ");
    buf_free(&golden);
}

/* What can be audited: the tests, what a budget holds, and the rows of the profile that serves. */
static bool run_list(struct call *call)
{
    struct profile p;
    struct buf words = {0};
    engine_profile_get(call->scope->engine, &p);
    audit_order_words(&words);
    buf_printf(&call->text, "audits: %s\n", buf_cstr(&words));
    buf_printf(&call->data, "{\"audits\": \"%s\", ", buf_cstr(&words));
    buf_free(&words);
    list_budgets(call);
    list_golden(call);
    buf_puts(&call->data, "\"rows\": [");
    for (int row = 0; row < PRECISION_ROWS; row++) {
        const struct precision_switch *r = &PRECISION[row];
        const char *value = profile_value_name(&p, (enum precision_row)row);
        buf_printf(&call->text, "%-14s %-13s %-8.2g", r->name, value, r->budget);
        buf_printf(&call->data,
                   "%s{\"row\": \"%s\", \"value\": \"%s\", \"budget\": %.9g, \"legs\": [",
                   row == 0 ? "" : ", ", r->name, value, r->budget);
        const char *between = "";
        for (int leg = 0; leg < LEGS; leg++) {
            if ((r->legs & 1u << leg) == 0)
                continue;
            buf_printf(&call->text, " %s", leg_name((enum leg)leg));
            buf_printf(&call->data, "%s\"%s\"", between, leg_name((enum leg)leg));
            between = ", ";
        }
        buf_puts(&call->text, "\n");
        buf_puts(&call->data, "]}");
    }
    buf_puts(&call->data, "]}");
    return true;
}

/* ---- reports --------------------------------------------------------------------------------- */

/* The report of a number.  @return false: refused, the text says why */
static bool report_of(struct call *call, const char *number, struct json_object **out)
{
    struct error err;
    int32_t id;
    if (!number_parse(number, 1, INT32_MAX, &id)) {
        buf_puts(&call->text, "want the number of an audit; `audit history` lists them");
        return false;
    }
    return archive_get(auditor_archive(call->scope->auditor), id, out, &err) == OK ||
           refuse(call, &err);
}

/* Newest first, as words.  @own json_object_put */
static struct json_object *history_of(const struct archive_head *heads, int n)
{
    struct json_object *out = json_object_new_array();
    for (int i = n - 1; i >= 0; i--) {
        const struct archive_head *h = &heads[i];
        struct json_object *one = json_object_new_object();
        char when[CALL_TIME_BYTES];
        json_set(one, "id", json_object_new_int(h->id));
        json_set(one, "time", json_object_new_string(call_time(h->time_s, when)));
        json_set(one, "state", json_object_new_string(archive_state_name(h->state)));
        json_set(one, "verdict", json_object_new_string(audit_verdict_name(h->verdict)));
        json_set(one, "what", json_object_new_string(h->what));
        json_set(one, "budget", json_object_new_string(h->budget));
        json_set(one, "profile", json_object_new_string(h->profile));
        json_object_array_add(out, one);
    }
    return out;
}

/* A page for a terminal, with the report as data, signature and all; or one for a browser. */
static bool run_report(struct call *call)
{
    struct archive_head heads[AUDIT_KEPT_MAX];
    struct archive *archive = auditor_archive(call->scope->auditor);
    struct json_object *report = NULL;
    struct error err;
    int n = archive_list(archive, heads);
    bool html = call->n_args > 1 && strcmp(call->args[call->n_args - 1], "--html") == 0;
    int words = call->n_args - 1 - html;
    if (words > 1) {
        buf_puts(&call->text, "usage: audit report [ID] [--json | --html]");
        return false;
    }
    if (words == 0 && n == 0) {
        buf_puts(&call->text, "no audit was run yet");
        return false;
    }
    if (words == 0 && archive_get(archive, heads[n - 1].id, &report, &err) != OK)
        return refuse(call, &err);
    if (words == 1 && !report_of(call, call->args[1], &report))
        return false;
    if (html) { /* both together would not fit an answer */
        struct json_object *history = history_of(heads, n);
        report_html(report, history, &call->text);
        json_object_put(history);
        buf_puts(&call->data, "{}");
    } else {
        report_text(report, &call->text);
        json_dump(&call->data, report);
    }
    json_object_put(report);
    return true;
}

static bool run_diff(struct call *call)
{
    struct json_object *a = NULL, *b = NULL;
    struct error err;
    bool good = report_of(call, call->args[1], &a) && report_of(call, call->args[2], &b);
    if (good && report_diff(a, b, &call->text, &err) != OK)
        good = refuse(call, &err);
    if (good) {
        buf_printf(&call->data, "{\"same\": %s}", call->text.len == 0 ? "true" : "false");
        if (call->text.len == 0)
            buf_puts(&call->text, "no difference\n");
    }
    json_object_put(a);
    json_object_put(b);
    return good;
}

static bool run_key(struct call *call)
{
    char key[REPORT_KEY_CHARS + 1];
    archive_key(auditor_archive(call->scope->auditor), key);
    buf_printf(&call->text, "%s\n", key);
    buf_printf(&call->data, "{\"key\": \"%s\"}", key);
    return true;
}

/* ---- schedule -------------------------------------------------------------------------------- */

static bool run_schedule(struct call *call)
{
    struct audit_schedule schedule = {0};
    struct error err;
    struct buf text = {0};
    bool off = call->n_args == 2 && strcmp(call->args[1], "off") == 0;
    bool daily = call->n_args == 4 && strcmp(call->args[1], "daily") == 0 &&
                 schedule_parse(call->args[2], call->args[3], (int64_t)time(NULL), &schedule);
    if (!off && !daily) {
        buf_puts(&call->text, "usage: audit schedule daily HH:MM BUDGET | off (the time is UTC)");
        return false;
    }
    if (auditor_schedule(call->scope->auditor, &schedule, &err) != OK)
        return refuse(call, &err);
    schedule_print(&schedule, &text);
    buf_printf(&call->text, "scheduled: %s\n", buf_cstr(&text));
    buf_printf(&call->data, "{\"schedule\": \"%s\"}", buf_cstr(&text));
    log_line(LOG_LEVEL_INFO, "audit", "scheduled: %s", buf_cstr(&text));
    buf_free(&text);
    return true;
}

/* ---- the table ------------------------------------------------------------------------------- */

static const struct {
    const char *verb, *args;
    int n_min, n_max; /* words behind the verb */
    bool (*run)(struct call *call);
    size_t file_max; /* bytes of the file that follows; 0: none does */
} VERBS[] = {
    {"list", "", 0, 0, run_list, 0},
    {"status", "", 0, 0, run_status, 0},
    {"abort", "", 0, 0, run_abort, 0},
    {"history", "", 0, 0, run_history, 0},
    {"report", " [ID] [--json | --html]", 0, 2, run_report, 0},
    {"diff", " ID ID", 2, 2, run_diff, 0},
    {"key", "", 0, 0, run_key, 0},
    {"pin", " REQUEST-ID|next", 1, 1, run_pin, 0},
    {"unpin", " REQUEST-ID|next", 1, 1, run_unpin, 0},
    {"pins", "", 0, 0, run_pins, 0},
    {"schedule", " daily HH:MM BUDGET|off", 1, 3, run_schedule, 0},
    {"golden", " <FILE", 0, 0, run_golden, GOLDEN_BYTES_MAX},
    {"no-golden", "", 0, 0, run_no_golden, 0},
};
#define VERBS_N (sizeof VERBS / sizeof VERBS[0])

/* @return the place in VERBS of what is asked, or VERBS_N */
static size_t verb_find(const struct call *call)
{
    size_t i = 0;
    int n = call->n_args - 1;
    while (i < VERBS_N &&
           (n < VERBS[i].n_min || n > VERBS[i].n_max || strcmp(VERBS[i].verb, call->args[0]) != 0))
        i++;
    return i;
}

size_t audit_file_max(const struct call *call)
{
    size_t i = verb_find(call);
    return i < VERBS_N ? VERBS[i].file_max : 0;
}

bool run_audit(struct call *call)
{
    struct audit_order order;
    struct error err;
    const char *verb = call->n_args > 0 ? call->args[0] : "";
    if (call->scope->auditor == NULL) {
        buf_puts(&call->text,
                 "no audits here: no folder for reports was named at the start (--audits), "
                 "or it can not be used (see the log)");
        return false;
    }
    size_t at = verb_find(call);
    if (at < VERBS_N)
        return VERBS[at].run(call);
    if (strcmp(verb, ISOLATE) == 0 || audit_order_what(&order, verb, NULL, &err) == OK)
        return run_begin(call);
    buf_puts(&call->text, "usage: ");
    for (size_t i = 0; i < VERBS_N; i++)
        buf_printf(&call->text, "audit %s%s | ", VERBS[i].verb, VERBS[i].args);
    buf_puts(&call->text, "audit ");
    audit_order_words(&call->text);
    buf_puts(&call->text, " [--budget B] [--profile P] [--seed N] [--test T] [--percent N] "
                          "[--pinned REQUEST-ID] [--group N] [--exclusive]");
    return false;
}
