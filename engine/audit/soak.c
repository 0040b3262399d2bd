/* Rounds, what they add up to, and the verdict. */
#include "engine/audit/soak.h"

#include "engine/audit/fact.h"
#include "engine/audit/report_fields.h"
#include "engine/audit/tests_common.h"
#include "engine/base/clock.h"
#include "engine/base/fnv.h"
#include "kernels/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define ROUND_BUDGET "quick"
#define CANARY_BYTES 17 /* hex digits of 64 bits, and the NUL */
#define NAME_BYTES   48
#define CUT          "rounds cut by the end of the time"

/* ---- what a round is ------------------------------------------------------------------------- */

/* Every test once; then drawn, the more often the more its items differ. */
static enum audit_test draw_test(int32_t seed, int32_t round, int32_t *round_seed)
{
    static const int PARTS[AUDIT_TESTS] = {
#define SOAK(test, part) [test] = part,
        AUDIT_SOAK(SOAK)
#undef SOAK
    };
    struct draws d = {.seed = (uint64_t)seed, .position = (uint64_t)round * 2};
    int total = 0;
    for (int i = 0; i < AUDIT_TESTS; i++)
        total += PARTS[i];
    int32_t at = draws_below(&d, total);
    *round_seed = draws_below(&d, INT32_MAX);
    if (round < AUDIT_TESTS)
        return (enum audit_test)round;
    int test = 0;
    while (at >= PARTS[test])
        at -= PARTS[test++];
    return (enum audit_test)test;
}

/* The bits behind every token of a text that all rounds share; always the same where none fits. */
static void canary(const struct audit_run *run, char out[CANARY_BYTES])
{
    struct audit_item item;
    uint64_t hash = FNV_BASIS;
    if (audit_text_make(run, &item)) {
        int32_t n = (int32_t)item.ids.len;
        uint64_t *rows = calloc((size_t)n, sizeof *rows);
        ASSERT(rows != NULL);
        machine_rows(run->machine, item.ids.data, n, n, run->profile, WAY_COLD, rows, NULL);
        for (int32_t i = 0; i < n; i++)
            hash = fnv_add(hash, rows[i]);
        free(rows);
        audit_item_free(&item);
    }
    snprintf(out, CANARY_BYTES, "%016llx", (unsigned long long)hash);
}

/* ---- what rounds add up to ------------------------------------------------------------------- */

static double count(struct json_object *numbers, const char *key)
{
    double value = report_number(numbers, key);
    return isfinite(value) ? value : 0;
}

static void add(struct json_object *numbers, const char *key, double value)
{
    result_number(numbers, key, count(numbers, key) + value);
}

static void add_of_test(struct json_object *numbers, enum audit_test test, const char *what)
{
    char key[NAME_BYTES];
    snprintf(key, sizeof key, "%s: %s", audit_test_name(test), what);
    add(numbers, key, 1);
}

static const char *const FACTS[] = {"right in reference", "right in profile", "lost", "won"};

/* Adds what a round's result says. */
static void add_result(struct json_object *numbers, enum audit_test test,
                       struct json_object *result, enum audit_verdict verdict)
{
    struct json_object *own = report_member(result, "numbers");
    add(numbers, "rounds", 1);
    add_of_test(numbers, test, "rounds");
    add_of_test(numbers, test, audit_verdict_name(verdict));
    if (test != TEST_RECALL && test != TEST_NEEDLE)
        return;
    add(numbers, "items", json_object_get_int(report_member(result, "n")));
    for (size_t i = 0; i < sizeof FACTS / sizeof *FACTS; i++)
        add(numbers, FACTS[i], count(own, FACTS[i]));
}

/* The most memory that the process had, against that when every test had run once: from then on
 * nothing new is asked of it. */
static void note_memory(struct json_object *numbers)
{
    struct rusage usage;
    if (count(numbers, "rounds") < AUDIT_TESTS || getrusage(RUSAGE_SELF, &usage) != 0)
        return;
    double mib = (double)usage.ru_maxrss / 1024;
    if (count(numbers, "rounds") == AUDIT_TESTS)
        result_number(numbers, "most memory when every test had run once, MiB", mib);
    result_number(numbers, "most memory, MiB", mib);
}

