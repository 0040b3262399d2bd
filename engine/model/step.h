/*
 * Inside a step: what forward.c (steps, blocks, logits) and attention.c (the stateful sub-layer)
 * share.
 */
#ifndef V4BOX_ENGINE_MODEL_STEP_H
#define V4BOX_ENGINE_MODEL_STEP_H

#include "engine/model/network.h"
#include "kernels/check.h"

/* Some consecutive rows of a step that belong to one sequence, at most SPAN_TOKENS_MAX: what its
 * rings hold.  More of them are several spans, one behind another. */
struct span {
    struct sequence *sequence;
    int32_t row, n;
    int32_t position; /* of the first row */
    enum leg leg;
    int32_t csa_row, hca_row; /* where the span's finished blocks lie in block_rope_* */
};

struct step {
    int32_t n, n_spans, n_decode;
    int32_t n_csa, n_hca; /* blocks that all spans finish */
    struct span spans[STEP_SPANS_MAX];
};

/** Where dense stages run: over all rows of the step. */
struct place step_place(const struct step *step, enum layer_kind kind);
/** Where a stage of one span runs; a span is of one leg, whatever `n` counts of it. */
struct place span_place(const struct span *span, enum layer_kind kind, int32_t n);
enum layer_kind attention_kind(const struct model *model, int32_t block);
/** Blocks of `ratio` tokens that this span completes. */
int32_t blocks_finished(const struct span *span, int32_t ratio);

/** A bound of the span's positions that does not change with every step. */
int32_t span_reach(const struct span *span);

/** RMS norm in place.  @shape x [n, width] */
void norm_run(struct model *model, const struct tensor *weight, float *x, int32_t n, int32_t width,
              struct place place);
/** One FP8 matrix.  @shape x [n, w->cols], y [n, w->rows] */
void linear_run(struct model *model, const struct tensor *w, const float *x, int32_t n, float *y,
                struct place place);

/** (3)-(12): step.u [n, hidden], normed, to step.y; writes the state of every span. */
void attention_run(struct model *model, const struct step *step, int32_t block);

#endif
