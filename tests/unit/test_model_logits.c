/* Rows of logits: the likeliest token, log-probabilities and distances, on rows that are known. */
#include "engine/model/logits.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define NEAR(a, b, tolerance) assert_true(fabs((a) - (b)) <= (tolerance))

static void test_top(void **state)
{
    (void)state;
    const float row[5] = {-3, 2, 1, 2, -INFINITY};
    assert_int_equal(logits_top(row, 5), 1);
    assert_int_equal(logits_top(row, 1), 0);
}

static void test_logprob(void **state)
{
    (void)state;
    const float row[3] = {1000, 1000 + logf(2), 1000 + logf(5)};
    NEAR(logits_logprob(row, 3, 0), log(1 / 8.0), 1e-4); /* float32 at 1000 has steps of 6e-5 */
    const float small[3] = {0, logf(2), logf(5)};
    for (int i = 0; i < 3; i++)
        NEAR(logits_logprob(small, 3, i), log((i == 0 ? 1 : i == 1 ? 2 : 5) / 8.0), 1e-7);
}

static void test_kl(void **state)
{
    (void)state;
    const float p[3] = {0, 0, 0}, q[3] = {0, logf(2), logf(5)}, shifted[3] = {7, 7, 7};
    /* p uniform over 3, q = 1/8, 2/8, 5/8 */
    double want = (log(8.0 / 3) + log(4.0 / 3) + log(8.0 / 15)) / 3;
    NEAR(logits_kl(p, q, 3), want, 1e-7);
    assert_true(logits_kl(p, p, 3) == 0 && logits_kl(p, shifted, 3) == 0);
    assert_true(logits_kl(q, p, 3) > 0 && fabs(logits_kl(q, p, 3) - want) > 1e-3);
    const float bad[3] = {0, NAN, 0}, huge[3] = {0, INFINITY, 0};
    assert_true(isinf(logits_kl(p, bad, 3)) && isinf(logits_kl(bad, p, 3)) &&
                isinf(logits_kl(p, huge, 3)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_top),
        cmocka_unit_test(test_logprob),
        cmocka_unit_test(test_kl),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
