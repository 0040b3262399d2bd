/* The table of fields of a chat completion request, and the checks behind it. */
#include "engine/api/request.h"

#include "config/defaults.h"
#include "engine/api/messages.h"

#include <float.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

struct field {
    const char *name;
    bool (*take)(const struct field *field, struct json_object *value, struct request *out,
                 struct api_error *err);
    size_t offset;   /* of the member of struct request that it sets */
    double min, max; /* inclusive */
};

/* ---- kinds of fields ---------------------------------------------------------------------------
 */

static bool take_bool(const struct field *f, struct json_object *value, struct request *out,
                      struct api_error *err)
{
    if (!json_object_is_type(value, json_type_boolean))
        return api_fail(err, API_TYPE, "%s", f->name);
    *(bool *)((char *)out + f->offset) = json_object_get_boolean(value);
    return true;
}

static bool take_int(const struct field *f, struct json_object *value, struct request *out,
                     struct api_error *err)
{
    if (!json_object_is_type(value, json_type_int))
        return api_fail(err, API_TYPE, "%s", f->name);
    int64_t n = json_object_get_int64(value); /* saturates beyond 64 bits */
    if (n < (int64_t)f->min)
        return api_fail_limit(err, API_RANGE, f->name, (int64_t)f->min, n);
    *(int32_t *)((char *)out + f->offset) = n > INT32_MAX ? INT32_MAX : (int32_t)n;
    return true;
}

static bool number_in_range(const struct field *f, struct json_object *value, double *out,
                            struct api_error *err)
{
    if (!json_object_is_type(value, json_type_double) && !json_object_is_type(value, json_type_int))
        return api_fail(err, API_TYPE, "%s", f->name);
    *out = json_object_get_double(value);
    if (!(*out >= f->min && *out <= f->max))
        return api_fail(err, API_RANGE, "%s", f->name);
    return true;
}

static bool take_number(const struct field *f, struct json_object *value, struct request *out,
                        struct api_error *err)
{
    return number_in_range(f, value, (double *)((char *)out + f->offset), err);
}

static bool is_nothing(struct json_object *value)
{
    switch (json_object_get_type(value)) {
    case json_type_null:
        return true;
    case json_type_boolean:
        return !json_object_get_boolean(value);
    case json_type_int:
    case json_type_double:
        return json_object_get_double(value) == 0;
    case json_type_string:
        return json_object_get_string_len(value) == 0;
    case json_type_array:
        return json_object_array_length(value) == 0;
    case json_type_object:
        return json_object_object_length(value) == 0;
    }
    return false;
}

/* Whatever it is: it changes nothing here. */
static bool ignore(const struct field *f, struct json_object *value, struct request *out,
                   struct api_error *err)
{
    (void)f;
    (void)value;
    (void)out;
    (void)err;
    return true;
}

/* Asks for what this server does not do: never ignored in silence. */
static bool refuse_parameter(const struct field *f, struct json_object *value, struct request *out,
                             struct api_error *err)
{
    (void)out;
    return is_nothing(value) || api_fail(err, API_PARAMETER, "%s", f->name);
}

/* ---- single fields ------------------------------------------------------------------------------
 */

static bool take_messages(const struct field *f, struct json_object *value, struct request *out,
                          struct api_error *err)
{
    (void)f;
    if (!messages_check(value, &out->messages, err))
        return false;
    size_t n = json_object_array_length(out->messages);
    out->prefix = messages_is_prefix(json_object_array_get_idx(out->messages, n - 1));
    return true;
}

/* Stands behind `logprobs` in the table. */
static bool take_top_logprobs(const struct field *f, struct json_object *value, struct request *out,
                              struct api_error *err)
{
    if (!take_int(f, value, out, err))
        return false;
    if (out->top_logprobs > (int32_t)f->max)
        return api_fail_limit(err, API_RANGE, f->name, (int64_t)f->max, out->top_logprobs);
    return out->logprobs || out->top_logprobs == 0 || api_fail(err, API_MISSING, "logprobs");
}

