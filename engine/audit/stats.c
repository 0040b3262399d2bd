/* Exact tests, intervals and stopping rules in double. */
#include "engine/audit/stats.h"

#include "config/limits.h"
#include "engine/model/sampler.h"
#include "kernels/check.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* ---- binomial ------------------------------------------------------------------------------- */

static double log_choose(int64_t n, int64_t k)
{
    return lgamma((double)n + 1) - lgamma((double)k + 1) - lgamma((double)(n - k) + 1);
}

/* P(X <= k) for X binomial(n, rate), 0 < rate < 1; summed from the small end of the terms. */
static double binomial_below(int64_t k, int64_t n, double rate)
{
    double sum = 0;
    for (int64_t i = 0; i <= k; i++)
        sum += exp(log_choose(n, i) + (double)i * log(rate) + (double)(n - i) * log1p(-rate));
    return sum < 1 ? sum : 1;
}

/* The rate at which P(X <= k) falls to `tail`: it falls with the rate, so halving finds it. */
static double rate_with_tail(int64_t k, int64_t n, double tail)
{
    double low = 0, high = 1;
    for (int i = 0; i < AUDIT_BISECTIONS; i++) {
        double middle = (low + high) / 2;
        if (binomial_below(k, n, middle) > tail)
            low = middle;
        else
            high = middle;
    }
    return (low + high) / 2;
}

struct interval stats_rate(int64_t hits, int64_t n, double confidence)
{
    ASSERT(hits >= 0 && hits <= n);
    ASSERT(confidence > 0 && confidence < 1);
    double tail = (1 - confidence) / 2;
    struct interval out = {0, 1};
    if (hits > 0)
        out.low = rate_with_tail(hits - 1, n, 1 - tail);
    if (hits < n)
        out.high = rate_with_tail(hits, n, tail);
    return out;
}

double stats_mcnemar(int64_t losses, int64_t gains)
{
    ASSERT(losses >= 0 && gains >= 0);
    /* at least `losses` one way is, both ways being equal, at most `gains` the other way */
    return losses == 0 ? 1 : binomial_below(gains, losses + gains, 0.5);
}

int64_t stats_repeats(double rate, double miss)
{
    ASSERT(rate > 0 && rate < 1 && miss > 0 && miss < 1);
    double runs = log(miss) / log1p(-rate);
    return (int64_t)ceil(runs - runs * 1e-12); /* 3 runs at 0.9 miss 1e-3, whatever log rounds */
}

/* ---- several tests at once ------------------------------------------------------------------ */

void stats_holm(double *p, int n)
{
    ASSERT(n >= 0 && n <= AUDIT_TESTS_MAX);
    bool done[AUDIT_TESTS_MAX] = {false};
    double level = 0;
    for (int rank = 0; rank < n; rank++) {
        int least = -1;
        for (int i = 0; i < n; i++) {
            if (!done[i] && (least < 0 || p[i] < p[least]))
                least = i;
        }
        double here = fmin(1, p[least] * (n - rank));
        level = fmax(level, here); /* never below a smaller p's */
        p[least] = level;
        done[least] = true;
    }
}

/* ---- sequential ----------------------------------------------------------------------------- */

static void sprt_check(const struct sprt *t)
{
    ASSERT(t->good > 0 && t->good < t->bad && t->bad < 1);
    ASSERT(t->alpha > 0 && t->alpha < 0.5 && t->beta > 0 && t->beta < 0.5);
    ASSERT(t->failures >= 0 && t->failures <= t->n);
}

static double step_failed(const struct sprt *t)
{
    return log(t->bad / t->good);
}

static double step_passed(const struct sprt *t)
{
    return log1p(-t->bad) - log1p(-t->good);
}

double sprt_expected(const struct sprt *t, double rate)
{
    sprt_check(t);
    double bad_line = log((1 - t->beta) / t->alpha), good_line = log(t->beta / (1 - t->alpha));
    /* the chance to end at the bad line, known at the two rates; elsewhere bounded by the worse */
    double ends_bad = rate <= t->good ? t->alpha : 1 - t->beta;
    double drift = rate * step_failed(t) + (1 - rate) * step_passed(t);
    return (ends_bad * bad_line + (1 - ends_bad) * good_line) / drift;
}

enum sprt_state sprt_state(const struct sprt *t)
{
    sprt_check(t);
    double ratio =
        (double)t->failures * step_failed(t) + (double)(t->n - t->failures) * step_passed(t);
    if (ratio >= log((1 - t->beta) / t->alpha))
        return SPRT_BAD;
    if (ratio <= log(t->beta / (1 - t->alpha)))
        return SPRT_GOOD;
    double expected = fmax(sprt_expected(t, t->good), sprt_expected(t, t->bad));
    return (double)t->n >= AUDIT_SPRT_CUT * expected ? SPRT_UNDECIDED : SPRT_GOING;
}

/* ---- many values ---------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double nearest_rank(const double *sorted, int64_t n, double share)
{
    int64_t rank = (int64_t)ceil(share * (double)n);
    return sorted[rank > 0 ? rank - 1 : 0];
}

struct summary stats_summary(double *values, int64_t n)
{
    struct summary out = {.n = n};
    if (n == 0)
        return out;
    for (int64_t i = 0; i < n; i++) {
        ASSERT(!isnan(values[i]));
        out.mean += values[i];
    }
    out.mean /= (double)n;
    qsort(values, (size_t)n, sizeof *values, by_value);
    out.p50 = nearest_rank(values, n, 0.5);
    out.p90 = nearest_rank(values, n, 0.9);
    out.p99 = nearest_rank(values, n, 0.99);
    out.p999 = nearest_rank(values, n, 0.999);
    out.max = values[n - 1];
    return out;
}

struct interval stats_bootstrap(const double *means, int64_t n, double confidence, uint64_t seed)
{
    ASSERT(n >= 1 && confidence > 0 && confidence < 1);
    double drawn[AUDIT_BOOTSTRAPS];
    uint64_t position = 0;
    for (int i = 0; i < AUDIT_BOOTSTRAPS; i++) {
        double sum = 0;
        for (int64_t j = 0; j < n; j++)
            sum += means[(int64_t)(sampler_uniform(seed, position++) * (double)n)];
        drawn[i] = sum / (double)n;
    }
    qsort(drawn, AUDIT_BOOTSTRAPS, sizeof *drawn, by_value);
    double tail = (1 - confidence) / 2;
    return (struct interval){nearest_rank(drawn, AUDIT_BOOTSTRAPS, tail),
                             nearest_rank(drawn, AUDIT_BOOTSTRAPS, 1 - tail)};
}
