/*
 * The mixture of experts on the GPU (model.md 2.6).  Entries (token, choice) are sorted by expert
 * on the device and cut into items of as many entries as one tile takes; products.cu multiplies
 * items.  Sums go by expert number within a token.
 */
#include "kernels/cuda/rows.cuh"

/* ---- routing -------------------------------------------------------------------------------- */

/* sqrt(log(1 + e^z)), stable on both sides */
static __device__ double sqrt_softplus(double z)
{
    return sqrt(fmax(z, 0.0) + log1p(exp(-fabs(z))));
}

/* The `top` best of score + bias, the lowest number first on ties; by one warp. */
static __device__ void choose_best(double *key, int32_t n, int32_t top, int32_t *chosen)
{
    for (int32_t i = 0; i < top; i++) {
        double best = -INFINITY;
        int32_t at = INT32_MAX;
        for (int32_t e = lane_id(); e < n; e += WARP) {
            if (key[e] > best || (key[e] == best && e < at))
                best = key[e], at = e;
        }
        for (int step = WARP / 2; step > 0; step /= 2) {
            double other = __shfl_xor_sync(ALL_LANES, best, step);
            int32_t other_at = __shfl_xor_sync(ALL_LANES, at, step);
            if (other > best || (other == best && other_at < at))
                best = other, at = other_at;
        }
        if (lane_id() == 0) {
            chosen[i] = at;
            key[at] = -INFINITY;
        }
        __syncwarp();
    }
}

static __device__ void sort_ascending(int32_t *list, int32_t n)
{
    for (int32_t i = 1; i < n; i++) {
        int32_t value = list[i], at = i;
        for (; at > 0 && list[at - 1] > value; at--)
            list[at] = list[at - 1];
        list[at] = value;
    }
}

#define ROUTE_THREADS 256

/* One block a token: scores by all, the choice by its first warp. */
static __global__ void __launch_bounds__(ROUTE_THREADS)
    route_tokens(const float *router, int32_t experts, const float *bias, const int64_t *tid2eid,
                 struct route_params p, struct testimony say, bool beside)
{
    grid_begin(beside);
    __shared__ double score[EXPERTS_MAX], key[EXPERTS_MAX];
    __shared__ int32_t chosen[TOP_EXPERTS_MAX];
    int64_t t = blockIdx.x;
    for (int32_t e = (int32_t)threadIdx.x; e < experts; e += ROUTE_THREADS) {
        score[e] = sqrt_softplus(router[t * experts + e]);
        double k = bias == NULL ? 0 : score[e] + bias[e];
        key[e] = isnan(k) ? -INFINITY : k; /* what is chosen stays within the experts */
    }
    __syncthreads();
    if (warp_id() != 0)
        return;
    if (tid2eid == NULL)
        choose_best(key, experts, p.top, chosen);
    else if (lane_id() < p.top)
        chosen[lane_id()] = (int32_t)tid2eid[(int64_t)p.ids[t] * p.top + lane_id()];
    __syncwarp();
    if (lane_id() == 0)
        sort_ascending(chosen, p.top);
    __syncwarp();
    double sum = 0, scaling = 1;
    for (int32_t i = 0; i < p.top; i++)
        sum += score[chosen[i]];
    if (p.scale == MOE_SCALE_GATE) {
        scaling = p.scaling;
        testify(say, first_thread(), ROW_MOE_SCALE, MOE_SCALE_GATE, scaling);
    }
    for (int32_t i = lane_id(); i < p.top; i += WARP) {
        p.experts[t * p.top + i] = chosen[i];
        p.weights[t * p.top + i] = (float)(score[chosen[i]] / sum * scaling);
    }
    grid_end(beside);
}

