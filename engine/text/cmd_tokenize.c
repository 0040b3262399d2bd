/*
 * `engine tokenize` and `engine detokenize`: standard input to ids, ids to bytes.  Knows only
 * flags.
 */
#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/commands.h"
#include "engine/text/tokenizer.h"

#include <stdio.h>
#include <string.h>

/* Reads the flags; `special` is NULL for the command that has none. */
static enum status read_flags(int argc, char **argv, const char **path, bool *special,
                              struct error *err)
{
    *path = NULL;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--tokenizer") == 0 && i + 1 < argc)
            *path = argv[++i];
        else if (special != NULL && strcmp(argv[i], "--special") == 0)
            *special = true;
        else
            return error_set(err, ERR_USAGE, "unknown or incomplete argument '%.32s'", argv[i]);
    }
    if (*path == NULL)
        return error_set(err, ERR_USAGE, "--tokenizer FILE is needed");
    return OK;
}

static enum status write_out(const struct buf *out, struct error *err)
{
    if (fwrite(out->data, 1, out->len, stdout) != out->len || fflush(stdout) != 0)
        return error_set(err, ERR_IO, "standard output: cannot write");
    return OK;
}

static int finish(const char *command, enum status status, const struct error *err)
{
    if (status != OK)
        fprintf(stderr, "engine %s: %s\n", command, err->text);
    return status_exit_code(status);
}

static enum status tokenize(const char *path, bool special, struct error *err)
{
    struct tokenizer *tokenizer = NULL;
    struct buf text = {0}, out = {0};
    struct ids ids = {0};
    enum status status = tokenizer_open(path, &tokenizer, err);
    if (status == OK)
        status = file_read("-", TOKENIZE_INPUT_BYTES_MAX, &text, err);
    if (status == OK) {
        tokenizer_encode(tokenizer, text.data, text.len, special, &ids);
        buf_puts(&out, "[");
        for (size_t i = 0; i < ids.len; i++)
            buf_printf(&out, i == 0 ? "%d" : ", %d", (int)ids.data[i]);
        buf_puts(&out, "]\n");
        status = write_out(&out, err);
    }
    tokenizer_close(tokenizer);
    buf_free(&text);
    buf_free(&out);
    ids_free(&ids);
    return status;
}

/* Appends the bytes of all ids of a JSON array. */
static enum status join_tokens(const struct tokenizer *tokenizer, struct json_object *ids,
                               struct buf *out, struct error *err)
{
    if (!json_object_is_type(ids, json_type_array))
        return error_set(err, ERR_INPUT, "standard input: not a JSON array");
    for (size_t i = 0; i < json_object_array_length(ids); i++) {
        struct json_object *value = json_object_array_get_idx(ids, i);
        int64_t id = json_object_is_type(value, json_type_int) ? json_object_get_int64(value) : -1;
        if (id < 0 || id >= tokenizer_vocab_size(tokenizer))
            return error_set(err, ERR_INPUT, "standard input: [%zu] is not an id below %d", i,
                             (int)tokenizer_vocab_size(tokenizer));
        size_t len;
        const char *bytes = tokenizer_token_bytes(tokenizer, (int32_t)id, &len);
        buf_add(out, bytes, len);
    }
    return OK;
}

static enum status detokenize(const char *path, struct error *err)
{
    struct tokenizer *tokenizer = NULL;
    struct json_object *ids = NULL;
    struct buf text = {0}, out = {0};
    struct error inner = {0};
    enum status status = tokenizer_open(path, &tokenizer, err);
    if (status == OK)
        status = file_read("-", TOKENIZE_INPUT_BYTES_MAX, &text, err);
    if (status == OK) {
        status = json_parse(text.data, text.len, &ids, NULL, &inner);
        if (status != OK)
            error_set(err, status, "standard input: %.400s", inner.text);
    }
    if (status == OK)
        status = join_tokens(tokenizer, ids, &out, err);
    if (status == OK)
        status = write_out(&out, err);
    json_object_put(ids);
    tokenizer_close(tokenizer);
    buf_free(&text);
    buf_free(&out);
    return status;
}

int cmd_tokenize(int argc, char **argv)
{
    const char *path;
    bool special = false;
    struct error err = {0};
    enum status status = read_flags(argc, argv, &path, &special, &err);
    if (status == OK)
        status = tokenize(path, special, &err);
    return finish("tokenize", status, &err);
}

int cmd_detokenize(int argc, char **argv)
{
    const char *path;
    struct error err = {0};
    enum status status = read_flags(argc, argv, &path, NULL, &err);
    if (status == OK)
        status = detokenize(path, &err);
    return finish("detokenize", status, &err);
}
