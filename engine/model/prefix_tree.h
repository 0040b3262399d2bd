/*
 * Inside the prefix cache: the tree of blocks, which prefix.c grows and prunes and prefix_file.c
 * writes to a file and reads again.  Nobody else includes this.
 *
 * Nodes are slots: node i keeps its block in slot i of the pool.  Between calls a node without
 * children has a tail (nothing is kept that leads nowhere), and every slot is either live or on its
 * free list.
 */
#ifndef V4BOX_ENGINE_MODEL_PREFIX_TREE_H
#define V4BOX_ENGINE_MODEL_PREFIX_TREE_H

#include "engine/model/prefix.h"

#include <stdbool.h>
#include <stddef.h>

#define NONE (-1)

struct node {
    uint64_t reuse_namespace, profile_hash;
    uint64_t used;                    /* turn in which its tail was last saved or restored */
    int32_t parent;                   /* NONE: it starts a prefix */
    int32_t depth;                    /* blocks up to and with this one */
    int32_t child;                    /* first of them; NONE */
    int32_t next;                     /* sibling; NONE */
    int32_t tail;                     /* slot; NONE */
    uint32_t block_bytes, tail_bytes; /* of its pieces, as its profile makes them */
    bool live;
    int32_t ids[SNAPSHOT_TOKENS];
};

struct prefix {
    const struct model *model;   /* borrows */
    struct snapshots *snapshots; /* owns */
    struct node *nodes;          /* owns; [n_nodes] */
    int32_t *free_nodes;         /* owns; [n_nodes] */
    int32_t *free_tails;         /* owns; [n_tails] */
    int32_t n_nodes, n_tails, n_free_nodes, n_free_tails;
    uint64_t bytes_max;               /* of each kind */
    uint64_t block_bytes, tail_bytes; /* that live pieces take */
    int32_t vocab_size;
    /* What its file is bound to. */
    bool probed;
    struct profile profile;
    uint8_t probe[SNAPSHOT_PROBE_BYTES]; /* of the network under it */
    int32_t roots;                       /* first node that starts a prefix; NONE */
    int32_t pinned; /* stays although nothing hangs on it: it is being extended; NONE */
    uint64_t evicted;
};

/** The child of a node (NONE: the start of a prefix) with these ids.  @return NONE: none */
int32_t prefix_child_find(const struct prefix *prefix, int32_t parent,
                          const struct prefix_owner *owner, const int32_t ids[SNAPSHOT_TOKENS]);
/** Whether so many more blocks of this owner and a tail have room as it is. */
bool prefix_has_room(const struct prefix *prefix, const struct prefix_owner *owner, int32_t blocks,
                     int32_t tails);
/** Takes a free node (ASSERTed), without tail. */
int32_t prefix_child_add(struct prefix *prefix, int32_t parent, const struct prefix_owner *owner,
                         const int32_t ids[SNAPSHOT_TOKENS]);
/** Takes a free tail for a node that has none (ASSERTed).  @return its slot */
int32_t prefix_tail_take(struct prefix *prefix, int32_t node);
/** Gives back a node and those above it as far as nothing hangs on them. */
void prefix_prune(struct prefix *prefix, int32_t node);

#endif
