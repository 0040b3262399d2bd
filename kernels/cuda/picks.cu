/*
 * Tokens picked behind rows of logits, on the GPU: what kernels/sampler.c picks, to the bit.
 *
 * Weights are whole numbers (kernels/pick.h), so all sums here are exact and atomics may add them
 * in any order.  A row is worked on by many blocks, of PART tokens each, one kernel a pass:
 * the greatest, the likeliest that are told, penalties and mask (in place), weights, one selection
 * for top-k and one for top-p, what is kept, the draw.  Passes that no row wants are left out.
 *
 * Candidates are ordered by weight, then by id: one number (`rank_of`), greater for who comes
 * first.  A selection finds a bin of weights by a histogram over the row, lists who is in it, and
 * finds the last one kept bit by bit.
 */
#include "kernels/cuda/peers.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/sampler.h"

#include <stdlib.h>

/* Rows at once: what a decode step of half of the timelines wants, and 83 MB of scratch memory at
 * the published vocabulary. */
#define PICKS_AT_ONCE 32

#define PICK_THREADS 256
#define EACH         8
#define PART         (PICK_THREADS * EACH) /* tokens of a block */
#define PARTS_MAX    (TOKENIZER_VOCAB_MAX / PART)

/* Bins of a histogram of weights: so many to a power of two. */
#define FINE_BITS 5
#define BINS      ((PICK_BITS + 1) << FINE_BITS)
#define BINS_EACH ((BINS + PICK_THREADS - 1) / PICK_THREADS)

#define ID_BITS 18
static_assert(TOKENIZER_VOCAB_MAX == 1 << ID_BITS && PICK_BITS + ID_BITS < 63, "rank_of");
static_assert(PARTS_MAX <= PICK_THREADS, "a thread for each part");

#define DIGIT_BITS 8
#define DIGITS     (1 << DIGIT_BITS)
static_assert(DIGITS == PICK_THREADS, "a thread for each digit");

typedef unsigned long long word;

/* Where the greatest of a row stands: as the network gave it, and behind penalties and mask. */
enum stage { STAGE_RAW, STAGE_CHANGED, STAGES };

/* One row on its way: how its token is picked, and what the passes found. */
struct picking {
    float *logits;    /* device [vocab] */
    const float *raw; /* device [vocab] without penalties, where that matters */
    double scale, top_p, min_p;
    word draw;
    int32_t top_k; /* 0: off */
    int32_t n_top; /* -1: no logprobs */
    bool changed;  /* by penalties or mask */
    bool sampled;  /* temperature above 0 */

    word best[STAGES]; /* greatest logit, lowest id; 0: all are -inf */
    word sum;          /* of raw weights at temperature 1 */
    word total;        /* of weights; from top-k on, of those that it leaves */
    word edge;         /* rank_of the last one kept; 0: all are */
    int32_t listed;    /* of `list` */
    int32_t fault;     /* a NaN or +inf */

    int32_t id; /* picked, or SAMPLE_FAULT */
    float raw_logit, raw_max;
    int32_t top_ids[LOGPROBS_TOP_MAX];
    float top_logits[LOGPROBS_TOP_MAX];
};

struct histogram {
    word mass[BINS];
    int32_t count[BINS];
};

/* Device memory of rows at once. */
struct pick_memory {
    struct picking *rows;         /* owns; [PICKS_AT_ONCE] and all below behind it */
    struct histogram *histograms; /* [PICKS_AT_ONCE] */
    word *kept;                   /* [PICKS_AT_ONCE, PARTS_MAX] weights of a part */
    word *tops;                   /* [PICKS_AT_ONCE, PARTS_MAX, LOGPROBS_TOP_MAX] likeliest */
    int64_t *weights;             /* [PICKS_AT_ONCE, vocab] */
    word *lists;                  /* [PICKS_AT_ONCE, vocab] rank_of who is in a bin */
    float *raw;                   /* [PICKS_AT_ONCE, vocab] */
    struct token_said *said;      /* [vocab] of the row whose turn it is */
    uint64_t *allowed;            /* [vocab / 64] likewise */
};

struct picks {
    struct pick_memory at;
    struct picking host[PICKS_AT_ONCE];
};

/* What the kernels take. */
struct passes {
    struct pick_memory at;
    int32_t vocab, parts;
};

/* ---- a row -------------------------------------------------------------------------------------
 */

