/*
 * Inside the network: what model.c (opening), state.c (sequences) and forward.c (steps) share.
 * Device pointers are never dereferenced here; they belong to the backend.
 */
#ifndef V4BOX_ENGINE_MODEL_NETWORK_H
#define V4BOX_ENGINE_MODEL_NETWORK_H

#include "engine/model/checkpoint.h"
#include "engine/model/inspect.h"
#include "engine/model/model.h"
#include "kernels/backend.h"

#include <stdbool.h>

/* What a profile says, as the operations take it; made for every step, so that no stage decides for
 * itself. */
struct numerics {
    enum round activation;        /* tensors between operations */
    enum round streams;           /* residual streams */
    enum round linear_in;         /* in front of FP8 weights */
    enum round group_in;          /* in front of the grouped output matrix */
    enum round entry, entry_nope; /* key/value entries, and their unrotated channels */
    enum round key, key_rotated;  /* index queries and keys, and behind the Hadamard transform */
    enum round project;           /* what the compressors pool */
    enum round route;             /* router logits */
    enum round routed_in;         /* in front of routed experts */
    enum round logits;
    bool precise, precise_entries; /* sums in double */
    bool rotate_queries, rotate_keys;
    enum attn_math attention[LEGS]; /* of LEG_PREFILL and LEG_DECODE */
    enum precision_ATTN_QUERY query;
    enum precision_ATTN_QNORM query_norm;
    enum precision_INDEX_SCORE score;
    enum precision_INDEX_TOPK choice;
    enum precision_HC_MIX mix;
    enum precision_MOE_SCALE scale;
    double limit, scaling; /* of the clamp; of routed experts */
    int32_t topk;
    bool hc_transposed;
};

/** @param perturbation  all zero: none */
struct numerics numerics_of(const struct profile *profile, const struct model_config *config,
                            const struct perturbation *perturbation);
/** Names the state that a step leaves behind: the profile's hash, and another for each
 * perturbation. */
uint64_t numerics_hash(const struct profile *profile, const struct perturbation *perturbation);

/* Window layers turn with the plain frequencies, layers with a compressor with YaRN's. */
enum rope_kind { ROPE_WINDOW, ROPE_COMPRESSED, ROPE_KINDS };

/* Slots of the rings (model.md 2.9): what the oldest query of a step reads is still there when all
 * of the step's rows are written, so no row is saved or rolled back. */
#define WINDOW_SLOTS (SLIDING_WINDOW + STEP_TOKENS_MAX)
#define CSA_SLOTS    (2 * RATIO_CSA + STEP_TOKENS_MAX)
#define HCA_SLOTS    (RATIO_HCA + STEP_TOKENS_MAX)
#define STREAM_SLOTS (STEP_TOKENS_MAX + 1) /* the last position waits for its next token */

/* The state of one block (layer or draft) of one sequence; all device memory. */
struct block_state {
    float *window;                    /* [WINDOW_SLOTS, HEAD_DIM] final entries */
    float *kappa, *gamma;             /* [slots, width] per token, ape added to gamma */
    float *compressed;                /* [tokens_max / ratio, HEAD_DIM] */
    float *index_kappa, *index_gamma; /* [CSA_SLOTS, 2 * INDEX_HEAD_DIM] */
    float *index_keys;                /* [tokens_max / RATIO_CSA, INDEX_HEAD_DIM] */
};

struct sequence {
    const struct model *model; /* borrows */
    int32_t tokens_max, length, draft_length;
    uint64_t profile_hash;                 /* of what made the state (numerics_hash); 0: unknown */
    struct block_state blocks[LAYERS_MAX]; /* main layers, then draft blocks */
    float *streams; /* [STREAM_SLOTS, HC_MULT, hidden] of the last layer; NULL without drafts */
    void *memory;   /* owns (device); everything above lies in it */
    size_t bytes;
};

/* Device memory of one step, for STEP_TOKENS_MAX rows. */
struct step_memory {
    int32_t *ids, *positions, *block_positions;
    double *rope[ROPE_KINDS];                /* [tokens, ROPE_ROW] */
    double *block_rope_csa, *block_rope_hca; /* [tokens, ROPE_ROW] of finished blocks */
    float *streams, *streams_next;           /* [tokens, HC_MULT, hidden] */
    double *post, *comb;
    float *u, *y; /* [tokens, hidden] into and out of a sub-layer */
    float *q_lora, *q, *kv, *heads_out, *grouped;
    float *kappa, *gamma, *index_kappa, *index_gamma, *index_q, *index_weights;
    int32_t *selected, *n_selected;
    int32_t *experts;
    float *expert_weights;
    float *logits; /* [tokens, vocab] */
};

struct model {
    struct checkpoint *checkpoint;     /* owns */
    const struct model_config *config; /* borrows */
    const struct model_weights *weights;
    struct backend *backend;  /* owns */
    struct numerics numerics; /* of the step that runs */
    struct perturbation perturbation;
    struct expert *experts; /* owns; [blocks, n_routed + n_shared] */
    double frequency[ROPE_KINDS][ROPE_HEAD_DIM / 2];
    struct step_memory step; /* points into memory */
    void *memory;            /* owns (device) */
    size_t bytes;
    model_trace_fn *trace;
    void *trace_user;
};

/** The backend that this program computes with; each program links one of these (backend_cpu.c).
 *  @own  ops->destroy  @err ERR_USAGE: not on this machine; ERR_CAPACITY */
enum status MUST_CHECK model_backend_open(const struct model_options *options,
                                          const struct backend_limits *limits, struct backend **out,
                                          struct error *err);

/* Hands out aligned pieces of one reservation; without a base it only counts. */
struct carve {
    char *base;
    size_t used;
};
void *carve_take(struct carve *carve, int64_t count, size_t size);

/** P8: radians a token, for both kinds of layer. */
void rope_frequencies(double frequency[ROPE_KINDS][ROPE_HEAD_DIM / 2]);

int32_t model_blocks(const struct model_config *config); /* layers and draft blocks */
const struct layer_weights *model_block_weights(const struct model *model, int32_t block);

#endif
