/* Stored values, scanned form by form. */
#include "engine/model/values.h"

#include "engine/model/tensors.h"

#include <string.h>

/* Elements tested without a branch before the verdict is looked at, so that the loops vectorise. */
#define RUN 4096

/* One scan function for each stored form: index of the first bad element, or -1. */
typedef int64_t scan_fn(const void *data, int64_t n, int64_t limit);

#define SCAN(name, type, bad)                                                                      \
    static int64_t name(const void *data, int64_t n, int64_t limit)                                \
    {                                                                                              \
        const type *values = data;                                                                 \
        (void)limit;                                                                               \
        for (int64_t start = 0; start < n; start += RUN) {                                         \
            int64_t end = n - start < RUN ? n : start + RUN;                                       \
            unsigned any = 0;                                                                      \
            for (int64_t i = start; i < end; i++) {                                                \
                type v = values[i];                                                                \
                any |= (bad);                                                                      \
            }                                                                                      \
            for (int64_t i = start; any != 0 && i < end; i++) {                                    \
                type v = values[i];                                                                \
                if (bad)                                                                           \
                    return i;                                                                      \
            }                                                                                      \
        }                                                                                          \
        return -1;                                                                                 \
    }

SCAN(scan_bf16, uint16_t, (v & 0x7F80) == 0x7F80)
SCAN(scan_f32, uint32_t, (v & 0x7F800000) == 0x7F800000)
SCAN(scan_fp8, uint8_t, (v & 0x7F) == 0x7F)
SCAN(scan_scale, uint8_t, v >= 0x7F)
SCAN(scan_e8m0, uint8_t, v == 0xFF)
SCAN(scan_index, int64_t, v < 0 || v >= limit)

static scan_fn *const SCANS[] = {
    [STORE_BF16] = scan_bf16, [STORE_F32] = scan_f32, [STORE_I64] = scan_index,
    [STORE_FP8] = scan_fp8,   [STORE_FP4] = NULL,     [STORE_NVFP4] = NULL,
};

/* The same for scales; NVFP4's have the form of weights, and no sign. */
static scan_fn *const SCALE_SCANS[] = {
    [STORE_FP8] = scan_e8m0,
    [STORE_FP4] = scan_e8m0,
    [STORE_NVFP4] = scan_scale,
};

struct walk {
    const struct model_config *config;
    struct model_weights *weights; /* borrows; read only */
    enum value_check depth;
    const char *place;
};

static enum status check_weight(void *user, const struct weight_spec *spec, struct error *err)
{
    struct walk *w = user;
    if (w->depth == VALUES_INDICES && spec->store != STORE_I64)
        return OK;
    const struct tensor *t = weight_member(w->weights, w->config, spec);
    struct stored_tensor stored[STORED_MAX];
    struct weight_spec bound = *spec;
    bound.store = t->store;
    weight_stored(&bound, stored);
    /* single numbers were looked at when they were bound */
    for (int i = STORED_DATA; i <= (t->scale == NULL ? STORED_DATA : STORED_SCALE); i++) {
        scan_fn *scan = i == STORED_DATA ? SCANS[t->store] : SCALE_SCANS[t->store];
        int64_t n = stored[i].shape[0] * (stored[i].dims == 2 ? stored[i].shape[1] : 1);
        int64_t bad = scan == NULL ? -1
                                   : scan(i == 0 ? t->data : (const void *)t->scale, n,
                                          w->config->n_routed_experts);
        if (bad >= 0)
            return error_set(err, ERR_CHECK, "%s: tensor %s: element %lld is %s", w->place,
                             stored[i].name, (long long)bad,
                             spec->store == STORE_I64 ? "not an expert's number"
                                                      : "not a finite number");
    }
    return OK;
}

enum status values_check(const struct model_config *config, const struct model_weights *weights,
                         enum value_check depth, const char *place, struct error *err)
{
    /* weight_member serves the loader too, hence its plain pointer; nothing is written here. */
    struct walk walk = {config, (struct model_weights *)weights, depth, place};
    return weights_visit(config, check_weight, &walk, err);
}
