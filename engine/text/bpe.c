/*
 * Byte pair encoding.  A piece that is one token is found by its bytes; every other is merged over
 * a linked list of symbols with a heap of candidate merges.  Candidates are not taken out of the
 * heap when a neighbour changes: an entry counts only while its symbol still has that rank.
 */
#include "engine/text/bpe.h"

#include "kernels/check.h"

#include <stdlib.h>
#include <string.h>

#define BPE_NO_PAIR UINT64_MAX
#define BPE_NONE    UINT32_MAX

/* A power of two that leaves a table of n entries at most half full. */
static size_t table_size(size_t n)
{
    size_t size = 16;
    while (size < 2 * n)
        size *= 2;
    return size;
}

void bpe_init(struct bpe *bpe, size_t merge_count, size_t whole_count)
{
    bpe->merge_mask = table_size(merge_count) - 1;
    bpe->whole_mask = table_size(whole_count) - 1;
    bpe->merges = malloc((bpe->merge_mask + 1) * sizeof *bpe->merges);
    bpe->wholes = calloc(bpe->whole_mask + 1, sizeof *bpe->wholes);
    ASSERT(bpe->merges != NULL && bpe->wholes != NULL);
    for (size_t i = 0; i <= bpe->merge_mask; i++)
        bpe->merges[i].pair = BPE_NO_PAIR;
}

void bpe_free(struct bpe *bpe)
{
    free(bpe->merges);
    free(bpe->wholes);
}

/* ---- tables --------------------------------------------------------------------------------- */

/* Spreads all bits of x over the high half (an odd constant near 2^64 / golden ratio). */
static uint64_t mix(uint64_t x)
{
    x *= 0x9E3779B97F4A7C15u;
    return x ^ x >> 32;
}

static uint64_t hash_bytes(const uint8_t *bytes, size_t len)
{
    uint64_t hash = len, word = 0;
    for (; len >= sizeof word; bytes += sizeof word, len -= sizeof word) {
        memcpy(&word, bytes, sizeof word);
        hash = mix(hash ^ word);
    }
    word = 0;
    memcpy(&word, bytes, len);
    return mix(mix(hash ^ word));
}

/* The slot of the pair, or the empty one where it would go. */
static struct bpe_merge *find_merge(const struct bpe *bpe, int32_t left, int32_t right)
{
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    size_t slot = mix(mix(pair)) & bpe->merge_mask;
    while (bpe->merges[slot].pair != pair && bpe->merges[slot].pair != BPE_NO_PAIR)
        slot = (slot + 1) & bpe->merge_mask;
    return &bpe->merges[slot];
}

bool bpe_add_merge(struct bpe *bpe, int32_t left, int32_t right, uint32_t rank, int32_t id)
{
    struct bpe_merge *merge = find_merge(bpe, left, right);
    if (merge->pair != BPE_NO_PAIR)
        return false;
    *merge = (struct bpe_merge){
        .pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right, .rank = rank, .id = id};
    return true;
}

/* The slot of the bytes, or the empty one where they would go. */
static struct bpe_whole *find_whole(const struct bpe *bpe, const uint8_t *bytes, size_t len)
{
    size_t slot = hash_bytes(bytes, len) & bpe->whole_mask;
    for (;;) {
        struct bpe_whole *whole = &bpe->wholes[slot];
        if (whole->len == 0 || (whole->len == len && memcmp(whole->bytes, bytes, len) == 0))
            return whole;
        slot = (slot + 1) & bpe->whole_mask;
    }
}

/* ---- heap of candidates, the smallest on top ------------------------------------------------- */