static enum audit_verdict judge(const struct audit_run *run, struct json_object *member,
                                struct buf *why)
{
    struct json_object *numbers = report_member(member, "numbers");
    const struct audit_pairs none = {0}, facts = {
                                             .n = (int32_t)count(numbers, "items"),
                                             .first = (int32_t)count(numbers, FACTS[0]),
                                             .second = (int32_t)count(numbers, FACTS[1]),
                                             .losses = (int32_t)count(numbers, FACTS[2]),
                                             .gains = (int32_t)count(numbers, FACTS[3]),
                                         };
    buf_printf(why, "%d rounds: ", (int)count(numbers, "rounds"));
    enum audit_verdict verdict = audit_memory_judge(run->budget, &facts, &none, why);
    const char *failure = report_string(member, "failure");
    if (failure[0] == '\0')
        return verdict;
    buf_printf(why, "; %s", failure);
    return VERDICT_FAIL;
}

/* The first thing that went wrong is kept, with what makes it again. */
static void note_failure(struct json_object *member, const char *text)
{
    if (report_member(member, "failure") == NULL)
        json_set(member, "failure", json_object_new_string(text));
}

static void run_test(const struct audit_run *run, int32_t seed, struct json_object *member)
{
    struct json_object *numbers = result_part(member, "numbers", false);
    int32_t round = (int32_t)count(numbers, "rounds"), round_seed;
    enum audit_test test = draw_test(seed, round, &round_seed);
    enum audit_verdict verdict;
    struct audit_run own = *run;
    int64_t begin_ms = clock_ms();
    own.budget = audit_budget(ROUND_BUDGET);
    own.seed = audit_seed(round_seed);
    struct json_object *result = audit_test(&own, test, &verdict);
    bool cut = count(report_member(result, "numbers"), RESULT_DROPPED) > 0;
    if (cut)
        add(numbers, CUT, 1);
    if (!cut || verdict == VERDICT_FAIL)
        add_result(numbers, test, result, verdict);
    result_number(numbers, "longest round, s",
                  fmax(count(numbers, "longest round, s"), (double)(clock_ms() - begin_ms) / 1000));
    if (verdict == VERDICT_FAIL) {
        struct buf text = {0};
        buf_printf(&text, "round %d, %s with seed %d: %s", (int)round, audit_test_name(test),
                   (int)round_seed, report_string(result, "why"));
        note_failure(member, buf_cstr(&text));
        buf_free(&text);
    }
    json_object_put(result);
}

struct json_object *soak_round(const struct audit_run *run, int32_t seed,
                               struct json_object *before, enum audit_verdict *verdict)
{
    struct json_object *member = result_new("soak", VERDICT_UNDECIDED, "", 0, "");
    static const char *const KEPT[] = {"numbers", "canary", "failure", "seconds"};
    for (size_t i = 0; i < sizeof KEPT / sizeof *KEPT; i++) {
        struct json_object *copy = NULL; /* a round that is cut leaves no trace in what was */
        if (report_member(before, KEPT[i]) != NULL) {
            ASSERT(json_object_deep_copy(report_member(before, KEPT[i]), &copy, NULL) == 0);
            json_set(member, KEPT[i], copy);
        }
    }
    char bits[CANARY_BYTES], gate[128];
    struct buf why = {0};
    run_test(run, seed, member);
    canary(run, bits);
    if (report_member(member, "canary") == NULL)
        json_set(member, "canary", json_object_new_string(bits));
    if (strcmp(report_string(member, "canary"), bits) != 0)
        note_failure(member, "a text gives other bits than in the first round");
    struct json_object *numbers = report_member(member, "numbers");
    note_memory(numbers);
    *verdict = judge(run, member, &why);
    snprintf(gate, sizeof gate, "no round fails, the same bits; lost: %.3g accepted, %.3g refused",
             run->budget->good, run->budget->bad);
    json_set(member, "verdict", json_object_new_string(audit_verdict_name(*verdict)));
    json_set(member, "why", json_object_new_string(buf_cstr(&why)));
    json_set(member, "n", json_object_new_int((int)count(numbers, "rounds")));
    json_set(member, "gate", json_object_new_string(gate));
    buf_free(&why);
    int64_t first = (int64_t)count(numbers, FACTS[0]), lost = (int64_t)count(numbers, FACTS[2]);
    if (first > 0)
        result_estimate(member, (double)lost / (double)first,
                        stats_rate(lost, first, AUDIT_CONFIDENCE));
    return member;
}

bool soak_over(struct json_object *member, const struct audit_budget *budget, double left_s)
{
    struct json_object *numbers = report_member(member, "numbers");
    if (budget->seconds == 0)
        return count(numbers, "rounds") >= AUDIT_TESTS;
    return count(numbers, CUT) > 0 || left_s <= count(numbers, "longest round, s");
}
