/*
 * Sites: places of the network that can be run alone, under the profile and under variations of it.
 * A variation that exchanges one value must give other bits, or one of the two values is not what
 * runs; a number changed on purpose must have its effect.  Every site is one layer kind on one leg,
 * so that what is found has a place.
 */
#include "engine/precision/proof_core.h"
#include "kernels/backend.h"
#include "kernels/check.h"

#include "config/limits.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Rows of a site: enough of them that a rounding in the 24th bit reaches a stored number somewhere.
 * A sequence can be rewound by that much. */
#define SITE_ROWS 64
/* Rows of a prompt at once.  A variation is over with the first step that shows it, so that its
 * rows are many when it takes many to show and few when it does not. */
#define SITE_STEP 16
/* In front of these rows: a whole block of the plain compressor ends among them. */
#define SITE_PREFIX (2 * RATIO_HCA - SITE_ROWS)
/* Blocks to choose from for one that is chosen: among so many neighbours of the cut a small error
 * of the scores changes the choice. */
#define SITE_CHOICE 4
/* Rows of the draft block, and of them at once. */
#define DRAFT_ROWS 48
#define DRAFT_STEP 8
/* Rows of logits: each is as many numbers as the vocabulary has. */
#define HEAD_TOKENS 8

enum site_kind { SITE_LAYER, SITE_EXPERTS, SITE_DRAFT, SITE_HEAD };

struct site {
    struct proof *proof;
    struct lab *lab;
    struct witness_table *own; /* borrows: what the profile itself has witnessed */
    enum site_kind what;
    enum layer_kind kind;
    enum leg leg;
    int32_t block; /* of SITE_LAYER and SITE_EXPERTS */
    int32_t prefix;
    struct sequence *sequence; /* borrows; NULL: SITE_EXPERTS */
    int32_t *ids;              /* borrows */
    float *in;                 /* owns */
    float *base, *out;         /* own; [n_out] under the profile, under the variation */
    size_t n_out;
};

/* ---- running one site ----------------------------------------------------------------------- */

/* Each of these runs the site into `out`; with `until` it ends behind the first step that gives
 * other bits, and what is in `out` behind that is of an earlier run. */

/* Decoding takes one row at a time, as serving does. */
static bool run_layer(struct site *s, const struct lab_under *under, const float *until, float *out)
{
    const struct lab_layer rows = {.sequence = s->sequence,
                                   .rewind = s->prefix,
                                   .layer = s->block,
                                   .leg = s->leg,
                                   .ids = s->ids + s->prefix,
                                   .n = SITE_ROWS,
                                   .step = s->leg == LEG_DECODE ? 1 : SITE_STEP,
                                   .in = s->in,
                                   .out = out,
                                   .until = until};
    return lab_layer(s->lab, under, &rows);
}

static bool run_experts(struct site *s, const struct lab_under *under, const float *until,
                        float *out)
{
    (void)until;
    return lab_experts(s->lab, under,
                       &(struct lab_experts){s->block, s->leg, s->ids, SITE_ROWS, s->in, out});
}

static bool other_bits(const float *until, const float *out, size_t n)
{
    return until != NULL && memcmp(until, out, n * sizeof *out) != 0;
}

/* Only the draft block varies: behind tokens that were fed once, under the profile. */
static bool run_draft(struct site *s, const struct lab_under *under, const float *until, float *out)
{
    size_t vocab = (size_t)s->lab->config->vocab_size;
    bool other = false;
    for (int32_t row = 0; row < DRAFT_ROWS && !other; row += DRAFT_STEP) {
        size_t at = (size_t)row * vocab;
        struct draft_segment draft = {.sequence = s->sequence,
                                      .next_ids = s->ids + row + 1,
                                      .n = DRAFT_STEP,
                                      .logits_all = out + at};
        if (!lab_draft(s->lab, under, &draft, row))
            return false;
        other = other_bits(until == NULL ? NULL : until + at, out + at, DRAFT_STEP * vocab);
    }
    return true;
}

static bool run_head(struct site *s, const struct lab_under *under, const float *until, float *out)
{
    int32_t step = s->leg == LEG_DECODE ? 1 : HEAD_TOKENS;
    size_t vocab = (size_t)s->lab->config->vocab_size;
    bool other = false;
    lab_sequence_reset(s->lab, s->sequence);
    for (int32_t row = 0; row < HEAD_TOKENS && !other; row += step) {
        size_t at = (size_t)row * vocab;
        struct segment segment = {.sequence = s->sequence,
                                  .ids = s->ids + row,
                                  .n = step,
                                  .leg = s->leg,
                                  .logits_all = out + at};
        if (!lab_step(s->lab, under, &segment, 1))
            return false;
        other = other_bits(until == NULL ? NULL : until + at, out + at, (size_t)step * vocab);
    }
    return true;
}

