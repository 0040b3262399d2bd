/* Checks and rebuilds messages.  What harnesses send in practice is accepted (api.md 1.2): repeated
 * roles, late system messages, unknown tool-call ids, arguments that are no JSON. */
#include "engine/api/messages.h"

#include "config/limits.h"
#include "kernels/check.h"

#include <string.h>

#define PARTS_JOINT "\n\n"   /* as the chat encoding joins blocks (model.md 5.2) */
#define OPEN_END    "wo_eos" /* the encoding's word for a turn that nothing ends */

/* One message while it is rebuilt. */
struct job {
    struct json_object *from; /* borrows */
    struct json_object *to;   /* borrows: already in the new array */
    size_t idx;
    bool last;
    bool asked; /* a user or a tool spoke before */
    struct api_error *err;
};

static bool fail(const struct job *job, enum api_code code, const char *member)
{
    return api_fail(job->err, code, "messages[%zu]%s", job->idx, member);
}

static bool is_string(struct json_object *value)
{
    return json_object_is_type(value, json_type_string);
}

bool json_text_is(struct json_object *value, const char *text)
{
    return is_string(value) && (size_t)json_object_get_string_len(value) == strlen(text) &&
           memcmp(json_object_get_string(value), text, strlen(text)) == 0;
}

static void put_same(struct json_object *object, const char *key, struct json_object *value)
{
    json_set(object, key, json_object_get(value));
}

/* ---- content -------------------------------------------------------------------------------- */

static bool add_part(const struct job *job, size_t part_idx, struct json_object *part,
                     struct buf *out)
{
    struct json_object *type = json_member(part, "type", NULL);
    struct json_object *text = json_member(part, "text", NULL);
    size_t i = job->idx;
    if (!json_object_is_type(part, json_type_object))
        return api_fail(job->err, API_TYPE, "messages[%zu].content[%zu]", i, part_idx);
    if (type == NULL)
        return api_fail(job->err, API_MISSING, "messages[%zu].content[%zu].type", i, part_idx);
    if (!json_text_is(type, "text"))
        return api_fail(job->err, API_CONTENT, "messages[%zu].content[%zu].type", i, part_idx);
    if (!is_string(text))
        return api_fail(job->err, text == NULL ? API_MISSING : API_TYPE,
                        "messages[%zu].content[%zu].text", i, part_idx);
    if (part_idx > 0)
        buf_puts(out, PARTS_JOINT);
    buf_add(out, json_object_get_string(text), (size_t)json_object_get_string_len(text));
    return true;
}

static bool join_parts(const struct job *job, struct json_object *parts)
{
    struct buf text = {0};
    size_t n = json_object_array_length(parts);
    bool good = n <= CONTENT_PARTS_MAX || fail(job, API_COUNT, ".content");
    for (size_t i = 0; good && i < n; i++)
        good = add_part(job, i, json_object_array_get_idx(parts, i), &text);
    if (good)
        json_set(job->to, "content",
                 json_object_new_string_len(text.len == 0 ? "" : text.data, (int)text.len));
    buf_free(&text);
    return good;
}

/* `optional`: an assistant that only calls tools says nothing. */
static bool copy_content(const struct job *job, bool optional)
{
    struct json_object *content = json_member(job->from, "content", NULL);
    if (is_string(content)) {
        put_same(job->to, "content", content);
        return true;
    }
    if (json_object_is_type(content, json_type_array))
        return join_parts(job, content);
    if (content != NULL)
        return fail(job, API_TYPE, ".content");
    if (!optional)
        return fail(job, API_MISSING, ".content");
    json_set(job->to, "content", json_object_new_string(""));
    return true;
}

/* ---- assistant ------------------------------------------------------------------------------ */

static bool copy_reasoning(const struct job *job)
{
    static const char *const NAMES[] = {"reasoning_content", "reasoning"};
    for (size_t i = 0; i < 2; i++) {
        struct json_object *value = json_member(job->from, NAMES[i], NULL);
        if (value == NULL)
            continue;
        if (!is_string(value))
            return fail(job, API_TYPE, i == 0 ? ".reasoning_content" : ".reasoning");
        put_same(job->to, "reasoning_content", value);
        return true;
    }
    return true;
}

static bool call_fail(const struct job *job, size_t call_idx, enum api_code code,
                      const char *member)
{
    return api_fail(job->err, code, "messages[%zu].tool_calls[%zu]%s", job->idx, call_idx, member);
}

static bool non_empty(struct json_object *value)
{
    return is_string(value) && json_object_get_string_len(value) > 0;
}

/* Names that are in no tools list are fine: tools come and go during a session. */
static bool copy_call(const struct job *job, size_t idx, struct json_object *call,
                      struct json_object *calls)
{
    if (!json_object_is_type(call, json_type_object))
        return call_fail(job, idx, API_TYPE, "");
    struct json_object *id = json_member(call, "id", NULL);
    struct json_object *type = json_member(call, "type", NULL);
    struct json_object *function = json_member(call, "function", NULL);
    if (!non_empty(id))
        return call_fail(job, idx, API_MISSING, ".id");
    if (type != NULL && !json_text_is(type, "function"))
        return call_fail(job, idx, API_UNSUPPORTED, ".type");
    if (!json_object_is_type(function, json_type_object))
        return call_fail(job, idx, API_MISSING, ".function");
    struct json_object *name = json_member(function, "name", NULL);
    struct json_object *arguments = json_member(function, "arguments", NULL);
    if (!non_empty(name))
        return call_fail(job, idx, API_MISSING, ".function.name");
    if (arguments != NULL && !is_string(arguments))
        return call_fail(job, idx, API_TYPE, ".function.arguments");

