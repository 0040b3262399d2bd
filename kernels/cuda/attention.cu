/*
 * Attention on the GPU (model.md 2.3 (8)-(10)): every token's keys are cut into parts, of which
 * each block takes one, and the parts are joined in order.  How keys are cut depends on their
 * number and the arithmetic alone, so a token's result does not depend on the call.
 *
 *   ATTN_FP32           parts of 32 keys, plain arithmetic in float32 or double; a warp two heads
 *   ATTN_BF16           one part; tensor cores, 16 heads a block, tiles of 64 keys; for few tokens
 *                       attention_few.cu, to the same bits
 *   ATTN_BF16_SPLIT_K   the same in parts of ATTN_SPLIT keys
 *
 * Bound by shared memory's bandwidth (ATTN_FP32) and by bringing float32 keys from the L2 (BF16).
 */
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/products.cuh"

/* A softmax that is not finished: sums of values and probabilities under a maximum. */
template <typename T> struct alignas(16) state {
    T values[HEAD_DIM], most, total;
};

/* Keys of this block's part. */
struct key_range {
    int32_t first, n; /* n: 0 or less: nothing */
};

static __device__ inline key_range part_of(const attend_params &a, const key_list &keys)
{
    int32_t first = (int32_t)blockIdx.z * a.part_keys;
    return {first, min(keys.n - first, a.part_keys)};
}

template <typename T>
static __device__ inline state<T> *state_of(const attend_params &a, int32_t head, int32_t part)
{
    int64_t token = blockIdx.y;
    return (state<T> *)a.states + (token * a.p.heads + head) * a.parts + part;
}

static __device__ inline float exp_of(float x)
{
    return expf(x);
}

static __device__ inline double exp_of(double x)
{
    return exp(x);
}

static __device__ inline void load_head(const float *from, float x[HEAD_CHUNKS][4])
{
    for (int c = 0; c < HEAD_CHUNKS; c++)
        load4(from + c * CHUNK + lane_id() * 4, x[c]);
}

static __device__ inline void store_head(float *to, const float x[HEAD_CHUNKS][4])
{
    for (int c = 0; c < HEAD_CHUNKS; c++)
        store4(to + c * CHUNK + lane_id() * 4, x[c]);
}

/* ---- ATTN_FP32 ------------------------------------------------------------------------------ */

/* Warps of a block, heads of each: what is read of a key serves both.  Keys of a tile, one a lane;
 * keys of a part. */
#define PLAIN_WARPS     8
#define WARP_HEADS      2
#define PLAIN_HEADS     (PLAIN_WARPS * WARP_HEADS)
#define PLAIN_TILE      WARP
#define PLAIN_PART_KEYS WARP
/* A key in shared memory: 4 more floats, so that the lanes' reads of 16 bytes do not collide. */
#define KEY_STRIDE (HEAD_DIM + 4)

/* A head's sum so far; acc: this lane's channels. */
template <typename T> struct head_sum {
    T most, total, acc[HEAD_CHUNKS][4];
};

/* q[h] . key, each in four chains */
template <typename T>
static __device__ inline void dot_heads(const float *q, const float *key, T out[WARP_HEADS])
{
    T sum[WARP_HEADS][4] = {};
#pragma unroll 8
    for (int c = 0; c < HEAD_DIM; c += 4) {
        float a[4], b[4];
        load4(key + c, b);
#pragma unroll
        for (int h = 0; h < WARP_HEADS; h++) {
            load4(q + h * HEAD_DIM + c, a);
            for (int i = 0; i < 4; i++)
                sum[h][i] = fma((T)a[i], (T)b[i], sum[h][i]);
        }
    }
#pragma unroll
    for (int h = 0; h < WARP_HEADS; h++)
        out[h] = (sum[h][0] + sum[h][1]) + (sum[h][2] + sum[h][3]);
}

/* A tile's scores into probabilities; the sum so far shrinks to the new maximum. */
template <typename T> static __device__ inline T probability(T score, bool seen, head_sum<T> &s)
{
    T most = warp_max(score);
    most = most > s.most ? most : s.most;
    T shrink = exp_of(s.most - most);
    T p = seen ? exp_of(score - most) : 0;
    s.most = most;
    s.total = fma(s.total, shrink, warp_sum(p));
    for (int c = 0; c < HEAD_CHUNKS; c++) {
        for (int i = 0; i < 4; i++)
            s.acc[c][i] *= shrink;
    }
    return p;
}

