/* Floor and logits: what the numbers do, before any answer changes. */
#include "engine/audit/pace.h"
#include "engine/audit/tests_common.h"
#include "engine/base/clock.h"
#include "kernels/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Texts to look at numbers on: needles, since every position of them is a different situation, with
 * the answer's value behind. */
static bool make_text(const struct audit_run *run, int32_t i, int32_t tokens,
                      struct audit_item *out)
{
    struct needle_plan plan = {run->seed + 1000 + (uint64_t)i, tokens + i, tokens / 3, 3};
    struct error err;
    return tokens + i <= machine_context(run->machine) &&
           conversation_needle(run->text, &plan, out, &err) == OK;
}

/* As the budget says, but long enough that the indexer has to choose: below index_topk blocks no
 * row of it does anything. */
int32_t audit_text_least(const struct audit_run *run)
{
    return RATIO_CSA * machine_config(run->machine)->index_topk + 144;
}

static int32_t text_tokens(const struct audit_run *run)
{
    int32_t least = audit_text_least(run);
    return run->budget->text_tokens > least ? run->budget->text_tokens : least;
}

bool audit_text_make(const struct audit_run *run, struct audit_item *out)
{
    return make_text(run, 0, text_tokens(run), out);
}

bool audit_text_of(const struct audit_run *run, int32_t tokens, struct audit_item *out)
{
    return make_text(run, 0, tokens, out);
}

/* The last tokens of a text are decoded. */
static int32_t decode_from(int32_t n)
{
    return n - AUDIT_DECODED;
}

/* ---- logits ---------------------------------------------------------------------------------- */

/* Octaves of position, from 64 on. */
#define BINS 12
static int bin_of(int32_t position)
{
    int bin = 0;
    for (int32_t edge = 64; position >= edge && bin < BINS - 1; edge *= 2)
        bin++;
    return bin;
}

struct distances {
    double *kl;    /* owns [cap]; all positions of all texts */
    double *means; /* owns [texts] */
    double sum[2]; /* of prefilled and of decoded positions */
    int64_t count[2];
    double quarter[4]; /* sums over quarters of the prefilled positions: the rest asks, not tells */
    double bin[BINS];
    int64_t in_bin[BINS];
    int64_t n, same_top, broken;
    int32_t texts, dropped;
};

static void distances_add(struct distances *d, const struct audit_difference *diff, int32_t n)
{
    double sum = 0;
    for (int32_t i = 0; i < n; i++) {
        if (!isfinite(diff[i].kl)) {
            d->broken++;
            continue;
        }
        int leg = i >= decode_from(n), bin = bin_of(i);
        d->kl[d->n++] = diff[i].kl;
        d->same_top += diff[i].same_top;
        d->sum[leg] += diff[i].kl;
        d->count[leg]++;
        if (leg == 0)
            d->quarter[(int64_t)i * 4 / decode_from(n)] += diff[i].kl;
        d->bin[bin] += diff[i].kl;
        d->in_bin[bin]++;
        sum += diff[i].kl;
    }
    d->means[d->texts++] = sum / n;
}

/* All texts for which there is time until then, under a setting against the reference. */
static void measure(const struct audit_run *run, const struct audit_setting *setting,
                    int64_t until_ms, struct distances *d)
{
    struct pace pace = {.until_ms = until_ms};
    struct audit_setting reference = {run->reference, run->reference, CARRY_NONE};
    int32_t tokens = text_tokens(run), texts = run->budget->texts;
    size_t most = (size_t)texts * (size_t)(tokens + texts);
    struct audit_difference *diff = calloc((size_t)(tokens + texts), sizeof *diff);
    *d = (struct distances){.kl = calloc(most, sizeof *d->kl),
                            .means = calloc((size_t)texts, sizeof *d->means)};
    ASSERT(diff != NULL && d->kl != NULL && d->means != NULL);
    for (int32_t i = 0; i < texts && !audit_cancelled(run); i++) {
        struct audit_item item;
        if (!make_text(run, i, tokens, &item))
            continue;
        int32_t n = (int32_t)item.ids.len;
        if (pace_begin(&pace, n, clock_ms())) {
            machine_compare(run->machine, item.ids.data, n, decode_from(n), &reference, setting,
                            diff);
            distances_add(d, diff, n);
            pace_end(&pace, clock_ms());
        }
        audit_item_free(&item);
    }
    d->dropped = pace.dropped;
    free(diff);
}

