/*
 * The indexer on the GPU (model.md (14)-(16)): scores of every visible block, and the best of them,
 * the lowest index on ties, in ascending order.
 *
 * Scores are doubles, as on the CPU: products of FP4 values and bfloat16 weights are exact there,
 * so that equal scores tie.  The best are found by their bits, most significant first (radix
 * select), and written in order by counting what stands in front.
 */
#include "kernels/cuda/rows.cuh"

/* Keys of a block, one a thread. */
#define SCORE_KEYS     128
#define SELECT_THREADS 512
#define RADIX_BITS     8
#define RADIX_BINS     (1 << RADIX_BITS)

static __host__ __device__ inline int32_t visible_blocks(const struct index_select_params &p,
                                                         int32_t token)
{
    return (int32_t)(((int64_t)p.position + token + 1) / RATIO_CSA);
}

/* ---- scores --------------------------------------------------------------------------------- */

template <typename T> static __device__ inline float dot_index(const float *q, const float key[])
{
    T sum[4] = {};
#pragma unroll
    for (int c = 0; c < INDEX_HEAD_DIM; c += 4) {
        float a[4];
        load4(q + c, a);
        for (int i = 0; i < 4; i++)
            sum[i] = fma((T)a[i], (T)key[c + i], sum[i]);
    }
    return (float)((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

/* grid: keys / SCORE_KEYS, tokens from `token` on.  shared: queries [heads, INDEX_HEAD_DIM] */
/* Sums over heads are in double, where the products of FP4 values and bf16 weights are exact, so
 * that equal scores tie. */
template <typename T>
static __device__ double add_heads(const index_select_params &p, const float *queries,
                                   const float *weights, const float key[],
                                   enum precision_INDEX_SCORE *did)
{
    double scale = 1.0 / sqrt((double)INDEX_HEAD_DIM * p.heads), score = 0;
    for (int32_t h = 0; h < p.heads; h++) {
        float dot = dot_index<T>(queries + h * INDEX_HEAD_DIM, key);
        score += (double)fmaxf(dot, 0.0f) * (weights[h] * scale);
    }
    *did = INDEX_SCORE_FP32;
    return score;
}

/* As the published code: products, weights, weighted terms and their sum are stored in bf16. */
template <typename T>
static __device__ double add_heads_bf16(const index_select_params &p, const float *queries,
                                        const float *weights, const float key[],
                                        enum precision_INDEX_SCORE *did)
{
    double scale = 1.0 / sqrt((double)INDEX_HEAD_DIM * p.heads);
    float sum = 0;
    for (int32_t h = 0; h < p.heads; h++) {
        float weight = round_bf16((float)(weights[h] * scale));
        float dot = round_bf16(dot_index<T>(queries + h * INDEX_HEAD_DIM, key));
        sum += round_bf16((dot > 0 ? dot : 0) * weight);
    }
    *did = INDEX_SCORE_BF16;
    return round_bf16(sum);
}

template <typename T>
static __global__ void __launch_bounds__(SCORE_KEYS)
    score_keys(struct index_select_params p, int32_t token, int32_t stride, double *scores,
               struct testimony say)
{
    extern __shared__ float queries[];
    int64_t t = token + (int32_t)blockIdx.y;
    int32_t key = (int32_t)blockIdx.x * SCORE_KEYS + (int32_t)threadIdx.x;
    int32_t n = visible_blocks(p, (int32_t)t);
    if ((int32_t)blockIdx.x * SCORE_KEYS >= n)
        return;
    for (int i = (int)threadIdx.x; i < p.heads * INDEX_HEAD_DIM; i += SCORE_KEYS)
        queries[i] = p.q[t * p.heads * INDEX_HEAD_DIM + i];
    __syncthreads();
    float k[INDEX_HEAD_DIM];
    const float *row = p.keys + (int64_t)min(key, n - 1) * INDEX_HEAD_DIM;
#pragma unroll
    for (int c = 0; c < INDEX_HEAD_DIM; c += 4)
        load4(row + c, k + c);
    enum precision_INDEX_SCORE did;
    const float *weights = p.weights + t * p.heads;
    double score = p.score == INDEX_SCORE_BF16 ? add_heads_bf16<T>(p, queries, weights, k, &did)
                                               : add_heads<T>(p, queries, weights, k, &did);
    /* the last token sees the most: its first block always scores */
    bool first = t == p.n - 1 && blockIdx.x == 0 && threadIdx.x == 0;
    testify(say, first, ROW_INDEX_SCORE, did);
    if (key < n)
        scores[(int64_t)blockIdx.y * stride + key] = score;
}

/* ---- the best ------------------------------------------------------------------------------- */

/* What one pass of a radix selection sees of a score: sign, exponent and 3 bits of fraction of a
 * float32. */
static __device__ inline double roughly(double x)
{
    return __uint_as_float(__float_as_uint((float)x) & 0xfff00000u);
}

/* Bits in the order of the numbers; a NaN ranks lowest, and the zeros are one. */
template <bool EXACT> static __device__ inline uint64_t ordered(double x)
{
    x = EXACT ? x : roughly(x);
    uint64_t bits = (uint64_t)__double_as_longlong((isnan(x) ? -INFINITY : x) + 0.0);
    return bits >> 63 ? ~bits : bits | (UINT64_C(1) << 63);
}

/* The bin in which the `wanted`th of the highest lies; wanted becomes its place within. */
static __device__ void find_bin(const int32_t *bins, int32_t *bin, int32_t *wanted)
{
    for (int at = RADIX_BINS - 1; at >= 0; at--) {
        if (bins[at] >= *wanted) {
            *bin = at;
            return;
        }
        *wanted -= bins[at];
    }
}

/* Exclusive sums over the block of what each thread has. */
static __device__ int32_t block_before(int32_t mine, int32_t *shared)
{
    int32_t t = (int32_t)threadIdx.x;
    shared[t] = mine;
    __syncthreads();
    for (int32_t step = 1; step < SELECT_THREADS; step *= 2) {
        int32_t add = t >= step ? shared[t - step] : 0;
        __syncthreads();
        shared[t] += add;
        __syncthreads();
    }
    int32_t before = shared[t] - mine;
    __syncthreads();
    return before;
}

/* Writes those whose masked bits are above `prefix`, and the first `equal` that have them. */
template <bool EXACT>
static __device__ void write_best(const double *score, int32_t n, uint64_t prefix, uint64_t mask,
                                  int32_t equal, int32_t *shared, int32_t *out)
{
    int32_t each = (n + SELECT_THREADS - 1) / SELECT_THREADS;
    int32_t from = min((int32_t)threadIdx.x * each, n), to = min(from + each, n);
    int32_t above = 0, same = 0;
    for (int32_t i = from; i < to; i++) {
        uint64_t bits = ordered<EXACT>(score[i]) & mask;
        above += bits > prefix;
        same += bits == prefix;
    }
    int32_t above_before = block_before(above, shared);
    int32_t same_before = block_before(same, shared);
    for (int32_t i = from; i < to; i++) {
        uint64_t bits = ordered<EXACT>(score[i]) & mask;
        if (bits > prefix || (bits == prefix && same_before < equal))
            out[above_before + min(same_before, equal)] = i;
        above_before += bits > prefix;
        same_before += bits == prefix;
    }
}

/* One block a token. */
template <bool EXACT>
static __global__ void __launch_bounds__(SELECT_THREADS)
    select_best(struct index_select_params p, int32_t token, int32_t stride, const double *scores,
                struct testimony say)
{
    __shared__ int32_t bins[RADIX_BINS], shared[SELECT_THREADS], bin, wanted;
    int64_t t = token + (int32_t)blockIdx.x;
    int32_t n = visible_blocks(p, (int32_t)t), *out = p.selected + t * p.topk;
    const double *score = scores + (int64_t)blockIdx.x * stride;
    if (threadIdx.x == 0)
        p.n_selected[t] = min(n, p.topk);
    if (n <= p.topk) {
        for (int32_t i = (int32_t)threadIdx.x; i < n; i += SELECT_THREADS)
            out[i] = i;
        return;
    }
    uint64_t prefix = 0, mask = 0;
    if (threadIdx.x == 0)
        wanted = p.topk;
    for (int shift = 64 - RADIX_BITS; shift >= 0; shift -= RADIX_BITS) {
        for (int i = (int)threadIdx.x; i < RADIX_BINS; i += SELECT_THREADS)
            bins[i] = 0;
        __syncthreads();
        for (int32_t i = (int32_t)threadIdx.x; i < n; i += SELECT_THREADS) {
            uint64_t bits = ordered<EXACT>(score[i]);
            if ((bits & mask) == prefix)
                atomicAdd(&bins[bits >> shift & (RADIX_BINS - 1)], 1);
        }
        __syncthreads();
        if (threadIdx.x == 0)
            find_bin(bins, &bin, &wanted);
        __syncthreads();
        prefix |= (uint64_t)bin << shift;
        mask |= (uint64_t)(RADIX_BINS - 1) << shift;
        bool all = bins[bin] == wanted; /* nobody in this bin is left out */
        __syncthreads();
        if (all)
            break;
    }
    write_best<EXACT>(score, n, prefix, mask, wanted, shared, out);
    testify(say, t == p.n - 1 && threadIdx.x == 0, ROW_INDEX_TOPK,
            EXACT ? INDEX_TOPK_EXACT : INDEX_TOPK_APPROXIMATE);
}

void cuda_index_select(struct backend *base, const struct index_select_params *p)
{
    struct cuda_backend *b = cuda_of(base);
    ASSERT(p->topk >= 1 && p->topk <= b->limits.topk && p->heads <= b->limits.index_heads);
    ASSERT(p->position <= POSITIONS_MAX - p->n && p->heads <= INDEX_HEADS_MAX);
    int32_t most = visible_blocks(*p, p->n - 1);
    int32_t stride = most > p->topk ? ceil_div(most, SCORE_KEYS) * SCORE_KEYS : 1;
    int32_t held = INDEX_SCORES_MAX / stride;
    size_t shared = (size_t)p->heads * INDEX_HEAD_DIM * sizeof(float);
    auto score = p->precise ? score_keys<double> : score_keys<float>;
    auto select = p->choice == INDEX_TOPK_EXACT ? select_best<true> : select_best<false>;
    struct testimony say = testimony_of(b, &p->place, p->n);
    for (int32_t token = 0; token < p->n; token += held) {
        int32_t n = p->n - token < held ? p->n - token : held;
        if (most > p->topk) { /* else everything visible is selected, whatever it scores */
            dim3 grid((unsigned)(stride / SCORE_KEYS), (unsigned)n);
            score<<<grid, SCORE_KEYS, shared, b->stream>>>(*p, token, stride, b->index_scores, say);
            launched("score_keys");
        }
        select<<<(unsigned)n, SELECT_THREADS, 0, b->stream>>>(*p, token, stride, b->index_scores,
                                                              say);
        launched("select_best");
    }
}
