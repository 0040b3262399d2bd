/*
 * `engine audit`: opens a model, runs tests, searches for a culprit, writes the report; or shows
 * and compares reports that were written before.  Exit code 1 when the verdict is FAIL or
 * INVALID.
 */
#include "config/defaults.h"
#include "engine/audit/report.h"
#include "engine/audit/report_fields.h"
#include "engine/audit/signature.h"
#include "engine/audit/work.h"
#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/commands.h"
#include "engine/model/options.h"
#include "kernels/check.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char USAGE[] =
    "usage: engine audit prove|rank|prompt|floor|replay|logits|tools|recall|needle|all|soak\n"
    "         --model DIR\n"
    "         [--profile NAME[,ROW=VALUE]..] [--reference NAME[,ROW=VALUE]..]\n"
    "         [--budget quick|1m|5m|30m|3h] [--items N] [--seed N] [--context N] [--isa ..] "
    "[--threads N]\n"
    "         [--worker PROGRAM] [--golden FILE[,FILE]..]\n"
    "         [--json FILE] [--html FILE] [--resume FILE]\n"
    "       engine audit isolate --test prompt|replay|logits|tools|recall|needle [--percent N] "
    "--model "
    "DIR ..\n"
    "       engine audit isolate --conversation FILE [--percent N] --model DIR ..\n"
    "       engine audit show FILE | diff FILE FILE | verify FILE --key HEX\n";

struct options {
    const char *dir, *budget, *test, *conversation, *json, *html, *resume, *golden;
    struct audit_order order;
    struct model_options model;
    int32_t threads, context;
};

/* All that a run owns. */
struct audit {
    struct options options;
    struct model *model, *cpu_model; /* the second where a worker computes */
    struct tokenizer *tokenizer;
    struct chat_tokens tokens;
    struct lab *lab, *cpu_lab;
    struct audit_given *given;
    struct golden_model model_of;
    struct audit_work work;
};

static enum status options_read(int argc, char **argv, struct options *o, struct error *err)
{
    struct flag flags[] = {
        {"--model", FLAG_TEXT, &o->dir, .required = true},
        {"--profile", FLAG_PROFILE, &o->order.profile, .required = false},
        {"--reference", FLAG_PROFILE, &o->order.reference, .required = false},
        {"--budget", FLAG_TEXT, &o->budget, .required = false},
        {"--test", FLAG_TEXT, &o->test, .required = false},
        {"--conversation", FLAG_TEXT, &o->conversation, .required = false},
        {"--items", FLAG_NUMBER, &o->order.items, .required = false, .max = INT32_MAX},
        {"--seed", FLAG_NUMBER, &o->order.seed, .required = false},
        {"--context", FLAG_NUMBER, &o->context, .required = false},
        {"--percent", FLAG_NUMBER, &o->order.percent, .required = false},
        {"--json", FLAG_TEXT, &o->json, .required = false},
        {"--html", FLAG_TEXT, &o->html, .required = false},
        {"--resume", FLAG_TEXT, &o->resume, .required = false},
        {"--isa", FLAG_ISA, &o->model.isa, .required = false},
        {"--threads", FLAG_NUMBER, &o->threads, .required = false},
        {"--worker", FLAG_TEXT, &o->model.worker, .required = false},
        {"--golden", FLAG_TEXT, &o->golden, .required = false},
    };
    *o = (struct options){.budget = "5m",
                          .order = {.profile = *profile_builtin(PROFILE_DEFAULT),
                                    .reference = *profile_builtin_at(PROFILE_REFERENCE),
                                    .percent = 100,
                                    .seed = 1},
                          .context = CONTEXT_DEFAULT};
    enum status status = flags_parse(argc - 1, argv + 1, flags, sizeof flags / sizeof *flags, err);
    if (status != OK)
        return status;
    o->order.budget = audit_budget(o->budget);
    if (o->order.budget == NULL)
        return error_set(err, ERR_USAGE, "--budget: want quick, 1m, 5m, 30m or 3h");
    if (o->context < 2 * SPAN_TOKENS_MAX || o->context > POSITIONS_MAX)
        return error_set(err, ERR_USAGE, "--context: %d to %d", 2 * SPAN_TOKENS_MAX, POSITIONS_MAX);
    if (o->order.percent < AUDIT_PERCENT_MIN || o->order.percent > 100)
        return error_set(err, ERR_USAGE, "--percent: %d to 100", AUDIT_PERCENT_MIN);
    o->model.threads = o->threads;
    if (o->conversation == NULL)
        return audit_order_what(&o->order, argv[1], o->test, err);
    if (strcmp(argv[1], "isolate") != 0 || o->test != NULL)
        return error_set(err, ERR_USAGE, "--conversation: belongs to isolate, without --test");
    return audit_order_what(&o->order, argv[1], audit_test_name(TEST_RECALL), err);
}

