/*
 * From logits to one token id.
 *
 * Order: penalties -> mask -> temperature -> top-k -> top-p -> min-p, each on the distribution that
 * the one before leaves (renormalised), as whole numbers (pick.h).  Candidates are ordered by
 * probability, then by id, so ties go to the lowest id and a cut is the same on every machine.  The
 * draw uses a counter-based generator: the number at a position is a function of (seed, position)
 * and of nothing else, so neither batching, chunking nor reuse can change an answer.
 */
#ifndef V4BOX_KERNELS_SAMPLER_H
#define V4BOX_KERNELS_SAMPLER_H

#include "kernels/pick.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Scratch for one thread. */
struct sampler {
    int64_t *weights;        /* owns; [vocab_size] of pick.h; 0: not kept */
    int32_t *ids;            /* owns; [vocab_size] candidates, as far as they are ordered */
    int32_t *counts;         /* owns; [vocab_size] zero between calls */
    struct token_said *said; /* owns; [vocab_size] */
    float *raw;              /* owns; [vocab_size] logits as the network gave them */
    int32_t vocab_size;
};

/** Takes the scratch memory.  @own sampler_clear */
void sampler_init(struct sampler *sampler, int32_t vocab_size);
void sampler_clear(struct sampler *sampler);

/**
 * Picks the token at `position` (index in the timeline: prompt tokens count).
 * @shape  logits [vocab_size]; -inf bars a token
 * @return the id, or SAMPLE_FAULT when a logit is NaN or +inf, or all are -inf
 */
int32_t sampler_pick(struct sampler *sampler, const float *logits, const struct sampling *sampling,
                     uint64_t position);

/**
 * Bars every token whose bit is clear: they are as absent as if the vocabulary had none of them.
 * NaN and +inf stay, so that sampler_pick still finds the fault.
 * @shape   logits [vocab_size], allowed [(vocab_size + 63) / 64]
 * @return  false when no bit is set: there is nothing to pick
 */
bool sampler_bar(float *logits, const uint64_t *allowed, int32_t vocab_size);

/** Lists each token that the penalties are for, once; nothing when they are off.
 *  @shape counts [vocab_size] zero, and zero again; ids [n_prompt + n_answer] inside the
 *         vocabulary; out [vocab_size]
 *  @return how many */
int32_t sampler_said(int32_t *counts, const struct sampling *sampling, const int32_t *ids,
                     int32_t n_prompt, int32_t n_answer, struct token_said *out);

/**
 * Makes tokens that were said already less likely.  Each of them, once: by repetition_penalty a
 * positive logit is divided, another multiplied; when the answer has it `count` times, its logit
 * falls by presence_penalty + count * frequency_penalty.  What is not finite stays.
 * A function of the tokens alone, so a rejected guess or a restored prefix leaves no trace.
 * @shape  logits [vocab_size], ids [n_prompt + n_answer] inside the vocabulary
 */
void sampler_penalise(struct sampler *sampler, float *logits, const struct sampling *sampling,
                      const int32_t *ids, int32_t n_prompt, int32_t n_answer);

/** Fills in the logarithms of the softmax: of token `id` and of the n_top likeliest (fewer when the
 * vocabulary has no more).
 *  @shape logits [vocab_size], without NaN and +inf and not all -inf */
void sampler_logprobs(const float *logits, int32_t vocab_size, int32_t id, int32_t n_top,
                      struct token_logprobs *out);

/** The logarithm of the sum of e^logit, of which `sum` are the weights. */
double sampler_log_sum(float max, int64_t sum);

/** All of the above: penalises, bars, picks, and tells the logprobs of the row as it was.
 *  @shape logits [vocab_size], changed */
void sampler_take(struct sampler *sampler, float *logits, struct pick *pick);

/** 64 bits of Philox4x32-10 that belong to (seed, position), and the first 53 as a number in [0,
 * 1).
 */
uint64_t sampler_draw(uint64_t seed, uint64_t position);
double sampler_uniform(uint64_t seed, uint64_t position);

/** Philox4x32-10.  @src Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011 */
void philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

#ifdef __cplusplus
}
#endif

#endif