/* Order of logits, then of ids: greater is more; the zeros are one. */
static __device__ inline word order_of(float logit, int32_t id)
{
    uint32_t bits = __float_as_uint(logit == 0 ? 0 : logit);
    bits = bits >> 31 ? ~bits : bits | 0x80000000u;
    return (word)bits << 32 | (uint32_t)~id;
}

static __device__ inline int32_t id_of_order(word order)
{
    return (int32_t) ~(uint32_t)order;
}

static __device__ inline word rank_of(int64_t weight, int32_t id)
{
    return (word)weight << ID_BITS | (uint32_t)((1 << ID_BITS) - 1 - id);
}

static __device__ inline bool has_token(const picking &p)
{
    return p.fault == 0 && p.best[STAGE_RAW] != 0 && p.best[p.changed] != 0;
}

static __device__ inline bool filtered(const picking &p)
{
    return p.top_k > 0 || p.top_p < 1;
}

/* The bin of a weight above 0. */
static __device__ inline int32_t bin_of(int64_t weight)
{
    int32_t power = 63 - __clzll(weight);
    int64_t fine =
        power >= FINE_BITS ? weight >> (power - FINE_BITS) : weight << (FINE_BITS - power);
    return power << FINE_BITS | ((int32_t)fine & ((1 << FINE_BITS) - 1));
}

/* ---- a block -----------------------------------------------------------------------------------
 */

/* The sum of what all threads have; all get it. */
static __device__ word block_sum(word mine)
{
    __shared__ word warps[PICK_THREADS / WARP];
    mine = warp_sum(mine);
    if (lane_id() == 0)
        warps[warp_id()] = mine;
    __syncthreads();
    word all = 0;
    for (int i = 0; i < PICK_THREADS / WARP; i++)
        all += warps[i];
    __syncthreads();
    return all;
}

static __device__ word block_max(word mine)
{
    __shared__ word warps[PICK_THREADS / WARP];
    mine = warp_max(mine);
    if (lane_id() == 0)
        warps[warp_id()] = mine;
    __syncthreads();
    word all = 0;
    for (int i = 0; i < PICK_THREADS / WARP; i++)
        all = max(all, warps[i]);
    __syncthreads();
    return all;
}

/* What the threads before this one have, and in *all what all have. */
static __device__ word block_before(word mine, word *all)
{
    __shared__ word warps[PICK_THREADS / WARP];
    word within = mine;
    for (int step = 1; step < WARP; step *= 2) {
        word other = __shfl_up_sync(ALL_LANES, within, step);
        within += lane_id() >= step ? other : 0;
    }
    if (lane_id() == WARP - 1)
        warps[warp_id()] = within;
    __syncthreads();
    word before = 0;
    *all = 0;
    for (int i = 0; i < PICK_THREADS / WARP; i++) {
        before += i < warp_id() ? warps[i] : 0;
        *all += warps[i];
    }
    __syncthreads();
    return before + within - mine;
}

/* Of numbers that are looked at from the first thread's on: where their sum reaches `want`, from 1
 * to all of it.  In *before what stands in front of that thread.  @return whether it is this one */
static __device__ inline bool reaches(word mine, word want, word *before)
{
    word all;
    *before = block_before(mine, &all);
    return *before < want && *before + mine >= want;
}

/* ---- passes over the row as it is -------------------------------------------------------------
 */

/* grid of all passes: parts, rows */
static __global__ void __launch_bounds__(PICK_THREADS) pick_greatest(passes s, enum stage stage)
{
    grid_begin();
    picking &p = s.at.rows[blockIdx.y];
    if (stage == STAGE_CHANGED && !p.changed)
        return;
    word best = 0;
    bool fault = false;
    int32_t first = (int32_t)blockIdx.x * PART + (int32_t)threadIdx.x;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        int32_t id = first + i * PICK_THREADS;
        float logit = id < s.vocab ? p.logits[id] : -INFINITY;
        fault = fault || !(logit < INFINITY);
        best = logit > -INFINITY ? max(best, order_of(logit, id)) : best;
    }
    best = block_max(best);
    if (threadIdx.x == 0 && best != 0)
        atomicMax(&p.best[stage], best);
    if (fault)
        p.fault = 1;
}

