/*
 * The sampler: a pass for the maximum, one for the weights, and a selection (never a sort) when
 * top-k or top-p needs an order.
 */
#include "kernels/sampler.h"

#include "kernels/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void sampler_init(struct sampler *sampler, int32_t vocab_size)
{
    ASSERT(vocab_size > 0 && vocab_size <= TOKENIZER_VOCAB_MAX);
    *sampler = (struct sampler){
        .weights = calloc((size_t)vocab_size, sizeof(int64_t)),
        .ids = calloc((size_t)vocab_size, sizeof(int32_t)),
        .counts = calloc((size_t)vocab_size, sizeof(int32_t)),
        .said = calloc((size_t)vocab_size, sizeof(struct token_said)),
        .raw = calloc((size_t)vocab_size, sizeof(float)),
        .vocab_size = vocab_size,
    };
    ASSERT(sampler->weights != NULL && sampler->ids != NULL && sampler->counts != NULL &&
           sampler->said != NULL && sampler->raw != NULL);
}

void sampler_clear(struct sampler *sampler)
{
    free(sampler->weights);
    free(sampler->ids);
    free(sampler->counts);
    free(sampler->said);
    free(sampler->raw);
    *sampler = (struct sampler){0};
}

int32_t sampler_said(int32_t *counts, const struct sampling *p, const int32_t *ids,
                     int32_t n_prompt, int32_t n_answer, struct token_said *out)
{
    enum { DONE = -1 };
    bool repetition = p->repetition_penalty > 0 && p->repetition_penalty != 1;
    if (!repetition && p->presence_penalty == 0 && p->frequency_penalty == 0)
        return 0;
    int32_t first = repetition ? 0 : n_prompt, end = n_prompt + n_answer, n = 0;
    for (int32_t i = n_prompt; i < end; i++)
        counts[ids[i]]++;
    for (int32_t i = first; i < end; i++) {
        if (counts[ids[i]] != DONE)
            out[n++] = (struct token_said){ids[i], counts[ids[i]]};
        counts[ids[i]] = DONE;
    }
    for (int32_t i = first; i < end; i++)
        counts[ids[i]] = 0;
    return n;
}

static void penalise(float *logits, const struct sampling *p, const struct token_said *said,
                     int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        logits[said[i].id] = pick_penalised(logits[said[i].id], p, said[i].count);
}

void sampler_penalise(struct sampler *s, float *logits, const struct sampling *p,
                      const int32_t *ids, int32_t n_prompt, int32_t n_answer)
{
    penalise(logits, p, s->said, sampler_said(s->counts, p, ids, n_prompt, n_answer, s->said));
}