/* n keys of a tile into the sums, by the heads' warp. */
template <typename T>
static __device__ void tile_add(const float *q, const float *tile, int n, T scale,
                                head_sum<T> s[WARP_HEADS])
{
    int lane = lane_id();
    T p[WARP_HEADS];
    dot_heads<T>(q, tile + min(lane, n - 1) * KEY_STRIDE, p);
#pragma unroll
    for (int h = 0; h < WARP_HEADS; h++)
        p[h] = probability<T>(lane < n ? p[h] * scale : (T)-INFINITY, lane < n, s[h]);
    for (int k = 0; k < n; k++) {
        T weight[WARP_HEADS];
#pragma unroll
        for (int h = 0; h < WARP_HEADS; h++)
            weight[h] = __shfl_sync(ALL_LANES, p[h], k);
#pragma unroll
        for (int c = 0; c < HEAD_CHUNKS; c++) {
            float v[4];
            load4(tile + k * KEY_STRIDE + c * CHUNK + lane * 4, v);
#pragma unroll
            for (int h = 0; h < WARP_HEADS; h++) {
                for (int i = 0; i < 4; i++)
                    s[h].acc[c][i] = fma(weight[h], (T)v[i], s[h].acc[c][i]);
            }
        }
    }
}

/* Keys first.. of a list into a tile, by all warps; what a warp takes is on its way together. */
static __device__ void tile_load(const attend_params &a, const key_list &keys, int32_t first, int n,
                                 float *tile)
{
    constexpr int EACH = PLAIN_TILE / PLAIN_WARPS;
    float x[EACH][HEAD_CHUNKS][4];
#pragma unroll
    for (int i = 0; i < EACH; i++)
        load_head(key_at(a.p, keys, first + min(warp_id() * EACH + i, n - 1)), x[i]);
#pragma unroll
    for (int i = 0; i < EACH; i++)
        store_head(tile + (warp_id() * EACH + i) * KEY_STRIDE, x[i]);
}

template <typename T>
static __device__ void plain_store(const attend_params &a, int32_t head, const head_sum<T> &s)
{
    state<T> *out = state_of<T>(a, head, (int32_t)blockIdx.z);
    if (lane_id() == 0)
        out->most = s.most, out->total = s.total;
    for (int c = 0; c < HEAD_CHUNKS; c++) {
        for (int i = 0; i < 4; i++)
            out->values[c * CHUNK + lane_id() * 4 + i] = s.acc[c][i];
    }
}

/* grid: head groups, tokens, parts.  shared: tile [PLAIN_TILE, KEY_STRIDE], queries [heads, 512] */
template <typename T>
static __global__ void __launch_bounds__(PLAIN_WARPS *WARP)
    attend_plain(struct attend_params a, const __grid_constant__ struct spans spans)
{
    grid_begin();
    extern __shared__ float shared[];
    float *q = shared + PLAIN_TILE * KEY_STRIDE + warp_id() * WARP_HEADS * HEAD_DIM;
    int64_t t = a.token + (int32_t)blockIdx.y;
    int32_t head0 = (int32_t)blockIdx.x * PLAIN_HEADS + warp_id() * WARP_HEADS;
    key_list keys = keys_of(a.p, span_row_of(spans, t), t);
    key_range part = part_of(a, keys);
    if (part.n <= 0)
        return;
    for (int h = 0; h < WARP_HEADS; h++) {
        float x[HEAD_CHUNKS][4];
        load_head(a.p.q + (t * a.p.heads + min(head0 + h, a.p.heads - 1)) * HEAD_DIM, x);
        store_head(q + h * HEAD_DIM, x);
    }
    head_sum<T> s[WARP_HEADS];
    for (int h = 0; h < WARP_HEADS; h++)
        s[h] = {-INFINITY, 0, {}};
    for (int32_t at = 0; at < part.n; at += PLAIN_TILE) {
        int n = min(part.n - at, PLAIN_TILE);
        __syncthreads();
        tile_load(a, keys, part.first + at, n, shared);
        __syncthreads();
        tile_add<T>(q, shared, n, (T)a.scale, s);
    }
    testify(a.say, begins(spans, t), attention_row(a), ATTN_FP32);
    for (int h = 0; h < WARP_HEADS; h++) {
        if (head0 + h < a.p.heads)
            plain_store<T>(a, head0 + h, s[h]);
    }
}

