/*
 * Hyper-connections on the GPU (model.md 2.2, 2.7) and the joint in front of a draft block (2.8).
 * All in double, as on the CPU.  The mixes are found by one block a row of fn, so that one token's
 * 1.6 MB come from many multiprocessors; the rest of hc_pre by one block a token.
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

/* A thread's part of fn[r] . flat: in double, or of rounded operands in float32. */
static __device__ double mix_dot(const float *flat, const float *row, int32_t cols, enum round in,
                                 enum round *did)
{
    constexpr int32_t STEP = STREAM_THREADS * 4;
    double sum = 0;
    float sum_rounded = 0;
    *did = ROUND_NONE;
    for (int32_t at = (int32_t)threadIdx.x * 4; at < cols; at += MIX_LOADS * STEP) {
        float v[MIX_LOADS][4] = {}, w[MIX_LOADS][4] = {};
#pragma unroll
        for (int k = 0; k < MIX_LOADS; k++) {
            if (at + k * STEP < cols) {
                load4(flat + at + k * STEP, v[k]);
                load4(row + at + k * STEP, w[k]);
            }
        }
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

/* mixes[t][r] = fn[r] . flat for r < rows, as float32 like the CPU's; mixes[t][rows]: |flat|^2.
 * grid: rows + 1, tokens */
static __global__ void mix_rows(const float *fn, int32_t rows, int32_t cols, const float *streams,
                                enum round in, double *mixes, struct testimony say)
{
    __shared__ double shared[STREAM_THREADS / WARP];
    int32_t r = (int32_t)blockIdx.x;
    const float *flat = streams + (int64_t)blockIdx.y * cols;
    const float *row = r < rows ? fn + (int64_t)r * cols : flat;
    enum round did;
    double sum = mix_dot(flat, row, cols, r < rows ? in : ROUND_NONE, &did);
    testify(say, first_thread(), ROW_HC_MIX, value_of_mix(did));
    sum = block_sum(sum, shared);
    if (threadIdx.x == 0)
        mixes[(int64_t)blockIdx.y * (HC_MIX + 1) + r] = r < rows ? (double)(float)sum : sum;
}

static void mixes_run(struct cuda_backend *b, const struct tensor *fn, const float *streams,
                      enum round in, const struct testimony &say)
{
    dim3 grid((unsigned)fn->rows + 1, (unsigned)say.n);
    mix_rows<<<grid, STREAM_THREADS, 0, b->stream>>>(weight_floats(b, fn), fn->rows, fn->cols,
                                                     streams, in, b->mixes, say);
    launched("mix_rows");
}

static __device__ inline double rms_factor(const double *mixes, int32_t rows, int32_t cols)
{
    return 1.0 / sqrt(mixes[rows] / cols + RMS_NORM_EPS);
}

/* Lane 4 j + i holds k[j][i], and ends with a matrix whose columns sum to one. */
static __device__ double warp_sinkhorn(double k)
{
    int lane = lane_id(), row = lane / HC_MULT * HC_MULT, column = lane % HC_MULT;
    double most = k, sum = 0;
    for (int i = 0; i < HC_MULT; i++)
        most = fmax(most, __shfl_sync(ALL_LANES, k, row + i));
    k = exp(k - most);
    for (int i = 0; i < HC_MULT; i++)
        sum += __shfl_sync(ALL_LANES, k, row + i);
    k = k / sum + HC_EPS;
    for (int round = 0; round < HC_SINKHORN; round++) {
        if (round > 0) {
            sum = HC_EPS;
            for (int i = 0; i < HC_MULT; i++)
                sum += __shfl_sync(ALL_LANES, k, row + i);
            k /= sum;
        }
        sum = HC_EPS;
        for (int j = 0; j < HC_MULT; j++)
            sum += __shfl_sync(ALL_LANES, k, j * HC_MULT + column);
        k /= sum;
    }
    return k;
}

/* out = sum over streams of pre[j] * streams[j], by the whole block */
static __device__ enum round mix_down(const float *streams, const double *pre, int32_t hidden,
                                      enum round round, float *out)
{
    enum round did = ROUND_NONE;
    for (int32_t chunk = warp_id(); chunk < hidden / CHUNK; chunk += STREAM_THREADS / WARP) {
        int32_t at = chunk * CHUNK + lane_id() * 4;
        double sum[4] = {};
        float v[4];
        for (int j = 0; j < HC_MULT; j++) {
            load4(streams + (int64_t)j * hidden + at, v);
            for (int i = 0; i < 4; i++)
                sum[i] += (double)v[i] * pre[j];
        }
        for (int i = 0; i < 4; i++)
            v[i] = (float)sum[i];
        did = warp_round(round, v);
        store4(out + at, v);
    }
    return did;
}

/* A mix as the table wants it stored. */
static __device__ inline double mix_value(double dot, double factor, enum round out)
{
    double mix = dot * factor;
    return out == ROUND_BF16 ? round_bf16((float)mix) : mix;
}

static __global__ void pre_tokens(const double *mixes, const float *scale, const float *bias,
                                  struct hc_pre_params p, enum round mix_out, struct testimony say)
{
    __shared__ double pre[HC_MULT];
    int64_t t = blockIdx.x;
    if (warp_id() == 0) {
        int lane = lane_id();
        const double *mix = mixes + t * (HC_MIX + 1);
        double factor = rms_factor(mix, HC_MIX, HC_MULT * p.hidden);
        int at = 2 * HC_MULT + lane % (HC_MULT * HC_MULT);
        double k = warp_sinkhorn(mix_value(mix[at], factor, mix_out) * scale[2] + bias[at]);
        if (lane < HC_MULT * HC_MULT)
            p.comb[t * HC_MULT * HC_MULT + lane] = k;
        if (lane < HC_MULT) {
            double value = mix_value(mix[lane], factor, mix_out);
            pre[lane] = sigmoid(value * scale[0] + bias[lane]) + HC_EPS;
            at = HC_MULT + lane;
            value = mix_value(mix[at], factor, mix_out);
            p.post[t * HC_MULT + lane] = 2 * sigmoid(value * scale[1] + bias[at]);
        }
    }
    __syncthreads();
    enum round did =
        mix_down(p.streams + t * HC_MULT * p.hidden, pre, p.hidden, p.round, p.out + t * p.hidden);
    testify(say, first_thread(), ROW_ACT_STORE, value_of_round(did));
}

void cuda_hc_pre(struct backend *base, const struct hc_pre_params *p)
{
    struct cuda_backend *b = cuda_of(base);
    ASSERT(p->fn.store == STORE_F32 && p->fn.rows == HC_MIX && p->fn.cols == HC_MULT * p->hidden);
    ASSERT(p->hidden % CHUNK == 0 && p->n <= b->limits.tokens);
    struct testimony say = testimony_of(b, &p->place, p->n);
    mix_rounds rounds = mix_rounds_of(p->mix);
    mixes_run(b, &p->fn, p->streams, rounds.in, say);
    pre_tokens<<<(unsigned)p->n, STREAM_THREADS, 0, b->stream>>>(
        b->mixes, weight_floats(b, &p->scale), weight_floats(b, &p->base), *p, rounds.out, say);
    launched("pre_tokens");
}

/* grid: chunks of hidden, tokens; one warp a block */
static __global__ void post_tokens(struct hc_post_params p, struct testimony say)
{
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
    post_tokens<<<grid, WARP, 0, b->stream>>>(*p, testimony_of(b, &p->place, p->n));
    launched("post_tokens");
}

static __global__ void head_tokens(const double *mixes, const float *scale, const float *bias,
                                   struct hc_head_params p, enum round mix_out,
                                   struct testimony say)
{
    __shared__ double pre[HC_MULT];
    int64_t t = blockIdx.x;
    if (threadIdx.x < HC_MULT) {
        const double *mix = mixes + t * (HC_MIX + 1);
        double factor = rms_factor(mix, HC_MULT, HC_MULT * p.hidden);
        double value = mix_value(mix[threadIdx.x], factor, mix_out);
        pre[threadIdx.x] = sigmoid(value * scale[0] + bias[threadIdx.x]) + HC_EPS;
    }
    __syncthreads();
    enum round did =
        mix_down(p.streams + t * HC_MULT * p.hidden, pre, p.hidden, p.round, p.out + t * p.hidden);
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
    head_tokens<<<(unsigned)p->n, STREAM_THREADS, 0, b->stream>>>(
        b->mixes, weight_floats(b, &p->scale), weight_floats(b, &p->base), *p, rounds.out, say);
    launched("head_tokens");
}

/* grid: chunks of hidden, tokens * HC_MULT; one warp a block */
static __global__ void join_tokens(struct mtp_join_params p, struct testimony say)
{
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
    join_tokens<<<grid, WARP, 0, b->stream>>>(*p, testimony_of(b, &p->place, p->n));
    launched("join_tokens");
}