static void distances_free(struct distances *d)
{
    free(d->kl);
    free(d->means);
}

static double leg_mean(const struct distances *d, int leg)
{
    return d->count[leg] == 0 ? 0 : d->sum[leg] / (double)d->count[leg];
}

double audit_kl(const struct audit_run *run, const struct audit_setting *setting)
{
    struct distances d;
    measure(run, setting, 0, &d);
    double out = d.broken > 0 ? INFINITY : fmax(leg_mean(&d, 0), leg_mean(&d, 1));
    distances_free(&d);
    return out;
}

static double growth(const struct distances *d)
{
    double nothing = AUDIT_KL_NOTHING * (double)d->count[0] / 4;
    return fmax(d->quarter[3], nothing) / fmax(d->quarter[0], nothing);
}

static enum audit_verdict judge_logits(const struct distances *d, const struct summary *s,
                                       const struct audit_gates *g, struct buf *why)
{
    bool many = d->n >= AUDIT_TAIL_POSITIONS;
    double agreement = stats_rate(d->same_top, d->n, AUDIT_CONFIDENCE).high;
    int64_t far = 0;
    for (int64_t i = 0; i < d->n; i++)
        far += d->kl[i] > g->kl_999;
    double tail = stats_rate(far, d->n, AUDIT_CONFIDENCE).low;
    const char *over = d->broken > 0                   ? "logits that are not finite"
                       : s->mean > g->kl_mean          ? "mean KL over its gate"
                       : leg_mean(d, 0) > g->kl_mean   ? "mean KL of a prompt over its gate"
                       : leg_mean(d, 1) > g->kl_mean   ? "mean KL while decoding over its gate"
                       : many && tail > AUDIT_TAIL     ? "99.9 % KL surely over its gate"
                       : agreement < g->top1           ? "top-1 agreement surely under its gate"
                       : many && growth(d) > g->growth ? "KL grows along the text"
                                                       : NULL;
    const char *held = d->texts > 0 ? "all gates held" : "no text was looked at";
    buf_puts(why, over != NULL ? over : held);
    if (many && (double)far > AUDIT_TAIL * (double)d->n && tail <= AUDIT_TAIL)
        buf_printf(why, "; %lld of %lld positions are over the 99.9 %% gate, not surely too many",
                   (long long)far, (long long)d->n);
    if (d->dropped > 0)
        buf_printf(why, "; no time was left for %d of %d texts", d->dropped, d->dropped + d->texts);
    return d->texts == 0 ? VERDICT_UNDECIDED : over != NULL ? VERDICT_FAIL : VERDICT_PASS;
}

static void put_bins(struct json_object *out, const struct distances *d)
{
    struct json_object *curve = json_object_new_object();
    struct json_object *x = json_object_new_array(), *y = json_object_new_array();
    for (int bin = 0, from = 0; bin < BINS; from = 64 << bin, bin++) {
        if (d->in_bin[bin] == 0)
            continue;
        char name[32];
        snprintf(name, sizeof name, "%d..", from);
        json_object_array_add(x, json_object_new_string(name));
        json_object_array_add(y, json_object_new_double(d->bin[bin] / (double)d->in_bin[bin]));
    }
    json_object_object_add(curve, "title", json_object_new_string("mean KL by position, nats"));
    json_object_object_add(curve, "x", x);
    json_object_object_add(curve, "y", y);
    json_object_array_add(result_part(out, "curves", true), curve);
}

/* By crossover: what one leg adds while the other is at reference. */
static void put_legs(const struct audit_run *run, struct json_object *numbers)
{
    struct audit_setting decode = {run->reference, run->profile, CARRY_NONE};
    struct audit_setting prefill = {run->profile, run->reference, CARRY_NONE};
    struct distances d;
    measure(run, &decode, run->until_ms, &d);
    result_number(numbers, "mean KL of decoded positions, only decode live", leg_mean(&d, 1));
    distances_free(&d);
    measure(run, &prefill, run->until_ms, &d);
    result_number(numbers, "mean KL of decoded positions, only prefill live", leg_mean(&d, 1));
    distances_free(&d);
}

