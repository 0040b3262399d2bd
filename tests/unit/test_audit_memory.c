/* Verdicts on counted answers, whatever a model can answer, and what a budget's time drops. */
#include "engine/audit/pace.h"
#include "engine/audit/soak.h"
#include "engine/audit/tests_common.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void verdicts(void **state)
{
    static const struct {
        const char *budget;
        struct audit_pairs items, edges;
        enum audit_verdict verdict;
        const char *why;
    } CASES[] = {
        {"1m", {0}, {0}, VERDICT_UNDECIDED, "nothing was asked"},
        {"1m", {.n = 8, .first = 8}, {0}, VERDICT_UNDECIDED, "0 of the reference's 8"},
        {"1m", {.n = 9, .first = 9}, {0}, VERDICT_PASS, "0 of the reference's 9"},
        {"1m", {.n = 17, .first = 9}, {0}, VERDICT_PASS, ""},
        {"1m", {.n = 19, .first = 9}, {0}, VERDICT_MODEL, "the reference profile answers 9 of 19"},
        {"1m", {.n = 1, .first = 0}, {0}, VERDICT_MODEL, ""},
        {"1m", {.n = 9, .first = 9, .losses = 3}, {0}, VERDICT_FAIL, "3 of the reference's 9"},
        {"1m", {.n = 9, .first = 9, .losses = 1}, {0}, VERDICT_UNDECIDED, ""},
        {"5m", {.n = 31, .first = 31}, {0}, VERDICT_UNDECIDED, ""},
        {"5m", {.n = 32, .first = 32}, {0}, VERDICT_PASS, ""},
        {"1m", {.n = 9, .first = 9}, {.n = 9, .first = 9, .losses = 3}, VERDICT_FAIL, "on edges"},
        {"1m", {0}, {.n = 9, .first = 9, .losses = 3}, VERDICT_FAIL, "on edges"},
        {"1m", {0}, {.n = 9, .first = 9}, VERDICT_UNDECIDED, "nothing was asked"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct buf why = {0};
        enum audit_verdict got = audit_memory_judge(audit_budget(CASES[i].budget), &CASES[i].items,
                                                    &CASES[i].edges, &why);
        assert_string_equal(audit_verdict_name(got), audit_verdict_name(CASES[i].verdict));
        assert_non_null(strstr(buf_cstr(&why), CASES[i].why));
        buf_free(&why);
    }
}

static void pieces_that_fit(void **state)
{
    struct pace p = {.until_ms = 1000};
    (void)state;
    assert_true(pace_begin(&p, 10, 0)); /* nothing is known of it */
    pace_end(&p, 100);
    assert_true(pace_begin(&p, 90, 100)); /* 900 ms to the end, exactly */
    pace_end(&p, 500);                    /* sooner than that: in the mean 5 ms, at last 4.4 */
    assert_true(pace_begin(&p, 100, 500));
    pace_end(&p, 900); /* 4.5 in the mean */
    assert_false(pace_begin(&p, 23, 900));
    assert_true(pace_begin(&p, 20, 900)); /* a smaller one still fits */
    pace_end(&p, 999);
    assert_false(pace_begin(&p, 0.1, 1000));
    assert_int_equal(p.dropped, 2);
    struct pace late = {.until_ms = 1000};
    assert_false(pace_begin(&late, 1, 1000)); /* not even the first */
    struct pace slower = {.until_ms = 1000};
    assert_true(pace_begin(&slower, 10, 0));
    pace_end(&slower, 10);
    assert_true(pace_begin(&slower, 10, 10));
    pace_end(&slower, 510); /* the newest counts where it took longer than the mean */
    assert_false(pace_begin(&slower, 10, 510));
    struct pace endless = {0};
    for (int i = 0; i < 100; i++) {
        assert_true(pace_begin(&endless, 1e9, (uint64_t)i * 1000000));
        pace_end(&endless, (uint64_t)(i + 1) * 1000000);
    }
    assert_int_equal(endless.dropped, 0);
}

/* A member of so many rounds, the longest of 3 s. */
static bool over(double rounds, double cut, const char *budget, double left_s)
{
    struct json_object *member = json_object_new_object();
    struct json_object *numbers = result_part(member, "numbers", false);
    result_number(numbers, "rounds", rounds);
    result_number(numbers, "longest round, s", 3);
    if (cut > 0)
        result_number(numbers, "rounds cut by the end of the time", cut);
    bool out = soak_over(member, audit_budget(budget), left_s);
    json_object_put(member);
    return out;
}

static void soaking_ends(void **state)
{
    (void)state;
    assert_false(over(6, 0, "quick", 0));
    assert_true(over(7, 0, "quick", 0)); /* no time is promised: every test once */
    assert_false(over(1, 0, "1m", 3.1));
    assert_false(over(1000, 0, "3h", 3.1));
    assert_true(over(1, 0, "1m", 3));
    assert_true(over(1, 0, "1m", 0));
    assert_true(over(2, 1, "1m", 50)); /* a cut round is the last */
    assert_true(soak_over(NULL, audit_budget("1m"), 0));
}

static void shares(void **state)
{
    int all = 0;
    (void)state;
    for (int i = 0; i < AUDIT_TESTS; i++) {
        assert_true(audit_test_share((enum audit_test)i) > 0);
        all += audit_test_share((enum audit_test)i);
    }
    assert_int_equal(all, 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(verdicts),
        cmocka_unit_test(pieces_that_fit),
        cmocka_unit_test(soaking_ends),
        cmocka_unit_test(shares),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