/* For logprobs: weights of all, and the likeliest of this part. */
static __global__ void __launch_bounds__(PICK_THREADS) pick_told(passes s)
{
    grid_begin();
    picking &p = s.at.rows[blockIdx.y];
    if (p.n_top < 0 || p.fault != 0 || p.best[STAGE_RAW] == 0)
        return;
    float max = p.logits[id_of_order(p.best[STAGE_RAW])];
    word sum = 0, order[EACH];
    int32_t first = (int32_t)blockIdx.x * PART + (int32_t)threadIdx.x;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        int32_t id = first + i * PICK_THREADS;
        float logit = id < s.vocab ? p.logits[id] : -INFINITY;
        order[i] = id < s.vocab ? order_of(logit, id) : 0;
        sum += (word)pick_weight(logit, max, PICK_LOG2_E);
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        atomicAdd(&p.sum, sum);
    word last = ~(word)0;
    word *tops = s.at.tops + ((int64_t)blockIdx.y * PARTS_MAX + blockIdx.x) * LOGPROBS_TOP_MAX;
    for (int32_t k = 0; k < p.n_top; k++) {
        word next = 0;
#pragma unroll
        for (int i = 0; i < EACH; i++)
            next = order[i] < last ? ::max(next, order[i]) : next;
        last = block_max(next);
        if (threadIdx.x == 0)
            tops[k] = last;
    }
}

/* The likeliest of all parts.  grid: rows */
static __global__ void __launch_bounds__(PICK_THREADS) pick_told_join(passes s)
{
    grid_begin();
    picking &p = s.at.rows[blockIdx.x];
    if (p.n_top < 0 || p.fault != 0 || p.best[STAGE_RAW] == 0)
        return;
    const word *tops = s.at.tops + (int64_t)blockIdx.x * PARTS_MAX * LOGPROBS_TOP_MAX;
    word last = ~(word)0;
    if (threadIdx.x == 0) /* now: the mask may bar it */
        p.raw_max = p.logits[id_of_order(p.best[STAGE_RAW])];
    for (int32_t k = 0; k < p.n_top; k++) {
        word next = 0;
        for (int32_t i = (int32_t)threadIdx.x; i < s.parts * p.n_top; i += PICK_THREADS) {
            word order = tops[i / p.n_top * LOGPROBS_TOP_MAX + i % p.n_top];
            next = order < last ? max(next, order) : next;
        }
        last = block_max(next);
        if (threadIdx.x == 0) {
            p.top_ids[k] = id_of_order(last);
            p.top_logits[k] = p.logits[id_of_order(last)];
        }
    }
}

/* ---- changes of a row --------------------------------------------------------------------------
 */

static __global__ void __launch_bounds__(PICK_THREADS)
    pick_penalise(float *logits, const token_said *said, int32_t n, sampling sampling)
{
    grid_begin();
    int32_t i = (int32_t)blockIdx.x * PICK_THREADS + (int32_t)threadIdx.x;
    if (i < n)
        logits[said[i].id] = pick_penalised(logits[said[i].id], &sampling, said[i].count);
}

static __global__ void __launch_bounds__(PICK_THREADS)
    pick_bar(float *logits, const uint64_t *allowed, int32_t vocab)
{
    grid_begin();
    int32_t i = (int32_t)blockIdx.x * PICK_THREADS + (int32_t)threadIdx.x;
    if (i < vocab && (allowed[i / 64] >> (i % 64) & 1) == 0 && logits[i] < INFINITY)
        logits[i] = -INFINITY;
}

/* ---- weights and selections --------------------------------------------------------------------
 */

static __global__ void __launch_bounds__(PICK_THREADS) pick_weigh(passes s)
{
    grid_begin();
    picking &p = s.at.rows[blockIdx.y];
    if (!p.sampled || !has_token(p))
        return;
    __shared__ histogram bins;
    for (int i = (int)threadIdx.x; i < BINS; i += PICK_THREADS)
        bins.mass[i] = 0, bins.count[i] = 0;
    __syncthreads();
    float max = p.logits[id_of_order(p.best[p.changed])];
    int64_t *weights = s.at.weights + (int64_t)blockIdx.y * s.vocab;
    int32_t first = (int32_t)blockIdx.x * PART + (int32_t)threadIdx.x;
    word sum = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        int32_t id = first + i * PICK_THREADS;
        int64_t weight = id < s.vocab ? pick_weight(p.logits[id], max, p.scale) : 0;
        if (id < s.vocab)
            weights[id] = weight;
        sum += (word)weight;
        if (weight > 0 && filtered(p)) {
            atomicAdd(&bins.mass[bin_of(weight)], (word)weight);
            atomicAdd(&bins.count[bin_of(weight)], 1);
        }
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        atomicAdd(&p.total, sum);
    histogram &all = s.at.histograms[blockIdx.y];
    for (int i = (int)threadIdx.x; i < BINS && filtered(p); i += PICK_THREADS) {
        if (bins.count[i] > 0) {
            atomicAdd(&all.mass[i], bins.mass[i]);
            atomicAdd(&all.count[i], bins.count[i]);
        }
    }
}

