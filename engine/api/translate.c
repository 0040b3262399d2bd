/* Pieces of translations into the tree of a chat completion. */
#include "engine/api/translate.h"

#include "config/limits.h"
#include "engine/api/messages.h"
#include "kernels/check.h"

#include <stdio.h>

bool json_is_string(struct json_object *value)
{
    return json_object_is_type(value, json_type_string);
}

bool json_is_object(struct json_object *value)
{
    return json_object_is_type(value, json_type_object);
}

bool json_is_array(struct json_object *value)
{
    return json_object_is_type(value, json_type_array);
}

/* ---- reading --------------------------------------------------------------------------------- */

static void add_string(struct buf *out, struct json_object *string)
{
    buf_add(out, json_object_get_string(string), (size_t)json_object_get_string_len(string));
}

bool tree_take_string(struct json_object *object, const char *path, const char *key,
                      struct json_object **out, struct api_error *err)
{
    *out = json_member(object, key, NULL);
    if (*out == NULL)
        return api_fail(err, API_MISSING, "%s.%s", path, key);
    if (!json_is_string(*out))
        return api_fail(err, API_TYPE, "%s.%s", path, key);
    return json_object_get_string_len(*out) > 0 || api_fail(err, API_EMPTY, "%s.%s", path, key);
}

bool tree_read_member(struct json_object *block, const char *path, const char *key, int *n,
                      struct buf *out, struct api_error *err)
{
    struct json_object *text = json_member(block, key, NULL);
    if (!json_is_string(text))
        return api_fail(err, text == NULL ? API_MISSING : API_TYPE, "%s.%s", path, key);
    if ((*n)++ > 0)
        buf_puts(out, BLOCKS_JOINT);
    add_string(out, text);
    return true;
}

bool tree_check_block(struct json_object *block, const char *path, struct api_error *err)
{
    struct json_object *type = json_member(block, "type", NULL);
    if (!json_is_object(block))
        return api_fail(err, API_TYPE, "%s", path);
    return json_is_string(type) ||
           api_fail(err, type == NULL ? API_MISSING : API_TYPE, "%s.type", path);
}

static bool type_is_one_of(struct json_object *block, const char *const *types)
{
    for (; *types != NULL; types++) {
        if (json_text_is(json_member(block, "type", NULL), *types))
            return true;
    }
    return false;
}

bool tree_read_text(struct json_object *value, const char *path, const char *const *types,
                    struct buf *out, struct api_error *err)
{
    if (json_is_string(value)) {
        add_string(out, value);
        return true;
    }
    if (!json_is_array(value))
        return api_fail(err, value == NULL ? API_MISSING : API_TYPE, "%s", path);
    size_t n = json_object_array_length(value);
    if (n > CONTENT_PARTS_MAX)
        return api_fail_limit(err, API_COUNT, path, CONTENT_PARTS_MAX, (int64_t)n);
    int n_texts = 0;
    for (size_t i = 0; i < n; i++) {
        struct json_object *block = json_object_array_get_idx(value, i);
        char at[API_PARAM_BYTES];
        snprintf(at, sizeof at, "%s[%zu]", path, i);
        if (!tree_check_block(block, at, err))
            return false;
        if (!type_is_one_of(block, types))
            return api_fail(err, API_CONTENT, "%s.type", at);
        if (!tree_read_member(block, at, "text", &n_texts, out, err))
            return false;
    }
    return true;
}

/* ---- building -------------------------------------------------------------------------------- */

void tree_put_member(struct json_object *to, const char *key, struct json_object *from,
                     const char *from_key)
{
    struct json_object *value = json_member(from, from_key, NULL);
    if (value != NULL)
        json_set(to, key, json_object_get(value));
}

bool tree_copy(struct json_object *to, struct json_object *from, const struct tree_field *fields,
               size_t n_fields, struct job *job)
{
    for (size_t i = 0; i < n_fields; i++) {
        struct json_object *value = json_member(from, fields[i].name, NULL);
        if (value == NULL)
            continue;
        if (fields[i].copy == NULL)
            json_set(to, fields[i].to, json_object_get(value));
        else if (!fields[i].copy(job, value))
            return false;
    }
    return true;
}

struct json_object *tree_new_text(const struct buf *text)
{
    return json_object_new_string_len(text->len == 0 ? "" : text->data, (int)text->len);
}

static struct json_object *add_object(struct json_object *array)
{
    struct json_object *object = json_object_new_object();
    ASSERT(json_object_array_add(array, object) == 0);
    return object;
}

struct json_object *tree_add_message(struct json_object *messages, const char *role)
{
    struct json_object *message = add_object(messages);
    json_set(message, "role", json_object_new_string(role));
    return message;
}

/* The part of a tool, a call and a choice that names a function. */
static struct json_object *put_function(struct json_object *object)
{
    struct json_object *function = json_object_new_object();
    json_set(object, "type", json_object_new_string("function"));
    json_set(object, "function", function);
    return function;
}

void tree_add_call(struct json_object *calls, struct json_object *id, struct json_object *name,
                   struct json_object *take_arguments)
{
    struct json_object *call = add_object(calls);
    json_set(call, "id", json_object_get(id));
    struct json_object *function = put_function(call);
    json_set(function, "name", json_object_get(name));
    json_set(function, "arguments", take_arguments);
}

struct json_object *tree_add_function(struct json_object *tools)
{
    return put_function(add_object(tools));
}

struct json_object *tree_new_format(struct json_object *schema, bool strict)
{
    struct json_object *format = json_object_new_object(), *named = json_object_new_object();
    json_set(format, "type", json_object_new_string("json_schema"));
    json_set(format, "json_schema", named);
    json_set(named, "name", json_object_new_string("answer"));
    json_set(named, "strict", json_object_new_boolean(strict));
    json_set(named, "schema", json_object_get(schema));
    return format;
}

struct json_object *tree_new_choice(struct json_object *name)
{
    struct json_object *choice = json_object_new_object();
    json_set(put_function(choice), "name", json_object_get(name));
    return choice;
}
