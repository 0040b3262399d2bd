/* A checkpoint folder opened, checked and bound.  Value checks live in values.c. */
#include "engine/model/checkpoint.h"

#include "engine/base/json.h"
#include "engine/model/config.h"
#include "engine/model/safetensors.h"
#include "engine/model/tensors.h"
#include "engine/model/values.h"
#include "kernels/check.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SINGLE_FILE "model.safetensors"
#define INDEX_FILE  "model.safetensors.index.json"

#define COPY_ALIGN 64 /* a cache line; the widest vector load of the kernels */

/* One tensor of any shard, by name. */
struct found {
    const struct safetensors_entry *entry; /* borrows */
    const char *shard;                     /* borrows from shards */
    bool bound;
};

struct shard {
    char name[CHECKPOINT_FILE_NAME_BYTES];
    struct safetensors file; /* owns */
};

struct checkpoint {
    char *dir; /* owns */
    const struct model_config *config;
    struct model_weights weights; /* owns the expert tables; the tensors borrow */
    struct shard *shards;         /* owns; [shard_count] */
    size_t shard_count;
    struct found *found; /* owns; [tensor_count], sorted by name */
    size_t tensor_count;
    uint64_t tensor_bytes;
    void **copies; /* owns each; [copy_count] realigned tensors, at most one for each of found */
    size_t copy_count;
};

static char *path_join(const char *dir, const char *name)
{
    struct buf path = {0};
    buf_printf(&path, "%s/%s", dir, name);
    buf_cstr(&path);
    return path.data;
}

static bool file_exists(const char *dir, const char *name)
{
    char *path = path_join(dir, name);
    bool exists = access(path, F_OK) == 0;
    free(path);
    return exists;
}

/* ---- shards --------------------------------------------------------------------------------- */

/* A file of this folder and nothing else: no separators, no dot files, nothing unprintable. */
static bool shard_name_plain(const char *name)
{
    size_t n = strlen(name);
    if (n == 0 || n >= CHECKPOINT_FILE_NAME_BYTES || name[0] == '.')
        return false;
    for (size_t i = 0; i < n; i++) {
        if (name[i] <= ' ' || name[i] > '~' || name[i] == '/' || name[i] == '\\')
            return false;
    }
    return true;
}

static enum status shard_add(struct checkpoint *c, const char *name, struct error *err)
{
    struct shard *shard = &c->shards[c->shard_count];
    snprintf(shard->name, sizeof shard->name, "%s", name);
    char *path = path_join(c->dir, name);
    enum status status = safetensors_open(path, &shard->file, err);
    free(path);
    if (status == OK)
        c->shard_count++;
    return status;
}

static bool shard_known(const struct checkpoint *c, const char *name)
{
    /* Names come in runs, so the newest shard is nearly always the one. */
    for (size_t i = c->shard_count; i > 0; i--) {
        if (strcmp(c->shards[i - 1].name, name) == 0)
            return true;
    }
    return false;
}

/* Opens every shard that the index names. */
static enum status shards_open(struct checkpoint *c, struct json_object *map, const char *path,
                               struct error *err)
{
    struct json_object_iterator end = json_object_iter_end(map);
    for (struct json_object_iterator it = json_object_iter_begin(map);
         !json_object_iter_equal(&it, &end); json_object_iter_next(&it)) {
        struct json_object *value = json_object_iter_peek_value(&it);
        const char *name =
            json_object_is_type(value, json_type_string) ? json_object_get_string(value) : "";
        if (!shard_name_plain(name) || (size_t)json_object_get_string_len(value) != strlen(name))
            return error_set(err, ERR_INPUT, "%s: weight_map: a shard is not a plain file name",
                             path);
        if (shard_known(c, name))
            continue;
        if (c->shard_count == CHECKPOINT_SHARDS_MAX)
            return error_set(err, ERR_INPUT, "%s: weight_map: more than %d shards", path,
                             CHECKPOINT_SHARDS_MAX);
        enum status status = shard_add(c, name, err);
        if (status != OK)
            return status;
    }
    return OK;
}

