/*
 * The checkpoint's tensors bound to struct members, generated from config/weights.def, so that no
 * name is looked up after loading.  A tensor that the row does not have stays zero (data == NULL).
 */
#ifndef V4BOX_ENGINE_MODEL_WEIGHTS_H
#define V4BOX_ENGINE_MODEL_WEIGHTS_H

#include "config/model.h"
#include "kernels/tensor.h"

#define FIELD_GLOBAL(kind, field)  FIELD_GLOBAL_##kind(field)
#define FIELD_GLOBAL_GLOBAL(field) struct tensor field;
#define FIELD_GLOBAL_MTP(field)
#define FIELD_GLOBAL_LAYER(field)
#define FIELD_GLOBAL_SHARED(field)
#define FIELD_GLOBAL_EXPERT(field)
#define FIELD_MTP(kind, field) FIELD_MTP_##kind(field)
#define FIELD_MTP_GLOBAL(field)
#define FIELD_MTP_MTP(field) struct tensor field;
#define FIELD_MTP_LAYER(field)
#define FIELD_MTP_SHARED(field)
#define FIELD_MTP_EXPERT(field)
#define FIELD_LAYER(kind, field) FIELD_LAYER_##kind(field)
#define FIELD_LAYER_GLOBAL(field)
#define FIELD_LAYER_MTP(field)
#define FIELD_LAYER_LAYER(field)  struct tensor field;
#define FIELD_LAYER_SHARED(field) struct tensor field;
#define FIELD_LAYER_EXPERT(field)
#define FIELD_EXPERT(kind, field) FIELD_EXPERT_##kind(field)
#define FIELD_EXPERT_GLOBAL(field)
#define FIELD_EXPERT_MTP(field)
#define FIELD_EXPERT_LAYER(field)
#define FIELD_EXPERT_SHARED(field)
#define FIELD_EXPERT_EXPERT(field) struct tensor field;

struct expert_weights {
#define WEIGHT(scope, field, name, store, fill, rows, cols, present) FIELD_EXPERT(scope, field)
#include "config/weights.def"
#undef WEIGHT
};

struct layer_weights {
#define WEIGHT(scope, field, name, store, fill, rows, cols, present) FIELD_LAYER(scope, field)
#include "config/weights.def"
#undef WEIGHT
    struct expert_weights *experts; /* owns; [n_routed_experts] */
};

struct mtp_weights {
#define WEIGHT(scope, field, name, store, fill, rows, cols, present) FIELD_MTP(scope, field)
#include "config/weights.def"
#undef WEIGHT
    struct layer_weights block;
};

struct model_weights {
#define WEIGHT(scope, field, name, store, fill, rows, cols, present) FIELD_GLOBAL(scope, field)
#include "config/weights.def"
#undef WEIGHT
    struct layer_weights layers[LAYERS_MAX]; /* [num_hidden_layers] */
    struct mtp_weights mtp[1];               /* [num_nextn_predict_layers] */
};

#endif
