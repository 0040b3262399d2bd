/*
 * Hyper-connections on the GPU (model.md 2.2, 2.7) and the joint in front of a draft block (2.8).
 * All in double, as on the CPU.  The mixes are found by four blocks a row of fn, so that one
 * token's 1.6 MB come from many multiprocessors.
 */
#include "kernels/cuda/rows.cuh"

#define STREAM_THREADS 256
/* Loads of a thread that are on their way together. */
#define MIX_LOADS 4

static __device__ double sigmoid(double z)
{
    return 1.0 / (1.0 + exp(-z));
}

/* Roundings of the streams and weights that are multiplied, and of the result. */
struct mix_rounds {
    enum round in, out;
};

static mix_rounds mix_rounds_of(enum precision_HC_MIX mix)
{
    static const mix_rounds MIXES[] = {
        [HC_MIX_FP32] = {ROUND_NONE, ROUND_NONE},
        [HC_MIX_TF32] = {ROUND_TF32, ROUND_NONE},
        [HC_MIX_BF16] = {ROUND_BF16, ROUND_BF16},
    };
    static_assert(sizeof MIXES / sizeof *MIXES == HC_MIX_VALUES, "roundings for every value");
    return MIXES[mix];
}

#define MIX_STEP (STREAM_THREADS * 4)

/* A thread's next loads of a row. */
static __device__ inline void mix_load(const float *row, int32_t at, int32_t cols,
                                       float v[MIX_LOADS][4])
{
#pragma unroll
    for (int k = 0; k < MIX_LOADS; k++) {
        float4 none = {};
        *(float4 *)v[k] =
            at + k * MIX_STEP < cols ? *(const float4 *)(row + at + k * MIX_STEP) : none;
    }
}

/* A thread's part of row . flat: in double, or of rounded operands in float32.
 * w: the first loads of row */
static __device__ double mix_dot(const float *flat, const float *row, int32_t cols, enum round in,
                                 float w[MIX_LOADS][4], enum round *did)
{
    double sum = 0;
    float sum_rounded = 0;
    *did = ROUND_NONE;
    for (int32_t at = (int32_t)threadIdx.x * 4; at < cols; at += MIX_LOADS * MIX_STEP) {
        alignas(16) float v[MIX_LOADS][4];
        mix_load(flat, at, cols, v);
        if (at >= MIX_LOADS * MIX_STEP)
            mix_load(row, at, cols, w);
#pragma unroll
        for (int k = 0; k < MIX_LOADS; k++) {
            if (in != ROUND_NONE) { /* of single values: no lane needs another */
                *did = warp_round(in, v[k]);
                warp_round(in, w[k]);
            }
            for (int i = 0; i < 4; i++) {
                if (in == ROUND_NONE)
                    sum = fma((double)v[k][i], (double)w[k][i], sum);
                else
                    sum_rounded = fmaf(v[k][i], w[k][i], sum_rounded);
            }
        }
    }
    return in == ROUND_NONE ? sum : sum_rounded;
}

static __device__ int value_of_mix(enum round did)
{
    return did == ROUND_TF32 ? HC_MIX_TF32 : did == ROUND_BF16 ? HC_MIX_BF16 : HC_MIX_FP32;
}

/* mixes[t][part][r] = fn[r] . flat of a part of the columns for r < rows; [rows]: |flat|^2.
 * grid: rows + 1, tokens, parts */
static __global__ void mix_rows(const float *fn, int32_t rows, int32_t cols, const float *streams,
                                enum round in, double *mixes, struct testimony say)
{
    __shared__ double shared[STREAM_THREADS / WARP];
    int32_t r = (int32_t)blockIdx.x, n = cols / MIX_PARTS;
    int64_t part = (int64_t)blockIdx.z * n;
    const float *flat = streams + (int64_t)blockIdx.y * cols + part;
    const float *row = r < rows ? fn + (int64_t)r * cols + part : flat;
    alignas(16) float w[MIX_LOADS][4];
    if (r < rows) /* these do not depend on other kernels */
        mix_load(row, (int32_t)threadIdx.x * 4, n, w);
    grid_begin();
    if (r == rows)
        mix_load(row, (int32_t)threadIdx.x * 4, n, w);
    enum round did;
    double sum = mix_dot(flat, row, n, r < rows ? in : ROUND_NONE, w, &did);
    testify(say, first_thread(), ROW_HC_MIX, value_of_mix(did));
    sum = block_sum(sum, shared);
    if (threadIdx.x == 0)
        mixes[((int64_t)blockIdx.y * MIX_PARTS + blockIdx.z) * (HC_MIX + 1) + r] = sum;
}

