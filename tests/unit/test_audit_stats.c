/* The audit's statistics: the tables of the design, and every number a second way. */
#include "engine/audit/stats.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define NEAR(a, b, tolerance) assert_true(fabs((a) - (b)) <= (tolerance))

/* P(X <= k), by the ratio of neighbouring terms in long double: no gamma function. */
static double below(int k, int n, double rate)
{
    long double term = powl(1 - (long double)rate, n), sum = term;
    for (int i = 1; i <= k; i++) {
        term *= (long double)(n - i + 1) / i * rate / (1 - (long double)rate);
        sum += term;
    }
    return (double)sum;
}

/* The ends of an interval leave the tails they promise; for every count up to 40, and some big. */
static void check_rate(int hits, int n, double confidence)
{
    struct interval got = stats_rate(hits, n, confidence);
    double tail = (1 - confidence) / 2;
    assert_true(got.low <= (double)hits / n && (double)hits / n <= got.high);
    if (hits == 0)
        assert_true(got.low == 0);
    else
        NEAR(1 - below(hits - 1, n, got.low), tail, 1e-9);
    if (hits == n)
        assert_true(got.high == 1);
    else
        NEAR(below(hits, n, got.high), tail, 1e-9);
}

static void test_rate(void **state)
{
    (void)state;
    for (int n = 1; n <= 40; n++) {
        for (int hits = 0; hits <= n; hits++)
            check_rate(hits, n, 0.95);
    }
    check_rate(600, 1000, 0.99);
    check_rate(1, 1000, 0.9);
    /* no failure in n: the one-sided 95 % bound of the design's list */
    static const struct {
        int n;
        double bound;
    } none[] = {{60, 0.049}, {100, 0.030}, {300, 0.010}, {1000, 0.003}};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        NEAR(stats_rate(0, none[i].n, 0.9).high, none[i].bound, 5e-4);
    struct interval nothing = stats_rate(0, 0, 0.95);
    assert_true(nothing.low == 0 && nothing.high == 1);
}

static void test_mcnemar(void **state)
{
    (void)state;
    assert_true(stats_mcnemar(0, 0) == 1);
    assert_true(stats_mcnemar(0, 9) == 1);
    /* all one way: the fewest pairs for a level */
    assert_true(stats_mcnemar(4, 0) > 0.05 && stats_mcnemar(5, 0) < 0.05);
    assert_true(stats_mcnemar(6, 0) > 0.01 && stats_mcnemar(7, 0) < 0.01);
    assert_true(stats_mcnemar(9, 0) > 0.0009 && stats_mcnemar(10, 0) < 0.001);
    for (int losses = 1; losses <= 30; losses++) {
        for (int gains = 0; gains <= 30; gains++)
            NEAR(stats_mcnemar(losses, gains), 1 - below(losses - 1, losses + gains, 0.5), 1e-12);
    }
}

