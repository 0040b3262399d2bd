/* Dense stages on the GPU: embedding, RMS norm, and the products of linear and grouped. */
#include "kernels/cuda/rows.cuh"

/* ---- embedding ------------------------------------------------------------------------------ */

/* One block a token; two values a thread at a time. */
static __global__ void embed_tokens(struct weight table, const int32_t *ids, int32_t copies,
                                    float *out)
{
    grid_begin();
    int64_t t = blockIdx.x, hidden = table.cols;
    const uint16_t *row = (const uint16_t *)table.data + ids[t] * hidden;
    for (int32_t c = (int32_t)threadIdx.x; c < hidden; c += (int32_t)blockDim.x) {
        float value = bf16_value(row[c]);
        for (int32_t m = 0; m < copies; m++)
            out[(t * copies + m) * hidden + c] = value;
    }
}

void cuda_embed(struct backend *base, const struct embed_params *p)
{
    struct cuda_backend *b = cuda_of(base);
    ASSERT(p->table.store == STORE_BF16);
    launch(b, "embed_tokens", embed_tokens, (unsigned)p->n, 256, 0, weight_get(b, &p->table),
           p->ids, p->copies, p->out);
}

/* ---- norm ----------------------------------------------------------------------------------- */

#define NORM_THREADS 256
/* Chunks of a row that a warp holds; longer rows are read twice. */
#define NORM_HELD 4

static __device__ inline void norm_store(float v[4], const float w[4], double factor,
                                         enum round round, int chunk, float *out,
                                         const testimony &say)
{
    for (int i = 0; i < 4; i++)
        v[i] = (float)((double)(v[i] * w[i]) * factor);
    enum round did = warp_round(round, v);
    testify(say, first_thread() && chunk == 0, ROW_ACT_STORE, value_of_round(did));
    store4(out + chunk * CHUNK + lane_id() * 4, v);
}

/* One block a row; x may be out, as each value is read and written by one thread. */
static __global__ void norm_rows(const float *x, const void *weight, int32_t width,
                                 enum round round, float *out, struct testimony say)
{
    constexpr int WARPS = NORM_THREADS / WARP;
    __shared__ double shared[WARPS];
    int64_t row = (int64_t)blockIdx.x * width;
    int chunks = width / CHUNK;
    float held[NORM_HELD][4] = {}, w[NORM_HELD][4] = {};
#pragma unroll
    for (int i = 0; i < NORM_HELD; i++) { /* these do not depend on other kernels */
        if (warp_id() + i * WARPS < chunks)
            load4_bf16(weight, (warp_id() + i * WARPS) * CHUNK + lane_id() * 4, w[i]);
    }
    grid_begin();
#pragma unroll
    for (int i = 0; i < NORM_HELD; i++) {
        if (warp_id() + i * WARPS < chunks)
            load4(x + row + (warp_id() + i * WARPS) * CHUNK + lane_id() * 4, held[i]);
    }
    double sum = 0;
#pragma unroll
    for (int i = 0; i < NORM_HELD * 4; i++)
        sum += (double)held[i / 4][i % 4] * held[i / 4][i % 4];
    for (int chunk = warp_id() + NORM_HELD * WARPS; chunk < chunks; chunk += WARPS) {
        float v[4];
        load4(x + row + chunk * CHUNK + lane_id() * 4, v);
        for (int i = 0; i < 4; i++)
            sum += (double)v[i] * v[i];
    }
    double factor = 1.0 / sqrt(block_sum(sum, shared) / width + RMS_NORM_EPS);
#pragma unroll
    for (int i = 0; i < NORM_HELD; i++) {
        if (warp_id() + i * WARPS < chunks)
            norm_store(held[i], w[i], factor, round, warp_id() + i * WARPS, out + row, say);
    }
    for (int chunk = warp_id() + NORM_HELD * WARPS; chunk < chunks; chunk += WARPS) {
        float v[4], u[4];
        load4(x + row + chunk * CHUNK + lane_id() * 4, v);
        load4_bf16(weight, chunk * CHUNK + lane_id() * 4, u);
        norm_store(v, u, factor, round, chunk, out + row, say);
    }
}

void cuda_rms_norm(struct backend *base, const struct rms_norm_params *p)
{
    struct cuda_backend *b = cuda_of(base);
    ASSERT(p->weight.store == STORE_BF16 && p->weight.rows == p->width && p->width % CHUNK == 0);
    launch(b, "norm_rows", norm_rows, (unsigned)p->n, NORM_THREADS, 0, p->x,
           weight_get(b, &p->weight).data, p->width, p->round, p->out,
           testimony_of(b, &p->place, p->n));
}

/* ---- products ------------------------------------------------------------------------------- */

/* The rows of the precision table that a product answers for. */
static const struct {
    int round, sum;
} USES[] = {
    [LINEAR_PLAIN] = {ROW_ACT_STORE, ROW_SUM},
    [LINEAR_ENTRY] = {ROW_ACT_STORE, ROW_SUM_ENTRY},
    [LINEAR_COMPRESSOR] = {ROW_COMP_PROJECT, ROW_SUM},
    [LINEAR_HEAD] = {ROW_HEAD_LOGITS, ROW_SUM},
};

void cuda_linear(struct backend *base, const struct linear_params *p)
{
    struct cuda_backend *b = cuda_of(base);
    struct products products = {};
    ASSERT(p->n_outs >= 1 && p->n_outs <= LINEAR_OUTS_MAX && p->n <= b->limits.tokens);
    ASSERT(p->cols <= b->limits.cols && p->cols % CHUNK == 0);
    products.tokens = p->n, products.groups = 1;
    products.x = p->x, products.round_in = p->round_in;
    /* inputs of matrices in bf16 are as they are */
    products.in_row = p->outs[0].w.store == STORE_BF16 ? SAY_NOTHING : ROW_DENSE_LINEAR;
    products.say = testimony_of(b, &p->place, p->n);
    for (int32_t i = 0; i < p->n_outs; i++) {
        ASSERT(p->outs[i].w.cols == p->cols);
        products.list[products.n++] = {weight_get(b, &p->outs[i].w),
                                       p->outs[i].y,
                                       p->outs[i].round,
                                       p->outs[i].precise,
                                       USES[p->outs[i].use].round,
                                       USES[p->outs[i].use].sum};
    }
    products_run(b, &products);
}

void cuda_grouped(struct backend *base, const struct grouped_params *p)
{
    struct cuda_backend *b = cuda_of(base);
    struct products products = {};
    ASSERT(p->w.rows == p->groups * p->rank && p->w.cols == p->cols && p->rank % CHUNK == 0);
    ASSERT(p->cols <= b->limits.cols && p->n <= b->limits.tokens);
    ASSERT(p->groups <= b->limits.groups && p->w.store == STORE_FP8);
    ASSERT((int64_t)p->groups * p->cols <= b->limits.group_cols);
    products.n = 1, products.tokens = p->n, products.groups = p->groups;
    products.x = p->x, products.round_in = p->round_in, products.in_row = ROW_ATTN_OUT;
    products.say = testimony_of(b, &p->place, p->n);
    products.list[0] = {weight_get(b, &p->w), p->y, p->round, p->precise, ROW_ACT_STORE, ROW_SUM};
    products_run(b, &products);
}
