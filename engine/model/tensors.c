/* The list of config/weights.def with the numbers of one configuration filled in. */
#include "engine/model/tensors.h"

#include "kernels/check.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define SCOPE_STRUCT_GLOBAL model_weights
#define SCOPE_STRUCT_MTP    mtp_weights
#define SCOPE_STRUCT_LAYER  layer_weights
#define SCOPE_STRUCT_SHARED layer_weights
#define SCOPE_STRUCT_EXPERT expert_weights

struct line {
    enum weight_scope scope;
    const char *name;
    enum store store;
    enum weight_fill fill;
    size_t member;
};

static const struct line LINES[] = {
#define WEIGHT(scope, field, name, store, fill, rows, cols, present)                               \
    {SCOPE_##scope, name, STORE_##store, FILL_##fill, offsetof(struct SCOPE_STRUCT_##scope, field)},
#include "config/weights.def"
#undef WEIGHT
};

enum {
#define WEIGHT(scope, field, name, store, fill, rows, cols, present) LINE_##scope##_##field,
#include "config/weights.def"
#undef WEIGHT
    LINE_COUNT
};

/* Shape of a line in block `layer`; false when that block has no such tensor. */
static bool line_shape(int line, const struct model_config *c, int32_t layer, int32_t ratio,
                       int32_t *rows, int32_t *cols)
{
    (void)layer;
    switch (line) {
#define WEIGHT(scope, field, name, store, fill, rows_of, cols_of, present)                         \
    case LINE_##scope##_##field:                                                                   \
        *rows = (rows_of);                                                                         \
        *cols = (cols_of);                                                                         \
        return (present);
#include "config/weights.def"
#undef WEIGHT
    default:
        ASSERT(!"line of the list");
        return false;
    }
}

struct visitor {
    const struct model_config *config;
    weight_visit_fn *visit;
    void *user;
    struct error *err;
};

static enum status visit_scope(const struct visitor *v, enum weight_scope scope, const char *prefix,
                               int32_t block, int32_t expert)
{
    int32_t ratio = block < 0 ? 0 : v->config->compress_ratios[block];
    for (int i = 0; i < LINE_COUNT; i++) {
        struct weight_spec spec = {.scope = scope, .block = block, .expert = expert};
        if (LINES[i].scope != scope ||
            !line_shape(i, v->config, block, ratio, &spec.rows, &spec.cols))
            continue;
        spec.store = LINES[i].store;
        spec.fill = LINES[i].fill;
        spec.member = LINES[i].member;
        int n = snprintf(spec.name, sizeof spec.name, "%s%s", prefix, LINES[i].name);
        ASSERT(n > 0 && (size_t)n < sizeof spec.name - sizeof ".weight_scale_2");
        enum status status = v->visit(v->user, &spec, v->err);
        if (status != OK)
            return status;
    }
    return OK;
}

static enum status visit_block(const struct visitor *v, const char *prefix, int32_t block)
{
    enum status status = visit_scope(v, SCOPE_LAYER, prefix, block, -1);
    for (int32_t e = 0; status == OK && e < v->config->n_routed_experts; e++) {
        char expert[TENSOR_NAME_BYTES];
        snprintf(expert, sizeof expert, "%sffn.experts.%d.", prefix, e);
        status = visit_scope(v, SCOPE_EXPERT, expert, block, e);
    }
    return status != OK ? status : visit_scope(v, SCOPE_SHARED, prefix, block, -1);
}

enum status weights_visit(const struct model_config *config, weight_visit_fn *visit, void *user,
                          struct error *err)
{
    struct visitor v = {config, visit, user, err};
    char prefix[32];
    enum status status = visit_scope(&v, SCOPE_GLOBAL, "", -1, -1);
    for (int32_t l = 0; status == OK && l < config->num_hidden_layers; l++) {
        snprintf(prefix, sizeof prefix, "layers.%d.", l);
        status = visit_block(&v, prefix, l);
    }
    for (int32_t m = 0; status == OK && m < config->num_nextn_predict_layers; m++) {
        snprintf(prefix, sizeof prefix, "mtp.%d.", m);
        status = visit_scope(&v, SCOPE_MTP, prefix, config->num_hidden_layers + m, -1);
        if (status == OK)
            status = visit_block(&v, prefix, config->num_hidden_layers + m);
    }
    return status;
}

struct tensor *weight_member(struct model_weights *weights, const struct model_config *config,
                             const struct weight_spec *spec)
{
    int32_t draft = spec->block - config->num_hidden_layers;
    struct layer_weights *layer = spec->block < 0 ? NULL
                                  : draft < 0     ? &weights->layers[spec->block]
                                                  : &weights->mtp[draft].block;
    char *base = NULL;
    switch (spec->scope) {
    case SCOPE_GLOBAL:
        base = (char *)weights;
        break;
    case SCOPE_MTP:
        base = (char *)&weights->mtp[draft];
        break;
    case SCOPE_LAYER:
    case SCOPE_SHARED:
        base = (char *)layer;
        break;
    case SCOPE_EXPERT:
        base = (char *)&layer->experts[spec->expert];
        break;
    }
    return (struct tensor *)(base + spec->member);
}

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* One stored tensor of a weight: a row for `rows_by` of the weight's, a column for `cols_by`; 0:
 * one number. */
struct part {
    const char *suffix, *dtype;
    int element_bytes;
    int64_t rows_by, cols_by;
};

/* How each store lies in the file. */
static const struct part PARTS[][STORED_MAX] = {
    [STORE_BF16] = {{"", "BF16", 2, 1, 1}},
    [STORE_F32] = {{"", "F32", 4, 1, 1}},
    [STORE_I64] = {{"", "I64", 8, 1, 1}},
    [STORE_FP8] = {{".weight", "F8_E4M3", 1, 1, 1}, {".scale", "F8_E8M0", 1, FP8_BLOCK, FP8_BLOCK}},
    [STORE_FP4] = {{".weight", "I8", 1, 1, 2}, {".scale", "F8_E8M0", 1, 1, FP4_GROUP}},
    [STORE_NVFP4] = {{".weight", "U8", 1, 1, 2},
                     {".weight_scale", "F8_E4M3", 1, 1, NVFP4_GROUP},
                     {".weight_scale_2", "F32", 4, 0, 0},
                     {".input_scale", "F32", 4, 0, 0}},
};

static void stored_set(struct stored_tensor *out, const struct weight_spec *spec,
                       const struct part *part)
{
    bool whole = spec->store == STORE_FP8; /* its blocks may end inside the last one */
    *out = (struct stored_tensor){.dtype = part->dtype, .shape = {1, 1}};
    int n = snprintf(out->name, sizeof out->name, "%s%s", spec->name, part->suffix);
    ASSERT(n > 0 && (size_t)n < sizeof out->name);
    if (part->rows_by > 0) {
        out->dims = spec->cols == 0 ? 1 : 2;
        out->shape[0] = ceil_div(spec->rows, part->rows_by);
        out->shape[1] = whole ? ceil_div(spec->cols, part->cols_by) : spec->cols / part->cols_by;
    }
    uint64_t elements = (uint64_t)out->shape[0] * (uint64_t)(out->dims == 2 ? out->shape[1] : 1);
    out->bytes = elements * (uint64_t)part->element_bytes;
}

int weight_stored(const struct weight_spec *spec, struct stored_tensor out[STORED_MAX])
{
    int n = 0;
    for (; n < STORED_MAX && PARTS[spec->store][n].suffix != NULL; n++)
        stored_set(&out[n], spec, &PARTS[spec->store][n]);
    return n;
}
