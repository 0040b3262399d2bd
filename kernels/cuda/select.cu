/*
 * The indexer on the GPU (model.md (14)-(16)): scores of every visible block, and the best of them,
 * the lowest index on ties, in ascending order.
 *
 * Scores are doubles, as on the CPU: products of FP4 values and bfloat16 weights are exact there,
 * so that equal scores tie.  The best are found by their bits, most significant first (radix
 * select), and written in order by counting what stands in front.
 */
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/spans.cuh"

/* Keys of a block when four threads share one, and when none is shared. */
#define SHARED_KEYS 32
#define ALONE_KEYS  128
#define QUARTERS    4
/* Tokens from which on the multiprocessors are busy without sharing. */
#define ALONE_TOKENS   16
#define SELECT_THREADS 512
#define RADIX_BITS     8
#define RADIX_BINS     (1 << RADIX_BITS)

static __device__ inline int32_t visible_blocks(const span_row &r)
{
    return (int32_t)((position_of(r) + 1) / RATIO_CSA);
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

/* Heads of a quarter: from..to. */
struct head_range {
    int32_t from, to;
};

/* Sums over heads are in double, where the products of FP4 values and bf16 weights are exact, so
 * that equal scores tie. */
template <typename T>
static __device__ double add_heads(const index_select_params &p, const float *queries,
                                   const float *weights, const float key[], head_range heads)
{
    double scale = 1.0 / sqrt((double)INDEX_HEAD_DIM * p.heads), score = 0;
    for (int32_t h = heads.from; h < heads.to; h++) {
        float dot = dot_index<T>(queries + h * INDEX_HEAD_DIM, key);
        score += (double)fmaxf(dot, 0.0f) * (weights[h] * scale);
    }
    return score;
}

/* As the published code: products, weights and weighted terms are stored in bf16. */
template <typename T>
static __device__ double add_heads_bf16(const index_select_params &p, const float *queries,
                                        const float *weights, const float key[], head_range heads)
{
    double scale = 1.0 / sqrt((double)INDEX_HEAD_DIM * p.heads), score = 0;
    for (int32_t h = heads.from; h < heads.to; h++) {
        float weight = round_bf16((float)(weights[h] * scale));
        float dot = round_bf16(dot_index<T>(queries + h * INDEX_HEAD_DIM, key));
        score += round_bf16((dot > 0 ? dot : 0) * weight);
    }
    return score;
}

/* A thread takes a key and one quarter of the heads (SHARES 4: few tokens) or all four of them
 * (SHARES 1), whose sums are added the same way.
 * grid: keys / KEYS, tokens from `token` on.  shared: queries [heads, INDEX_HEAD_DIM] */
template <typename T, bool BF16, int KEYS, int SHARES>
static __global__ void __launch_bounds__(KEYS *SHARES)
    score_keys(struct index_select_params p, const __grid_constant__ struct spans spans,
               int32_t token, int32_t stride, double *scores, struct testimony say)
{
    grid_begin();
    extern __shared__ float queries[];
    __shared__ double parts[QUARTERS][KEYS];
    int64_t t = token + (int32_t)blockIdx.y;
    span_row r = span_row_of(spans, t);
    int32_t key0 = (int32_t)blockIdx.x * KEYS, n = visible_blocks(r);
    int32_t mine = warp_id() % (KEYS / WARP) * WARP + lane_id();
    int32_t share = warp_id() / (KEYS / WARP), each = ceil_div(p.heads, QUARTERS);
    if (key0 >= n || n <= p.topk) /* all of a few are selected, whatever they score */
        return;
    for (int i = (int)threadIdx.x * 4; i < p.heads * INDEX_HEAD_DIM; i += KEYS * SHARES * 4)
        *(float4 *)(queries + i) = *(const float4 *)(p.q + t * p.heads * INDEX_HEAD_DIM + i);
    __syncthreads();
    float k[INDEX_HEAD_DIM];
    const float *row = r.state.memory[0] + (int64_t)min(key0 + mine, n - 1) * INDEX_HEAD_DIM;
#pragma unroll
    for (int c = 0; c < INDEX_HEAD_DIM; c += 4)
        load4(row + c, k + c);
    const float *weights = p.weights + t * p.heads;
    for (int32_t quarter = share; quarter < QUARTERS; quarter += SHARES) {
        head_range heads = {quarter * each, min(p.heads, (quarter + 1) * each)};
        parts[quarter][mine] = BF16 ? add_heads_bf16<T>(p, queries, weights, k, heads)
                                    : add_heads<T>(p, queries, weights, k, heads);
    }
    __syncthreads();
    /* a sequence's last token sees the most: its first block always scores */
    bool first = r.row == p.n - 1 && blockIdx.x == 0 && threadIdx.x == 0;
    testify(say, first, ROW_INDEX_SCORE, BF16 ? INDEX_SCORE_BF16 : INDEX_SCORE_FP32);
    if (share != 0 || key0 + mine >= n)
        return;
    double score = 0;
    for (int i = 0; i < QUARTERS; i++)
        score += parts[i][mine];
    scores[(int64_t)blockIdx.y * stride + key0 + mine] = BF16 ? round_bf16((float)score) : score;
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

/* The bin in which the `wanted`th of the highest lies; wanted becomes its place within.  By one
 * warp, whose lanes take bins from the top. */
static __device__ void find_bin(const int32_t *bins, int32_t *bin, int32_t *wanted)
{
    constexpr int EACH = RADIX_BINS / WARP;
    int32_t top = RADIX_BINS - 1 - lane_id() * EACH, mine = 0, want = *wanted;
    for (int i = 0; i < EACH; i++)
        mine += bins[top - i];
    int32_t above = mine; /* with those of the lanes before */
    for (int step = 1; step < WARP; step *= 2) {
        int32_t other = __shfl_up_sync(ALL_LANES, above, step);
        above += lane_id() >= step ? other : 0;
    }
    above -= mine;
    __syncwarp();
    if (above < want && above + mine >= want) { /* one lane */
        want -= above;
        while (bins[top] < want)
            want -= bins[top--];
        *bin = top;
        *wanted = want;
    }
    __syncwarp();
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
    select_best(struct index_select_params p, const __grid_constant__ struct spans spans,
                int32_t token, int32_t stride, const double *scores, struct testimony say)
{
    grid_begin();
    __shared__ int32_t bins[RADIX_BINS], shared[SELECT_THREADS], bin, wanted;
    int64_t t = token + (int32_t)blockIdx.x;
    span_row r = span_row_of(spans, t);
    int32_t n = visible_blocks(r), *out = p.selected + t * p.topk;
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
        if (warp_id() == 0)
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
    testify(say, r.row == p.n - 1 && threadIdx.x == 0, ROW_INDEX_TOPK,
            EXACT ? INDEX_TOPK_EXACT : INDEX_TOPK_APPROXIMATE);
}

typedef void score_fn(struct index_select_params, struct spans, int32_t, int32_t, double *,
                      struct testimony);

template <bool BF16> static score_fn *score_kernel(bool precise, bool alone)
{
    if (precise)
        return score_keys<double, BF16, SHARED_KEYS, QUARTERS>;
    return alone ? score_keys<float, BF16, ALONE_KEYS, 1>
                 : score_keys<float, BF16, SHARED_KEYS, QUARTERS>;
}

static void select_run(struct cuda_backend *b, const void *params, const struct spans *spans)
{
    const struct index_select_params *p = (const struct index_select_params *)params;
    int32_t most = p->reach / RATIO_CSA, rows = spans_rows(*spans);
    int32_t stride = most > p->topk ? ceil_div(most, ALONE_KEYS) * ALONE_KEYS : 1;
    int32_t held = INDEX_SCORES_MAX / stride;
    size_t shared = (size_t)p->heads * INDEX_HEAD_DIM * sizeof(float);
    bool alone = !p->precise && rows >= ALONE_TOKENS;
    int32_t keys = alone ? ALONE_KEYS : SHARED_KEYS, threads = alone ? keys : keys * QUARTERS;
    auto score = p->score == INDEX_SCORE_BF16 ? score_kernel<true>(p->precise, alone)
                                              : score_kernel<false>(p->precise, alone);
    auto select = p->choice == INDEX_TOPK_EXACT ? select_best<true> : select_best<false>;
    struct testimony say = testimony_of(b, &p->place, p->n);
    for (int32_t token = 0; token < rows; token += held) {
        int32_t n = rows - token < held ? rows - token : held;
        if (most > p->topk) { /* else everything visible is selected, whatever it scores */
            dim3 grid((unsigned)(stride / keys), (unsigned)n);
            launch(b, "score_keys", score, grid, (unsigned)threads, shared, *p, *spans, token,
                   stride, b->index_scores, say);
        }
        launch(b, "select_best", select, (unsigned)n, SELECT_THREADS, 0, *p, *spans, token, stride,
               b->index_scores, say);
    }
}

static const struct span_operation SELECT = {
    select_run,
    sizeof(struct index_select_params),
    {MEMBER(index_select_params, heads), MEMBER(index_select_params, topk),
     MEMBER(index_select_params, place), MEMBER(index_select_params, score),
     MEMBER(index_select_params, choice), MEMBER(index_select_params, precise)},
    offsetof(struct index_select_params, reach)};

void cuda_index_select(struct backend *base, const struct index_select_params *p)
{
    struct cuda_backend *b = cuda_of(base);
    ASSERT(p->topk >= 1 && p->topk <= b->limits.topk && p->heads <= b->limits.index_heads);
    ASSERT(p->reach <= POSITIONS_MAX && p->heads <= INDEX_HEADS_MAX);
    size_t n = (size_t)p->n, heads = n * (size_t)p->heads;
    struct span_call call = {&SELECT, p, p->n, {p->at, {(float *)p->keys}}};
    call.rows[0] = {p->q, heads * INDEX_HEAD_DIM * sizeof *p->q};
    call.rows[1] = {p->weights, heads * sizeof *p->weights};
    call.rows[2] = {p->selected, n * (size_t)p->topk * sizeof *p->selected};
    call.rows[3] = {p->n_selected, n * sizeof *p->n_selected};
    spans_call(b, &call);
}
