/*
 * `engine audit`: opens a model, runs tests, searches for a culprit, writes the report; or shows
 * and compares reports that were written before.  Exit code 1 when the verdict is FAIL or
 * INVALID.
 */
#include "config/audit_gates.h"
#include "config/version.h"
#include "engine/audit/culprit.h"
#include "engine/audit/evidence.h"
#include "engine/audit/report.h"
#include "engine/audit/stats.h"
#include "engine/audit/tests_common.h"
#include "engine/base/clock.h"
#include "engine/commands.h"
#include "engine/model/options.h"

#include "config/defaults.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char USAGE[] =
    "usage: engine audit prove|rank|prompt|floor|replay|logits|recall|needle|all\n"
    "         --model DIR\n"
    "         [--profile NAME[,ROW=VALUE]..] [--reference NAME[,ROW=VALUE]..]\n"
    "         [--budget quick|1m|5m|30m|3h] [--seed N] [--context N] [--isa ..] [--threads N]\n"
    "         [--json FILE] [--html FILE]\n"
    "       engine audit isolate --test prompt|replay|logits|recall|needle [--percent N] --model "
    "DIR ..\n"
    "       engine audit show FILE | diff FILE FILE\n";

struct options {
    const char *what, *dir, *budget, *test, *json, *html;
    struct profile profile, reference;
    struct model_options model;
    int32_t threads, seed, context, percent;
};

/* All that a run owns. */
struct audit {
    struct options options;
    struct model *model;
    struct tokenizer *tokenizer;
    struct chat_tokens tokens;
    struct audit_text text;
    struct audit_machine *machine;
    struct json_object *report;
};

static enum status options_read(int argc, char **argv, struct options *o, struct error *err)
{
    struct flag flags[] = {
        {"--model", FLAG_TEXT, &o->dir, .required = true},
        {"--profile", FLAG_PROFILE, &o->profile, .required = false},
        {"--reference", FLAG_PROFILE, &o->reference, .required = false},
        {"--budget", FLAG_TEXT, &o->budget, .required = false},
        {"--test", FLAG_TEXT, &o->test, .required = false},
        {"--seed", FLAG_NUMBER, &o->seed, .required = false},
        {"--context", FLAG_NUMBER, &o->context, .required = false},
        {"--percent", FLAG_NUMBER, &o->percent, .required = false},
        {"--json", FLAG_TEXT, &o->json, .required = false},
        {"--html", FLAG_TEXT, &o->html, .required = false},
        {"--isa", FLAG_ISA, &o->model.isa, .required = false},
        {"--threads", FLAG_NUMBER, &o->threads, .required = false},
    };
    *o = (struct options){.what = argv[1],
                          .budget = "5m",
                          .profile = *profile_builtin(PROFILE_DEFAULT),
                          .reference = *profile_builtin_at(PROFILE_REFERENCE),
                          .context = CONTEXT_DEFAULT,
                          .percent = 100,
                          .seed = 1};
    enum status status = flags_parse(argc - 1, argv + 1, flags, sizeof flags / sizeof *flags, err);
    if (status != OK)
        return status;
    if (audit_budget(o->budget) == NULL)
        return error_set(err, ERR_USAGE, "--budget: want quick, 1m, 5m, 30m or 3h");
    if (o->context < 2 * STEP_TOKENS_MAX || o->context > POSITIONS_MAX)
        return error_set(err, ERR_USAGE, "--context: %d to %d", 2 * STEP_TOKENS_MAX, POSITIONS_MAX);
    if (o->percent < AUDIT_PERCENT_MIN || o->percent > 100)
        return error_set(err, ERR_USAGE, "--percent: %d to 100", AUDIT_PERCENT_MIN);
    o->model.threads = o->threads;
    return OK;
}

static enum status audit_open(struct audit *a, struct error *err)
{
    struct buf path = {0};
    buf_printf(&path, "%s/tokenizer.json", a->options.dir);
    enum status status = tokenizer_open(buf_cstr(&path), &a->tokenizer, err);
    buf_free(&path);
    if (status == OK)
        status = chat_tokens_find(a->tokenizer, &a->tokens, err);
    if (status == OK)
        status = model_open(a->options.dir, &a->options.model, &a->model, err);
    a->text = (struct audit_text){a->tokenizer, &a->tokens};
    if (status == OK)
        status = machine_create(a->model, &a->text, a->options.context, &a->machine, err);
    return status;
}

