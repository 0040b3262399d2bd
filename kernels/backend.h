/*
 * What a machine that computes the network must be able to do: one struct of operations, named by
 * the stages of the model, each taking one struct of plain numbers and pointers.
 *
 * engine/model/forward.c is written once over this struct.  Pointers named "device" belong to the
 * backend and are never dereferenced by the caller (pointer arithmetic on rows is allowed);
 * activations are float32 rows (hyper-connection weights and rotations float64), contiguous, in the
 * shape given beside each field.  Every backend implements every operation; the capabilities to ask
 * for are `packs`, `pages` and `step_tokens`.  A broken shape aborts.
 *
 * Numerics are values in the params, never a mode of the backend: `enum round` where a value is
 * stored, `precise` where it is summed: in double (or to that effect) instead of float32, and
 * values of config/precision.def where the arithmetic itself differs.
 *
 * Evidence: every operation that a row of that table names reports what it did, from the code that
 * did it, into the backend's witness table under `place` (kernels/witness.h).  A rounding is
 * reported under the row that stands beside it in a comment here, as the value that this rounding
 * is of it.
 *
 * Promise of every operation: the result of one token (or block) depends on that token's inputs
 * alone, bit for bit: not on its neighbours, not on how many there are, not on threads.
 *
 * Where a sequence stands (`at`) is in device memory, so that a recorded step serves at every
 * place; the host knows a bound of it, on which no result depends.
 *
 * Formulas: model.md section 2; the numbers in brackets are its equations.
 * @thread  one caller at a time for the whole backend.
 */
#ifndef V4BOX_KERNELS_BACKEND_H
#define V4BOX_KERNELS_BACKEND_H

#include "config/limits.h"
#include "config/model.h"
#include "kernels/entry.h"
#include "kernels/meeting.h"
#include "kernels/pick.h"
#include "kernels/synth.h"
#include "kernels/tensor.h"
#include "kernels/witness.h"

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

/* How a value is rounded where it would be stored. */
enum round {
    ROUND_NONE,
    ROUND_BF16,    /* nearest even */
    ROUND_TF32,    /* nearest even to 10 bits of fraction */
    ROUND_FP8_128, /* P2: e4m3, one power-of-two scale for 128 values */
    ROUND_FP8_64,  /* P6: the same for 64 values */
    ROUND_FP4_32,  /* P5: e2m1, one power-of-two scale for 32 values */
    ROUND_NVFP4, /* e2m1, an e4m3 scale for 16 values under a float32 scale for all n: the scale of
                    all is amax / (6 * 448), that of 16 is e4m3(amax / 6 / scale of all) */
    ROUNDS
};

/* Arithmetic of the attention core; the values of attn.prefill and of attn.decode. */
enum attn_math {
    ATTN_FP32, /* one softmax over all keys; products and sums as `precise` says */
    ATTN_BF16, /* as a tensor core does it: q, k, v and probabilities in bf16, products added in
                  float32; a running softmax over tiles of ATTN_TILE keys, whose denominator is
                  of the unrounded probabilities */
    ATTN_BF16_SPLIT_K /* the same over each split of ATTN_SPLIT keys by itself; splits are joined in
                         order by their maximum and denominator, in float32 */
};
#define ATTN_TILE  64
#define ATTN_SPLIT 64
static_assert((int)ATTN_FP32 == (int)ATTN_PREFILL_FP32 && (int)ATTN_FP32 == (int)ATTN_DECODE_FP32 &&
                  (int)ATTN_BF16 == (int)ATTN_PREFILL_BF16 &&
                  (int)ATTN_BF16 == (int)ATTN_DECODE_BF16 &&
                  (int)ATTN_BF16_SPLIT_K == (int)ATTN_DECODE_BF16_SPLIT_K &&
                  ATTN_BF16_SPLIT_K + 1 == (int)ATTN_DECODE_VALUES,
              "every arithmetic is a value of the table");

/* Cosine and sine interleaved, for one position: [ROPE_HEAD_DIM / 2][2]. */
#define ROPE_ROW ROPE_HEAD_DIM

/* The most matrices that share one input: kappa, gamma twice, and the index weights. */
#define LINEAR_OUTS_MAX 5

struct embed_params {
    struct tensor table; /* [vocab, hidden] */
    const int32_t *ids;  /* device [n] */
    int32_t n, copies;   /* copies: HC_MULT for the streams, 1 for a plain row */
    float *out;          /* device [n, copies, hidden] */
};

