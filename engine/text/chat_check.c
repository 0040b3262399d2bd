/*
 * Checks what a client sent before anything looks into it: types, roles, tasks.  Behind this file
 * every type is known to be right.  Error texts hold the path of the field and nothing of the
 * client's. Knows no token, no template and no order of messages.
 */
#include "engine/text/chat_check.h"

#include "config/prompt.h"

#include <string.h>

enum { IS_NULL = 1, IS_STRING = 2, IS_ARRAY = 4, IS_OBJECT = 8, IS_BOOLEAN = 16 };

/* The fields of a message.  Absent counts as null; unknown fields are not looked at. */
enum field {
    FIELD_ROLE,
    FIELD_CONTENT,
    FIELD_REASONING,
    FIELD_REASONING_ALIAS,
    FIELD_TOOL_CALLS,
    FIELD_TOOLS,
    FIELD_TOOL_CALL_ID,
    FIELD_RESPONSE_FORMAT,
    FIELD_TASK,
    FIELD_WO_EOS,
    N_FIELDS,
};

static const struct {
    const char *name;
    int types;
    const char *expected;
} FIELDS[N_FIELDS] = {
    [FIELD_ROLE] = {"role", IS_STRING, "a string"},
    [FIELD_CONTENT] = {"content", IS_NULL | IS_STRING | IS_ARRAY, "a string or an array of parts"},
    [FIELD_REASONING] = {"reasoning_content", IS_NULL | IS_STRING, "a string"},
    [FIELD_REASONING_ALIAS] = {"reasoning", IS_NULL | IS_STRING, "a string"},
    [FIELD_TOOL_CALLS] = {"tool_calls", IS_NULL | IS_ARRAY, "an array"},
    [FIELD_TOOLS] = {"tools", IS_NULL | IS_ARRAY, "an array"},
    [FIELD_TOOL_CALL_ID] = {"tool_call_id", IS_NULL | IS_STRING, "a string"},
    [FIELD_RESPONSE_FORMAT] = {"response_format", IS_NULL | IS_OBJECT, "an object"},
    [FIELD_TASK] = {"task", IS_NULL | IS_STRING, "a string"},
    [FIELD_WO_EOS] = {"wo_eos", IS_NULL | IS_BOOLEAN, "a boolean"},
};

static const struct {
    const char *name;
    bool content_required;
} ROLES[] = {
    [ROLE_SYSTEM] = {"system", false},       [ROLE_USER] = {"user", true},
    [ROLE_ASSISTANT] = {"assistant", false}, [ROLE_TOOL] = {"tool", true},
    [ROLE_DEVELOPER] = {"developer", true},  [ROLE_LATEST_REMINDER] = {"latest_reminder", true},
};
#define N_ROLES (sizeof ROLES / sizeof ROLES[0])

static const char *const TASKS[] = PROMPT_TASKS;
#define N_TASKS (sizeof TASKS / sizeof TASKS[0])

/* ---- helpers --------------------------------------------------------------------------------- */

bool chat_text_is(struct json_object *value, const char *text)
{
    size_t len = strlen(text);
    return json_object_is_type(value, json_type_string) &&
           (size_t)json_object_get_string_len(value) == len &&
           memcmp(json_object_get_string(value), text, len) == 0;
}

struct json_object *chat_or_null(struct json_object *value)
{
    bool empty =
        (json_object_is_type(value, json_type_array) && json_object_array_length(value) == 0) ||
        (json_object_is_type(value, json_type_object) && json_object_object_length(value) == 0) ||
        (json_object_is_type(value, json_type_string) && json_object_get_string_len(value) == 0);
    return empty ? NULL : value;
}

static int type_bit(struct json_object *value)
{
    switch (json_object_get_type(value)) {
    case json_type_null:
        return IS_NULL;
    case json_type_string:
        return IS_STRING;
    case json_type_array:
        return IS_ARRAY;
    case json_type_object:
        return IS_OBJECT;
    case json_type_boolean:
        return IS_BOOLEAN;
    case json_type_int:
    case json_type_double:
        break;
    }
    return 0;
}

static enum status fail(struct chat_checker *c, const char *suffix, const char *what)
{
    return error_set(c->err, ERR_INPUT, "%s%s: %s", buf_cstr(&c->path), suffix, what);
}

/* The value where the path stands must be an object. */
static enum status object_check(struct chat_checker *c, struct json_object *value)
{
    return json_object_is_type(value, json_type_object) ? OK : fail(c, "", "expected an object");
}

/* Member `name` of the object where the path stands. */
static enum status member_check(struct chat_checker *c, struct json_object *object,
                                const char *name, int types, const char *expected)
{
    if ((type_bit(json_member(object, name, NULL)) & types) != 0)
        return OK;
    return error_set(c->err, ERR_INPUT, "%s.%s: expected %s", buf_cstr(&c->path), name, expected);
}

/* ---- parts, tools, calls --------------------------------------------------------------------- */

