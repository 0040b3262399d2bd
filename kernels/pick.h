/*
 * A token that is picked behind a row of logits: what it is picked by, what was picked, and the
 * numbers that every backend picks by, so that all pick the same token for the same logits.
 *
 * A weight is e^((logit - the greatest) / temperature) as a whole number, PICK_WHOLE for 1.  Sums
 * of whole numbers are the same in any order, so a GPU adds them up as it likes.  Its parts are a
 * function of +, - and * in double, rounded each by itself, which every compiler here has the same.
 * Who weighs less than half of a unit (2.8e-14 of the likeliest) is never drawn.
 */
#ifndef V4BOX_KERNELS_PICK_H
#define V4BOX_KERNELS_PICK_H

#include "config/limits.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#define SAMPLE_FAULT  (-1) /* a logit is NaN or +inf, or all are -inf */
#define SAMPLE_BARRED (-2) /* the mask allows no token */

struct sampling {
    double temperature; /* 0: greedy, lowest id on ties */
    double top_p;       /* (0, 1] */
    double min_p;       /* [0, 1] */
    int32_t top_k;      /* 0: off */
    uint64_t seed;      /* the same seed, prompt and profile give the same tokens */
    /* What was said already becomes less likely (sampler_penalise).  0: off */
    double presence_penalty, frequency_penalty; /* [-2, 2], of the answer's tokens */
    double repetition_penalty;                  /* (0, 2], of all tokens; 0 and 1: off */
};

/* How likely the network found a token: before penalties, masks and temperature, so that it tells
 * about the network and not about the request.  -inf is possible. */
struct token_logprob {
    int32_t id;
    float logprob;
};

struct token_logprobs {
    float chosen; /* of the token of the event */
    int32_t n_top;
    struct token_logprob top[LOGPROBS_TOP_MAX]; /* the likeliest first, the lower id on ties */
};

/* A token that a penalty is for. */
struct token_said {
    int32_t id;
    int32_t count; /* in the answer; 0: in the prompt alone */
};

/* The token behind one row of logits: what it is picked by, and what was picked. */
struct pick {
    struct sampling sampling;
    uint64_t position;             /* of the token in its timeline: prompt tokens count */
    const uint64_t *allowed;       /* as sampler_bar takes it; NULL: all are */
    const struct token_said *said; /* [n_said] as sampler_said leaves it */
    int32_t n_said;
    bool logprobs;              /* asked for, with n_top alternatives */
    int32_t n_top;              /* 0 to LOGPROBS_TOP_MAX */
    int32_t id;                 /* out: or SAMPLE_FAULT, SAMPLE_BARRED */
    struct token_logprobs told; /* out: when asked for, and a token was picked */
};

#ifdef __CUDACC__
#define PICK_FUNCTION static __host__ __device__ inline
#else
#define PICK_FUNCTION static inline
#endif

#define PICK_BITS  44
#define PICK_WHOLE (INT64_C(1) << PICK_BITS)
static_assert(TOKENIZER_VOCAB_MAX <= 1 << (62 - PICK_BITS), "sums of weights are int64_t");

#define PICK_LOG2_E 1.4426950408889634

/* What a difference of logits is multiplied by.  Finite, so that no difference stays none. */
PICK_FUNCTION double pick_scale(double temperature)
{
    double scale = PICK_LOG2_E / temperature;
    return scale <= DBL_MAX ? scale : DBL_MAX;
}

/** @param max  the greatest of the row: finite, and not less than `logit`, which may be -inf
 *  @return 0 to PICK_WHOLE */
PICK_FUNCTION int64_t pick_weight(float logit, float max, double scale)
{
    /* ln(2)^k / k!: Taylor's series of 2^f, whose rest is below 2e-16 for |f| <= 0.5 */
    const double terms[] = {1.0,
                            0.6931471805599453,
                            0.24022650695910072,
                            0.05550410866482158,
                            0.009618129107628477,
                            0.0013333558146428443,
                            0.0001540353039338161,
                            1.5252733804059841e-05,
                            1.321548679014431e-06,
                            1.01780860092397e-07,
                            7.054911620801123e-09,
                            4.4455382718708116e-10,
                            2.5678435993488206e-11};
    enum { LAST = sizeof terms / sizeof terms[0] - 1 };
    double below = ((double)max - (double)logit) * scale; /* powers of two */
    if (!(below < PICK_BITS + 1))
        return 0;
    int32_t whole = (int32_t)(below + 0.5);
    double f = whole - below, power = terms[LAST];
    for (int k = LAST - 1; k >= 0; k--)
        power = power * f + terms[k];
    /* 2^(PICK_BITS - whole), from 2^44 to a half */
    double unit = (double)(INT64_C(1) << (PICK_BITS + 1 - whole)) * 0.5;
    return (int64_t)(power * unit + 0.5);
}

/** What top_p of all weights is: at least 1. */
PICK_FUNCTION int64_t pick_mass(double top_p, int64_t total)
{
    int64_t mass = (int64_t)(top_p * (double)total);
    mass = mass < total ? mass : total;
    return mass > 1 ? mass : 1;
}

/** Whether a weight is below min_p of the greatest. */
PICK_FUNCTION bool pick_below(int64_t weight, double min_p)
{
    return (double)weight < min_p * (double)PICK_WHOLE;
}

/** Penalties of a token that the answer has `count` times. */
PICK_FUNCTION float pick_penalised(float logit, const struct sampling *p, int32_t count)
{
    if (!(fabsf(logit) <= FLT_MAX))
        return logit;
    double out = logit;
    if (p->repetition_penalty > 0)
        out = out > 0 ? out / p->repetition_penalty : out * p->repetition_penalty;
    if (count > 0)
        out -= p->presence_penalty + count * p->frequency_penalty;
    /* A tiny divisor must not make a fault of the network of it. */
    out = out < FLT_MAX ? out : FLT_MAX;
    return (float)(out > -FLT_MAX ? out : -FLT_MAX);
}

/** Where in `kept` weights the number `draw` of 2^64 points. */
PICK_FUNCTION int64_t pick_target(uint64_t draw, int64_t kept)
{
    return (int64_t)((unsigned __int128)draw * (uint64_t)kept >> 64);
}

#endif
