/*
 * Compiles JSON Schemas into a grammar: the subset of config/schema.def, exactly.  A schema is
 * hostile input: everything is bounded, $ref loops end, and nothing of its text comes back in an
 * error.
 *
 * What a mask allows is always valid; it does not allow every way to write what is valid: integers
 * are written without a point, numbers with bounds in fixed point, enum numbers in one form.
 */
#ifndef V4BOX_ENGINE_TEXT_SCHEMA_H
#define V4BOX_ENGINE_TEXT_SCHEMA_H

#include "engine/base/json.h"
#include "engine/base/status.h"
#include "engine/text/grammar.h"

/* How much of the schema must be understood (config/schema.def). */
enum schema_mode {
    SCHEMA_STRICT,  /* everything */
    SCHEMA_PLAIN,   /* everything but rules about texts */
    SCHEMA_LENIENT, /* what can be; the rest is ignored, and nothing is refused */
};

/**
 * Compiles one schema, which is also the document that its $refs point into.  `path` names it in
 * errors.  Not with SCHEMA_LENIENT.
 * @err  ERR_INPUT "PATH[.keyword]: what": not understood, or no value can satisfy it;
 *       ERR_CAPACITY: beyond a limit.  Then the grammar is as it was.
 */
enum status MUST_CHECK schema_compile(struct grammar *grammar, struct json_object *schema,
                                      enum schema_mode mode, const char *path, int32_t *out,
                                      struct error *err);

/**
 * The same for the arguments of a tool (NULL: it takes none): the result is an object without
 * branches.  Undeclared names are allowed only where the schema has `additionalProperties`, or
 * declares no `properties` at all.
 * @err  as above; with SCHEMA_LENIENT none
 */
enum status MUST_CHECK schema_compile_arguments(struct grammar *grammar, struct json_object *schema,
                                                enum schema_mode mode, const char *path,
                                                int32_t *out, struct error *err);

#endif
