/*
 * Matrix products: y[token][row] = sum over k of w[row][k] * x[token][k], weights as stored.
 *
 * In float32: on the tensor cores, whose products of 16-bit numbers are exact.  x is split into as
 * many 16-bit numbers as it takes (one for what the published numerics leave, three for any
 * float32), float16 with a power of two for each 128 values against FP8 and FP4, bfloat16 against
 * bfloat16.  Every 128 values (32 of FP4) the sum goes into a float32 accumulator with the scales.
 * In double: with plain arithmetic, products exact.
 *
 * Bound by memory at few tokens: each weight is read once for 8 to 32 tokens.  The warps of a block
 * share the chunks of the same 16 rows (tiles.cuh); how many depends on the row's length alone, and
 * columns of an instruction do not see each other, so a token's result does not depend on the call.
 *
 * Products of one token wait until something else is asked for: more of the same row join their
 * launch.
 */
#include "kernels/cuda/panels.cuh"

#include <stdlib.h>
#include <string.h>

/* The longest row that blocks make ready themselves: 48 KB of shared memory. */
#define ALONE_COLS_MAX 8192
/* Warps of a block that sums in double, and what one of them takes at once: few rows spread over
 * the multiprocessors, or many, so that conversions to double are shared. */
#define PRECISE_WARPS  4
#define PRECISE_ROWS   4
#define PRECISE_TOKENS 4
#define PRECISE_SIDE   8   /* of both, where blocks are many: */
#define PRECISE_MANY   200 /* from so many tokens on */

/* Matrices that one launch multiplies with a row: those of two calls. */
#define BLOCKS_MAX 8

struct product_block {
    struct weight w;
    float *y;
    enum round round, round_in;
    bool precise; /* of one token; of several they have a kernel of their own */
    int round_row, sum_row, in_row;
    int32_t first_tile;
};

struct product_launch {
    struct product_block list[BLOCKS_MAX];
    int32_t n, tokens, groups, rank; /* rank: rows of a group */
    int32_t slices;
    struct operand half, bfloat;
    const float *x; /* one token: before round_in, which the blocks do; NULL: rows are ready */
    struct testimony say;
};

/* The matrix that a tile of the launch belongs to. */
static __device__ inline const struct product_block &block_of_tile(const product_launch &p,
                                                                   int tile)
{
    int at = 0;
    while (at + 1 < p.n && tile >= p.list[at + 1].first_tile)
        at++;
    return p.list[at];
}

/* Parts that rows of a rounding have at most: values of e4m3 under one scale fit float16. */
static __host__ __device__ inline int parts_most(enum round round_in, bool bfloat)
{
    return round_in == ROUND_FP8_128 && !bfloat ? 1 : OPERAND_PARTS;
}

/* A row of x made ready by the block that multiplies it, in shared memory: for one token a kernel
 * of its own takes longer. */
static __device__ struct tile_rows row_ready(const product_block &m, const float *x, bool bfloat,
                                             bool first, const testimony &say, float *shared)
{
    constexpr int AHEAD = 2; /* loads on their way together */
    __shared__ int needed;
    __shared__ int32_t x_row[TILE_COLS];
    int cols = m.w.cols, chunks = cols / CHUNK, warps = (int)(blockDim.x / WARP), parts = 1;
    int most = parts_most(m.round_in, bfloat);
    struct operand o = {};
    o.scale = shared;
    for (int part = 0; part < OPERAND_PARTS; part++)
        o.part[part] = (uint16_t *)(shared + (chunks + 3) / 4 * 4) + part * cols;
    if (threadIdx.x < TILE_COLS)
        x_row[threadIdx.x] = 0;
    if (threadIdx.x == 0)
        needed = 1;
    __syncthreads();
    for (int begin = warp_id(); begin < chunks; begin += AHEAD * warps) {
        float v[AHEAD][4];
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            load4_fresh(x + min(begin + i * warps, chunks - 1) * CHUNK + lane_id() * 4, v[i]);
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            int chunk = begin + i * warps, at = chunk * CHUNK + lane_id() * 4;
            if (chunk >= chunks)
                break;
            enum round did = warp_round(m.round_in, v[i]);
            testify(say, first && at == 0, m.in_row, value_of_round(did));
            parts = max(parts, bfloat ? split_bfloat(v[i], o, at, OPERAND_PARTS)
                                      : split_half(v[i], o, 0, at, chunk, chunks, most));
        }
    }
    if (most > 1)
        atomicMax(&needed, parts);
    __syncthreads();
    return {o, x_row, needed};
}

/* Bytes of row_ready. */
static size_t ready_bytes(int32_t cols, int parts)
{
    return (size_t)((cols / CHUNK + 3) / 4 * 4) * sizeof(float) +
           (size_t)cols * (size_t)parts * sizeof(uint16_t);
}

