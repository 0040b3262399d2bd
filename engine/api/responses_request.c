/*
 * Translates a request of the Responses API into the tree of a chat completion (api.md 1.3):
 *  - `instructions` stand first, as a system message.
 *  - Reasoning, a message of the assistant and function calls that follow each other are one turn
 *    of the assistant, as the model wrote it; an item that goes back in this order opens the next.
 *  - Sealed reasoning is opened; what cannot be opened here changes nothing: the text beside it is
 *    used, and without any the box's own memory restores it, as for every turn.
 *  - Nothing is stored, so that what refers to something stored is refused.
 */
#include "engine/api/responses.h"

#include "config/limits.h"
#include "engine/api/messages.h"
#include "engine/api/translate.h"
#include "engine/base/log.h"
#include "kernels/check.h"

#include <string.h>

#define LOGPROBS_WORD "message.output_text.logprobs"

static const char *const TEXT_TYPES[] = {"input_text", "output_text", "text", NULL};
static const char *const SUMMARY_TYPES[] = {"summary_text", NULL};
static const char *const REASONING_TYPES[] = {"reasoning_text", "text", NULL};

/* The turn of the assistant that is being put together. */
struct turn_job {
    bool open;
    struct buf reasoning, text;
    int n_thoughts, n_texts;
    struct json_object *calls; /* owns, may be NULL */
};

/* The request while it is translated. */
struct job {
    const struct exchange *x;
    struct json_object *from;     /* borrows: the body */
    struct json_object *to;       /* borrows: the body of a chat completion */
    struct json_object *messages; /* borrows: of `to` */
    struct turn_job turn;
    int opened, foreign; /* sealed reasoning */
    struct api_error *err;
};

/* ---- turns of the assistant -------------------------------------------------------------------
 */

static void turn_clear(struct turn_job *t)
{
    json_object_put(t->calls);
    buf_free(&t->reasoning);
    buf_free(&t->text);
    *t = (struct turn_job){0};
}

static void end_turn(struct job *job)
{
    struct turn_job *t = &job->turn;
    if (t->open) {
        struct json_object *message = tree_add_message(job->messages, "assistant");
        json_set(message, "content", tree_new_text(&t->text));
        if (t->n_thoughts > 0)
            json_set(message, "reasoning_content", tree_new_text(&t->reasoning));
        if (t->calls != NULL)
            json_set(message, "tool_calls", json_object_get(t->calls));
    }
    turn_clear(t);
}

/* ---- items ------------------------------------------------------------------------------------
 */

/* The member `key` of an item: text or blocks of text, behind what `out` has. */
static bool add_text(struct job *job, struct json_object *item, const char *path, const char *key,
                     const char *const *types, int *n, struct buf *out)
{
    char at[API_PARAM_BYTES];
    snprintf(at, sizeof at, "%s.%s", path, key);
    if ((*n)++ > 0)
        buf_puts(out, BLOCKS_JOINT);
    return tree_read_text(json_member(item, key, NULL), at, types, out, job->err);
}

static bool open_sealed(struct job *job, struct json_object *sealed, struct buf *out)
{
    if (!json_is_string(sealed))
        return false;
    bool good = seal_open(job->x->key.seal, json_object_get_string(sealed),
                          (size_t)json_object_get_string_len(sealed), out);
    *(good ? &job->opened : &job->foreign) += 1;
    return good;
}

/* What stands in the open: all of the reasoning in `content`, or what was shown of it. */
static bool add_shown(struct job *job, struct json_object *item, const char *path, struct buf *out)
{
    int n = 0;
    bool whole = json_is_array(json_member(item, "content", NULL)) &&
                 json_object_array_length(json_member(item, "content", NULL)) > 0;
    if (whole)
        return add_text(job, item, path, "content", REASONING_TYPES, &n, out);
    return json_member(item, "summary", NULL) == NULL ||
           add_text(job, item, path, "summary", SUMMARY_TYPES, &n, out);
}

static bool take_reasoning(struct job *job, struct json_object *item, const char *path)
{
    struct json_object *sealed = json_member(item, "encrypted_content", NULL);
    struct turn_job *t = &job->turn;
    if (sealed != NULL && !json_is_string(sealed))
        return api_fail(job->err, API_TYPE, "%s.encrypted_content", path);
    if (t->n_texts > 0 || t->calls != NULL)
        end_turn(job);
    t->open = true;
    if (t->n_thoughts++ > 0)
        buf_puts(&t->reasoning, BLOCKS_JOINT);
    return open_sealed(job, sealed, &t->reasoning) || add_shown(job, item, path, &t->reasoning);
}

