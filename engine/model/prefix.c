/* The tree of prefixes: what grows, what is found, and what goes when it is full. */
#include "engine/model/prefix_tree.h"

#include "config/limits.h"
#include "kernels/check.h"

#include <stdlib.h>
#include <string.h>

/* ---- creation ------------------------------------------------------------------------------- */

static int32_t pieces_in(uint64_t bytes, uint64_t piece)
{
    uint64_t n = bytes / piece;
    return n < PREFIX_PIECES_MAX ? (int32_t)n : PREFIX_PIECES_MAX;
}

enum status prefix_create(const struct model *model, uint64_t bytes, const struct profile *profile,
                          struct prefix **out, struct error *err)
{
    uint64_t block = snapshot_block_bytes(model, profile);
    uint64_t tail = snapshot_tail_bytes(model, profile);
    int32_t n_nodes = pieces_in(bytes / 2, block), n_tails = pieces_in(bytes / 2, tail);
    if (n_nodes < 1 || n_tails < 1)
        return error_set(err, ERR_INPUT, "prefix cache: %llu bytes; one prefix takes twice %llu",
                         (unsigned long long)bytes,
                         (unsigned long long)(block > tail ? block : tail));
    struct prefix *p = calloc(1, sizeof *p);
    if (p == NULL)
        return error_set(err, ERR_CAPACITY, "prefix cache: out of memory");
    p->model = model;
    p->bytes_max = bytes / 2;
    p->vocab_size = model_config(model)->vocab_size;
    p->n_nodes = n_nodes;
    p->n_tails = n_tails;
    p->roots = p->pinned = NONE;
    p->nodes = calloc((size_t)n_nodes, sizeof *p->nodes);
    p->free_nodes = calloc((size_t)n_nodes, sizeof *p->free_nodes);
    p->free_tails = calloc((size_t)n_tails, sizeof *p->free_tails);
    enum status status =
        p->nodes == NULL || p->free_nodes == NULL || p->free_tails == NULL
            ? error_set(err, ERR_CAPACITY, "prefix cache: no memory for %d blocks", (int)n_nodes)
            : snapshots_create(model, n_nodes, n_tails, &p->snapshots, err);
    if (status != OK) {
        prefix_destroy(p);
        return status;
    }
    while (p->n_free_nodes < n_nodes) {
        p->free_nodes[p->n_free_nodes] = n_nodes - 1 - p->n_free_nodes;
        p->n_free_nodes++;
    }
    while (p->n_free_tails < n_tails) {
        p->free_tails[p->n_free_tails] = n_tails - 1 - p->n_free_tails;
        p->n_free_tails++;
    }
    *out = p;
    return OK;
}

void prefix_destroy(struct prefix *p)
{
    if (p == NULL)
        return;
    snapshots_destroy(p->snapshots);
    free(p->nodes);
    free(p->free_nodes);
    free(p->free_tails);
    free(p);
}

/* ---- the tree ------------------------------------------------------------------------------- */

/* Where the list of a node's children starts; of NONE: of the nodes that start prefixes. */
static int32_t *children_of(struct prefix *p, int32_t node)
{
    return node == NONE ? &p->roots : &p->nodes[node].child;
}

int32_t prefix_child_find(const struct prefix *p, int32_t parent, const struct prefix_owner *owner,
                          const int32_t ids[SNAPSHOT_TOKENS])
{
    int32_t at = parent == NONE ? p->roots : p->nodes[parent].child;
    while (at != NONE && (p->nodes[at].reuse_namespace != owner->reuse_namespace ||
                          p->nodes[at].profile_hash != owner->profile->hash ||
                          memcmp(p->nodes[at].ids, ids, sizeof p->nodes[at].ids) != 0))
        at = p->nodes[at].next;
    return at;
}

bool prefix_has_room(const struct prefix *p, const struct prefix_owner *owner, int32_t blocks,
                     int32_t tails)
{
    uint64_t block = snapshot_block_bytes(p->model, owner->profile);
    uint64_t tail = snapshot_tail_bytes(p->model, owner->profile);
    return p->n_free_nodes >= blocks && p->n_free_tails >= tails &&
           p->block_bytes + (uint64_t)blocks * block <= p->bytes_max &&
           p->tail_bytes + (uint64_t)tails * tail <= p->bytes_max;
}

