/* Safetensors headers, checked before a single byte behind them is looked at. */
#include "engine/model/safetensors.h"

#include "engine/base/json.h"
#include "kernels/check.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX_BYTES 8 /* the header's length */

static const struct {
    const char *name;
    int bytes;
} DTYPES[] = {
    {"BF16", 2}, {"F32", 4}, {"I64", 8}, {"F8_E4M3", 1}, {"F8_E8M0", 1}, {"I8", 1}, {"U8", 1},
};

#define N_DTYPES (sizeof DTYPES / sizeof DTYPES[0])

int safetensors_element_bytes(const char *dtype)
{
    for (size_t i = 0; i < N_DTYPES; i++) {
        if (strcmp(dtype, DTYPES[i].name) == 0)
            return DTYPES[i].bytes;
    }
    return 0;
}

/* Names go into error texts and logs, so nothing but plain text may pass. */
static bool name_plain(const char *name)
{
    size_t n = strlen(name);
    if (n == 0 || n >= TENSOR_NAME_BYTES)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (name[i] <= ' ' || name[i] > '~')
            return false;
    }
    return true;
}

/* An integer of 0 .. INT64_MAX - 1: json-c clips larger ones to INT64_MAX. */
static bool natural(struct json_object *value, int64_t *out)
{
    if (!json_object_is_type(value, json_type_int))
        return false;
    *out = json_object_get_int64(value);
    return *out >= 0 && *out < INT64_MAX;
}

static enum status entry_dtype(struct json_object *value, struct safetensors_entry *e,
                               const char *path, struct error *err)
{
    const char *text =
        json_object_is_type(value, json_type_string) ? json_object_get_string(value) : "";
    for (size_t i = 0; i < N_DTYPES; i++) {
        if (strcmp(text, DTYPES[i].name) == 0)
            e->dtype = DTYPES[i].name;
    }
    if (e->dtype == NULL)
        return error_set(err, ERR_INPUT, "%s: tensor %s: dtype is not one of this family", path,
                         e->name);
    return OK;
}

static enum status entry_shape(struct json_object *value, struct safetensors_entry *e,
                               const char *path, struct error *err)
{
    size_t dims = json_object_is_type(value, json_type_array) ? json_object_array_length(value) : 3;
    if (dims > 2)
        return error_set(err, ERR_INPUT, "%s: tensor %s: shape must have at most 2 dimensions",
                         path, e->name);
    e->dims = (int)dims;
    e->shape[0] = e->shape[1] = 1;
    for (size_t i = 0; i < dims; i++) {
        if (!natural(json_object_array_get_idx(value, i), &e->shape[i]) || e->shape[i] == 0)
            return error_set(err, ERR_INPUT, "%s: tensor %s: shape[%zu] is not a positive integer",
                             path, e->name, i);
    }
    return OK;
}

static enum status entry_offsets(struct json_object *value, struct safetensors_entry *e,
                                 uint64_t data_bytes, const char *path, struct error *err)
{
    int64_t begin, end;
    if (!json_object_is_type(value, json_type_array) || json_object_array_length(value) != 2 ||
        !natural(json_object_array_get_idx(value, 0), &begin) ||
        !natural(json_object_array_get_idx(value, 1), &end) || begin > end)
        return error_set(err, ERR_INPUT, "%s: tensor %s: data_offsets are not a range", path,
                         e->name);
    if ((uint64_t)end > data_bytes)
        return error_set(err, ERR_INPUT,
                         "%s: tensor %s: data_offsets end at %" PRId64
                         ", behind the file's %" PRIu64 " data bytes",
                         path, e->name, end, data_bytes);
    uint64_t expected;
    if (__builtin_mul_overflow((uint64_t)e->shape[0], (uint64_t)e->shape[1], &expected) ||
        __builtin_mul_overflow(expected, (uint64_t)safetensors_element_bytes(e->dtype),
                               &expected) ||
        expected != (uint64_t)(end - begin))
        return error_set(err, ERR_INPUT,
                         "%s: tensor %s: %" PRId64 " bytes do not hold [%" PRId64 ", %" PRId64
                         "] of %s",
                         path, e->name, end - begin, e->shape[0], e->shape[1], e->dtype);
    e->begin = (uint64_t)begin;
    e->bytes = expected;
    return OK;
}

static enum status entry_parse(struct json_object *value, struct safetensors_entry *e,
                               uint64_t data_bytes, const char *path, struct error *err)
{
    if (!json_object_is_type(value, json_type_object) || json_object_object_length(value) != 3)
        return error_set(err, ERR_INPUT,
                         "%s: tensor %s: expected dtype, shape and data_offsets, nothing else",
                         path, e->name);
    enum status status = entry_dtype(json_member(value, "dtype", NULL), e, path, err);
    if (status == OK)
        status = entry_shape(json_member(value, "shape", NULL), e, path, err);
    if (status == OK)
        status = entry_offsets(json_member(value, "data_offsets", NULL), e, data_bytes, path, err);
    return status;
}

