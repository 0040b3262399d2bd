/*
 * Rows of attention on the GPU (model.md 2.3): rotations, queries, and the entries of the window.
 * A warp holds a head: four chunks of 128 channels.
 */
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/spans.cuh"

#define HEAD_CHUNKS (HEAD_DIM / CHUNK)

/* ---- rotations and rows --------------------------------------------------------------------- */

static __global__ void rope_rows(struct rope_table_params p)
{
    grid_begin();
    int64_t t = blockIdx.x;
    int i = (int)threadIdx.x;
    double angle = p.positions[t] * p.frequency[i], s, c;
    sincos(angle, &s, &c);
    p.rows[t * ROPE_ROW + 2 * i] = c;
    p.rows[t * ROPE_ROW + 2 * i + 1] = s;
}

void cuda_rope_table(struct backend *base, const struct rope_table_params *p)
{
    launch(cuda_of(base), "rope_rows", rope_rows, (unsigned)p->n, ROPE_HEAD_DIM / 2, 0, *p);
}

static __device__ inline void load_head(const float *from, float x[HEAD_CHUNKS][4])
{
    for (int c = 0; c < HEAD_CHUNKS; c++)
        load4_fresh(from + c * CHUNK + lane_id() * 4, x[c]);
}

static __device__ inline void store_head(float *to, const float x[HEAD_CHUNKS][4])
{
    for (int c = 0; c < HEAD_CHUNKS; c++)
        store4(to + c * CHUNK + lane_id() * 4, x[c]);
}

/* HEAD_DIM^-0.5: the scale of attention logits. */
#define SOFTMAX_SCALE 0.044194173824159216

/* The norm as the published code computes it: every step stored in bf16. */
static __device__ enum precision_ATTN_QNORM norm_in_bf16(float x[HEAD_CHUNKS][4])
{
    double sum = 0;
    for (int c = 0; c < HEAD_CHUNKS; c++) {
        for (int i = 0; i < 4; i++)
            sum += round_bf16(x[c][i] * x[c][i]);
    }
    float mean = round_bf16((float)(warp_sum(sum) / HEAD_DIM));
    double root = round_bf16((float)(mean + RMS_NORM_EPS));
    float factor = round_bf16((float)(1.0 / sqrt(root)));
    for (int c = 0; c < HEAD_CHUNKS; c++) {
        for (int i = 0; i < 4; i++)
            x[c][i] = round_bf16((float)((double)x[c][i] * factor));
    }
    return ATTN_QNORM_BF16;
}

static __device__ enum precision_ATTN_QNORM norm_in_float32(float x[HEAD_CHUNKS][4])
{
    warp_norm<HEAD_CHUNKS>(x, NULL, ROUND_NONE);
    return ATTN_QNORM_FP32;
}

/* Rounds a head and says what it did. */
static __device__ enum round round_head(enum round round, float x[HEAD_CHUNKS][4])
{
    enum round did = ROUND_NONE;
    for (int c = 0; c < HEAD_CHUNKS; c++)
        did = warp_round(round, x[c]);
    return did;
}

static __device__ enum precision_ATTN_QUERY scale_head(float x[HEAD_CHUNKS][4])
{
    for (int c = 0; c < HEAD_CHUNKS; c++) {
        for (int i = 0; i < 4; i++)
            x[c][i] = (float)((double)x[c][i] * SOFTMAX_SCALE);
    }
    return round_head(ROUND_BF16, x) == ROUND_BF16 ? ATTN_QUERY_BF16_SCALED : ATTN_QUERY_FP32;
}