void cuda_route(struct backend *base, const struct route_params *p)
{
    struct cuda_backend *b = cuda_of(base);
    ASSERT(p->gate.rows <= b->limits.experts && p->gate.rows <= EXPERTS_MAX);
    ASSERT((p->bias.data == NULL) != (p->tid2eid.data == NULL) && p->top <= p->gate.rows);
    ASSERT(p->top <= TOP_EXPERTS_MAX && p->n <= b->limits.tokens);
    struct products products = {};
    products.n = 1, products.tokens = p->n, products.groups = 1;
    products.x = p->x, products.round_in = ROUND_NONE;
    products.in_row = SAY_NOTHING, products.say = testimony_of(b, &p->place, p->n);
    products.list[0] = {weight_get(b, &p->gate), b->router, p->round, p->precise,
                        ROW_MOE_ROUTE,           ROW_SUM};
    products_run(b, &products);
    const float *bias = p->bias.data == NULL ? NULL : weight_floats(b, &p->bias);
    const int64_t *table = (const int64_t *)weight_get(b, &p->tid2eid).data;
    size_t choices = (size_t)p->n * (size_t)p->top;
    struct footprint f = {
        {{b->router, sizeof(float) * (size_t)p->n * (size_t)p->gate.rows}},
        {{p->experts, choices * sizeof(int32_t)}, {p->weights, choices * sizeof(float)}}};
    launch_beside(b, f, "route_tokens", route_tokens, (unsigned)p->n, ROUTE_THREADS, 0, b->router,
                  p->gate.rows, bias, table, *p, products.say);
}

/* ---- sorting entries ------------------------------------------------------------------------ */

struct sort_params {
    const int32_t *chosen;
    const float *weights;
    int32_t n, top, width, n_routed, experts; /* experts: the shared ones too */
    int32_t per_item;
    int32_t *entry_token, *entry_of, *n_items;
    float *entry_weight;
    struct item *items;
};

#define SORT_THREADS 512
#define SORT_WARPS   (SORT_THREADS / WARP)

static __device__ inline int32_t expert_of(const sort_params &p, int32_t t, int32_t i)
{
    return i < p.top ? p.chosen[t * p.top + i] : p.n_routed + i - p.top;
}

/* What the threads before this one have together. */
static __device__ uint32_t block_before(uint32_t mine, uint32_t *shared)
{
    uint32_t sum = mine;
    for (int step = 1; step < WARP; step *= 2) {
        uint32_t other = __shfl_up_sync(ALL_LANES, sum, step);
        sum += lane_id() >= step ? other : 0;
    }
    if (lane_id() == WARP - 1)
        shared[warp_id()] = sum;
    __syncthreads();
    for (int i = 0; i < warp_id(); i++)
        sum += shared[i];
    return sum - mine;
}

/* Gives each entry of tokens from..to its place, a token after the other; a lane has one of its
 * choices.  next: where the next entry of each expert goes */
static __device__ void entries_place(const sort_params &p, int32_t from, int32_t to, uint32_t *next)
{
    const int32_t i = lane_id();
    const unsigned lanes = __ballot_sync(ALL_LANES, i < p.width);
    for (int32_t t = from; t < to && i < p.width; t++) {
        int32_t e = expert_of(p, t, i);
        unsigned same = __match_any_sync(lanes, e); /* a table may name an expert twice */
        int32_t before = __popc(same & ((1u << i) - 1)), at = (int32_t)next[e] + before;
        __syncwarp(lanes);
        if (before == 0)
            next[e] += __popc(same);
        __syncwarp(lanes);
        /* rows of x for shared experts, which are rounded by themselves, follow the others */
        p.entry_token[at] = i < p.top ? t : p.n + t;
        p.entry_weight[at] = i < p.top ? p.weights[(int64_t)t * p.top + i] : 1.0f;
        p.entry_of[t * p.width + i] = at;
    }
}

/* One block.  Each warp has some neighbouring tokens: it counts their entries, and gives them their
 * places when it is known how many of the same expert the warps before have.  So entries of an
 * expert are in order of tokens, every time. */
