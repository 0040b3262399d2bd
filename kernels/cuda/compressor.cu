/* Compressed entries on the GPU (model.md 2.4, 2.5): pooling, and the queries of the indexer. */
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/spans.cuh"

/* What both have of a sequence's state; the pooled entries as well. */
enum { KAPPA, GAMMA, CACHE };

/* grid: tokens */
static __global__ void store_tokens(const float *ape, struct compressor_store_params p,
                                    const __grid_constant__ struct spans spans, bool beside)
{
    grid_begin(beside);
    int64_t t = blockIdx.x;
    span_row r = span_row_of(spans, t);
    int64_t position = position_of(r), slot = position % p.ring_slots * p.width;
    float *kappa = r.state.memory[KAPPA] + slot, *gamma = r.state.memory[GAMMA] + slot;
    ape += position % p.ratio * p.width;
    for (int32_t c = (int32_t)threadIdx.x; c < p.width; c += (int32_t)blockDim.x) {
        kappa[c] = __ldcg(p.kappa + t * p.width + c);
        gamma[c] = __ldcg(p.gamma + t * p.width + c) + ape[c];
    }
    grid_end(beside);
}

static void store_run(struct cuda_backend *b, const void *params, const struct spans *spans)
{
    const struct compressor_store_params *p = (const struct compressor_store_params *)params;
    size_t n = (size_t)spans_rows(*spans), rows = sizeof(float) * n * (size_t)p->width;
    size_t ring = sizeof(float) * (size_t)p->ring_slots * (size_t)p->width;
    struct footprint f = {{{p->kappa, rows}, {p->gamma, rows}},
                          {spans_cover(spans, KAPPA, ring), spans_cover(spans, GAMMA, ring)}};
    launch_beside(b, f, "store_tokens", store_tokens, (unsigned)n, 256, 0,
                  weight_floats(b, &p->ape), *p, *spans);
}

static const struct span_operation STORE = {
    store_run,
    sizeof(struct compressor_store_params),
    {MEMBER(compressor_store_params, ape), MEMBER(compressor_store_params, ratio),
     MEMBER(compressor_store_params, width), MEMBER(compressor_store_params, ring_slots)},
    0};

void cuda_compressor_store(struct backend *base, const struct compressor_store_params *p)
{
    ASSERT(p->ape.store == STORE_F32 && p->ape.rows == p->ratio && p->ape.cols == p->width);
    ASSERT(p->ring_slots >= p->n); /* tokens are stored side by side */
    size_t rows = sizeof(float) * (size_t)p->n * (size_t)p->width;
    struct span_call call = {&STORE, p, p->n, {p->at, {p->kappa_ring, p->gamma_ring}}};
    call.rows[0] = {p->kappa, rows};
    call.rows[1] = {p->gamma, rows};
    spans_call(cuda_of(base), &call);
}

/* Of the rows that a block pools: its own and, when blocks overlap, the first halves of the block
 * before (absent in front of block 0) with the second halves of its own. */
struct pooled_rows {
    int64_t from, first; /* positions */
    int32_t n;
};

static __device__ inline pooled_rows rows_of_block(const compressor_pool_params &p, int64_t block)
{
    bool overlap = p.width == 2 * p.dim;
    int64_t first = block * p.ratio, from = overlap && block > 0 ? first - p.ratio : first;
    return {from, first, (int32_t)(first + p.ratio - from)};
}

/* One channel: sum over rows of softmax(gamma) * kappa. */
template <typename T>
static __device__ float pool_channel(const compressor_pool_params &p, const span_state &state,
                                     const pooled_rows &rows, int32_t c)
{
    const float *kappas = state.memory[KAPPA], *gammas = state.memory[GAMMA];
    bool overlap = p.width == 2 * p.dim;
    T most = -INFINITY, total = 0, sum = 0;
    for (int32_t i = 0; i < rows.n; i++) {
        int64_t at = rows.from + i;
        int64_t offset = at % p.ring_slots * p.width + (overlap && at >= rows.first ? p.dim : 0);
        T gamma = gammas[offset + c];
        most = i == 0 || gamma > most ? gamma : most;
    }
    for (int32_t i = 0; i < rows.n; i++) {
        int64_t at = rows.from + i;
        int64_t offset = at % p.ring_slots * p.width + (overlap && at >= rows.first ? p.dim : 0);
        T e = exp((T)gammas[offset + c] - most);
        total += e;
        sum += e * kappas[offset + c];
    }
    return (float)(sum / total);
}

/* The Hadamard transform of an index key or query, or none. */
static __device__ void warp_rotate_key(bool rotate, enum round round, float x[4], bool first,
                                       const testimony &say)
{
    if (!rotate) {
        testify(say, first, ROW_INDEX_ROTATE, INDEX_ROTATE_OFF);
        return;
    }
    warp_hadamard(x);
    warp_round(round, x);
    testify(say, first, ROW_INDEX_ROTATE, INDEX_ROTATE_ON);
}