static bool take_seed(const struct field *f, struct json_object *value, struct request *out,
                      struct api_error *err)
{
    if (!json_object_is_type(value, json_type_int))
        return api_fail(err, API_TYPE, "%s", f->name);
    out->sampling.seed = (uint64_t)json_object_get_int64(value);
    out->seeded = true;
    return true;
}

static bool take_n(const struct field *f, struct json_object *value, struct request *out,
                   struct api_error *err)
{
    (void)out;
    if (!json_object_is_type(value, json_type_int))
        return api_fail(err, API_TYPE, "%s", f->name);
    if (json_object_get_int64(value) != 1)
        return api_fail_limit(err, API_UNSUPPORTED, f->name, 1, json_object_get_int64(value));
    return true;
}

static bool take_tools(const struct field *f, struct json_object *value, struct request *out,
                       struct api_error *err)
{
    (void)f;
    if (!tools_check(value, err))
        return false;
    out->tools = json_object_array_length(value) == 0 ? NULL : value;
    return true;
}

/* Stands behind `tools` in the table. */
static bool take_tool_choice(const struct field *f, struct json_object *value, struct request *out,
                             struct api_error *err)
{
    (void)f;
    if (!tool_choice_read(value, out->tools, &out->choice, &out->choice_name, err))
        return false;
    if (out->choice == CHOICE_NONE)
        out->tools = NULL;
    return true;
}

static bool take_parallel(const struct field *f, struct json_object *value, struct request *out,
                          struct api_error *err)
{
    if (!json_object_is_type(value, json_type_boolean))
        return api_fail(err, API_TYPE, "%s", f->name);
    out->calls_max = json_object_get_boolean(value) ? 0 : 1;
    return true;
}

/* response_format.json_schema: {name, strict, schema}; the name is for people. */
static bool take_schema(struct json_object *format, struct request *out, struct api_error *err)
{
    static const char PATH[] = "response_format.json_schema";
    struct json_object *named = json_member(format, "json_schema", NULL);
    struct json_object *schema = json_member(named, "schema", NULL);
    struct json_object *strict = json_member(named, "strict", NULL);
    if (named == NULL)
        return api_fail(err, API_MISSING, "%s", PATH);
    if (!json_object_is_type(named, json_type_object))
        return api_fail(err, API_TYPE, "%s", PATH);
    if (schema == NULL)
        return api_fail(err, API_MISSING, "%s.schema", PATH);
    if (!json_object_is_type(schema, json_type_object))
        return api_fail(err, API_TYPE, "%s.schema", PATH);
    if (strict != NULL && !json_object_is_type(strict, json_type_boolean))
        return api_fail(err, API_TYPE, "%s.strict", PATH);
    out->schema = schema;
    out->schema_strict = strict != NULL && json_object_get_boolean(strict);
    return true;
}

static bool take_response_format(const struct field *f, struct json_object *value,
                                 struct request *out, struct api_error *err)
{
    static const struct {
        const char *word;
        enum mask_format format;
    } ROWS[] = {
        {"text", MASK_TEXT}, {"json_object", MASK_JSON_OBJECT}, {"json_schema", MASK_JSON_SCHEMA}};
    if (!json_object_is_type(value, json_type_object))
        return api_fail(err, API_TYPE, "%s", f->name);
    struct json_object *type = json_member(value, "type", NULL);
    if (type == NULL)
        return api_fail(err, API_MISSING, "%s.type", f->name);
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        if (json_text_is(type, ROWS[i].word)) {
            out->format = ROWS[i].format;
            return out->format != MASK_JSON_SCHEMA || take_schema(value, out, err);
        }
    }
    return api_fail(err, API_VALUE, "%s.type", f->name);
}

