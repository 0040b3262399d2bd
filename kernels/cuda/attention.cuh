/*
 * What kernels of attention share: the entries that a query sees, and what a launch knows.  Knows
 * no arithmetic.
 */
#ifndef V4BOX_KERNELS_CUDA_ATTENTION_CUH
#define V4BOX_KERNELS_CUDA_ATTENTION_CUH

#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/spans.cuh"

#define HEAD_CHUNKS   (HEAD_DIM / CHUNK)
#define SOFTMAX_SCALE 0.044194173824159216 /* HEAD_DIM^-0.5 */

/* What both have of a sequence's state. */
enum { RING, COMPRESSED };

/* The entries that a query sees: window oldest first, then blocks upwards. */
struct key_list {
    const float *ring, *compressed;
    int64_t oldest;
    int32_t window, n;
    const int32_t *selected; /* NULL: every block */
};

/* Past the L1, as kernels may ask in front of grid_begin. */
static __device__ inline key_list keys_of(const attention_params &p, const span_row &r, int64_t t)
{
    int64_t position = (int64_t)__ldcg(r.state.at) + r.row;
    int64_t oldest = position >= SLIDING_WINDOW ? position - SLIDING_WINDOW + 1 : 0;
    int32_t window = (int32_t)(position - oldest + 1), blocks = 0;
    const int32_t *selected = NULL;
    if (p.ratio != 0 && p.selected == NULL)
        blocks = (int32_t)((position + 1) / p.ratio);
    if (p.ratio != 0 && p.selected != NULL) {
        blocks = __ldcg(p.n_selected + t);
        selected = p.selected + t * p.topk;
    }
    const float *const *memory = r.state.memory;
    return {memory[RING], memory[COMPRESSED], oldest, window, window + blocks, selected};
}

static __device__ inline const float *key_at(const attention_params &p, const key_list &keys,
                                             int32_t i)
{
    if (i < keys.window)
        return keys.ring + (keys.oldest + i) % p.ring_slots * HEAD_DIM;
    int64_t block = i - keys.window;
    return keys.compressed +
           (keys.selected == NULL ? block : __ldcg(keys.selected + block)) * HEAD_DIM;
}

/* What a block knows of its work. */
struct attend_params {
    struct attention_params p;
    struct testimony say; /* of one sequence */
    int32_t token, parts; /* first token of the launch; parts of a token at most */
    int32_t part_keys;    /* keys of a part */
    float scale;
    void *states; /* struct state<T> [tokens, heads, parts] */
};

/* In one thread of a sequence: of its first row. */
static __device__ inline bool begins(const spans &spans, int64_t t)
{
    bool first = blockIdx.x == 0 && blockIdx.z == 0 && threadIdx.x == 0;
    return first && span_row_of(spans, t).row == 0;
}

static __device__ inline int attention_row(const attend_params &a)
{
    return a.say.place.n_decode > 0 ? ROW_ATTN_DECODE : ROW_ATTN_PREFILL;
}

/* Few tokens under ATTN_BF16 (attention_few.cu), if that is what these are. */
bool attention_few_fits(const struct attention_params *p, int32_t rows, int32_t keys);
void attention_few(struct cuda_backend *b, const struct attend_params *a, const struct spans *spans,
                   int32_t keys);

#endif
