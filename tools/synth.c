/*
 * synth: writes a synthetic checkpoint in the official layout from a config.json and a seed, so
 * that tests need no stored weights.  The bytes are those of tests/golden/synth.py, the independent
 * statement of the same function (kernels/synth.h); the list of tensors is config/weights.def.
 *
 * Streams: memory is one header and one chunk.  Knows nothing of the engine's rows: any counts will
 * do as long as the widths that config/model.h fixes are kept.
 */
#include "config/limits.h"
#include "engine/base/json.h"
#include "engine/model/config.h"
#include "engine/model/made.h"
#include "kernels/check.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHUNK_BYTES 524288 /* whole elements of any width */
/* Keeps every product of two counts of weights.def inside 31 bits; the vocabulary is in no product.
 */
#define COUNT_MAX 32767
#define VOCAB_MAX (1 << 24)

struct options {
    const char *config, *out_dir;
    uint64_t seed;
    bool dry_run, sparse, nvfp4;
};

/* ---- factors of NVFP4 ----------------------------------------------------------------------- */

/* Root mean square of the stored scales, as MADE_RMS_FP4.  The largest code and scale are 6 and
 * 448: amax of a matrix is 6 * 448 * factor. */
#define RMS_NVFP4_SCALE 280.2

/* One number; w1 and w3 of an expert, which are one product, share it. */
static void fill_factor(uint8_t *at, const struct weight_spec *spec, int part, uint64_t seed)
{
    struct stored_tensor stored[STORED_MAX];
    weight_stored(spec, stored);
    char *name = stored[part].name;
    char *matrix = strstr(name, ".w3.");
    if (matrix != NULL)
        memcpy(matrix, ".w1.", 4);
    double size = part == STORED_INPUT ? 1.0 / (6 * 448)
                                       : 1.0 / sqrt(spec->cols) / MADE_RMS_FP4 / RMS_NVFP4_SCALE;
    uint32_t bits =
        synth_float_bits(size * (1 + 0.25 * synth_unit(synth_word(made_state(name, seed), 0))));
    for (int i = 0; i < 4; i++) /* little endian, whatever the machine */
        at[i] = (uint8_t)(bits >> (8 * i));
}

/* ---- the file ------------------------------------------------------------------------------- */

struct writer {
    const struct model_config *config;
    uint64_t seed;
    bool nvfp4;        /* of routed experts */
    struct buf header; /* JSON so far */
    uint64_t tensors, bytes;
    FILE *file;
    uint8_t chunk[CHUNK_BYTES];
};

/* The weight in the form that it is written in. */
static struct weight_spec spec_written(const struct writer *w, const struct weight_spec *listed)
{
    struct weight_spec spec = *listed;
    if (w->nvfp4 && spec.store == STORE_FP4)
        spec.store = STORE_NVFP4;
    return spec;
}

