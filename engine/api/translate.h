/*
 * What translations of other APIs' requests into the tree of a chat completion have in common: text
 * in its several spellings, members that must be there, and the pieces of the new tree.  Knows no
 * API.
 */
#ifndef V4BOX_ENGINE_API_TRANSLATE_H
#define V4BOX_ENGINE_API_TRANSLATE_H

#include "engine/api/errors.h"
#include "engine/base/json.h"

#include <stdbool.h>

#define BLOCKS_JOINT "\n\n" /* as the chat encoding joins blocks (model.md 5.2) */

bool json_is_string(struct json_object *value);
bool json_is_object(struct json_object *value);
bool json_is_array(struct json_object *value);

/* ---- reading; errors name PATH and what is below it ------------------------------------------ */

/** Member `key` of `object`, a string that is not empty.  @err false */
bool tree_take_string(struct json_object *object, const char *path, const char *key,
                      struct json_object **out, struct api_error *err);

/** Appends the member `key` of a block, a string that may be empty, behind BLOCKS_JOINT if *n says
 *  that something stands in front; counts *n.  @err false */
bool tree_read_member(struct json_object *block, const char *path, const char *key, int *n,
                      struct buf *out, struct api_error *err);

/** Checks that a block is an object with a type.  @err false */
bool tree_check_block(struct json_object *block, const char *path, struct api_error *err);

/** Appends a string, or an array of blocks of one of the `types` (ends with NULL) with a member
 *  "text".  @err false; API_CONTENT: another type */
bool tree_read_text(struct json_object *value, const char *path, const char *const *types,
                    struct buf *out, struct api_error *err);

/* ---- building -------------------------------------------------------------------------------- */

/** Moves a reference of `from`'s member, if there is one, under another name.  */
void tree_put_member(struct json_object *to, const char *key, struct json_object *from,
                     const char *from_key);

struct job; /* the caller's own: one translation */

/* A field of a request in another form. */
struct tree_field {
    const char *name, *to; /* there, and in a chat completion */
    /* @err false; NULL: as it is, under the name `to` */
    bool (*copy)(struct job *job, struct json_object *value);
};

/** Copies what `from` has of the fields, in the order of the table.  @err false: what `copy` says
 */
bool tree_copy(struct json_object *to, struct json_object *from, const struct tree_field *fields,
               size_t n_fields, struct job *job);

struct json_object *tree_new_text(const struct buf *text);
/** An object {"role": role} at the end of `messages`.  Borrowed. */
struct json_object *tree_add_message(struct json_object *messages, const char *role);
/** A function call {"id", "type", "function"} at the end of `calls`. */
void tree_add_call(struct json_object *calls, struct json_object *id, struct json_object *name,
                   struct json_object *take_arguments);
/** A function tool at the end of `tools`.  Borrowed: its "function" object. */
struct json_object *tree_add_function(struct json_object *tools);
/** {"type": "json_schema", "json_schema": {"name", "strict", "schema"}}.  @own the caller */
struct json_object *tree_new_format(struct json_object *schema, bool strict);
/** {"type": "function", "function": {"name": name}}.  @own the caller */
struct json_object *tree_new_choice(struct json_object *name);

#endif