int32_t prefix_child_add(struct prefix *p, int32_t parent, const struct prefix_owner *owner,
                         const int32_t ids[SNAPSHOT_TOKENS])
{
    ASSERT(prefix_has_room(p, owner, 1, 0));
    int32_t at = p->free_nodes[--p->n_free_nodes];
    struct node *node = &p->nodes[at];
    ASSERT(!node->live);
    *node = (struct node){
        .reuse_namespace = owner->reuse_namespace,
        .profile_hash = owner->profile->hash,
        .parent = parent,
        .depth = parent == NONE ? 1 : p->nodes[parent].depth + 1,
        .child = NONE,
        .next = *children_of(p, parent),
        .tail = NONE,
        .block_bytes = (uint32_t)snapshot_block_bytes(p->model, owner->profile),
        .tail_bytes = (uint32_t)snapshot_tail_bytes(p->model, owner->profile),
        .live = true,
    };
    p->block_bytes += node->block_bytes;
    memcpy(node->ids, ids, sizeof node->ids);
    *children_of(p, parent) = at;
    return at;
}

static void node_remove(struct prefix *p, int32_t at)
{
    struct node *node = &p->nodes[at];
    ASSERT(node->live && node->child == NONE && node->tail == NONE);
    int32_t *link = children_of(p, node->parent);
    while (*link != at)
        link = &p->nodes[*link].next;
    *link = node->next;
    node->live = false;
    p->block_bytes -= node->block_bytes;
    snapshot_drop_block(p->snapshots, at);
    p->free_nodes[p->n_free_nodes++] = at;
}

int32_t prefix_tail_take(struct prefix *p, int32_t at)
{
    ASSERT(p->nodes[at].live && p->nodes[at].tail == NONE && p->n_free_tails > 0);
    p->nodes[at].tail = p->free_tails[--p->n_free_tails];
    p->tail_bytes += p->nodes[at].tail_bytes;
    return p->nodes[at].tail;
}

void prefix_prune(struct prefix *p, int32_t at)
{
    while (at != NONE && at != p->pinned && p->nodes[at].child == NONE &&
           p->nodes[at].tail == NONE) {
        int32_t parent = p->nodes[at].parent;
        node_remove(p, at);
        at = parent;
    }
}

/* Gives a tail back, and the blocks that led to nothing else. */
static void tail_drop(struct prefix *p, int32_t at)
{
    ASSERT(p->nodes[at].live && p->nodes[at].tail != NONE);
    p->free_tails[p->n_free_tails++] = p->nodes[at].tail;
    p->nodes[at].tail = NONE;
    p->tail_bytes -= p->nodes[at].tail_bytes;
    prefix_prune(p, at);
}

/* The node behind which ids [n] are unknown; with_tail: the last one where they can be continued.
 */
static int32_t walk(const struct prefix *p, const struct prefix_owner *owner, const int32_t *ids,
                    int32_t n, bool with_tail)
{
    int32_t at = NONE, found = NONE;
    for (int32_t from = 0; n - from >= SNAPSHOT_TOKENS; from += SNAPSHOT_TOKENS) {
        at = prefix_child_find(p, at, owner, ids + from);
        if (at == NONE)
            break;
        if (!with_tail || p->nodes[at].tail != NONE)
            found = at;
    }
    return found;
}

/* ---- eviction ------------------------------------------------------------------------------- */

/* Tokens that a timeline continued here would have to compute without this tail. */
static int32_t gap(const struct prefix *p, int32_t at)
{
    int32_t from = p->nodes[at].depth;
    do
        at = p->nodes[at].parent;
    while (at != NONE && p->nodes[at].tail == NONE);
    return (from - (at == NONE ? 0 : p->nodes[at].depth)) * SNAPSHOT_TOKENS;
}

/* The tail that is worth the least: the fewest tokens for its age; of equals the shorter prefix,
 * so that the ends of conversations outlive their middles. */
static int32_t cheapest(const struct prefix *p, uint64_t turn)
{
    int32_t best = NONE;
    double least = 0;
    for (int32_t i = 0; i < p->n_nodes; i++) {
        const struct node *node = &p->nodes[i];
        if (!node->live || node->tail == NONE)
            continue;
        double worth = gap(p, i) / (double)(turn - node->used + 1);
        if (best == NONE || worth < least ||
            (worth == least && node->depth < p->nodes[best].depth)) {
            best = i;
            least = worth;
        }
    }
    return best;
}