/* ---- ATTN_BF16 ------------------------------------------------------------------------------ */

/* A block's heads (rows of an instruction) and warps: each scores 16 keys of a tile, and sums 128
 * channels. */
#define MMA_HEADS TILE_ROWS
#define MMA_WARPS 4
#define WARP_KEYS (ATTN_TILE / MMA_WARPS)
/* 16-bit rows in shared memory, 16 bytes longer, so that eight rows lie in different banks. */
#define ROW_STRIDE  (HEAD_DIM + 8)
#define PROB_STRIDE (ATTN_TILE + 8)

struct mma_shared {
    uint16_t keys[ATTN_TILE][ROW_STRIDE];
    uint16_t q[MMA_HEADS][ROW_STRIDE];
    uint16_t prob[MMA_HEADS][PROB_STRIDE];
    float most[MMA_WARPS][MMA_HEADS], total[MMA_WARPS][MMA_HEADS];
};
static_assert(sizeof(struct mma_shared) <= SHARED_BYTES_MAX, "fits a block of sm_120");
static_assert(HEAD_DIM == MMA_WARPS * CHUNK, "a warp sums one chunk");

/* One float row to 16 bits, by a warp. */
static __device__ inline void row_to_bf16(const float *from, uint16_t *to)
{
    for (int c = 0; c < HEAD_CHUNKS; c++) {
        float x[4];
        int at = c * CHUNK + lane_id() * 4;
        load4(from + at, x);
        uint16_t bits[4];
        for (int i = 0; i < 4; i++)
            bits[i] = (uint16_t)(__float_as_uint(round_bf16(x[i])) >> 16);
        *(ushort4 *)(to + at) = make_ushort4(bits[0], bits[1], bits[2], bits[3]);
    }
}

/* s[i]: rows g and g + 8 times keys 2 t, 2 t + 1 of group i of this warp's two. */
static __device__ void mma_scores(const mma_shared &m, float s[2][4])
{
    int g = lane_id() / 4, t = lane_id() % 4;
    const uint16_t *qa = m.q[g] + 8 * t, *qb = m.q[g + 8] + 8 * t;
#pragma unroll 4
    for (int c = 0; c < HEAD_DIM; c += 32) {
        uint4 a = *(const uint4 *)(qa + c), b = *(const uint4 *)(qb + c);
        for (int i = 0; i < 2; i++) {
            const uint16_t *key = m.keys[warp_id() * WARP_KEYS + 8 * i + g] + 8 * t + c;
            uint4 k = *(const uint4 *)key;
            mma<false>(s[i], a.x, b.x, a.y, b.y, k.x, k.y);
            mma<false>(s[i], a.z, b.z, a.w, b.w, k.z, k.w);
        }
    }
}

/* The 16 by 16 numbers at `from` (row: key, column: channel), as two columns of the operand. */
static __device__ inline void load_transposed(const uint16_t *from, uint32_t b[4])
{
    int lane = lane_id();
    const uint16_t *row = from + (lane % 16) * ROW_STRIDE + lane / 16 * 8;
    uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
                 : "r"(at));
}

/* acc[i]: rows g and g + 8, channels 8 i + 2 t and the next of this warp's chunk. */
static __device__ void mma_values(const mma_shared &m, float acc[CHUNK / 8][4])
{
    int g = lane_id() / 4, t = lane_id() % 4;
#pragma unroll
    for (int k = 0; k < ATTN_TILE; k += 16) {
        uint32_t a0 = *(const uint32_t *)&m.prob[g][k + 2 * t];
        uint32_t a1 = *(const uint32_t *)&m.prob[g + 8][k + 2 * t];
        uint32_t a2 = *(const uint32_t *)&m.prob[g][k + 8 + 2 * t];
        uint32_t a3 = *(const uint32_t *)&m.prob[g + 8][k + 8 + 2 * t];
#pragma unroll
        for (int i = 0; i < CHUNK / 8; i += 2) {
            uint32_t b[4];
            load_transposed(&m.keys[k][warp_id() * CHUNK + 8 * i], b);
            mma<false>(acc[i], a0, a1, a2, a3, b[0], b[1]);
            mma<false>(acc[i + 1], a0, a1, a2, a3, b[2], b[3]);
        }
    }
}