/* Rows of fn and tokens that a block takes together, where there are many: what takes the time is
 * to make doubles of them, which so are shared, and to read them. */
#define MIX_ROWS   8
#define MIX_TOKENS 8
/* Tokens from which on blocks are enough for that. */
#define MIX_MANY 64

/* The same sums of MIX_ROWS rows and MIX_TOKENS tokens, in the order of mix_rows.
 * grid: rows / MIX_ROWS + 1, whose last one makes |flat|^2; tokens / MIX_TOKENS; parts */
static __global__ void __launch_bounds__(STREAM_THREADS)
    mix_tiles(const float *fn, int32_t rows, int32_t cols, const float *streams, int32_t tokens,
              double *mixes, struct testimony say)
{
    __shared__ double shared[STREAM_THREADS / WARP][MIX_ROWS][MIX_TOKENS];
    const int32_t r0 = (int32_t)blockIdx.x * MIX_ROWS, t0 = (int32_t)blockIdx.y * MIX_TOKENS;
    const int32_t n = cols / MIX_PARTS, part = (int32_t)blockIdx.z * n;
    const bool norm = blockIdx.x + 1 == gridDim.x;
    double sum[MIX_ROWS][MIX_TOKENS] = {};
    grid_begin();
    for (int32_t at = (int32_t)threadIdx.x * 4; at < n; at += MIX_STEP) {
        float w[MIX_ROWS][4], v[MIX_TOKENS][4];
#pragma unroll
        for (int t = 0; t < MIX_TOKENS; t++)
            load4(streams + (int64_t)min(t0 + t, tokens - 1) * cols + part + at, v[t]);
#pragma unroll
        for (int r = 0; r < MIX_ROWS && !norm; r++)
            load4(fn + (int64_t)min(r0 + r, rows - 1) * cols + part + at, w[r]);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            double values[MIX_TOKENS];
#pragma unroll
            for (int t = 0; t < MIX_TOKENS; t++) {
                values[t] = v[t][i];
                if (norm)
                    sum[0][t] = fma(values[t], values[t], sum[0][t]);
            }
#pragma unroll
            for (int r = 0; r < MIX_ROWS && !norm; r++) {
                double weight = w[r][i];
#pragma unroll
                for (int t = 0; t < MIX_TOKENS; t++)
                    sum[r][t] = fma(values[t], weight, sum[r][t]);
            }
        }
    }
    testify(say, first_thread(), ROW_HC_MIX, value_of_mix(ROUND_NONE));
#pragma unroll
    for (int i = 0; i < MIX_ROWS * MIX_TOKENS; i++) {
        double all = warp_sum(sum[i / MIX_TOKENS][i % MIX_TOKENS]);
        if (lane_id() == 0)
            shared[warp_id()][i / MIX_TOKENS][i % MIX_TOKENS] = all;
    }
    __syncthreads();
    int r = (int)threadIdx.x / MIX_TOKENS, t = (int)threadIdx.x % MIX_TOKENS;
    int row = norm ? rows : r0 + r;
    if (r >= (norm ? 1 : min(MIX_ROWS, rows - r0)) || t0 + t >= tokens)
        return;
    double all = 0;
    for (int i = 0; i < STREAM_THREADS / WARP; i++)
        all += shared[i][r][t];
    mixes[((int64_t)(t0 + t) * MIX_PARTS + blockIdx.z) * (HC_MIX + 1) + row] = all;
}

