/*
 * Looking inside the network: one layer alone, and what every layer did.  For golden tests and
 * diagnosis; serving does not use it.
 */
#ifndef V4BOX_ENGINE_MODEL_INSPECT_H
#define V4BOX_ENGINE_MODEL_INSPECT_H

#include "engine/model/model.h"

/**
 * Runs one main layer over given streams, appending n tokens to the sequence.  Such a sequence
 * serves this one layer until it is reset.
 * @shape in, out [n, HC_MULT, hidden]; n at most STEP_TOKENS_MAX
 */
void model_layer(struct model *model, struct sequence *sequence, int32_t layer, const int32_t *ids,
                 int32_t n, const float *in, float *out);

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

/** Calls fn for every token of every main layer of the steps that follow; NULL ends it. */
void model_trace_set(struct model *model, model_trace_fn *fn, void *user);

#endif