/* Scores to probabilities of one tile, in shared memory; running: of rows g and g + 8. */
static __device__ void mma_softmax(mma_shared &m, float s[2][4], int n, float scale, float most[2],
                                   float total[2], float shrink[2])
{
    int g = lane_id() / 4, t = lane_id() % 4, key0 = warp_id() * WARP_KEYS + 2 * t;
    float high[2] = {-INFINITY, -INFINITY}, sum[2] = {};
    for (int i = 0; i < 8; i++) {
        float &x = s[i / 4][i % 4];
        x = key0 + i / 4 * 8 + i % 2 < n ? x * scale : -INFINITY;
        high[i % 4 / 2] = fmaxf(high[i % 4 / 2], x);
    }
    for (int r = 0; r < 2; r++) {
        for (int step = 1; step < 4; step *= 2)
            high[r] = fmaxf(high[r], __shfl_xor_sync(ALL_LANES, high[r], step));
        m.most[warp_id()][g + 8 * r] = high[r];
    }
    __syncthreads();
    for (int r = 0; r < 2; r++) {
        float before = most[r];
        for (int w = 0; w < MMA_WARPS; w++)
            most[r] = fmaxf(most[r], m.most[w][g + 8 * r]);
        shrink[r] = expf(before - most[r]);
    }
    for (int i = 0; i < 8; i++) {
        float p = expf(s[i / 4][i % 4] - most[i % 4 / 2]);
        sum[i % 4 / 2] += p;
        m.prob[g + i % 4 / 2 * 8][key0 + i / 4 * 8 + i % 2] =
            (uint16_t)(__float_as_uint(round_bf16(p)) >> 16);
    }
    for (int r = 0; r < 2; r++) {
        for (int step = 1; step < 4; step *= 2)
            sum[r] += __shfl_xor_sync(ALL_LANES, sum[r], step);
        m.total[warp_id()][g + 8 * r] = sum[r];
    }
    __syncthreads();
    for (int r = 0; r < 2; r++) {
        float all = 0;
        for (int w = 0; w < MMA_WARPS; w++)
            all += m.total[w][g + 8 * r];
        total[r] = fmaf(total[r], shrink[r], all);
    }
}

/* grid: head groups, tokens, parts */
static __global__ void __launch_bounds__(MMA_WARPS *WARP)
    attend_mma(struct attend_params a, const __grid_constant__ struct spans spans)
{
    grid_begin();
    extern __shared__ float shared[];
    mma_shared &m = *(mma_shared *)shared;
    int64_t t = a.token + (int32_t)blockIdx.y;
    int32_t head0 = (int32_t)blockIdx.x * MMA_HEADS;
    key_list keys = keys_of(a.p, span_row_of(spans, t), t);
    key_range part = part_of(a, keys);
    if (part.n <= 0)
        return;
    for (int h = warp_id(); h < MMA_HEADS; h += MMA_WARPS) {
        int32_t head = min(head0 + h, a.p.heads - 1); /* rows without a head are thrown away */
        row_to_bf16(a.p.q + (t * a.p.heads + head) * HEAD_DIM, m.q[h]);
    }
    float most[2] = {-INFINITY, -INFINITY}, total[2] = {}, acc[CHUNK / 8][4] = {};
    for (int32_t at = 0; at < part.n; at += ATTN_TILE) {
        int n = min(part.n - at, ATTN_TILE);
        float s[2][4] = {}, shrink[2];
        __syncthreads();
        for (int k = warp_id(); k < ATTN_TILE; k += MMA_WARPS) /* beyond the last: that again */
            row_to_bf16(key_at(a.p, keys, part.first + at + min(k, n - 1)), m.keys[k]);
        __syncthreads();
        mma_scores(m, s);
        mma_softmax(m, s, n, a.scale, most, total, shrink);
        for (int i = 0; i < CHUNK / 8; i++) {
            for (int k = 0; k < 4; k++)
                acc[i][k] *= shrink[k / 2];
        }
        mma_values(m, acc);
    }
    testify(a.say, begins(spans, t), attention_row(a),
            a.part_keys == ATTN_SPLIT ? ATTN_BF16_SPLIT_K : ATTN_BF16);
    for (int half = 0; half < 2; half++) {
        int32_t head = head0 + lane_id() / 4 + 8 * half;
        if (head >= a.p.heads)
            continue;
        state<float> *out = state_of<float>(a, head, (int32_t)blockIdx.z);
        out->most = most[half], out->total = total[half];
        for (int i = 0; i < CHUNK / 8; i++) {
            int at = warp_id() * CHUNK + 8 * i + lane_id() % 4 * 2;
            out->values[at] = acc[i][2 * half];
            out->values[at + 1] = acc[i][2 * half + 1];
        }
    }
}

