/*
 * config/precision.def as C: one enum of rows, one enum of values for each row, and the table with
 * its texts.  Shared by every backend and by the engine.  Knows no profile and no arithmetic.
 */
#ifndef V4BOX_KERNELS_PRECISION_H
#define V4BOX_KERNELS_PRECISION_H

#include <stdint.h>

/* A change of what a row or value means, without a new name, needs a new number: it is part of
 * every profile's hash. */
#define PRECISION_TABLE_VERSION 1

/* Where in a conversation a number comes about (fidelity.md 0, point 2). */
enum leg { LEG_PROMPT, LEG_PREFILL, LEG_STATE, LEG_DECODE, LEGS };

/* What differs between layers; a layer has one kind as attention and one as experts. */
enum layer_kind {
    KIND_WINDOW, /* attention over the window alone */
    KIND_CSA,    /* with ratio-4 entries that the indexer chooses */
    KIND_HCA,    /* with all ratio-128 entries */
    KIND_HASH,   /* experts from the token table */
    KIND_SCORE,  /* experts by score */
    KIND_DRAFT,  /* all of the draft block */
    KIND_HEAD,   /* embedding and logits */
    LAYER_KINDS
};

/* clang-format off */
enum precision_row {
#define ROW(id, ...) ROW_##id,
#define VALUE(...)
#define END(id)
#include "config/precision.def"
#undef ROW
#undef VALUE
#undef END
    PRECISION_ROWS
};

/* enum attn_decode { ATTN_DECODE_FP32, ... , ATTN_DECODE_VALUES } and so on */
#define ROW(id, ...) enum precision_##id {
#define VALUE(row, id, ...) row##_##id,
#define END(id) id##_VALUES };
#include "config/precision.def"
#undef ROW
#undef VALUE
#undef END
/* clang-format on */

/* Values of the longest row. */
#define PRECISION_VALUES_MAX 4

enum precision_apply { APPLY_RUN_TIME, APPLY_RESTART };
enum precision_by { BY_OPERATION, BY_MODULE };
enum precision_needs { NEEDS_ANY, NEEDS_CUDA, NEEDS_SM120 };
enum precision_use { USE_SERVE, USE_AUDIT };

struct precision_value {
    const char *name, *meaning;
    enum precision_needs needs;
    enum precision_use use;
};

struct precision_switch {
    const char *name, *changes;
    uint32_t legs, kinds; /* bits 1 << enum leg, 1 << enum layer_kind */
    enum precision_apply apply;
    enum precision_by by;
    const char *witness; /* operations or module */
    double budget;       /* nats of mean KL against the reference, for this row alone */
    const char *source;
    uint8_t official, balanced, fast; /* the built-in profiles; reference is 0 */
    int n_values;
    struct precision_value values[PRECISION_VALUES_MAX];
};

extern const struct precision_switch PRECISION[PRECISION_ROWS];

/** "prompt", "prefill", "state", "decode" / "window", "csa", ... */
const char *leg_name(enum leg leg);
const char *layer_kind_name(enum layer_kind kind);

#endif