/* What a selection goes by: the first so many, or so much. */
enum by { BY_COUNT, BY_MASS };

static __device__ inline bool selects(const picking &p, enum by by)
{
    return p.sampled && has_token(p) && (by == BY_COUNT ? p.top_k > 0 : p.top_p < 1);
}

static __device__ inline word wanted(const picking &p, enum by by)
{
    return by == BY_COUNT ? (word)p.top_k : (word)pick_mass(p.top_p, (int64_t)p.total);
}

struct found {
    int32_t bin; /* -1: there is less than what is wanted */
    word before; /* in the bins in front of it: counted, or weighed */
    word mass;   /* weights in front of it */
};

/* The bin in which the last one kept is.  By the whole block. */
static __device__ found find_bin(const histogram &bins, word want, enum by by)
{
    __shared__ found at;
    int32_t top = BINS - 1 - (int32_t)threadIdx.x * BINS_EACH;
    word mine = 0, mass = 0, before, all;
    for (int32_t i = top; i > top - BINS_EACH && i >= 0; i--) {
        mine += by == BY_COUNT ? (word)bins.count[i] : bins.mass[i];
        mass += bins.mass[i];
    }
    if (threadIdx.x == 0)
        at.bin = -1;
    __syncthreads();
    mass = block_before(mass, &all);
    if (reaches(mine, want, &before)) {
        int32_t i = top;
        for (;; i--) {
            word here = by == BY_COUNT ? (word)bins.count[i] : bins.mass[i];
            if (before + here >= want)
                break;
            before += here;
            mass += bins.mass[i];
        }
        at = {i, before, mass};
    }
    __syncthreads();
    return at;
}

/* Lists who is in the bin. */
static __global__ void __launch_bounds__(PICK_THREADS) pick_list(passes s, enum by by)
{
    grid_begin();
    picking &p = s.at.rows[blockIdx.y];
    if (!selects(p, by))
        return;
    found at = find_bin(s.at.histograms[blockIdx.y], wanted(p, by), by);
    const int64_t *weights = s.at.weights + (int64_t)blockIdx.y * s.vocab;
    word *list = s.at.lists + (int64_t)blockIdx.y * s.vocab;
    int32_t first = (int32_t)blockIdx.x * PART + (int32_t)threadIdx.x;
    for (int i = 0; i < EACH; i++) {
        int32_t id = first + i * PICK_THREADS;
        int64_t weight = id < s.vocab ? weights[id] : 0;
        if (weight > 0 && bin_of(weight) == at.bin)
            list[atomicAdd(&p.listed, 1)] = rank_of(weight, id);
    }
}

/* The last one kept of a list: of digits from the most significant on, the one where what is
 * wanted is reached.  By the whole block. */
static __device__ word find_last(const word *list, int32_t n, word want, enum by by)
{
    __shared__ word digits[DIGITS];
    __shared__ word prefix, left;
    word mask = 0;
    if (threadIdx.x == 0)
        prefix = 0, left = want;
    for (int shift = 64 - DIGIT_BITS; shift >= 0; shift -= DIGIT_BITS) {
        digits[threadIdx.x] = 0;
        __syncthreads();
        word so_far = prefix;
        for (int32_t i = (int32_t)threadIdx.x; i < n; i += PICK_THREADS) {
            if ((list[i] & mask) == so_far)
                atomicAdd(&digits[list[i] >> shift & (DIGITS - 1)],
                          by == BY_COUNT ? 1 : list[i] >> ID_BITS);
        }
        __syncthreads();
        word digit = DIGITS - 1 - threadIdx.x, before, mine = digits[digit], still = left;
        bool here = reaches(mine, still, &before);
        if (here)
            prefix = so_far | digit << shift, left = still - before;
        mask |= (word)(DIGITS - 1) << shift;
        __syncthreads();
    }
    return prefix;
}