static bool take_assistant(struct job *job, struct json_object *item, const char *path)
{
    struct turn_job *t = &job->turn;
    if (t->n_texts > 0 || t->calls != NULL)
        end_turn(job);
    t->open = true;
    return add_text(job, item, path, "content", TEXT_TYPES, &t->n_texts, &t->text);
}

static bool take_call(struct job *job, struct json_object *item, const char *path)
{
    struct json_object *id, *name, *arguments = json_member(item, "arguments", NULL);
    struct turn_job *t = &job->turn;
    if (!tree_take_string(item, path, "call_id", &id, job->err) ||
        !tree_take_string(item, path, "name", &name, job->err))
        return false;
    if (arguments != NULL && !json_is_string(arguments))
        return api_fail(job->err, API_TYPE, "%s.arguments", path);
    if (t->calls == NULL)
        t->calls = json_object_new_array();
    if (json_object_array_length(t->calls) == TOOL_CALLS_MAX)
        return api_fail(job->err, API_COUNT, "%s", path);
    t->open = true;
    tree_add_call(t->calls, id, name,
                  arguments == NULL ? json_object_new_string("") : json_object_get(arguments));
    return true;
}

static bool take_output(struct job *job, struct json_object *item, const char *path)
{
    struct json_object *id;
    struct buf text = {0};
    int n = 0;
    end_turn(job);
    if (!tree_take_string(item, path, "call_id", &id, job->err))
        return false;
    bool good = add_text(job, item, path, "output", TEXT_TYPES, &n, &text);
    if (good) {
        struct json_object *message = tree_add_message(job->messages, "tool");
        json_set(message, "tool_call_id", json_object_get(id));
        json_set(message, "content", tree_new_text(&text));
    }
    buf_free(&text);
    return good;
}

static bool take_other(struct job *job, struct json_object *item, const char *path,
                       const char *role)
{
    struct buf text = {0};
    int n = 0;
    end_turn(job);
    bool good = add_text(job, item, path, "content", TEXT_TYPES, &n, &text);
    if (good)
        json_set(tree_add_message(job->messages, role), "content", tree_new_text(&text));
    buf_free(&text);
    return good;
}

static bool take_message(struct job *job, struct json_object *item, const char *path)
{
    static const char *const ROLES[] = {"user", "system", "developer"};
    struct json_object *role = json_member(item, "role", NULL);
    if (role == NULL)
        return api_fail(job->err, API_MISSING, "%s.role", path);
    if (json_text_is(role, "assistant"))
        return take_assistant(job, item, path);
    for (size_t i = 0; i < sizeof ROLES / sizeof ROLES[0]; i++) {
        if (json_text_is(role, ROLES[i]))
            return take_other(job, item, path, ROLES[i]);
    }
    return api_fail(job->err, API_VALUE, "%s.role", path);
}

static const struct {
    const char *type;
    bool (*take)(struct job *job, struct json_object *item, const char *path);
} ITEMS[] = {
    {"message", take_message},
    {"reasoning", take_reasoning},
    {"function_call", take_call},
    {"function_call_output", take_output},
};

/* A message may come without its type. */
static bool take_item(struct job *job, struct json_object *item, const char *path)
{
    struct json_object *type = json_member(item, "type", NULL);
    if (!json_is_object(item))
        return api_fail(job->err, API_TYPE, "%s", path);
    if (type == NULL)
        return json_member(item, "role", NULL) != NULL
                   ? take_message(job, item, path)
                   : api_fail(job->err, API_MISSING, "%s.type", path);
    for (size_t i = 0; i < sizeof ITEMS / sizeof ITEMS[0]; i++) {
        if (json_text_is(type, ITEMS[i].type))
            return ITEMS[i].take(job, item, path);
    }
    return api_fail(job->err, API_CONTENT, "%s.type", path);
}

/* An answer follows what a user or a tool said. */
static bool ends_well(struct json_object *messages)
{
    struct json_object *last =
        json_object_array_get_idx(messages, json_object_array_length(messages) - 1);
    struct json_object *role = json_member(last, "role", NULL);
    return json_text_is(role, "user") || json_text_is(role, "tool");
}

