/* Reading golden files, whatever is in them, and distances from their rows. */
#include "engine/audit/golden.h"

#include "common/leaves.h"
#include "config/limits.h"
#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/model/logits.h"
#include "engine/precision/profile.h"
#include "kernels/check.h"

#include <math.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SCHEMA "v4box-golden/1"

struct golden_row {
    int32_t position, n;
    double tail;
    int32_t ids[GOLDEN_TOP_MAX]; /* the likeliest first */
    double logprobs[GOLDEN_TOP_MAX];
};

struct golden {
    char *made_by; /* owns */
    const struct profile *profile;
    char sha256[65];
    struct ids ids;          /* owns */
    struct golden_row *rows; /* owns [n_rows], by position */
    int32_t n_rows;
};

/* Of bytes, in hex. */
static void sha256_of(const struct buf *text, char hex[65])
{
    unsigned char hash[crypto_hash_sha256_BYTES];
    crypto_hash_sha256(hash, (const unsigned char *)text->data, text->len);
    sodium_bin2hex(hex, 65, hash, sizeof hash);
}

enum status golden_model_of(const char *dir, const char *name, int32_t vocab,
                            struct golden_model *out, struct error *err)
{
    struct buf path = {0}, text = {0};
    enum status status = OK;
    *out = (struct golden_model){.name = name, .vocab = vocab};
    buf_printf(&path, "%s/" LEAVES_MANIFEST, dir);
    bool there = access(buf_cstr(&path), F_OK) == 0;
    if (there)
        status = file_read(buf_cstr(&path), MANIFEST_BYTES_MAX, &text, err);
    if (there && status == OK)
        sha256_of(&text, out->weights);
    buf_free(&path);
    buf_free(&text);
    return status;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* -1 unless it is a whole number below `end`. */
static int32_t number_of(struct json_object *value, int32_t end)
{
    int64_t n = value != NULL && json_object_is_type(value, json_type_int)
                    ? json_object_get_int64(value)
                    : -1;
    return n >= 0 && n < end ? (int32_t)n : -1;
}

/* NaN unless it is a number. */
static double real_of(struct json_object *value)
{
    bool number = value != NULL && (json_object_is_type(value, json_type_double) ||
                                    json_object_is_type(value, json_type_int));
    return number ? json_object_get_double(value) : NAN;
}

/* 0 unless it is an array of at most `most`. */
static size_t list_of(struct json_object *object, const char *key, size_t most,
                      struct json_object **out)
{
    *out = json_object_is_type(object, json_type_object) ? json_member(object, key, NULL) : NULL;
    size_t n = *out != NULL && json_object_is_type(*out, json_type_array)
                   ? json_object_array_length(*out)
                   : 0;
    return n <= most ? n : 0;
}

static enum status take_made(struct json_object *root, const struct golden_model *model,
                             struct golden *g, struct error *err)
{
    struct json_object *made = json_member(root, "made", NULL);
    struct json_object *of = json_member(root, "model", NULL);
    const char *schema = json_text(root, "schema"), *by = json_text(made, "by");
    const char *profile = json_text(made, "profile"), *name = json_text(of, "name");
    const char *weights = json_text(of, "weights");
    if (schema == NULL || strcmp(schema, SCHEMA) != 0)
        return error_set(err, ERR_INPUT, "schema: want " SCHEMA);
    if (by == NULL || by[0] == '\0' || strlen(by) >= GOLDEN_MADE_BYTES)
        return error_set(err, ERR_INPUT, "made.by: want a text of 1 to %d bytes",
                         GOLDEN_MADE_BYTES - 1);
    g->profile = profile == NULL ? NULL : profile_builtin(profile);
    if (g->profile == NULL)
        return error_set(err, ERR_INPUT, "made.profile: want a built-in profile");
    if (name == NULL || strcmp(name, model->name) != 0)
        return error_set(err, ERR_INPUT, "model.name: want %s", model->name);
    if (weights == NULL || strcmp(weights, model->weights) != 0)
        return error_set(err, ERR_INPUT, "model.weights: of other weights");
    g->made_by = strdup(by);
    ASSERT(g->made_by != NULL);
    return OK;
}

static enum status take_ids(struct json_object *root, const struct golden_model *model,
                            struct golden *g, struct error *err)
{
    struct json_object *list;
    size_t n = list_of(root, "ids", GOLDEN_TOKENS_MAX, &list);
    if (n < 2)
        return error_set(err, ERR_INPUT, "ids: want 2 to %d", GOLDEN_TOKENS_MAX);
    for (size_t i = 0; i < n; i++) {
        int32_t id = number_of(json_object_array_get_idx(list, i), model->vocab);
        if (id < 0)
            return error_set(err, ERR_INPUT, "ids[%zu]: no id below %d", i, (int)model->vocab);
        ids_add(&g->ids, id);
    }
    return OK;
}

/* One id with its log-probability, after those that the row has. */
static bool take_top(struct json_object *pair, int32_t vocab, struct golden_row *row)
{
    bool two = pair != NULL && json_object_is_type(pair, json_type_array) &&
               json_object_array_length(pair) == 2;
    int32_t id = two ? number_of(json_object_array_get_idx(pair, 0), vocab) : -1;
    double logprob = two ? real_of(json_object_array_get_idx(pair, 1)) : NAN;
    bool good = id >= 0 && logprob <= 0 && logprob > -INFINITY;
    for (int32_t i = 0; i < row->n; i++)
        good = good && row->ids[i] != id;
    good = good && (row->n == 0 || logprob <= row->logprobs[row->n - 1]);
    row->ids[row->n] = id;
    row->logprobs[row->n++] = logprob;
    return good;
}

static enum status take_row(struct json_object *from, const struct golden_model *model,
                            struct golden *g, struct golden_row *row, struct error *err)
{
    struct json_object *top;
    size_t n = list_of(from, "top", GOLDEN_TOP_MAX, &top);
    bool object = json_object_is_type(from, json_type_object);
    row->position =
        number_of(object ? json_member(from, "position", NULL) : NULL, (int32_t)g->ids.len);
    row->tail = real_of(object ? json_member(from, "tail", NULL) : NULL);
    int32_t before = g->n_rows > 0 ? g->rows[g->n_rows - 1].position : -1;
    if (row->position <= before)
        return error_set(err, ERR_INPUT, "position: want one of the text, behind the last");
    if (!(row->tail >= 0 && row->tail <= 1))
        return error_set(err, ERR_INPUT, "tail: want 0 to 1");
    if (n == 0)
        return error_set(err, ERR_INPUT, "top: want 1 to %d", GOLDEN_TOP_MAX);
    double sum = row->tail;
    for (size_t i = 0; i < n; i++) {
        if (!take_top(json_object_array_get_idx(top, i), model->vocab, row))
            return error_set(err, ERR_INPUT, "top[%zu]: want a new id and its log-probability", i);
        sum += exp(row->logprobs[i]);
    }
    if (fabs(sum - 1) > GOLDEN_SUM_OFF)
        return error_set(err, ERR_INPUT, "top and tail sum to %.6f", sum);
    return OK;
}

static enum status take_all(struct json_object *root, const struct golden_model *model,
                            struct golden *g, struct error *err)
{
    struct json_object *list;
    struct error why;
    if (!json_object_is_type(root, json_type_object))
        return error_set(err, ERR_INPUT, "expected an object");
    enum status status = take_made(root, model, g, err);
    if (status == OK)
        status = take_ids(root, model, g, err);
    size_t n = status == OK ? list_of(root, "rows", g->ids.len, &list) : 0;
    if (status == OK && n == 0)
        status = error_set(err, ERR_INPUT, "rows: want 1 to %zu", g->ids.len);
    g->rows = calloc(n + 1, sizeof *g->rows);
    ASSERT(g->rows != NULL);
    for (size_t i = 0; i < n && status == OK; i++) {
        status = take_row(json_object_array_get_idx(list, i), model, g, &g->rows[i], &why);
        if (status == OK)
            g->n_rows++;
        else
            (void)error_set(err, status, "rows[%zu].%s", i, why.text);
    }
    return status;
}

enum status golden_parse(const struct buf *text, const struct golden_model *model,
                         struct golden **out, struct error *err)
{
    struct json_object *root = NULL;
    enum status status = json_parse(text->data, text->len, &root, NULL, err);
    if (status != OK)
        return status;
    struct golden *g = calloc(1, sizeof *g);
    ASSERT(g != NULL);
    status = take_all(root, model, g, err);
    json_object_put(root);
    if (status != OK) {
        golden_free(g);
        return status;
    }
    sha256_of(text, g->sha256);
    *out = g;
    return OK;
}

enum status golden_read(const char *path, const struct golden_model *model, struct golden **out,
                        struct error *err)
{
    struct buf text = {0};
    struct error why;
    enum status status = file_read(path, GOLDEN_BYTES_MAX, &text, err);
    if (status == OK) {
        status = golden_parse(&text, model, out, &why);
        if (status != OK)
            (void)error_set(err, status, "%s: %s", path, why.text);
    }
    buf_free(&text);
    return status;
}

void golden_free(struct golden *g)
{
    if (g == NULL)
        return;
    free(g->made_by);
    free(g->rows);
    ids_free(&g->ids);
    free(g);
}

const char *golden_made_by(const struct golden *g)
{
    return g->made_by;
}

const char *golden_profile(const struct golden *g)
{
    return g->profile->name;
}

const char *golden_sha256(const struct golden *g)
{
    return g->sha256;
}

const struct ids *golden_ids(const struct golden *g)
{
    return &g->ids;
}

int32_t golden_rows(const struct golden *g)
{
    return g->n_rows;
}

/* ---- distances ------------------------------------------------------------------------------- */

static const struct golden_row *row_at(const struct golden *g, int32_t position)
{
    int32_t low = 0, high = g->n_rows;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (g->rows[middle].position < position)
            low = middle + 1;
        else
            high = middle;
    }
    return low < g->n_rows && g->rows[low].position == position ? &g->rows[low] : NULL;
}

bool golden_kl(const struct golden *g, int32_t position, const float *row, int32_t vocab,
               double *out, bool *same_top)
{
    const struct golden_row *golden = row_at(g, position);
    if (golden == NULL)
        return false;
    double sum = 0, rest = 1, first = logits_logprob(row, vocab, golden->ids[0]);
    for (int32_t i = 0; i < golden->n; i++) {
        double here = first + ((double)row[golden->ids[i]] - row[golden->ids[0]]);
        sum += exp(golden->logprobs[i]) * (golden->logprobs[i] - here);
        rest -= exp(here);
    }
    /* Of a tail that is rounding nothing can be said, and less than rounding is no mass. */
    if (golden->tail > GOLDEN_TAIL_NOTHING)
        sum += golden->tail * log(golden->tail / fmax(rest, GOLDEN_TAIL_NOTHING));
    *out = isfinite(sum) ? fmax(sum, 0) : INFINITY;
    *same_top = logits_top(row, vocab) == golden->ids[0];
    return true;
}
