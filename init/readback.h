/*
 * Reads a model's folder and says which leaves of it are not what they must be.  Several threads,
 * since one hashes more slowly than a disk reads.  Changes nothing.
 */
#ifndef V4BOX_INIT_READBACK_H
#define V4BOX_INIT_READBACK_H

#include "common/leaves.h"

enum leaf_state { LEAF_GOOD, LEAF_DIFFERS, LEAF_UNREADABLE };

/**
 * Looks at every leaf of the folder `path`, past what the kernel holds of it in memory; state[i] is
 * then that of leaf i, [LEAVES_MAX].  Returns how many are not good.
 * @err a file that is absent, or has another size, has no good leaf
 */
uint32_t readback(const char *path, const struct leaves *m, uint8_t *state);

#endif
