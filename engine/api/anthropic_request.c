/*
 * Translates a request of the Messages API into the tree of a chat completion (api.md 1.3):
 *  - `system` and system messages in front stand first.  The chat format has no place for a system
 *    message in mid-conversation, and no mark that would set it off from the turn before it: it
 *    becomes text of the user's turn, in the tags that harnesses use for such notes.
 *  - Results of tools become messages of their own, in their place among the texts.
 *  - Thinking is used whatever its signature says; signatures are checked and counted.
 *  - Redacted thinking is nobody's here: dropped, and restored like any reasoning that is missing.
 * Blocks of text are joined as the chat encoding joins them.
 */
#include "engine/api/anthropic.h"

#include "config/limits.h"
#include "engine/api/messages.h"
#include "engine/api/translate.h"
#include "engine/base/log.h"
#include "kernels/check.h"

#include <string.h>

#define REMINDER_BEGIN "<system-reminder>\n"
#define REMINDER_END   "\n</system-reminder>"
#define ERROR_MARK     "Error: " /* is_error has no place in the chat format */

/* The request while it is translated. */
struct job {
    const struct exchange *x;
    struct json_object *from;     /* borrows: the body */
    struct json_object *to;       /* borrows: the body of a chat completion */
    struct json_object *messages; /* borrows: of `to` */
    bool counting;
    bool begun; /* a message of user or assistant came */
    bool last;  /* the message that is taken ends the list */
    int signed_here, signed_elsewhere;
    struct api_error *err;
};

/* One message while it is translated. */
struct turn_job {
    struct job *job;
    unsigned role; /* one bit of ROLES */
    struct buf text, reasoning;
    int n_texts, n_thoughts, n_results;
    struct json_object *calls; /* owns, may be NULL */
};

static const char *const TEXT_TYPES[] = {"text", NULL};

/* ---- blocks -----------------------------------------------------------------------------------
 */

/* The texts so far as a message of the user. */
static void end_user_text(struct turn_job *t)
{
    json_set(tree_add_message(t->job->messages, "user"), "content", tree_new_text(&t->text));
    t->text.len = 0;
    t->n_texts = 0;
}

static bool take_text(struct turn_job *t, struct json_object *block, const char *path)
{
    return tree_read_member(block, path, "text", &t->n_texts, &t->text, t->job->err);
}

static bool take_thinking(struct turn_job *t, struct json_object *block, const char *path)
{
    if (!tree_read_member(block, path, "thinking", &t->n_thoughts, &t->reasoning, t->job->err))
        return false;
    struct json_object *text = json_member(block, "thinking", NULL);
    struct json_object *signature = json_member(block, "signature", NULL);
    bool here =
        json_is_string(signature) &&
        seal_is_signed(t->job->x->key.seal, json_object_get_string(text),
                       (size_t)json_object_get_string_len(text), json_object_get_string(signature),
                       (size_t)json_object_get_string_len(signature));
    *(here ? &t->job->signed_here : &t->job->signed_elsewhere) += 1;
    return true;
}

static bool take_redacted(struct turn_job *t, struct json_object *block, const char *path)
{
    (void)t;
    (void)block;
    (void)path;
    return true;
}

static bool take_call(struct turn_job *t, struct json_object *block, const char *path)
{
    struct json_object *id, *name, *input = json_member(block, "input", NULL);
    struct buf arguments = {0};
    if (!tree_take_string(block, path, "id", &id, t->job->err) ||
        !tree_take_string(block, path, "name", &name, t->job->err))
        return false;
    if (input != NULL && !json_is_object(input))
        return api_fail(t->job->err, API_TYPE, "%s.input", path);
    if (t->calls == NULL)
        t->calls = json_object_new_array();
    if (json_object_array_length(t->calls) == TOOL_CALLS_MAX)
        return api_fail(t->job->err, API_COUNT, "%s", path);
    if (input != NULL)
        json_dump(&arguments, input);
    else
        buf_puts(&arguments, "{}");
    tree_add_call(t->calls, id, name, tree_new_text(&arguments));
    buf_free(&arguments);
    return true;
}

static bool take_result(struct turn_job *t, struct json_object *block, const char *path)
{
    struct json_object *id, *content = json_member(block, "content", NULL);
    struct json_object *is_error = json_member(block, "is_error", NULL);
    struct buf text = {0};
    char at[API_PARAM_BYTES];
    snprintf(at, sizeof at, "%s.content", path);
    if (!tree_take_string(block, path, "tool_use_id", &id, t->job->err))
        return false;
    if (is_error != NULL && !json_object_is_type(is_error, json_type_boolean))
        return api_fail(t->job->err, API_TYPE, "%s.is_error", path);
    if (is_error != NULL && json_object_get_boolean(is_error))
        buf_puts(&text, ERROR_MARK);
    bool good = content == NULL || tree_read_text(content, at, TEXT_TYPES, &text, t->job->err);
    if (good) {
        if (t->n_texts > 0)
            end_user_text(t);
        struct json_object *message = tree_add_message(t->job->messages, "tool");
        json_set(message, "tool_call_id", json_object_get(id));
        json_set(message, "content", tree_new_text(&text));
        t->n_results++;
    }
    buf_free(&text);
    return good;
}