static bool take_modalities(const struct field *f, struct json_object *value, struct request *out,
                            struct api_error *err)
{
    if (json_object_is_type(value, json_type_array) && json_object_array_length(value) == 1 &&
        json_text_is(json_object_array_get_idx(value, 0), "text"))
        return true;
    return refuse_parameter(f, value, out, err);
}

static bool take_stop_string(struct json_object *value, const char *path, struct request *out,
                             struct api_error *err)
{
    if (!json_object_is_type(value, json_type_string))
        return api_fail(err, API_TYPE, "%s", path);
    size_t len = (size_t)json_object_get_string_len(value);
    if (len == 0)
        return api_fail(err, API_EMPTY, "%s", path);
    if (len > STOP_STRING_BYTES_MAX)
        return api_fail_limit(err, API_RANGE, path, STOP_STRING_BYTES_MAX, (int64_t)len);
    out->stops[out->n_stops++] =
        (struct answer_stop){.text = json_object_get_string(value), .len = len};
    return true;
}

static bool take_stop(const struct field *f, struct json_object *value, struct request *out,
                      struct api_error *err)
{
    if (!json_object_is_type(value, json_type_array))
        return take_stop_string(value, f->name, out, err);
    size_t n = json_object_array_length(value);
    if (n == 0)
        return api_fail(err, API_EMPTY, "%s", f->name);
    if (n > STOP_STRINGS_MAX)
        return api_fail_limit(err, API_COUNT, f->name, STOP_STRINGS_MAX, (int64_t)n);
    for (size_t i = 0; i < n; i++) {
        char path[API_PARAM_BYTES];
        snprintf(path, sizeof path, "%s[%zu]", f->name, i);
        if (!take_stop_string(json_object_array_get_idx(value, i), path, out, err))
            return false;
    }
    return true;
}

static bool take_stream_options(const struct field *f, struct json_object *value,
                                struct request *out, struct api_error *err)
{
    if (!json_object_is_type(value, json_type_object))
        return api_fail(err, API_TYPE, "%s", f->name);
    struct json_object *usage = json_member(value, "include_usage", NULL);
    if (usage != NULL && !json_object_is_type(usage, json_type_boolean))
        return api_fail(err, API_TYPE, "%s.include_usage", f->name);
    out->include_usage = usage != NULL && json_object_get_boolean(usage);
    return true;
}

/* ---- thinking: the later row of the table below decides ------------------------------------- */

static bool take_template_kwargs(const struct field *f, struct json_object *value,
                                 struct request *out, struct api_error *err)
{
    static const char *const KEYS[] = {"thinking", "enable_thinking"};
    if (!json_object_is_type(value, json_type_object))
        return api_fail(err, API_TYPE, "%s", f->name);
    for (size_t i = 0; i < sizeof KEYS / sizeof KEYS[0]; i++) {
        struct json_object *flag = json_member(value, KEYS[i], NULL);
        if (flag == NULL)
            continue;
        if (!json_object_is_type(flag, json_type_boolean))
            return api_fail(err, API_TYPE, "%s.%s", f->name, KEYS[i]);
        out->thinking = json_object_get_boolean(flag);
        out->thinking_said = true;
    }
    return true;
}

static bool take_effort(const struct field *f, struct json_object *value, struct request *out,
                        struct api_error *err)
{
    static const struct {
        const char *word;
        bool thinking;
        const char *effort;
    } ROWS[] = {EFFORT_ROWS};
    if (!json_object_is_type(value, json_type_string))
        return api_fail(err, API_TYPE, "%s", f->name);
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        if (json_text_is(value, ROWS[i].word)) {
            out->thinking = ROWS[i].thinking;
            out->effort = ROWS[i].effort;
            out->thinking_said = out->effort_said = true;
            return true;
        }
    }
    return api_fail(err, API_VALUE, "%s", f->name);
}

