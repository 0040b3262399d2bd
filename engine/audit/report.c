/* Views of a report: text, comparison, and the check that a file is one.  The page: report_html.c
 */
#include "engine/audit/report.h"

#include "engine/audit/report_fields.h"

#include <math.h>
#include <string.h>

static const char *const VERDICT_NAMES[VERDICTS] = {"PASS", "FAIL", "UNDECIDED", "MODEL",
                                                    "INVALID"};

const char *audit_verdict_name(enum audit_verdict verdict)
{
    return VERDICT_NAMES[verdict];
}

enum audit_verdict audit_verdict_parse(const char *name)
{
    for (int i = 0; i < VERDICTS; i++) {
        if (strcmp(VERDICT_NAMES[i], name) == 0)
            return (enum audit_verdict)i;
    }
    return VERDICT_INVALID;
}

enum audit_verdict audit_verdict_worst(enum audit_verdict a, enum audit_verdict b)
{
    static const int severity[VERDICTS] = {
        [VERDICT_PASS] = 0,    [VERDICT_MODEL] = 1, [VERDICT_UNDECIDED] = 2,
        [VERDICT_INVALID] = 3, [VERDICT_FAIL] = 4,
    };
    return severity[a] >= severity[b] ? a : b;
}

/* ---- fields ---------------------------------------------------------------------------------- */

struct json_object *report_member(struct json_object *object, const char *key)
{
    struct json_object *out = NULL;
    return json_object_object_get_ex(object, key, &out) ? out : NULL;
}

const char *report_string(struct json_object *object, const char *key)
{
    struct json_object *member = report_member(object, key);
    return member == NULL ? "" : json_object_get_string(member);
}

double report_number(struct json_object *object, const char *key)
{
    struct json_object *member = report_member(object, key);
    return member == NULL ? NAN : json_object_get_double(member);
}

size_t report_count(struct json_object *list)
{
    return list != NULL && json_object_is_type(list, json_type_array)
               ? json_object_array_length(list)
               : 0;
}

void report_put_estimate(struct json_object *test, struct buf *out)
{
    double value = report_number(test, "estimate");
    if (isnan(value))
        return;
    buf_printf(out, "%.4g", value);
    double low = report_number(test, "low"), high = report_number(test, "high");
    if (!isnan(low) && !isnan(high))
        buf_printf(out, " [%.4g, %.4g]", low, high);
}

static void put_names(struct json_object *names, const char *joint, struct buf *out)
{
    for (size_t i = 0; i < report_count(names); i++)
        buf_printf(out, "%s%s", i == 0 ? "" : joint,
                   json_object_get_string(json_object_array_get_idx(names, i)));
}

void report_put_state(struct json_object *state, struct buf *out)
{
    for (size_t i = 0; i < report_count(state); i++) {
        struct json_object *leg = json_object_array_get_idx(state, i);
        buf_printf(out, "%scarried state: %s (", i > 0 ? "; " : "", report_string(leg, "leg"));
        put_names(report_member(leg, "ways"), "; ", out);
        buf_puts(out, "), first");
        if (report_member(leg, "layer") != NULL)
            buf_printf(out, " in layer %.0f at token %.0f,", report_number(leg, "layer"),
                       report_number(leg, "position_in_layer"));
        buf_printf(out, " logits of token %.0f", report_number(leg, "position"));
    }
}

/* ---- text ------------------------------------------------------------------------------------ */

