/*
 * JSON in and out, over json-c: strict where json-c is lenient, and printed as Python's
 * json.dumps(ensure_ascii=False) prints it, since the model was trained on that form.
 * Knows nothing of requests; callers name fields in their own error texts.
 */
#ifndef V4BOX_ENGINE_JSON_H
#define V4BOX_ENGINE_JSON_H

#include "engine/base/buf.h"
#include "engine/base/status.h"

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>

/**
 * Parses one JSON text.  Strict: valid UTF-8, depth at most JSON_DEPTH_MAX, no duplicate keys in
 * any object, no trailing data, no NaN/Infinity, no comments.  Lone surrogate escapes become
 * U+FFFD. Numbers keep their source text (json_dump prints it back), also integers beyond 64 bits
 * and -0; these two are json_type_double, all other integers json_type_int. Keys with U+0000 are
 * refused (json-c's keys are C strings); strings may hold it.
 * @own  *out belongs to the caller: json_object_put.
 * @err  ERR_INPUT; *offset (may be NULL) is the byte where it went wrong; err->text has no excerpt.
 */
enum status MUST_CHECK json_parse(const char *text, size_t len, struct json_object **out,
                                  size_t *offset, struct error *err);

/** Reads a whole file of at most `bytes_max` bytes and parses it; errors name the file. */
enum status MUST_CHECK json_parse_file(const char *path, size_t bytes_max, struct json_object **out,
                                       struct error *err);

/** Appends the value as json.dumps(ensure_ascii=False): ", " and ": ", key order kept, raw UTF-8.
 *  Numbers as their source wrote them. */
void json_dump(struct buf *out, struct json_object *value);

/** The same, but numbers as Python prints them after json.loads: 1e5 is 100000.0, -0 is 0. */
void json_dump_normal(struct buf *out, struct json_object *value);

/** Appends one JSON string literal, quotes included (json.dumps escapes; raw UTF-8). */
void json_dump_string(struct buf *out, const char *text, size_t len);

/** Member `key` of an object, or NULL when absent; a JSON null is reported by *is_null = true. */
struct json_object *json_member(struct json_object *object, const char *key, bool *is_null);

/** Member `key` when `object` is an object and the member a text without NUL, which may be empty;
 * else NULL.  @return borrowed */
const char *json_text(struct json_object *object, const char *key);

/** Puts a member into an object, in the place of one of the same name; without memory it ends the
 *  program.  @own take_value: the object */
void json_set(struct json_object *object, const char *key, struct json_object *take_value);

#endif
