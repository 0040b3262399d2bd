/*
 * Weights that nobody has stored: every element follows from a seed and its number, so that a
 * network of any size is there wherever it can be computed.  One statement of the function, for
 * the writer of checkpoints, the host and the GPU; the independent one is tests/golden/synth.py.
 *
 *   word_i = splitmix64 finaliser(state + (i+1) * 9e3779b97f4a7c15)   i = row-major element index
 *   unit_i = ((word_i >> 48) - 32767.5) / 32768
 *
 * Knows no names and no network: what state and numbers a tensor has is said in
 * engine/model/made.h.
 */
#ifndef V4BOX_KERNELS_SYNTH_H
#define V4BOX_KERNELS_SYNTH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __CUDACC__
#define SYNTH_FN static __host__ __device__ inline
#else
#define SYNTH_FN static inline
#endif

/* How elements are stored; of FP4 two of them are one byte, the first in its low half. */
enum synth_kind {
    SYNTH_F32,         /* base + factor * unit */
    SYNTH_BF16,        /* the same, of its float32 */
    SYNTH_FP8,         /* e4m3 */
    SYNTH_FP4,         /* e2m1, two a byte */
    SYNTH_SCALE,       /* e8m0: exponent, or one less */
    SYNTH_NVFP4_SCALE, /* e4m3 from 128 to 448 */
    SYNTH_EXPERTS,     /* I64: element i is of token i / top, distinct experts of `experts` */
    SYNTH_KINDS
};

/* One stored tensor. */
struct synth {
    enum synth_kind kind;
    uint64_t state;
    double base, factor;
    int32_t exponent;
    uint32_t top, experts;
};

/* The same in memory; it may be an address alone. */
struct synth_part {
    const void *at; /* a name: nothing need be there */
    uint64_t bytes;
    struct synth made;
};

struct synth_table {
    const struct synth_part *parts; /* borrows; ascending, none inside another */
    size_t n;
};

SYNTH_FN uint64_t synth_word(uint64_t state, uint64_t index)
{
    uint64_t z = state + (index + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

SYNTH_FN double synth_unit(uint64_t word)
{
    return ((double)(word >> 48) - 32767.5) / 32768.0;
}

SYNTH_FN uint32_t synth_float_bits(double value)
{
    union {
        float number;
        uint32_t bits;
    } narrow;
    narrow.number = (float)value;
    return narrow.bits;
}

/* No product is fused with its sum: neither compiler is allowed to (Makefile). */
SYNTH_FN uint64_t synth_plain(const struct synth *s, uint64_t i)
{
    uint32_t bits = synth_float_bits(s->base + s->factor * synth_unit(synth_word(s->state, i)));
    if (s->kind == SYNTH_F32)
        return bits;
    return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16; /* nearest even; no NaN can occur */
}

/* Experts start, start + step, .. of a token, modulo their number: step is odd. */
SYNTH_FN uint64_t synth_expert(const struct synth *s, uint64_t i)
{
    uint64_t w = synth_word(s->state, i / s->top);
    uint64_t step = (w >> 32) % (s->experts / 2) * 2 + 1;
    return (w % s->experts + i % s->top * step) % s->experts;
}

/* Bytes of what synth_stored gives. */
SYNTH_FN uint32_t synth_width(enum synth_kind kind)
{
    return kind == SYNTH_F32 ? 4 : kind == SYNTH_BF16 ? 2 : kind == SYNTH_EXPERTS ? 8 : 1;
}

/* Stored number i, little endian; of FP4 a byte. */
SYNTH_FN uint64_t synth_stored(const struct synth *s, uint64_t i)
{
    uint64_t w;
    switch (s->kind) {
    case SYNTH_F32:
    case SYNTH_BF16:
        return synth_plain(s, i);
    case SYNTH_FP4:
        return synth_word(s->state, 2 * i) >> 60 | (synth_word(s->state, 2 * i + 1) >> 60) << 4;
    case SYNTH_FP8:
        w = synth_word(s->state, i);
        return (w >> 63) << 7 | (5 + ((w >> 61) & 3)) << 3 | ((w >> 58) & 7);
    case SYNTH_SCALE:
        return (uint64_t)(s->exponent - (int32_t)(synth_word(s->state, i) >> 63));
    case SYNTH_NVFP4_SCALE:
        return 0x70 + (synth_word(s->state, i) >> 32) % 15;
    case SYNTH_EXPERTS:
        return synth_expert(s, i);
    default:
        return 0;
    }
}

#ifdef __cplusplus
extern "C" {
#endif

/** Bytes `first`.. of a stored tensor; both are multiples of its width. */
void synth_fill(const struct synth *s, uint64_t first, uint64_t bytes, uint8_t *out);

/** The part in which an address lies.  @return NULL: none */
const struct synth_part *synth_find(const struct synth_table *table, const void *at);

#ifdef __cplusplus
}
#endif

#endif
