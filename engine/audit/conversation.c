/* Requests as items, and the grades of answers.  What is said in them: recall.c, haystack.c */
#include "engine/audit/conversation.h"

#include "kernels/check.h"

#include <stdlib.h>
#include <string.h>

static const char TOOLS[] = "["
#define AUDIT_TOOL(name, description, properties, required)                                        \
    "{\"type\": \"function\", \"function\": {\"name\": \"" name                                    \
    "\", \"description\": \"" description                                                          \
    "\", \"parameters\": {\"type\": \"object\", \"properties\": " properties                       \
    ", \"required\": " required "}}},"
#include "config/audit.def"
    ;

struct json_object *conversation_tools(void)
{
    struct json_object *out;
    struct error err;
    struct buf text = {0};
    buf_add(&text, TOOLS, sizeof TOOLS - 2); /* without the last comma */
    buf_puts(&text, "]");
    enum status status = json_parse(text.data, text.len, &out, NULL, &err);
    ASSERT(status == OK); /* our own text */
    buf_free(&text);
    return out;
}

struct json_object *conversation_say(struct json_object *messages, const char *role,
                                     const struct buf *content)
{
    struct json_object *message = json_object_new_object();
    const char *text = content->len == 0 ? "" : content->data;
    ASSERT(json_object_object_add(message, "role", json_object_new_string(role)) == 0);
    ASSERT(json_object_object_add(message, "content",
                                  json_object_new_string_len(text, (int)content->len)) == 0);
    ASSERT(json_object_array_add(messages, message) == 0);
    return message;
}

struct json_object *conversation_say_text(struct json_object *messages, const char *role,
                                          const char *content)
{
    struct buf text = {0};
    buf_puts(&text, content);
    struct json_object *message = conversation_say(messages, role, &text);
    buf_free(&text);
    return message;
}

/* ---- rendering ------------------------------------------------------------------------------- */

/* What a live client saw in place of a turn whose reasoning the prompt has forgotten. */
static void add_forgotten(const struct audit_text *text, struct json_object *message,
                          struct audit_item *out, struct audit_turn *turn)
{
    struct json_object *reasoning = json_object_object_get(message, "reasoning_content");
    const struct chat_tokens *t = text->tokens;
    if (reasoning == NULL || json_object_get_string_len(reasoning) == 0 || turn->begin == 0 ||
        out->ids.data[turn->begin - 1] != t->think_close)
        return;
    turn->forgotten = (int32_t)out->forgotten.len;
    ids_add(&out->forgotten, t->think_open);
    tokenizer_encode(text->tokenizer, json_object_get_string(reasoning),
                     (size_t)json_object_get_string_len(reasoning), false, &out->forgotten);
    ids_add(&out->forgotten, t->think_close);
    for (int32_t i = turn->begin; i < turn->end; i++)
        ids_add(&out->forgotten, out->ids.data[i]);
    turn->n_forgotten = (int32_t)out->forgotten.len - turn->forgotten;
}

enum status conversation_render(const struct audit_text *text, const struct chat_request *asked,
                                struct audit_item *out, struct error *err)
{
    struct chat_spans spans = {0};
    struct chat_request request = *asked;
    request.spans = &spans;
    *out = (struct audit_item){0};
    enum status status = chat_render(text->tokenizer, text->tokens, &request, &out->ids, NULL, err);
    if (status != OK)
        return status;
    out->turns = calloc(spans.len + 1, sizeof *out->turns);
    ASSERT(out->turns != NULL);
    for (size_t i = 0; i < spans.len; i++) {
        if (spans.data[i].n_messages == 0)
            continue;
        struct json_object *message =
            json_object_array_get_idx(request.messages, spans.data[i].first_message);
        const char *role = json_object_get_string(json_object_object_get(message, "role"));
        if (strcmp(role, "assistant") != 0)
            continue;
        struct audit_turn *turn = &out->turns[out->n_turns++];
        turn->begin = i == 0 ? 0 : (int32_t)spans.data[i - 1].ids_end;
        turn->end = (int32_t)spans.data[i].ids_end;
        if (request.thinking)
            add_forgotten(text, message, out, turn);
    }
    chat_spans_free(&spans);
    return OK;
}

void audit_item_free(struct audit_item *item)
{
    ids_free(&item->ids);
    ids_free(&item->forgotten);
    free(item->turns);
    free(item->value);
    *item = (struct audit_item){0};
}

/* ---- grading --------------------------------------------------------------------------------- */

enum audit_grade conversation_grade(const char *value, const char *answer, size_t n)
{
    const char *from = answer, *end = answer + n;
    size_t len = strlen(value);
    if (len <= n && memmem(answer, n, value, len) == NULL)
        return GRADE_WRONG;
    while (from < end && strchr(" \n\t", *from) != NULL)
        from++;
    while (end > from && strchr(" \n\t", end[-1]) != NULL)
        end--;
    if (end > from && end[-1] == '.')
        end--;
    if (len > n)
        return GRADE_WRONG;
    bool all = (size_t)(end - from) == len && memcmp(from, value, len) == 0;
    return all ? GRADE_RIGHT : GRADE_FORMAT;
}

const char *audit_place_name(enum audit_place place)
{
    static const char *const names[PLACES] = {"user", "system", "assistant", "tool"};
    return names[place];
}
