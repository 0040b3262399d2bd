/*
 * FNV-1a of 64 bits: a checksum that is stable across builds and machines.  For names and for
 * finding differences; who could gain by a collision is answered with a keyed or cryptographic
 * hash.
 */
#ifndef V4BOX_ENGINE_FNV_H
#define V4BOX_ENGINE_FNV_H

#include <stdint.h>

#define FNV_BASIS UINT64_C(0xCBF29CE484222325)
#define FNV_PRIME UINT64_C(0x100000001B3)

/**
 * The hash with one more part.
 * @param part  a byte as FNV defines it; a wider value is taken whole, for hashes that only meet
 * their own
 */
static inline uint64_t fnv_add(uint64_t hash, uint64_t part)
{
    return (hash ^ part) * FNV_PRIME;
}

#endif
