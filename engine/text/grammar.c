/*
 * The pools of a compiled grammar, and the two facts that are computed over them: sorted sets and
 * heights.  Heights are what keeps a mask from ever becoming empty: a place is entered only where
 * it can still be filled within the depth that is left.
 */
#include "engine/text/grammar.h"

#include "kernels/check.h"

#include <stdlib.h>
#include <string.h>

void grammar_init(struct grammar *g)
{
    *g = (struct grammar){0};
    int32_t any = grammar_add_node(g), object = grammar_add_node(g), empty = grammar_add_node(g);
    ASSERT(any == GRAMMAR_ANYTHING && object == GRAMMAR_ANY_OBJECT &&
           empty == GRAMMAR_EMPTY_OBJECT);
    g->nodes[any].types = GRAMMAR_ANY;
    g->nodes[any].items = any;
    g->nodes[any].additional = any;
    g->nodes[object].types = g->nodes[empty].types = GRAMMAR_OBJECT;
    g->nodes[object].additional = any;
    grammar_measure(g, any);
}

void grammar_free(struct grammar *g)
{
    free(g->nodes);
    free(g->links);
    free(g->strings);
    free(g->tools);
    buf_free(&g->bytes);
    *g = (struct grammar){0};
}

/* Makes room for one more element. */
static void *grow(void *pool, uint32_t n, uint32_t *cap, size_t element)
{
    if (n < *cap)
        return pool;
    *cap = *cap == 0 ? 64 : *cap * 2;
    pool = realloc(pool, *cap * element);
    ASSERT(pool != NULL);
    return pool;
}

struct grammar_node grammar_nothing(void)
{
    return (struct grammar_node){
        .height = GRAMMAR_NEVER,
        .height_other = GRAMMAR_NEVER,
        .height_object = GRAMMAR_NEVER,
        .height_array = GRAMMAR_NEVER,
        .length_max = UINT32_MAX,
        .items_max = UINT32_MAX,
        .items = GRAMMAR_NONE,
        .additional = GRAMMAR_NONE,
    };
}

int32_t grammar_add_node(struct grammar *g)
{
    if (g->n_nodes == MASK_NODES_MAX)
        return -1;
    uint32_t cap = (uint32_t)g->nodes_cap;
    g->nodes = grow(g->nodes, (uint32_t)g->n_nodes, &cap, sizeof *g->nodes);
    g->nodes_cap = (int32_t)cap;
    g->nodes[g->n_nodes] = grammar_nothing();
    return g->n_nodes++;
}

int32_t grammar_add_link(struct grammar *g, int32_t node)
{
    if (g->n_links == 2 * MASK_STRINGS_MAX)
        return -1;
    g->links = grow(g->links, g->n_links, &g->links_cap, sizeof *g->links);
    g->links[g->n_links] = node;
    return (int32_t)g->n_links++;
}

int32_t grammar_add_string(struct grammar *g, const char *text, size_t len)
{
    if (g->n_strings == MASK_STRINGS_MAX || len > MASK_STRING_BYTES_MAX - g->bytes.len)
        return -1;
    ASSERT(len <= MASK_STRING_LEN_MAX);
    g->strings = grow(g->strings, g->n_strings, &g->strings_cap, sizeof *g->strings);
    g->strings[g->n_strings] =
        (struct grammar_string){.offset = (uint32_t)g->bytes.len, .len = (uint16_t)len};
    buf_add(&g->bytes, text, len);
    return (int32_t)g->n_strings++;
}

/* ---- sets ------------------------------------------------------------------------------------ */

struct pair {
    struct grammar_string string;
    int32_t link;
};

static int compare_pairs(const void *left, const void *right, void *context)
{
    const struct grammar *g = context;
    const struct grammar_string *a = &((const struct pair *)left)->string;
    const struct grammar_string *b = &((const struct pair *)right)->string;
    size_t common = a->len < b->len ? a->len : b->len;
    int order =
        common == 0 ? 0 : memcmp(g->bytes.data + a->offset, g->bytes.data + b->offset, common);
    return order != 0 ? order : (a->len > b->len) - (a->len < b->len);
}

struct grammar_set grammar_close_set(struct grammar *g, uint32_t first, uint32_t link)
{
    uint32_t n = g->n_strings - first;
    struct pair *pairs = malloc((n + 1) * sizeof *pairs);
    ASSERT(pairs != NULL);
    for (uint32_t i = 0; i < n; i++)
        pairs[i] = (struct pair){g->strings[first + i],
                                 link == UINT32_MAX ? GRAMMAR_NONE : g->links[link + i]};
    qsort_r(pairs, n, sizeof *pairs, compare_pairs, g);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (kept > 0 && compare_pairs(&pairs[kept - 1], &pairs[i], g) == 0) {
            ASSERT(link == UINT32_MAX);
            continue;
        }
        pairs[kept] = pairs[i];
        g->strings[first + kept] = pairs[i].string;
        if (link != UINT32_MAX)
            g->links[link + kept] = pairs[i].link;
        kept++;
    }
    free(pairs);
    g->n_strings = first + kept;
    return (struct grammar_set){first, kept};
}