static void audit_close(struct audit *a)
{
    machine_destroy(a->machine);
    model_close(a->model);
    tokenizer_close(a->tokenizer);
    json_object_put(a->report);
}

/* ---- the report ------------------------------------------------------------------------------ */

static struct json_object *profile_json(const struct profile *profile)
{
    struct json_object *out = json_object_new_object(), *values = json_object_new_object();
    char hash[PROFILE_HASH_BYTES];
    profile_hash_text(profile, hash);
    result_put(out, "name", json_object_new_string(profile->name));
    result_put(out, "hash", json_object_new_string(hash));
    for (int row = 0; row < PRECISION_ROWS; row++)
        result_put(values, PRECISION[row].name,
                   json_object_new_string(profile_value_name(profile, (enum precision_row)row)));
    result_put(out, "values", values);
    return out;
}

static struct json_object *report_new(const struct audit *a)
{
    struct json_object *out = json_object_new_object(), *engine = json_object_new_object();
    result_put(out, "schema", json_object_new_string(REPORT_SCHEMA));
    result_put(engine, "version", json_object_new_string(V4BOX_VERSION));
    result_put(engine, "model", json_object_new_string(model_config(a->model)->name));
    result_put(engine, "isa", json_object_new_string(model_isa_name(a->model)));
    result_put(out, "engine", engine);
    result_put(out, "profile", profile_json(&a->options.profile));
    result_put(out, "reference", profile_json(&a->options.reference));
    result_put(out, "seed", json_object_new_int(a->options.seed));
    result_put(out, "budget", json_object_new_string(a->options.budget));
    result_put(out, "tests", json_object_new_array());
    return out;
}

static double seconds(void)
{
    return (double)clock_ms() / 1000;
}

/* Takes the result. */
static void test_end(struct json_object *tests, struct json_object *result, double start,
                     enum audit_verdict verdict, enum audit_verdict *worst)
{
    fprintf(stderr, " %s, %.1f s\n", audit_verdict_name(verdict), seconds() - start);
    result_put(result, "seconds", json_object_new_double(seconds() - start));
    json_object_array_add(tests, result);
    *worst = audit_verdict_worst(*worst, verdict);
}

static void run_test(const struct audit_run *run, enum audit_test test, struct json_object *tests,
                     enum audit_verdict *worst)
{
    enum audit_verdict verdict;
    double start = seconds();
    fprintf(stderr, "audit: %s ..", audit_test_name(test));
    struct json_object *result = audit_test(run, test, &verdict);
    test_end(tests, result, start, verdict, worst);
}

static void run_prove(struct audit *a, struct json_object *tests, enum audit_verdict *worst)
{
    enum audit_verdict verdict;
    double start = seconds();
    fprintf(stderr, "audit: prove ..");
    struct json_object *result =
        evidence_prove_model(a->model, &a->options.profile, a->report, &verdict);
    test_end(tests, result, start, verdict, worst);
}

/* On the text of a needle: what the other tests show the model. */
static enum status run_rank(struct audit *a, struct json_object *tests, enum audit_verdict *worst,
                            struct error *err)
{
    const struct needle_plan plan = {.seed = (uint64_t)a->options.seed << 20,
                                     .length = RANK_PROMPT_MAX,
                                     .at = RANK_PROMPT_MAX / 2};
    enum audit_verdict verdict;
    struct audit_item item;
    double start = seconds();
    enum status status = conversation_needle(&a->text, &plan, &item, err);
    if (status != OK)
        return status;
    fprintf(stderr, "audit: rank ..");
    struct json_object *result = evidence_rank_model(a->model, &a->options.profile, item.ids.data,
                                                     (int32_t)item.ids.len, a->report, &verdict);
    audit_item_free(&item);
    test_end(tests, result, start, verdict, worst);
    return OK;
}

