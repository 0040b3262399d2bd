/* Building of the trie (trie.h): sort, then add to each string what the one before it lacks. */
#include "engine/text/trie.h"

#include "kernels/check.h"

#include <stdlib.h>
#include <string.h>

static int compare_entries(const void *left, const void *right)
{
    const struct trie_entry *a = left, *b = right;
    int order = memcmp(a->bytes, b->bytes, a->len < b->len ? a->len : b->len);
    if (order != 0)
        return order;
    if (a->len != b->len)
        return a->len < b->len ? -1 : 1;
    return (a->value > b->value) - (a->value < b->value);
}

/* Bytes that two strings share, but never all of `b`: its last node is its own. */
static uint32_t shared(const struct trie_entry *a, const struct trie_entry *b)
{
    uint32_t n = 0;
    while (n < a->len && n < b->len - 1 && a->bytes[n] == b->bytes[n])
        n++;
    return n;
}

/* Nodes from `depth` on that are still open end here. */
static void close_nodes(struct trie *trie, uint32_t *open, uint32_t *n_open, uint32_t depth)
{
    while (*n_open > depth)
        trie->nodes[open[--*n_open]].skip = trie->n_nodes;
}

void trie_build(struct trie *trie, struct trie_entry *entries, size_t n)
{
    size_t total = 0, longest = 1;
    for (size_t i = 0; i < n; i++) {
        ASSERT(entries[i].len > 0 && entries[i].len <= UINT16_MAX && entries[i].value >= 0);
        total += entries[i].len;
        longest = entries[i].len > longest ? entries[i].len : longest;
    }
    ASSERT(total < UINT32_MAX);
    if (n > 0)
        qsort(entries, n, sizeof *entries, compare_entries);
    *trie = (struct trie){.nodes = malloc((total + 1) * sizeof *trie->nodes)};
    uint32_t *open = malloc(longest * sizeof *open), n_open = 0;
    ASSERT(trie->nodes != NULL && open != NULL);
    for (size_t i = 0; i < n; i++) {
        uint32_t from = i == 0 ? 0 : shared(&entries[i - 1], &entries[i]);
        close_nodes(trie, open, &n_open, from);
        for (uint32_t depth = from; depth < entries[i].len; depth++) {
            open[n_open++] = trie->n_nodes;
            trie->nodes[trie->n_nodes++] = (struct trie_node){
                .value = -1, .depth = (uint16_t)depth, .byte = entries[i].bytes[depth]};
        }
        trie->nodes[trie->n_nodes - 1].value = entries[i].value;
    }
    close_nodes(trie, open, &n_open, 0);
    free(open);
    struct trie_node *fit = realloc(trie->nodes, (trie->n_nodes + 1) * sizeof *fit);
    trie->nodes = fit != NULL ? fit : trie->nodes;
}

void trie_free(struct trie *trie)
{
    free(trie->nodes);
    *trie = (struct trie){0};
}
