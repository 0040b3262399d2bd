/* The table of config/precision.def with its texts.  No logic beyond names. */
#include "kernels/precision.h"

#include <assert.h>

#define PROMPT    (1u << LEG_PROMPT)
#define PREFILL   (1u << LEG_PREFILL)
#define STATE     (1u << LEG_STATE)
#define DECODE    (1u << LEG_DECODE)
#define WINDOW    (1u << KIND_WINDOW)
#define CSA       (1u << KIND_CSA)
#define HCA       (1u << KIND_HCA)
#define HASH      (1u << KIND_HASH)
#define SCORE     (1u << KIND_SCORE)
#define DRAFT     (1u << KIND_DRAFT)
#define HEAD      (1u << KIND_HEAD)
#define RUN_TIME  APPLY_RUN_TIME
#define RESTART   APPLY_RESTART
#define OPERATION BY_OPERATION
#define MODULE    BY_MODULE

/* clang-format off */
const struct precision_switch PRECISION[PRECISION_ROWS] = {
#define ROW(id, name, changes, legs, kinds, apply, by, witness, budget, source, official, balanced, fast) \
    [ROW_##id] = {name, changes, legs, kinds, apply, by, witness, budget, source,                \
                  id##_##official, id##_##balanced, id##_##fast, id##_VALUES, {
#define VALUE(row, id, name, needs, use, meaning) {name, meaning, NEEDS_##needs, USE_##use},
#define END(id) }},
#include "config/precision.def"
#undef ROW
#undef VALUE
#undef END
};

#define ROW(id, ...) static_assert((int)id##_VALUES <= PRECISION_VALUES_MAX, "PRECISION_VALUES_MAX");
#define VALUE(...)
#define END(id)
#include "config/precision.def"
#undef ROW
#undef VALUE
#undef END
/* clang-format on */

const char *leg_name(enum leg leg)
{
    static const char *const NAMES[LEGS] = {"prompt", "prefill", "state", "decode"};
    return NAMES[leg];
}

const char *layer_kind_name(enum layer_kind kind)
{
    static const char *const NAMES[LAYER_KINDS] = {"window", "csa",   "hca", "hash",
                                                   "score",  "draft", "head"};
    return NAMES[kind];
}
