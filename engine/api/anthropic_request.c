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
#include "engine/base/log.h"
#include "kernels/check.h"

#include <sodium.h>
#include <string.h>

#define BLOCKS_JOINT   "\n\n" /* as the chat encoding joins blocks (model.md 5.2) */
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

static bool is_string(struct json_object *value)
{
    return json_object_is_type(value, json_type_string);
}

static bool is_object(struct json_object *value)
{
    return json_object_is_type(value, json_type_object);
}

static void put(struct json_object *object, const char *key, struct json_object *take_value)
{
    ASSERT(json_object_object_add(object, key, take_value) == 0);
}

static struct json_object *new_text(const struct buf *text)
{
    return json_object_new_string_len(text->len == 0 ? "" : text->data, (int)text->len);
}

static void add_string(struct buf *out, struct json_object *string)
{
    buf_add(out, json_object_get_string(string), (size_t)json_object_get_string_len(string));
}

/* Member `key` of `object`, a string that is not empty; else false with the error of its path. */
static bool take_string(struct json_object *object, const char *path, const char *key,
                        struct json_object **out, struct api_error *err)
{
    *out = json_member(object, key, NULL);
    if (*out == NULL)
        return api_fail(err, API_MISSING, "%s.%s", path, key);
    if (!is_string(*out))
        return api_fail(err, API_TYPE, "%s.%s", path, key);
    return json_object_get_string_len(*out) > 0 || api_fail(err, API_EMPTY, "%s.%s", path, key);
}

/* ---- texts ------------------------------------------------------------------------------------
 */

/* The member `key` of a block, a string that may be empty, behind what `out` has. */
static bool add_member(struct json_object *block, const char *path, const char *key, int *n,
                       struct buf *out, struct api_error *err)
{
    struct json_object *text = json_member(block, key, NULL);
    if (!is_string(text))
        return api_fail(err, text == NULL ? API_MISSING : API_TYPE, "%s.%s", path, key);
    if ((*n)++ > 0)
        buf_puts(out, BLOCKS_JOINT);
    add_string(out, text);
    return true;
}

static bool check_block(struct json_object *block, const char *path, struct api_error *err)
{
    struct json_object *type = json_member(block, "type", NULL);
    if (!is_object(block))
        return api_fail(err, API_TYPE, "%s", path);
    return is_string(type) || api_fail(err, type == NULL ? API_MISSING : API_TYPE, "%s.type", path);
}

/* A string or blocks of text. */
static bool read_text(struct json_object *value, const char *path, struct buf *out,
                      struct api_error *err)
{
    if (is_string(value)) {
        add_string(out, value);
        return true;
    }
    if (!json_object_is_type(value, json_type_array))
        return api_fail(err, value == NULL ? API_MISSING : API_TYPE, "%s", path);
    size_t n = json_object_array_length(value);
    if (n > CONTENT_PARTS_MAX)
        return api_fail_limit(err, API_COUNT, path, CONTENT_PARTS_MAX, (int64_t)n);
    int n_texts = 0;
    for (size_t i = 0; i < n; i++) {
        struct json_object *block = json_object_array_get_idx(value, i);
        char at[API_PARAM_BYTES];
        snprintf(at, sizeof at, "%s[%zu]", path, i);
        if (!check_block(block, at, err))
            return false;
        if (!json_text_is(json_member(block, "type", NULL), "text"))
            return api_fail(err, API_CONTENT, "%s.type", at);
        if (!add_member(block, at, "text", &n_texts, out, err))
            return false;
    }
    return true;
}

/* ---- signatures -------------------------------------------------------------------------------
 */

void anthropic_sign(const struct api *api, uint64_t key, const char *text, size_t len,
                    char out[SIGNATURE_CHARS + 1])
{
    unsigned char mac[crypto_auth_hmacsha512256_BYTES];
    crypto_auth_hmacsha512256_state state;
    crypto_auth_hmacsha512256_init(&state, api->sign_key, sizeof api->sign_key);
    crypto_auth_hmacsha512256_update(&state, (const unsigned char *)&key, sizeof key);
    crypto_auth_hmacsha512256_update(&state, (const unsigned char *)text, len);
    crypto_auth_hmacsha512256_final(&state, mac);
    sodium_bin2base64(out, SIGNATURE_CHARS + 1, mac, sizeof mac, sodium_base64_VARIANT_ORIGINAL);
}

