/*
 * `engine layer`: one layer of the network from given input streams, for teacher-forced golden
 * tests. Files are raw little-endian float32 [tokens, HC_MULT, hidden].
 */
#include "engine/base/file.h"
#include "engine/commands.h"
#include "engine/model/inspect.h"
#include "engine/model/options.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct layer_options {
    const char *dir, *ids_path, *in_path, *out_path;
    struct model_options model;
    struct profile profile;
    int32_t layer, threads, ranks;
};

static enum status options_parse(int argc, char **argv, struct layer_options *o, struct error *err)
{
    struct flag flags[] = {
        {"--model", FLAG_TEXT, &o->dir, .required = true},
        {"--ids", FLAG_TEXT, &o->ids_path, .required = true},
        {"--layer", FLAG_NUMBER, &o->layer, .required = true},
        {"--profile", FLAG_PROFILE, &o->profile, .required = true},
        {"--in", FLAG_TEXT, &o->in_path, .required = true},
        {"--out", FLAG_TEXT, &o->out_path, .required = true},
        {"--isa", FLAG_ISA, &o->model.isa, .required = false},
        {"--threads", FLAG_NUMBER, &o->threads, .required = false},
        {"--ranks", FLAG_NUMBER, &o->ranks, .required = false},
        {"--weights", FLAG_TEXT, &o->model.weights, .required = false},
        {"--gpu", FLAG_NUMBER, &o->model.gpu, .required = false},
    };
    *o = (struct layer_options){0};
    enum status status = flags_parse(argc, argv, flags, sizeof flags / sizeof *flags, err);
    o->model.threads = o->threads;
    o->model.ranks = o->ranks;
    return status;
}

/* Copies, since a mapped file may be changed under the network. */
static enum status streams_read(const char *path, size_t values, float **out, struct error *err)
{
    struct mapping file;
    enum status status = file_map(path, &file, err);
    if (status != OK)
        return status;
    float *streams = calloc(values, sizeof *streams);
    if (streams == NULL) {
        status = error_set(err, ERR_CAPACITY, "out of memory");
    } else if (file.size != values * sizeof *streams) {
        status = error_set(err, ERR_INPUT, "%s: %zu bytes instead of %zu", path, file.size,
                           values * sizeof *streams);
    } else {
        memcpy(streams, file.data, file.size);
        for (size_t i = 0; i < values && status == OK; i++) {
            if (!isfinite(streams[i]))
                status = error_set(err, ERR_INPUT, "%s: value %zu is not finite", path, i);
        }
    }
    file_unmap(&file);
    if (status != OK) {
        free(streams);
        return status;
    }
    *out = streams;
    return OK;
}

static enum status streams_write(const char *path, const float *streams, size_t values,
                                 struct error *err)
{
    FILE *file = fopen(path, "wb");
    if (file == NULL)
        return error_set(err, ERR_IO, "%s: %s", path, strerror(errno));
    bool written = fwrite(streams, sizeof *streams, values, file) == values;
    if (fclose(file) != 0 || !written)
        return error_set(err, ERR_IO, "%s: %s", path, strerror(errno));
    return OK;
}

/* In place, in steps of what the network takes. */
static void layer_run(struct model *model, struct sequence *sequence, const struct layer_options *o,
                      const struct ids *ids, float *streams)
{
    size_t width = (size_t)HC_MULT * (size_t)model_config(model)->hidden_size;
    for (size_t at = 0; at < ids->len; at += SPAN_TOKENS_MAX) {
        size_t n = ids->len - at < SPAN_TOKENS_MAX ? ids->len - at : SPAN_TOKENS_MAX;
        float *rows = streams + at * width;
        model_layer(model, &o->profile, sequence, o->layer, LEG_PREFILL, ids->data + at, (int32_t)n,
                    rows, rows);
    }
}

static enum status command_run(const struct layer_options *o, struct error *err)
{
    struct model *model = NULL;
    struct sequence *sequence = NULL;
    struct ids ids = {0};
    float *streams = NULL;
    size_t values = 0;
    enum status status = model_open(o->dir, &o->model, &model, err);
    if (status != OK)
        return status;
    const struct model_config *config = model_config(model);
    if (o->layer >= config->num_hidden_layers)
        status = error_set(err, ERR_USAGE, "--layer: 0 to %d", config->num_hidden_layers - 1);
    if (status == OK)
        status = ids_file_read(o->ids_path, config->vocab_size, &ids, err);
    if (status == OK) {
        values = ids.len * HC_MULT * (size_t)config->hidden_size;
        status = streams_read(o->in_path, values, &streams, err);
    }
    if (status == OK)
        status = sequence_create(model, (int32_t)ids.len, &sequence, err);
    if (status == OK) {
        layer_run(model, sequence, o, &ids, streams);
        status = streams_write(o->out_path, streams, values, err);
    }
    free(streams);
    ids_free(&ids);
    sequence_destroy(sequence);
    model_close(model);
    return status;
}

int cmd_layer(int argc, char **argv)
{
    struct layer_options options;
    struct error err = {0};
    enum status status = options_parse(argc, argv, &options, &err);
    if (status == OK)
        status = command_run(&options, &err);
    if (status != OK)
        fprintf(stderr, "engine layer: %s\n", err.text);
    return status_exit_code(status);
}
