/*
 * `engine render`: prints the prompt that a request renders to, as text or as token ids, so that
 * outside checks can compare it with the official encoder.  Knows no rule of the encoding.
 */
#include "engine/commands.h"
#include "engine/text/chat.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct arguments {
    const char *tokenizer, *request;
    bool ids;
};

static bool arguments_read(int argc, char **argv, struct arguments *out)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--ids") == 0)
            out->ids = true;
        else if (strcmp(argv[i], "--tokenizer") == 0 && i + 1 < argc)
            out->tokenizer = argv[++i];
        else if (strcmp(argv[i], "--request") == 0 && i + 1 < argc)
            out->request = argv[++i];
        else
            return false;
    }
    return out->tokenizer != NULL && out->request != NULL;
}

/* The request file's fields; what chat_render checks itself is passed on as it is. */
static enum status request_read(struct json_object *file, struct chat_request *out,
                                struct error *err)
{
    if (!json_object_is_type(file, json_type_object))
        return error_set(err, ERR_INPUT, "expected an object");
    struct json_object *thinking = json_member(file, "thinking", NULL);
    struct json_object *effort = json_member(file, "effort", NULL);
    struct json_object *drop = json_member(file, "drop_thinking", NULL);
    if (effort != NULL && !json_object_is_type(effort, json_type_string))
        return error_set(err, ERR_INPUT, "effort: expected a string");
    if (drop != NULL && !json_object_is_type(drop, json_type_boolean))
        return error_set(err, ERR_INPUT, "drop_thinking: expected a boolean");
    const char *mode = "chat";
    if (thinking != NULL)
        mode =
            json_object_is_type(thinking, json_type_string) ? json_object_get_string(thinking) : "";
    if (strcmp(mode, "chat") != 0 && strcmp(mode, "thinking") != 0)
        return error_set(err, ERR_INPUT, "thinking: expected \"chat\" or \"thinking\"");
    *out = (struct chat_request){
        .messages = json_member(file, "messages", NULL),
        .tools = json_member(file, "tools", NULL),
        .response_format = json_member(file, "response_format", NULL),
        .thinking = strcmp(mode, "thinking") == 0,
        .effort = effort != NULL ? json_object_get_string(effort) : NULL,
        .drop_thinking = drop == NULL || json_object_get_boolean(drop),
    };
    return OK;
}

static void print_ids(const struct ids *ids)
{
    putchar('[');
    for (size_t i = 0; i < ids->len; i++)
        printf("%s%" PRId32, i > 0 ? ", " : "", ids->data[i]);
    puts("]");
}

static enum status render(const struct arguments *arguments, const struct tokenizer *tokenizer,
                          struct json_object *file, struct error *err)
{
    struct chat_tokens tokens;
    struct chat_request request;
    struct error inner = {0};
    enum status status = chat_tokens_find(tokenizer, &tokens, &inner);
    if (status != OK)
        return error_set(err, status, "%.256s: %.200s", arguments->tokenizer, inner.text);
    struct ids ids = {0};
    struct buf text = {0};
    status = request_read(file, &request, &inner);
    if (status == OK)
        status = chat_render(tokenizer, &tokens, &request, arguments->ids ? &ids : NULL,
                             arguments->ids ? NULL : &text, &inner);
    if (status != OK)
        error_set(err, status, "%.256s: %.200s", arguments->request, inner.text);
    else if (arguments->ids)
        print_ids(&ids);
    else
        fwrite(text.data, 1, text.len, stdout);
    if (status == OK && fflush(stdout) != 0)
        status = error_set(err, ERR_IO, "standard output: write error");
    ids_free(&ids);
    buf_free(&text);
    return status;
}

int cmd_render(int argc, char **argv)
{
    struct arguments arguments = {0};
    struct tokenizer *tokenizer = NULL;
    struct json_object *file = NULL;
    struct error err = {0};
    if (!arguments_read(argc, argv, &arguments)) {
        fprintf(stderr, "usage: engine render --tokenizer FILE --request FILE [--ids]\n");
        return status_exit_code(ERR_USAGE);
    }
    enum status status = tokenizer_open(arguments.tokenizer, &tokenizer, &err);
    if (status == OK)
        status = json_parse_file(arguments.request, REQUEST_FILE_BYTES_MAX, &file, &err);
    if (status == OK)
        status = render(&arguments, tokenizer, file, &err);
    if (status != OK)
        fprintf(stderr, "engine render: %s\n", err.text);
    json_object_put(file);
    tokenizer_close(tokenizer);
    return status_exit_code(status);
}
