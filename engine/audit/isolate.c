/* The search for culprits; see the header for its plan. */
#include "engine/audit/isolate.h"

#include "kernels/check.h"

struct search {
    const struct isolate_row *rows;
    int n;
    isolate_run_fn *run;
    void *user;
    uint64_t all;
    bool reuse;   /* of the failing configuration */
    bool stopped; /* unsure, or out of verdicts: unwind */
    struct isolate_report *out;
};

static uint64_t bit(int row)
{
    return UINT64_C(1) << row;
}

static bool same(const struct isolate_config *a, const struct isolate_config *b)
{
    return a->live_prefill == b->live_prefill && a->live_decode == b->live_decode &&
           a->reuse == b->reuse;
}

/* One verdict, recorded; a configuration that was decided is not run again.  After a stop
 * everything passes, so that all loops end. */
static bool fails(struct search *s, enum isolate_stage stage, struct isolate_config config)
{
    struct isolate_report *out = s->out;
    for (int i = 0; i < out->n_tries; i++) {
        if (same(&out->tries[i].config, &config))
            return !s->stopped && out->tries[i].verdict == ISOLATE_FAIL;
    }
    if (s->stopped || out->n_tries == ISOLATE_VERDICTS_MAX) {
        s->stopped = true;
        return false;
    }
    enum isolate_verdict verdict = s->run(s->user, &config);
    out->tries[out->n_tries++] = (struct isolate_try){stage, config, verdict};
    s->stopped = verdict == ISOLATE_UNSURE;
    return verdict == ISOLATE_FAIL;
}

static bool rows_fail(struct search *s, enum isolate_stage stage, uint64_t live)
{
    return fails(s, stage, (struct isolate_config){live, live, s->reuse});
}

/* ---- order and splits ------------------------------------------------------------------------ */

/* Rows of `set`, most suspicious first; ties go to the lowest index. */
static int order_rows(const struct search *s, uint64_t set, int *order)
{
    int n = 0;
    for (int row = 0; row < s->n; row++) {
        if ((set & bit(row)) == 0)
            continue;
        int at = n++;
        for (; at > 0 && s->rows[order[at - 1]].suspicion < s->rows[row].suspicion; at--)
            order[at] = order[at - 1];
        order[at] = row;
    }
    return n;
}

static int log2_up(int n)
{
    int bits = 0;
    while ((1 << bits) < n)
        bits++;
    return bits;
}

/* Where to cut the candidates order[low..high): so that both sides weigh the same, but never so
 * that the larger side costs more verdicts than halving would. */
static int cut(const struct search *s, const int *order, int low, int high)
{
    int most =
        1 << (log2_up(high - low) - 1); /* candidates that one verdict fewer can tell apart */
    double total = 0, left = 0;
    for (int i = low; i < high; i++)
        total += s->rows[order[i]].suspicion;
    int at = low + 1;
    for (left = s->rows[order[low]].suspicion; at < high - 1; at++) {
        if (left + s->rows[order[at]].suspicion / 2 > total / 2)
            break;
        left += s->rows[order[at]].suspicion;
    }
    if (at - low > most)
        at = low + most;
    if (high - at > most)
        at = high - most;
    return at;
}

/* The row that ends the shortest failing prefix of `set` beside `fixed`: it is needed there.
 * `set` as a whole is known to fail.  `*before` gets the rows in front of it. */
static int search_row(struct search *s, uint64_t set, uint64_t fixed, uint64_t *before)
{
    int order[ISOLATE_ROWS_MAX];
    int low = 0,
        high = order_rows(s, set, order); /* the last row of the prefix is in [low, high) */
    ASSERT(high > 0);
    while (high - low > 1) {
        int at = cut(s, order, low, high);
        uint64_t live = fixed;
        for (int i = 0; i < at; i++)
            live |= bit(order[i]);
        if (rows_fail(s, ISOLATE_SEARCH, live))
            high = at;
        else
            low = at;
    }
    *before = 0;
    for (int i = 0; i < low; i++)
        *before |= bit(order[i]);
    return order[low];
}

/* ---- stages ---------------------------------------------------------------------------------- */

static bool control(struct search *s)
{
    if (!rows_fail(s, ISOLATE_CONTROL, s->all)) {
        s->out->outcome = s->stopped ? ISOLATE_UNDECIDED : ISOLATE_NO_FAULT;
        return false;
    }
    bool reference_fails =
        fails(s, ISOLATE_CONTROL, (struct isolate_config){.live_prefill = 0, .reuse = false});
    if (reference_fails)
        s->out->outcome = ISOLATE_MODEL;
    return !reference_fails && !s->stopped;
}