static __device__ void precise_alone(const product_launch &p, const product_block &m, int tile);

/* BLOCKS: of a multiprocessor.  WIDE: as of lane_ahead */
template <int NT, int BLOCKS, int WIDE>
static __global__ void __launch_bounds__(SLICES_MAX *WARP, BLOCKS)
    product_tiles(const __grid_constant__ struct product_launch p, bool beside)
{
    extern __shared__ float shared[];
    __shared__ int32_t x_row[NT * TILE_COLS];
    const struct product_block &m = block_of_tile(p, (int)blockIdx.x);
    int row0 = ((int)blockIdx.x - m.first_tile) * TILE_ROWS;
    int token0 = (int)blockIdx.y * NT * TILE_COLS, n = min(p.tokens - token0, NT * TILE_COLS);
    bool first = row0 == 0 && token0 == 0;
    auto ready = [&](bool bfloat) -> struct tile_rows {
        grid_begin(beside);
        if (NT == 1 && p.x != NULL)
            return row_ready(m, p.x + (int64_t)(row0 / p.rank) * m.w.cols, bfloat, first, p.say,
                             shared + p.slices * TILE_ROWS * NT * TILE_COLS);
        const struct operand &x = bfloat ? p.bfloat : p.half;
        int mine = token0 + min((int)threadIdx.x, n - 1);
        int parts = rows_parts<NT>(x_row, n, mine *p.groups + row0 / p.rank, x.n_parts);
        return {x, x_row, parts};
    };
    if (NT == 1 && m.precise) {
        grid_begin(beside);
        precise_alone(p, m, (int)blockIdx.x - m.first_tile);
    } else {
        tile_out out = {
            m.y + (int64_t)token0 * m.w.rows, m.w.rows, n, m.round, first, m.round_row, m.sum_row};
        tile_run<NT, WIDE, true>(m.w, row0, p.slices, ready, out, p.say, shared);
    }
    grid_end(beside);
}

/* Many tokens; first_tile counts blocks. */
static __global__ void __launch_bounds__(PANEL_THREADS(PANEL_HIGH), 2)
    product_panels(const __grid_constant__ struct product_launch p)
{
    extern __shared__ float shared[];
    __shared__ int32_t x_row[PANEL_TOKENS];
    const struct product_block &m = block_of_tile(p, (int)blockIdx.x);
    int first = ((int)blockIdx.x - m.first_tile) * PANEL_ROWS;
    int token0 = (int)blockIdx.y * PANEL_TOKENS, n = min(p.tokens - token0, PANEL_TOKENS);
    auto ready = [&](bool bfloat) -> struct tile_rows {
        grid_begin();
        const struct operand &x = bfloat ? p.bfloat : p.half;
        int mine = token0 + min((int)threadIdx.x, n - 1);
        int parts = rows_parts<PANEL_TILES>(x_row, n, mine *p.groups + first / p.rank, x.n_parts);
        return {x, x_row, parts};
    };
    int row0 = first + warp_id() * PANEL_HIGH * TILE_ROWS;
    tile_out out = {m.y + (int64_t)token0 * m.w.rows, m.w.rows,    n,        m.round,
                    row0 == 0 && token0 == 0,         m.round_row, m.sum_row};
    struct panel &panel = *(struct panel *)shared;
    if (m.w.store == STORE_BF16)
        panel_run<STORE_BF16, PANEL_HIGH>(m.w, row0, p.slices, ready, out, p.say, panel);
    else
        panel_run<STORE_FP8, PANEL_HIGH>(m.w, row0, p.slices, ready, out, p.say, panel);
}

struct expert_launch {
    const struct expert_weights *experts;
    const struct item *items;
    const int32_t *n_items;
    const int32_t *chosen;      /* NULL: items; else of the one token of the step */
    int32_t top, n_routed;      /* with chosen */
    bool known;                 /* chosen and items are there before the rows of x are */
    const int32_t *entry_token; /* with items */
    float *y[2];                /* of w1 and w3, or of w2 alone */
    int32_t rows, tiles;        /* tiles of one matrix */
    bool second;
    enum round round;
    struct operand half, bfloat;
    const float *x; /* sums in double */
    int round_row, sum_row;
    struct testimony say;
};

static __device__ inline const struct weight &expert_matrix(const expert_launch &p, int expert,
                                                            int which)
{
    const struct expert_weights &e = p.experts[expert];
    return p.second ? e.w2 : which == 0 ? e.w1 : e.w3;
}

/* Entries of one token need no sorting: its choices ascend, and the shared experts follow; but the
 * blocks of these come first, as nobody has to choose them. */
static __device__ inline int entry_alone(const expert_launch &p)
{
    int entry = (int)blockIdx.y + p.top;
    return entry < (int)gridDim.y ? entry : entry - (int)gridDim.y;
}

