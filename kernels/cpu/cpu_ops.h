/*
 * What the files of the CPU backend share: its struct, its scratch memory, the operations (one
 * group a file), and a few helpers over one row.
 */
#ifndef V4BOX_KERNELS_CPU_CPU_OPS_H
#define V4BOX_KERNELS_CPU_CPU_OPS_H

#include "config/limits.h"
#include "kernels/backend.h"
#include "kernels/check.h"
#include "kernels/cpu/pool.h"
#include "kernels/cpu/vector.h"
#include "kernels/sampler.h"

#include <assert.h>
#include <stdbool.h>

/* Entries of an attention list: the window and every block of the coarser ratio, or the selected.
 */
#define ATTENDED_MAX (SLIDING_WINDOW + POSITIONS_MAX / RATIO_HCA)
static_assert(INDEX_TOPK_MAX <= POSITIONS_MAX / RATIO_HCA, "selected entries fit the key list");

/* Packed entries are read once for all that attends to them: the window of a span, and as many
 * compressed ones as one token can list.  Reserved; touched as far as contexts go. */
#define ROWS_READ_MAX (ATTENDED_MAX + SPAN_TOKENS_MAX)

/* Keys scored together by one thread, and the most tokens for which it reads packed ones once. */
#define INDEX_CHUNK  256
#define INDEX_TOKENS 8

/* One thread's own memory. */
struct cpu_scratch {
    float *slab;        /* owns; [ROW_BLOCK, limits.cols] */
    const float **keys; /* owns; [ATTENDED_MAX] */
    float *scores;      /* owns; [WEIGHTED_HEADS, ATTENDED_MAX + 16] */
    float *index_dots;  /* owns; [INDEX_HEADS_MAX, INDEX_CHUNK] */
    float *index_keys;  /* owns; [INDEX_CHUNK, INDEX_HEAD_DIM] */
    int32_t *heap;      /* owns; [INDEX_TOPK_MAX] */
    float *streams;     /* owns; [HC_MULT * hidden] of one token, rounded */
    float *tile;        /* owns; [ATTN_TILE + WEIGHTED_HEADS, HEAD_DIM] keys and queries in bf16 */
    float *partial;     /* owns; [2 * WEIGHTED_HEADS, HEAD_DIM] sums of a tile and of a split */

    /* What this thread did since the last cpu_testify, in units of whatever job it was. */
    uint32_t seen[PRECISION_ROWS][PRECISION_VALUES_MAX];
    double used[PRECISION_ROWS]; /* the parameter, where a row has one */
};

struct cpu_backend {
    struct backend base; /* first */
    const struct cpu_vector *v;
    struct pool *pool; /* owns */
    struct backend_limits limits;
    struct cpu_scratch *threads; /* owns; [pool_threads] */

    struct witness_table witness;
    struct meeting *meeting; /* borrows; of the ranks that this is one of; NULL: none */
    int32_t rank;

    float *rounded;        /* owns; [tokens, cols] a linear's input after round_in */
    float *rounded_shared; /* owns; [tokens, hidden] the shared experts' input */
    float *rounded_groups; /* owns; [tokens, group_cols] the grouped output's input */
    float *mix_weights;    /* owns; [HC_MIX, cols] rounded hyper-connection weights */
    const float **x_rows;  /* owns; [tokens * max(top, groups)] */
    float **y_rows;        /* owns; [LINEAR_OUTS_MAX, tokens * top] */
    double *index_scores;  /* owns; [CPU_INDEX_SCORES_MAX] */
    float *rows;           /* owns; [ROWS_READ_MAX, HEAD_DIM] entries that attention reads */
    const void **rows_at;  /* owns; [ROWS_READ_MAX] where those lie */
    float *router;         /* owns; [tokens, experts] */

    /* The expert layer, entries (token, choice) sorted by expert */
    int32_t *entry_at;    /* owns; [experts + 1] first entry of each expert */
    int32_t *active;      /* owns; [experts] experts that have entries */
    int32_t *entry_token; /* owns; [tokens * top] */
    int32_t *entry_of;    /* owns; [tokens, top] */
    float *entry_weight;  /* owns; [tokens * top] */
    float *gate, *up;     /* own; [tokens * top, inner] */
    float *down;          /* owns; [tokens * top, hidden] */