static bool site_run(struct site *s, const struct lab_under *under, const float *until, float *out)
{
    static bool (*const RUNS[])(struct site *, const struct lab_under *, const float *, float *) = {
        [SITE_LAYER] = run_layer,
        [SITE_EXPERTS] = run_experts,
        [SITE_DRAFT] = run_draft,
        [SITE_HEAD] = run_head,
    };
    if (!RUNS[s->what](s, under, until, out))
        s->proof->complete = false;
    return s->proof->complete;
}

/* Runs a variation.  @return whether it gave the bits of the profile; false too when it is gone */
static bool same_bits(struct site *s, const struct lab_under *under)
{
    return site_run(s, under, s->base, s->out) &&
           memcmp(s->base, s->out, s->n_out * sizeof *s->out) == 0;
}

/* ---- exchanging values ---------------------------------------------------------------------- */

/* Keys that one query of the site attends to. */
static int32_t keys_of(const struct site *s)
{
    int32_t n = s->what == SITE_DRAFT ? DRAFT_ROWS : s->prefix + SITE_ROWS;
    int32_t more = s->kind == KIND_CSA   ? s->lab->config->index_topk
                   : s->kind == KIND_HCA ? n / RATIO_HCA
                                         : 0;
    return (n < SLIDING_WINDOW ? n : SLIDING_WINDOW) + more;
}

/* Two values that compute the same here, by what they mean. */
static bool same_by_meaning(const struct site *s, enum precision_row row, int a, int b)
{
    const uint8_t *values = s->proof->profile.values;
    /* What float32 loses disappears where sums are stored in fewer bits; of FP8 products it even
     * loses nothing, since they lie on a grid. */
    if (row == ROW_SUM && s->kind == KIND_HEAD)
        return values[ROW_HEAD_LOGITS] == HEAD_LOGITS_BF16;
    if (row == ROW_SUM)
        return values[ROW_ACT_STORE] == ACT_STORE_BF16;
    if (row == ROW_SUM_ENTRY)
        return values[ROW_ACT_STORE] == ACT_STORE_BF16 || values[ROW_KV_ENTRY] != KV_ENTRY_FP32;
    if (row == ROW_ATTN_DECODE && a != ATTN_DECODE_FP32 && b != ATTN_DECODE_FP32)
        return keys_of(s) <= ATTN_SPLIT; /* one split is no split */
    /* A rotation is orthogonal: without rounding behind it, it changes nothing to speak of. */
    if (row == ROW_INDEX_ROTATE)
        return values[ROW_INDEX_KEYS] == INDEX_KEYS_FP32 ||
               values[ROW_INDEX_KEYS] == INDEX_KEYS_BF16;
    /* A clamp that nothing reaches; the changed limit below is its proof. */
    return row == ROW_MOE_CLAMP;
}

static bool site_has(const struct site *s, enum precision_row row)
{
    const struct precision_switch *p = &PRECISION[row];
    bool experts = (p->kinds & ~(1u << KIND_HASH | 1u << KIND_SCORE | 1u << KIND_DRAFT)) == 0;
    if (p->by != BY_OPERATION || (p->kinds >> s->kind & 1) == 0 || !proof_leg_acts(row, s->leg))
        return false;
    /* Rows of the experts alone have a site of their own. */
    return s->what == SITE_EXPERTS || !experts;
}

/* At the experts' site only what they compute is seen. */
static bool site_computes(const struct site *s, enum precision_row row)
{
    static const enum precision_row EXPERTS[] = {
        ROW_ACT_STORE, ROW_SUM,       ROW_DENSE_LINEAR, ROW_MOE_ROUTE,
        ROW_MOE_SCALE, ROW_MOE_CLAMP, ROW_MOE_EXPERTS,
    };
    if (s->what != SITE_EXPERTS)
        return true;
    for (size_t i = 0; i < sizeof EXPERTS / sizeof EXPERTS[0]; i++) {
        if (EXPERTS[i] == row)
            return true;
    }
    return false;
}

static void exchange_row(struct site *s, enum precision_row row)
{
    const struct precision_switch *p = &PRECISION[row];
    int own = s->proof->profile.values[row];
    if (p->values[own].needs != NEEDS_ANY)
        return; /* what runs here instead is the reference */
    for (int value = 0; value < p->n_values && s->proof->complete; value++) {
        struct profile other = s->proof->profile;
        if (value == own || p->values[value].needs != NEEDS_ANY ||
            same_by_meaning(s, row, own, value))
            continue;
        ASSERT(profile_set(&other, row, value));
        if (same_bits(s, &(struct lab_under){.profile = &other}))
            proof_mark(s->proof, row, (int)s->kind, s->leg, PROOF_INERT, "the same bits as with %s",
                       p->values[value].name);
    }
}

