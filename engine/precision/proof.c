/*
 * Driving and judging: the model works under the profile in all shapes that serving has, right
 * after it worked under another one, and every cell of the table is compared with what was
 * witnessed.
 */
#include "engine/precision/proof.h"

#include "config/limits.h"
#include "engine/precision/proof_core.h"
#include "kernels/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The first sequence sees a whole block of the plain compressor on either leg; the others are
 * company. */
#define DRIVE_SEQUENCES 8
#define DRIVE_TOKENS    (3 * RATIO_HCA)
#define DRIVE_COMPANY   4
#define DRIVE_DRAFTS    8

/* Rows whose operation runs between devices: without a second one there is nothing to witness. */
#define BETWEEN_DEVICES "gather"

void proof_mark(struct proof *proof, enum precision_row row, int kind, enum leg leg,
                enum proof_state state, const char *format, ...)
{
    struct proof_cell *cell = &proof->cells[row][kind][leg];
    if (state <= cell->state)
        return;
    cell->state = state;
    va_list args;
    va_start(args, format);
    vsnprintf(cell->why, sizeof cell->why, format, args);
    va_end(args);
}

bool proof_leg_acts(enum precision_row row, enum leg leg)
{
    uint32_t legs = PRECISION[row].legs;
    bool written = leg == LEG_PREFILL || leg == LEG_DECODE;
    return (legs >> leg & 1) != 0 || (written && (legs >> LEG_STATE & 1) != 0);
}

uint32_t proof_kinds(const struct model_config *c)
{
    uint32_t kinds = 1u << KIND_HEAD;
    for (int32_t layer = 0; layer < c->num_hidden_layers; layer++) {
        int32_t ratio = c->compress_ratios[layer];
        kinds |= 1u << (ratio == 0 ? KIND_WINDOW : ratio == RATIO_CSA ? KIND_CSA : KIND_HCA);
        kinds |= 1u << (layer < c->num_hash_layers ? KIND_HASH : KIND_SCORE);
    }
    return c->num_nextn_predict_layers > 0 ? kinds | 1u << KIND_DRAFT : kinds;
}

/* ---- driving -------------------------------------------------------------------------------- */

struct drive {
    struct lab *lab;
    struct lab_under under;
    struct sequence *sequences[DRIVE_SEQUENCES]; /* owns */
    int32_t ids[DRIVE_TOKENS];
};

static struct segment segment_of(struct drive *d, int sequence, int32_t n, enum leg leg)
{
    int32_t at = sequence_length(d->sequences[sequence]);
    ASSERT(at + n <= DRIVE_TOKENS);
    return (struct segment){
        .sequence = d->sequences[sequence], .ids = d->ids + at, .n = n, .leg = leg};
}

static void feed(struct drive *d, int sequence, int32_t n, enum leg leg, float *logits)
{
    struct segment segment = segment_of(d, sequence, n, leg);
    segment.logits_last = logits;
    lab_step(d->lab, &d->under, &segment, 1);
}

/* One step in which the first `n` sequences decode one token each. */
static void decode_together(struct drive *d, int n, float *logits)
{
    struct segment segments[DRIVE_SEQUENCES];
    for (int i = 0; i < n; i++)
        segments[i] = segment_of(d, i, 1, LEG_DECODE);
    segments[0].logits_last = logits;
    lab_step(d->lab, &d->under, segments, n);
}

/* Both legs in one step, as when a prompt comes in while others are answered. */
static void mixed(struct drive *d, float *logits)
{
    struct segment segments[] = {segment_of(d, 0, 1, LEG_DECODE), segment_of(d, 1, 24, LEG_PREFILL),
                                 segment_of(d, 2, 2, LEG_DECODE)};
    segments[0].logits_last = segments[1].logits_last = logits;
    lab_step(d->lab, &d->under, segments, 3);
}

static void drafts(struct drive *d, float *logits)
{
    static const int32_t SHAPES[] = {1, DRIVE_DRAFTS};
    if (d->lab->config->num_nextn_predict_layers == 0)
        return;
    for (size_t i = 0; i < sizeof SHAPES / sizeof SHAPES[0]; i++) {
        int32_t at = sequence_draft_length(d->sequences[1]);
        struct draft_segment segment = {.sequence = d->sequences[1],
                                        .next_ids = d->ids + at + 1,
                                        .n = SHAPES[i],
                                        .logits_last = logits};
        lab_draft(d->lab, &d->under, &segment, -1);
    }
}