/* ---- the table of tensors ------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    const struct found *x = a, *y = b;
    return strcmp(x->entry->name, y->entry->name);
}

static struct found *found_get(const struct checkpoint *c, const char *name)
{
    struct safetensors_entry wanted = {.name = name};
    struct found key = {.entry = &wanted};
    return bsearch(&key, c->found, c->tensor_count, sizeof c->found[0], by_name);
}

static enum status found_collect(struct checkpoint *c, struct error *err)
{
    size_t total = 0;
    for (size_t s = 0; s < c->shard_count; s++)
        total += c->shards[s].file.count;
    c->found = calloc(total + 1, sizeof c->found[0]);
    c->copies = calloc(total + 1, sizeof c->copies[0]);
    ASSERT(c->found != NULL && c->copies != NULL);
    for (size_t s = 0; s < c->shard_count; s++) {
        const struct safetensors *file = &c->shards[s].file;
        for (size_t i = 0; i < file->count; i++) {
            c->found[c->tensor_count++] =
                (struct found){&file->entries[i], c->shards[s].name, false};
            c->tensor_bytes += file->entries[i].bytes;
        }
    }
    qsort(c->found, c->tensor_count, sizeof c->found[0], by_name);
    for (size_t i = 1; i < c->tensor_count; i++) {
        if (by_name(&c->found[i - 1], &c->found[i]) == 0)
            return error_set(err, ERR_INPUT, "%s/%s: tensor %s: stands in %s too", c->dir,
                             c->found[i].shard, c->found[i].entry->name, c->found[i - 1].shard);
    }
    return OK;
}

/* The index and the shards must say the same, both ways. */
static enum status index_agrees(const struct checkpoint *c, struct json_object *map,
                                const char *path, struct error *err)
{
    for (size_t i = 0; i < c->tensor_count; i++) {
        struct json_object *value = NULL;
        const char *name = c->found[i].entry->name;
        if (!json_object_object_get_ex(map, name, &value))
            return error_set(err, ERR_INPUT, "%s: tensor %s: stands in %s but not in weight_map",
                             path, name, c->found[i].shard);
        if (strcmp(json_object_get_string(value), c->found[i].shard) != 0)
            return error_set(err, ERR_INPUT, "%s: tensor %s: weight_map says %s, it stands in %s",
                             path, name, json_object_get_string(value), c->found[i].shard);
    }
    if ((size_t)json_object_object_length(map) == c->tensor_count)
        return OK;
    struct json_object_iterator end = json_object_iter_end(map);
    for (struct json_object_iterator it = json_object_iter_begin(map);
         !json_object_iter_equal(&it, &end); json_object_iter_next(&it)) {
        const char *name = json_object_iter_peek_name(&it);
        if (found_get(c, name) != NULL)
            continue;
        struct buf shown = {0};
        json_dump_string(&shown, name, strlen(name));
        error_set(err, ERR_INPUT, "%s: tensor %.*s: in weight_map but in no shard", path,
                  TENSOR_NAME_BYTES, buf_cstr(&shown));
        buf_free(&shown);
        break;
    }
    return ERR_INPUT;
}

static enum status index_open(struct checkpoint *c, struct error *err)
{
    char *path = path_join(c->dir, INDEX_FILE);
    struct json_object *index = NULL;
    enum status status = json_parse_file(path, CHECKPOINT_INDEX_BYTES_MAX, &index, err);
    if (status == OK) {
        struct json_object *map = json_object_is_type(index, json_type_object)
                                      ? json_member(index, "weight_map", NULL)
                                      : NULL;
        if (!json_object_is_type(map, json_type_object))
            status = error_set(err, ERR_INPUT, "%s: weight_map is not an object", path);
        if (status == OK)
            status = shards_open(c, map, path, err);
        if (status == OK)
            status = found_collect(c, err);
        if (status == OK)
            status = index_agrees(c, map, path, err);
    }
    json_object_put(index);
    free(path);
    return status;
}

static enum status files_open(struct checkpoint *c, struct error *err)
{
    c->shards = calloc(CHECKPOINT_SHARDS_MAX, sizeof c->shards[0]);
    ASSERT(c->shards != NULL);
    if (file_exists(c->dir, INDEX_FILE)) {
        if (file_exists(c->dir, SINGLE_FILE))
            return error_set(err, ERR_INPUT, "%s: both %s and %s: which one is the model?", c->dir,
                             SINGLE_FILE, INDEX_FILE);
        return index_open(c, err);
    }
    enum status status = shard_add(c, SINGLE_FILE, err);
    return status != OK ? status : found_collect(c, err);
}