/* Hyper-connection in front of a sub-layer (2.2): mixes, Sinkhorn, weighted sum of the streams. */
struct hc_pre_params {
    struct tensor fn, base, scale; /* F32 [HC_MIX, HC_MULT * hidden], [HC_MIX], [3] */
    const float *streams;          /* device [n, HC_MULT, hidden] */
    int32_t n, hidden;
    struct place place;
    enum precision_HC_MIX mix;
    enum round round; /* of out: act.store */
    float *out;       /* device [n, hidden] */
    double *post;     /* device [n, HC_MULT] */
    double *comb;     /* device [n, HC_MULT, HC_MULT], first index is the source stream */
};

/* streams_out[k] = post[k] * y + sum_j comb[j][k] * streams[j] */
struct hc_post_params {
    const float *y;            /* device [n, hidden] */
    const float *streams;      /* device [n, HC_MULT, hidden] */
    const double *post, *comb; /* as hc_pre left them */
    int32_t n, hidden;
    struct place place;
    _Bool transposed;   /* audit only: comb[k][j] instead */
    enum round round;   /* hc.streams */
    float *streams_out; /* device [n, HC_MULT, hidden]; not the same memory as streams */
};

/* (23) */
struct hc_head_params {
    struct tensor fn, base, scale; /* F32 [HC_MULT, HC_MULT * hidden], [HC_MULT], [1] */
    const float *streams;          /* device [n, HC_MULT, hidden] */
    int32_t n, hidden;
    struct place place;
    enum precision_HC_MIX mix;
    enum round round; /* act.store */
    float *out;       /* device [n, hidden] */
};

/* P1 */
struct rms_norm_params {
    struct tensor weight; /* BF16 [width] */
    const float *x;       /* device [n, width] */
    int32_t n, width;
    struct place place;
    enum round round; /* act.store */
    float *out;       /* device [n, width]; may be x */
};

/* What a product is for: the rows of the precision table that its rounding and its sums belong to.
 */
enum linear_use {
    LINEAR_PLAIN,      /* act.store, sum */
    LINEAR_ENTRY,      /* act.store, sum.entry */
    LINEAR_COMPRESSOR, /* comp.project, sum */
    LINEAR_HEAD,       /* head.logits, sum */
};

/* y = x W^T for up to LINEAR_OUTS_MAX matrices over one input (P3, P4). */
struct linear_params {
    const float *x;  /* device [n, cols] */
    int32_t n, cols; /* cols: a multiple of 128 */
    struct place place;
    enum round round_in; /* ROUND_NONE or ROUND_FP8_128, of x: dense.linear, if w is FP8 */
    int32_t n_outs;
    struct {
        struct tensor w;  /* [rows, cols], any matrix store */
        float *y;         /* device [n, rows] */
        enum round round; /* ROUND_NONE or ROUND_BF16, of y */
        _Bool precise;    /* of the sums */
        enum linear_use use;
    } outs[LINEAR_OUTS_MAX];
};

/* (11): groups of rows, each over its own slice of x. */
struct grouped_params {
    struct tensor w; /* FP8 [groups * rank, cols] */
    const float *x;  /* device [n, groups, cols] */
    int32_t n, groups, rank, cols;
    struct place place;
    enum round round_in; /* ROUND_NONE or ROUND_FP8_128, of x: attn.out */
    enum round round;    /* act.store */
    _Bool precise;       /* sum */
    float *y;            /* device [n, groups, rank] */
};

/* P8 */
struct rope_table_params {
    double frequency[ROPE_HEAD_DIM / 2];
    const int32_t *positions; /* device [n] */
    int32_t n;
    double *rows; /* device [n, ROPE_ROW] */
};

/* (5) (6): weightless RMS norm of each head, then rotation of its last ROPE_HEAD_DIM channels. */
struct query_params {
    float *q;           /* device [n, heads, HEAD_DIM], in place */
    const double *rope; /* device [n, ROPE_ROW] */
    int32_t n, heads;
    struct place place;
    enum precision_ATTN_QNORM norm;
    enum precision_ATTN_QUERY store; /* bf16-scaled: q leaves multiplied by HEAD_DIM^-0.5 */
};