/* Finds the last one kept.  grid: rows */
static __global__ void __launch_bounds__(PICK_THREADS) pick_select(passes s, enum by by)
{
    grid_begin();
    picking &p = s.at.rows[blockIdx.x];
    if (!selects(p, by))
        return;
    word want = wanted(p, by);
    found at = find_bin(s.at.histograms[blockIdx.x], want, by);
    if (at.bin < 0) /* top-k of fewer: all are kept */
        return;
    const word *list = s.at.lists + (int64_t)blockIdx.x * s.vocab;
    int32_t n = p.listed;
    word edge = find_last(list, n, want - at.before, by), mass = 0;
    for (int32_t i = (int32_t)threadIdx.x; i < n; i += PICK_THREADS)
        mass += list[i] >= edge ? list[i] >> ID_BITS : 0;
    mass = block_sum(mass);
    if (threadIdx.x == 0) {
        p.edge = edge;
        p.total = at.mass + mass;
        p.listed = 0;
    }
}

/* ---- the draw ----------------------------------------------------------------------------------
 */

/* The weight of a token that is kept; 0: it is not. */
static __device__ inline word kept_weight(const picking &p, int64_t weight, int32_t id)
{
    bool kept = rank_of(weight, id) >= p.edge && !pick_below(weight, p.min_p);
    return kept ? (word)weight : 0;
}

static __global__ void __launch_bounds__(PICK_THREADS) pick_keep(passes s)
{
    grid_begin();
    const picking &p = s.at.rows[blockIdx.y];
    if (!p.sampled || !has_token(p))
        return;
    const int64_t *weights = s.at.weights + (int64_t)blockIdx.y * s.vocab;
    int32_t first = (int32_t)blockIdx.x * PART + (int32_t)threadIdx.x;
    word sum = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        int32_t id = first + i * PICK_THREADS;
        sum += id < s.vocab ? kept_weight(p, weights[id], id) : 0;
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        s.at.kept[(int64_t)blockIdx.y * PARTS_MAX + blockIdx.x] = sum;
}

/* The token whose weights, in order of ids, pass the number that was drawn.  By the whole block. */
static __device__ int32_t drawn(const passes &s, const picking &p)
{
    __shared__ int32_t part, id;
    __shared__ word target;
    word before, all;
    const word *kept = s.at.kept + (int64_t)blockIdx.x * PARTS_MAX;
    word mine = (int32_t)threadIdx.x < s.parts ? kept[threadIdx.x] : 0;
    before = block_before(mine, &all);
    word point = (word)pick_target(p.draw, (int64_t)all);
    if (before <= point && point < before + mine)
        part = (int32_t)threadIdx.x, target = point - before;
    __syncthreads();
    const int64_t *weights = s.at.weights + (int64_t)blockIdx.x * s.vocab;
    int32_t first = part * PART + (int32_t)threadIdx.x * EACH;
    mine = 0;
    for (int32_t i = first; i < first + EACH && i < s.vocab; i++)
        mine += kept_weight(p, weights[i], i);
    point = target;
    before = block_before(mine, &all);
    if (before <= point && point < before + mine) {
        int32_t i = first;
        for (; before + kept_weight(p, weights[i], i) <= point; i++)
            before += kept_weight(p, weights[i], i);
        id = i;
    }
    __syncthreads();
    return id;
}

/* grid: rows */
static __global__ void __launch_bounds__(PICK_THREADS) pick_end(passes s)
{
    grid_begin();
    picking &p = s.at.rows[blockIdx.x];
    int32_t id = !has_token(p) ? SAMPLE_FAULT
                 : p.sampled   ? drawn(s, p)
                               : id_of_order(p.best[p.changed]);
    if (threadIdx.x != 0)
        return;
    p.id = id;
    if (id != SAMPLE_FAULT && p.n_top >= 0)
        p.raw_logit = p.raw[id];
}

/* ---- the operation -----------------------------------------------------------------------------
 */

