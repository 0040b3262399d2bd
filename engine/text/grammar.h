/*
 * A compiled set of schemas: what may stand at each place of a JSON value, as a flat graph of nodes
 * over three pools.  Made by schema.c, read by automaton*.c.  Knows no JSON Schema and no tokens.
 *
 * A node is the union of its branches, or (without branches) says what each type may look like.
 * All members that are not said to be for one type are zero where nothing is allowed.
 */
#ifndef V4BOX_ENGINE_TEXT_GRAMMAR_H
#define V4BOX_ENGINE_TEXT_GRAMMAR_H

#include "config/limits.h"
#include "engine/base/buf.h"

#include <stdbool.h>
#include <stdint.h>

enum grammar_type {
    GRAMMAR_NULL = 1 << 0,
    GRAMMAR_BOOLEAN = 1 << 1,
    GRAMMAR_INTEGER = 1 << 2,
    GRAMMAR_FRACTION = 1 << 3, /* numbers that are written with a point or an exponent */
    GRAMMAR_STRING = 1 << 4,
    GRAMMAR_ARRAY = 1 << 5,
    GRAMMAR_OBJECT = 1 << 6,
    GRAMMAR_WORD = 1 << 7, /* in place of the first four: one of `words` */
};
#define GRAMMAR_NUMBER (GRAMMAR_INTEGER | GRAMMAR_FRACTION)
#define GRAMMAR_ANY    ((1 << 7) - 1)

/* Height of a place that nothing can fill. */
#define GRAMMAR_NEVER UINT8_MAX

/* Indices of nodes; those from 0 on are there in every grammar. */
#define GRAMMAR_NONE         (-1)
#define GRAMMAR_ANYTHING     0 /* every JSON value */
#define GRAMMAR_ANY_OBJECT   1 /* every JSON object */
#define GRAMMAR_EMPTY_OBJECT 2 /* {} */

/* Strings [first, first + n) of the grammar: sorted by bytes, none twice. */
struct grammar_set {
    uint32_t first, n;
};

/* A number in units of 10^-MASK_FRACTION_DIGITS_MAX. */
typedef __int128 grammar_units;

struct grammar_node {
    uint16_t types;
    bool strings_closed; /* STRING: only those of `strings` */
    bool ranged;         /* numbers: in [units_min, units_max], in fixed point */
    /* The fewest containers that must be opened to fill the place: with any type, with any type but
     * STRING, with an object, with an array. */
    uint8_t height, height_other, height_object, height_array;
    struct grammar_set strings, words;
    uint32_t length_min, length_max; /* STRING, in code points */
    grammar_units units_min, units_max;
    uint32_t items_min, items_max; /* ARRAY */
    int32_t items;                 /* node, or NONE */
    uint32_t first_item, n_items;  /* links: nodes of the first items, in place of `items` */
    struct grammar_set names;      /* OBJECT: the declared properties .. */
    uint32_t first_property;       /* .. and links: their nodes, in the same order */
    uint64_t required[MASK_PROPERTIES_MAX / 64];
    int32_t additional;                /* node of properties that are not declared, or NONE */
    uint32_t first_branch, n_branches; /* links: nodes without branches */
};

struct grammar_string {
    uint32_t offset;
    uint16_t len;
};

struct grammar_tool {
    int32_t node; /* of its arguments: an object without branches */
    /* Properties whose names cannot be written in a call: as good as written already. */
    uint64_t unwritable[MASK_PROPERTIES_MAX / 64];
};

struct grammar {
    struct grammar_node *nodes; /* owns [n_nodes] */
    int32_t n_nodes, nodes_cap;
    int32_t *links; /* owns [n_links] */
    uint32_t n_links, links_cap;
    struct grammar_string *strings; /* owns [n_strings] */
    uint32_t n_strings, strings_cap;
    struct buf bytes;              /* owns: of all strings */
    struct grammar_set tool_names; /* the offered tools .. */
    struct grammar_tool *tools;    /* owns [tool_names.n]: .. in the same order */
};

/** A grammar with the nodes that every one has.  @own grammar_free */
void grammar_init(struct grammar *grammar);
void grammar_free(struct grammar *grammar);

/** A node that allows nothing, but bounds nothing either. */
struct grammar_node grammar_nothing(void);

/** Each adds one and returns its index, or -1 beyond the limit of its pool.  A new node allows
 *  nothing; len is at most MASK_STRING_LEN_MAX. */
int32_t grammar_add_node(struct grammar *grammar);
int32_t grammar_add_link(struct grammar *grammar, int32_t node);
int32_t grammar_add_string(struct grammar *grammar, const char *text, size_t len);

/** Sorts the strings from `first` on, and with them links[link..] (UINT32_MAX: none); equal strings
 *  without links are made one. */
struct grammar_set grammar_close_set(struct grammar *grammar, uint32_t first, uint32_t link);

/** Computes the heights of all nodes from index `first` on; they lead to each other and to earlier
 *  ones, whose heights are known. */
void grammar_measure(struct grammar *grammar, int32_t first);

/** The string with index `i`. */
static inline const char *grammar_string(const struct grammar *grammar, uint32_t i, size_t *len)
{
    *len = grammar->strings[i].len;
    return grammar->bytes.len == 0 ? "" : grammar->bytes.data + grammar->strings[i].offset;
}

/** True when a value can stand at `node` inside of `depth` open containers. */
static inline bool grammar_fits(const struct grammar *grammar, int32_t node, unsigned depth)
{
    return node != GRAMMAR_NONE && grammar->nodes[node].height != GRAMMAR_NEVER &&
           depth + grammar->nodes[node].height <= MASK_DEPTH_MAX;
}

/** The node of item `i` of an array, or GRAMMAR_NONE. */
static inline int32_t grammar_item(const struct grammar *grammar, const struct grammar_node *node,
                                   uint32_t i)
{
    return i < node->n_items ? grammar->links[node->first_item + i] : node->items;
}

/**
 * Narrows [*lo, *hi), strings that agree in `at` bytes, to those whose next byte is `byte`.
 * Strings that end there sort first.
 */
void grammar_narrow(const struct grammar *grammar, uint32_t *lo, uint32_t *hi, size_t at,
                    uint8_t byte);

#endif