_Static_assert(sodium_base64_ENCODED_LEN(crypto_auth_hmacsha512256_BYTES,
                                         sodium_base64_VARIANT_ORIGINAL) == SIGNATURE_CHARS + 1,
               "the length of a signature");

static bool is_signed_here(const struct exchange *x, struct json_object *text,
                           struct json_object *signature)
{
    char good[SIGNATURE_CHARS + 1];
    anthropic_sign(x->user, x->key.number, json_object_get_string(text),
                   (size_t)json_object_get_string_len(text), good);
    return is_string(signature) && json_object_get_string_len(signature) == SIGNATURE_CHARS &&
           sodium_memcmp(json_object_get_string(signature), good, SIGNATURE_CHARS) == 0;
}

/* ---- blocks -----------------------------------------------------------------------------------
 */

static struct json_object *add_message(struct job *job, const char *role)
{
    struct json_object *message = json_object_new_object();
    put(message, "role", json_object_new_string(role));
    ASSERT(json_object_array_add(job->messages, message) == 0);
    return message;
}

/* The texts so far as a message of the user. */
static void end_user_text(struct turn_job *t)
{
    put(add_message(t->job, "user"), "content", new_text(&t->text));
    t->text.len = 0;
    t->n_texts = 0;
}

static bool take_text(struct turn_job *t, struct json_object *block, const char *path)
{
    return add_member(block, path, "text", &t->n_texts, &t->text, t->job->err);
}