/* (7): norm, rotation, rounding of the first 448 channels, and into the ring. */
struct kv_store_params {
    struct tensor weight; /* BF16 [HEAD_DIM] */
    const float *kv;      /* device [n, HEAD_DIM] */
    const double *rope;   /* device [n, ROPE_ROW] */
    int32_t n;
    const int32_t *at; /* device [1]: position of the first token */
    struct place place;
    enum round round, round_nope; /* kv.entry */
    /* device [ring_slots, HEAD_DIM], rows of `format`; position p lies in slot p mod ring_slots */
    float *ring;
    int32_t ring_slots;
    enum entry_format format;
};

/* Keeps (kappa, gamma + ape) of each token in rings, from which blocks are pooled later (2.9). */
struct compressor_store_params {
    struct tensor ape;          /* F32 [ratio, width] */
    const float *kappa, *gamma; /* device [n, width] */
    int32_t n;
    const int32_t *at; /* device [1]: position of the first token */
    int32_t ratio, width;
    float *kappa_ring, *gamma_ring; /* device [ring_slots, width] */
    int32_t ring_slots;
};

/* (2.4): pools finished blocks, norms, rotates at the block's first token, rounds, appends. */
struct compressor_pool_params {
    struct tensor weight;                  /* BF16 [dim] */
    const float *kappa_ring, *gamma_ring;  /* device [ring_slots, width] */
    int32_t ring_slots, ratio, width, dim; /* width = 2 * dim when the blocks overlap */
    const int32_t *at;  /* device [1]: a position; the first block is the one that it lies in */
    int32_t n;          /* blocks */
    const double *rope; /* device [n, ROPE_ROW], of position ratio * block */
    struct place place; /* rows are blocks; n_decode of those */
    _Bool index;        /* the indexer's: index.keys, else kv.entry */
    enum round round, round_nope, round_rotated; /* round_nope: main entries; rotated: index keys */
    _Bool rotate;                                /* Hadamard over the dim channels: index.rotate */
    _Bool precise;                               /* sum */
    float *cache;                                /* device [blocks, dim], rows of `format` */
    struct entry_pages pages;                    /* where those lie instead */
    enum entry_format format;
};

/* (13): rotation by position, Hadamard, rounding of the index queries. */
struct index_query_params {
    float *q;           /* device [n, heads, INDEX_HEAD_DIM], in place */
    const double *rope; /* device [n, ROPE_ROW] */
    int32_t n, heads;
    struct place place;
    enum round round, round_rotated; /* index.keys */
    _Bool rotate;                    /* index.rotate */
};

/* (14)-(16): scores over the visible blocks of one sequence, the best topk, lowest index on ties.
 */
struct index_select_params {
    const float *q;           /* device [n, heads, INDEX_HEAD_DIM] */
    const float *weights;     /* device [n, heads], not yet scaled */
    const float *keys;        /* device [blocks, INDEX_HEAD_DIM], rows of `format` */
    struct entry_pages pages; /* where those lie instead */
    int32_t n;
    const int32_t *at; /* device [1]: position of the first token */
    int32_t reach;     /* no token of the call stands there or further on */
    int32_t heads, topk;
    struct place place;
    enum precision_INDEX_SCORE score;
    enum precision_INDEX_TOPK choice;
    _Bool precise;       /* sum */
    int32_t *selected;   /* device [n, topk], ascending */
    int32_t *n_selected; /* device [n] */
    enum entry_format format;
};

/* (8)-(10): one key/value vector for all heads, window and compressed entries, sink, inverse rope.
 */
struct attention_params {
    struct tensor sink;       /* F32 [heads] */
    const float *q;           /* device [n, heads, HEAD_DIM] */
    const float *ring;        /* device [ring_slots, HEAD_DIM], rows of `format` */
    const float *compressed;  /* device [blocks, HEAD_DIM], of `format`; NULL when ratio is 0 */
    struct entry_pages pages; /* where those lie instead */
    const int32_t *selected, *n_selected; /* device [n, topk], [n]; NULL: every visible block */
    const double *rope;                   /* device [n, ROPE_ROW], of the queries */
    int32_t n;
    const int32_t *at; /* device [1]: position of the first token */
    int32_t reach;     /* no token of the call stands there or further on */
    int32_t heads, ring_slots, ratio, topk;
    struct place place;  /* all rows of one leg: n_decode is 0 or n */
    enum attn_math math; /* attn.prefill or attn.decode, as the leg is */
    _Bool q_scaled;      /* q carries HEAD_DIM^-0.5 already */
    enum round round;    /* act.store */
    _Bool precise;       /* sum */
    float *out;          /* device [n, heads, HEAD_DIM] */
    enum entry_format format;
};