static __global__ void __launch_bounds__(SORT_THREADS) sort_entries(struct sort_params p)
{
    grid_begin();
    __shared__ uint32_t tally[SORT_WARPS][SORT_THREADS], before[SORT_WARPS];
    int32_t e = (int32_t)threadIdx.x, each = ceil_div(p.n, SORT_WARPS);
    int32_t from = min(warp_id() * each, p.n), to = min(from + each, p.n);
    for (int w = 0; w < SORT_WARPS; w++)
        tally[w][e] = 0;
    __syncthreads();
    for (int32_t i = from * p.width + lane_id(); i < to * p.width; i += WARP)
        atomicAdd(&tally[warp_id()][expert_of(p, i / p.width, i % p.width)], 1);
    __syncthreads();
    int32_t mine = 0;
    for (int w = 0; w < SORT_WARPS; w++)
        mine += (int32_t)tally[w][e];
    int32_t my_items = (mine + p.per_item - 1) / p.per_item;
    /* both sums in one word: neither reaches 2^16 */
    uint32_t sums = block_before((uint32_t)mine << 16 | (uint32_t)my_items, before);
    int32_t first = (int32_t)(sums >> 16), item = (int32_t)(sums & 0xffff);
    if (e == SORT_THREADS - 1)
        *p.n_items = item + my_items;
    for (int32_t i = 0; i < my_items; i++) {
        int32_t done = i * p.per_item, left = mine - done;
        p.items[item + i] = {e, first + done, left < p.per_item ? left : p.per_item};
    }
    uint32_t at = (uint32_t)first;
    for (int w = 0; w < SORT_WARPS; w++) {
        uint32_t count = tally[w][e];
        tally[w][e] = at;
        at += count;
    }
    __syncthreads();
    entries_place(p, from, to, tally[warp_id()]);
}
static_assert(STEP_TOKENS_MAX * (TOP_EXPERTS_MAX + 1) < 1 << 16, "two sums in one word");
static_assert(TOP_EXPERTS_MAX + 1 <= WARP, "a lane for each choice");

static void sort_run(struct cuda_backend *b, const struct experts_params *p, int32_t per_item)
{
    struct sort_params sort = {p->chosen,
                               p->weights,
                               p->n,
                               p->top,
                               p->top + p->n_shared,
                               p->n_routed,
                               p->n_routed + p->n_shared};
    sort.per_item = per_item;
    sort.entry_token = b->entry_token, sort.entry_of = b->entry_of, sort.n_items = b->n_items;
    sort.entry_weight = b->entry_weight, sort.items = b->items;
    launch(b, "sort_entries", sort_entries, 1, SORT_THREADS, 0, sort);
}

/* ---- the layer ------------------------------------------------------------------------------ */

/* grid: chunks of hidden, tokens; one warp a block.  In order of the token's choices; entry_of
 * NULL: so are the entries. */
template <typename T>
static __global__ void sum_tokens(const float *down, const int32_t *entry_of,
                                  struct experts_params p, struct testimony say)
{
    grid_begin();
    int64_t t = blockIdx.y;
    int32_t at = (int32_t)blockIdx.x * CHUNK + lane_id() * 4, width = p.top + p.n_shared;
    T sum[4] = {};
    float rows[TOP_EXPERTS_MAX + 1][4], v[4]; /* all on their way together */
#pragma unroll
    for (int32_t i = 0; i < TOP_EXPERTS_MAX + 1; i++) {
        int64_t entry = entry_of == NULL || i >= width ? i : entry_of[t * width + i];
        if (i < width)
            load4(down + entry * p.hidden + at, rows[i]);
    }
#pragma unroll
    for (int32_t i = 0; i < TOP_EXPERTS_MAX + 1; i++) {
        if (i >= width)
            break;
        for (int k = 0; k < 4; k++)
            sum[k] += rows[i][k];
        if (p.scale == MOE_SCALE_KERNEL && i == p.top - 1) {
            float scaling = (float)p.scaling;
            for (int k = 0; k < 4; k++) /* the sum is stored in float32 in between */
                sum[k] = (T)(float)sum[k] * scaling;
            testify(say, first_thread(), ROW_MOE_SCALE, MOE_SCALE_KERNEL, scaling);
        }
    }
    for (int k = 0; k < 4; k++)
        v[k] = (float)sum[k];
    enum round did = warp_round(p.round_out, v);
    testify(say, first_thread(), ROW_ACT_STORE, value_of_round(did));
    store4(p.out + t * p.hidden + at, v);
}

/* Entries of an item: enough for what an expert gets on the average, so that its weights are read
 * once, and not more, since columns without a token cost as much; of many only every 16 do. */
static int32_t item_entries(int32_t n_entries, int32_t experts)
{
    return n_entries / experts < ITEM_FEW ? ITEM_FEW : ITEM_MANY;
}