/* ---- binding -------------------------------------------------------------------------------- */

/* The tensor's bytes, copied once if they do not lie on the element's boundary. */
static const void *aligned_data(struct checkpoint *c, const struct safetensors_entry *e)
{
    if ((uintptr_t)e->data % (uintptr_t)safetensors_element_bytes(e->dtype) == 0)
        return e->data;
    void *copy = aligned_alloc(COPY_ALIGN, (e->bytes + COPY_ALIGN - 1) / COPY_ALIGN * COPY_ALIGN);
    ASSERT(copy != NULL && c->copy_count < c->tensor_count);
    c->copies[c->copy_count++] = copy;
    return memcpy(copy, e->data, e->bytes);
}

static enum status bind_one(struct checkpoint *c, const struct stored_tensor *want,
                            const void **data, struct error *err)
{
    struct found *found = found_get(c, want->name);
    if (found == NULL)
        return error_set(err, ERR_INPUT, "%s: tensor %s: missing", c->dir, want->name);
    const struct safetensors_entry *e = found->entry;
    if (strcmp(e->dtype, want->dtype) != 0)
        return error_set(err, ERR_INPUT, "%s/%s: tensor %s: expected dtype %s, got %s", c->dir,
                         found->shard, want->name, want->dtype, e->dtype);
    int64_t cols = want->dims == 2 ? want->shape[1] : 1;
    bool dims = e->dims == want->dims || (want->dims == 0 && e->dims == 1); /* [] or [1] */
    if (!dims || e->shape[0] != want->shape[0] || e->shape[1] != cols)
        return error_set(err, ERR_INPUT,
                         "%s/%s: tensor %s: expected shape %lldx%lld of %d dimensions, got "
                         "%lldx%lld of %d",
                         c->dir, found->shard, want->name, (long long)want->shape[0],
                         (long long)cols, want->dims, (long long)e->shape[0],
                         (long long)e->shape[1], e->dims);
    ASSERT(e->bytes == want->bytes);
    found->bound = true;
    *data = aligned_data(c, e);
    return OK;
}

/* NVIDIA's form of an expert shows by its scales; draft blocks may keep the published one. */
static enum store store_found(const struct checkpoint *c, const struct weight_spec *spec)
{
    struct weight_spec other = *spec;
    struct stored_tensor stored[STORED_MAX];
    if (spec->store != STORE_FP4)
        return spec->store;
    other.store = STORE_NVFP4;
    weight_stored(&other, stored);
    return found_get(c, stored[STORED_SCALE].name) != NULL ? STORE_NVFP4 : STORE_FP4;
}

/* A factor: a number by which to multiply and to divide. */
static enum status factor_check(const struct checkpoint *c, const char *name, const float *factor,
                                struct error *err)
{
    if (isnormal(*factor) && *factor > 0)
        return OK;
    return error_set(err, ERR_INPUT, "%s/%s: tensor %s: is no positive number", c->dir,
                     found_get(c, name)->shard, name);
}

/* Gate and up matrix of an expert were rounded under one factor; another one is a mistake. */
static enum status factors_agree(struct checkpoint *c, const struct weight_spec *spec,
                                 const char *name, struct error *err)
{
    struct weight_spec gate = *spec;
    gate.member = offsetof(struct expert_weights, w1);
    if (spec->member != offsetof(struct expert_weights, w3))
        return OK;
    if (weight_member(&c->weights, c->config, &gate)->global ==
        weight_member(&c->weights, c->config, spec)->global)
        return OK;
    return error_set(err, ERR_INPUT, "%s/%s: tensor %s: differs from that of w1", c->dir,
                     found_get(c, name)->shard, name);
}

static enum status bind_weight(void *user, const struct weight_spec *listed, struct error *err)
{
    struct checkpoint *c = user;
    struct stored_tensor stored[STORED_MAX];
    const void *data[STORED_MAX] = {NULL};
    struct weight_spec spec = *listed;
    spec.store = store_found(c, listed);
    int n = weight_stored(&spec, stored);
    for (int i = 0; i < n; i++) {
        enum status status = bind_one(c, &stored[i], &data[i], err);
        if (status == OK && i >= STORED_GLOBAL)
            status = factor_check(c, stored[i].name, data[i], err);
        if (status != OK)
            return status;
    }
    const float *global = data[STORED_GLOBAL];
    *weight_member(&c->weights, c->config, &spec) =
        (struct tensor){.data = data[STORED_DATA],
                        .scale = data[STORED_SCALE],
                        .rows = spec.rows,
                        .cols = spec.cols,
                        .store = spec.store,
                        .global = global == NULL ? 0 : *global};
    return global == NULL ? OK : factors_agree(c, &spec, stored[STORED_GLOBAL].name, err);
}

