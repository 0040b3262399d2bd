/*
 * Every tensor of a configuration, in file order, as config/weights.def lists them: names, shapes
 * and stored forms with the numbers filled in.  Knows no files and no values.  Used by the loader,
 * which binds them, and by the writer of synthetic checkpoints, which fills them.
 */
#ifndef V4BOX_ENGINE_MODEL_TENSORS_H
#define V4BOX_ENGINE_MODEL_TENSORS_H

#include "config/limits.h"
#include "engine/base/status.h"
#include "engine/model/weights.h"

#include <stddef.h>
#include <stdint.h>

enum weight_scope { SCOPE_GLOBAL, SCOPE_MTP, SCOPE_LAYER, SCOPE_EXPERT, SCOPE_SHARED };

enum weight_fill {
    FILL_MATRIX,
    FILL_EMBED,
    FILL_NORM,
    FILL_BASE,
    FILL_BIAS,
    FILL_ONE,
    FILL_LINEAR,
    FILL_TID
};

/* One weight: a line of the list at one place of the network. */
struct weight_spec {
    char name[TENSOR_NAME_BYTES]; /* in full, but for the ".weight"/".scale" of quantised ones */
    enum weight_scope scope;
    enum store store;
    enum weight_fill fill;
    size_t member;      /* offset of the struct tensor in the scope's struct (weights.h) */
    int32_t rows, cols; /* logical shape; a vector has cols = 0 */
    int32_t block;      /* layer, draft blocks counted on from num_hidden_layers; -1 for GLOBAL */
    int32_t expert;     /* -1 outside EXPERT */
};

/* A tensor as it stands in a safetensors header. */
struct stored_tensor {
    char name[TENSOR_NAME_BYTES];
    const char *dtype;
    int dims; /* 0 (one number), 1 or 2 */
    int64_t shape[2];
    uint64_t bytes;
};

typedef enum status weight_visit_fn(void *user, const struct weight_spec *spec, struct error *err);

/** Calls `visit` for every weight in file order; stops at the first status that is not OK. */
enum status MUST_CHECK weights_visit(const struct model_config *config, weight_visit_fn *visit,
                                     void *user, struct error *err);

/** The member of `weights` that a weight is bound to; the expert tables must exist. */
struct tensor *weight_member(struct model_weights *weights, const struct model_config *config,
                             const struct weight_spec *spec);

/* Data and scales; NVFP4 has two numbers more: the factor of all values, which is tensor.global,
 * and a factor for static rounding of inputs, which nothing here uses. */
enum { STORED_DATA, STORED_SCALE, STORED_GLOBAL, STORED_INPUT, STORED_MAX };

/** The stored tensors of a weight: its data, then its scales if it is quantised.  STORE_NVFP4 is
 *  another form of what the list has as STORE_FP4.
 *  @return 1, 2 or 4 */
int weight_stored(const struct weight_spec *spec, struct stored_tensor out[STORED_MAX]);

#endif