    struct sampler sampler; /* scratch; empty before the first pick */
};

/* ---- witnesses: the code that did the arithmetic says so, the operation adds it up ------------
 */

static inline void cpu_saw(struct cpu_scratch *s, enum precision_row row, int value)
{
    s->seen[row][value]++;
}
static inline void cpu_saw_parameter(struct cpu_scratch *s, enum precision_row row, int value,
                                     double parameter)
{
    s->seen[row][value]++;
    s->used[row] = parameter;
}
/* A rounding, as the value that it is of the row. */
void cpu_saw_round(struct cpu_scratch *s, enum precision_row row, enum round did);
/* The roundings of an entry or an index key: of all channels, then of some of them. */
void cpu_saw_entry(struct cpu_scratch *s, enum round all, enum round part);
void cpu_saw_key(struct cpu_scratch *s, enum round all, enum round part);
/* Moves what all threads saw of a row into the table; n: rows of the operation. */
void cpu_testify(struct cpu_backend *b, enum precision_row row, const struct place *place,
                 int32_t n);

/* How many units one piece of a job gets: enough to be worth a hand-over, not more than a share. */
int32_t cpu_grain(const struct cpu_backend *b, int32_t units, int64_t work_of_unit);

/* y = x W^T for prepared rows; the work of linear, grouped and route. */
struct cpu_product {
    struct tensor w;
    const float *const *x; /* [n] */
    float *const *y;       /* [n] */
    int32_t n;
    enum round round_out;
    bool precise;
    enum precision_row round_row, sum_row; /* whose round_out and precise these are */
};
void cpu_products_run(struct cpu_backend *b, const struct cpu_product *products, int32_t n);
/* x after a rounding: x itself, or `to` [n, width], which holds it then. */
const float *cpu_rounded(struct cpu_backend *b, enum precision_row row, enum round round,
                         const float *x, int32_t n, int32_t width, float *to);
void cpu_product_rows(const struct cpu_backend *b, const struct cpu_product *product, int thread,
                      int32_t row0, int32_t row1);

/* P1 over one row; returns the rounding done. */
enum round cpu_norm_row(const struct cpu_vector *v, const float *x, const struct tensor *weight,
                        int32_t n, enum round round, float *out);
/* P8 over the ROPE_HEAD_DIM values at x; inverse turns back. */
enum round cpu_rope_row(const struct cpu_vector *v, float *x, const double *rope, enum round round,
                        bool inverse);

void cpu_embed(struct backend *b, const struct embed_params *p);
void cpu_rms_norm(struct backend *b, const struct rms_norm_params *p);
void cpu_linear(struct backend *b, const struct linear_params *p);
void cpu_grouped(struct backend *b, const struct grouped_params *p);

void cpu_hc_pre(struct backend *b, const struct hc_pre_params *p);
void cpu_hc_post(struct backend *b, const struct hc_post_params *p);
void cpu_hc_head(struct backend *b, const struct hc_head_params *p);
void cpu_mtp_join(struct backend *b, const struct mtp_join_params *p);

void cpu_witness_read(struct backend *b, struct witness_table *out);

void cpu_rope_table(struct backend *b, const struct rope_table_params *p);
void cpu_query(struct backend *b, const struct query_params *p);
void cpu_kv_store(struct backend *b, const struct kv_store_params *p);
void cpu_attention(struct backend *b, const struct attention_params *p);

void cpu_compressor_store(struct backend *b, const struct compressor_store_params *p);
void cpu_compressor_pool(struct backend *b, const struct compressor_pool_params *p);
void cpu_index_query(struct backend *b, const struct index_query_params *p);
void cpu_index_select(struct backend *b, const struct index_select_params *p);

void cpu_route(struct backend *b, const struct route_params *p);
void cpu_experts(struct backend *b, const struct experts_params *p);

void cpu_meet(struct backend *b, struct meeting *meeting, int32_t rank);
void cpu_gather(struct backend *b, const struct gather_params *p);

#endif