static enum status tensors_bind(struct checkpoint *c, struct error *err)
{
    size_t experts = (size_t)c->config->n_routed_experts;
    _Static_assert(sizeof c->weights.mtp / sizeof c->weights.mtp[0] == 1, "one draft block");
    ASSERT(c->config->num_hidden_layers <= LAYERS_MAX && c->config->num_nextn_predict_layers <= 1);
    for (int32_t l = 0; l < c->config->num_hidden_layers; l++) {
        c->weights.layers[l].experts = calloc(experts, sizeof(struct expert_weights));
        ASSERT(c->weights.layers[l].experts != NULL);
    }
    c->weights.mtp[0].block.experts = calloc(experts, sizeof(struct expert_weights));
    ASSERT(c->weights.mtp[0].block.experts != NULL);
    enum status status = weights_visit(c->config, bind_weight, c, err);
    for (size_t i = 0; status == OK && i < c->tensor_count; i++) {
        if (!c->found[i].bound)
            status = error_set(err, ERR_INPUT, "%s/%s: tensor %s: not one of configuration %s",
                               c->dir, c->found[i].shard, c->found[i].entry->name, c->config->name);
    }
    return status;
}

/* ---- opening -------------------------------------------------------------------------------- */

enum status checkpoint_bind(const char *dir, struct checkpoint **out, struct error *err)
{
    struct checkpoint *c = calloc(1, sizeof *c);
    ASSERT(c != NULL);
    c->dir = strdup(dir);
    ASSERT(c->dir != NULL);
    enum status status = config_open(dir, &c->config, err);
    if (status == OK)
        status = files_open(c, err);
    if (status == OK)
        status = tensors_bind(c, err);
    if (status == OK)
        *out = c;
    else
        checkpoint_close(c);
    return status;
}

enum status checkpoint_check_values(const struct checkpoint *checkpoint, enum value_check depth,
                                    struct error *err)
{
    return values_check(checkpoint->config, &checkpoint->weights, depth, checkpoint->dir, err);
}

enum status checkpoint_open(const char *dir, struct checkpoint **out, struct error *err)
{
    struct checkpoint *c = NULL;
    enum status status = checkpoint_bind(dir, &c, err);
    if (status != OK)
        return status;
    bool small = c->tensor_bytes <= CHECKPOINT_VALUES_AT_OPEN_BYTES_MAX;
    struct error inner = {0};
    status = checkpoint_check_values(c, small ? VALUES_ALL : VALUES_INDICES, &inner);
    if (status != OK) { /* whoever opens a model asked for no check: to them it is bad input */
        status = error_set(err, ERR_INPUT, "%s", inner.text);
        checkpoint_close(c);
        return status;
    }
    *out = c;
    return OK;
}

void checkpoint_close(struct checkpoint *checkpoint)
{
    if (checkpoint == NULL)
        return;
    for (size_t i = 0; i < checkpoint->copy_count; i++)
        free(checkpoint->copies[i]);
    for (size_t i = 0; i < checkpoint->shard_count; i++)
        safetensors_close(&checkpoint->shards[i].file);
    for (size_t i = 0; i < LAYERS_MAX; i++)
        free(checkpoint->weights.layers[i].experts);
    free(checkpoint->weights.mtp[0].block.experts);
    free(checkpoint->copies);
    free(checkpoint->found);
    free(checkpoint->shards);
    free(checkpoint->dir);
    free(checkpoint);
}

const struct model_config *checkpoint_config(const struct checkpoint *checkpoint)
{
    return checkpoint->config;
}

const struct model_weights *checkpoint_weights(const struct checkpoint *checkpoint)
{
    return &checkpoint->weights;
}

uint64_t checkpoint_tensor_bytes(const struct checkpoint *checkpoint)
{
    return checkpoint->tensor_bytes;
}

size_t checkpoint_tensor_count(const struct checkpoint *checkpoint)
{
    return checkpoint->tensor_count;
}