/* ---- changing numbers ----------------------------------------------------------------------- */

/* A number changed on purpose that must change what comes out. */
struct change {
    enum precision_row row;
    int value; /* only when the profile has this value; -1: any */
    const char *what;
    struct perturbation by;
};

static const struct change CHANGES[] = {
    {ROW_MOE_CLAMP, MOE_CLAMP_ON, "a limit of 0.01", {.clamp_limit = 0.01}},
    {ROW_INDEX_TOPK, -1, "one block instead of all", {.index_topk = 1}},
    {ROW_INDEX_ROTATE, INDEX_ROTATE_ON, "rotated keys alone", {.rotate_keys_only = true}},
    {ROW_HC_MIX, -1, "a transposed mixing matrix", {.hc_transposed = true}},
};

static void change_row(struct site *s, const struct change *change)
{
    const struct lab_under under = {&s->proof->profile, &change->by};
    bool on = change->value < 0 || s->proof->profile.values[change->row] == change->value;
    if (on && site_has(s, change->row) && site_computes(s, change->row) && s->what != SITE_HEAD &&
        same_bits(s, &under))
        proof_mark(s->proof, change->row, (int)s->kind, s->leg, PROOF_INERT, "%s changes nothing",
                   change->what);
}

/* The part of the output that the routed experts contribute, into `out`. */
static bool contribution(struct site *s, double factor, const float *without, float *out)
{
    const struct perturbation by = {.routed_factor = factor};
    if (!site_run(s, &(struct lab_under){&s->proof->profile, &by}, NULL, out))
        return false;
    for (size_t i = 0; i < s->n_out; i++)
        out[i] -= without[i];
    return true;
}