static void mixes_run(struct cuda_backend *b, const struct tensor *fn, const float *streams,
                      enum round in, const struct testimony &say)
{
    dim3 grid((unsigned)fn->rows + 1, (unsigned)say.n, MIX_PARTS);
    ASSERT(fn->cols % (MIX_PARTS * CHUNK) == 0);
    if (in == ROUND_NONE && say.n >= MIX_MANY) {
        grid.x = 1 + (unsigned)ceil_div(fn->rows, MIX_ROWS);
        grid.y = (unsigned)ceil_div(say.n, MIX_TOKENS);
        launch(b, "mix_tiles", mix_tiles, grid, STREAM_THREADS, 0, weight_floats(b, fn), fn->rows,
               fn->cols, streams, say.n, b->mixes, say);
        return;
    }
    launch(b, "mix_rows", mix_rows, grid, STREAM_THREADS, 0, weight_floats(b, fn), fn->rows,
           fn->cols, streams, in, b->mixes, say);
}

/* All of a sum that mix_rows has left in parts. */
static __device__ inline double mix_sum(const double *mixes, int r)
{
    double sum = mixes[r];
    for (int part = 1; part < MIX_PARTS; part++)
        sum += mixes[part * (HC_MIX + 1) + r];
    return sum;
}

static __device__ inline double rms_factor(const double *mixes, int32_t rows, int32_t cols)
{
    return 1.0 / sqrt(mix_sum(mixes, rows) / cols + RMS_NORM_EPS);
}

/* 1 / x of a normal number, but for the last bit: the division that is rounded takes longer, and
 * Sinkhorn's iterations are a chain of forty. */
static __device__ inline double reciprocal(double x)
{
    double r;
    asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(r) : "d"(x));
    for (int i = 0; i < 2; i++) /* 20 bits, 40, all */
        r = fma(r, fma(-x, r, 1.0), r);
    return r;
}

/* Sum over the lanes whose numbers differ in the bits of `low` and 2 * low. */
static __device__ inline double sum_of_four(double x, int low)
{
    x += __shfl_xor_sync(ALL_LANES, x, low);
    return x + __shfl_xor_sync(ALL_LANES, x, 2 * low);
}

/* Lane 4 j + i (and 16 lanes further on) holds k[j][i], and ends with a matrix whose columns sum to
 * one. */
static __device__ double warp_sinkhorn(double k)
{
    double most = fmax(k, __shfl_xor_sync(ALL_LANES, k, 1));
    most = fmax(most, __shfl_xor_sync(ALL_LANES, most, 2));
    k = exp(k - most);
    k = k / sum_of_four(k, 1) + HC_EPS;
    for (int round = 0; round < HC_SINKHORN; round++) {
        if (round > 0)
            k *= reciprocal(sum_of_four(k, 1) + HC_EPS);
        k *= reciprocal(sum_of_four(k, HC_MULT) + HC_EPS);
    }
    return k;
}

/* Four values of each stream, from `at` on; nothing beyond the row. */
static __device__ inline void streams_load(const float *streams, int32_t at, int32_t hidden,
                                           float v[HC_MULT][4])
{
#pragma unroll
    for (int j = 0; j < HC_MULT && at < hidden; j++)
        load4_fresh(streams + (int64_t)j * hidden + at, v[j]);
}

/* Where this lane's first chunk of a row begins that `blocks` blocks share. */
static __device__ inline int32_t mix_first(int first)
{
    return (first * (STREAM_THREADS / WARP) + warp_id()) * CHUNK + lane_id() * 4;
}

/* Warps of block `first` of `blocks` that share a row of `hidden`, a chunk each at a time:
 * out = sum over streams of pre[j] * streams[j];  ahead: streams of the first chunk */
static __device__ enum round mix_down(const float *streams, float ahead[HC_MULT][4],
                                      const double *pre, int32_t hidden, enum round round,
                                      int first, int blocks, float *out)
{
    enum round did = ROUND_NONE;
    for (int32_t at = mix_first(first); at < hidden;
         at += blocks * (STREAM_THREADS / WARP) * CHUNK) {
        double sum[4] = {};
        float v[4];
        if (at != mix_first(first))
            streams_load(streams, at, hidden, ahead);
        for (int j = 0; j < HC_MULT; j++) {
            for (int i = 0; i < 4; i++)
                sum[i] += (double)ahead[j][i] * pre[j];
        }
        for (int i = 0; i < 4; i++)
            v[i] = (float)sum[i];
        did = warp_round(round, v);
        store4(out + at, v);
    }
    return did;
}

/* A mix as the table wants it stored: of a sum in float32, as the CPU's. */
static __device__ inline double mix_value(double dot, double factor, enum round out)
{
    double mix = (float)dot * factor;
    return out == ROUND_BF16 ? round_bf16((float)mix) : mix;
}