/* Every shape that serving has: short and long chunks, batches of all sizes, both legs together;
 * with `blocks`, also a long chunk, and a block of the plain compressor that ends on either leg. */
static void drive(struct drive *d, const struct profile *profile, bool blocks, float *logits)
{
    static const int32_t CHUNKS[] = {1, 2, 5};
    d->under = (struct lab_under){.profile = profile};
    for (int i = 0; i < DRIVE_SEQUENCES; i++)
        lab_sequence_reset(d->lab, d->sequences[i]);
    for (size_t i = 0; i < sizeof CHUNKS / sizeof CHUNKS[0]; i++)
        feed(d, 0, CHUNKS[i], LEG_PREFILL, logits);
    if (blocks) {
        feed(d, 0, 64, LEG_PREFILL, NULL);
        feed(d, 0, RATIO_HCA - 1 - sequence_length(d->sequences[0]), LEG_PREFILL, NULL);
        feed(d, 0, 1, LEG_DECODE, NULL);
        feed(d, 0, RATIO_HCA, LEG_PREFILL, NULL);
    }
    struct segment company[DRIVE_SEQUENCES];
    for (int i = 1; i < DRIVE_SEQUENCES; i++)
        company[i - 1] = segment_of(d, i, DRIVE_COMPANY, LEG_PREFILL);
    lab_step(d->lab, &d->under, company, DRIVE_SEQUENCES - 1);
    for (int n = 1; n <= DRIVE_SEQUENCES; n *= 2)
        decode_together(d, n, logits);
    for (int i = 0; i < RATIO_CSA; i++) /* each of them ends a block of four */
        decode_together(d, DRIVE_SEQUENCES, NULL);
    mixed(d, logits);
    drafts(d, logits);
}

/* ---- judging -------------------------------------------------------------------------------- */

/* What was witnessed in one cell's place, beside the profile's value. */
static void judge_cell(struct proof *p, const struct witness_table *seen, enum precision_row row,
                       int kind, enum leg leg)
{
    const struct precision_switch *s = &PRECISION[row];
    const struct witness_cell *cells = seen->cells[row][kind][leg];
    int want = p->profile.values[row];
    uint64_t all = 0;
    for (int value = 0; value < s->n_values; value++)
        all += cells[value].launches;
    struct proof_cell *cell = &p->cells[row][kind][leg];
    cell->rows = cells[want].rows;
    for (int value = 0; value < s->n_values; value++) {
        if (value != want && cells[value].launches > 0)
            proof_mark(p, row, kind, leg, PROOF_WRONG, "ran %s in %llu of %llu calls",
                       s->values[value].name, (unsigned long long)cells[value].launches,
                       (unsigned long long)all);
    }
    if (cells[want].launches > 0) {
        proof_mark(p, row, kind, leg, PROOF_LIVE, "%s", "");
        return;
    }
    cell->missing = strcmp(s->witness, BETWEEN_DEVICES) != 0;
    proof_mark(p, row, kind, leg, PROOF_UNPROVEN, "%s",
               cell->missing ? "nothing was witnessed" : "one device: nothing is sent");
}

static void judge_witnesses(struct proof *p, const struct model_config *config,
                            const struct witness_table *own)
{
    uint32_t kinds = proof_kinds(config);
    for (int row = 0; row < PRECISION_ROWS; row++) {
        for (int kind = 0; kind < LAYER_KINDS; kind++) {
            for (int leg = LEG_PREFILL; leg <= LEG_DECODE; leg++) {
                bool acts = (PRECISION[row].kinds & kinds) >> kind & 1 &&
                            proof_leg_acts((enum precision_row)row, (enum leg)leg) &&
                            leg != LEG_STATE;
                /* The draft block runs while decoding alone. */
                if (acts && (kind != KIND_DRAFT || leg == LEG_DECODE))
                    judge_cell(p, own, (enum precision_row)row, kind, (enum leg)leg);
            }
        }
    }
}

/* ---- what the network is asked -------------------------------------------------------------- */

static bool ids_equal(const struct ids *a, const struct ids *b)
{
    return a->len == b->len &&
           (a->len == 0 || memcmp(a->data, b->data, a->len * sizeof *a->data) == 0);
}