/* (17)-(19) */
struct route_params {
    struct tensor gate;     /* BF16 [experts, hidden] */
    struct tensor bias;     /* F32 [experts]; data == NULL in hash layers */
    struct tensor tid2eid;  /* I64 [vocab, top]; data == NULL in score layers */
    const float *x;         /* device [n, hidden] */
    const int32_t *ids;     /* device [n] */
    int32_t n, hidden, top; /* experts a token */
    struct place place;
    enum precision_MOE_SCALE scale;
    double scaling;   /* of the weights, when scale says gate */
    enum round round; /* of the router logits: moe.route */
    _Bool precise;    /* sum */
    int32_t *experts; /* device [n, top], ascending */
    float *weights;   /* device [n, top] */
};

struct expert {
    struct tensor w1, w2, w3; /* gate [inner, hidden], down [hidden, inner], up [inner, hidden] */
};

/* Ranks that share the experts do both halves, with an exchange between them (kernels/ranks.h). */
enum experts_half {
    EXPERTS_WHOLE,
    EXPERTS_INNER, /* x to h, with `inner` rows of w1 and w3 */
    EXPERTS_OUTER, /* h to out, with `hidden` rows of w2 */
};

/* (20)-(22): routed experts, and behind them shared ones that every token takes with weight 1. */
struct experts_params {
    const struct expert *experts; /* [n_routed + n_shared], host memory */
    int32_t n_routed, n_shared;
    const float *x;        /* device [n, hidden] */
    const int32_t *chosen; /* device [n, top] */
    const float *weights;  /* device [n, top] */
    int32_t n, hidden, inner, top;
    struct place place;
    enum precision_MOE_SCALE scale;
    double scaling;          /* of the sum of the routed ones, when scale says kernel */
    _Bool precise;           /* sum */
    double limit;            /* of the clamp in front of SwiGLU: moe.clamp; INFINITY: off */
    enum round round_in;     /* of the routed experts' inputs: moe.experts */
    enum round round_shared; /* of the shared ones': dense.linear */
    enum round round_out;    /* of all three products and of out: act.store */
    float *out;              /* device [n, hidden] */
    enum experts_half half;
    /* Of a half: what SwiGLU leaves, in front of round_in; device [n * (top + n_shared), inner],
     * sorted by expert, then by token.  EXPERTS_OUTER may change it. */
    float *h;
};

/* (2.8): streams_out[m] = e + h[m] */
struct mtp_join_params {
    const float *e; /* device [n, hidden] */
    const float *h; /* device [n, HC_MULT, hidden] */
    int32_t n, hidden;
    struct place place;
    enum round round; /* hc.streams */
    float *streams;   /* device [n, HC_MULT, hidden] */
};

/* Tokens that are picked behind rows of logits. */
struct pick_row {
    int32_t row;
    struct pick *pick; /* host: what is picked by, and what was picked */
};
struct pick_params {
    float *logits;               /* device [.., vocab]; the rows of the list change */
    const struct pick_row *rows; /* host [n], each row once */
    int32_t n, vocab;            /* n: at most limits.tokens */
};

/* Rows of a result of which every rank has computed some columns. */
struct gather_piece {
    const float *part; /* device, this rank's: [n, its cols] */
    int32_t n, width;
    int32_t at[RANKS_MAX], cols[RANKS_MAX]; /* columns at.. of each rank; cols may be 0 */
    float *whole[RANKS_MAX];                /* device, each rank's: [n, width] */
};

/* Every rank calls it with the pieces of the same results, in the same order. */
struct gather_params {
    int32_t rank, ranks;
    int32_t n_pieces;
    struct gather_piece pieces[LINEAR_OUTS_MAX];
    struct place place; /* reduce.wire, reduce.order: what results of n rows go through */
    int32_t n;          /* 0: nothing to say */
};

/* All weights of a network, in front of its first step. */
struct load_params {
    const struct tensor *tensors; /* [n], without those of experts; some are absent (data NULL) */
    int32_t n;
    const struct expert *const *experts; /* [blocks] tables of n_experts */
    int32_t blocks, n_experts;
    /* Who they are, if they are made: then nothing lies at their addresses.  Borrowed for as long
     * as the backend lives.  NULL: their bytes are there. */
    const struct synth_table *made;
};