static int by_begin(const void *a, const void *b)
{
    const struct safetensors_entry *x = a, *y = b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* Back to back: an overlap would let one tensor alias another, a gap would hide unchecked bytes. */
static enum status entries_tile(struct safetensors *f, uint64_t data_bytes, const char *path,
                                struct error *err)
{
    uint64_t at = 0;
    qsort(f->entries, f->count, sizeof f->entries[0], by_begin);
    for (size_t i = 0; i < f->count; i++) {
        struct safetensors_entry *e = &f->entries[i];
        if (e->begin != at)
            return error_set(err, ERR_INPUT,
                             "%s: tensor %s: begins at %" PRIu64 ", %s the one before, which ends"
                             " at %" PRIu64,
                             path, e->name, e->begin, e->begin < at ? "inside" : "apart from", at);
        at += e->bytes;
    }
    if (at != data_bytes)
        return error_set(err, ERR_INPUT, "%s: %" PRIu64 " bytes behind the last tensor", path,
                         data_bytes - at);
    return OK;
}

static enum status entries_parse(struct safetensors *f, struct json_object *header,
                                 uint64_t header_bytes, const char *path, struct error *err)
{
    const uint8_t *data = f->map.data + PREFIX_BYTES + header_bytes;
    uint64_t data_bytes = f->map.size - PREFIX_BYTES - header_bytes;
    size_t count = (size_t)json_object_object_length(header), names_at = 0;
    /* Every name stands in the header, so its length bounds them all with their NULs. */
    f->names = malloc(header_bytes + 1);
    f->entries = calloc(count + 1, sizeof f->entries[0]);
    ASSERT(f->names != NULL && f->entries != NULL);
    struct json_object_iterator end = json_object_iter_end(header);
    for (struct json_object_iterator it = json_object_iter_begin(header);
         !json_object_iter_equal(&it, &end); json_object_iter_next(&it)) {
        const char *name = json_object_iter_peek_name(&it);
        struct json_object *value = json_object_iter_peek_value(&it);
        if (strcmp(name, "__metadata__") == 0) {
            if (!json_object_is_type(value, json_type_object))
                return error_set(err, ERR_INPUT, "%s: __metadata__ is not an object", path);
            continue;
        }
        if (!name_plain(name))
            return error_set(err, ERR_INPUT, "%s: a tensor name is empty, too long or not plain",
                             path);
        struct safetensors_entry *e = &f->entries[f->count];
        size_t name_bytes = strlen(name) + 1;
        e->name = memcpy(f->names + names_at, name, name_bytes);
        names_at += name_bytes;
        enum status status = entry_parse(value, e, data_bytes, path, err);
        if (status != OK)
            return status;
        e->data = data + e->begin;
        f->count++;
    }
    return entries_tile(f, data_bytes, path, err);
}

static enum status header_parse(struct safetensors *f, const char *path, struct error *err)
{
    if (f->map.size < PREFIX_BYTES)
        return error_set(err, ERR_INPUT, "%s: too short for a safetensors file", path);
    uint64_t header_bytes = 0;
    for (int i = PREFIX_BYTES - 1; i >= 0; i--)
        header_bytes = header_bytes << 8 | f->map.data[i];
    if (header_bytes > f->map.size - PREFIX_BYTES)
        return error_set(err, ERR_INPUT, "%s: header of %" PRIu64 " bytes in a file of %zu", path,
                         header_bytes, f->map.size);
    if (header_bytes > SAFETENSORS_HEADER_BYTES_MAX)
        return error_set(err, ERR_INPUT, "%s: header of %" PRIu64 " bytes, more than %d", path,
                         header_bytes, SAFETENSORS_HEADER_BYTES_MAX);
    struct json_object *header = NULL;
    struct error inner = {0};
    if (json_parse((const char *)f->map.data + PREFIX_BYTES, header_bytes, &header, NULL, &inner) !=
        OK)
        return error_set(err, ERR_INPUT, "%s: header: %s", path, inner.text);
    enum status status;
    if (!json_object_is_type(header, json_type_object))
        status = error_set(err, ERR_INPUT, "%s: header is not a JSON object", path);
    else
        status = entries_parse(f, header, header_bytes, path, err);
    json_object_put(header);
    return status;
}

enum status safetensors_open(const char *path, struct safetensors *out, struct error *err)
{
    struct safetensors f = {0};
    enum status status = file_map(path, &f.map, err);
    if (status == OK)
        status = header_parse(&f, path, err);
    if (status == OK)
        *out = f;
    else
        safetensors_close(&f);
    return status;
}

void safetensors_close(struct safetensors *file)
{
    file_unmap(&file->map);
    free(file->entries);
    free(file->names);
    *file = (struct safetensors){0};
}
