/*
 * A vocabulary as masks see it: all tokens as a trie, and the two kinds of them that need no walk
 * inside of free text.  Inside engine/text only.
 */
#ifndef V4BOX_ENGINE_TEXT_MASK_VOCAB_H
#define V4BOX_ENGINE_TEXT_MASK_VOCAB_H

#include "engine/text/mask.h"
#include "engine/text/trie.h"

/* "Ordinary" tokens are all that are not in the added-token table. */
struct mask_vocab {
    const struct tokenizer *tokenizer; /* borrows */
    int32_t size;
    size_t words; /* of a bit set */
    int32_t mark, eos, think_close;
    size_t longest;     /* bytes of an ordinary token, at most */
    struct trie all;    /* ordinary tokens */
    struct trie broken; /* those that are not plain */
    uint64_t *ordinary; /* owns [words] */
    /* owns [words]: whole characters that a JSON string has as they are and that are no part of the
     * end of a string parameter: no '<', and no '/' in front */
    uint64_t *plain;
    uint64_t *raw;      /* owns [words]: whole characters, and perhaps the beginning of one more */
    int32_t *plain_ids; /* owns: the plain ones, by their number of characters */
    uint32_t *plain_upto;    /* owns [characters_max + 1]: how many of them have at most so many */
    uint32_t characters_max; /* of any ordinary token */
};

static inline void mask_bit_set(uint64_t *bits, int32_t id)
{
    bits[id / 64] |= UINT64_C(1) << id % 64;
}

#endif
