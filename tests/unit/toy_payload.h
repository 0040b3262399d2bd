/* A GPU payload without a driver, as tools/payload.sh would make it, and an EFI program that names
 * it.  The tree is built here in another way than it is checked. */
#ifndef V4BOX_TESTS_TOY_PAYLOAD_H
#define V4BOX_TESTS_TOY_PAYLOAD_H

#include "init/payload.h"
#include "init/uki.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

#define TOY_BLOCKS_MAX  304
#define TOY_HASHES      128
#define TOY_SALT        "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210"
#define TOY_UKI_BYTES   1024
#define TOY_LINE_BYTES  256
#define TOY_UKI_LINE_AT 512
#define TOY_UKI_SECTION 128 /* where the table of sections is */

struct toy_payload {
    uint8_t data[TOY_BLOCKS_MAX][VERITY_BLOCK_BYTES]; /* on the disk: the tree right behind */
    size_t blocks, tree;                              /* of data, of the tree */
    char line[TOY_LINE_BYTES];                        /* of gpu.root */
    uint8_t way[TOY_BLOCKS_MAX * VERITY_BLOCK_BYTES]; /* on its way: the tree first */
};

static void toy_hash(uint8_t out[32], const uint8_t *block)
{
    uint8_t bytes[32 + VERITY_BLOCK_BYTES];
    sodium_hex2bin(bytes, 32, TOY_SALT, strlen(TOY_SALT), NULL, NULL, NULL);
    memcpy(bytes + 32, block, VERITY_BLOCK_BYTES);
    crypto_hash_sha256(out, bytes, sizeof bytes);
}

/* The blocks of hashes of `n` blocks at `below` come to `at`; those above them lie before. */
static size_t toy_level(uint8_t (*at)[VERITY_BLOCK_BYTES],
                        const uint8_t (*below)[VERITY_BLOCK_BYTES], size_t n)
{
    for (size_t i = 0; i < n; i++)
        toy_hash(at[i / TOY_HASHES] + i % TOY_HASHES * 32, below[i]);
    return (n + TOY_HASHES - 1) / TOY_HASHES;
}

/* At most TOY_HASHES * TOY_HASHES blocks: two levels. */
static void toy_make(struct toy_payload *p, size_t blocks, uint8_t seed)
{
    uint8_t root[32], (*tree)[VERITY_BLOCK_BYTES] = p->data + blocks;
    char hex[65];
    memset(p, 0, sizeof *p);
    p->blocks = blocks;
    for (size_t i = 0; i < blocks; i++)
        for (size_t j = 0; j < VERITY_BLOCK_BYTES; j++)
            p->data[i][j] = (uint8_t)(i * 31 + j * 7 + (i >> 8) + seed);
    if (blocks > TOY_HASHES) {
        size_t leaves = toy_level(tree + 1, p->data, blocks);
        p->tree = 1 + toy_level(tree, tree + 1, leaves) * leaves;
    } else if (blocks > 1)
        p->tree = toy_level(tree, p->data, blocks);
    toy_hash(root, blocks > 1 ? tree[0] : p->data[0]);
    sodium_bin2hex(hex, sizeof hex, root, sizeof root);
    snprintf(p->line, sizeof p->line, "%s %s %zu 580.65.06\n", hex, TOY_SALT, blocks);
    memcpy(p->way, tree, p->tree * VERITY_BLOCK_BYTES);
    memcpy(p->way + p->tree * VERITY_BLOCK_BYTES, p->data, blocks * VERITY_BLOCK_BYTES);
}

static inline size_t toy_bytes(const struct toy_payload *p)
{
    return (p->blocks + p->tree) * VERITY_BLOCK_BYTES;
}

static void toy_put(uint8_t *at, size_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        at[i] = (uint8_t)(value >> (8 * i));
}

/* An EFI program with two sections, of which the second names a payload; NULL: one that names none.
 */
static inline void toy_uki(uint8_t program[TOY_UKI_BYTES], const char *line)
{
    memset(program, 0, TOY_UKI_BYTES);
    memcpy(program, "MZ", 2);
    toy_put(program + 0x3c, 0x40, 4);
    memcpy(program + 0x40, "PE\0\0", 4);
    toy_put(program + 0x40 + 6, 2, 2);
    toy_put(program + 0x40 + 20, TOY_UKI_SECTION - 0x40 - 24, 2);
    memcpy(program + TOY_UKI_SECTION, ".osrel", 6);
    uint8_t *section = program + TOY_UKI_SECTION + 40;
    memcpy(section, line == NULL ? ".other" : UKI_PAYLOAD, line == NULL ? 6 : 8);
    toy_put(section + 8, line == NULL ? 0 : strlen(line), 4);
    toy_put(section + 16, TOY_LINE_BYTES, 4);
    toy_put(section + 20, TOY_UKI_LINE_AT, 4);
    if (line != NULL)
        memcpy(program + TOY_UKI_LINE_AT, line, strlen(line));
}

/* What is on its way, up to where it is cut. */
struct toy_stream {
    const uint8_t *bytes;
    size_t n, at;
};

static inline size_t toy_read(void *context, void *bytes, size_t n)
{
    struct toy_stream *s = context;
    size_t len = s->n - s->at < n ? s->n - s->at : n;
    memcpy(bytes, s->bytes + s->at, len);
    s->at += len;
    return len;
}

#endif
