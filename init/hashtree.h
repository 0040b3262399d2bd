/*
 * The tree of hashes that dm-verity keeps behind its data, looked at in memory: what the kernel
 * will believe once a system runs is known before a byte of it is written.  Blocks and the hashes
 * of a block are of 4096 and 32 bytes; the level above all others lies first.  Knows no disk.
 *
 *   level 0      SHA-256 of the salt and a block of data, 128 to a block of hashes
 *   level n + 1  the same over the blocks of level n, until there is one block
 *   root         the same over that one block: struct verity names it
 */
#ifndef V4BOX_INIT_HASHTREE_H
#define V4BOX_INIT_HASHTREE_H

#include "init/verity.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HASHTREE_HASH_BYTES 32
#define HASHTREE_LEVELS_MAX 6 /* of blocks that VERITY_BLOCKS_MAX can count */

struct hashtree {
    uint8_t root[HASHTREE_HASH_BYTES], salt[HASHTREE_HASH_BYTES];
    uint64_t data; /* blocks of data */
    int levels;
    uint64_t first[HASHTREE_LEVELS_MAX], count[HASHTREE_LEVELS_MAX]; /* blocks of each level */
    uint64_t blocks;                                                 /* of all levels */
};

/** Where everything lies in the tree of `v`, which verity_parse has read. */
void hashtree_plan(struct hashtree *t, const struct verity *v);

/** Whether a tree is the one that the root stands for.  @shape tree [blocks * 4096] */
bool hashtree_whole(const struct hashtree *t, const uint8_t *tree);

/** Whether a block of data is the one of a whole tree.  @shape data [4096] */
bool hashtree_fits(const struct hashtree *t, const uint8_t *tree, uint64_t block,
                   const uint8_t *data);

#endif