/* What this block multiplies; n = 0: nothing.  `begin` is called where that must be waited for. */
template <typename BEGIN>
static __device__ inline struct item item_of_block(const expert_launch &p, const BEGIN &begin)
{
    int entry = p.chosen != NULL ? entry_alone(p) : 0;
    bool shared = p.chosen != NULL && entry >= p.top;
    if (!p.known && !shared)
        begin();
    if (p.chosen != NULL)
        return {shared ? p.n_routed + entry - p.top : __ldcg(p.chosen + entry), entry, 1};
    if ((int)blockIdx.y >= __ldcg(p.n_items))
        return {};
    const struct item *i = p.items + blockIdx.y;
    return {__ldcg(&i->expert), __ldcg(&i->first), __ldcg(&i->n)};
}

/* The row of x of an entry; shared experts, whose input is rounded by itself, have the second
 * half of the rows. */
static __device__ inline int row_of_entry(const expert_launch &p, int entry)
{
    if (p.second)
        return entry;
    return p.chosen != NULL ? entry >= p.top : p.entry_token[entry];
}

static __global__ void __launch_bounds__(SLICES_MAX *WARP, 4)
    expert_tiles(const __grid_constant__ struct expert_launch p)
{
    extern __shared__ float shared[];
    __shared__ int32_t x_row[TILE_COLS];
    bool begun = false;
    auto begin = [&]() {
        if (!begun)
            grid_begin();
        begun = true;
    };
    struct item item = item_of_block(p, begin);
    if (item.n == 0)
        return;
    int which = (int)blockIdx.x / p.tiles, row0 = (int)blockIdx.x % p.tiles * TILE_ROWS;
    const struct weight w = expert_matrix(p, item.expert, which);
    auto ready = [&](bool bfloat) -> struct tile_rows {
        begin();
        const struct operand &x = bfloat ? p.bfloat : p.half;
        int row = row_of_entry(p, item.first + min((int)threadIdx.x, item.n - 1));
        int parts = rows_parts<1>(x_row, item.n, row, x.n_parts);
        return {x, x_row, parts};
    };
    tile_out out = {p.y[which] + (int64_t)item.first * p.rows, p.rows,      item.n,   p.round,
                    blockIdx.x == 0 && blockIdx.y == 0,        p.round_row, p.sum_row};
    tile_run<1, 1, false>(w, row0, (int)(blockDim.x / WARP), ready, out, p.say, shared);
}

/* Items of 8 entries, many of them. */
template <int SLICES>
static __global__ void __launch_bounds__(STRIP_WARPS *WARP, 2)
    expert_strips(const __grid_constant__ struct expert_launch p)
{
    __shared__ int32_t x_row[TILE_COLS];
    __shared__ struct strip_stage stages[STRIP_STAGES];
    grid_begin();
    struct item item = item_of_block(p, []() {});
    if (item.n == 0)
        return;
    int which = (int)blockIdx.x / p.tiles;
    int row0 = ((int)blockIdx.x % p.tiles * STRIP_WARPS + warp_id()) * TILE_ROWS;
    const struct weight w = expert_matrix(p, item.expert, which);
    int row = row_of_entry(p, item.first + min((int)threadIdx.x, item.n - 1));
    auto ready = [&](bool bfloat) -> struct tile_rows {
        const struct operand &x = bfloat ? p.bfloat : p.half;
        return {x, x_row, rows_parts<1>(x_row, item.n, row, x.n_parts)};
    };
    tile_out out = {p.y[which] + (int64_t)item.first * p.rows,       p.rows,      item.n,   p.round,
                    blockIdx.x == 0 && blockIdx.y == 0 && row0 == 0, p.round_row, p.sum_row};
    if (w.store == STORE_FP4)
        strip_run<STORE_FP4, SLICES>(w, row0, ready, out, p.say, stages);
    else if (w.store == STORE_NVFP4)
        strip_run<STORE_NVFP4, SLICES>(w, row0, ready, out, p.say, stages);
    else
        strip_run<STORE_FP8, SLICES>(w, row0, ready, out, p.say, stages);
}

