/* The tree of hashes of dm-verity. */
#include "init/hashtree.h"

#include <sodium.h>
#include <string.h>

#define HASHES (VERITY_BLOCK_BYTES / HASHTREE_HASH_BYTES) /* of a block */

/* Digits that verity_parse has found to be digits. */
static void from_hex(uint8_t out[HASHTREE_HASH_BYTES], const char *hex)
{
    sodium_hex2bin(out, HASHTREE_HASH_BYTES, hex, VERITY_HEX_CHARS, NULL, NULL, NULL);
}

void hashtree_plan(struct hashtree *t, const struct verity *v)
{
    *t = (struct hashtree){.data = v->blocks};
    from_hex(t->root, v->root);
    from_hex(t->salt, v->salt);
    for (uint64_t below = v->blocks; below > 1 && t->levels < HASHTREE_LEVELS_MAX; t->levels++) {
        below = (below + HASHES - 1) / HASHES;
        t->count[t->levels] = below;
    }
    for (int level = t->levels - 1; level >= 0; level--) {
        t->first[level] = t->blocks;
        t->blocks += t->count[level];
    }
}

static bool is_hash_of(const struct hashtree *t, const uint8_t *hash, const uint8_t *block)
{
    uint8_t real[HASHTREE_HASH_BYTES];
    crypto_hash_sha256_state state;
    crypto_hash_sha256_init(&state);
    crypto_hash_sha256_update(&state, t->salt, sizeof t->salt);
    crypto_hash_sha256_update(&state, block, VERITY_BLOCK_BYTES);
    crypto_hash_sha256_final(&state, real);
    return memcmp(real, hash, sizeof real) == 0;
}

/* The hash of a block of what lies below `level`. */
static const uint8_t *hash_at(const struct hashtree *t, const uint8_t *tree, int level, uint64_t i)
{
    return level == t->levels
               ? t->root
               : tree + t->first[level] * VERITY_BLOCK_BYTES + i * HASHTREE_HASH_BYTES;
}

bool hashtree_whole(const struct hashtree *t, const uint8_t *tree)
{
    for (int level = t->levels - 1; level >= 0; level--)
        for (uint64_t i = 0; i < t->count[level]; i++)
            if (!is_hash_of(t, hash_at(t, tree, level + 1, i),
                            tree + (t->first[level] + i) * VERITY_BLOCK_BYTES))
                return false;
    return true;
}

bool hashtree_fits(const struct hashtree *t, const uint8_t *tree, uint64_t block,
                   const uint8_t *data)
{
    return block < t->data && is_hash_of(t, hash_at(t, tree, 0, block), data);
}