static enum status part_check(struct chat_checker *c, struct json_object *part)
{
    enum status status = object_check(c, part);
    if (status == OK)
        status = member_check(c, part, "type", IS_STRING, "a string");
    if (status == OK && chat_text_is(json_member(part, "type", NULL), "text"))
        status = member_check(c, part, "text", IS_STRING, "a string");
    return status;
}

static enum status tool_check(struct chat_checker *c, struct json_object *tool)
{
    enum status status = object_check(c, tool);
    return status != OK ? status : member_check(c, tool, "function", IS_OBJECT, "an object");
}

static enum status call_check(struct chat_checker *c, struct json_object *call)
{
    enum status status = object_check(c, call);
    if (status == OK)
        status = member_check(c, call, "id", IS_NULL | IS_STRING, "a string");
    if (status == OK)
        status = member_check(c, call, "function", IS_OBJECT, "an object");
    if (status != OK)
        return status;
    struct json_object *function = json_member(call, "function", NULL);
    size_t mark = c->path.len;
    buf_puts(&c->path, ".function");
    status = member_check(c, function, "name", IS_STRING, "a string");
    if (status == OK)
        status = member_check(c, function, "arguments", IS_STRING, "a string of JSON");
    c->path.len = mark;
    return status;
}

/* Checks every element of the array (anything else: nothing to do) called `name` below the path. */
static enum status elements_check(struct chat_checker *c, struct json_object *array,
                                  const char *name,
                                  enum status (*check)(struct chat_checker *, struct json_object *))
{
    if (!json_object_is_type(array, json_type_array))
        return OK;
    enum status status = OK;
    size_t mark = c->path.len;
    for (size_t i = 0; i < json_object_array_length(array) && status == OK; i++) {
        buf_printf(&c->path, "%s[%zu]", name, i);
        status = check(c, json_object_array_get_idx(array, i));
        c->path.len = mark;
    }
    return status;
}

enum status chat_tools_check(struct chat_checker *c, struct json_object *tools)
{
    if (tools != NULL && !json_object_is_type(tools, json_type_array))
        return fail(c, "tools", "expected an array");
    return elements_check(c, tools, "tools", tool_check);
}

/* ---- messages -------------------------------------------------------------------------------- */

static enum status role_find(struct chat_checker *c, struct json_object *role, enum chat_role *out)
{
    for (size_t i = 0; i < N_ROLES; i++) {
        if (chat_text_is(role, ROLES[i].name)) {
            *out = (enum chat_role)i;
            return OK;
        }
    }
    return fail(c, ".role", "unknown role");
}

static enum status task_find(struct chat_checker *c, struct json_object *task, int *out)
{
    *out = -1;
    for (size_t i = 0; i < N_TASKS; i++) {
        if (chat_text_is(task, TASKS[i]))
            *out = (int)i;
    }
    return task == NULL || *out >= 0 ? OK : fail(c, ".task", "unknown task");
}

static enum status fields_read(struct chat_checker *c, struct json_object *object,
                               struct json_object *values[N_FIELDS])
{
    enum status status = object_check(c, object);
    for (int i = 0; i < N_FIELDS && status == OK; i++) {
        values[i] = json_member(object, FIELDS[i].name, NULL);
        status = member_check(c, object, FIELDS[i].name, FIELDS[i].types, FIELDS[i].expected);
    }
    if (status == OK)
        status = elements_check(c, values[FIELD_CONTENT], ".content", part_check);
    if (status == OK)
        status = elements_check(c, values[FIELD_TOOL_CALLS], ".tool_calls", call_check);
    if (status == OK)
        status = elements_check(c, values[FIELD_TOOLS], ".tools", tool_check);
    return status;
}

enum status chat_message_read(struct chat_checker *c, struct json_object *object, size_t index,
                              struct chat_message *out)
{
    struct json_object *values[N_FIELDS];
    struct chat_message message = {0};
    c->path.len = 0;
    buf_printf(&c->path, "messages[%zu]", index);
    enum status status = fields_read(c, object, values);
    if (status == OK)
        status = role_find(c, values[FIELD_ROLE], &message.role);
    if (status == OK)
        status = task_find(c, values[FIELD_TASK], &message.task);
    if (status != OK)
        return status;
    message.content = values[FIELD_CONTENT];
    struct json_object *needed = /* the official encoder refuses an empty developer message */
        message.role == ROLE_DEVELOPER ? chat_or_null(message.content) : message.content;
    if (needed == NULL && ROLES[message.role].content_required)
        return fail(c, ".content", "missing or empty");
    message.reasoning = chat_or_null(
        values[FIELD_REASONING] != NULL ? values[FIELD_REASONING] : values[FIELD_REASONING_ALIAS]);
    message.tool_calls = chat_or_null(values[FIELD_TOOL_CALLS]);
    message.tools = chat_or_null(values[FIELD_TOOLS]);
    message.call_id = values[FIELD_TOOL_CALL_ID];
    message.response_format = chat_or_null(values[FIELD_RESPONSE_FORMAT]);
    message.wo_eos = values[FIELD_WO_EOS] != NULL && json_object_get_boolean(values[FIELD_WO_EOS]);
    *out = message;
    return OK;
}