static void heap_push(uint64_t *heap, size_t *count, uint64_t entry)
{
    size_t at = (*count)++;
    while (at > 0 && heap[(at - 1) / 2] > entry) {
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap[at] = entry;
}

static uint64_t heap_pop(uint64_t *heap, size_t *count)
{
    uint64_t top = heap[0], entry = heap[--*count];
    size_t at = 0;
    for (size_t child = 1; child < *count; child = 2 * at + 1) {
        if (child + 1 < *count && heap[child + 1] < heap[child])
            child++;
        if (heap[child] >= entry)
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = entry;
    return top;
}

/* ---- merging -------------------------------------------------------------------------------- */

static void reserve(struct bpe_scratch *scratch, size_t n)
{
    if (n <= scratch->cap)
        return;
    size_t cap = scratch->cap == 0 ? 256 : scratch->cap;
    while (cap < n)
        cap *= 2;
    free(scratch->symbols);
    free(scratch->heap);
    scratch->symbols = malloc(cap * sizeof *scratch->symbols);
    scratch->heap = malloc(2 * cap * sizeof *scratch->heap);
    ASSERT(scratch->symbols != NULL && scratch->heap != NULL);
    scratch->cap = cap;
}

void bpe_scratch_free(struct bpe_scratch *scratch)
{
    free(scratch->symbols);
    free(scratch->heap);
    *scratch = (struct bpe_scratch){0};
}

/* Looks up the merge of a symbol with its right neighbour and enters it as a candidate. */
static void offer(const struct bpe *bpe, struct bpe_scratch *scratch, size_t *count, uint32_t left)
{
    struct bpe_symbol *symbol = &scratch->symbols[left];
    symbol->rank = BPE_NONE;
    if (symbol->next == BPE_NONE)
        return;
    const struct bpe_merge *merge = find_merge(bpe, symbol->id, scratch->symbols[symbol->next].id);
    if (merge->pair == BPE_NO_PAIR)
        return;
    symbol->rank = merge->rank;
    symbol->merged = merge->id;
    heap_push(scratch->heap, count, (uint64_t)merge->rank << 32 | left);
}

/* Merges the symbol with its right neighbour, which leaves the list. */
static void merge_right(struct bpe_symbol *symbols, uint32_t left)
{
    uint32_t right = symbols[left].next;
    symbols[left].id = symbols[left].merged;
    symbols[left].next = symbols[right].next;
    symbols[right].rank = BPE_NONE;
    if (symbols[left].next != BPE_NONE)
        symbols[symbols[left].next].prev = left;
}

static void merge_piece(const struct bpe *bpe, struct bpe_scratch *scratch, const uint8_t *piece,
                        size_t len, struct ids *out)
{
    ASSERT(len > 0 && len < INT32_MAX);
    reserve(scratch, len);
    struct bpe_symbol *symbols = scratch->symbols;
    for (uint32_t i = 0; i < len; i++)
        symbols[i] = (struct bpe_symbol){
            .id = bpe->byte_ids[piece[i]], .prev = i - 1, .next = i + 1 < len ? i + 1 : BPE_NONE};
    /* The heap stays below 2 len entries: len - 1 at first, and a merge takes one and adds two. */
    size_t count = 0;
    for (uint32_t i = 0; i < len; i++)
        offer(bpe, scratch, &count, i);
    while (count > 0) {
        uint64_t entry = heap_pop(scratch->heap, &count);
        uint32_t left = (uint32_t)entry;
        if (symbols[left].rank != (uint32_t)(entry >> 32))
            continue;
        merge_right(symbols, left);
        offer(bpe, scratch, &count, left);
        if (symbols[left].prev != BPE_NONE)
            offer(bpe, scratch, &count, symbols[left].prev);
    }
    for (uint32_t i = 0; i != BPE_NONE; i = symbols[i].next)
        ids_add(out, symbols[i].id);
}

void bpe_add_whole(struct bpe *bpe, struct bpe_scratch *scratch, const uint8_t *bytes, uint32_t len,
                   int32_t id)
{
    struct ids ids = {0};
    merge_piece(bpe, scratch, bytes, len, &ids);
    if (ids.len == 1 && ids.data[0] == id)
        *find_whole(bpe, bytes, len) = (struct bpe_whole){.bytes = bytes, .len = len, .id = id};
    ids_free(&ids);
}

void bpe_encode(const struct bpe *bpe, struct bpe_scratch *scratch, const uint8_t *piece,
                size_t len, struct ids *out)
{
    const struct bpe_whole *whole = find_whole(bpe, piece, len);
    if (whole->len != 0)
        ids_add(out, whole->id);
    else
        merge_piece(bpe, scratch, piece, len, out);
}