/* Fills the pointers; without a base it only counts. */
static size_t picks_carve(struct pick_memory *at, const struct backend_limits *l, char *base)
{
    const int64_t rows = PICKS_AT_ONCE, tokens = rows * l->vocab;
    const struct {
        void *member;
        int64_t bytes;
    } PIECES[] = {
        {&at->rows, rows * (int64_t)sizeof *at->rows},
        {&at->histograms, rows * (int64_t)sizeof *at->histograms},
        {&at->kept, rows * PARTS_MAX * 8},
        {&at->tops, rows * PARTS_MAX * LOGPROBS_TOP_MAX * 8},
        {&at->weights, tokens * 8},
        {&at->lists, tokens * 8},
        {&at->raw, tokens * 4},
        {&at->said, l->vocab * (int64_t)sizeof *at->said},
        {&at->allowed, ((int64_t)l->vocab + 63) / 64 * 8},
    };
    size_t used = 0;
    for (size_t i = 0; i < sizeof PIECES / sizeof *PIECES; i++) {
        void *piece = base == NULL ? NULL : base + used;
        memcpy(PIECES[i].member, &piece, sizeof piece);
        used += ((size_t)PIECES[i].bytes + 255) / 256 * 256;
    }
    return used;
}

struct picks *picks_create(const struct backend_limits *limits)
{
    struct picks *picks = (struct picks *)calloc(1, sizeof *picks);
    void *memory;
    ASSERT(picks != NULL && limits->vocab <= TOKENIZER_VOCAB_MAX);
    if (cudaMalloc(&memory, picks_carve(&picks->at, limits, NULL)) != cudaSuccess) {
        (void)cudaGetLastError(); /* a refusal is an answer, not a failure */
        free(picks);
        return NULL;
    }
    picks_carve(&picks->at, limits, (char *)memory);
    return picks;
}

void picks_destroy(struct picks *picks)
{
    if (picks != NULL)
        CUDA_CHECK(cudaFree(picks->at.rows));
    free(picks);
}

static bool any_allowed(const uint64_t *allowed, int32_t vocab)
{
    bool any = false;
    for (int32_t i = 0; i < vocab / 64; i++)
        any = any || allowed[i] != 0;
    return any || (vocab % 64 != 0 && allowed[vocab / 64] << (64 - vocab % 64) != 0);
}

static struct picking picking_of(const struct pick *pick, float *logits, float *raw, int32_t vocab)
{
    const struct sampling *s = &pick->sampling;
    struct picking p = {};
    p.logits = logits;
    p.raw = pick->n_said > 0 && pick->logprobs ? raw : logits;
    p.scale = s->temperature > 0 ? pick_scale(s->temperature) : 0;
    p.top_p = s->top_p, p.min_p = s->min_p;
    p.draw = sampler_draw(s->seed, pick->position);
    p.top_k = s->top_k < vocab ? s->top_k : 0;
    p.n_top = !pick->logprobs ? -1 : pick->n_top < vocab ? pick->n_top : vocab;
    p.changed = pick->n_said > 0 || pick->allowed != NULL;
    p.sampled = s->temperature > 0;
    return p;
}

/* Penalties and mask of one row.  Its turn ends before the next one's memory is written. */
static void change(struct cuda_backend *b, const struct picking *p, const struct pick *pick,
                   int32_t vocab)
{
    const struct pick_memory *at = &b->picks->at;
    if (p->raw != p->logits)
        CUDA_CHECK(cudaMemcpyAsync((void *)p->raw, p->logits, (size_t)vocab * sizeof(float),
                                   cudaMemcpyDeviceToDevice, stream_of(b)));
    if (pick->n_said > 0) {
        CUDA_CHECK(cudaMemcpyAsync(at->said, pick->said, (size_t)pick->n_said * sizeof *at->said,
                                   cudaMemcpyHostToDevice, stream_of(b)));
        launch(b, "pick_penalise", pick_penalise, ceil_div(pick->n_said, PICK_THREADS),
               PICK_THREADS, 0, p->logits, at->said, pick->n_said, pick->sampling);
    }
    if (pick->allowed != NULL) {
        CUDA_CHECK(cudaMemcpyAsync(at->allowed, pick->allowed,
                                   ((size_t)vocab + 63) / 64 * sizeof *at->allowed,
                                   cudaMemcpyHostToDevice, stream_of(b)));
        launch(b, "pick_bar", pick_bar, ceil_div(vocab, PICK_THREADS), PICK_THREADS, 0, p->logits,
               at->allowed, vocab);
    }
}

/* Which passes some row wants. */
struct wishes {
    bool told, changed, sampled, top_k, top_p;
};

