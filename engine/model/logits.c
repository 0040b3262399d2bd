/* Softmax in double, never stored. */
#include "engine/model/logits.h"

#include "kernels/check.h"

#include <math.h>

int32_t logits_top(const float *row, int32_t n)
{
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++) {
        if (row[i] > row[best])
            best = i;
    }
    return best;
}

/* The largest logit, and the logarithm of the sum of exponentials above it: kept apart, so that a
 * row moved by a constant gives the same bits.  Not finite when a logit is not. */
static double log_sum(const float *row, int32_t n, double *most)
{
    ASSERT(n >= 1);
    double sum = 0;
    *most = row[logits_top(row, n)];
    for (int32_t i = 0; i < n; i++) {
        if (!isfinite(row[i]))
            return INFINITY;
        sum += exp(row[i] - *most);
    }
    return log(sum);
}

double logits_logprob(const float *row, int32_t n, int32_t id)
{
    double most, log_of_sum = log_sum(row, n, &most);
    return row[id] - most - log_of_sum;
}

double logits_kl(const float *p, const float *q, int32_t n)
{
    double p_most, q_most, sum = 0;
    double p_sum = log_sum(p, n, &p_most), q_sum = log_sum(q, n, &q_most);
    if (!isfinite(p_sum) || !isfinite(q_sum))
        return INFINITY;
    for (int32_t i = 0; i < n; i++) {
        double log_p = p[i] - p_most - p_sum, log_q = q[i] - q_most - q_sum;
        sum += exp(log_p) * (log_p - log_q);
    }
    return sum > 0 ? sum : 0; /* the last bits of a sum that is zero may be negative */
}