#define LOGITS_LOOKS 3

/* When the first of so many equal parts of the time ends. */
static int64_t first_of(int64_t until_ms, int64_t parts)
{
    int64_t now = clock_ms();
    return until_ms == 0 ? 0 : now + (until_ms > now ? (until_ms - now) / parts : 0);
}

struct json_object *test_logits(const struct audit_run *run, enum audit_verdict *verdict)
{
    struct audit_setting setting = {run->profile, run->profile, CARRY_NONE};
    const struct audit_gates *g = audit_gates(run->profile);
    struct distances d;
    /* two more looks, at one leg each, follow */
    measure(run, &setting, first_of(run->until_ms, LOGITS_LOOKS), &d);
    struct summary s = stats_summary(d.kl, d.n);
    char gate[128];
    struct buf why = {0};
    *verdict = judge_logits(&d, &s, g, &why);
    snprintf(gate, sizeof gate, "mean %.3g, 99.9 %% %.3g, top-1 %.4g, growth %.3g", g->kl_mean,
             g->kl_999, g->top1, g->growth);
    struct json_object *out =
        result_new(audit_test_name(TEST_LOGITS), *verdict, buf_cstr(&why), d.texts, gate);
    if (d.texts > 0)
        result_estimate(out, s.mean,
                        stats_bootstrap(d.means, d.texts, AUDIT_CONFIDENCE, run->seed));
    struct json_object *numbers = result_part(out, "numbers", false);
    result_number(numbers, "positions", (double)d.n);
    result_number(numbers, RESULT_DROPPED, d.dropped);
    result_number(numbers, "KL 50 %", s.p50);
    result_number(numbers, "KL 90 %", s.p90);
    result_number(numbers, "KL 99 %", s.p99);
    result_number(numbers, "KL 99.9 %", s.p999);
    result_number(numbers, "KL most", s.max);
    result_number(numbers, "top-1 agreement", (double)d.same_top / (double)(d.n > 0 ? d.n : 1));
    result_number(numbers, "growth of prefilled positions, last quarter over first", growth(&d));
    result_number(numbers, "mean KL of prefilled positions", leg_mean(&d, 0));
    result_number(numbers, "mean KL of decoded positions", leg_mean(&d, 1));
    put_bins(out, &d);
    put_legs(run, numbers);
    distances_free(&d);
    if (!audit_anchors_hold(run, out, &why))
        *verdict = VERDICT_FAIL;
    json_set(out, "verdict", json_object_new_string(audit_verdict_name(*verdict)));
    json_set(out, "why", json_object_new_string(buf_cstr(&why)));
    buf_free(&why);
    return out;
}

/* ---- floor ----------------------------------------------------------------------------------- */

struct json_object *test_floor(const struct audit_run *run, enum audit_verdict *verdict)
{
    struct audit_setting setting = {run->profile, run->profile, CARRY_NONE};
    int32_t tokens = text_tokens(run), same = 0, n = 0;
    struct audit_difference *diff = calloc((size_t)tokens + 1, sizeof *diff);
    struct audit_item item;
    double most = 0;
    ASSERT(diff != NULL);
    if (make_text(run, 0, tokens, &item)) {
        n = (int32_t)item.ids.len;
        machine_compare(run->machine, item.ids.data, n, decode_from(n), &setting, &setting, diff);
        audit_item_free(&item);
    }
    for (int32_t i = 0; i < n; i++) {
        same += diff[i].same_bits;
        most = fmax(most, diff[i].kl);
    }
    free(diff);
    *verdict = n == 0 ? VERDICT_UNDECIDED : same == n ? VERDICT_PASS : VERDICT_FAIL;
    struct json_object *out =
        result_new(audit_test_name(TEST_FLOOR), *verdict,
                   n == 0      ? "no text fits the context"
                   : same == n ? "the profile against itself is equal bit for bit"
                               : "the profile against itself differs",
                   n, "every logit of every position equal");
    result_estimate(out, n == 0 ? NAN : (double)(n - same) / n,
                    stats_rate(n - same, n, AUDIT_CONFIDENCE));
    result_number(result_part(out, "numbers", false), "KL most", most);
    return out;
}