/* The first of strings[lo, hi), which agree in `at` bytes and are longer, whose next byte is at
 * least `byte`. */
static uint32_t lower_bound(const struct grammar *g, uint32_t lo, uint32_t hi, size_t at,
                            unsigned byte)
{
    while (lo < hi) {
        uint32_t middle = lo + (hi - lo) / 2;
        if ((uint8_t)g->bytes.data[g->strings[middle].offset + at] < byte)
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo;
}

void grammar_narrow(const struct grammar *g, uint32_t *lo, uint32_t *hi, size_t at, uint8_t byte)
{
    if (*lo < *hi && g->strings[*lo].len == at)
        ++*lo;
    *lo = lower_bound(g, *lo, *hi, at, byte);
    *hi = lower_bound(g, *lo, *hi, at, byte + 1u);
}

/* ---- heights --------------------------------------------------------------------------------- */

static uint8_t one_more(uint8_t height)
{
    return height >= MASK_DEPTH_MAX ? GRAMMAR_NEVER : (uint8_t)(height + 1);
}

static uint8_t lower(uint8_t a, uint8_t b)
{
    return a < b ? a : b;
}

static uint8_t higher(uint8_t a, uint8_t b)
{
    return a > b ? a : b;
}

static uint8_t height_of_object(const struct grammar *g, const struct grammar_node *node)
{
    uint8_t height = 0;
    if ((node->types & GRAMMAR_OBJECT) == 0)
        return GRAMMAR_NEVER;
    for (uint32_t i = 0; i < node->names.n; i++) {
        if (node->required[i / 64] >> i % 64 & 1)
            height = higher(height, g->nodes[g->links[node->first_property + i]].height);
    }
    return one_more(height);
}

static uint8_t height_of_array(const struct grammar *g, const struct grammar_node *node)
{
    uint8_t height = 0;
    if ((node->types & GRAMMAR_ARRAY) == 0 || node->items_min > node->items_max)
        return GRAMMAR_NEVER;
    /* Beyond the listed ones all items are the same. */
    for (uint32_t i = 0; i < node->items_min && i <= node->n_items; i++) {
        int32_t item = grammar_item(g, node, i);
        height = higher(height, item == GRAMMAR_NONE ? GRAMMAR_NEVER : g->nodes[item].height);
    }
    return one_more(height);
}

static bool has_string(const struct grammar_node *node)
{
    if ((node->types & GRAMMAR_STRING) == 0)
        return false;
    return node->strings_closed ? node->strings.n > 0 : node->length_min <= node->length_max;
}

static bool has_scalar(const struct grammar_node *node)
{
    if (node->types & GRAMMAR_WORD)
        return node->words.n > 0;
    if (node->types & (GRAMMAR_NULL | GRAMMAR_BOOLEAN))
        return true;
    if ((node->types & GRAMMAR_NUMBER) == 0)
        return false;
    return !node->ranged || node->units_min <= node->units_max;
}

/* @return whether a height changed */
static bool measure_node(struct grammar *g, struct grammar_node *node)
{
    struct grammar_node old = *node;
    if (node->n_branches == 0) {
        node->height_object = height_of_object(g, node);
        node->height_array = height_of_array(g, node);
        node->height_other = has_scalar(node) ? 0 : lower(node->height_object, node->height_array);
        node->height = has_string(node) ? 0 : node->height_other;
    }
    for (uint32_t i = 0; i < node->n_branches; i++) {
        const struct grammar_node *branch = &g->nodes[g->links[node->first_branch + i]];
        node->height_other = lower(node->height_other, branch->height_other);
        node->height = lower(node->height, branch->height);
    }
    return old.height != node->height || old.height_other != node->height_other ||
           old.height_object != node->height_object || old.height_array != node->height_array;
}

void grammar_measure(struct grammar *g, int32_t first)
{
    /* All heights start at NEVER and only sink; what can be filled with h containers is known after
     * h + 2 rounds (one for branches). */
    bool changed = true;
    for (int round = 0; changed; round++) {
        ASSERT(round <= 2 * MASK_DEPTH_MAX + 4);
        changed = false;
        for (int32_t i = first; i < g->n_nodes; i++)
            changed = measure_node(g, &g->nodes[i]) || changed;
    }
}