/* One warp a head of a token. */
static __global__ void query_heads(struct query_params p, struct testimony say, bool beside)
{
    grid_begin(beside);
    int64_t unit = (int64_t)blockIdx.x * (blockDim.x / WARP) + warp_id();
    if (unit >= (int64_t)p.n * p.heads) {
        grid_end(beside);
        return;
    }
    float x[HEAD_CHUNKS][4];
    load_head(p.q + unit * HEAD_DIM, x);
    enum round round = p.store == ATTN_QUERY_FP32 ? ROUND_NONE : ROUND_BF16;
    enum precision_ATTN_QNORM norm =
        p.norm == ATTN_QNORM_BF16 ? norm_in_bf16(x) : norm_in_float32(x);
    enum precision_ATTN_QUERY stored =
        round_head(round, x) == ROUND_BF16 ? ATTN_QUERY_BF16 : ATTN_QUERY_FP32;
    warp_rotate(x[HEAD_CHUNKS - 1], p.rope + unit / p.heads * ROPE_ROW, round, false);
    if (p.store == ATTN_QUERY_BF16_SCALED)
        stored = scale_head(x);
    testify(say, first_thread(), ROW_ATTN_QNORM, norm);
    testify(say, first_thread(), ROW_ATTN_QUERY, stored);
    store_head(p.q + unit * HEAD_DIM, x);
    grid_end(beside);
}

void cuda_query(struct backend *base, const struct query_params *p)
{
    unsigned blocks = (unsigned)ceil_div((int64_t)p->n * p->heads, 4);
    struct footprint f = {};
    f.reads[0] = f.writes[0] = {p->q, sizeof(float) * (size_t)p->n * (size_t)p->heads * HEAD_DIM};
    launch_beside(cuda_of(base), f, "query_heads", query_heads, blocks, 4 * WARP, 0, *p,
                  testimony_of(cuda_of(base), &p->place, p->n));
}

/* One warp a token. */
static __global__ void kv_tokens(const void *weight, struct kv_store_params p,
                                 const __grid_constant__ struct spans spans, struct testimony say,
                                 bool beside)
{
    grid_begin(beside);
    int64_t t = blockIdx.x;
    span_row r = span_row_of(spans, t);
    float x[HEAD_CHUNKS][4], *ring = r.state.memory[0];
    load_head(p.kv + t * HEAD_DIM, x);
    enum round all = warp_norm<HEAD_CHUNKS>(x, weight, p.round);
    warp_rotate(x[HEAD_CHUNKS - 1], p.rope + t * ROPE_ROW, p.round, false);
    testify_entry(say, threadIdx.x == 0 && r.row == 0, all,
                  warp_round_nope<HEAD_CHUNKS>(p.round_nope, x));
    store_head(ring + position_of(r) % p.ring_slots * HEAD_DIM, x);
    grid_end(beside);
}

static void kv_run(struct cuda_backend *b, const void *params, const struct spans *spans)
{
    const struct kv_store_params *p = (const struct kv_store_params *)params;
    size_t rows = (size_t)spans_rows(*spans);
    struct footprint f = {};
    f.reads[0] = {p->kv, sizeof(float) * rows * HEAD_DIM};
    f.writes[0] = spans_cover(spans, 0, sizeof(float) * (size_t)p->ring_slots * HEAD_DIM);
    launch_beside(b, f, "kv_tokens", kv_tokens, (unsigned)rows, WARP, 0,
                  weight_get(b, &p->weight).data, *p, *spans, testimony_of(b, &p->place, p->n));
}

static const struct span_operation KV_STORE = {
    kv_run,
    sizeof(struct kv_store_params),
    {MEMBER(kv_store_params, weight), MEMBER(kv_store_params, place),
     MEMBER(kv_store_params, round), MEMBER(kv_store_params, round_nope),
     MEMBER(kv_store_params, ring_slots)},
    0};

void cuda_kv_store(struct backend *base, const struct kv_store_params *p)
{
    ASSERT(p->ring_slots >= SLIDING_WINDOW - 1 + p->n); /* nothing a query of this step needs */
    size_t n = (size_t)p->n;
    struct span_call call = {&KV_STORE, p, p->n, {p->at, {p->ring}}};
    call.rows[0] = {p->kv, n * HEAD_DIM * sizeof *p->kv};
    call.rows[1] = {p->rope, n * ROPE_ROW * sizeof *p->rope};
    spans_call(cuda_of(base), &call);
}