    struct json_object *to = json_object_new_object(), *to_function = json_object_new_object();
    json_object_array_add(calls, to);
    put_same(to, "id", id);
    json_set(to, "type", json_object_new_string("function"));
    json_set(to, "function", to_function);
    put_same(to_function, "name", name);
    if (non_empty(arguments))
        put_same(to_function, "arguments", arguments);
    else /* a call without arguments, in one of its spellings */
        json_set(to_function, "arguments", json_object_new_string("{}"));
    return true;
}

static bool copy_calls(const struct job *job)
{
    struct json_object *calls = json_member(job->from, "tool_calls", NULL);
    if (calls == NULL)
        return true;
    if (!json_object_is_type(calls, json_type_array))
        return fail(job, API_TYPE, ".tool_calls");
    size_t n = json_object_array_length(calls);
    if (n == 0)
        return true;
    if (n > TOOL_CALLS_MAX)
        return fail(job, API_COUNT, ".tool_calls");
    struct json_object *to = json_object_new_array_ext((int)n);
    json_set(job->to, "tool_calls", to);
    for (size_t i = 0; i < n; i++) {
        if (!copy_call(job, i, json_object_array_get_idx(calls, i), to))
            return false;
    }
    return true;
}

/* ---- roles ---------------------------------------------------------------------------------- */

static bool copy_plain(const struct job *job)
{
    return copy_content(job, false);
}

static bool copy_assistant(const struct job *job)
{
    struct json_object *prefix = json_member(job->from, "prefix", NULL);
    if (prefix != NULL && !json_object_is_type(prefix, json_type_boolean))
        return fail(job, API_TYPE, ".prefix");
    if (prefix != NULL && json_object_get_boolean(prefix)) {
        /* Only the last turn can stay open; a turn of its own must stand before it, and behind a
         * call nothing can go on. */
        if (!job->last || !job->asked || json_member(job->from, "tool_calls", NULL) != NULL)
            return fail(job, API_UNSUPPORTED, ".prefix");
        json_set(job->to, OPEN_END, json_object_new_boolean(true));
    } else if (job->last) {
        return fail(job, API_UNSUPPORTED, ".role");
    }
    return copy_content(job, true) && copy_reasoning(job) && copy_calls(job);
}

bool messages_is_prefix(struct json_object *message)
{
    return json_member(message, OPEN_END, NULL) != NULL;
}

/* Any id will do: compaction drops calls and keeps results. */
static bool copy_tool(const struct job *job)
{
    struct json_object *id = json_member(job->from, "tool_call_id", NULL);
    if (!is_string(id))
        return fail(job, id == NULL ? API_MISSING : API_TYPE, ".tool_call_id");
    put_same(job->to, "tool_call_id", id);
    return copy_content(job, false);
}

static const struct role {
    const char *name, *rendered;
    bool (*copy)(const struct job *job);
    bool ends; /* an answer may follow, if copy allows it */
} ROLES[] = {
    {"user", "user", copy_plain, true},         {"assistant", "assistant", copy_assistant, true},
    {"tool", "tool", copy_tool, true},          {"system", "system", copy_plain, false},
    {"developer", "system", copy_plain, false},
};

static const struct role *find_role(struct json_object *role)
{
    for (size_t i = 0; i < sizeof ROLES / sizeof ROLES[0]; i++) {
        if (json_text_is(role, ROLES[i].name))
            return &ROLES[i];
    }
    return NULL;
}

static bool copy_message(const struct job *job)
{
    if (!json_object_is_type(job->from, json_type_object))
        return fail(job, API_TYPE, "");
    struct json_object *name = json_member(job->from, "role", NULL);
    const struct role *role = find_role(name);
    if (role == NULL)
        return fail(job, name == NULL ? API_MISSING : API_VALUE, ".role");
    /* The chat format opens the answer behind a user's turn or a tool's result and nowhere else. */
    if (job->last && !role->ends)
        return fail(job, API_UNSUPPORTED, ".role");
    json_set(job->to, "role", json_object_new_string(role->rendered));
    return role->copy(job);
}

/* The chat format hands the word to the assistant behind this message. */
static bool opens_answer(struct json_object *message)
{
    struct json_object *role = json_member(message, "role", NULL);
    return json_text_is(role, "user") || json_text_is(role, "tool");
}

bool messages_check(struct json_object *messages, struct json_object **out, struct api_error *err)
{
    if (!json_object_is_type(messages, json_type_array))
        return api_fail(err, API_TYPE, "messages");
    size_t n = json_object_array_length(messages);
    if (n == 0)
        return api_fail(err, API_EMPTY, "messages");
    if (n > MESSAGES_MAX)
        return api_fail_limit(err, API_COUNT, "messages", MESSAGES_MAX, (int64_t)n);
    struct json_object *array = json_object_new_array_ext((int)n);
    bool good = true;
    for (size_t i = 0; good && i < n; i++) {
        struct job job = {.from = json_object_array_get_idx(messages, i),
                          .to = json_object_new_object(),
                          .idx = i,
                          .last = i == n - 1,
                          .asked = i > 0 && opens_answer(json_object_array_get_idx(array, i - 1)),
                          .err = err};
        ASSERT(json_object_array_add(array, job.to) == 0);
        good = copy_message(&job);
    }
    if (good)
        *out = array;
    else
        json_object_put(array);
    return good;
}