/* Items of more entries than a strip has. */
static __global__ void __launch_bounds__(PANEL_THREADS(EXPERT_HIGH), 2)
    expert_panels(const __grid_constant__ struct expert_launch p, int slices)
{
    extern __shared__ float shared[];
    __shared__ int32_t x_row[PANEL_TOKENS];
    grid_begin();
    struct item item = item_of_block(p, []() {});
    if (item.n == 0)
        return;
    int which = (int)blockIdx.x / p.tiles, first = (int)blockIdx.x % p.tiles * PANEL_ROWS;
    int row0 = first + warp_id() * EXPERT_HIGH * TILE_ROWS;
    const struct weight w = expert_matrix(p, item.expert, which);
    int row = row_of_entry(p, item.first + min((int)threadIdx.x, item.n - 1));
    auto ready = [&](bool) -> struct tile_rows {
        return {p.half, x_row, rows_parts<PANEL_TILES>(x_row, item.n, row, p.half.n_parts)};
    };
    tile_out out = {p.y[which] + (int64_t)item.first * p.rows,       p.rows,      item.n,   p.round,
                    blockIdx.x == 0 && blockIdx.y == 0 && row0 == 0, p.round_row, p.sum_row};
    struct panel &panel = *(struct panel *)shared;
    if (w.store == STORE_FP4)
        pairs_run<STORE_FP4, EXPERT_HIGH>(w, row0, slices, ready, out, p.say, panel);
    else if (w.store == STORE_NVFP4)
        pairs_run<STORE_NVFP4, EXPERT_HIGH>(w, row0, slices, ready, out, p.say, panel);
    else
        pairs_run<STORE_FP8, EXPERT_HIGH>(w, row0, slices, ready, out, p.say, panel);
}

/* ---- sums in double ------------------------------------------------------------------------- */

/* Part `slice` of ROWS rows from `row` on times TOKENS rows of x: every PRECISE_WARPSth chunk, in
 * the same order whatever ROWS and TOKENS are.  One row of x is rounded on the way.  FP8: so are
 * the weights, which needs no question for each row. */
