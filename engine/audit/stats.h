/*
 * The statistics of the audit: what n paired verdicts say, how sure it is, and when to stop.
 * Plain numbers in, plain numbers out; knows no test, no profile and no model.
 *
 * The unit is the prompt: never count the tokens of one prompt as independent.
 */
#ifndef V4BOX_ENGINE_AUDIT_STATS_H
#define V4BOX_ENGINE_AUDIT_STATS_H

#include <stdint.h>

struct interval {
    double low, high;
};

/** Two-sided Clopper-Pearson interval of a rate; exact, so it is never too narrow.
 *  @shape  0 <= hits <= n; n == 0 gives [0, 1]
 *  @unit   confidence in (0, 1), for example 0.95
 *  @src    Clopper and Pearson, "The use of confidence or fiducial limits", Biometrika 26, 1934 */
struct interval stats_rate(int64_t hits, int64_t n, double confidence);

/** One-sided exact McNemar: the chance of at least `losses` among the discordant pairs when a pair
 *  falls either way with equal chance.  1 when nothing was lost. */
double stats_mcnemar(int64_t losses, int64_t gains);

/** Runs of one configuration that must all pass before a fault that shows in a share `rate` of the
 *  runs was missed with a chance of at most `miss`.  @shape rate in (0, 1), miss in (0, 1) */
int64_t stats_repeats(double rate, double miss);

/** Holm's step-down correction, in place: p[i] becomes the smallest level at which test i would
 *  still be rejected among all n.  @src Holm, Scandinavian Journal of Statistics 6, 1979 */
void stats_holm(double *p, int n);

/* Wald's sequential test of a failure rate. */
enum sprt_state {
    SPRT_GOING,
    SPRT_GOOD,      /* the rate is as low as `good` */
    SPRT_BAD,       /* the rate is as high as `bad` */
    SPRT_UNDECIDED, /* cut off: SPRT_CUT times the expected number of items gave no answer */
};

struct sprt {
    double good, bad;   /* the two rates, 0 < good < bad < 1 */
    double alpha, beta; /* chance to call a good engine bad; a bad one good */
    int64_t failures, n;
};

/** Expected items until the end when the true rate is `rate` (Wald's approximation). */
double sprt_expected(const struct sprt *test, double rate);
/** Where the test stands after `failures` of `n`: a function of the counts alone, so it can be
 *  resumed from a report. */
enum sprt_state sprt_state(const struct sprt *test);

/* What many values look like. */
struct summary {
    int64_t n;
    double mean, p50, p90, p99, p999, max;
};

/** Percentiles by nearest rank.  Sorts `values`.  NaN is refused by an ASSERT: it has no rank.
 *  @shape values [n]; n == 0 gives all zeros */
struct summary stats_summary(double *values, int64_t n);

/** Percentile bootstrap of the mean, over prompts; the same seed gives the same interval.
 *  @shape means [n], one a prompt, n >= 1 */
struct interval stats_bootstrap(const double *means, int64_t n, double confidence, uint64_t seed);

#endif