static void put_head(struct json_object *report, struct buf *out)
{
    struct json_object *engine = report_member(report, "engine");
    struct json_object *profile = report_member(report, "profile");
    struct json_object *reference = report_member(report, "reference");
    buf_printf(out, "v4box %s, model %s %.12s, %s\n", report_string(engine, "version"),
               report_string(engine, "model"), report_string(engine, "weights"),
               report_string(engine, "isa"));
    if (strcmp(report_string(engine, "computes"), "a worker") == 0)
        buf_puts(out,
                 "computed by a worker: nobody looks into its layers, so that none is named\n");
    struct json_object *gpus = report_member(engine, "gpus");
    if (gpus != NULL && report_count(gpus) > 0) {
        buf_puts(out, "on GPU ");
        put_names(gpus, ", ", out);
        buf_printf(out, "; driver %s\n", report_string(engine, "driver"));
    }
    struct json_object *run = report_member(report, "run");
    if (run != NULL)
        buf_printf(out, "audit %.0f, %s, asked for by the %s", report_number(run, "id"),
                   report_string(run, "state"), report_string(run, "by"));
    if (run != NULL && report_member(run, "group") != NULL)
        buf_printf(out, ", on group %.0f of %.0f alone", report_number(run, "group"),
                   report_number(run, "groups"));
    buf_puts(out, run != NULL ? "\n" : "");
    buf_printf(out, "profile %s (%s) against %s (%s), budget %s, seed %.0f, %.0f s\n",
               report_string(profile, "name"), report_string(profile, "hash"),
               report_string(reference, "name"), report_string(reference, "hash"),
               report_string(report, "budget"), report_number(report, "seed"),
               report_number(report, "spent_s"));
    if (report_member(report, "items") != NULL)
        buf_printf(out, "at most %.0f items of a test\n", report_number(report, "items"));
    buf_puts(out, "\n");
}

static void put_tests(struct json_object *tests, struct buf *out)
{
    buf_printf(out, "%-12s %-10s %6s  %-34s %s\n", "test", "verdict", "n", "estimate [95 %]",
               "gate");
    for (size_t i = 0; i < report_count(tests); i++) {
        struct json_object *test = json_object_array_get_idx(tests, i);
        struct buf estimate = {0};
        report_put_estimate(test, &estimate);
        buf_printf(out, "%-12s %-10s %6.0f  %-34s %s\n", report_string(test, "name"),
                   report_string(test, "verdict"), report_number(test, "n"), buf_cstr(&estimate),
                   report_string(test, "gate"));
        if (report_string(test, "why")[0] != '\0')
            buf_printf(out, "%-12s   %s\n", "", report_string(test, "why"));
        buf_free(&estimate);
    }
}

/* Where a culprit departs, and what is left of a conversation that shows it. */
static void put_place(struct json_object *place, struct buf *out)
{
    static const char *const WHERE[][2] = {{"first", "any bit"}, {"over", "more than rounding"}};
    buf_puts(out, "  ");
    put_names(report_member(place, "rows"), " and ", out);
    buf_puts(out, " departs");
    for (size_t i = 0; i < sizeof WHERE / sizeof *WHERE; i++) {
        struct json_object *where = report_member(place, WHERE[i][0]);
        buf_printf(out, "%s %s:", i > 0 ? ";" : "", WHERE[i][1]);
        if (report_member(where, "layer") != NULL)
            buf_printf(out, " layer %.0f at token %.0f,", report_number(where, "layer"),
                       report_number(where, "position_in_layer"));
        if (report_member(where, "position") != NULL)
            buf_printf(out, " logits of token %.0f", report_number(where, "position"));
        else
            buf_puts(out, " no logits");
    }
    buf_printf(out, ", of %.0f\n", report_number(place, "tokens"));
    struct json_object *smallest = report_member(place, "smallest");
    if (smallest != NULL)
        buf_printf(out, "  %zu of the conversation's %.0f exchanges show it, in %zu tries\n",
                   report_count(report_member(smallest, "kept")),
                   report_number(smallest, "exchanges"),
                   report_count(report_member(smallest, "tries")));
}