enum { ROLE_USER = 1, ROLE_ASSISTANT = 2 };

static const struct {
    const char *type;
    unsigned roles; /* who may send it */
    bool (*take)(struct turn_job *t, struct json_object *block, const char *path);
} BLOCKS[] = {
    {"text", ROLE_USER | ROLE_ASSISTANT, take_text},
    {"thinking", ROLE_ASSISTANT, take_thinking},
    {"redacted_thinking", ROLE_ASSISTANT, take_redacted},
    {"tool_use", ROLE_ASSISTANT, take_call},
    {"tool_result", ROLE_USER, take_result},
};

static bool take_block(struct turn_job *t, struct json_object *block, const char *path)
{
    if (!tree_check_block(block, path, t->job->err))
        return false;
    struct json_object *type = json_member(block, "type", NULL);
    for (size_t i = 0; i < sizeof BLOCKS / sizeof BLOCKS[0]; i++) {
        if ((BLOCKS[i].roles & t->role) != 0 && json_text_is(type, BLOCKS[i].type))
            return BLOCKS[i].take(t, block, path);
    }
    return api_fail(t->job->err, API_CONTENT, "%s.type", path);
}

static bool take_blocks(struct turn_job *t, struct json_object *content, const char *path)
{
    if (json_is_string(content)) {
        buf_add(&t->text, json_object_get_string(content),
                (size_t)json_object_get_string_len(content));
        t->n_texts++;
        return true;
    }
    if (!json_object_is_type(content, json_type_array))
        return api_fail(t->job->err, content == NULL ? API_MISSING : API_TYPE, "%s", path);
    size_t n = json_object_array_length(content);
    if (n > CONTENT_PARTS_MAX)
        return api_fail_limit(t->job->err, API_COUNT, path, CONTENT_PARTS_MAX, (int64_t)n);
    for (size_t i = 0; i < n; i++) {
        char at[API_PARAM_BYTES];
        snprintf(at, sizeof at, "%s[%zu]", path, i);
        if (!take_block(t, json_object_array_get_idx(content, i), at))
            return false;
    }
    return true;
}

/* ---- messages ---------------------------------------------------------------------------------
 */

static bool take_user(struct job *job, struct json_object *content, const char *path)
{
    struct turn_job t = {.job = job, .role = ROLE_USER};
    bool good = take_blocks(&t, content, path);
    if (good && (t.n_texts > 0 || t.n_results == 0))
        end_user_text(&t);
    buf_free(&t.text);
    job->begun = true;
    return good;
}

static bool take_assistant(struct job *job, struct json_object *content, const char *path)
{
    struct turn_job t = {.job = job, .role = ROLE_ASSISTANT};
    bool good = take_blocks(&t, content, path);
    if (good && job->last && t.calls != NULL) /* nothing can go on behind a call */
        good = api_fail(job->err, API_UNSUPPORTED, "%s", path);
    if (good) {
        struct json_object *message = tree_add_message(job->messages, "assistant");
        json_set(message, "content", tree_new_text(&t.text));
        if (t.n_thoughts > 0)
            json_set(message, "reasoning_content", tree_new_text(&t.reasoning));
        if (t.calls != NULL)
            json_set(message, "tool_calls", json_object_get(t.calls));
        if (job->last) /* an answer that the client has begun */
            json_set(message, "prefix", json_object_new_boolean(true));
    }
    json_object_put(t.calls);
    buf_free(&t.text);
    buf_free(&t.reasoning);
    job->begun = true;
    return good;
}

static bool take_system(struct job *job, struct json_object *content, const char *path)
{
    struct buf text = {0};
    if (job->begun)
        buf_puts(&text, REMINDER_BEGIN);
    bool good = tree_read_text(content, path, TEXT_TYPES, &text, job->err);
    if (job->begun)
        buf_puts(&text, REMINDER_END);
    if (good)
        json_set(tree_add_message(job->messages, job->begun ? "user" : "system"), "content",
                 tree_new_text(&text));
    buf_free(&text);
    return good;
}

static const struct role {
    const char *name;
    bool (*take)(struct job *job, struct json_object *content, const char *path);
} ROLES[] = {{"user", take_user}, {"assistant", take_assistant}, {"system", take_system}};