/* Another value of a prompt row must give another prompt. */
static void judge_prompt(struct proof *p, const struct proof_options *o, enum precision_row row,
                         const struct ids *base)
{
    for (int value = 0; value < PRECISION[row].n_values; value++) {
        struct profile other = p->profile;
        struct ids ids = {0};
        if (value == p->profile.values[row])
            continue;
        ASSERT(profile_set(&other, row, value));
        o->render(o->render_user, &other, &ids);
        if (ids_equal(&ids, base))
            proof_mark(p, row, KIND_BOX, LEG_PROMPT, PROOF_INERT, "the same prompt as with %s",
                       PRECISION[row].values[value].name);
        ids_free(&ids);
    }
    proof_mark(p, row, KIND_BOX, LEG_PROMPT, PROOF_LIVE, "%s", "");
}

static void judge_modules(struct proof *p, const struct proof_options *o)
{
    struct ids base = {0};
    if (o->render != NULL)
        o->render(o->render_user, &p->profile, &base);
    for (int row = 0; row < PRECISION_ROWS; row++) {
        if (PRECISION[row].by != BY_MODULE)
            continue;
        bool prompt = PRECISION[row].legs == 1u << LEG_PROMPT;
        if (prompt && o->render != NULL)
            judge_prompt(p, o, (enum precision_row)row, &base);
        else if (prompt)
            proof_mark(p, (enum precision_row)row, KIND_BOX, LEG_PROMPT, PROOF_UNPROVEN, "%s",
                       "nothing is rendered here");
    }
    ids_free(&base);
}

/* ---- public --------------------------------------------------------------------------------- */

static void count(struct proof *p)
{
    p->good = p->complete;
    for (int row = 0; row < PRECISION_ROWS; row++) {
        for (int kind = 0; kind < PROOF_KINDS; kind++) {
            for (int leg = 0; leg < LEGS; leg++) {
                const struct proof_cell *cell = &p->cells[row][kind][leg];
                p->counts[cell->state]++;
                p->good = p->good && !cell->missing && cell->state < PROOF_INERT;
            }
        }
    }
}

/* Another value in every row that an operation reads. */
static struct profile exchanged(const struct profile *profile)
{
    struct profile other = *profile;
    for (int row = 0; row < PRECISION_ROWS; row++) {
        int value = profile->values[row] == 0;
        if (PRECISION[row].by == BY_OPERATION && PRECISION[row].values[value].needs == NEEDS_ANY)
            ASSERT(profile_set(&other, (enum precision_row)row, value));
    }
    return other;
}

static void drive_both(struct proof *p, struct lab *lab, float *logits)
{
    struct drive d = {.lab = lab};
    bool whole = true;
    lab_ids(d.ids, DRIVE_TOKENS, lab->config->vocab_size, 1);
    for (int i = 0; i < DRIVE_SEQUENCES; i++) {
        d.sequences[i] = lab_sequence_create(lab, DRIVE_TOKENS);
        whole = whole && d.sequences[i] != NULL;
    }
    if (whole) {
        /* What was decided once and is only repeated since shows when another profile ran first. */
        const struct profile other = exchanged(&p->profile);
        drive(&d, &other, false, logits);
        lab_forget(lab);
        drive(&d, &p->profile, true, logits);
    }
    p->complete = whole && !lab->gone;
    for (int i = 0; i < DRIVE_SEQUENCES; i++)
        lab_sequence_destroy(lab, d.sequences[i]);
}

void proof_run(struct lab *lab, const struct proof_options *options, struct proof *out)
{
    *out = (struct proof){.profile = *options->profile};
    double begin = lab->seconds;
    float *logits = calloc((size_t)lab->config->vocab_size, sizeof *logits);
    ASSERT(logits != NULL);
    drive_both(out, lab, logits);
    free(logits);
    struct witness_table *own = calloc(1, sizeof *own);
    ASSERT(own != NULL);
    *own = lab->seen;
    if (out->complete)
        proof_sites_run(out, lab, own);
    if (out->complete) {
        judge_witnesses(out, lab->config, own);
        judge_modules(out, options);
        proof_serve_run(out, lab, options);
    }
    free(own);
    out->complete = out->complete && !lab->gone;
    out->seconds = lab->seconds - begin;
    out->time_s = (int64_t)time(NULL);
    count(out);
}
