/* Checks of `tools` and `tool_choice`. */
#include "engine/api/tools.h"

#include "config/limits.h"
#include "engine/api/messages.h"
#include "kernels/check.h"

#include <stdlib.h>
#include <string.h>

static bool name_is_good(struct json_object *name)
{
    const char *text = json_object_get_string(name);
    size_t len = (size_t)json_object_get_string_len(name);
    if (len == 0 || len > TOOL_NAME_BYTES_MAX)
        return false;
    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        bool good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                    c == '_' || c == '-';
        if (!good)
            return false;
    }
    return true;
}

static bool fail(struct api_error *err, enum api_code code, size_t idx, const char *member)
{
    return api_fail(err, code, "tools[%zu]%s", idx, member);
}

static bool check_function(struct json_object *function, size_t idx, struct api_error *err)
{
    struct json_object *name = json_member(function, "name", NULL);
    struct json_object *description = json_member(function, "description", NULL);
    struct json_object *parameters = json_member(function, "parameters", NULL);
    struct json_object *strict = json_member(function, "strict", NULL);
    if (name == NULL)
        return fail(err, API_MISSING, idx, ".function.name");
    if (!json_object_is_type(name, json_type_string))
        return fail(err, API_TYPE, idx, ".function.name");
    if (!name_is_good(name))
        return fail(err, API_VALUE, idx, ".function.name");
    if (description != NULL && !json_object_is_type(description, json_type_string))
        return fail(err, API_TYPE, idx, ".function.description");
    if (parameters != NULL && !json_object_is_type(parameters, json_type_object))
        return fail(err, API_TYPE, idx, ".function.parameters");
    if (strict != NULL && !json_object_is_type(strict, json_type_boolean))
        return fail(err, API_TYPE, idx, ".function.strict");
    return true;
}

static bool check_tool(struct json_object *tool, size_t idx, struct api_error *err)
{
    struct json_object *type = json_member(tool, "type", NULL);
    struct json_object *function = json_member(tool, "function", NULL);
    if (!json_object_is_type(tool, json_type_object))
        return fail(err, API_TYPE, idx, "");
    if (type == NULL)
        return fail(err, API_MISSING, idx, ".type");
    if (!json_text_is(type, "function"))
        return fail(err, API_UNSUPPORTED, idx, ".type");
    if (function == NULL)
        return fail(err, API_MISSING, idx, ".function");
    if (!json_object_is_type(function, json_type_object))
        return fail(err, API_TYPE, idx, ".function");
    return check_function(function, idx, err);
}

/* ---- all of them ----------------------------------------------------------------------------- */

static struct json_object *name_of(struct json_object *tools, size_t idx)
{
    return json_member(json_member(json_object_array_get_idx(tools, idx), "function", NULL), "name",
                       NULL);
}

/* Names are NUL-free by now. */
static bool check_names(struct json_object *tools, size_t n, struct api_error *err)
{
    for (size_t i = 1; i < n; i++) {
        const char *name = json_object_get_string(name_of(tools, i));
        for (size_t j = 0; j < i; j++) {
            if (strcmp(name, json_object_get_string(name_of(tools, j))) == 0)
                return fail(err, API_TWICE, i, ".function.name");
        }
    }
    return true;
}

static bool check_size(struct json_object *tools, struct api_error *err)
{
    struct buf text = {0};
    json_dump(&text, tools);
    size_t len = text.len;
    buf_free(&text);
    return len <= TOOLS_BYTES_MAX ||
           api_fail_limit(err, API_RANGE, "tools", TOOLS_BYTES_MAX, (int64_t)len);
}

bool tools_check(struct json_object *tools, struct api_error *err)
{
    if (!json_object_is_type(tools, json_type_array))
        return api_fail(err, API_TYPE, "tools");
    size_t n = json_object_array_length(tools);
    if (n > TOOLS_MAX)
        return api_fail_limit(err, API_COUNT, "tools", TOOLS_MAX, (int64_t)n);
    for (size_t i = 0; i < n; i++) {
        if (!check_tool(json_object_array_get_idx(tools, i), i, err))
            return false;
    }
    return check_names(tools, n, err) && check_size(tools, err);
}

/* ---- choice ---------------------------------------------------------------------------------- */

static bool is_offered(struct json_object *tools, struct json_object *name)
{
    size_t n = tools == NULL ? 0 : json_object_array_length(tools);
    for (size_t i = 0; i < n; i++) {
        if (json_text_is(name, json_object_get_string(name_of(tools, i))))
            return true;
    }
    return false;
}

static bool read_named(struct json_object *value, struct json_object *tools,
                       struct json_object **name, struct api_error *err)
{
    struct json_object *type = json_member(value, "type", NULL);
    if (type != NULL && !json_text_is(type, "function"))
        return api_fail(err, API_UNSUPPORTED, "tool_choice.type");
    *name = json_member(json_member(value, "function", NULL), "name", NULL);
    if (*name == NULL)
        return api_fail(err, API_MISSING, "tool_choice.function.name");
    return is_offered(tools, *name) || api_fail(err, API_VALUE, "tool_choice.function.name");
}

bool tool_choice_read(struct json_object *value, struct json_object *tools, enum tool_choice *out,
                      struct json_object **name, struct api_error *err)
{
    static const struct {
        const char *word;
        enum tool_choice choice;
    } WORDS[] = {{"auto", CHOICE_AUTO}, {"none", CHOICE_NONE}, {"required", CHOICE_REQUIRED}};
    *name = NULL;
    if (json_object_is_type(value, json_type_object)) {
        *out = CHOICE_NAMED;
        return read_named(value, tools, name, err);
    }
    if (!json_object_is_type(value, json_type_string))
        return api_fail(err, API_TYPE, "tool_choice");
    for (size_t i = 0; i < sizeof WORDS / sizeof WORDS[0]; i++) {
        if (!json_text_is(value, WORDS[i].word))
            continue;
        *out = WORDS[i].choice;
        return *out != CHOICE_REQUIRED || tools != NULL || api_fail(err, API_MISSING, "tools");
    }
    return api_fail(err, API_VALUE, "tool_choice");
}
