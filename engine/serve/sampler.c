/* The sampler: one pass for the maximum, one for the weights, a heap only when a cut needs an
 * order. */
#include "engine/serve/sampler.h"

#include "kernels/check.h"

#include <math.h>
#include <stdlib.h>

void sampler_init(struct sampler *sampler, int32_t vocab_size)
{
    ASSERT(vocab_size > 0);
    *sampler = (struct sampler){
        .weights = calloc((size_t)vocab_size, sizeof(double)),
        .heap = calloc((size_t)vocab_size, sizeof(int32_t)),
        .vocab_size = vocab_size,
    };
    ASSERT(sampler->weights != NULL && sampler->heap != NULL);
}

void sampler_clear(struct sampler *sampler)
{
    free(sampler->weights);
    free(sampler->heap);
    *sampler = (struct sampler){0};
}

enum status sampling_check(const struct sampling *s, struct error *err)
{
    /* Written so that NaN fails. */
    if (!(s->temperature >= 0 && s->temperature < INFINITY))
        return error_set(err, ERR_INPUT, "temperature: must be a number of at least 0");
    if (!(s->top_p > 0 && s->top_p <= 1))
        return error_set(err, ERR_INPUT, "top_p: must be above 0 and at most 1");
    if (!(s->min_p >= 0 && s->min_p <= 1))
        return error_set(err, ERR_INPUT, "min_p: must be between 0 and 1");
    if (s->top_k < 0)
        return error_set(err, ERR_INPUT, "top_k: must be at least 0");
    return OK;
}

void philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c[4] = {counter[0], counter[1], counter[2], counter[3]};
    uint32_t k[2] = {key[0], key[1]};
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c[0];
        uint64_t p1 = (uint64_t)0xCD9E8D57u * c[2];
        uint32_t next[4] = {(uint32_t)(p1 >> 32) ^ c[1] ^ k[0], (uint32_t)p1,
                            (uint32_t)(p0 >> 32) ^ c[3] ^ k[1], (uint32_t)p0};
        for (int i = 0; i < 4; i++)
            c[i] = next[i];
        k[0] += 0x9E3779B9u; /* Weyl steps: golden ratio and sqrt(3) - 1 */
        k[1] += 0xBB67AE85u;
    }
    for (int i = 0; i < 4; i++)
        out[i] = c[i];
}

double sampler_uniform(uint64_t seed, uint64_t position)
{
    const uint32_t counter[4] = {(uint32_t)position, (uint32_t)(position >> 32), 0, 0};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t out[4];
    philox4x32(counter, key, out);
    uint64_t bits = ((uint64_t)out[0] << 32 | out[1]) >> 11;
    return (double)bits * 0x1p-53;
}

/* The lowest id of the greatest logit, or SAMPLE_FAULT. */
static int32_t greatest(const float *logits, int32_t n)
{
    int32_t best = SAMPLE_FAULT;
    float max = -INFINITY;
    for (int32_t i = 0; i < n; i++) {
        if (!(logits[i] < INFINITY)) /* NaN or +inf */
            return SAMPLE_FAULT;
        if (logits[i] > max) {
            max = logits[i];
            best = i;
        }
    }
    return best;
}

/* The order of candidates: more probable first, then the lower id. */
static bool before(const double *w, int32_t a, int32_t b)
{
    return w[a] > w[b] || (w[a] == w[b] && a < b);
}

static void sift_down(const double *w, int32_t *heap, int32_t n, int32_t at)
{
    int32_t id = heap[at];
    for (;;) {
        int32_t child = 2 * at + 1;
        if (child >= n)
            break;
        if (child + 1 < n && before(w, heap[child + 1], heap[child]))
            child++;
        if (!before(w, heap[child], id))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = id;
}

/* Moves the first candidate of heap[0..n) to heap[n - 1] and returns it. */
static int32_t pop(const double *w, int32_t *heap, int32_t n)
{
    int32_t first = heap[0];
    heap[0] = heap[n - 1];
    heap[n - 1] = first;
    if (n > 1)
        sift_down(w, heap, n - 1, 0);
    return first;
}

/* A heap of the candidates whose weight is above zero and at least `floor`.  @return how many */
static int32_t heap_fill(struct sampler *s, double floor)
{
    int32_t n = 0;
    for (int32_t i = 0; i < s->vocab_size; i++) {
        if (s->weights[i] > 0 && s->weights[i] >= floor)
            s->heap[n++] = i;
    }
    for (int32_t i = n / 2 - 1; i >= 0; i--)
        sift_down(s->weights, s->heap, n, i);
    return n;
}

/*
 * The last candidate, in order, that top-k and top-p keep.
 * `total` is the sum of all weights.
 */
static int32_t cut(struct sampler *s, const struct sampling *p, double total)
{
    const double *w = s->weights;
    bool by_rank = p->top_k > 0 && p->top_k < s->vocab_size;
    /* Candidates below the floor hold less than 1 - top_p together, so those above it hold top_p:
     * the nucleus lies among them, and most of a large vocabulary never enters the heap.  With
     * top-k the total is not that of the vocabulary, and few are popped anyway. */
    double floor = by_rank ? 0 : (1 - p->top_p) * total / s->vocab_size;
    int32_t n = heap_fill(s, floor);
    ASSERT(n > 0);
    if (by_rank) {
        int32_t k = p->top_k < n ? p->top_k : n;
        total = 0;
        for (int32_t i = 0; i < k; i++)
            total += w[pop(w, s->heap, n - i)];
        double held = 0;
        for (int32_t i = 0; i < k; i++) { /* popped ones stand at the end, first candidate last */
            held += w[s->heap[n - 1 - i]];
            if (held >= p->top_p * total)
                return s->heap[n - 1 - i];
        }
        return s->heap[n - k];
    }
    int32_t last = s->heap[0];
    double held = 0;
    for (int32_t i = 0; i < n && held < p->top_p * total; i++) {
        last = pop(w, s->heap, n - i);
        held += w[last];
    }
    return last;
}

int32_t sampler_pick(struct sampler *s, const float *logits, const struct sampling *p,
                     uint64_t position)
{
    int32_t top = greatest(logits, s->vocab_size);
    if (top == SAMPLE_FAULT || p->temperature == 0)
        return top;

    double *w = s->weights;
    double total = 0;
    for (int32_t i = 0; i < s->vocab_size; i++) {
        w[i] = exp(((double)logits[i] - logits[top]) / p->temperature);
        total += w[i];
    }
    if ((p->top_k > 0 && p->top_k < s->vocab_size) || p->top_p < 1) {
        int32_t last = cut(s, p, total);
        double edge = w[last];
        for (int32_t i = 0; i < s->vocab_size; i++) {
            if (w[i] < edge || (w[i] == edge && i > last))
                w[i] = 0;
        }
    }
    double kept = 0;
    for (int32_t i = 0; i < s->vocab_size; i++) {
        if (w[i] < p->min_p) /* the most probable one has weight 1 */
            w[i] = 0;
        kept += w[i];
    }
    /* The walk is in order of ids: no sort, and a filter that cuts nothing changes nothing. */
    double target = sampler_uniform(p->seed, position) * kept;
    int32_t picked = top;
    double held = 0;
    for (int32_t i = 0; i < s->vocab_size; i++) {
        held += w[i];
        if (held > target) {
            picked = i;
            break;
        }
    }
    return picked;
}