bool sampler_bar(float *logits, const uint64_t *allowed, int32_t vocab_size)
{
    bool any = false;
    for (int32_t base = 0; base < vocab_size; base += 64) {
        int32_t n = vocab_size - base < 64 ? vocab_size - base : 64;
        uint64_t whole = n == 64 ? UINT64_MAX : (UINT64_C(1) << n) - 1;
        uint64_t bits = allowed[base / 64] & whole;
        any = any || bits != 0;
        for (int32_t i = 0; bits != whole && i < n; i++) {
            if ((bits >> i & 1) == 0 && logits[base + i] < INFINITY)
                logits[base + i] = -INFINITY;
        }
    }
    return any;
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

uint64_t sampler_draw(uint64_t seed, uint64_t position)
{
    const uint32_t counter[4] = {(uint32_t)position, (uint32_t)(position >> 32), 0, 0};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t out[4];
    philox4x32(counter, key, out);
    return (uint64_t)out[0] << 32 | out[1];
}

double sampler_uniform(uint64_t seed, uint64_t position)
{
    return (double)(sampler_draw(seed, position) >> 11) * 0x1p-53;
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
static bool before(const int64_t *w, int32_t a, int32_t b)
{
    return w[a] > w[b] || (w[a] == w[b] && a < b);
}

/*
 * Moves a pivot of ids[lo..hi) to where it belongs in the order: the ones before it stand left of
 * it. The pivot is pseudo-random, so that no shape of logits makes the selection slow.
 */
static int32_t partition(const int64_t *w, int32_t *ids, int32_t lo, int32_t hi, uint32_t *random)
{
    *random = *random * 1664525u + 1013904223u; /* Numerical Recipes */
    int32_t at = lo + (int32_t)((uint64_t)*random * (uint32_t)(hi - lo) >> 32);
    int32_t pivot = ids[at];
    ids[at] = ids[hi - 1];
    int32_t to = lo;
    for (int32_t i = lo; i < hi - 1; i++) {
        int32_t id = ids[i];
        if (before(w, id, pivot)) {
            ids[i] = ids[to];
            ids[to++] = id;
        }
    }
    ids[hi - 1] = ids[to];
    ids[to] = pivot;
    return to;
}

/* Brings the k first candidates of ids[0..n) to the front. */
static void select_rank(const int64_t *w, int32_t *ids, int32_t n, int32_t k)
{
    uint32_t random = 1;
    int32_t lo = 0, hi = n;
    while (lo < k && k < hi) {
        int32_t at = partition(w, ids, lo, hi, &random);
        if (at < k)
            lo = at + 1;
        else
            hi = at;
    }
}

/* Brings the fewest first candidates that hold `mass` to the front.  @return how many */
static int32_t select_mass(const int64_t *w, int32_t *ids, int32_t n, int64_t mass)
{
    uint32_t random = 1;
    int32_t lo = 0, hi = n; /* the last one kept is in [lo, hi); those before lo hold `held` */
    int64_t held = 0;
    while (hi - lo > 1) {
        int32_t at = partition(w, ids, lo, hi, &random);
        int64_t left = 0;
        for (int32_t i = lo; i < at; i++)
            left += w[ids[i]];
        if (at > lo && held + left >= mass) {
            hi = at;
        } else if (held + left + w[ids[at]] >= mass) {
            return at + 1;
        } else {
            held += left + w[ids[at]];
            lo = at + 1;
        }
    }
    return hi;
}

/* Sets the weight of all candidates beyond top-k and top-p to zero.  `total`: sum of all weights.
 */
static void cut(struct sampler *s, const struct sampling *p, int64_t total)
{
    int64_t *w = s->weights;
    bool by_rank = p->top_k > 0 && p->top_k < s->vocab_size;
    /* Candidates below the floor hold less than 1 - top_p together, so those above it hold top_p:
     * the nucleus lies among them, and most of a large vocabulary is never moved.  With top-k the
     * total is not that of the vocabulary. */
    int64_t floor = by_rank ? 0 : (total - pick_mass(p->top_p, total)) / s->vocab_size;
    int32_t n = 0;
    for (int32_t i = 0; i < s->vocab_size; i++) {
        if (w[i] > 0 && w[i] >= floor)
            s->ids[n++] = i;
    }
    ASSERT(n > 0);
    if (by_rank && p->top_k < n) {
        select_rank(w, s->ids, n, p->top_k);
        n = p->top_k;
    }
    if (by_rank) {
        total = 0;
        for (int32_t i = 0; i < n; i++)
            total += w[s->ids[i]];
    }
    if (p->top_p < 1)
        n = select_mass(w, s->ids, n, pick_mass(p->top_p, total));

    int32_t last = s->ids[0];
    for (int32_t i = 1; i < n; i++) {
        if (before(w, last, s->ids[i]))
            last = s->ids[i];
    }
    int64_t edge = w[last];
    for (int32_t i = 0; i < s->vocab_size; i++) {
        if (w[i] < edge || (w[i] == edge && i > last))
            w[i] = 0;
    }
}

int32_t sampler_pick(struct sampler *s, const float *logits, const struct sampling *p,
                     uint64_t position)
{
    int32_t top = greatest(logits, s->vocab_size);
    if (top == SAMPLE_FAULT || p->temperature == 0)
        return top;

    int64_t *w = s->weights, total = 0, kept = 0, held = 0;
    double scale = pick_scale(p->temperature);
    for (int32_t i = 0; i < s->vocab_size; i++) {
        w[i] = pick_weight(logits[i], logits[top], scale);
        total += w[i];
    }
    if ((p->top_k > 0 && p->top_k < s->vocab_size) || p->top_p < 1)
        cut(s, p, total);
    for (int32_t i = 0; i < s->vocab_size; i++) {
        if (pick_below(w[i], p->min_p))
            w[i] = 0;
        kept += w[i];
    }
    /* The walk is in order of ids: no sort, and a filter that cuts nothing changes nothing. */
    int64_t target = pick_target(sampler_draw(p->seed, position), kept);
    int32_t picked = 0;
    while (picked < s->vocab_size && held + w[picked] <= target)
        held += w[picked++];
    ASSERT(picked < s->vocab_size);
    return picked;
}

/* Puts a candidate where it belongs among the likeliest so far; of equals the earlier one stays. */
static void top_insert(struct token_logprobs *out, int32_t n_top, struct token_logprob candidate)
{
    int32_t at = out->n_top;
    while (at > 0 && out->top[at - 1].logprob < candidate.logprob)
        at--;
    if (at >= n_top)
        return;
    if (out->n_top < n_top)
        out->n_top++;
    for (int32_t i = out->n_top - 1; i > at; i--)
        out->top[i] = out->top[i - 1];
    out->top[at] = candidate;
}

double sampler_log_sum(float max, int64_t sum)
{
    return max + log((double)sum / (double)PICK_WHOLE);
}

void sampler_logprobs(const float *logits, int32_t vocab_size, int32_t id, int32_t n_top,
                      struct token_logprobs *out)
{
    ASSERT(id >= 0 && id < vocab_size && n_top >= 0 && n_top <= LOGPROBS_TOP_MAX);
    float max = logits[greatest(logits, vocab_size)];
    int64_t sum = 0;
    out->n_top = 0;
    for (int32_t i = 0; i < vocab_size; i++) {
        sum += pick_weight(logits[i], max, PICK_LOG2_E);
        top_insert(out, n_top, (struct token_logprob){i, logits[i]});
    }
    double log_sum = sampler_log_sum(max, sum);
    for (int32_t i = 0; i < out->n_top; i++)
        out->top[i].logprob = (float)(out->top[i].logprob - log_sum);
    out->chosen = (float)(logits[id] - log_sum);
}

void sampler_take(struct sampler *s, float *logits, struct pick *pick)
{
    if (pick->logprobs)
        memcpy(s->raw, logits, (size_t)s->vocab_size * sizeof *logits);
    penalise(logits, &pick->sampling, pick->said, pick->n_said);
    pick->id = SAMPLE_BARRED;
    if (pick->allowed == NULL || sampler_bar(logits, pick->allowed, s->vocab_size))
        pick->id = sampler_pick(s, logits, &pick->sampling, pick->position);
    if (pick->logprobs && pick->id >= 0)
        sampler_logprobs(s->raw, s->vocab_size, pick->id, pick->n_top, &pick->told);
}
