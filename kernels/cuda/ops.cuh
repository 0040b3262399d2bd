/*
 * What the files of the CUDA backend share: its struct, checked calls, the device's view of a
 * weight, and the operations (one group a file).  Rounding and row helpers are in rows.cuh.
 */
#ifndef V4BOX_KERNELS_CUDA_OPS_CUH
#define V4BOX_KERNELS_CUDA_OPS_CUH

#include <stdbool.h>

#include "config/limits.h"
#include "kernels/check.h"
#include "kernels/cuda/cuda.h"

#include <cuda_runtime.h>

/* A GPU failure ends the process: with a reason, and not as a broken invariant. */
#define CUDA_CHECK(call) cuda_check((call), #call, __FILE__, __LINE__)
void cuda_check(cudaError_t error, const char *what, const char *file, int line);

/* Lanes of a warp. */
#define WARP 32
/* What sm_120 gives a block; H200 would hide a larger wish (227 KB). */
#define SHARED_BYTES_MAX 101376
/* Values of a row that a warp handles at once: four a lane. */
#define CHUNK 128

/* A weight as the kernels see it; FP4 is re-ordered (weights.cu). */
struct weight {
    const void *data;
    const uint8_t *scale;
    int32_t rows, cols;
    enum store store;
    float global; /* of NVFP4 */
};

struct expert_weights {
    struct weight w1, w2, w3;
};

/* Rows of activations for the tensor cores (products.cu): sums of up to three 16-bit numbers. */
#define OPERAND_PARTS 3
struct operand {
    uint16_t *part[OPERAND_PARTS]; /* [rows, cols] float16, or bfloat16 */
    float *scale;                  /* [rows, cols / CHUNK] of float16; NULL: bfloat16 */
    uint8_t *n_parts;              /* [rows] */
    size_t bytes;                  /* of all of it, which lies in a row */
};

struct weight_map; /* host address -> device copy */
struct recordings; /* steps that can run again */
struct picks;      /* memory that tokens are picked in */

/* What an operation's kernels write their evidence into (kernels/witness.h), and for which rows. */
struct testimony {
    struct witness_table *table; /* device */
    struct place place;
    int32_t n;
};
/* A row of the precision table, or nothing to say. */
#define SAY_NOTHING (-1)

/* Activations that a kernel reads and writes.  What only kernels without a footprint write, or
 * copies, need not be named; nor weights, nor evidence, which is added up atomically. */
struct memory {
    const void *at;
    size_t bytes;
};
#define READS_MAX  3
#define WRITES_MAX 8
struct footprint {
    struct memory reads[READS_MAX], writes[WRITES_MAX];
};
/* Kernels that may run side by side. */
#define OPEN_MAX 6

struct product_launch;
struct span_calls;

struct cuda_backend {
    struct backend base; /* first */
    struct backend_limits limits;
    cudaStream_t stream;             /* everybody else's is stream_of */
    struct product_launch *held;     /* owns; products that wait for others of the same row */
    bool holds;                      /* any */
    struct span_calls *spans;        /* owns; calls that wait for those of other sequences */
    bool holds_spans;                /* any; never both */
    struct footprint open[OPEN_MAX]; /* of the last kernels: those that may run */
    int n_open;                      /* 0: one without a footprint may run */
    char variant[64];
    struct weight_map *weights;    /* owns */
    struct peers *peers;           /* owns; NULL: this is no rank of several */
    struct recordings *recordings; /* owns */
    struct picks *picks;           /* owns */
    struct witness_table *witness; /* in scratch */

    void *scratch;               /* owns (device); everything below lies in it */
    float *rounded;              /* [tokens * top, cols] input after round_in, for precise sums */
    struct operand half, bfloat; /* [tokens * max(groups, top), cols] */
    double *mixes;               /* [tokens, MIX_PARTS, HC_MIX + 1] */
    void *attention_states;      /* [ATTENTION_STATES_BYTES] */
    double *index_scores;        /* [INDEX_SCORES_MAX] */
    float *router;               /* [tokens, experts] */
    int32_t *entry_token;        /* [tokens * top] entries (token, choice) sorted by expert */
    int32_t *entry_of;           /* [tokens, top] */
    float *entry_weight;         /* [tokens * top] */
    struct item *items;          /* [tokens * top] */
    int32_t *n_items;            /* [1] */
    float *gate, *up;            /* [tokens * top, inner] */
    float *down;                 /* [tokens * top, hidden] */
};

/* Parts of the columns that a mix of streams is summed in. */
#define MIX_PARTS 4

/* Partial results of attention held at once: of HEADS_MAX heads in double, a token at
 * POSITIONS_MAX takes 66 MiB. */
#define ATTENTION_STATES_BYTES ((size_t)256 << 20)

/* Index scores held at once (128 MiB of doubles). */
#define INDEX_SCORES_MAX (16 << 20)