static bool take_message(struct job *job, struct json_object *message, size_t idx, bool last)
{
    char path[API_PARAM_BYTES];
    snprintf(path, sizeof path, "messages[%zu].content", idx);
    if (!json_is_object(message))
        return api_fail(job->err, API_TYPE, "messages[%zu]", idx);
    struct json_object *name = json_member(message, "role", NULL);
    if (name == NULL)
        return api_fail(job->err, API_MISSING, "messages[%zu].role", idx);
    for (size_t i = 0; i < sizeof ROLES / sizeof ROLES[0]; i++) {
        if (!json_text_is(name, ROLES[i].name))
            continue;
        job->last = last;
        return ROLES[i].take(job, json_member(message, "content", NULL), path);
    }
    return api_fail(job->err, API_VALUE, "messages[%zu].role", idx);
}

static bool copy_messages(struct job *job)
{
    struct json_object *system = json_member(job->from, "system", NULL);
    struct json_object *messages = json_member(job->from, "messages", NULL);
    if (messages == NULL)
        return api_fail(job->err, API_MISSING, "messages");
    if (!json_object_is_type(messages, json_type_array))
        return api_fail(job->err, API_TYPE, "messages");
    size_t n = json_object_array_length(messages);
    if (n == 0)
        return api_fail(job->err, API_EMPTY, "messages");
    if (n > MESSAGES_MAX)
        return api_fail_limit(job->err, API_COUNT, "messages", MESSAGES_MAX, (int64_t)n);
    job->messages = json_object_new_array_ext((int)n + 1);
    json_set(job->to, "messages", job->messages);
    if (system != NULL && !take_system(job, system, "system"))
        return false;
    for (size_t i = 0; i < n; i++) {
        if (!take_message(job, json_object_array_get_idx(messages, i), i, i == n - 1))
            return false;
    }
    return true;
}

/* ---- tools ------------------------------------------------------------------------------------
 */

static bool copy_tool(struct job *job, struct json_object *tool, size_t idx, struct json_object *to)
{
    /* Name in the Messages API, name in a function.  In this order the model is shown them. */
    static const char *const KEYS[][2] = {{"name", "name"},
                                          {"description", "description"},
                                          {"input_schema", "parameters"},
                                          {"strict", "strict"}};
    struct json_object *type = json_member(tool, "type", NULL);
    if (!json_is_object(tool))
        return api_fail(job->err, API_TYPE, "tools[%zu]", idx);
    if (type != NULL && !json_text_is(type, "custom")) /* one that the server would run */
        return api_fail(job->err, API_UNSUPPORTED, "tools[%zu].type", idx);
    if (json_member(tool, "input_schema", NULL) == NULL)
        return api_fail(job->err, API_MISSING, "tools[%zu].input_schema", idx);
    struct json_object *function = tree_add_function(to);
    for (size_t i = 0; i < sizeof KEYS / sizeof KEYS[0]; i++)
        tree_put_member(function, KEYS[i][1], tool, KEYS[i][0]);
    return true;
}

static bool copy_tools(struct job *job, struct json_object *tools)
{
    if (!json_object_is_type(tools, json_type_array))
        return api_fail(job->err, API_TYPE, "tools");
    size_t n = json_object_array_length(tools);
    if (n > TOOLS_MAX)
        return api_fail_limit(job->err, API_COUNT, "tools", TOOLS_MAX, (int64_t)n);
    struct json_object *to = json_object_new_array();
    json_set(job->to, "tools", to);
    for (size_t i = 0; i < n; i++) {
        if (!copy_tool(job, json_object_array_get_idx(tools, i), i, to))
            return false;
    }
    return true;
}

static bool copy_named_choice(struct job *job, struct json_object *choice)
{
    struct json_object *name;
    if (!tree_take_string(choice, "tool_choice", "name", &name, job->err))
        return false;
    json_set(job->to, "tool_choice", tree_new_choice(name));
    return true;
}

static bool copy_choice(struct job *job, struct json_object *choice)
{
    static const struct {
        const char *type, *word; /* NULL: by name */
    } WORDS[] = {{"auto", "auto"}, {"any", "required"}, {"none", "none"}, {"tool", NULL}};
    if (!json_is_object(choice))
        return api_fail(job->err, API_TYPE, "tool_choice");
    struct json_object *type = json_member(choice, "type", NULL);
    struct json_object *single = json_member(choice, "disable_parallel_tool_use", NULL);
    if (type == NULL)
        return api_fail(job->err, API_MISSING, "tool_choice.type");
    if (single != NULL && !json_object_is_type(single, json_type_boolean))
        return api_fail(job->err, API_TYPE, "tool_choice.disable_parallel_tool_use");
    if (single != NULL)
        json_set(job->to, "parallel_tool_calls",
                 json_object_new_boolean(!json_object_get_boolean(single)));
    for (size_t i = 0; i < sizeof WORDS / sizeof WORDS[0]; i++) {
        if (!json_text_is(type, WORDS[i].type))
            continue;
        if (WORDS[i].word == NULL)
            return copy_named_choice(job, choice);
        json_set(job->to, "tool_choice", json_object_new_string(WORDS[i].word));
        return true;
    }
    return api_fail(job->err, API_VALUE, "tool_choice.type");
}