static bool take_thinking(const struct field *f, struct json_object *value, struct request *out,
                          struct api_error *err)
{
    static const struct {
        const char *word;
        bool thinking;
    } ROWS[] = {THINKING_ROWS};
    if (!json_object_is_type(value, json_type_object))
        return api_fail(err, API_TYPE, "%s", f->name);
    struct json_object *type = json_member(value, "type", NULL);
    if (type == NULL)
        return api_fail(err, API_MISSING, "%s.type", f->name);
    if (!json_object_is_type(type, json_type_string))
        return api_fail(err, API_TYPE, "%s.type", f->name);
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        if (json_text_is(type, ROWS[i].word)) {
            out->thinking = ROWS[i].thinking;
            out->thinking_said = true;
            return true;
        }
    }
    return api_fail(err, API_VALUE, "%s.type", f->name);
}

/* ---- the profile ---------------------------------------------------------------------------- */

static bool take_profile(const struct field *f, struct json_object *value, struct request *out,
                         struct api_error *err)
{
    if (!json_object_is_type(value, json_type_string))
        return api_fail(err, API_TYPE, "%s", f->name);
    const char *name = json_object_get_string(value);
    if (strlen(name) != (size_t)json_object_get_string_len(value) || !profile_name_valid(name))
        return api_fail(err, API_VALUE, "%s", f->name);
    memcpy(out->profile_name, name, strlen(name) + 1);
    return true;
}

/* ---- the table ------------------------------------------------------------------------------ */

#define AT(member) offsetof(struct request, member)

/* Checked in this order, whatever the order in the body. */
static const struct field FIELDS[] = {
    {"messages", take_messages, 0, 0, 0},
    {"stream", take_bool, AT(stream), 0, 0},
    {"stream_options", take_stream_options, 0, 0, 0},
    {"max_completion_tokens", take_int, AT(tokens_max), 1, 0},
    {"max_tokens", take_int, AT(tokens_max), 1, 0},
    {"temperature", take_number, AT(sampling.temperature), 0, 2},
    {"top_p", take_number, AT(sampling.top_p), DBL_TRUE_MIN, 1},
    {"top_k", take_int, AT(sampling.top_k), -1, 0}, /* -1: off, as vLLM says it */
    {"min_p", take_number, AT(sampling.min_p), 0, 1},
    {"presence_penalty", take_number, AT(sampling.presence_penalty), -2, 2},
    {"frequency_penalty", take_number, AT(sampling.frequency_penalty), -2, 2},
    {"repetition_penalty", take_number, AT(sampling.repetition_penalty), DBL_TRUE_MIN, 2},
    {"seed", take_seed, 0, 0, 0},
    {"stop", take_stop, 0, 0, 0},
    {"chat_template_kwargs", take_template_kwargs, 0, 0, 0},
    {"reasoning_effort", take_effort, 0, 0, 0},
    {"thinking", take_thinking, 0, 0, 0},
    {"profile", take_profile, 0, 0, 0},
    {"deadline_ms", take_int, AT(deadline_ms), 1, 0},
    {"n", take_n, 0, 0, 0},
    {"logprobs", take_bool, AT(logprobs), 0, 0},
    {"top_logprobs", take_top_logprobs, AT(top_logprobs), 0, LOGPROBS_TOP_MAX},
    {"tools", take_tools, 0, 0, 0},
    {"tool_choice", take_tool_choice, 0, 0, 0},
    {"parallel_tool_calls", take_parallel, 0, 0, 0},
    {"response_format", take_response_format, 0, 0, 0},
    {"modalities", take_modalities, 0, 0, 0},
    {"functions", refuse_parameter, 0, 0, 0},
    {"function_call", refuse_parameter, 0, 0, 0},
    {"logit_bias", refuse_parameter, 0, 0, 0},
    {"audio", refuse_parameter, 0, 0, 0},
    {"prediction", refuse_parameter, 0, 0, 0},
    {"web_search_options", refuse_parameter, 0, 0, 0},
    {"model", ignore, 0, 0, 0}, /* checked before all others */
    {"user", ignore, 0, 0, 0},
    {"user_id", ignore, 0, 0, 0},
    {"metadata", ignore, 0, 0, 0},
    {"store", ignore, 0, 0, 0},
    {"service_tier", ignore, 0, 0, 0},
    {"prompt_cache_key", ignore, 0, 0, 0},
    {"prompt_cache_retention", ignore, 0, 0, 0},
    {"safety_identifier", ignore, 0, 0, 0},
    {"verbosity", ignore, 0, 0, 0},
};