/* ---- the end -------------------------------------------------------------------------------- */

/* This warp's four channels a lane of a head's parts, joined in order under the largest maximum,
 * which is returned with the sum of probabilities. */
template <typename T>
static __device__ void parts_add(const state<T> *s, int parts, T values[4], T *most, T *total)
{
    int channel = warp_id() * CHUNK + lane_id() * 4;
    T high = -INFINITY;
    for (int part = lane_id(); part < parts; part += WARP)
        high = s[part].most > high ? s[part].most : high;
    high = warp_max(high);
    *total = 0;
    for (int first = 0; first < parts; first += WARP) {
        int mine = min(first + lane_id(), parts - 1);
        T weight = exp_of(s[mine].most - high), share = s[mine].total * weight;
#pragma unroll 8
        for (int i = 0; i < min(WARP, parts - first); i++) {
            T w = __shfl_sync(ALL_LANES, weight, i);
            *total += __shfl_sync(ALL_LANES, share, i);
            for (int k = 0; k < 4; k++)
                values[k] = fma(s[first + i].values[channel + k], w, values[k]);
        }
    }
    *most = high;
}

/* Joins the parts of a head, brings in the sink, which is one more logit without a value and
 * without the scale of the others, and turns the result back.  grid: heads, tokens; a warp a chunk
 */
template <typename T>
static __global__ void __launch_bounds__(HEAD_CHUNKS *WARP)
    join_parts(const float *sink, struct attend_params a,
               const __grid_constant__ struct spans spans)
{
    grid_begin();
    int64_t t = a.token + (int32_t)blockIdx.y;
    int32_t head = (int32_t)blockIdx.x;
    T most, total, values[4] = {};
    int32_t n = keys_of(a.p, span_row_of(spans, t), t).n;
    parts_add<T>(state_of<T>(a, head, 0), ceil_div(n, a.part_keys), values, &most, &total);
    double factor = 1.0 / ((double)total + exp((double)sink[head] - (double)most));
    float x[4];
    for (int i = 0; i < 4; i++)
        x[i] = (float)((double)values[i] * factor);
    enum round did = warp_round(a.p.round, x);
    testify(a.say, begins(spans, t), ROW_ACT_STORE, value_of_round(did));
    if (warp_id() == HEAD_CHUNKS - 1)
        warp_rotate(x, a.p.rope + t * ROPE_ROW, a.p.round, true);
    store4(a.p.out + (t * a.p.heads + head) * HEAD_DIM + warp_id() * CHUNK + lane_id() * 4, x);
}

/* What the three kinds of arithmetic differ in. */
struct attend_kind {
    void (*attend)(struct attend_params, struct spans);
    void (*join)(const float *sink, struct attend_params, struct spans);
    int32_t heads, threads, part_keys;
    size_t shared, state;
};