/* What hc_post wants, by one warp. */
static __device__ void post_and_comb(const double *mixes, const float *scale, const float *bias,
                                     const hc_pre_params &p, int64_t t, double factor,
                                     enum round out)
{
    int lane = lane_id(), at = 2 * HC_MULT + lane % (HC_MULT * HC_MULT);
    if (lane < HC_MULT) {
        double value = mix_value(mix_sum(mixes, HC_MULT + lane), factor, out);
        p.post[t * HC_MULT + lane] = 2 * sigmoid(value * scale[1] + bias[HC_MULT + lane]);
    }
    double k = mix_value(mix_sum(mixes, at), factor, out) * scale[2] + bias[at];
    k = warp_sinkhorn(k);
    if (lane < HC_MULT * HC_MULT)
        p.comb[t * HC_MULT * HC_MULT + lane] = k;
}

/* grid: tokens, 1 + blocks that mix: the first one has the long chain of Sinkhorn's iterations */
static __global__ void pre_tokens(const double *mixes, const float *scale, const float *bias,
                                  struct hc_pre_params p, enum round mix_out, struct testimony say)
{
    __shared__ double pre[HC_MULT];
    int64_t t = blockIdx.x;
    const double *mine = mixes + t * MIX_PARTS * (HC_MIX + 1);
    const float *streams = p.streams + t * HC_MULT * p.hidden;
    float ahead[HC_MULT][4];
    if (blockIdx.y > 0) /* mix_rows has read them too: they are there when its blocks are */
        streams_load(streams, mix_first((int)blockIdx.y - 1), p.hidden, ahead);
    grid_begin();
    if (blockIdx.y == 0) {
        if (warp_id() == 0)
            post_and_comb(mine, scale, bias, p, t, rms_factor(mine, HC_MIX, HC_MULT * p.hidden),
                          mix_out);
        return;
    }
    if (threadIdx.x < HC_MULT) {
        double factor = rms_factor(mine, HC_MIX, HC_MULT * p.hidden);
        double value = mix_value(mix_sum(mine, (int)threadIdx.x), factor, mix_out);
        pre[threadIdx.x] = sigmoid(value * scale[0] + bias[threadIdx.x]) + HC_EPS;
    }
    __syncthreads();
    enum round did = mix_down(streams, ahead, pre, p.hidden, p.round, (int)blockIdx.y - 1,
                              (int)gridDim.y - 1, p.out + t * p.hidden);
    testify(say, blockIdx.x == 0 && blockIdx.y == 1 && threadIdx.x == 0, ROW_ACT_STORE,
            value_of_round(did));
}

void cuda_hc_pre(struct backend *base, const struct hc_pre_params *p)
{
    struct cuda_backend *b = cuda_of(base);
    ASSERT(p->fn.store == STORE_F32 && p->fn.rows == HC_MIX && p->fn.cols == HC_MULT * p->hidden);
    ASSERT(p->hidden % CHUNK == 0 && p->n <= b->limits.tokens);
    struct testimony say = testimony_of(b, &p->place, p->n);
    mix_rounds rounds = mix_rounds_of(p->mix);
    mixes_run(b, &p->fn, p->streams, rounds.in, say);
    dim3 grid((unsigned)p->n, 1 + (unsigned)ceil_div(p->hidden, CHUNK * (STREAM_THREADS / WARP)));
    launch(b, "pre_tokens", pre_tokens, grid, STREAM_THREADS, 0, b->mixes,
           weight_floats(b, &p->scale), weight_floats(b, &p->base), *p, rounds.out, say);
}