/* What both halves know. */
struct layer {
    int32_t n; /* entries */
    bool one;  /* token: its entries are in order */
    struct testimony say;
    struct expert_products products;
};

/* x to gate and up. */
static void first_products(struct cuda_backend *b, const struct experts_params *p, struct layer *l)
{
    struct prepare in = {.x = p->x,
                         .rows = 2 * p->n,
                         .x_rows = p->n,
                         .cols = p->hidden,
                         .other = p->n,
                         .round_in = p->round_in,
                         .round_other = p->round_shared,
                         .in_row = SAY_NOTHING,
                         .other_row = SAY_NOTHING};
    in.rounded = p->precise ? b->rounded : NULL;
    in.half = p->precise ? NULL : &b->half;
    prepare_run(b, &in);
    l->products.rows = p->inner, l->products.cols = p->hidden;
    expert_products_run(b, &l->products);
}

/* SwiGLU of gate and up, or what it has left in h, rounded for the second products; or SwiGLU
 * alone, into h. */
static void middle(struct cuda_backend *b, const struct experts_params *p, const struct layer *l)
{
    bool inner = p->half == EXPERTS_INNER, outer = p->half == EXPERTS_OUTER;
    struct prepare mid = {.x = outer ? p->h : b->gate,
                          .up = outer ? NULL : b->up,
                          .weight = l->one ? p->weights : b->entry_weight,
                          .limit = p->limit,
                          .rows = l->n,
                          .x_rows = l->n,
                          .cols = p->inner,
                          .other = p->n * p->top,
                          .round_mid = p->round_out,
                          .round_in = inner ? ROUND_NONE : p->round_in,
                          .round_other = inner ? ROUND_NONE : p->round_shared,
                          .in_row = inner ? SAY_NOTHING : ROW_MOE_EXPERTS,
                          .other_row = inner ? SAY_NOTHING : ROW_DENSE_LINEAR,
                          .say = l->say,
                          .precise = p->precise};
    mid.rounded = inner ? p->h : p->precise ? b->rounded : NULL;
    mid.half = inner || p->precise ? NULL : &b->half;
    prepare_run(b, &mid);
}

/* Rows that are ready to out. */
static void second_products(struct cuda_backend *b, const struct experts_params *p, struct layer *l)
{
    l->products.rows = p->hidden, l->products.cols = p->inner, l->products.second = true;
    expert_products_run(b, &l->products);
    dim3 grid((unsigned)(p->hidden / CHUNK), (unsigned)p->n);
    const int32_t *entry_of = l->one ? NULL : b->entry_of;
    if (p->precise)
        launch(b, "sum_tokens", sum_tokens<double>, grid, WARP, 0, b->down, entry_of, *p, l->say);
    else
        launch(b, "sum_tokens", sum_tokens<float>, grid, WARP, 0, b->down, entry_of, *p, l->say);
}

void cuda_experts(struct backend *base, const struct experts_params *p)
{
    struct cuda_backend *b = cuda_of(base);
    int32_t width = p->top + p->n_shared, experts = p->n_routed + p->n_shared;
    ASSERT(width <= b->limits.top && width <= TOP_EXPERTS_MAX + 1 && experts <= SORT_THREADS);
    ASSERT(p->n <= b->limits.tokens && p->inner <= b->limits.inner);
    ASSERT(p->inner % CHUNK == 0 && p->hidden % CHUNK == 0);
    ASSERT((p->half == EXPERTS_WHOLE) == (p->h == NULL));
    struct layer l = {p->n * width, p->n == 1, testimony_of(b, &p->place, p->n), {}};
    int32_t per_item = item_entries(l.n, experts);
    if (!l.one)
        sort_run(b, p, per_item);
    l.products = {weight_experts(b, p->experts, experts), l.n, experts, 0, 0, per_item};
    l.products.chosen = l.one ? p->chosen : NULL, l.products.top = p->top;
    l.products.n_routed = p->n_routed;
    l.products.precise = p->precise, l.products.round = p->round_out, l.products.say = l.say;
    if (p->half != EXPERTS_OUTER)
        first_products(b, p, &l);
    middle(b, p, &l);
    if (p->half != EXPERTS_INNER)
        second_products(b, p, &l);
}