static bool take_items(struct job *job, struct json_object *items)
{
    char path[API_PARAM_BYTES];
    size_t n = json_object_array_length(items);
    if (n == 0)
        return api_fail(job->err, API_EMPTY, "input");
    if (n > MESSAGES_MAX)
        return api_fail_limit(job->err, API_COUNT, "input", MESSAGES_MAX, (int64_t)n);
    for (size_t i = 0; i < n; i++) {
        snprintf(path, sizeof path, "input[%zu]", i);
        if (!take_item(job, json_object_array_get_idx(items, i), path))
            return false;
    }
    end_turn(job);
    return ends_well(job->messages) || api_fail(job->err, API_UNSUPPORTED, "input[%zu]", n - 1);
}

static bool copy_input(struct job *job)
{
    struct json_object *input = json_member(job->from, "input", NULL);
    struct json_object *instructions = json_member(job->from, "instructions", NULL);
    job->messages = json_object_new_array();
    json_set(job->to, "messages", job->messages);
    if (instructions != NULL && !json_is_string(instructions))
        return api_fail(job->err, API_TYPE, "instructions");
    if (instructions != NULL)
        json_set(tree_add_message(job->messages, "system"), "content",
                 json_object_get(instructions));
    if (input == NULL)
        return api_fail(job->err, API_MISSING, "input");
    if (json_is_array(input))
        return take_items(job, input);
    if (!json_is_string(input))
        return api_fail(job->err, API_TYPE, "input");
    json_set(tree_add_message(job->messages, "user"), "content", json_object_get(input));
    return true;
}

/* ---- other fields -----------------------------------------------------------------------------
 */

static bool copy_tools(struct job *job, struct json_object *tools)
{
    /* In this order the model is shown them. */
    static const char *const KEYS[] = {"name", "description", "parameters", "strict"};
    if (!json_is_array(tools))
        return api_fail(job->err, API_TYPE, "tools");
    size_t n = json_object_array_length(tools);
    if (n > TOOLS_MAX)
        return api_fail_limit(job->err, API_COUNT, "tools", TOOLS_MAX, (int64_t)n);
    struct json_object *to = json_object_new_array();
    json_set(job->to, "tools", to);
    for (size_t i = 0; i < n; i++) {
        char path[API_PARAM_BYTES];
        struct json_object *tool = json_object_array_get_idx(tools, i);
        snprintf(path, sizeof path, "tools[%zu]", i);
        if (!tree_check_block(tool, path, job->err))
            return false;
        if (!json_text_is(json_member(tool, "type", NULL),
                          "function")) /* the server would run it */
            return api_fail(job->err, API_UNSUPPORTED, "%s.type", path);
        struct json_object *function = tree_add_function(to);
        for (size_t k = 0; k < sizeof KEYS / sizeof KEYS[0]; k++)
            tree_put_member(function, KEYS[k], tool, KEYS[k]);
    }
    return true;
}

static bool copy_choice(struct job *job, struct json_object *choice)
{
    struct json_object *name;
    if (!json_is_object(choice)) {
        json_set(job->to, "tool_choice", json_object_get(choice));
        return true;
    }
    if (!tree_check_block(choice, "tool_choice", job->err))
        return false;
    if (!json_text_is(json_member(choice, "type", NULL), "function"))
        return api_fail(job->err, API_UNSUPPORTED, "tool_choice.type");
    if (!tree_take_string(choice, "tool_choice", "name", &name, job->err))
        return false;
    json_set(job->to, "tool_choice", tree_new_choice(name));
    return true;
}

static bool copy_reasoning(struct job *job, struct json_object *reasoning)
{
    if (!json_is_object(reasoning))
        return api_fail(job->err, API_TYPE, "reasoning");
    tree_put_member(job->to, "reasoning_effort", reasoning, "effort");
    return true;
}