/* The most that any call will ask for; scratch memory is taken once, from these. */
struct backend_limits {
    int32_t tokens;     /* rows of a step */
    int32_t cols;       /* input width of the widest matrix */
    int32_t groups;     /* of the grouped output */
    int32_t group_cols; /* of all groups together: heads * HEAD_DIM */
    int32_t index_heads, topk;
    int32_t inner, hidden, experts,
        top; /* of the expert layer; experts, top with the shared ones */
    int32_t vocab;
};

struct backend; /* opaque to callers; each implementation has its own */

struct backend_ops {
    void (*destroy)(struct backend *b);
    const char *(*variant)(const struct backend *b); /* "baseline", "avx2", "avx512" */

    /* Zeroed device memory, reserved now and resident only where it was touched; NULL: refused. */
    void *(*reserve)(struct backend *b, size_t bytes);
    void (*release)(struct backend *b, void *memory, size_t bytes);
    /* Back to zeros; the old content cannot be read any more. */
    void (*clear)(struct backend *b, void *memory, size_t bytes);
    void (*upload)(struct backend *b, void *device, const void *host, size_t bytes);
    void (*download)(struct backend *b, void *host, const void *device, size_t bytes);
    void (*copy)(struct backend *b, void *device_to, const void *device_from, size_t bytes);

    void (*embed)(struct backend *b, const struct embed_params *p);
    void (*hc_pre)(struct backend *b, const struct hc_pre_params *p);
    void (*hc_post)(struct backend *b, const struct hc_post_params *p);
    void (*hc_head)(struct backend *b, const struct hc_head_params *p);
    void (*rms_norm)(struct backend *b, const struct rms_norm_params *p);
    void (*linear)(struct backend *b, const struct linear_params *p);
    void (*grouped)(struct backend *b, const struct grouped_params *p);
    void (*rope_table)(struct backend *b, const struct rope_table_params *p);
    void (*query)(struct backend *b, const struct query_params *p);
    void (*kv_store)(struct backend *b, const struct kv_store_params *p);
    void (*compressor_store)(struct backend *b, const struct compressor_store_params *p);
    void (*compressor_pool)(struct backend *b, const struct compressor_pool_params *p);
    void (*index_query)(struct backend *b, const struct index_query_params *p);
    void (*index_select)(struct backend *b, const struct index_select_params *p);
    void (*attention)(struct backend *b, const struct attention_params *p);
    void (*route)(struct backend *b, const struct route_params *p);
    void (*experts)(struct backend *b, const struct experts_params *p);
    void (*mtp_join)(struct backend *b, const struct mtp_join_params *p);

    /* As sampler_take (kernels/sampler.h) picks, to the bit.  Waits, as download does. */
    void (*pick)(struct backend *b, const struct pick_params *p);

    /* Brings weights to the memory that operations read them from: those of this rank alone.  An
     * operation whose weights were not named brings them itself.  NULL: operations read host
     * memory.
     * @return NULL; else why not, in words that are kept until the next call */
    const char *(*load)(struct backend *b, const struct load_params *p);

    /* This backend is one of several ranks (kernels/meeting.h), from now on; once. */
    void (*meet)(struct backend *b, struct meeting *meeting, int32_t rank);
    /* Behind it every rank has the whole results. */
    void (*gather)(struct backend *b, const struct gather_params *p);

    /* A step that comes again, under a key of which every parameter of its operations follows.
     * True: it was recorded and runs; false: the caller calls the operations, which may be
     * recorded, and then replay_end.  In between: no memory call but copy, and nothing that waits.
     * NULL: this backend records nothing. */
    _Bool (*replay)(struct backend *b, const void *key, size_t bytes);
    void (*replay_end)(struct backend *b);

    /* What ran since the last call, into *out (overwritten); then the table is empty. */
    void (*witness_read)(struct backend *b, struct witness_table *out);

    /* Whether rows of a timeline may lie in every form of kernels/entry.h; else all are ENTRY_F32.
     * What is computed does not depend on it. */
    _Bool packs;
    /* Whether they may lie in pages (struct entry_pages), anywhere in memory that was reserved,
     * which `clear` takes by multiples of PAGE_ALIGN_BYTES. */
    _Bool pages;
    /* Rows that one call of a dense operation takes, SPAN_TOKENS_MAX to STEP_TOKENS_MAX; stages
     * with state take SPAN_TOKENS_MAX of a sequence.  It makes room for no more of limits.tokens.
     */
    int32_t step_tokens;
};

/* Every implementation starts with this member. */
struct backend {
    const struct backend_ops *ops;
};

#endif