static enum status given_open(struct audit *a, struct error *err)
{
    const struct audit_text text = {a->tokenizer, &a->tokens};
    struct audit_item item;
    enum status status = given_read(a->options.conversation, &text, &a->given, err);
    if (status != OK)
        return status;
    a->options.order.given = a->given;
    status = given_item(a->given, &text, NULL, &item, err);
    int32_t n = status == OK ? (int32_t)item.ids.len : 0;
    audit_item_free(&item);
    if (n > a->options.context - AUDIT_ANSWER_TOKENS)
        return error_set(err, ERR_INPUT, "%s: %d tokens, --context leaves %d",
                         a->options.conversation, n, a->options.context - AUDIT_ANSWER_TOKENS);
    return status;
}

/* ---- interruptions --------------------------------------------------------------------------- */

static volatile sig_atomic_t stopped;

static void stop(int signal)
{
    (void)signal;
    stopped = true;
}

/* The laboratory's host: the first signal ends the audit with the next piece of work. */
static bool run_unless_stopped(void *host, engine_work_fn *work, void *user)
{
    if (stopped)
        return false;
    work(user, host);
    return true;
}

/* Ctrl-C a second time ends the program at once. */
static void heed_signals(void)
{
    struct sigaction action = {.sa_handler = stop, .sa_flags = (int)SA_RESETHAND};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

static bool same_profile(struct json_object *was, const struct profile *now)
{
    struct profile profile;
    return audit_report_profile(was, &profile) &&
           memcmp(profile.values, now->values, sizeof now->values) == 0;
}

/* The report of an audit that was interrupted: of this very order, or its tests would not belong
 * together. */
static enum status resume_open(struct audit *a, struct error *err)
{
    const struct audit_order *order = &a->options.order;
    struct json_object *report = NULL;
    enum status status = report_read(a->options.resume, &report, err);
    if (status != OK)
        return status;
    const char *other =
        !audit_engine_is(report_member(report, "engine"), a->model_of.name, a->model_of.weights)
            ? "engine"
        : !same_profile(report_member(report, "profile"), &order->profile)      ? "profile"
        : !same_profile(report_member(report, "reference"), &order->reference)  ? "reference"
        : strcmp(report_string(report, "budget"), order->budget->name) != 0     ? "budget"
        : json_object_get_int(report_member(report, "seed")) != order->seed     ? "seed"
        : json_object_get_int(report_member(report, "items")) != order->items   ? "items"
        : !json_object_is_type(report_member(report, "tests"), json_type_array) ? "tests"
                                                                                : NULL;
    if (other != NULL) {
        json_object_put(report);
        return error_set(err, ERR_INPUT, "%s: %s: of another audit", a->options.resume, other);
    }
    a->work.report = report;
    return OK;
}

static struct lab *lab_new(struct model *model)
{
    struct lab *lab = calloc(1, sizeof *lab); /* large: tables of witnesses */
    ASSERT(lab != NULL);
    lab_open_model(lab, model);
    return lab;
}

/* Where a worker computes, this process does so as well. */
static enum status cpu_open(struct audit *a, struct error *err)
{
    struct model_options options = a->options.model;
    if (options.worker == NULL)
        return OK;
    options.worker = NULL;
    enum status status = model_open(a->options.dir, &options, &a->cpu_model, err);
    if (status == OK)
        a->work.cpu = a->cpu_lab = lab_new(a->cpu_model);
    return status;
}

static enum status golden_open(struct audit *a, struct error *err)
{
    struct audit_anchors *anchors = &a->work.anchors;
    enum status status = OK;
    for (const char *at = a->options.golden; at != NULL && status == OK;) {
        size_t len = strcspn(at, ",");
        struct buf path = {0};
        buf_add(&path, at, len);
        if (anchors->n_golden == GOLDEN_FILES_MAX)
            status = error_set(err, ERR_USAGE, "--golden: at most %d files", GOLDEN_FILES_MAX);
        else
            status = golden_read(buf_cstr(&path), &a->model_of, &anchors->golden[anchors->n_golden],
                                 err);
        anchors->n_golden += status == OK;
        buf_free(&path);
        at = at[len] == ',' ? at + len + 1 : NULL;
    }
    return status;
}

static enum status audit_open(struct audit *a, struct error *err)
{
    struct buf path = {0};
    buf_printf(&path, "%s/tokenizer.json", a->options.dir);
    enum status status = tokenizer_open(buf_cstr(&path), &a->tokenizer, err);
    buf_free(&path);
    if (status == OK)
        status = chat_tokens_find(a->tokenizer, &a->tokens, err);
    if (status == OK && a->options.conversation != NULL)
        status = given_open(a, err);
    if (status == OK)
        status = model_open(a->options.dir, &a->options.model, &a->model, err);
    if (status != OK)
        return status;
    a->lab = lab_new(a->model);
    a->lab->run = run_unless_stopped;
    const struct model_config *config = a->lab->config;
    a->work = (struct audit_work){.order = a->options.order,
                                  .lab = a->lab,
                                  .text = {a->tokenizer, &a->tokens},
                                  .weights = a->model_of.weights};
    status = golden_model_of(a->options.dir, config->name, config->vocab_size, &a->model_of, err);
    if (status == OK)
        status = cpu_open(a, err);
    if (status == OK)
        status = golden_open(a, err);
    if (status == OK && a->options.resume != NULL)
        status = resume_open(a, err);
    return status == OK ? audit_work_open(&a->work, a->options.context, err) : status;
}

static void audit_close(struct audit *a)
{
    audit_work_close(&a->work);
    for (int i = 0; i < a->work.anchors.n_golden; i++)
        golden_free(a->work.anchors.golden[i]);
    free(a->lab);
    free(a->cpu_lab);
    given_free(a->given);
    model_close(a->model);
    model_close(a->cpu_model);
    tokenizer_close(a->tokenizer);
}

static double seconds(void)
{
    return (double)clock_ms() / 1000;
}

/* ---- files ----------------------------------------------------------------------------------- */

static enum status write_json(const struct audit *a, struct error *err)
{
    struct buf text = {0};
    json_dump(&text, a->work.report);
    buf_puts(&text, "\n");
    enum status status = file_replace(a->options.json, &text, err);
    buf_free(&text);
    return status;
}

/* All steps, each said on the standard error as it goes; the report is kept behind each. */
static enum status run_all(struct audit *a, struct error *err)
{
    const char *steps[AUDIT_STEPS_MAX];
    int n = audit_order_steps(&a->options.order, steps);
    for (int i = 0; i < n;) {
        enum audit_verdict verdict;
        if (audit_work_did(&a->work, steps[i])) {
            i++;
            continue;
        }
        double begin = seconds();
        fprintf(stderr, "audit: %s ..", steps[i]);
        enum status status = audit_work_step(&a->work, steps[i], &verdict, err);
        if (status != OK)
            return status;
        fprintf(stderr, " %s, %.1f s\n", a->lab->gone ? "stopped" : audit_verdict_name(verdict),
                seconds() - begin);
        audit_work_judge(&a->work, false);
        if (a->options.json != NULL && (status = write_json(a, err)) != OK)
            return status;
        if (a->lab->gone)
            return OK;
    }
    audit_work_judge(&a->work, true);
    return OK;
}

static enum status write_view(const char *path, const struct buf *text, struct error *err)
{
    FILE *file = fopen(path, "w");
    bool good = file != NULL && fwrite(text->data, 1, text->len, file) == text->len;
    if (file != NULL)
        good = fclose(file) == 0 && good;
    return good ? OK : error_set(err, ERR_IO, "%s: cannot be written", path);
}

static enum status write_all(const struct audit *a, struct error *err)
{
    enum status status = OK;
    struct buf text = {0};
    report_text(a->work.report, &text);
    fwrite(text.data, 1, text.len, stdout);
    text.len = 0;
    if (a->options.json != NULL)
        status = write_json(a, err);
    if (status == OK && a->options.html != NULL) {
        report_html(a->work.report, NULL, &text);
        status = write_view(a->options.html, &text, err);
    }
    buf_free(&text);
    return status;
}

/* Words behind which no model is opened. */
static enum status show_file(char **argv, struct buf *text, struct error *err)
{
    struct json_object *a = NULL;
    enum status status = report_read(argv[2], &a, err);
    if (status == OK)
        report_text(a, text);
    json_object_put(a);
    return status;
}

static enum status diff_files(char **argv, struct buf *text, struct error *err)
{
    struct json_object *a = NULL, *b = NULL;
    enum status status = report_read(argv[2], &a, err);
    if (status == OK)
        status = report_read(argv[3], &b, err);
    if (status == OK)
        status = report_diff(a, b, text, err);
    json_object_put(a);
    json_object_put(b);
    return status;
}

static enum status verify_file(char **argv, struct buf *text, struct error *err)
{
    struct json_object *a = NULL;
    struct error why;
    if (strcmp(argv[3], "--key") != 0)
        return error_set(err, ERR_USAGE, "verify: want FILE --key HEX");
    enum status status = report_read(argv[2], &a, err);
    if (status == OK) {
        status = report_verify(a, argv[4], &why);
        if (status != OK)
            error_set(err, status, "%s: %s", argv[2], why.text);
    }
    if (status == OK)
        buf_printf(text, "%s: signed by this key, and not changed since\n", argv[2]);
    json_object_put(a);
    return status;
}

static const struct {
    const char *word, *want;
    int argc;
    enum status (*run)(char **argv, struct buf *text, struct error *err);
} VIEWS[] = {
    {"show", "a file", 3, show_file},
    {"diff", "two files", 4, diff_files},
    {"verify", "FILE --key HEX", 5, verify_file},
};
#define VIEWS_N (sizeof VIEWS / sizeof *VIEWS)

/* @return the place in VIEWS, or VIEWS_N */
static size_t view_find(const char *word)
{
    size_t i = 0;
    while (i < VIEWS_N && strcmp(VIEWS[i].word, word) != 0)
        i++;
    return i;
}

static enum status show(size_t view, int argc, char **argv, struct error *err)
{
    struct buf text = {0};
    if (argc != VIEWS[view].argc)
        return error_set(err, ERR_USAGE, "%s: want %s", argv[1], VIEWS[view].want);
    enum status status = VIEWS[view].run(argv, &text, err);
    fwrite(text.data, 1, status == OK ? text.len : 0, stdout);
    buf_free(&text);
    return status;
}

/* With what a budget holds: nobody shall have to measure it. */
static void usage(void)
{
    struct buf text = {0};
    buf_puts(&text, USAGE);
    buf_puts(&text, "budgets:\n");
    for (int i = 0; audit_budget_at(i) != NULL; i++)
        audit_budget_print(audit_budget_at(i), &text);
    fputs(buf_cstr(&text), stderr);
    buf_free(&text);
}

static bool is_work(const char *what)
{
    struct audit_order order;
    return strcmp(what, "isolate") == 0 || audit_order_what(&order, what, NULL, NULL) == OK;
}

int cmd_audit(int argc, char **argv)
{
    struct audit a = {0};
    struct error err = {0};
    enum status status = OK;
    size_t view = argc >= 2 ? view_find(argv[1]) : VIEWS_N;
    if (view < VIEWS_N) {
        status = show(view, argc, argv, &err);
    } else if (argc < 2 || !is_work(argv[1])) {
        usage();
        return status_exit_code(ERR_USAGE);
    } else {
        heed_signals();
        status = options_read(argc, argv, &a.options, &err);
        if (status == OK)
            status = audit_open(&a, &err);
        if (status == OK)
            status = run_all(&a, &err);
        if (status == OK)
            status = write_all(&a, &err);
    }
    if (status != OK)
        fprintf(stderr, "engine audit: %s\n", err.text);
    enum audit_verdict verdict = a.work.verdict;
    audit_close(&a);
    return status != OK ? status_exit_code(status)
                        : verdict == VERDICT_FAIL || verdict == VERDICT_INVALID;
}