static enum status header_weight(void *user, const struct weight_spec *listed, struct error *err)
{
    (void)err;
    struct writer *w = user;
    struct weight_spec spec = spec_written(w, listed);
    struct stored_tensor stored[STORED_MAX];
    int parts = weight_stored(&spec, stored);
    for (int i = 0; i < parts; i++) {
        const struct stored_tensor *t = &stored[i];
        buf_printf(&w->header, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", t->name, t->dtype);
        for (int d = 0; d < t->dims; d++)
            buf_printf(&w->header, "%s%" PRId64, d > 0 ? "," : "", t->shape[d]);
        buf_printf(&w->header, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", w->bytes,
                   w->bytes + t->bytes);
        w->bytes += t->bytes;
        w->tensors++;
    }
    return OK;
}

static enum status header_make(struct writer *w, struct error *err)
{
    buf_puts(&w->header, "{\"__metadata__\":{\"format\":\"pt\"}");
    enum status status = weights_visit(w->config, header_weight, w, err);
    buf_puts(&w->header, "}");
    while (w->header.len % 8 != 0)
        buf_puts(&w->header, " ");
    return status;
}

static enum status data_weight(void *user, const struct weight_spec *listed, struct error *err)
{
    struct writer *w = user;
    struct weight_spec spec = spec_written(w, listed);
    struct stored_tensor stored[STORED_MAX];
    int parts = weight_stored(&spec, stored);
    for (int i = 0; i < parts; i++) {
        struct synth made = {0};
        if (i < STORED_GLOBAL)
            made = made_stored(w->config, &spec, i, stored[i].name, w->seed);
        for (uint64_t at = 0; at < stored[i].bytes; at += CHUNK_BYTES) {
            uint64_t left = stored[i].bytes - at, bytes = left < CHUNK_BYTES ? left : CHUNK_BYTES;
            if (i < STORED_GLOBAL)
                synth_fill(&made, at, bytes, w->chunk);
            else
                fill_factor(w->chunk, &spec, i, w->seed);
            if (fwrite(w->chunk, 1, bytes, w->file) != bytes)
                return error_set(err, ERR_IO, "cannot write: %s", strerror(errno));
        }
    }
    return OK;
}

static enum status checkpoint_write(struct writer *w, const char *path, bool sparse,
                                    struct error *err)
{
    uint8_t prefix[8];
    for (int i = 0; i < 8; i++)
        prefix[i] = (uint8_t)((uint64_t)w->header.len >> (8 * i));
    w->file = fopen(path, "wb");
    if (w->file == NULL)
        return error_set(err, ERR_IO, "%s: %s", path, strerror(errno));
    enum status status = OK;
    struct error inner = {0};
    if (fwrite(prefix, 1, sizeof prefix, w->file) != sizeof prefix ||
        fwrite(w->header.data, 1, w->header.len, w->file) != w->header.len || fflush(w->file) != 0)
        status = error_set(&inner, ERR_IO, "cannot write: %s", strerror(errno));
    else if (!sparse)
        status = weights_visit(w->config, data_weight, w, &inner);
    else if (ftruncate(fileno(w->file), (off_t)(sizeof prefix + w->header.len + w->bytes)) != 0)
        status = error_set(&inner, ERR_IO, "cannot set the size: %s", strerror(errno));
    if (fclose(w->file) != 0 && status == OK)
        status = error_set(&inner, ERR_IO, "cannot write: %s", strerror(errno));
    if (status != OK)
        error_set(err, status, "%s: %s", path, inner.text);
    return status;
}

/* ---- config.json ---------------------------------------------------------------------------- */

/* Reads the counts; unlike the engine, which only compares them. */
static enum status config_counts(struct json_object *json, const char *path,
                                 struct model_config *out, struct error *err)
{
    for (size_t i = 0; i < CONFIG_FIELD_COUNT; i++) {
        const struct config_field *field = &CONFIG_FIELDS[i];
        if (field->kind != CONFIG_COUNT)
            continue;
        bool zero_ok = field->member == offsetof(struct model_config, num_hash_layers) ||
                       field->member == offsetof(struct model_config, num_nextn_predict_layers);
        int64_t max =
            field->member == offsetof(struct model_config, vocab_size) ? VOCAB_MAX : COUNT_MAX;
        struct json_object *value = config_lookup(json, field->path);
        if (value == NULL && zero_ok)
            continue;
        int64_t number =
            json_object_is_type(value, json_type_int) ? json_object_get_int64(value) : -1;
        if (number < (zero_ok ? 0 : 1) || number > max)
            return error_set(err, ERR_INPUT, "%s: %s: expected an integer up to %" PRId64, path,
                             field->path, max);
        int32_t narrow = (int32_t)number;
        memcpy((char *)out + field->member, &narrow, sizeof narrow);
    }
    if (out->n_routed_experts < 2)
        return error_set(err, ERR_INPUT, "%s: n_routed_experts: expected at least 2", path);
    return OK;
}

static enum status config_ratios(struct json_object *json, const char *path,
                                 struct model_config *out, struct error *err)
{
    int32_t blocks = out->num_hidden_layers + out->num_nextn_predict_layers;
    struct json_object *ratios = config_lookup(json, "compress_ratios");
    if (blocks > LAYERS_MAX)
        return error_set(err, ERR_INPUT, "%s: num_hidden_layers: more than %d blocks", path,
                         LAYERS_MAX);
    if (!json_object_is_type(ratios, json_type_array) ||
        json_object_array_length(ratios) < (size_t)blocks)
        return error_set(err, ERR_INPUT, "%s: compress_ratios: expected one for each block", path);
    for (int32_t i = 0; i < blocks; i++) {
        struct json_object *value = json_object_array_get_idx(ratios, (size_t)i);
        int64_t ratio =
            json_object_is_type(value, json_type_int) ? json_object_get_int64(value) : -1;
        if (ratio != 0 && ratio != RATIO_CSA && ratio != RATIO_HCA)
            return error_set(err, ERR_INPUT, "%s: compress_ratios[%d]: expected 0, %d or %d", path,
                             i, RATIO_CSA, RATIO_HCA);
        out->compress_ratios[i] = (uint8_t)ratio;
    }
    return OK;
}

static enum status config_read(struct json_object *json, const char *path, struct model_config *out,
                               struct error *err)
{
    static const struct {
        const char *path;
        int64_t width;
    } WIDTHS[] = {{"head_dim", HEAD_DIM}, {"index_head_dim", INDEX_HEAD_DIM}, {"hc_mult", HC_MULT}};
    if (!json_object_is_type(json, json_type_object))
        return error_set(err, ERR_INPUT, "%s: not a JSON object", path);
    for (size_t i = 0; i < sizeof WIDTHS / sizeof WIDTHS[0]; i++) {
        struct json_object *value = config_lookup(json, WIDTHS[i].path);
        if (!json_object_is_type(value, json_type_int) ||
            json_object_get_int64(value) != WIDTHS[i].width)
            return error_set(err, ERR_INPUT, "%s: %s: expected %" PRId64, path, WIDTHS[i].path,
                             WIDTHS[i].width);
    }
    enum status status = config_counts(json, path, out, err);
    return status != OK ? status : config_ratios(json, path, out, err);
}

static void newline(struct buf *out, int depth)
{
    buf_printf(out, "\n%*s", depth, "");
}

/* One UTF-8 character (valid: the reader checked) as \uXXXX, a surrogate pair beyond 16 bits. */
static size_t escape_character(struct buf *out, const char *text)
{
    unsigned char lead = (unsigned char)text[0];
    size_t n = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    uint32_t c = lead & (0xFFu >> (n + 1));
    for (size_t i = 1; i < n; i++)
        c = c << 6 | ((unsigned char)text[i] & 0x3F);
    if (c >= 0x10000)
        buf_printf(out, "\\u%04x\\u%04x", 0xD800 + ((c - 0x10000) >> 10), 0xDC00 + (c & 0x3FF));
    else
        buf_printf(out, "\\u%04x", c);
    return n;
}

/* json.dump(value, indent=1) from the one-line form: breaks lines outside strings, plain ASCII. */
static void print_indented(struct buf *out, struct json_object *json)
{
    struct buf line = {0};
    json_dump_normal(&line, json);
    int depth = 0;
    bool quoted = false;
    for (size_t i = 0; i < line.len; i++) {
        char c = line.data[i], next = i + 1 < line.len ? line.data[i + 1] : '\0';
        if ((unsigned char)c >= 0x80) {
            i += escape_character(out, line.data + i) - 1;
            continue;
        }
        if (!quoted && (c == '}' || c == ']'))
            newline(out, --depth);
        buf_add(out, &c, 1);
        if (quoted && c == '\\') {
            buf_add(out, &next, 1);
            i++;
        } else if (c == '"') {
            quoted = !quoted;
        } else if (!quoted && (c == '{' || c == '[')) {
            if (next == '}' || next == ']')
                buf_add(out, &line.data[++i], 1);
            else
                newline(out, ++depth);
        } else if (!quoted && c == ',') {
            newline(out, depth);
            i++; /* the space */
        }
    }
    buf_free(&line);
}

static enum status config_write(struct json_object *json, const char *path, struct error *err)
{
    struct buf text = {0};
    print_indented(&text, json);
    FILE *file = fopen(path, "wb");
    bool good = file != NULL && fwrite(text.data, 1, text.len, file) == text.len;
    if (file != NULL && fclose(file) != 0)
        good = false;
    buf_free(&text);
    return good ? OK : error_set(err, ERR_IO, "%s: cannot write: %s", path, strerror(errno));
}

/* ---- the program ---------------------------------------------------------------------------- */

static enum status make_folders(const char *dir, struct error *err)
{
    struct buf path = {0};
    buf_puts(&path, dir);
    buf_cstr(&path);
    enum status status = OK;
    for (size_t i = 1; status == OK && i <= path.len; i++) {
        char c = path.data[i];
        if (c != '/' && c != '\0')
            continue;
        path.data[i] = '\0';
        if (mkdir(path.data, 0777) != 0 && errno != EEXIST)
            status = error_set(err, ERR_IO, "%s: %s", path.data, strerror(errno));
        path.data[i] = c;
    }
    buf_free(&path);
    return status;
}

static enum status files_write(struct writer *w, struct json_object *json,
                               const struct options *options, struct error *err)
{
    struct buf path = {0};
    buf_printf(&path, "%s/model.safetensors", options->out_dir);
    enum status status = make_folders(options->out_dir, err);
    if (status == OK)
        status = checkpoint_write(w, buf_cstr(&path), options->sparse, err);
    path.len = 0;
    buf_printf(&path, "%s/config.json", options->out_dir);
    if (status == OK)
        status = config_write(json, buf_cstr(&path), err);
    buf_free(&path);
    return status;
}

static enum status run(const struct options *options, struct error *err)
{
    static struct writer w;
    struct model_config config = {.name = "synthetic"};
    struct json_object *json = NULL;
    enum status status = json_parse_file(options->config, CHECKPOINT_CONFIG_BYTES_MAX, &json, err);
    if (status == OK)
        status = config_read(json, options->config, &config, err);
    w.config = &config;
    w.seed = options->seed;
    w.nvfp4 = options->nvfp4;
    if (status == OK && options->nvfp4)
        json_object_object_add(json, "moe_quant_algo", json_object_new_string("NVFP4"));
    if (status == OK)
        status = header_make(&w, err);
    if (status == OK && !options->dry_run)
        status = files_write(&w, json, options, err);
    if (status == OK)
        printf("%s: %" PRIu64 " tensors, %" PRIu64 " bytes of tensors, header %zu bytes\n",
               options->out_dir, w.tensors, w.bytes, w.header.len);
    buf_free(&w.header);
    json_object_put(json);
    return status;
}

static bool options_parse(int argc, char **argv, struct options *out)
{
    int words = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--dry-run") == 0) {
            out->dry_run = true;
        } else if (strcmp(argv[i], "--sparse") == 0) {
            out->sparse = true;
        } else if (strcmp(argv[i], "--nvfp4") == 0) {
            out->nvfp4 = true;
        } else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc) {
            char *end;
            errno = 0;
            out->seed = strtoull(argv[++i], &end, 10);
            if (errno != 0 || *end != '\0' || argv[i][0] < '0' || argv[i][0] > '9')
                return false;
        } else if (argv[i][0] != '-' && words < 2) {
            *(words++ == 0 ? &out->config : &out->out_dir) = argv[i];
        } else {
            return false;
        }
    }
    return words == 2;
}

int main(int argc, char **argv)
{
    struct options options = {.seed = 1};
    if (!options_parse(argc, argv, &options)) {
        fprintf(stderr,
                "usage: synth CONFIG.json OUT_DIR [--seed N] [--nvfp4] [--sparse | --dry-run]\n"
                "  --nvfp4    routed experts in NVIDIA's layout\n"
                "  --sparse   header and size, no data\n"
                "  --dry-run  write nothing, print the totals\n");
        return 2;
    }
    struct error err = {0};
    enum status status = run(&options, &err);
    if (status != OK)
        fprintf(stderr, "synth: %s\n", err.text);
    return status_exit_code(status);
}