/* grid: chunks of hidden, tokens; one warp a block */
static __global__ void post_tokens(struct hc_post_params p, struct testimony say)
{
    grid_begin();
    int64_t t = blockIdx.y;
    int32_t at = (int32_t)blockIdx.x * CHUNK + lane_id() * 4;
    const double *post = p.post + t * HC_MULT, *comb = p.comb + t * HC_MULT * HC_MULT;
    float y[4], rows[HC_MULT][4];
    load4(p.y + t * p.hidden + at, y);
    for (int j = 0; j < HC_MULT; j++)
        load4(p.streams + (t * HC_MULT + j) * p.hidden + at, rows[j]);
    for (int k = 0; k < HC_MULT; k++) {
        float out[4];
        for (int i = 0; i < 4; i++) {
            double sum = (double)y[i] * post[k];
            for (int j = 0; j < HC_MULT; j++)
                sum += (double)rows[j][i] * comb[p.transposed ? k * HC_MULT + j : j * HC_MULT + k];
            out[i] = (float)sum;
        }
        enum round did = warp_round(p.round, out);
        testify(say, first_thread() && k == 0, ROW_HC_STREAMS, value_of_round(did));
        store4(p.streams_out + (t * HC_MULT + k) * p.hidden + at, out);
    }
}

void cuda_hc_post(struct backend *base, const struct hc_post_params *p)
{
    struct cuda_backend *b = cuda_of(base);
    ASSERT(p->streams != p->streams_out && p->hidden % CHUNK == 0);
    dim3 grid((unsigned)(p->hidden / CHUNK), (unsigned)p->n);
    launch(b, "post_tokens", post_tokens, grid, WARP, 0, *p, testimony_of(b, &p->place, p->n));
}

static __global__ void head_tokens(const double *mixes, const float *scale, const float *bias,
                                   struct hc_head_params p, enum round mix_out,
                                   struct testimony say)
{
    grid_begin();
    __shared__ double pre[HC_MULT];
    int64_t t = blockIdx.x;
    if (threadIdx.x < HC_MULT) {
        const double *mine = mixes + t * MIX_PARTS * (HC_MIX + 1);
        double factor = rms_factor(mine, HC_MULT, HC_MULT * p.hidden);
        double value = mix_value(mix_sum(mine, (int)threadIdx.x), factor, mix_out);
        pre[threadIdx.x] = sigmoid(value * scale[0] + bias[threadIdx.x]) + HC_EPS;
    }
    __syncthreads();
    const float *streams = p.streams + t * HC_MULT * p.hidden;
    float ahead[HC_MULT][4];
    streams_load(streams, mix_first(0), p.hidden, ahead);
    enum round did = mix_down(streams, ahead, pre, p.hidden, p.round, 0, 1, p.out + t * p.hidden);
    testify(say, first_thread(), ROW_ACT_STORE, value_of_round(did));
}

void cuda_hc_head(struct backend *base, const struct hc_head_params *p)
{
    struct cuda_backend *b = cuda_of(base);
    ASSERT(p->fn.store == STORE_F32 && p->fn.rows == HC_MULT && p->fn.cols == HC_MULT * p->hidden);
    ASSERT(p->hidden % CHUNK == 0 && p->n <= b->limits.tokens);
    struct testimony say = testimony_of(b, &p->place, p->n);
    mix_rounds rounds = mix_rounds_of(p->mix);
    mixes_run(b, &p->fn, p->streams, rounds.in, say);
    launch(b, "head_tokens", head_tokens, (unsigned)p->n, STREAM_THREADS, 0, b->mixes,
           weight_floats(b, &p->scale), weight_floats(b, &p->base), *p, rounds.out, say);
}

/* grid: chunks of hidden, tokens * HC_MULT; one warp a block */
static __global__ void join_tokens(struct mtp_join_params p, struct testimony say)
{
    grid_begin();
    int64_t t = blockIdx.y / HC_MULT;
    int32_t c = (int32_t)blockIdx.x * CHUNK + lane_id() * 4;
    int64_t at = (int64_t)blockIdx.y * p.hidden + c;
    float e[4], h[4];
    load4(p.e + t * p.hidden + c, e);
    load4(p.h + at, h);
    for (int i = 0; i < 4; i++)
        h[i] = e[i] + h[i];
    enum round did = warp_round(p.round, h);
    testify(say, first_thread(), ROW_HC_STREAMS, value_of_round(did));
    store4(p.streams + at, h);
}

void cuda_mtp_join(struct backend *base, const struct mtp_join_params *p)
{
    struct cuda_backend *b = cuda_of(base);
    ASSERT(p->hidden % CHUNK == 0);
    dim3 grid((unsigned)(p->hidden / CHUNK), (unsigned)(p->n * HC_MULT));
    launch(b, "join_tokens", join_tokens, grid, WARP, 0, *p, testimony_of(b, &p->place, p->n));
}