/* ---- other fields -----------------------------------------------------------------------------
 */

static bool copy_stops(struct job *job, struct json_object *stops)
{
    if (!json_object_is_type(stops, json_type_array))
        return api_fail(job->err, API_TYPE, "stop_sequences");
    if (json_object_array_length(stops) > 0)
        json_set(job->to, "stop", json_object_get(stops));
    return true;
}

/* {type: json_schema, schema}. */
static bool copy_format(struct job *job, struct json_object *format)
{
    static const char PATH[] = "output_config.format";
    if (!json_is_object(format))
        return api_fail(job->err, API_TYPE, "%s", PATH);
    struct json_object *type = json_member(format, "type", NULL);
    struct json_object *schema = json_member(format, "schema", NULL);
    if (type == NULL || schema == NULL)
        return api_fail(job->err, API_MISSING, "%s.%s", PATH, type == NULL ? "type" : "schema");
    if (!json_text_is(type, "json_schema"))
        return api_fail(job->err, API_VALUE, "%s.type", PATH);
    json_set(job->to, "response_format", tree_new_format(schema, true));
    return true;
}

static bool copy_output(struct job *job, struct json_object *config)
{
    if (!json_is_object(config))
        return api_fail(job->err, API_TYPE, "output_config");
    struct json_object *effort = json_member(config, "effort", NULL);
    struct json_object *format = json_member(config, "format", NULL);
    if (effort != NULL)
        json_set(job->to, "reasoning_effort", json_object_get(effort));
    return format == NULL || copy_format(job, format);
}

static const struct tree_field FIELDS[] = {
    {"model", "model", NULL},
    {"max_tokens", "max_tokens", NULL},
    {"stream", "stream", NULL},
    {"temperature", "temperature", NULL},
    {"top_p", "top_p", NULL},
    {"thinking", "thinking", NULL},
    {"profile", "profile", NULL},
    {"deadline_ms", "deadline_ms", NULL},
    {"tools", NULL, copy_tools},
    {"tool_choice", NULL, copy_choice},
    {"stop_sequences", NULL, copy_stops},
    {"output_config", NULL, copy_output},
};

/* Used elsewhere, or without a meaning here. */
static const char *const OTHERS[] = {
    "messages", "system", "metadata",           "service_tier",  "container",     "mcp_servers",
    "top_k",    "betas",  "context_management", "cache_control", "inference_geo", "user_profile_id",
};

static bool is_known(const char *name)
{
    for (size_t i = 0; i < sizeof FIELDS / sizeof FIELDS[0]; i++) {
        if (strcmp(FIELDS[i].name, name) == 0)
            return true;
    }
    for (size_t i = 0; i < sizeof OTHERS / sizeof OTHERS[0]; i++) {
        if (strcmp(OTHERS[i], name) == 0)
            return true;
    }
    return false;
}

static bool translate(struct job *job)
{
    if (!job->counting && json_member(job->from, "max_tokens", NULL) == NULL)
        return api_fail(job->err, API_MISSING, "max_tokens");
    return tree_copy(job->to, job->from, FIELDS, sizeof FIELDS / sizeof FIELDS[0], job) &&
           copy_messages(job);
}

bool anthropic_parse(const struct exchange *x, bool counting, struct request *out,
                     struct api_error *err)
{
    struct request_defaults defaults = api_request_defaults(x);
    struct job job = {.x = x, .counting = counting, .err = err};
    *out = (struct request){0};
    if (!request_json(x->body.len == 0 ? "" : x->body.data, x->body.len, &job.from, err))
        return false;
    job.to = json_object_new_object();
    bool good = translate(&job);
    int32_t unknown = request_count_unknown(job.from, is_known);
    json_object_put(job.from); /* what is used of it has a reference in `to` */
    if (!good) {
        json_object_put(job.to);
        return false;
    }
    if (job.signed_elsewhere > 0)
        log_line(LOG_LEVEL_INFO, "api", "%s thinking blocks: signed here=%d elsewhere=%d", x->id,
                 job.signed_here, job.signed_elsewhere);
    good = request_read(job.to, &defaults, out, err);
    out->unknown_fields = unknown;
    return good;
}