static enum status audit_work(struct audit *a, enum audit_verdict *worst, struct error *err)
{
    const struct options *o = &a->options;
    struct audit_run run = {
        .machine = a->machine,
        .text = &a->text,
        .profile = &o->profile,
        .reference = &o->reference,
        .budget = audit_budget(o->budget),
        .seed = (uint64_t)o->seed << 20,
        .repeats = o->percent == 100 ? 1 : stats_repeats(o->percent / 100.0, AUDIT_MISS)};
    struct json_object *tests = json_object_object_get(a->report, "tests");
    enum audit_test test;
    double start = seconds();
    *worst = VERDICT_PASS;
    bool tests_run = strcmp(o->what, "all") == 0 || audit_test_parse(o->what, &test);
    if (tests_run || strcmp(o->what, "prove") == 0) /* no verdict stands without it */
        run_prove(a, tests, worst);
    if (strcmp(o->what, "rank") == 0) {
        enum status status = run_rank(a, tests, worst, err);
        if (status != OK)
            return status;
    } else if (strcmp(o->what, "all") == 0) {
        for (int i = 0; i < AUDIT_TESTS; i++)
            run_test(&run, (enum audit_test)i, tests, worst);
    } else if (strcmp(o->what, "isolate") == 0) {
        if (o->test == NULL || !audit_test_parse(o->test, &test) || test == TEST_FLOOR)
            return error_set(err, ERR_USAGE,
                             "--test: want prompt, replay, logits, recall or needle");
        enum isolate_outcome outcome;
        result_put(a->report, "isolation", culprit_search(&run, test, &outcome));
        *worst = outcome == ISOLATE_NO_FAULT    ? VERDICT_PASS
                 : outcome == ISOLATE_MODEL     ? VERDICT_MODEL
                 : outcome == ISOLATE_UNDECIDED ? VERDICT_UNDECIDED
                                                : VERDICT_FAIL;
    } else if (tests_run) {
        run_test(&run, test, tests, worst);
    }
    result_put(a->report, "spent_s", json_object_new_double(seconds() - start));
    result_put(a->report, "verdict", json_object_new_string(audit_verdict_name(*worst)));
    return OK;
}

/* ---- files ----------------------------------------------------------------------------------- */

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
    report_text(a->report, &text);
    fwrite(text.data, 1, text.len, stdout);
    text.len = 0;
    if (a->options.json != NULL) {
        json_dump(&text, a->report);
        buf_puts(&text, "\n");
        status = write_view(a->options.json, &text, err);
    }
    text.len = 0;
    if (status == OK && a->options.html != NULL) {
        report_html(a->report, &text);
        status = write_view(a->options.html, &text, err);
    }
    buf_free(&text);
    return status;
}

static enum status show(int argc, char **argv, struct error *err)
{
    bool diff = strcmp(argv[1], "diff") == 0;
    if (argc != (diff ? 4 : 3))
        return error_set(err, ERR_USAGE, "%s: want %s", argv[1], diff ? "two files" : "a file");
    struct json_object *a = NULL, *b = NULL;
    struct buf text = {0};
    enum status status = report_read(argv[2], &a, err);
    if (status == OK && diff)
        status = report_read(argv[3], &b, err);
    if (status == OK && diff)
        status = report_diff(a, b, &text, err);
    else if (status == OK)
        report_text(a, &text);
    fwrite(text.data, 1, status == OK ? text.len : 0, stdout);
    json_object_put(a);
    json_object_put(b);
    buf_free(&text);
    return status;
}

static bool is_work(const char *what)
{
    enum audit_test test;
    static const char *const others[] = {"all", "isolate", "prove", "rank"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (strcmp(what, others[i]) == 0)
            return true;
    }
    return audit_test_parse(what, &test);
}

int cmd_audit(int argc, char **argv)
{
    struct audit a = {0};
    struct error err = {0};
    enum status status = OK;
    enum audit_verdict verdict = VERDICT_PASS;
    if (argc >= 2 && (strcmp(argv[1], "show") == 0 || strcmp(argv[1], "diff") == 0)) {
        status = show(argc, argv, &err);
    } else if (argc < 2 || !is_work(argv[1])) {
        fputs(USAGE, stderr);
        return status_exit_code(ERR_USAGE);
    } else {
        status = options_read(argc, argv, &a.options, &err);
        if (status == OK)
            status = audit_open(&a, &err);
        if (status == OK) {
            a.report = report_new(&a);
            status = audit_work(&a, &verdict, &err);
        }
        if (status == OK)
            status = write_all(&a, &err);
    }
    if (status != OK)
        fprintf(stderr, "engine audit: %s\n", err.text);
    audit_close(&a);
    return status != OK ? status_exit_code(status)
                        : verdict == VERDICT_FAIL || verdict == VERDICT_INVALID;
}
