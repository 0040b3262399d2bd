/* Names, budgets, gates, and the members of results that all tests share. */
#include "engine/audit/tests.h"

#include "engine/audit/tests_common.h"
#include "engine/base/clock.h"
#include "kernels/check.h"

#include <math.h>
#include <string.h>

static const struct audit_budget BUDGETS[] = {
#define BUDGET(name, seconds, good, bad, items, texts, tokens, needle, turns)                      \
    {name, seconds, good, bad, items, texts, tokens, needle, turns},
    AUDIT_BUDGETS(BUDGET)
#undef BUDGET
};

static const struct audit_gates GATES[] = {
#define GATE(profile, mean, p999, top1, growth) {profile, mean, p999, top1, growth},
    AUDIT_GATES(GATE)
#undef GATE
};

/* The tests, in the order in which their answers are worth having: whoever asks something else
 * gets another answer, without a floor nothing else says much, and an equality that does not hold
 * explains the rest. */
static const struct {
    const char *name;
    struct json_object *(*run)(const struct audit_run *run, enum audit_verdict *verdict);
} TESTS[AUDIT_TESTS] = {
    [TEST_PROMPT] = {"prompt", test_prompt}, [TEST_FLOOR] = {"floor", test_floor},
    [TEST_REPLAY] = {"replay", test_replay}, [TEST_LOGITS] = {"logits", test_logits},
    [TEST_TOOLS] = {"tools", test_tools},    [TEST_RECALL] = {"recall", test_recall},
    [TEST_NEEDLE] = {"needle", test_needle},
};

const struct audit_budget *audit_budget(const char *name)
{
    for (size_t i = 0; i < sizeof BUDGETS / sizeof *BUDGETS; i++) {
        if (strcmp(BUDGETS[i].name, name) == 0)
            return &BUDGETS[i];
    }
    return NULL;
}

const struct audit_budget *audit_budget_at(int i)
{
    return (size_t)i < sizeof BUDGETS / sizeof *BUDGETS ? &BUDGETS[i] : NULL;
}

void audit_budget_print(const struct audit_budget *b, struct buf *out)
{
    buf_printf(out,
               "%-6s at most %3d facts in talks of up to %d turns, as many in texts of up to %5d "
               "tokens; logits of %d texts of %d tokens\n",
               b->name, (int)b->items, (int)b->turns_max, (int)b->needle_max, (int)b->texts,
               (int)b->text_tokens);
}

const struct audit_gates *audit_gates(const struct profile *profile)
{
    const struct audit_gates *balanced = NULL;
    for (size_t i = 0; i < sizeof GATES / sizeof *GATES; i++) {
        if (strcmp(GATES[i].profile, profile->name) == 0)
            return &GATES[i];
        if (strcmp(GATES[i].profile, "balanced") == 0)
            balanced = &GATES[i];
    }
    return balanced;
}

const char *audit_test_name(enum audit_test test)
{
    return TESTS[test].name;
}

bool audit_test_parse(const char *name, enum audit_test *out)
{
    for (int i = 0; i < AUDIT_TESTS; i++) {
        if (strcmp(TESTS[i].name, name) == 0) {
            *out = (enum audit_test)i;
            return true;
        }
    }
    return false;
}

uint64_t audit_seed(int32_t seed)
{
    return (uint64_t)seed << 20;
}

int audit_test_share(enum audit_test test)
{
    static const int SHARES[AUDIT_TESTS] = {
#define SHARE(test, part) [test] = part,
        AUDIT_SHARES(SHARE)
#undef SHARE
    };
    return SHARES[test];
}

struct json_object *audit_test(const struct audit_run *run, enum audit_test test,
                               enum audit_verdict *verdict)
{
    if (run->until_ms != 0 && clock_ms() >= run->until_ms) {
        *verdict = VERDICT_UNDECIDED;
        return result_new(TESTS[test].name, *verdict, "the budget has no time left for it", 0,
                          "some time");
    }
    return TESTS[test].run(run, verdict);
}

bool audit_cancelled(const struct audit_run *run)
{
    return run->cancelled != NULL && run->cancelled(run->user);
}

/* ---- results --------------------------------------------------------------------------------- */

struct json_object *result_new(const char *name, enum audit_verdict verdict, const char *why,
                               int64_t n, const char *gate)
{
    struct json_object *out = json_object_new_object();
    json_set(out, "name", json_object_new_string(name));
    json_set(out, "verdict", json_object_new_string(audit_verdict_name(verdict)));
    json_set(out, "why", json_object_new_string(why));
    json_set(out, "n", json_object_new_int64(n));
    json_set(out, "gate", json_object_new_string(gate));
    return out;
}

void result_number(struct json_object *object, const char *key, double value)
{
    if (isfinite(value))
        json_set(object, key, json_object_new_double(value));
}

void result_estimate(struct json_object *result, double value, struct interval interval)
{
    result_number(result, "estimate", value);
    result_number(result, "low", interval.low);
    result_number(result, "high", interval.high);
}

struct json_object *result_part(struct json_object *result, const char *key, bool list)
{
    struct json_object *part;
    if (!json_object_object_get_ex(result, key, &part)) {
        part = list ? json_object_new_array() : json_object_new_object();
        json_set(result, key, part);
    }
    return part;
}

void result_grid(struct json_object *result, const char *title, const struct grid *grid,
                 const char *const *lines, int n_lines, const char *const *columns, int n_columns)
{
    ASSERT(n_lines <= GRID_LINES_MAX && n_columns <= GRID_COLUMNS_MAX);
    struct json_object *out = json_object_new_object();
    json_set(out, "title", json_object_new_string(title));
    struct json_object *names = json_object_new_array(), *rows = json_object_new_array();
    for (int j = 0; j < n_columns; j++)
        json_object_array_add(names, json_object_new_string(columns[j]));
    for (int i = 0; i < n_lines; i++) {
        struct json_object *line = json_object_new_object(), *cells = json_object_new_array();
        json_set(line, "label", json_object_new_string(lines[i]));
        for (int j = 0; j < n_columns; j++) {
            struct json_object *cell = json_object_new_object();
            json_set(cell, "n", json_object_new_int(grid->n[i][j]));
            json_set(cell, "right", json_object_new_int(grid->right[i][j]));
            json_set(cell, "reference", json_object_new_int(grid->reference[i][j]));
            json_object_array_add(cells, cell);
        }
        json_set(line, "cells", cells);
        json_object_array_add(rows, line);
    }
    json_set(out, "columns", names);
    json_set(out, "lines", rows);
    json_object_array_add(result_part(result, "grids", true), out);
}