static double dot(const float *a, const float *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* With twice the factor the routed experts must contribute twice as much. */
static void count_factor(struct site *s)
{
    const struct perturbation zero = {.routed_zero = true};
    float *without = calloc(3 * s->n_out, sizeof *without);
    ASSERT(without != NULL);
    float *once = without + s->n_out, *twice = once + s->n_out;
    if (site_run(s, &(struct lab_under){&s->proof->profile, &zero}, NULL, without) &&
        contribution(s, 1, without, once) && contribution(s, 2, without, twice)) {
        double own = dot(once, once, s->n_out);
        double ratio = own == 0 ? 1 : dot(twice, once, s->n_out) / own;
        if (!(fabs(ratio - 2) < FACTOR_RATIO_ERROR_MAX))
            proof_mark(s->proof, ROW_MOE_SCALE, (int)s->kind, s->leg, PROOF_WRONG,
                       "doubled, it gives %.2f times as much: applied %s", ratio,
                       ratio < 1.5   ? "never"
                       : ratio > 3.5 ? "twice"
                                     : "somehow");
    }
    free(without);
}

/* ---- a site --------------------------------------------------------------------------------- */

static void site_try(struct site *s)
{
    const struct lab_under own = {.profile = &s->proof->profile};
    lab_forget(s->lab);
    s->base = calloc(2 * s->n_out, sizeof *s->base);
    ASSERT(s->base != NULL);
    s->out = s->base + s->n_out;
    bool ran = site_run(s, &own, NULL, s->base);
    witness_add(s->own, &s->lab->seen);
    for (int row = 0; ran && row < PRECISION_ROWS; row++) {
        if (site_has(s, (enum precision_row)row) && site_computes(s, (enum precision_row)row))
            exchange_row(s, (enum precision_row)row);
    }
    for (size_t i = 0; ran && i < sizeof CHANGES / sizeof CHANGES[0]; i++)
        change_row(s, &CHANGES[i]);
    if (ran && s->what == SITE_EXPERTS)
        count_factor(s);
    free(s->base);
}

/* The first main layer whose attention is of this kind, or -1. */
static int32_t layer_of(const struct model_config *c, enum layer_kind kind)
{
    int32_t ratio = kind == KIND_WINDOW ? 0 : kind == KIND_CSA ? RATIO_CSA : RATIO_HCA;
    for (int32_t layer = 0; layer < c->num_hidden_layers; layer++) {
        if (c->compress_ratios[layer] == ratio)
            return layer;
    }
    return -1;
}

/* Feeds the tokens in front of a layer's rows. */
static bool prefix_feed(struct site *s)
{
    size_t width = (size_t)HC_MULT * (size_t)s->lab->config->hidden_size;
    float *rows = calloc(2 * SPAN_TOKENS_MAX * width, sizeof *rows);
    ASSERT(rows != NULL);
    lab_sequence_reset(s->lab, s->sequence);
    bool good = true;
    for (int32_t at = 0; good && at < s->prefix;) {
        int32_t n = s->prefix - at < SPAN_TOKENS_MAX ? s->prefix - at : SPAN_TOKENS_MAX;
        lab_noise(rows, (size_t)n * width, 1000 + (uint64_t)at);
        good = lab_layer(s->lab, &(struct lab_under){.profile = &s->proof->profile},
                         &(struct lab_layer){.sequence = s->sequence,
                                             .rewind = -1,
                                             .layer = s->block,
                                             .leg = LEG_PREFILL,
                                             .ids = s->ids + at,
                                             .n = n,
                                             .step = n,
                                             .in = rows,
                                             .out = rows + SPAN_TOKENS_MAX * width});
        at += n;
    }
    free(rows);
    s->proof->complete = s->proof->complete && good;
    return good;
}

static void layers_try(struct site *s, enum layer_kind kind)
{
    const struct model_config *c = s->lab->config;
    size_t width = (size_t)HC_MULT * (size_t)c->hidden_size;
    s->what = SITE_LAYER;
    s->kind = kind;
    s->block = layer_of(c, kind);
    s->n_out = SITE_ROWS * width;
    s->prefix =
        kind == KIND_CSA ? SITE_CHOICE * RATIO_CSA * c->index_topk - SITE_ROWS : SITE_PREFIX;
    if (s->block < 0 || !prefix_feed(s))
        return;
    for (int leg = LEG_PREFILL; leg <= LEG_DECODE && s->proof->complete; leg++) {
        s->leg = (enum leg)leg;
        if (s->leg != LEG_STATE)
            site_try(s);
    }
}

static void experts_try(struct site *s, enum layer_kind kind)
{
    const struct model_config *c = s->lab->config;
    s->what = SITE_EXPERTS;
    s->kind = kind;
    s->block = kind == KIND_HASH    ? 0
               : kind == KIND_SCORE ? c->num_hash_layers
                                    : c->num_hidden_layers;
    s->n_out = (size_t)SITE_ROWS * (size_t)c->hidden_size;
    s->leg = LEG_DECODE;
    site_try(s);
    s->leg = LEG_PREFILL;
    if (kind != KIND_DRAFT && s->proof->complete)
        site_try(s);
}

static void drafts_try(struct site *s)
{
    const struct lab_under own = {.profile = &s->proof->profile};
    const struct segment segment = {
        .sequence = s->sequence, .ids = s->ids, .n = DRAFT_ROWS + 1, .leg = LEG_PREFILL};
    s->n_out = (size_t)DRAFT_ROWS * (size_t)s->lab->config->vocab_size;
    s->prefix = 0;
    s->what = SITE_DRAFT;
    s->kind = KIND_DRAFT;
    s->leg = LEG_DECODE;
    lab_sequence_reset(s->lab, s->sequence);
    s->proof->complete = lab_step(s->lab, &own, &segment, 1);
    if (s->proof->complete)
        site_try(s);
}

static void heads_try(struct site *s)
{
    const struct model_config *c = s->lab->config;
    s->n_out = (size_t)HEAD_TOKENS * (size_t)c->vocab_size;
    s->what = SITE_HEAD;
    s->kind = KIND_HEAD;
    s->leg = LEG_DECODE;
    site_try(s);
    s->leg = LEG_PREFILL;
    if (s->proof->complete)
        site_try(s);
}

void proof_sites_run(struct proof *proof, struct lab *lab, struct witness_table *own)
{
    const struct model_config *c = lab->config;
    const uint32_t kinds = proof_kinds(c);
    int32_t tokens = SITE_CHOICE * RATIO_CSA * c->index_topk;
    if (tokens < SITE_PREFIX + SITE_ROWS)
        tokens = SITE_PREFIX + SITE_ROWS;
    struct site s = {.proof = proof, .lab = lab, .own = own};
    size_t n_in = (size_t)SITE_ROWS * HC_MULT * (size_t)c->hidden_size;
    s.ids = calloc((size_t)tokens, sizeof *s.ids);
    s.in = calloc(n_in, sizeof *s.in);
    ASSERT(s.ids != NULL && s.in != NULL);
    lab_ids(s.ids, (size_t)tokens, c->vocab_size, 2);
    lab_noise(s.in, n_in, 3);
    s.sequence = lab_sequence_create(lab, tokens);
    proof->complete = s.sequence != NULL;
    for (int kind = 0; kind < LAYER_KINDS && proof->complete; kind++) {
        if ((kinds >> kind & 1) == 0 || kind == KIND_HEAD)
            continue;
        if (kind == KIND_WINDOW || kind == KIND_CSA || kind == KIND_HCA)
            layers_try(&s, (enum layer_kind)kind);
        else
            experts_try(&s, (enum layer_kind)kind);
    }
    if (proof->complete && c->num_nextn_predict_layers > 0)
        drafts_try(&s);
    if (proof->complete)
        heads_try(&s);
    lab_sequence_destroy(lab, s.sequence);
    free(s.in);
    free(s.ids);
}