static void test_repeats(void **state)
{
    (void)state;
    static const struct {
        double rate;
        int runs;
    } rows[] = {{0.9, 3}, {0.5, 10}, {0.33, 18}, {0.2, 31}, {0.125, 52}, {0.07, 96}, {0.01, 688}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(stats_repeats(rows[i].rate, 1e-3), rows[i].runs);
}

static void test_holm(void **state)
{
    (void)state;
    double p[] = {0.04, 0.01, 0.03, 0.005, 0.9};
    const double want[] = {0.09, 0.04, 0.09, 0.025, 0.9};
    stats_holm(p, 5);
    for (int i = 0; i < 5; i++)
        NEAR(p[i], want[i], 1e-12);
    double big[] = {0.6, 0.7};
    stats_holm(big, 2);
    assert_true(big[0] == 1 && big[1] == 1);
    stats_holm(big, 0);
}

static struct sprt plan(double good, double bad)
{
    return (struct sprt){.good = good, .bad = bad, .alpha = 0.01, .beta = 0.05};
}

static void test_sprt_sizes(void **state)
{
    (void)state;
    static const struct {
        double good, bad;
        int good_items, bad_items;
    } rows[] = {{0.01, 0.1, 41, 29}, {0.01, 0.3, 9, 5}, {0.005, 0.03, 178, 144}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct sprt t = plan(rows[i].good, rows[i].bad);
        NEAR(sprt_expected(&t, t.good), rows[i].good_items, 1.5);
        NEAR(sprt_expected(&t, t.bad), rows[i].bad_items, 1.5);
    }
}

/* Runs the test on a seeded coin; returns how it ended. */
static enum sprt_state run(struct sprt t, double rate, uint64_t *seed)
{
    while (sprt_state(&t) == SPRT_GOING) {
        *seed = *seed * 6364136223846793005u + 1442695040888963407u;
        t.failures += (double)(*seed >> 11) * 0x1p-53 < rate;
        t.n++;
    }
    return sprt_state(&t);
}

static void test_sprt_errors(void **state)
{
    (void)state;
    uint64_t seed = 4;
    int wrong_bad = 0, wrong_good = 0, undecided = 0;
    for (int i = 0; i < 2000; i++) {
        wrong_bad += run(plan(0.01, 0.1), 0.01, &seed) == SPRT_BAD;
        enum sprt_state end = run(plan(0.01, 0.1), 0.1, &seed);
        wrong_good += end == SPRT_GOOD;
        undecided += end == SPRT_UNDECIDED;
    }
    assert_in_range(wrong_bad, 1, 2000 * 2 / 100); /* at most alpha, twice for chance; not never */
    assert_in_range(wrong_good, 1, 2000 * 7 / 100);
    assert_in_range(undecided, 0, 2000 * 2 / 100);
    /* a rate in the middle may end anywhere, but ends */
    struct sprt stuck = plan(0.01, 0.1);
    stuck.n = 164;
    stuck.failures = 6;
    assert_int_equal(sprt_state(&stuck), SPRT_UNDECIDED);
    stuck.n = 30;
    stuck.failures = 1;
    assert_int_equal(sprt_state(&stuck), SPRT_GOING);
}

static void test_summary(void **state)
{
    (void)state;
    double values[1000];
    for (int i = 0; i < 1000; i++)
        values[i] = (i * 617) % 1000 + 1; /* 1..1000 in some order */
    struct summary s = stats_summary(values, 1000);
    assert_true(s.n == 1000 && s.mean == 500.5 && s.p50 == 500 && s.p90 == 900 && s.p99 == 990 &&
                s.p999 == 999 && s.max == 1000);
    double one = -2;
    s = stats_summary(&one, 1);
    assert_true(s.p50 == -2 && s.p999 == -2 && s.max == -2);
    s = stats_summary(NULL, 0);
    assert_true(s.n == 0 && s.mean == 0);
}

static void test_bootstrap(void **state)
{
    (void)state;
    double same[5] = {3, 3, 3, 3, 3}, mixed[100];
    struct interval got = stats_bootstrap(same, 5, 0.95, 1);
    assert_true(got.low == 3 && got.high == 3);
    for (int i = 0; i < 100; i++)
        mixed[i] = i % 2;
    got = stats_bootstrap(mixed, 100, 0.95, 1);
    NEAR(got.low, 0.40, 0.02); /* 0.5 -+ 1.96 * 0.05 */
    NEAR(got.high, 0.60, 0.02);
    struct interval again = stats_bootstrap(mixed, 100, 0.95, 1);
    assert_memory_equal(&got, &again, sizeof got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rate),       cmocka_unit_test(test_mcnemar),
        cmocka_unit_test(test_repeats),    cmocka_unit_test(test_holm),
        cmocka_unit_test(test_sprt_sizes), cmocka_unit_test(test_sprt_errors),
        cmocka_unit_test(test_summary),    cmocka_unit_test(test_bootstrap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