static bool take_thinking(struct turn_job *t, struct json_object *block, const char *path)
{
    if (!add_member(block, path, "thinking", &t->n_thoughts, &t->reasoning, t->job->err))
        return false;
    bool here = is_signed_here(t->job->x, json_member(block, "thinking", NULL),
                               json_member(block, "signature", NULL));
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
    if (!take_string(block, path, "id", &id, t->job->err) ||
        !take_string(block, path, "name", &name, t->job->err))
        return false;
    if (input != NULL && !is_object(input))
        return api_fail(t->job->err, API_TYPE, "%s.input", path);
    if (t->calls == NULL)
        t->calls = json_object_new_array();
    if (json_object_array_length(t->calls) == TOOL_CALLS_MAX)
        return api_fail(t->job->err, API_COUNT, "%s", path);
    if (input != NULL)
        json_dump(&arguments, input);
    else
        buf_puts(&arguments, "{}");
    struct json_object *call = json_object_new_object(), *function = json_object_new_object();
    ASSERT(json_object_array_add(t->calls, call) == 0);
    put(call, "id", json_object_get(id));
    put(call, "type", json_object_new_string("function"));
    put(call, "function", function);
    put(function, "name", json_object_get(name));
    put(function, "arguments", new_text(&arguments));
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
    if (!take_string(block, path, "tool_use_id", &id, t->job->err))
        return false;
    if (is_error != NULL && !json_object_is_type(is_error, json_type_boolean))
        return api_fail(t->job->err, API_TYPE, "%s.is_error", path);
    if (is_error != NULL && json_object_get_boolean(is_error))
        buf_puts(&text, ERROR_MARK);
    bool good = content == NULL || read_text(content, at, &text, t->job->err);
    if (good) {
        if (t->n_texts > 0)
            end_user_text(t);
        struct json_object *message = add_message(t->job, "tool");
        put(message, "tool_call_id", json_object_get(id));
        put(message, "content", new_text(&text));
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
    if (!check_block(block, path, t->job->err))
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
    if (is_string(content)) {
        add_string(&t->text, content);
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
    if (good) {
        struct json_object *message = add_message(job, "assistant");
        put(message, "content", new_text(&t.text));
        if (t.n_thoughts > 0)
            put(message, "reasoning_content", new_text(&t.reasoning));
        if (t.calls != NULL)
            put(message, "tool_calls", json_object_get(t.calls));
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
    bool good = read_text(content, path, &text, job->err);
    if (job->begun)
        buf_puts(&text, REMINDER_END);
    if (good)
        put(add_message(job, job->begun ? "user" : "system"), "content", new_text(&text));
    buf_free(&text);
    return good;
}

static const struct role {
    const char *name;
    bool (*take)(struct job *job, struct json_object *content, const char *path);
    bool ends; /* an answer may follow */
} ROLES[] = {
    {"user", take_user, true}, {"assistant", take_assistant, false}, {"system", take_system, true}};

static bool take_message(struct job *job, struct json_object *message, size_t idx, bool last)
{
    char path[API_PARAM_BYTES];
    snprintf(path, sizeof path, "messages[%zu].content", idx);
    if (!is_object(message))
        return api_fail(job->err, API_TYPE, "messages[%zu]", idx);
    struct json_object *name = json_member(message, "role", NULL);
    if (name == NULL)
        return api_fail(job->err, API_MISSING, "messages[%zu].role", idx);
    for (size_t i = 0; i < sizeof ROLES / sizeof ROLES[0]; i++) {
        if (!json_text_is(name, ROLES[i].name))
            continue;
        if (last && !ROLES[i].ends) /* an answer that the client has begun: prefill */
            return api_fail(job->err, API_UNSUPPORTED, "messages[%zu].role", idx);
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
    put(job->to, "messages", job->messages);
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
    if (!is_object(tool))
        return api_fail(job->err, API_TYPE, "tools[%zu]", idx);
    if (type != NULL && !json_text_is(type, "custom")) /* one that the server would run */
        return api_fail(job->err, API_UNSUPPORTED, "tools[%zu].type", idx);
    if (json_member(tool, "input_schema", NULL) == NULL)
        return api_fail(job->err, API_MISSING, "tools[%zu].input_schema", idx);
    struct json_object *entry = json_object_new_object(), *function = json_object_new_object();
    ASSERT(json_object_array_add(to, entry) == 0);
    put(entry, "type", json_object_new_string("function"));
    put(entry, "function", function);
    for (size_t i = 0; i < sizeof KEYS / sizeof KEYS[0]; i++) {
        struct json_object *value = json_member(tool, KEYS[i][0], NULL);
        if (value != NULL)
            put(function, KEYS[i][1], json_object_get(value));
    }
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
    put(job->to, "tools", to);
    for (size_t i = 0; i < n; i++) {
        if (!copy_tool(job, json_object_array_get_idx(tools, i), i, to))
            return false;
    }
    return true;
}

static bool copy_named_choice(struct job *job, struct json_object *choice)
{
    struct json_object *name;
    if (!take_string(choice, "tool_choice", "name", &name, job->err))
        return false;
    struct json_object *to = json_object_new_object(), *function = json_object_new_object();
    put(to, "type", json_object_new_string("function"));
    put(to, "function", function);
    put(function, "name", json_object_get(name));
    put(job->to, "tool_choice", to);
    return true;
}

static bool copy_choice(struct job *job, struct json_object *choice)
{
    static const struct {
        const char *type, *word; /* NULL: by name */
    } WORDS[] = {{"auto", "auto"}, {"any", "required"}, {"none", "none"}, {"tool", NULL}};
    if (!is_object(choice))
        return api_fail(job->err, API_TYPE, "tool_choice");
    struct json_object *type = json_member(choice, "type", NULL);
    struct json_object *single = json_member(choice, "disable_parallel_tool_use", NULL);
    if (type == NULL)
        return api_fail(job->err, API_MISSING, "tool_choice.type");
    if (single != NULL && !json_object_is_type(single, json_type_boolean))
        return api_fail(job->err, API_TYPE, "tool_choice.disable_parallel_tool_use");
    if (single != NULL)
        put(job->to, "parallel_tool_calls",
            json_object_new_boolean(!json_object_get_boolean(single)));
    for (size_t i = 0; i < sizeof WORDS / sizeof WORDS[0]; i++) {
        if (!json_text_is(type, WORDS[i].type))
            continue;
        if (WORDS[i].word == NULL)
            return copy_named_choice(job, choice);
        put(job->to, "tool_choice", json_object_new_string(WORDS[i].word));
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
        put(job->to, "stop", json_object_get(stops));
    return true;
}

/* {type: json_schema, schema}. */
static bool copy_format(struct job *job, struct json_object *format)
{
    static const char PATH[] = "output_config.format";
    if (!is_object(format))
        return api_fail(job->err, API_TYPE, "%s", PATH);
    struct json_object *type = json_member(format, "type", NULL);
    struct json_object *schema = json_member(format, "schema", NULL);
    if (type == NULL || schema == NULL)
        return api_fail(job->err, API_MISSING, "%s.%s", PATH, type == NULL ? "type" : "schema");
    if (!json_text_is(type, "json_schema"))
        return api_fail(job->err, API_VALUE, "%s.type", PATH);
    struct json_object *to = json_object_new_object(), *named = json_object_new_object();
    put(to, "type", json_object_get(type));
    put(to, "json_schema", named);
    put(named, "name", json_object_new_string("answer"));
    put(named, "strict", json_object_new_boolean(true));
    put(named, "schema", json_object_get(schema));
    put(job->to, "response_format", to);
    return true;
}

static bool copy_output(struct job *job, struct json_object *config)
{
    if (!is_object(config))
        return api_fail(job->err, API_TYPE, "output_config");
    struct json_object *effort = json_member(config, "effort", NULL);
    struct json_object *format = json_member(config, "format", NULL);
    if (effort != NULL)
        put(job->to, "reasoning_effort", json_object_get(effort));
    return format == NULL || copy_format(job, format);
}

static const struct {
    const char *name;
    bool (*copy)(struct job *job, struct json_object *value); /* NULL: as it is */
} FIELDS[] = {
    {"model", NULL},
    {"max_tokens", NULL},
    {"stream", NULL},
    {"temperature", NULL},
    {"top_p", NULL},
    {"thinking", NULL},
    {"tools", copy_tools},
    {"tool_choice", copy_choice},
    {"stop_sequences", copy_stops},
    {"output_config", copy_output},
};

static bool translate(struct job *job)
{
    if (!job->counting && json_member(job->from, "max_tokens", NULL) == NULL)
        return api_fail(job->err, API_MISSING, "max_tokens");
    for (size_t i = 0; i < sizeof FIELDS / sizeof FIELDS[0]; i++) {
        struct json_object *value = json_member(job->from, FIELDS[i].name, NULL);
        if (value == NULL)
            continue;
        if (FIELDS[i].copy == NULL)
            put(job->to, FIELDS[i].name, json_object_get(value));
        else if (!FIELDS[i].copy(job, value))
            return false;
    }
    return copy_messages(job);
}

bool anthropic_parse(const struct exchange *x, bool counting, struct request *out,
                     struct api_error *err)
{
    const struct api *api = x->user;
    struct request_defaults defaults = {.model = api->model, .thinking = api->thinking_default};
    struct job job = {.x = x, .counting = counting, .err = err};
    *out = (struct request){0};
    if (!request_json(x->body.len == 0 ? "" : x->body.data, x->body.len, &job.from, err))
        return false;
    job.to = json_object_new_object();
    bool good = translate(&job);
    json_object_put(job.from); /* what is used of it has a reference in `to` */
    if (!good) {
        json_object_put(job.to);
        return false;
    }
    if (job.signed_elsewhere > 0)
        log_line(LOG_LEVEL_INFO, "api", "%s thinking blocks: signed here=%d elsewhere=%d", x->id,
                 job.signed_here, job.signed_elsewhere);
    return request_read(job.to, &defaults, out, err);
}
