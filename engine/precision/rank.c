/*
 * Leave one in: the reference is run first and its logits are kept; every other value then runs
 * alone in it over the same tokens, and is compared position by position.
 */
#include "engine/precision/rank.h"

#include "config/limits.h"
#include "engine/model/logits.h"
#include "engine/precision/proof_core.h"
#include "kernels/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Rows of one prefill step: their logits are held at once. */
#define CHUNK 64
/* The reference is timed again in front of every so many values, so that what else the machine does
 * slows both. */
#define TIMED_EVERY 4

struct text {
    struct lab *lab;
    struct sequence *sequence; /* owns */
    int32_t *ids;              /* owns; [n_prompt + RANK_ANSWER_TOKENS] */
    int32_t n_prompt;
    float *reference; /* owns; [n_prompt + RANK_ANSWER_TOKENS, vocab_size] */
    float *logits;    /* owns; the same of what runs */
};

/* ---- one run over the text ------------------------------------------------------------------ */

/* Feeds the whole text under one profile; `choose`: the answer is what it prefers, and is noted. */
static bool text_run(struct text *t, const struct profile *profile, bool choose, float *logits,
                     double seconds[LEGS])
{
    const struct lab_under under = {.profile = profile};
    const int32_t vocab = t->lab->config->vocab_size;
    bool good = true;
    lab_sequence_reset(t->lab, t->sequence);
    double begin = t->lab->seconds;
    for (int32_t at = 0; good && at < t->n_prompt; at += CHUNK) {
        int32_t n = t->n_prompt - at < CHUNK ? t->n_prompt - at : CHUNK;
        struct segment segment = {.sequence = t->sequence,
                                  .ids = t->ids + at,
                                  .n = n,
                                  .leg = LEG_PREFILL,
                                  .logits_all = logits + (int64_t)at * vocab};
        good = lab_step(t->lab, &under, &segment, 1);
    }
    seconds[LEG_PREFILL] = t->lab->seconds - begin;
    begin = t->lab->seconds;
    for (int32_t at = t->n_prompt; good && at < t->n_prompt + RANK_ANSWER_TOKENS; at++) {
        if (choose)
            t->ids[at] = logits_top(logits + (int64_t)(at - 1) * vocab, vocab);
        struct segment segment = {.sequence = t->sequence,
                                  .ids = t->ids + at,
                                  .n = 1,
                                  .leg = LEG_DECODE,
                                  .logits_last = logits + (int64_t)at * vocab};
        good = lab_step(t->lab, &under, &segment, 1);
    }
    seconds[LEG_DECODE] = t->lab->seconds - begin;
    return good;
}

/* ---- scoring -------------------------------------------------------------------------------- */

static enum rank_tier tier_of(const struct rank_entry *e)
{
    static const struct {
        double kl, top1_loss;
    } GATES[] = {[RANK_STRICT] = {RANK_STRICT_KL, RANK_STRICT_TOP1_LOSS},
                 [RANK_BALANCED] = {RANK_BALANCED_KL, RANK_BALANCED_TOP1_LOSS},
                 [RANK_FAST] = {RANK_FAST_KL, RANK_FAST_TOP1_LOSS}};
    if (e->equal)
        return RANK_EQUAL;
    for (int tier = RANK_STRICT; tier <= RANK_FAST; tier++) {
        if (e->kl_mean <= GATES[tier].kl && e->top1_loss <= GATES[tier].top1_loss)
            return (enum rank_tier)tier;
    }
    return RANK_BEYOND;
}

static void score(const struct text *t, struct rank_entry *e)
{
    const int32_t vocab = t->lab->config->vocab_size, n = t->n_prompt + RANK_ANSWER_TOKENS;
    int32_t lost = 0;
    for (int32_t at = 0; at < n; at++) {
        const float *p = t->reference + (int64_t)at * vocab, *q = t->logits + (int64_t)at * vocab;
        double kl = logits_kl(p, q, vocab);
        bool prefill = at < t->n_prompt;
        e->kl[prefill ? LEG_PREFILL : LEG_DECODE] +=
            kl / (prefill ? t->n_prompt : RANK_ANSWER_TOKENS);
        e->kl_mean += kl / n;
        e->kl_max = fmax(e->kl_max, kl);
        lost += logits_top(p, vocab) != logits_top(q, vocab);
    }
    e->top1_loss = (double)lost / n;
    e->equal = memcmp(t->reference, t->logits, (size_t)n * (size_t)vocab * sizeof *t->logits) == 0;
    e->tier = tier_of(e);
}

/* Share of tokens times places (attention and experts of every layer, and the head) in which the
 * value was witnessed. */
static double exposure(const struct text *t, enum precision_row row, int value)
{
    const struct model_config *c = t->lab->config;
    const int32_t tokens[LEGS] = {[LEG_PREFILL] = t->n_prompt, [LEG_DECODE] = RANK_ANSWER_TOKENS};
    int32_t places[LAYER_KINDS] = {[KIND_HEAD] = 1};
    for (int32_t layer = 0; layer < c->num_hidden_layers; layer++) {
        int32_t ratio = c->compress_ratios[layer];
        places[ratio == 0 ? KIND_WINDOW : ratio == RATIO_CSA ? KIND_CSA : KIND_HCA]++;
        places[layer < c->num_hash_layers ? KIND_HASH : KIND_SCORE]++;
    }
    double acted = 0;
    for (int kind = 0; kind < LAYER_KINDS; kind++) {
        for (int leg = 0; leg < LEGS; leg++) {
            if (t->lab->seen.cells[row][kind][leg][value].launches > 0)
                acted += (double)tokens[leg] * places[kind];
        }
    }
    return acted / ((t->n_prompt + RANK_ANSWER_TOKENS) * (2.0 * c->num_hidden_layers + 1));
}