/* One block of N * CHUNK threads a finished block; its first warp ends the row. */
template <int N>
static __global__ void pool_blocks(const void *weight, struct compressor_pool_params p,
                                   const __grid_constant__ struct spans spans, struct testimony say)
{
    grid_begin();
    __shared__ float row[N * CHUNK];
    span_row r = span_row_of(spans, blockIdx.x);
    int64_t block = *r.state.at / p.ratio + r.row;
    pooled_rows rows = rows_of_block(p, block);
    row[threadIdx.x] = p.precise ? pool_channel<double>(p, r.state, rows, (int32_t)threadIdx.x)
                                 : pool_channel<float>(p, r.state, rows, (int32_t)threadIdx.x);
    __syncthreads();
    if (warp_id() != 0)
        return;
    float x[N][4];
    for (int c = 0; c < N; c++) {
        load4(row + c * CHUNK + lane_id() * 4, x[c]);
        warp_round(p.round, x[c]);
    }
    bool first = threadIdx.x == 0 && r.row == 0;
    enum round all = warp_norm<N>(x, weight, p.round), part;
    warp_rotate(x[N - 1], p.rope + (int64_t)blockIdx.x * ROPE_ROW, p.round, false);
    if (p.index) {
        warp_rotate_key(p.rotate, p.round, x[0], first, say);
        part = warp_round(p.round_rotated, x[0]);
        testify_key(say, first, all, part);
    } else {
        part = warp_round_nope<N>(p.round_nope, x);
        testify_entry(say, first, all, part);
    }
    for (int c = 0; c < N; c++)
        store4(r.state.memory[CACHE] + block * p.dim + c * CHUNK + lane_id() * 4, x[c]);
}

static void pool_run(struct cuda_backend *b, const void *params, const struct spans *spans)
{
    const struct compressor_pool_params *p = (const struct compressor_pool_params *)params;
    struct testimony say = testimony_of(b, &p->place, p->n);
    const void *weight = weight_get(b, &p->weight).data;
    auto pool = p->dim == HEAD_DIM ? pool_blocks<HEAD_DIM / CHUNK> : pool_blocks<1>;
    launch(b, "pool_blocks", pool, (unsigned)spans_rows(*spans), (unsigned)p->dim, 0, weight, *p,
           *spans, say);
}

static const struct span_operation POOL = {
    pool_run,
    sizeof(struct compressor_pool_params),
    {MEMBER(compressor_pool_params, weight), MEMBER(compressor_pool_params, ring_slots),
     MEMBER(compressor_pool_params, ratio), MEMBER(compressor_pool_params, width),
     MEMBER(compressor_pool_params, dim), MEMBER(compressor_pool_params, place),
     MEMBER(compressor_pool_params, index), MEMBER(compressor_pool_params, round),
     MEMBER(compressor_pool_params, round_nope), MEMBER(compressor_pool_params, round_rotated),
     MEMBER(compressor_pool_params, rotate), MEMBER(compressor_pool_params, precise)},
    0};

void cuda_compressor_pool(struct backend *base, const struct compressor_pool_params *p)
{
    ASSERT(p->width == p->dim || p->width == 2 * p->dim);
    ASSERT(p->ratio <= RATIO_HCA && p->dim == (p->index ? INDEX_HEAD_DIM : HEAD_DIM));
    struct span_call call = {&POOL, p, p->n, {p->at}};
    call.state.memory[KAPPA] = (float *)p->kappa_ring;
    call.state.memory[GAMMA] = (float *)p->gamma_ring;
    call.state.memory[CACHE] = p->cache;
    call.rows[0] = {p->rope, (size_t)p->n * ROPE_ROW * sizeof *p->rope};
    spans_call(cuda_of(base), &call);
}

/* One warp a head of a token. */
static __global__ void index_queries(struct index_query_params p, struct testimony say, bool beside)
{
    grid_begin(beside);
    int64_t unit = (int64_t)blockIdx.x * (blockDim.x / WARP) + warp_id();
    if (unit >= (int64_t)p.n * p.heads) {
        grid_end(beside);
        return;
    }
    float x[4], *q = p.q + unit * INDEX_HEAD_DIM + lane_id() * 4;
    load4_fresh(q, x);
    warp_rotate(x, p.rope + unit / p.heads * ROPE_ROW, p.round, false);
    warp_rotate_key(p.rotate, p.round, x, first_thread(), say);
    testify_key(say, first_thread(), p.round, warp_round(p.round_rotated, x));
    store4(q, x);
    grid_end(beside);
}

void cuda_index_query(struct backend *base, const struct index_query_params *p)
{
    struct cuda_backend *b = cuda_of(base);
    static_assert(INDEX_HEAD_DIM == CHUNK, "a warp holds an index head");
    struct footprint f = {};
    f.reads[0] =
        f.writes[0] = {p->q, sizeof(float) * (size_t)p->n * (size_t)p->heads * INDEX_HEAD_DIM};
    launch_beside(b, f, "index_queries", index_queries,
                  (unsigned)ceil_div((int64_t)p->n * p->heads, 4), 4 * WARP, 0, *p,
                  testimony_of(b, &p->place, p->n));
}