static void put_isolation(struct json_object *isolation, struct buf *out)
{
    if (isolation == NULL)
        return;
    struct json_object *culprits = report_member(isolation, "culprits");
    buf_printf(out, "\nisolation of %s: %s, %zu verdicts, legs %s\n",
               report_string(isolation, "test"), report_string(isolation, "outcome"),
               report_count(report_member(isolation, "tries")), report_string(isolation, "legs"));
    for (size_t i = 0; i < report_count(culprits); i++) {
        buf_puts(out, "  convicted: ");
        put_names(json_object_array_get_idx(culprits, i), " together with ", out);
        buf_puts(out, "\n");
    }
    if (report_count(report_member(isolation, "acquitted")) > 0) {
        buf_puts(out, "  acquitted: ");
        put_names(report_member(isolation, "acquitted"), ", ", out);
        buf_puts(out, "\n");
    }
    struct json_object *state = report_member(isolation, "state");
    if (report_count(state) > 0) {
        buf_puts(out, "  ");
        report_put_state(state, out);
        buf_puts(out, "\n");
    }
    for (size_t i = 0; i < report_count(report_member(isolation, "places")); i++)
        put_place(json_object_array_get_idx(report_member(isolation, "places"), i), out);
}

/* Rows that the verdicts may not rest on, each place; then those that nothing could show here. */
static void put_unproven(const char *where, struct json_object *rows, struct buf *out)
{
    bool any = false;
    struct buf others = {0};
    const char *last = "";
    for (size_t i = 0; i < report_count(rows); i++) {
        struct json_object *row = json_object_array_get_idx(rows, i);
        const char *name = report_string(row, "row");
        if (strcmp(report_string(row, "state"), "live") == 0)
            continue;
        if (!json_object_get_boolean(report_member(row, "counts"))) {
            if (strcmp(name, last) != 0)
                buf_printf(&others, "%s%s", others.len == 0 ? "" : ", ", name);
            last = name;
            continue;
        }
        if (!any)
            buf_printf(out, "\nrows%s that no verdict may rest on\n", where);
        buf_printf(out, "  %s = %s, %s layers, %s: %s, %s\n", name, report_string(row, "value"),
                   report_string(row, "kind"), report_string(row, "leg"),
                   report_string(row, "state"), report_string(row, "why"));
        any = true;
    }
    if (others.len > 0)
        buf_printf(out, "\nnot proven%s, for nothing shows them here: %s\n", where,
                   buf_cstr(&others));
    buf_free(&others);
}

static void put_ranking(struct json_object *ranking, struct buf *out)
{
    if (report_count(ranking) > 0)
        buf_printf(out, "\n%-16s %-20s %10s %10s %9s  %s\n", "row", "value", "KL", "top-1 loss",
                   "exposure", "tier");
    for (size_t i = 0; i < report_count(ranking); i++) {
        struct json_object *row = json_object_array_get_idx(ranking, i);
        buf_printf(out, "%-16s %-20s %10.3g %10.3g %9.3g  %s\n", report_string(row, "row"),
                   report_string(row, "value"), report_number(row, "kl"),
                   report_number(row, "top1_loss"), report_number(row, "exposure"),
                   report_string(row, "tier"));
    }
}

void report_text(struct json_object *report, struct buf *out)
{
    put_head(report, out);
    put_tests(report_member(report, "tests"), out);
    put_ranking(report_member(report, "ranking"), out);
    put_isolation(report_member(report, "isolation"), out);
    put_unproven("", report_member(report, "rows"), out);
    put_unproven(" in the reference", report_member(report, "reference_rows"), out);
    buf_printf(out, "\nverdict: %s\n", report_string(report, "verdict"));
}

/* ---- two reports ----------------------------------------------------------------------------- */

static struct json_object *find_named(struct json_object *list, const char *key, const char *name)
{
    for (size_t i = 0; i < report_count(list); i++) {
        struct json_object *item = json_object_array_get_idx(list, i);
        if (strcmp(report_string(item, key), name) == 0)
            return item;
    }
    return NULL;
}

static void diff_value(const char *what, const char *a, const char *b, struct buf *out)
{
    if (strcmp(a, b) != 0)
        buf_printf(out, "%s: %s -> %s\n", what, a, b);
}