/* Some entries of one expert, as many as one tile of a product takes: of two sizes. */
#define ITEM_FEW  8
#define ITEM_MANY 64
struct item {
    int32_t expert, first, n;
};

static inline struct cuda_backend *cuda_of(struct backend *b)
{
    return (struct cuda_backend *)b;
}

static __host__ __device__ inline int32_t ceil_div(int64_t a, int64_t b)
{
    return (int32_t)((a + b - 1) / b);
}

static inline struct testimony testimony_of(struct cuda_backend *b, const struct place *place,
                                            int32_t n)
{
    ASSERT(place->n_decode >= 0 && place->n_decode <= n);
    return {b->witness, *place, n};
}

/* After each launch: a refused one would otherwise show far away. */
static inline void launched(const char *kernel)
{
    cuda_check(cudaPeekAtLastError(), kernel, "launch", 0);
}

/* Enqueue what is held back (products.cu, spans.cu). */
void products_release(struct cuda_backend *b);
void spans_release(struct cuda_backend *b);

/* The stream, with everything on it that was asked for before. */
static inline cudaStream_t stream_of(struct cuda_backend *b)
{
    if (b->holds)
        products_release(b);
    if (b->holds_spans)
        spans_release(b);
    return b->stream;
}

/* Starts a kernel whose blocks may come onto the multiprocessors while the one before still runs:
 * each of them waits in grid_begin for its results.  Every kernel that is launched here must, also
 * where it has nothing to do, as the one behind it waits for it alone. */
template <typename... P, typename... A>
static inline void launch_early(cudaStream_t stream, const char *name, void (*kernel)(P...),
                                dim3 grid, dim3 threads, size_t shared, const A &...args)
{
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {grid, threads, shared, stream, &early, 1};
    cuda_check(cudaLaunchKernelEx(&config, kernel, P(args)...), name, "launch", 0);
}

template <typename... P, typename... A>
static inline void launch(struct cuda_backend *b, const char *name, void (*kernel)(P...), dim3 grid,
                          dim3 threads, size_t shared, const A &...args)
{
    cudaStream_t stream = stream_of(b);
    b->n_open = 0;
    launch_early(stream, name, kernel, grid, threads, shared, args...);
}

/* Whether kernels of both footprints may run at once. */
static inline bool apart(const struct memory *a, int n_a, const struct memory *b, int n_b)
{
    for (int i = 0; i < n_a * n_b; i++) {
        const struct memory &x = a[i / n_b], &y = b[i % n_b];
        if ((uintptr_t)x.at < (uintptr_t)y.at + y.bytes &&
            (uintptr_t)y.at < (uintptr_t)x.at + x.bytes)
            return false;
    }
    return true;
}

/* Whether no kernel that may run when the next one begins writes this memory, or reads it if the
 * next one writes it. */
static inline bool settled(const struct cuda_backend *b, const struct memory *m, int n, bool writes)
{
    bool all = b->n_open > 0;
    for (int i = 0; i < b->n_open; i++)
        all = all && apart(m, n, b->open[i].writes, WRITES_MAX) &&
              (!writes || apart(m, n, b->open[i].reads, READS_MAX));
    return all;
}

/* The same for a kernel with a footprint, whose last parameter says whether it needs nothing of
 * those that may still run: then it waits for them at its end. */
template <typename... P, typename... A>
static inline void launch_beside(struct cuda_backend *b, const struct footprint &f,
                                 const char *name, void (*kernel)(P...), dim3 grid, dim3 threads,
                                 size_t shared, const A &...args)
{
    cudaStream_t stream = stream_of(b);
    bool beside = b->n_open < OPEN_MAX && settled(b, f.reads, READS_MAX, false) &&
                  settled(b, f.writes, WRITES_MAX, true);
    b->n_open = beside ? b->n_open : 0;
    b->open[b->n_open++] = f;
    launch_early(stream, name, kernel, grid, threads, shared, args..., beside);
}

/* From here on everything that earlier kernels wrote is there, and the blocks of the next kernel
 * may come.  Not before: blocks of several kernels that all wait are in each other's way. */
static __device__ inline void grid_begin(void)
{
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;");
}

/* Of a kernel that may run beside those before it: grid_begin, or nothing to wait for. */
static __device__ inline void grid_begin(bool beside)
{
    if (beside)
        asm volatile("griddepcontrol.launch_dependents;");
    else
        grid_begin();
}

/* Its end, in a thread of each block at least: who waits for this kernel waits for those before it
 * too. */
static __device__ inline void grid_end(bool beside)
{
    if (beside)
        asm volatile("griddepcontrol.wait;" ::: "memory");
}