/* Which legs the failure lives in; all of them when the crossover does not tell. */
static uint32_t find_legs(struct search *s)
{
    bool decode = fails(s, ISOLATE_LEGS, (struct isolate_config){0, s->all, s->reuse});
    bool prefill = fails(s, ISOLATE_LEGS, (struct isolate_config){s->all, 0, s->reuse});
    bool fresh = fails(s, ISOLATE_LEGS, (struct isolate_config){s->all, s->all, false});
    if (!fresh)
        return ISOLATE_STATE;
    if (decode && !prefill)
        return ISOLATE_DECODE;
    if (prefill && !decode)
        return ISOLATE_PREFILL;
    return ISOLATE_ALL;
}

static uint64_t rows_of(const struct search *s, uint32_t legs)
{
    uint64_t set = 0;
    for (int i = 0; i < s->n; i++)
        set |= (s->rows[i].legs & legs) != 0 ? bit(i) : 0;
    return set;
}

static void convict(struct search *s, uint64_t rows)
{
    struct isolate_report *out = s->out;
    if (out->n_culprits == ISOLATE_CULPRITS_MAX) {
        s->stopped = true;
        return;
    }
    out->culprits[out->n_culprits++].rows = rows;
}

/* The row of `culprit` that needs no company, or all of it: where a row repairs another, a third
 * may have been taken along. */
static uint64_t alone(struct search *s, uint64_t culprit)
{
    for (int row = 0; row < s->n && culprit != 0; row++) {
        if ((culprit & bit(row)) != 0 && rows_fail(s, ISOLATE_CONFIRM, bit(row)))
            return bit(row);
    }
    return culprit;
}

/* One culprit, from a set that fails when all of it is live beside `background`: a row, or rows
 * that need each other.  It ends: answers are remembered, so at the latest the whole failing set is
 * the culprit.  @return the rows; 0 after a stop */
static uint64_t find_culprit(struct search *s, uint64_t candidates, uint64_t background)
{
    uint64_t culprit = 0;
    while (!s->stopped) {
        uint64_t before;
        culprit |= bit(search_row(s, candidates, culprit | background, &before));
        if (rows_fail(s, ISOLATE_CONFIRM, culprit))
            return alone(s, culprit);
        candidates = before | background; /* its partner is one of these */
        background = 0;
    }
    return 0;
}

/* Culprit after culprit, until what is left passes.  The rows outside of the legs stay live in the
 * first search: the crossover has shown that they do not fail by themselves. */
static void find_all(struct search *s, uint64_t suspects)
{
    uint64_t left = s->all, background = s->all & ~suspects;
    while (!s->stopped) {
        uint64_t culprit = find_culprit(s, left & ~background, background);
        if (s->stopped)
            return;
        convict(s, culprit);
        left &= ~culprit;
        background = 0;
        if (left == 0 || !rows_fail(s, ISOLATE_CONFIRM, left))
            return;
    }
}

static uint64_t acquitted(const struct isolate_report *out)
{
    uint64_t passed = 0;
    for (int i = 0; i < out->n_tries; i++) {
        const struct isolate_config *c = &out->tries[i].config;
        if (out->tries[i].verdict == ISOLATE_PASS)
            passed |= c->live_prefill & c->live_decode;
    }
    for (int i = 0; i < out->n_culprits; i++)
        passed &= ~out->culprits[i].rows;
    return passed;
}

void isolate(const struct isolate_row *rows, int n, isolate_run_fn *run, void *user,
             struct isolate_report *out)
{
    ASSERT(n >= 1 && n <= ISOLATE_ROWS_MAX);
    for (int i = 0; i < n; i++)
        ASSERT(rows[i].suspicion > 0 && rows[i].legs != 0);
    *out = (struct isolate_report){.outcome = ISOLATE_UNDECIDED};
    struct search s = {.rows = rows,
                       .n = n,
                       .run = run,
                       .user = user,
                       .all = UINT64_MAX >> (ISOLATE_ROWS_MAX - n),
                       .reuse = true,
                       .out = out};
    if (!control(&s))
        return;
    out->legs = find_legs(&s);
    uint64_t suspects = rows_of(&s, out->legs);
    find_all(&s, suspects != 0 ? suspects : s.all);
    if (!s.stopped && out->n_culprits > 0)
        out->outcome = ISOLATE_CONVICTED;
    out->acquitted = acquitted(out);
}

const char *isolate_outcome_name(enum isolate_outcome outcome)
{
    static const char *const names[ISOLATE_OUTCOMES] = {"convicted", "model", "no fault",
                                                        "undecided", "carried state"};
    return names[outcome];
}

const char *isolate_stage_name(enum isolate_stage stage)
{
    static const char *const names[] = {"control", "legs", "search", "confirm", "budget"};
    return names[stage];
}