/* text.format is response_format with the schema one level higher. */
static bool copy_text(struct job *job, struct json_object *text)
{
    struct json_object *format = json_member(text, "format", NULL);
    if (!json_is_object(text))
        return api_fail(job->err, API_TYPE, "text");
    if (format == NULL)
        return true;
    if (!tree_check_block(format, "text.format", job->err))
        return false;
    struct json_object *schema = json_member(format, "schema", NULL);
    struct json_object *strict = json_member(format, "strict", NULL);
    if (!json_text_is(json_member(format, "type", NULL), "json_schema")) {
        json_set(job->to, "response_format", json_object_get(format));
        return true;
    }
    if (schema == NULL)
        return api_fail(job->err, API_MISSING, "text.format.schema");
    if (strict != NULL && !json_object_is_type(strict, json_type_boolean))
        return api_fail(job->err, API_TYPE, "text.format.strict");
    json_set(job->to, "response_format",
             tree_new_format(schema, strict != NULL && json_object_get_boolean(strict)));
    return true;
}

/* Reasoning is always sealed and sent; what else can be included belongs to tools of a server. */
static bool copy_include(struct job *job, struct json_object *include)
{
    if (!json_is_array(include))
        return api_fail(job->err, API_TYPE, "include");
    for (size_t i = 0; i < json_object_array_length(include); i++) {
        if (json_text_is(json_object_array_get_idx(include, i), LOGPROBS_WORD))
            json_set(job->to, "logprobs", json_object_new_boolean(true));
    }
    return true;
}

static const struct tree_field FIELDS[] = {
    {"model", "model", NULL},
    {"stream", "stream", NULL},
    {"max_output_tokens", "max_completion_tokens", NULL},
    {"temperature", "temperature", NULL},
    {"top_p", "top_p", NULL},
    {"top_logprobs", "top_logprobs", NULL},
    {"profile", "profile", NULL},
    {"deadline_ms", "deadline_ms", NULL},
    {"parallel_tool_calls", "parallel_tool_calls", NULL},
    {"include", NULL, copy_include},
    {"tools", NULL, copy_tools},
    {"tool_choice", NULL, copy_choice},
    {"reasoning", NULL, copy_reasoning},
    {"text", NULL, copy_text},
};

/* What asks for a server that keeps or changes conversations; the word is what may be said. */
static const struct {
    const char *name, *word;
} REFUSED[] = {
    {"store", NULL},  {"previous_response_id", NULL}, {"conversation", NULL}, {"background", NULL},
    {"prompt", NULL}, {"truncation", "disabled"},
};

static bool is_refused(struct json_object *value, const char *word)
{
    if (value == NULL || (word != NULL && json_text_is(value, word)))
        return false;
    return !json_object_is_type(value, json_type_boolean) || json_object_get_boolean(value);
}

/* Used elsewhere, or without a meaning here. */
static const char *const OTHERS[] = {
    "input",          "instructions",      "metadata",       "user",
    "service_tier",   "prompt_cache_key",  "stream_options", "prompt_cache_retention",
    "max_tool_calls", "safety_identifier",
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
    for (size_t i = 0; i < sizeof REFUSED / sizeof REFUSED[0]; i++) {
        if (strcmp(REFUSED[i].name, name) == 0)
            return true;
    }
    return false;
}

static bool translate(struct job *job)
{
    for (size_t i = 0; i < sizeof REFUSED / sizeof REFUSED[0]; i++) {
        if (is_refused(json_member(job->from, REFUSED[i].name, NULL), REFUSED[i].word))
            return api_fail(job->err, API_UNSUPPORTED, "%s", REFUSED[i].name);
    }
    return tree_copy(job->to, job->from, FIELDS, sizeof FIELDS / sizeof FIELDS[0], job) &&
           copy_input(job);
}

bool responses_parse(const struct exchange *x, struct request *out, struct api_error *err)
{
    struct request_defaults defaults = api_request_defaults(x);
    struct job job = {.x = x, .err = err};
    *out = (struct request){0};
    if (!request_json(x->body.len == 0 ? "" : x->body.data, x->body.len, &job.from, err))
        return false;
    job.to = json_object_new_object();
    bool good = translate(&job);
    turn_clear(&job.turn);
    if (!good) {
        json_object_put(job.from);
        json_object_put(job.to);
        return false;
    }
    if (job.foreign > 0)
        log_line(LOG_LEVEL_INFO, "api", "%s sealed reasoning: opened=%d foreign=%d", x->id,
                 job.opened, job.foreign);
    good = request_read(job.to, &defaults, out, err);
    out->echo = responses_echo(job.from);
    out->unknown_fields = request_count_unknown(job.from, is_known);
    json_object_put(job.from);
    return good;
}