/* ---- weights (weights.cu) ------------------------------------------------------------------- */
struct weight_map *weight_map_create(void);
void weight_map_destroy(struct weight_map *map);
/* The device's copy of a tensor, made now if there is none. */
struct weight weight_get(struct cuda_backend *b, const struct tensor *t);
const float *weight_floats(struct cuda_backend *b, const struct tensor *t);
/* The same for a table of experts; device memory. */
const struct expert_weights *weight_experts(struct cuda_backend *b, const struct expert *experts,
                                            int32_t n);

const char *cuda_load(struct backend *b, const struct load_params *p);

/* ---- steps that come again (record.cu) ------------------------------------------------------- */
struct recordings *recordings_create(void);
void recordings_destroy(struct recordings *r);
/* Whether what is launched now goes into a recording. */
bool recording_runs(const struct recordings *r);
bool cuda_replay(struct backend *b, const void *key, size_t bytes);
void cuda_replay_end(struct backend *b);

/* ---- tokens (picks.cu) ----------------------------------------------------------------------- */
/* @return NULL: no memory */
struct picks *picks_create(const struct backend_limits *limits);
void picks_destroy(struct picks *picks);

/* ---- products (products.cu) ----------------------------------------------------------------- */
/* y = x W^T over rows that `prepare` made ready. */
struct product {
    struct weight w;
    float *y;         /* [x rows / groups, w.rows] */
    enum round round; /* of y: ROUND_NONE or ROUND_BF16 */
    bool precise;
    int round_row, sum_row; /* of the precision table */
};
struct products {
    struct product list[LINEAR_OUTS_MAX];
    int32_t n;      /* of the list */
    int32_t tokens; /* rows of y */
    int32_t groups; /* row r of x belongs to token r / groups and to rows of group r % groups */
    const float *x; /* [tokens * groups, cols] before round_in */
    enum round round_in;
    int in_row; /* of the precision table, or SAY_NOTHING */
    struct testimony say;
};
void products_run(struct cuda_backend *b, const struct products *p);
struct product_launch *products_create(void);
void products_destroy(struct product_launch *held);
/* The same over the experts' items: w1 and w3 into gate and up, or w2 into down. */
struct expert_products {
    const struct expert_weights *experts; /* device */
    int32_t n_entries, n_experts, rows, cols;
    int32_t per_item;      /* entries of an item at most, a multiple of 8 */
    const int32_t *chosen; /* device [top] of the one token of the step; NULL: entries are sorted */
    int32_t top, n_routed;
    bool second, precise; /* second: w2 over gate, after SwiGLU */
    enum round round;     /* of y */
    struct testimony say;
};
void expert_products_run(struct cuda_backend *b, const struct expert_products *p);
/* Makes rows ready: rounds them, and splits them into what the tensor cores take. */
struct prepare {
    const float *x; /* [x_rows, cols]; row r is made of row r % x_rows */
    const float
        *up; /* NULL; else x is silu(min(x, limit)) * clamp(up) * weight, in front of it all */
    const float *weight; /* [other]; behind them it is 1 */
    double limit;
    int32_t rows, x_rows, cols;
    int32_t other;        /* from this row on, round_other and other_row */
    enum round round_mid; /* of the SwiGLU */
    enum round round_in, round_other;
    int in_row, other_row; /* of the precision table, or SAY_NOTHING */
    struct testimony say;
    bool precise;   /* of the SwiGLU */
    float *rounded; /* each NULL when nobody wants it */
    const struct operand *half, *bfloat;
};
void prepare_run(struct cuda_backend *b, const struct prepare *p);

/* ---- operations ----------------------------------------------------------------------------- */
void cuda_embed(struct backend *b, const struct embed_params *p);
void cuda_rms_norm(struct backend *b, const struct rms_norm_params *p);
void cuda_linear(struct backend *b, const struct linear_params *p);
void cuda_grouped(struct backend *b, const struct grouped_params *p);

void cuda_hc_pre(struct backend *b, const struct hc_pre_params *p);
void cuda_hc_post(struct backend *b, const struct hc_post_params *p);
void cuda_hc_head(struct backend *b, const struct hc_head_params *p);
void cuda_mtp_join(struct backend *b, const struct mtp_join_params *p);

void cuda_pick(struct backend *b, const struct pick_params *p);

void cuda_rope_table(struct backend *b, const struct rope_table_params *p);
void cuda_query(struct backend *b, const struct query_params *p);
void cuda_kv_store(struct backend *b, const struct kv_store_params *p);
void cuda_attention(struct backend *b, const struct attention_params *p);

void cuda_compressor_store(struct backend *b, const struct compressor_store_params *p);
void cuda_compressor_pool(struct backend *b, const struct compressor_pool_params *p);
void cuda_index_query(struct backend *b, const struct index_query_params *p);
void cuda_index_select(struct backend *b, const struct index_select_params *p);

void cuda_route(struct backend *b, const struct route_params *p);
void cuda_experts(struct backend *b, const struct experts_params *p);

#endif