/* ---- the ranking ---------------------------------------------------------------------------- */

/* Runs the value alone in the reference, which took `theirs`. */
static bool entry_run(struct text *t, struct rank_entry *e, const double theirs[LEGS])
{
    struct profile alone = *profile_builtin_at(PROFILE_REFERENCE);
    double own[LEGS];
    ASSERT(profile_set(&alone, e->row, e->value));
    lab_forget(t->lab);
    if (!text_run(t, &alone, false, t->logits, own))
        return false;
    e->speed[LEG_PREFILL] = theirs[LEG_PREFILL] / own[LEG_PREFILL];
    e->speed[LEG_DECODE] = theirs[LEG_DECODE] / own[LEG_DECODE];
    e->exposure = exposure(t, e->row, e->value);
    e->ran = e->exposure > 0;
    score(t, e);
    return true;
}

static void entries_list(const struct profile *only, struct rank *out)
{
    for (int row = 0; row < PRECISION_ROWS; row++) {
        for (int value = 1; value < PRECISION[row].n_values; value++) {
            bool asked = only == NULL || only->values[row] == value;
            if (asked && PRECISION[row].by == BY_OPERATION)
                out->entries[out->n++] =
                    (struct rank_entry){.row = (enum precision_row)row, .value = value};
        }
    }
}

static int more_harmful(const void *left, const void *right)
{
    const struct rank_entry *a = left, *b = right;
    double x = a->kl_mean * a->exposure, y = b->kl_mean * b->exposure;
    if (a->ran != b->ran)
        return a->ran ? -1 : 1;
    if (x != y)
        return x > y ? -1 : 1;
    return a->row != b->row ? (int)a->row - (int)b->row : a->value - b->value;
}

static bool text_init(struct text *t, struct lab *lab, const int32_t *prompt, int32_t n)
{
    const size_t vocab = (size_t)lab->config->vocab_size;
    /* What does not fit is left out at the front: the answer continues the end. */
    size_t fit = RANK_LOGITS_BYTES_MAX / (2 * vocab * sizeof(float)) - RANK_ANSWER_TOKENS;
    int32_t most = fit < RANK_PROMPT_MAX ? (int32_t)fit : RANK_PROMPT_MAX;
    *t = (struct text){.lab = lab, .n_prompt = n < most ? n : most};
    size_t tokens = (size_t)t->n_prompt + RANK_ANSWER_TOKENS;
    t->ids = calloc(tokens, sizeof *t->ids);
    t->reference = calloc(tokens * vocab, sizeof *t->reference);
    t->logits = calloc(tokens * vocab, sizeof *t->logits);
    ASSERT(t->ids != NULL && t->reference != NULL && t->logits != NULL);
    memcpy(t->ids, prompt + (n - t->n_prompt), (size_t)t->n_prompt * sizeof *t->ids);
    t->sequence = lab_sequence_create(lab, (int32_t)tokens);
    return t->sequence != NULL;
}

static void text_clear(struct text *t)
{
    lab_sequence_destroy(t->lab, t->sequence);
    free(t->ids);
    free(t->reference);
    free(t->logits);
}

void rank_run(struct lab *lab, const int32_t *prompt, int32_t n, const struct profile *only,
              struct rank *out)
{
    struct text t;
    double begin = lab->seconds, seconds[LEGS];
    ASSERT(n > 0);
    *out = (struct rank){0};
    out->complete = text_init(&t, lab, prompt, n) &&
                    text_run(&t, profile_builtin_at(PROFILE_REFERENCE), true, t.reference, seconds);
    if (out->complete) {
        out->tokens[LEG_PREFILL] = t.n_prompt;
        out->tokens[LEG_DECODE] = RANK_ANSWER_TOKENS;
        out->rate[LEG_PREFILL] = t.n_prompt / seconds[LEG_PREFILL];
        out->rate[LEG_DECODE] = RANK_ANSWER_TOKENS / seconds[LEG_DECODE];
        entries_list(only, out);
    }
    for (int i = 0, runs = 0; i < out->n && out->complete; i++) {
        struct rank_entry *e = &out->entries[i];
        if (PRECISION[e->row].values[e->value].needs != NEEDS_ANY)
            continue;
        if (only == NULL && ++runs % TIMED_EVERY == 0) /* who asks for a few asks what they cost */
            out->complete =
                text_run(&t, profile_builtin_at(PROFILE_REFERENCE), false, t.logits, seconds);
        out->complete = out->complete && entry_run(&t, e, seconds);
    }
    text_clear(&t);
    qsort(out->entries, (size_t)out->n, sizeof out->entries[0], more_harmful);
    out->seconds = lab->seconds - begin;
    out->time_s = (int64_t)time(NULL);
}
