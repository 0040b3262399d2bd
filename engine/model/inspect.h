/*
 * Looking inside the network: one layer alone, what every layer did, what really ran, and numbers
 * changed on purpose.  For tests and the audit; serving does not use it.
 */
#ifndef V4BOX_ENGINE_MODEL_INSPECT_H
#define V4BOX_ENGINE_MODEL_INSPECT_H

#include "engine/model/model.h"
#include "kernels/witness.h"

#include <stdbool.h>

/**
 * Runs one main layer over given streams, appending n tokens to the sequence.  Such a sequence
 * serves this one layer until it is reset.
 * @shape in, out [n, HC_MULT, hidden]; n at most SPAN_TOKENS_MAX
 */
void model_layer(struct model *model, const struct profile *profile, struct sequence *sequence,
                 int32_t layer, enum leg leg, const int32_t *ids, int32_t n, const float *in,
                 float *out);

/**
 * Runs the experts of one block (a main layer, or num_hidden_layers: the draft block) over given
 * inputs, without any state: what they add to the streams, shared expert included.
 * @shape in, out [n, hidden]; n at most SPAN_TOKENS_MAX; ids [n] choose in hash layers
 */
void model_moe(struct model *model, const struct profile *profile, int32_t block, enum leg leg,
               const int32_t *ids, int32_t n, const float *in, float *out);

/** What ran since the last call, into *out; the backend's table is empty then. */
void model_witness(struct model *model, struct witness_table *out);

/* Numbers changed on purpose: a path that does not answer to them does not run.  Zero of each
 * member leaves everything as it is. */
struct perturbation {
    double clamp_limit;    /* instead of SWIGLU_LIMIT; an off clamp stays off */
    double routed_factor;  /* multiplies the routed scaling factor, wherever that is applied */
    bool routed_zero;      /* the routed scaling factor is 0 */
    int32_t index_topk;    /* instead of the configuration's; not above it */
    bool rotate_keys_only; /* no Hadamard transform of index queries */
    bool hc_transposed;    /* hyper-connections read their mixing matrix the wrong way round */
};

/** Perturbs every step that follows; NULL ends it.  State made so serves nobody else: it has a hash
 * of its own.  @own copies */
void model_perturb(struct model *model, const struct perturbation *perturbation);

/* One token in one layer. */
struct layer_trace {
    int32_t layer, position;
    double rms;             /* root mean square of the streams behind the layer */
    const int32_t *experts; /* borrows; ascending */
    int32_t n_experts;
    const int32_t *selected; /* borrows; compressed entries attended, ascending */
    int32_t n_selected;      /* -1 in layers without a compressor */
};

typedef void model_trace_fn(void *user, const struct layer_trace *trace);

/** Calls fn for every token of every main layer of the steps that follow; NULL ends it.  A worker's
 *  network tells nothing. */
void model_trace_set(struct model *model, model_trace_fn *fn, void *user);

#endif