/* Makes room for so many nodes and a tail behind the pinned node. */
static void make_room(struct prefix *p, const struct prefix_owner *owner, int32_t n_nodes,
                      uint64_t turn)
{
    while (!prefix_has_room(p, owner, n_nodes, 1)) {
        int32_t at = cheapest(p, turn);
        ASSERT(at != NONE); /* without tails only the path to the pinned node is left */
        tail_drop(p, at);
        p->evicted++;
    }
}

/* ---- public --------------------------------------------------------------------------------- */

int32_t prefix_find(const struct prefix *p, const struct prefix_owner *owner, const int32_t *ids,
                    int32_t n)
{
    int32_t at = walk(p, owner, ids, n, true);
    return at == NONE ? 0 : p->nodes[at].depth * SNAPSHOT_TOKENS;
}

int32_t prefix_pages(const struct prefix *p, const struct prefix_owner *owner, const int32_t *ids,
                     int32_t n, int32_t *pages)
{
    int32_t found = walk(p, owner, ids, n, true);
    for (int32_t at = found; at != NONE; at = p->nodes[at].parent)
        pages[p->nodes[at].depth - 1] = snapshot_page(p->snapshots, at);
    return found == NONE ? 0 : p->nodes[found].depth;
}

int32_t prefix_restore(struct prefix *p, const struct prefix_owner *owner, const int32_t *ids,
                       int32_t n, uint64_t turn, struct sequence *sequence)
{
    int32_t found = walk(p, owner, ids, n, true);
    if (found == NONE)
        return 0;
    for (int32_t at = found; at != NONE; at = p->nodes[at].parent)
        snapshot_load_block(p->snapshots, at, sequence, p->nodes[at].depth - 1);
    struct node *node = &p->nodes[found];
    snapshot_load_tail(p->snapshots, node->tail, sequence, node->depth * SNAPSHOT_TOKENS);
    sequence_crossover(sequence, owner->profile); /* it made these pieces */
    node->used = turn;
    return node->depth * SNAPSHOT_TOKENS;
}

void prefix_save(struct prefix *p, const struct prefix_owner *owner, const int32_t *ids, int32_t n,
                 uint64_t turn, const struct sequence *sequence)
{
    ASSERT(n > 0 && n % SNAPSHOT_TOKENS == 0);
    int32_t depth = n / SNAPSHOT_TOKENS;
    if (depth > p->n_nodes ||
        (uint64_t)depth * snapshot_block_bytes(p->model, owner->profile) > p->bytes_max ||
        snapshot_tail_bytes(p->model, owner->profile) > p->bytes_max)
        return;
    int32_t at = walk(p, owner, ids, n, false);
    int32_t known = at == NONE ? 0 : p->nodes[at].depth;
    if (known < depth || p->nodes[at].tail == NONE) {
        p->pinned = at;
        make_room(p, owner, depth - known, turn);
        p->pinned = NONE;
        for (int32_t block = known; block < depth; block++) {
            at = prefix_child_add(p, at, owner, ids + (int64_t)block * SNAPSHOT_TOKENS);
            snapshot_save_block(p->snapshots, at, sequence, block);
        }
        snapshot_save_tail(p->snapshots, prefix_tail_take(p, at), sequence, n);
    }
    p->nodes[at].used = turn;
}

void prefix_forget(struct prefix *p, uint64_t reuse_namespace)
{
    for (int32_t i = 0; i < p->n_nodes; i++) {
        const struct node *node = &p->nodes[i];
        if (node->live && node->tail != NONE && node->reuse_namespace == reuse_namespace)
            tail_drop(p, i);
    }
}

void prefix_clear(struct prefix *p)
{
    for (int32_t i = 0; i < p->n_nodes; i++) {
        if (p->nodes[i].live && p->nodes[i].tail != NONE)
            tail_drop(p, i);
        else if (p->nodes[i].live)
            prefix_prune(p, i);
    }
    ASSERT(p->n_free_nodes == p->n_nodes && p->n_free_tails == p->n_tails);
    ASSERT(p->block_bytes == 0 && p->tail_bytes == 0);
}

void prefix_stats_get(const struct prefix *p, struct prefix_stats *out)
{
    *out = (struct prefix_stats){
        .blocks = p->n_nodes - p->n_free_nodes,
        .blocks_max = p->n_nodes,
        .tails = p->n_tails - p->n_free_tails,
        .tails_max = p->n_tails,
        .bytes = p->block_bytes + p->tail_bytes,
        .bytes_max = 2 * p->bytes_max,
        .evicted = p->evicted,
    };
}
