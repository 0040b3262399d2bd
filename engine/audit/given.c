/* Reading, cutting into exchanges, and rendering. */
#include "engine/audit/given.h"

#include "engine/api/request.h"
#include "kernels/check.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

/* Whatever model the request was meant for. */
static const char MODEL[] = "audit";

struct audit_given {
    struct request request; /* owns */
    struct ids prompt;      /* owns; in place of the request */
    char *expected;         /* owns, or NULL */
    int32_t *exchange; /* owns [n_messages]: the exchange of each message; -1: in front of all */
    int32_t n_messages, n_exchanges;
};

static bool is_role(struct json_object *message, const char *role)
{
    const char *text = json_text(message, "role");
    return text != NULL && strcmp(text, role) == 0;
}

/* Takes the expected answer out of the body. */
static enum status take_expected(struct json_object *root, struct audit_given *g, struct error *err)
{
    struct json_object *said = json_member(root, "expected", NULL);
    struct json_object *messages = json_member(root, "messages", NULL);
    size_t n = messages != NULL && json_object_is_type(messages, json_type_array)
                   ? json_object_array_length(messages)
                   : 0;
    struct json_object *last = n > 1 ? json_object_array_get_idx(messages, n - 1) : NULL;
    const char *expected = NULL, *field = "expected";
    if (said != NULL) {
        expected = json_text(root, "expected");
    } else if (last != NULL && is_role(last, "assistant") &&
               json_member(last, "prefix", NULL) == NULL) {
        field = "messages: the last content";
        expected = json_text(last, "content");
    } else {
        return OK;
    }
    if (expected == NULL || expected[0] == '\0' || strlen(expected) >= AUDIT_EXPECTED_BYTES)
        return error_set(err, ERR_INPUT, "%s: want a text of 1 to %d bytes", field,
                         AUDIT_EXPECTED_BYTES - 1);
    g->expected = strdup(expected);
    ASSERT(g->expected != NULL);
    if (said == NULL)
        json_object_array_del_idx(messages, n - 1, 1);
    return OK;
}

static void find_exchanges(struct audit_given *g)
{
    g->n_messages = (int32_t)json_object_array_length(g->request.messages);
    g->exchange = calloc((size_t)g->n_messages, sizeof *g->exchange);
    ASSERT(g->exchange != NULL);
    for (int32_t i = 0; i < g->n_messages; i++) {
        g->n_exchanges +=
            is_role(json_object_array_get_idx(g->request.messages, (size_t)i), "user");
        g->exchange[i] = g->n_exchanges - 1;
    }
}

static enum status body_read(struct json_object *root, struct audit_given *g, struct error *err)
{
    const struct request_defaults defaults = {.model = MODEL};
    struct api_error why = {0};
    if (!json_object_is_type(root, json_type_object)) {
        json_object_put(root);
        return error_set(err, ERR_INPUT, "expected an object");
    }
    enum status status = take_expected(root, g, err);
    if (status != OK) {
        json_object_put(root);
        return status;
    }
    ASSERT(json_object_object_add(root, "model", json_object_new_string(MODEL)) == 0);
    if (!request_read(root, &defaults, &g->request, &why))
        return error_set(err, ERR_INPUT, "%s: %s", why.param, api_error_row(why.code)->text);
    find_exchanges(g);
    return OK;
}

enum status given_read(const char *path, const struct audit_text *text, struct audit_given **out,
                       struct error *err)
{
    struct json_object *root;
    enum status status = json_parse_file(path, REQUEST_FILE_BYTES_MAX, &root, err);
    if (status != OK)
        return status;
    struct audit_given *g = calloc(1, sizeof *g);
    struct audit_item item = {0};
    struct error why = {0};
    ASSERT(g != NULL);
    status = body_read(root, g, &why);
    if (status == OK)
        status = given_item(g, text, NULL, &item, &why);
    audit_item_free(&item);
    if (status == OK) {
        *out = g;
        return OK;
    }
    given_free(g);
    return error_set(err, status, "%.256s: %.200s", path, why.text);
}

/* ---- prompts that were recorded -------------------------------------------------------------- */

struct audit_given *given_of_prompt(const struct ids *prompt, const struct audit_text *text)
{
    struct audit_given *g = calloc(1, sizeof *g);
    ASSERT(g != NULL && prompt->len > 0);
    for (size_t i = 0; i < prompt->len; i++) {
        ids_add(&g->prompt, prompt->data[i]);
        g->n_exchanges += prompt->data[i] == text->tokens->user;
    }
    return g;
}

/* The turns of an assistant: behind the two tokens that open one, up to the end of sentence. */
static void find_turns(const struct chat_tokens *t, struct audit_item *out)
{
    const struct ids *ids = &out->ids;
    int32_t begin = 0; /* of a turn that is open; 0: none is */
    out->turns = calloc(ids->len + 1, sizeof *out->turns);
    ASSERT(out->turns != NULL);
    for (int32_t i = 0; i < (int32_t)ids->len; i++) {
        if (ids->data[i] == t->assistant)
            begin = i + 2;
        else if (ids->data[i] == t->user)
            begin = 0;
        else if (ids->data[i] == t->eos && begin > 0 && i >= begin)
            out->turns[out->n_turns++] = (struct audit_turn){.begin = begin, .end = i + 1};
        begin = ids->data[i] == t->eos ? 0 : begin;
    }
}

static void prompt_item(const struct audit_given *g, const struct chat_tokens *t, const bool *kept,
                        struct audit_item *out)
{
    int32_t exchange = -1;
    *out = (struct audit_item){0};
    for (size_t i = 0; i < g->prompt.len; i++) {
        exchange += g->prompt.data[i] == t->user;
        if (kept == NULL || exchange < 0 || exchange == g->n_exchanges - 1 || kept[exchange])
            ids_add(&out->ids, g->prompt.data[i]);
    }
    find_turns(t, out);
}

/* ---- both ------------------------------------------------------------------------------------ */

void given_free(struct audit_given *g)
{
    if (g == NULL)
        return;
    if (g->prompt.cap > 0)
        sodium_memzero(g->prompt.data, g->prompt.cap * sizeof *g->prompt.data);
    ids_free(&g->prompt);
    request_clear(&g->request);
    free(g->expected);
    free(g->exchange);
    free(g);
}

const char *given_expected(const struct audit_given *g)
{
    return g->expected;
}

int32_t given_exchanges(const struct audit_given *g)
{
    return g->n_exchanges;
}

enum status given_item(const struct audit_given *g, const struct audit_text *text, const bool *kept,
                       struct audit_item *out, struct error *err)
{
    if (g->prompt.len > 0) {
        prompt_item(g, text->tokens, kept, out);
        return OK;
    }
    struct json_object *messages = json_object_new_array();
    for (int32_t i = 0; i < g->n_messages; i++) {
        int32_t at = g->exchange[i];
        struct json_object *message = json_object_array_get_idx(g->request.messages, (size_t)i);
        if (kept == NULL || at < 0 || at == g->n_exchanges - 1 || kept[at])
            ASSERT(json_object_array_add(messages, json_object_get(message)) == 0);
    }
    const struct chat_request chat = {.messages = messages,
                                      .tools = g->request.tools,
                                      .response_format = g->request.schema,
                                      .thinking = g->request.thinking,
                                      .effort = g->request.effort,
                                      .drop_thinking = true};
    enum status status = conversation_render(text, &chat, out, err);
    json_object_put(messages);
    if (status == OK && g->expected != NULL) {
        out->value = strdup(g->expected);
        ASSERT(out->value != NULL);
    }
    return status;
}
