/*
 * A trie of byte strings, laid out in the order of a walk: a walk that prunes is one loop over an
 * array.  Knows no tokens and no grammar.
 */
#ifndef V4BOX_ENGINE_TEXT_TRIE_H
#define V4BOX_ENGINE_TEXT_TRIE_H

#include <stddef.h>
#include <stdint.h>

struct trie_node {
    uint32_t skip;  /* index of the next node that is not below this one */
    int32_t value;  /* of the string that ends here; -1: none does */
    uint16_t depth; /* bytes in front of this one */
    uint8_t byte;
};

struct trie {
    struct trie_node *nodes; /* owns [n_nodes]: every node before those below it */
    uint32_t n_nodes;
};

struct trie_entry {
    const uint8_t *bytes; /* borrows [len]; len at least 1 */
    uint32_t len;
    int32_t value; /* not negative */
};

/** Builds a trie; sorts the entries.  Equal strings may come more than once.  @own trie_free */
void trie_build(struct trie *trie, struct trie_entry *entries, size_t n);
void trie_free(struct trie *trie);

#endif