template <int ROWS, int TOKENS, bool FP8 = false>
static __device__ enum round precise_part(const struct weight &w, int row, const float *const *x,
                                          enum round round_in, int slice, double sum[ROWS][TOKENS])
{
    enum round did = ROUND_NONE;
    for (int i = 0; i < ROWS * TOKENS; i++)
        sum[i / TOKENS][i % TOKENS] = 0;
#pragma unroll ROWS == 1 ? 8 : ROWS *TOKENS> 16 ? 1 : 2
    for (int chunk = slice; chunk < w.cols / CHUNK; chunk += PRECISE_WARPS) {
        float v[ROWS][4], token[TOKENS][4];
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            (FP8 ? weight_quad_fp8 : weight_quad)(w, min(row + r, w.rows - 1), chunk, lane_id(),
                                                  v[r]);
#pragma unroll
        for (int i = 0; i < TOKENS; i++) {
            load4_fresh(x[i] + chunk * CHUNK + lane_id() * 4, token[i]);
            if constexpr (ROWS == 1)
                did = warp_round(round_in, token[i]);
        }
#pragma unroll
        for (int k = 0; k < 4; k++) {
            double values[TOKENS];
#pragma unroll
            for (int i = 0; i < TOKENS; i++)
                values[i] = token[i][k];
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                double weight = v[r][k];
#pragma unroll
                for (int i = 0; i < TOKENS; i++)
                    sum[r][i] = fma(weight, values[i], sum[r][i]);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < ROWS * TOKENS; i++)
        sum[i / TOKENS][i % TOKENS] = warp_sum(sum[i / TOKENS][i % TOKENS]);
    return did;
}

/* Where a block's sums go: row r of token i to y + i * stride + r; and what it says. */
struct precise_out {
    float *y;
    int64_t stride;
    int rows, n;
    enum round round;
    bool first;
};

struct precise_say {
    struct testimony say;
    int round_row, sum_row;
};

/* A sum to where it is stored. */
static __device__ inline float precise_stored(const struct weight &w, enum round round, double sum,
                                              enum round *did)
{
    return stored(round, (float)(w.store == STORE_NVFP4 ? sum * w.global : sum), did);
}

/* One token's rows: a row for PRECISE_WARPS warps of the block. */
static __device__ void precise_alone(const product_launch &p, const product_block &m, int tile)
{
    __shared__ double parts[SLICES_MAX];
    double sum[1][1];
    int row = tile * (int)(blockDim.x / WARP / PRECISE_WARPS) + warp_id() / PRECISE_WARPS;
    const float *x = p.x + (int64_t)(min(row, m.w.rows - 1) / p.rank) * m.w.cols;
    enum round did, did_in = precise_part<1, 1>(m.w, min(row, m.w.rows - 1), &x, m.round_in,
                                                warp_id() % PRECISE_WARPS, sum);
    if (lane_id() == 0)
        parts[warp_id()] = sum[0][0];
    __syncthreads();
    if (threadIdx.x % (PRECISE_WARPS * WARP) != 0 || row >= m.w.rows)
        return;
    double all = parts[warp_id()];
    for (int warp = 1; warp < PRECISE_WARPS; warp++)
        all += parts[warp_id() + warp];
    m.y[row] = precise_stored(m.w, m.round, all, &did);
    testify(p.say, row == 0, m.round_row, value_of_round(did));
    testify(p.say, row == 0, m.sum_row, SUM_F64);
    testify(p.say, row == 0, m.in_row, value_of_round(did_in));
}

/* All of a block: its warps' parts, then their sum in order. */
template <int ROWS, int TOKENS>
static __device__ void precise_tile(const struct weight &w, int row, const float *const *x,
                                    const precise_out &out, const precise_say &s)
{
    __shared__ double parts[PRECISE_WARPS][ROWS * TOKENS];
    double sum[ROWS][TOKENS];
    enum round did;
    if (w.store == STORE_FP8)
        precise_part<ROWS, TOKENS, true>(w, row, x, ROUND_NONE, warp_id(), sum);
    else
        precise_part<ROWS, TOKENS>(w, row, x, ROUND_NONE, warp_id(), sum);
    __syncthreads(); /* parts of the tile before */
#pragma unroll
    for (int i = 0; i < ROWS * TOKENS; i++) {
        if (lane_id() == 0)
            parts[warp_id()][i] = sum[i / TOKENS][i % TOKENS];
    }
    __syncthreads();
    int i = (int)threadIdx.x, r = i / TOKENS, token = i % TOKENS;
    if (i >= ROWS * TOKENS || r >= out.rows || token >= out.n)
        return;
    double all = parts[0][i];
    for (int warp = 1; warp < PRECISE_WARPS; warp++)
        all += parts[warp][i];
    out.y[token * out.stride + r] = precise_stored(w, out.round, all, &did);
    testify(s.say, out.first && i == 0, s.round_row, value_of_round(did));
    testify(s.say, out.first && i == 0, s.sum_row, SUM_F64);
}

/* grid: rows / ROWS, tokens / TOKENS */
template <int ROWS, int TOKENS>
static __global__ void __launch_bounds__(PRECISE_WARPS *WARP)
    precise_rows(struct weight w, const float *x, int32_t tokens, int32_t groups, int32_t rank,
                 enum round round, float *y, struct precise_say s)
{
    int row = (int)blockIdx.x * ROWS;
    int token0 = (int)blockIdx.y * TOKENS, n = min(tokens - token0, TOKENS);
    grid_begin();
    const float *rows[TOKENS];
#pragma unroll
    for (int i = 0; i < TOKENS; i++)
        rows[i] = x + ((int64_t)(token0 + min(i, n - 1)) * groups + row / rank) * w.cols;
    precise_out out = {
        y + (int64_t)token0 * w.rows + row, w.rows, w.rows - row, n, round, first_thread()};
    precise_tile<ROWS, TOKENS>(w, row, rows, out, s);
}

static __global__ void __launch_bounds__(PRECISE_WARPS *WARP)
    expert_precise_rows(struct expert_launch p)
{
    grid_begin();
    struct item item = item_of_block(p, []() {});
    int which = (int)blockIdx.x / p.tiles, row = (int)blockIdx.x % p.tiles * PRECISE_ROWS;
    struct weight w = expert_matrix(p, item.expert, which);
    struct precise_say s = {p.say, p.round_row, p.sum_row};
    for (int at = 0; at < item.n; at += PRECISE_TOKENS) {
        const float *rows[PRECISE_TOKENS];
        int n = min(item.n - at, PRECISE_TOKENS), first = item.first + at;
#pragma unroll
        for (int i = 0; i < PRECISE_TOKENS; i++)
            rows[i] = p.x + (int64_t)row_of_entry(p, first + min(i, n - 1)) * w.cols;
        precise_out out = {p.y[which] + (int64_t)first * p.rows + row,
                           p.rows,
                           w.rows - row,
                           n,
                           p.round,
                           at == 0 && first_thread()};
        precise_tile<PRECISE_ROWS, PRECISE_TOKENS>(w, row, rows, out, s);
    }
}

/* ---- launching ------------------------------------------------------------------------------ */

/* By the row's length alone: so many warps share its chunks. */
static int slices_of(int32_t cols)
{
    int chunks = cols / CHUNK;
    return chunks >= 32 ? SLICES_MAX : chunks >= 8 ? 4 : chunks >= 2 ? 2 : 1;
}

static_assert(ALONE_COLS_MAX * OPERAND_PARTS * 2 +
                      (ALONE_COLS_MAX / CHUNK + SLICES_MAX * TILE_COLS * TILE_ROWS) * 4 + 1024 <=
                  SHARED_BYTES_MAX,
              "fits a block of sm_120");

static size_t shared_bytes(int slices, int nt)
{
    return (size_t)slices * (size_t)nt * TILE_COLS * TILE_ROWS * sizeof(float);
}

/* How long a tile of a matrix takes, to compare: sums in double have few values, 16 bits most. */
static int tile_length(const struct product_block *m)
{
    return m->precise ? 0 : m->w.store == STORE_BF16 ? 2 : 1;
}

/* Gives every matrix its tiles of so many rows, those that take longest first; warps: of a block,
 * for sums in double.  @return tiles of all */
static int32_t tiles_count(struct product_launch *p, int rows, int warps)
{
    int32_t tiles = 0;
    for (int32_t i = 1; i < p->n; i++) {
        struct product_block m = p->list[i];
        int32_t at = i;
        for (; at > 0 && tile_length(&p->list[at - 1]) < tile_length(&m); at--)
            p->list[at] = p->list[at - 1];
        p->list[at] = m;
    }
    for (int32_t i = 0; i < p->n; i++) {
        struct product_block *m = &p->list[i];
        m->first_tile = tiles;
        tiles += ceil_div(m->w.rows, m->precise ? warps / PRECISE_WARPS : rows);
    }
    return tiles;
}

/* What is multiplied may run beside earlier kernels, if its row is known. */
static struct footprint footprint_of(const struct product_launch *p)
{
    struct footprint f = {};
    static_assert(BLOCKS_MAX <= WRITES_MAX, "every matrix has a result");
    f.reads[0] = {p->x, (size_t)p->list[0].w.cols * (size_t)p->groups * sizeof(float)};
    for (int32_t i = 0; i < p->n; i++)
        f.writes[i] = {p->list[i].y, (size_t)p->list[i].w.rows * sizeof(float)};
    return f;
}

/* Blocks from which on panels are faster than tiles, whose warps share rows. */
#define PANEL_BLOCKS 100

static_assert(sizeof(struct panel) + 1024 <= SHARED_BYTES_MAX, "fits a block of sm_120");
static_assert(ITEM_FEW == TILE_COLS && ITEM_MANY == PANEL_TOKENS, "an item is one tile");

/* Whether there are tokens and rows enough for panels. */
static bool panels_fit(const struct product_launch *p)
{
    int64_t rows = 0;
    if (p->groups > 1 && p->rank % PANEL_ROWS != 0)
        return false; /* rows of a block read one group of x */
    for (int32_t i = 0; i < p->n; i++) {
        enum store store = p->list[i].w.store;
        if (store != STORE_FP8 && store != STORE_BF16)
            return false;
        rows += p->list[i].w.rows;
    }
    int64_t blocks = (int64_t)ceil_div(rows, PANEL_ROWS) * ceil_div(p->tokens, PANEL_TOKENS);
    return p->tokens > PANEL_TOKENS / 2 && blocks >= PANEL_BLOCKS;
}

static void panels_launch(struct cuda_backend *b, struct product_launch *p)
{
    CUDA_CHECK(cudaFuncSetAttribute(product_panels, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    (int)sizeof(struct panel)));
    p->slices = slices_of(p->list[0].w.cols);
    dim3 grid((unsigned)tiles_count(p, PANEL_ROWS, PANEL_THREADS(PANEL_HIGH) / WARP),
              (unsigned)ceil_div(p->tokens, PANEL_TOKENS));
    launch(b, "product_panels", product_panels, grid, PANEL_THREADS(PANEL_HIGH),
           sizeof(struct panel), *p);
}

static void tiles_launch(struct cuda_backend *b, struct product_launch *p)
{
    int32_t cols = p->list[0].w.cols;
    int nt = p->tokens <= 8 ? 1 : p->tokens <= 16 ? 2 : 4, most = 1;
    bool precise = false;
    p->slices = slices_of(cols);
    for (int32_t i = 0; i < p->n; i++) {
        const struct product_block *m = &p->list[i];
        int parts = parts_most(m->round_in, m->w.store == STORE_BF16);
        precise |= m->precise;
        most = !m->precise && parts > most ? parts : most;
    }
    int warps = precise && p->slices < PRECISE_WARPS ? PRECISE_WARPS : p->slices;
    /* a block has a thread for each of its tokens */
    while (nt * TILE_COLS > warps * WARP)
        nt /= 2;
    size_t shared = shared_bytes(p->slices, nt) + (p->x != NULL ? ready_bytes(cols, most) : 0);
    /* blocks that differ, and those with few chunks a warp, hide each other's latency best */
    bool alike = p->n == 1 && p->slices == SLICES_MAX;
    auto few = alike ? product_tiles<1, 2, 2> : product_tiles<1, 3, 1>;
    auto kernel = nt == 1 ? few : nt == 2 ? product_tiles<2, 2, 1> : product_tiles<4, 2, 1>;
    if (shared > 48 << 10)
        CUDA_CHECK(
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
    dim3 grid((unsigned)tiles_count(p, TILE_ROWS, warps),
              (unsigned)ceil_div(p->tokens, nt * TILE_COLS));
    if (p->x != NULL)
        launch_beside(b, footprint_of(p), "product_tiles", kernel, grid, (unsigned)(warps * WARP),
                      shared, *p);
    else
        launch(b, "product_tiles", kernel, grid, (unsigned)(warps * WARP), shared, *p, false);
}

/* ---- products of one token, which wait for others of the same row ---------------------------- */

struct product_launch *products_create(void)
{
    struct product_launch *held = (struct product_launch *)calloc(1, sizeof *held);
    ASSERT(held != NULL);
    return held;
}

void products_destroy(struct product_launch *held)
{
    free(held);
}

void products_release(struct cuda_backend *b)
{
    b->holds = false;
    tiles_launch(b, b->held);
}

/* Whether both can be one launch: the same row, and no result twice or in the row. */
static bool held_fits(const struct product_launch *held, const struct product_launch *more)
{
    struct footprint a = footprint_of(held), c = footprint_of(more);
    return held->x == more->x && held->groups == 1 && more->groups == 1 &&
           held->n + more->n <= BLOCKS_MAX && held->list[0].w.cols == more->list[0].w.cols &&
           memcmp(&held->say.place, &more->say.place, sizeof held->say.place) == 0 &&
           apart(a.writes, WRITES_MAX, c.writes, WRITES_MAX) &&
           apart(a.reads, 1, c.writes, WRITES_MAX) && apart(a.writes, WRITES_MAX, c.reads, 1);
}

static void products_hold(struct cuda_backend *b, const struct product_launch *more)
{
    if (!b->holds || !held_fits(b->held, more))
        (void)stream_of(b);
    if (!b->holds) {
        *b->held = *more;
        b->holds = true;
        return;
    }
    for (int32_t i = 0; i < more->n; i++)
        b->held->list[b->held->n++] = more->list[i];
}

/* Products of one row of the table count as one call of the operation: the first one speaks. */
static struct product product_say(const struct products *p, int32_t i)
{
    struct product m = p->list[i];
    for (int32_t j = 0; j < i; j++) {
        const struct product *before = &p->list[j];
        if (before->round_row == m.round_row && before->round == p->list[i].round)
            m.round_row = SAY_NOTHING;
        if (before->sum_row == p->list[i].sum_row && before->precise == m.precise)
            m.sum_row = SAY_NOTHING;
    }
    return m;
}

/* Products of one token make its row ready themselves; the first one says how. */
static void products_alone(struct cuda_backend *b, const struct products *p,
                           struct product_launch *all)
{
    all->x = p->x;
    for (int32_t i = 0; i < p->n; i++) {
        struct product m = product_say(p, i);
        all->list[all->n++] = {m.w,       m.y,         m.round,   p->round_in,
                               m.precise, m.round_row, m.sum_row, i == 0 ? p->in_row : SAY_NOTHING};
    }
    products_hold(b, all);
}

/* What the products want made ready; `fast` gets those of the tensor cores. */
static void products_sort(struct cuda_backend *b, const struct products *p, struct prepare *ready,
                          struct product_launch *fast)
{
    for (int32_t i = 0; i < p->n; i++) {
        struct product m = product_say(p, i);
        if (m.precise) {
            ready->rounded = p->round_in == ROUND_NONE ? NULL : b->rounded;
            continue;
        }
        bool bfloat = m.w.store == STORE_BF16;
        *(bfloat ? &ready->bfloat : &ready->half) = bfloat ? &b->bfloat : &b->half;
        fast->list[fast->n++] = {m.w,   m.y,         m.round,   p->round_in,
                                 false, m.round_row, m.sum_row, SAY_NOTHING};
    }
}

static void precise_launch(struct cuda_backend *b, const struct products *p,
                           const struct product &m, const float *x, int32_t rank)
{
    static_assert(PRECISE_ROWS == PRECISE_TOKENS && TILE_ROWS % PRECISE_SIDE == 0, "whole groups");
    const int side = p->tokens >= PRECISE_MANY ? PRECISE_SIDE : PRECISE_ROWS;
    auto kernel = side == PRECISE_SIDE ? precise_rows<PRECISE_SIDE, PRECISE_SIDE>
                                       : precise_rows<PRECISE_ROWS, PRECISE_TOKENS>;
    dim3 grid((unsigned)ceil_div(m.w.rows, side), (unsigned)ceil_div(p->tokens, side));
    struct precise_say say = {p->say, m.round_row, m.sum_row};
    launch(b, "precise_rows", kernel, grid, PRECISE_WARPS * WARP, 0, m.w, x, p->tokens, p->groups,
           rank, m.round, m.y, say);
}

void products_run(struct cuda_backend *b, const struct products *p)
{
    int32_t cols = p->list[0].w.cols, rank = p->list[0].w.rows / p->groups;
    int32_t rows = p->tokens * p->groups;
    struct product_launch fast = {};
    struct prepare ready = {.x = p->x, .rows = rows, .x_rows = rows, .cols = cols, .other = rows};
    ready.round_in = p->round_in, ready.in_row = p->in_row, ready.say = p->say;
    ASSERT(p->groups == 1 || rank % TILE_ROWS == 0);
    for (int32_t i = 0; i < p->n; i++) {
        const struct product *m = &p->list[i];
        ASSERT(m->w.cols == cols && (m->precise || m->w.store != STORE_F32));
        ASSERT(m->precise || m->w.store != STORE_BF16 || p->groups == 1);
    }
    fast.half = b->half, fast.bfloat = b->bfloat, fast.say = p->say;
    fast.tokens = p->tokens, fast.groups = p->groups;
    fast.rank = p->groups == 1 ? INT32_MAX : rank; /* outputs of one group differ in length */
    if (p->tokens == 1 && cols <= ALONE_COLS_MAX) {
        products_alone(b, p, &fast);
        return;
    }
    products_sort(b, p, &ready, &fast);
    if (ready.rounded == NULL && ready.half == NULL && ready.bfloat == NULL)
        ready.rounded = b->rounded; /* as they are: to say so */
    prepare_run(b, &ready);
    if (fast.n > 0 && panels_fit(&fast))
        panels_launch(b, &fast);
    else if (fast.n > 0)
        tiles_launch(b, &fast);
    const float *x = ready.rounded != NULL ? ready.rounded : p->x;
    for (int32_t i = 0; i < p->n; i++) {
        struct product m = product_say(p, i);
        if (m.precise)
            precise_launch(b, p, m, x, fast.rank);
    }
}

/* Items that n entries of n experts can make: full ones, and a rest for each expert.  Without
 * sorting every entry is one. */
static unsigned items_max(const struct expert_products *p)
{
    if (p->chosen != NULL)
        return (unsigned)p->n_entries;
    int32_t most =
        p->n_entries / p->per_item + (p->n_entries < p->n_experts ? p->n_entries : p->n_experts);
    return (unsigned)(most < p->n_entries ? most : p->n_entries);
}

/* Entries from which on items fill the multiprocessors though a warp has rows of its own. */
#define STRIP_ENTRIES 40

void expert_products_run(struct cuda_backend *b, const struct expert_products *p)
{
    struct expert_launch k = {};
    k.experts = p->experts, k.items = b->items, k.n_items = b->n_items;
    k.chosen = p->chosen, k.top = p->top, k.n_routed = p->n_routed;
    k.y[0] = p->second ? b->down : b->gate, k.y[1] = b->up;
    k.rows = p->rows, k.second = p->second, k.round = p->round, k.entry_token = b->entry_token;
    k.half = b->half, k.bfloat = b->bfloat, k.x = b->rounded;
    k.round_row = SAY_NOTHING; /* the sum over experts speaks for it */
    k.sum_row = p->second ? SAY_NOTHING : ROW_SUM, k.say = p->say;
    unsigned matrices = p->second ? 1 : 2;
    (void)stream_of(b); /* what was held back may write them */
    struct memory choice[] = {{p->chosen, p->chosen == NULL ? 0 : (size_t)p->top * 4},
                              {b->items, (size_t)p->n_entries * sizeof(struct item)},
                              {b->n_items, sizeof *b->n_items}};
    k.known = settled(b, choice, sizeof choice / sizeof *choice, false);
    if (p->precise) {
        k.tiles = p->rows / PRECISE_ROWS;
        dim3 grid((unsigned)k.tiles * matrices, items_max(p));
        launch(b, "expert_precise_rows", expert_precise_rows, grid, PRECISE_WARPS * WARP, 0, k);
        return;
    }
    /* half as many as of dense rows: what a warp does beside its chunks is a third of its work */
    int slices = slices_of(p->cols) > 2 ? slices_of(p->cols) / 2 : slices_of(p->cols);
    if (p->per_item == ITEM_FEW && p->n_entries >= STRIP_ENTRIES) {
        k.tiles = ceil_div(p->rows, STRIP_WARPS * TILE_ROWS);
        auto kernel = slices == 1   ? expert_strips<1>
                      : slices == 2 ? expert_strips<2>
                                    : expert_strips<4>;
        launch(b, "expert_strips", kernel, dim3((unsigned)k.tiles * matrices, items_max(p)),
               STRIP_WARPS * WARP, 0, k);
        return;
    }
    if (p->per_item == ITEM_MANY) {
        CUDA_CHECK(cudaFuncSetAttribute(expert_panels, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        (int)sizeof(struct panel)));
        k.tiles = ceil_div(p->rows, PANEL_ROWS);
        dim3 grid((unsigned)k.tiles * matrices, items_max(p));
        launch(b, "expert_panels", expert_panels, grid, PANEL_THREADS(EXPERT_HIGH),
               sizeof(struct panel), k, slices);
        return;
    }
    k.tiles = p->rows / TILE_ROWS;
    launch(b, "expert_tiles", expert_tiles, dim3((unsigned)k.tiles * matrices, items_max(p)),
           (unsigned)(slices * WARP), shared_bytes(slices, 1), k);
}