static bool is_known(const char *name)
{
    for (size_t i = 0; i < sizeof FIELDS / sizeof FIELDS[0]; i++) {
        if (strcmp(FIELDS[i].name, name) == 0)
            return true;
    }
    return false;
}

int32_t request_count_unknown(struct json_object *body, bool (*known)(const char *name))
{
    int32_t n = 0, looked_at = 0;
    json_object_object_foreach(body, name, value)
    {
        (void)value;
        if (looked_at++ == REQUEST_FIELDS_MAX)
            break;
        n += !known(name);
    }
    return n;
}

/* The model that serves, or an alias of it, which may say whether it thinks. */
static bool take_model(const char *served, struct request *out, struct api_error *err)
{
    static const struct {
        const char *name;
        bool thinking;
    } ALIASES[] = {MODEL_ALIAS_ROWS};
    struct json_object *model = json_member(out->root, "model", NULL);
    if (model == NULL)
        return api_fail(err, API_MISSING, "model");
    if (!json_object_is_type(model, json_type_string))
        return api_fail(err, API_TYPE, "model");
    for (size_t i = 0; i < sizeof ALIASES / sizeof ALIASES[0]; i++) {
        if (json_text_is(model, ALIASES[i].name)) {
            out->thinking = ALIASES[i].thinking;
            out->thinking_said = true;
            return true;
        }
    }
    return json_text_is(model, served) || api_fail(err, API_MODEL, "model");
}

bool request_json(const char *body, size_t len, struct json_object **out, struct api_error *err)
{
    size_t offset = 0;
    *out = NULL;
    if (json_parse(body, len, out, &offset, NULL) == OK &&
        json_object_is_type(*out, json_type_object))
        return true;
    json_object_put(*out);
    *out = NULL;
    api_fail(err, API_JSON, NULL);
    err->offset = (int64_t)offset;
    return false;
}

bool request_read(struct json_object *take_root, const struct request_defaults *defaults,
                  struct request *out, struct api_error *err)
{
    *out = (struct request){
        .root = take_root,
        .thinking = defaults->thinking,
        .effort = defaults->effort,
        .sampling = {.temperature = TEMPERATURE_DEFAULT, .top_p = TOP_P_DEFAULT},
    };
    if (!take_model(defaults->model, out, err))
        return false;
    for (size_t i = 0; i < sizeof FIELDS / sizeof FIELDS[0]; i++) {
        struct json_object *value = json_member(out->root, FIELDS[i].name, NULL);
        if (value != NULL && !FIELDS[i].take(&FIELDS[i], value, out, err))
            return false;
    }
    if (out->messages == NULL)
        return api_fail(err, API_MISSING, "messages");
    if (out->prefix && out->format != MASK_TEXT) /* the format holds from the first character on */
        return api_fail(err, API_UNSUPPORTED, "messages[%zu].prefix",
                        json_object_array_length(out->messages) - 1);
    if (out->sampling.top_k < 0)
        out->sampling.top_k = 0;
    return true;
}

bool request_parse(const char *body, size_t len, const struct request_defaults *defaults,
                   struct request *out, struct api_error *err)
{
    struct json_object *root;
    *out = (struct request){0};
    if (!request_json(body, len, &root, err))
        return false;
    int32_t unknown = request_count_unknown(root, is_known);
    bool good = request_read(root, defaults, out, err);
    out->unknown_fields = unknown;
    return good;
}

void request_clear(struct request *request)
{
    json_object_put(request->messages);
    json_object_put(request->root);
    json_object_put(request->echo);
    *request = (struct request){0};
}