static void diff_profile(struct json_object *a, struct json_object *b, struct buf *out)
{
    diff_value("profile", report_string(a, "name"), report_string(b, "name"), out);
    diff_value("profile hash", report_string(a, "hash"), report_string(b, "hash"), out);
    struct json_object *values = report_member(a, "values");
    if (values == NULL)
        return;
    json_object_object_foreach(values, row, value)
    {
        diff_value(row, json_object_get_string(value),
                   report_string(report_member(b, "values"), row), out);
    }
}

static void diff_test(struct json_object *a, struct json_object *b, struct buf *out)
{
    const char *name = report_string(a, "name");
    if (b == NULL) {
        buf_printf(out, "%s: was run in the first report only\n", name);
        return;
    }
    diff_value(name, report_string(a, "verdict"), report_string(b, "verdict"), out);
    double a_value = report_number(a, "estimate"), b_value = report_number(b, "estimate");
    if (isnan(a_value) || isnan(b_value) || a_value == b_value)
        return;
    bool apart = report_number(a, "high") < report_number(b, "low") ||
                 report_number(b, "high") < report_number(a, "low");
    buf_printf(out, "%s: ", name);
    report_put_estimate(a, out);
    buf_puts(out, " -> ");
    report_put_estimate(b, out);
    buf_puts(out, apart ? ", apart\n" : ", within the intervals\n");
}

static bool is_report(struct json_object *value)
{
    return value != NULL && json_object_is_type(value, json_type_object) &&
           strcmp(report_string(value, "schema"), REPORT_SCHEMA) == 0 &&
           json_object_is_type(report_member(value, "tests"), json_type_array);
}

enum status report_diff(struct json_object *a, struct json_object *b, struct buf *out,
                        struct error *err)
{
    if (!is_report(a) || !is_report(b))
        return error_set(err, ERR_INPUT, "not two reports of schema " REPORT_SCHEMA);
    struct json_object *a_engine = report_member(a, "engine"),
                       *b_engine = report_member(b, "engine");
    struct json_object *a_tests = report_member(a, "tests"), *b_tests = report_member(b, "tests");
    diff_value("version", report_string(a_engine, "version"), report_string(b_engine, "version"),
               out);
    diff_value("model", report_string(a_engine, "model"), report_string(b_engine, "model"), out);
    diff_value("weights", report_string(a_engine, "weights"), report_string(b_engine, "weights"),
               out);
    diff_value("computed by", report_string(a_engine, "computes"),
               report_string(b_engine, "computes"), out);
    diff_value("isa", report_string(a_engine, "isa"), report_string(b_engine, "isa"), out);
    diff_profile(report_member(a, "profile"), report_member(b, "profile"), out);
    for (size_t i = 0; i < report_count(a_tests); i++) {
        struct json_object *test = json_object_array_get_idx(a_tests, i);
        diff_test(test, find_named(b_tests, "name", report_string(test, "name")), out);
    }
    for (size_t i = 0; i < report_count(b_tests); i++) {
        const char *name = report_string(json_object_array_get_idx(b_tests, i), "name");
        if (find_named(a_tests, "name", name) == NULL)
            buf_printf(out, "%s: was run in the second report only\n", name);
    }
    diff_value("verdict", report_string(a, "verdict"), report_string(b, "verdict"), out);
    return OK;
}

enum status report_read(const char *path, struct json_object **out, struct error *err)
{
    enum status status = json_parse_file(path, AUDIT_REPORT_BYTES_MAX, out, err);
    struct json_object *data = status == OK ? report_member(*out, "data") : NULL;
    if (data != NULL && is_report(data)) { /* of `audit report ID --json` */
        json_object_get(data);
        json_object_put(*out);
        *out = data;
    }
    if (status == OK && !is_report(*out)) {
        json_object_put(*out);
        *out = NULL;
        status = error_set(err, ERR_INPUT, "%s: not a report of schema " REPORT_SCHEMA, path);
    }
    return status;
}