static attend_kind kind_of(const struct attention_params *p)
{
    const size_t plain = (PLAIN_TILE * KEY_STRIDE + PLAIN_HEADS * HEAD_DIM) * sizeof(float);
    static_assert((PLAIN_TILE * KEY_STRIDE + PLAIN_HEADS * HEAD_DIM) * 4 <= SHARED_BYTES_MAX,
                  "fits a block of sm_120");
    if (p->math != ATTN_FP32)
        return {attend_mma,
                join_parts<float>,
                MMA_HEADS,
                MMA_WARPS * WARP,
                p->math == ATTN_BF16_SPLIT_K ? ATTN_SPLIT : INT32_MAX,
                sizeof(struct mma_shared),
                sizeof(state<float>)};
    if (p->precise)
        return {attend_plain<double>, join_parts<double>, PLAIN_HEADS,
                PLAIN_WARPS * WARP,   PLAIN_PART_KEYS,    plain,
                sizeof(state<double>)};
    return {attend_plain<float>, join_parts<float>, PLAIN_HEADS,
            PLAIN_WARPS * WARP,  PLAIN_PART_KEYS,   plain,
            sizeof(state<float>)};
}

/* Keys of a token, at most. */
static int32_t keys_max(const struct attention_params *p)
{
    int32_t blocks = p->ratio == 0 ? 0 : p->selected != NULL ? p->topk : p->reach / p->ratio;
    return SLIDING_WINDOW + blocks;
}

static void attention_run(struct cuda_backend *b, const void *params, const struct spans *spans)
{
    const struct attention_params *p = (const struct attention_params *)params;
    attend_kind kind = kind_of(p);
    struct attend_params a = {*p, testimony_of(b, &p->place, p->n)};
    a.part_keys = kind.part_keys, a.states = b->attention_states;
    a.scale = p->q_scaled ? 1.0f : (float)SOFTMAX_SCALE;
    a.parts = ceil_div(keys_max(p), kind.part_keys);
    if (attention_few_fits(p, spans_rows(*spans), keys_max(p))) {
        attention_few(b, &a, spans, keys_max(p));
        return;
    }
    size_t bytes = kind.state * (size_t)p->heads * (size_t)a.parts; /* of a token */
    int32_t held = (int32_t)(ATTENTION_STATES_BYTES / bytes), rows = spans_rows(*spans);
    ASSERT(held >= 1);
    CUDA_CHECK(cudaFuncSetAttribute(kind.attend, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    (int)kind.shared));
    for (a.token = 0; a.token < rows; a.token += held) {
        unsigned n = (unsigned)(rows - a.token < held ? rows - a.token : held);
        dim3 grid((unsigned)ceil_div(p->heads, kind.heads), n, (unsigned)a.parts);
        launch(b, "attend", kind.attend, grid, (unsigned)kind.threads, kind.shared, a, *spans);
        launch(b, "join_parts", kind.join, dim3((unsigned)p->heads, n), HEAD_CHUNKS * WARP, 0,
               weight_floats(b, &p->sink), a, *spans);
    }
}

static const struct span_operation ATTENTION = {
    attention_run,
    sizeof(struct attention_params),
    {MEMBER(attention_params, sink), MEMBER(attention_params, heads),
     MEMBER(attention_params, ring_slots), MEMBER(attention_params, ratio),
     MEMBER(attention_params, topk), MEMBER(attention_params, place),
     MEMBER(attention_params, math), MEMBER(attention_params, q_scaled),
     MEMBER(attention_params, round), MEMBER(attention_params, precise)},
    offsetof(struct attention_params, reach)};

void cuda_attention(struct backend *base, const struct attention_params *p)
{
    ASSERT(p->sink.store == STORE_F32 && p->sink.rows == p->heads);
    ASSERT(p->ratio == 0 || p->ratio == RATIO_HCA || p->selected != NULL);
    ASSERT(p->reach <= POSITIONS_MAX && p->topk <= INDEX_TOPK_MAX);
    ASSERT(p->place.n_decode == 0 || p->place.n_decode == p->n);
    size_t n = (size_t)p->n, chosen = p->selected == NULL ? 0 : n * sizeof(int32_t);
    size_t row = n * (size_t)p->heads * HEAD_DIM * sizeof(float);
    struct span_call call = {&ATTENTION, p, p->n, {p->at}};
    call.state.memory[RING] = (float *)p->ring;
    call.state.memory[COMPRESSED] = (float *)p->compressed;
    call.rows[0] = {p->q, row};
    call.rows[1] = {p->out, row};
    call.rows[2] = {p->selected, chosen * (size_t)p->topk};
    call.rows[3] = {p->n_selected, chosen};
    call.rows[4] = {p->rope, n * ROPE_ROW * sizeof *p->rope};
    spans_call(cuda_of(base), &call);
}
