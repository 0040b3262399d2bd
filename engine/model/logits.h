/*
 * What rows of logits say: the likeliest token, and how far two rows are apart.  Plain numbers;
 * knows no network.
 */
#ifndef V4BOX_ENGINE_MODEL_LOGITS_H
#define V4BOX_ENGINE_MODEL_LOGITS_H

#include <stdint.h>

/** The likeliest id, the lowest one on ties.  @shape row [n], n >= 1 */
int32_t logits_top(const float *row, int32_t n);
/** Log-probability of an id, in nats, summed in double.  @shape row [n] finite */
double logits_logprob(const float *row, int32_t n, int32_t id);
/** KL(p || q) in nats of the distributions of two rows, in double; never below 0.
 *  @return +infinity when a logit is not finite: such a row is a fault, not a distance */
double logits_kl(const float *p, const float *q, int32_t n);

#endif
