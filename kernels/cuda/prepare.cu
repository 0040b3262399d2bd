/*
 * Makes rows ready for products.cu: SwiGLU in front of them, rounding, and the split into what the
 * tensor cores take.  Of one token the products make their row ready themselves.
 */
#include "kernels/cuda/split.cuh"

struct prepare_params {
    struct prepare p;
    struct operand half, bfloat; /* without n_parts when nobody wants them */
};

static __device__ inline float swiglu(float gate, float up, float limit, float weight)
{
    float a = fminf(gate, limit), b = fmaxf(fminf(up, limit), -limit);
    return a / (expf(-a) + 1.0f) * b * weight;
}

static __device__ inline float swiglu_precise(float gate, float up, double limit, float weight)
{
    double a = fmin((double)gate, limit), b = fmax(fmin((double)up, limit), -limit);
    return (float)(a / (1 + exp(-a)) * b * weight);
}

/* x of one chunk in front of the rounding that counts. */
static __device__ inline void raw_chunk(const prepare &p, int64_t row, int32_t column, float x[4])
{
    load4_fresh(p.x + row % p.x_rows * p.cols + column, x);
    if (p.up == NULL)
        return;
    float up[4], weight = row < p.other ? __ldcg(p.weight + row) : 1.0f, limit = (float)p.limit;
    load4_fresh(p.up + row * p.cols + column, up);
    for (int i = 0; i < 4; i++)
        x[i] = p.precise ? swiglu_precise(x[i], up[i], limit, weight)
                         : swiglu(x[i], up[i], limit, weight);
    warp_round(p.round_mid, x);
}

static __device__ inline void testify_clamp(const prepare &p, bool first)
{
    float limit = (float)p.limit;
    testify(p.say, first, p.up == NULL ? SAY_NOTHING : ROW_MOE_CLAMP,
            isfinite(limit) ? MOE_CLAMP_ON : MOE_CLAMP_OFF, limit);
}

/* The scale of all of a row, for NVFP4. */
static __device__ float row_scale(const prepare &p, int64_t row, float *shared)
{
    float amax = 0;
    for (int chunk = warp_id(); chunk < p.cols / CHUNK; chunk += blockDim.x / WARP) {
        float x[4];
        raw_chunk(p, row, chunk * CHUNK + lane_id() * 4, x);
        for (int i = 0; i < 4; i++)
            amax = fmaxf(amax, fabsf(x[i]));
    }
    amax = warp_max(amax);
    if (lane_id() == 0)
        shared[warp_id()] = amax;
    __syncthreads();
    for (int i = 0; i < (int)(blockDim.x / WARP); i++)
        amax = fmaxf(amax, shared[i]);
    return amax / (6.0f * 448.0f);
}

/* Of a block at most. */
#define PREPARE_WARPS 16

/* A chunk of a row, rounded.  all: of NVFP4  @return what was done */
static __device__ inline enum round ready_chunk(const prepare &p, int64_t row, int32_t column,
                                                enum round round, float all, float x[4])
{
    raw_chunk(p, row, column, x);
    return round == ROUND_NVFP4 ? warp_round_nvfp4(all, x) : warp_round(round, x);
}

/* All of a row as 16-bit numbers; most: parts of a value that are written.  The number of parts
 * needed goes to `needed`, of float16 and of bfloat16. */
static __device__ inline void split_chunk(const prepare_params &k, const float x[4], int64_t row,
                                          int chunk, int most, int needed[2])
{
    int64_t at = row * k.p.cols + chunk * CHUNK + lane_id() * 4;
    if (k.half.n_parts != NULL)
        needed[0] = max(needed[0], split_half(x, k.half, row, at, chunk, k.p.cols / CHUNK, most));
    if (k.bfloat.n_parts != NULL)
        needed[1] = max(needed[1], split_bfloat(x, k.bfloat, at, most));
}

/* The most that a thread of the block needs; it does not shrink. */
static __device__ inline void parts_note(int parts[2], const int needed[2])
{
    atomicMax(&parts[0], needed[0]);
    atomicMax(&parts[1], needed[1]);
    __syncthreads();
}

/* One block a row.  Most rows need one part: only for others all three are written, by going
 * through the row again. */
static __global__ void __launch_bounds__(PREPARE_WARPS *WARP, 2)
    prepare_rows(struct prepare_params k, bool beside)
{
    __shared__ int parts[2];
    __shared__ float most[WARP];
    const struct prepare &p = k.p;
    grid_begin(beside);
    int64_t row = blockIdx.x;
    int chunks = p.cols / CHUNK, warps = (int)(blockDim.x / WARP), needed[2] = {1, 1};
    bool other = row >= p.other;
    enum round round = other ? p.round_other : p.round_in;
    float all = round == ROUND_NVFP4 ? row_scale(p, row, most) : 0, x[4];
    if (threadIdx.x == 0)
        parts[0] = parts[1] = 1;
    __syncthreads();
    for (int chunk = warp_id(); chunk < chunks; chunk += warps) {
        int32_t column = chunk * CHUNK + lane_id() * 4;
        enum round did = ready_chunk(p, row, column, round, all, x);
        testify_clamp(p, first_thread() && column == 0);
        testify(p.say, column == 0 && (row == 0 || row == p.other), other ? p.other_row : p.in_row,
                value_of_round(did));
        if (p.rounded != NULL)
            store4(p.rounded + row * p.cols + column, x);
        split_chunk(k, x, row, chunk, 1, needed);
    }
    parts_note(parts, needed);
    if (parts[0] > 1 || parts[1] > 1) {
        for (int chunk = warp_id(); chunk < chunks; chunk += warps) {
            ready_chunk(p, row, chunk * CHUNK + lane_id() * 4, round, all, x);
            split_chunk(k, x, row, chunk, OPERAND_PARTS, needed);
        }
        parts_note(parts, needed);
    }
    if (threadIdx.x == 0 && k.half.n_parts != NULL)
        k.half.n_parts[row] = (uint8_t)parts[0];
    if (threadIdx.x == 0 && k.bfloat.n_parts != NULL)
        k.bfloat.n_parts[row] = (uint8_t)parts[1];
    grid_end(beside);
}

/* All of an operand's memory: its pieces lie in a row (scratch_carve). */
static struct memory memory_of(const struct operand *o)
{
    return o == NULL ? memory{} : memory{o->part[0], o->bytes};
}

void prepare_run(struct cuda_backend *b, const struct prepare *p)
{
    struct prepare_params k = {*p, {}, {}};
    ASSERT(p->cols % CHUNK == 0);
    if (p->half != NULL)
        k.half = *p->half;
    if (p->bfloat != NULL)
        k.bfloat = *p->bfloat;
    int warps = p->cols / CHUNK < PREPARE_WARPS ? p->cols / CHUNK : PREPARE_WARPS;
    size_t values = (size_t)p->rows * (size_t)p->cols * sizeof(float);
    struct footprint f = {
        {{p->x, (size_t)p->x_rows * (size_t)p->cols * sizeof(float)},
         {p->up, p->up == NULL ? 0 : values},
         {p->weight, p->up == NULL ? 0 : (size_t)p->other * sizeof(float)}},
        {{p->rounded, p->rounded == NULL ? 0 : values}, memory_of(p->half), memory_of(p->bfloat)}};
    launch_beside(b, f, "prepare_rows", prepare_rows, (unsigned)p->rows, (unsigned)(warps * WARP),
                  0, k);
}
