/* config.json against the rows of config/model.h.  Table-driven: config/checkpoint_config.def. */
#include "engine/model/config.h"

#include <stdlib.h>
#include <string.h>

const struct model_config MODEL_CONFIGS[] = {MODEL_CONFIG_ROWS};
const size_t MODEL_CONFIG_COUNT = sizeof MODEL_CONFIGS / sizeof MODEL_CONFIGS[0];

#define MEMBER_COUNT(expected)  .member = offsetof(struct model_config, expected)
#define MEMBER_FACTOR(expected) .member = offsetof(struct model_config, expected)
#define MEMBER_RATIOS(expected) .member = offsetof(struct model_config, compress_ratios)
#define MEMBER_NUMBER(expected) .number = (expected)
#define MEMBER_TEXT(expected)   .text = (expected)
#define MEMBER_ANY(expected)    .text = NULL

const struct config_field CONFIG_FIELDS[] = {
#define FIELD(field_path, field_kind, expected, field_presence)                                    \
    {.path = field_path,                                                                           \
     .kind = CONFIG_##field_kind,                                                                  \
     .presence = CONFIG_##field_presence,                                                          \
     MEMBER_##field_kind(expected)},
#include "config/checkpoint_config.def"
#undef FIELD
};
const size_t CONFIG_FIELD_COUNT = sizeof CONFIG_FIELDS / sizeof CONFIG_FIELDS[0];

#define SHOWN_BYTES                                                                                \
    160 /* of a value in an error text: the line must keep room for path and field */

struct json_object *config_lookup(struct json_object *json, const char *path)
{
    const char *dot = strchr(path, '.');
    struct json_object *value = NULL;
    if (dot == NULL)
        return json_object_object_get_ex(json, path, &value) ? value : NULL;
    char outer[CONFIG_NAME_BYTES];
    size_t n = (size_t)(dot - path);
    if (n >= sizeof outer)
        return NULL;
    memcpy(outer, path, n);
    outer[n] = '\0';
    if (!json_object_object_get_ex(json, outer, &value) ||
        !json_object_is_type(value, json_type_object))
        return NULL;
    struct json_object *inner = NULL;
    return json_object_object_get_ex(value, dot + 1, &inner) ? inner : NULL;
}

static int32_t row_count(const struct model_config *row, const struct config_field *field)
{
    int32_t value;
    memcpy(&value, (const char *)row + field->member, sizeof value);
    return value;
}

static double row_factor(const struct model_config *row, const struct config_field *field)
{
    double value;
    memcpy(&value, (const char *)row + field->member, sizeof value);
    return value;
}

static bool is_number(struct json_object *value)
{
    return json_object_is_type(value, json_type_int) ||
           json_object_is_type(value, json_type_double);
}

static bool is_int(struct json_object *value, int64_t expected)
{
    return json_object_is_type(value, json_type_int) && json_object_get_int64(value) == expected;
}

/* What the row says, as config.json would print it. */
static void expected_print(struct buf *out, const struct config_field *field,
                           const struct model_config *row)
{
    int32_t blocks = row->num_hidden_layers + row->num_nextn_predict_layers;
    switch (field->kind) {
    case CONFIG_COUNT:
        buf_printf(out, "%d", row_count(row, field));
        break;
    case CONFIG_FACTOR:
        buf_printf(out, "%.17g", row_factor(row, field));
        break;
    case CONFIG_NUMBER:
        buf_printf(out, "%.17g", field->number);
        break;
    case CONFIG_RATIOS:
        for (int32_t i = 0; i < blocks; i++)
            buf_printf(out, "%s%d", i == 0 ? "[" : ", ", row->compress_ratios[i]);
        buf_puts(out, "]");
        break;
    case CONFIG_TEXT:
        buf_puts(out, field->text);
        break;
    case CONFIG_ANY:
        break;
    }
}

static bool ratios_agree(struct json_object *value, const struct model_config *row)
{
    size_t blocks = (size_t)(row->num_hidden_layers + row->num_nextn_predict_layers);
    if (!json_object_is_type(value, json_type_array) || json_object_array_length(value) != blocks)
        return false;
    for (size_t i = 0; i < blocks; i++) {
        if (!is_int(json_object_array_get_idx(value, i), row->compress_ratios[i]))
            return false;
    }
    return true;
}

static bool agrees(struct json_object *value, const struct config_field *field,
                   const struct model_config *row)
{
    switch (field->kind) {
    case CONFIG_COUNT:
        return is_int(value, row_count(row, field));
    case CONFIG_FACTOR:
        return is_number(value) && json_object_get_double(value) == row_factor(row, field);
    case CONFIG_NUMBER:
        return is_number(value) && json_object_get_double(value) == field->number;
    case CONFIG_RATIOS:
        return ratios_agree(value, row);
    case CONFIG_TEXT: {
        struct buf text = {0};
        json_dump(&text, value);
        bool same = strcmp(buf_cstr(&text), field->text) == 0;
        buf_free(&text);
        return same;
    }
    case CONFIG_ANY:
        return true;
    }
    return false;
}

static enum status difference(const char *path, const struct config_field *field,
                              struct json_object *value, const struct model_config *row,
                              struct error *err)
{
    struct buf expected = {0}, found = {0};
    expected_print(&expected, field, row);
    json_dump(&found, value);
    enum status status = error_set(
        err, ERR_INPUT, "%s: %s: expected %.*s (configuration %s), got %.*s", path, field->path,
        SHOWN_BYTES, buf_cstr(&expected), row->name, SHOWN_BYTES, buf_cstr(&found));
    buf_free(&expected);
    buf_free(&found);
    return status;
}

/* True when the table has this field, or (inner = NULL) fields of an object of this name: `nested`.
 */
static bool path_known(const char *outer, const char *inner, bool *nested)
{
    size_t n = strlen(outer);
    *nested = false;
    if (strchr(outer, '.') != NULL) /* a key of that very text is no path */
        return false;
    for (size_t i = 0; i < CONFIG_FIELD_COUNT; i++) {
        const char *path = CONFIG_FIELDS[i].path;
        if (strncmp(path, outer, n) != 0)
            continue;
        if (path[n] == '\0' && inner == NULL)
            return true;
        if (path[n] == '.' && (inner == NULL || strcmp(path + n + 1, inner) == 0)) {
            *nested = true;
            return true;
        }
    }
    return false;
}

static enum status unknown_field(const char *path, const char *outer, const char *inner,
                                 struct error *err)
{
    struct buf name = {0}, shown = {0};
    buf_printf(&name, "%s%s%s", outer, inner == NULL ? "" : ".", inner == NULL ? "" : inner);
    json_dump_string(&shown, name.data, name.len); /* escapes control characters */
    enum status status =
        error_set(err, ERR_INPUT, "%s: unknown field %.*s", path, SHOWN_BYTES, buf_cstr(&shown));
    buf_free(&name);
    buf_free(&shown);
    return status;
}

static enum status fields_known(struct json_object *json, const char *path, struct error *err)
{
    bool nested;
    struct json_object_iterator end = json_object_iter_end(json);
    for (struct json_object_iterator it = json_object_iter_begin(json);
         !json_object_iter_equal(&it, &end); json_object_iter_next(&it)) {
        const char *outer = json_object_iter_peek_name(&it);
        struct json_object *value = json_object_iter_peek_value(&it);
        if (!path_known(outer, NULL, &nested))
            return unknown_field(path, outer, NULL, err);
        if (!nested)
            continue;
        if (!json_object_is_type(value, json_type_object))
            return error_set(err, ERR_INPUT, "%s: %s: not an object", path, outer);
        struct json_object_iterator last = json_object_iter_end(value);
        for (struct json_object_iterator in = json_object_iter_begin(value);
             !json_object_iter_equal(&in, &last); json_object_iter_next(&in)) {
            bool unused;
            if (!path_known(outer, json_object_iter_peek_name(&in), &unused))
                return unknown_field(path, outer, json_object_iter_peek_name(&in), err);
        }
    }
    return OK;
}

enum status config_compare(struct json_object *json, const char *path,
                           const struct model_config *row, struct error *err)
{
    if (!json_object_is_type(json, json_type_object))
        return error_set(err, ERR_INPUT, "%s: not a JSON object", path);
    bool above = true;
    for (size_t i = 0; i < CONFIG_FIELD_COUNT; i++) {
        const struct config_field *field = &CONFIG_FIELDS[i];
        struct json_object *value = config_lookup(json, field->path);
        bool needed =
            field->presence == CONFIG_REQUIRED || (field->presence == CONFIG_OR_ABOVE && !above);
        if (value == NULL && needed)
            return error_set(err, ERR_INPUT, "%s: %s: missing", path, field->path);
        if (value != NULL && !agrees(value, field, row))
            return difference(path, field, value, row, err);
        above = value != NULL;
    }
    return fields_known(json, path, err);
}

enum status config_match(struct json_object *json, const char *path,
                         const struct model_config **out, struct error *err)
{
    if (!json_object_is_type(json, json_type_object))
        return error_set(err, ERR_INPUT, "%s: not a JSON object", path);
    const struct model_config *best = &MODEL_CONFIGS[0];
    size_t best_count = 0;
    for (size_t r = 0; r < MODEL_CONFIG_COUNT; r++) {
        size_t count = 0;
        for (size_t i = 0; i < CONFIG_FIELD_COUNT; i++) {
            struct json_object *value = config_lookup(json, CONFIG_FIELDS[i].path);
            count += value != NULL && agrees(value, &CONFIG_FIELDS[i], &MODEL_CONFIGS[r]);
        }
        if (count > best_count) {
            best = &MODEL_CONFIGS[r];
            best_count = count;
        }
    }
    enum status status = config_compare(json, path, best, err);
    if (status == OK)
        *out = best;
    return status;
}

enum status config_open(const char *dir, const struct model_config **out, struct error *err)
{
    struct buf path = {0};
    struct json_object *json = NULL;
    buf_printf(&path, "%s/config.json", dir);
    enum status status = json_parse_file(buf_cstr(&path), CHECKPOINT_CONFIG_BYTES_MAX, &json, err);
    if (status == OK)
        status = config_match(json, buf_cstr(&path), out, err);
    json_object_put(json);
    buf_free(&path);
    return status;
}