static void passes_run(struct cuda_backend *b, const struct passes *s, int32_t n,
                       const struct pick_row *rows, const struct wishes *w)
{
    dim3 wide((unsigned)s->parts, (unsigned)n), narrow((unsigned)n);
    const bool selects[] = {w->top_k, w->top_p};
    launch(b, "pick_greatest", pick_greatest, wide, PICK_THREADS, 0, *s, STAGE_RAW);
    if (w->told) {
        launch(b, "pick_told", pick_told, wide, PICK_THREADS, 0, *s);
        launch(b, "pick_told_join", pick_told_join, narrow, PICK_THREADS, 0, *s);
    }
    for (int32_t i = 0; i < n && w->changed; i++)
        change(b, &b->picks->host[i], rows[i].pick, s->vocab);
    if (w->changed)
        launch(b, "pick_greatest", pick_greatest, wide, PICK_THREADS, 0, *s, STAGE_CHANGED);
    if (w->sampled)
        launch(b, "pick_weigh", pick_weigh, wide, PICK_THREADS, 0, *s);
    for (int by = BY_COUNT; by <= BY_MASS; by++) {
        if (!selects[by])
            continue;
        launch(b, "pick_list", pick_list, wide, PICK_THREADS, 0, *s, (enum by)by);
        launch(b, "pick_select", pick_select, narrow, PICK_THREADS, 0, *s, (enum by)by);
    }
    if (w->sampled)
        launch(b, "pick_keep", pick_keep, wide, PICK_THREADS, 0, *s);
    launch(b, "pick_end", pick_end, narrow, PICK_THREADS, 0, *s);
}

static void pick_tell(const struct picking *p, struct pick *pick, int32_t vocab)
{
    pick->id = p->id;
    if (pick->allowed != NULL && !any_allowed(pick->allowed, vocab))
        pick->id = SAMPLE_BARRED;
    if (pick->id < 0 || !pick->logprobs)
        return;
    double log_sum = sampler_log_sum(p->raw_max, (int64_t)p->sum);
    pick->told.n_top = p->n_top;
    for (int32_t k = 0; k < p->n_top; k++)
        pick->told.top[k] = {p->top_ids[k], (float)(p->top_logits[k] - log_sum)};
    pick->told.chosen = (float)(p->raw_logit - log_sum);
}

static void some_run(struct cuda_backend *b, const struct pick_params *params,
                     const struct pick_row *rows, int32_t n)
{
    struct pick_memory *at = &b->picks->at;
    struct picking *host = b->picks->host;
    struct passes s = {*at, params->vocab, ceil_div(params->vocab, PART)};
    struct wishes w = {};
    for (int32_t i = 0; i < n; i++) {
        float *logits = params->logits + (int64_t)rows[i].row * params->vocab;
        float *raw = at->raw + (int64_t)i * params->vocab;
        struct picking *p = &host[i];
        *p = picking_of(rows[i].pick, logits, raw, params->vocab);
        w.told = w.told || p->n_top >= 0;
        w.changed = w.changed || p->changed;
        w.sampled = w.sampled || p->sampled;
        w.top_k = w.top_k || (p->sampled && p->top_k > 0);
        w.top_p = w.top_p || (p->sampled && p->top_p < 1);
    }
    CUDA_CHECK(cudaMemcpyAsync(at->rows, host, (size_t)n * sizeof *at->rows, cudaMemcpyHostToDevice,
                               stream_of(b)));
    if (w.top_k || w.top_p)
        CUDA_CHECK(
            cudaMemsetAsync(at->histograms, 0, (size_t)n * sizeof *at->histograms, stream_of(b)));
    passes_run(b, &s, n, rows, &w);
    CUDA_CHECK(cudaMemcpyAsync(host, at->rows, (size_t)n * sizeof *at->rows, cudaMemcpyDeviceToHost,
                               stream_of(b)));
    CUDA_CHECK(cudaStreamSynchronize(stream_of(b)));
    peers_check(b->peers);
    for (int32_t i = 0; i < n; i++)
        pick_tell(&host[i], rows[i].pick, params->vocab);
}

void cuda_pick(struct backend *base, const struct pick_params *p)
{
    struct cuda_backend *b = cuda_of(base);
    ASSERT(p->vocab >= 1 && p->vocab <= b->limits.vocab);
    for (int32_t i = 0; i < p->n; i += PICKS_AT_ONCE)
        some_run(b, p, p->rows + i, p->n - i < PICKS_AT_ONCE ? p->n - i : PICKS_AT_ONCE);
}
