/*
 * The compiler of schemas between its files: schema.c walks the places of a schema and finds out
 * which schemas hold at each; schema_node.c makes a node of them, schema_values.c of an enum.
 *
 * Everything is a conjunction: a $ref, an allOf and a chosen branch of an anyOf only add members to
 * the list of schemas that hold at a place, and a property is the place where the `properties` and
 * `additionalProperties` of all members hold.
 */
#ifndef V4BOX_ENGINE_TEXT_SCHEMA_COMPILER_H
#define V4BOX_ENGINE_TEXT_SCHEMA_COMPILER_H

#include "engine/text/schema.h"

#include <stdint.h>

/* A step of an error path; steps lead from a place to the root. */
struct schema_step {
    uint32_t parent;
    const char *name; /* a constant */
    int32_t index;    /* -1: none */
};

#define SCHEMA_PATH_ROOT 0

/* A schema and where it stands. */
struct schema_source {
    struct json_object *schema; /* borrows from the document; may be a boolean */
    uint32_t path;
};

/* One of the schemas that hold at a place. */
struct schema_member {
    struct json_object *schema; /* an object */
    uint32_t path;
    int32_t parent;   /* member whose $ref or allOf it came by, or -1 */
    uint32_t decided; /* anyOf and (lenient) oneOf: bits of those that a branch was chosen of */
};

struct schema_view {
    struct schema_member members[MASK_MEMBERS_MAX];
    int32_t n, checked; /* members before `checked` have been looked through */
    bool never;         /* one of them is `false` */
};

/* What a place is the union of. */
struct schema_union {
    struct grammar_node values[MASK_THREADS_MAX];
    int32_t constants[MASK_THREADS_MAX]; /* nodes */
    int32_t n_values, n_constants;
};

struct schema_compiler;

/** The mode, for the few rules that depend on it. */
enum schema_mode schema_compiler_mode(const struct schema_compiler *c);
struct grammar *schema_compiler_grammar(const struct schema_compiler *c);

/** One more step of a path.  Beyond the limit paths end early; errors stay right. */
uint32_t schema_step_add(struct schema_compiler *c, uint32_t parent, const char *name,
                         int32_t index);

/** Notes an error at PATH.keyword (NULL: PATH).  @return true in lenient mode: go on without */
bool schema_refuse(struct schema_compiler *c, uint32_t path, const char *keyword, const char *what);
/** The same for a limit that is reached: false in every mode. */
bool schema_full(struct schema_compiler *c, uint32_t path, const char *keyword, const char *what);

/** The node of a place where all of `sources` hold; it is built later.  @return -1: failed */
int32_t schema_place(struct schema_compiler *c, const struct schema_source *sources, int32_t n);
/** The node of exactly one JSON value (NULL: null). */
int32_t schema_constant(struct schema_compiler *c, struct json_object *value, uint32_t path);

/** Makes parts of the schemas of a view, whose branches are all decided: one of what rules allow,
 *  and one of each container in an enum.  @return false: failed */
bool schema_build(struct schema_compiler *c, const struct schema_view *view,
                  struct schema_union *parts);
/** Narrows a node to what the enums and consts of a view list; without any, it stays as it is. */
bool schema_build_listed(struct schema_compiler *c, const struct schema_view *view,
                         struct grammar_node *node, struct schema_union *parts);
/** Fills node `target` for one JSON value. */
bool schema_build_constant(struct schema_compiler *c, struct json_object *value, uint32_t path,
                           int32_t target);

#endif
