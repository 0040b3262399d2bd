/*
 * Renders prepared turns (chat_turns.h) as the prompt of DeepSeek-V4 (model.md 5.2 to 5.4), as text
 * and as token ids at once.
 *
 * Token level: plain text is gathered until a control token comes, then encoded as one run with
 * special-token parsing off.  So client text can never become a control token, and where it holds
 * no such string the ids equal those of the whole text tokenised with parsing on. Templates
 * (config/prompt.h) are the one kind of text whose control tokens count.
 */
#include "engine/text/chat.h"

#include "config/prompt.h"
#include "engine/text/chat_turns.h"
#include "kernels/check.h"

#include <stdlib.h>
#include <string.h>

/* ---- control tokens -------------------------------------------------------------------------- */

#define CONTROL_ENUM(name, member, text) CONTROL_##name,
enum control { CONTROL_TOKENS(CONTROL_ENUM) N_CONTROLS };

#define CONTROL_ROW(name, member, text)                                                            \
    {text, sizeof text - 1, offsetof(struct chat_tokens, member)},
static const struct {
    const char *text;
    size_t len;
    size_t offset; /* into struct chat_tokens */
} CONTROLS[N_CONTROLS] = {CONTROL_TOKENS(CONTROL_ROW)};

/* The control tokens that occur inside templates. */
static const enum control TEMPLATE_CONTROLS[] = {CONTROL_DSML, CONTROL_THINK_OPEN,
                                                 CONTROL_THINK_CLOSE};
#define N_TEMPLATE_CONTROLS (sizeof TEMPLATE_CONTROLS / sizeof TEMPLATE_CONTROLS[0])

enum status chat_tokens_find(const struct tokenizer *tokenizer, struct chat_tokens *out,
                             struct error *err)
{
    struct chat_tokens found;
    for (int i = 0; i < N_CONTROLS; i++) {
        int32_t id = tokenizer_added_id(tokenizer, CONTROLS[i].text);
        if (id < 0)
            return error_set(err, ERR_INPUT, "tokenizer: no added token %s", CONTROLS[i].text);
        memcpy((char *)&found + CONTROLS[i].offset, &id, sizeof id);
    }
    *out = found;
    return OK;
}

/* ---- the two outputs ------------------------------------------------------------------------- */

struct writer {
    const struct tokenizer *tokenizer; /* borrows; not used without ids */
    const struct chat_tokens *tokens;  /* borrows; not used without ids */
    struct ids *ids;                   /* borrows, may be NULL */
    struct buf *text;                  /* borrows, may be NULL */
    struct buf run;                    /* owns: plain text since the last control token */
    struct buf scratch;                /* owns: JSON being printed */
    struct chat_recalled recalled;     /* owns: what stands in place of the turn */
    enum chat_source source;           /* of the turn */
    size_t *control_texts;             /* borrows, may be NULL: they are not counted */
};

static void add_plain(struct writer *w, const char *text, size_t len)
{
    if (w->text != NULL)
        buf_add(w->text, text, len);
    if (w->ids != NULL)
        buf_add(&w->run, text, len);
}

static void flush_run(struct writer *w)
{
    if (w->run.len > 0 && w->control_texts != NULL)
        *w->control_texts += tokenizer_count_added(w->tokenizer, w->run.data, w->run.len);
    if (w->run.len > 0)
        tokenizer_encode(w->tokenizer, w->run.data, w->run.len, false, w->ids);
    w->run.len = 0;
}

static void add_control(struct writer *w, enum control control)
{
    if (w->text != NULL)
        buf_add(w->text, CONTROLS[control].text, CONTROLS[control].len);
    if (w->ids == NULL)
        return;
    int32_t id;
    flush_run(w);
    memcpy(&id, (const char *)w->tokens + CONTROLS[control].offset, sizeof id);
    ids_add(w->ids, id);
}

/* Text of config/prompt.h: the control tokens in it are placed by id. */
static void add_template(struct writer *w, const char *text)
{
    for (;;) {
        const char *next = NULL;
        enum control control = CONTROL_DSML;
        for (size_t i = 0; i < N_TEMPLATE_CONTROLS; i++) {
            const char *hit = strstr(text, CONTROLS[TEMPLATE_CONTROLS[i]].text);
            if (hit != NULL && (next == NULL || hit < next)) {
                next = hit;
                control = TEMPLATE_CONTROLS[i];
            }
        }
        if (next == NULL)
            break;
        add_plain(w, text, (size_t)(next - text));
        add_control(w, control);
        text = next + CONTROLS[control].len;
    }
    add_plain(w, text, strlen(text));
}

/* ---- client text ----------------------------------------------------------------------------- */

static void add_string(struct writer *w, struct json_object *string)
{
    add_plain(w, json_object_get_string(string), (size_t)json_object_get_string_len(string));
}

/* Schemas keep the text of their numbers (api.md 1.2); arguments are printed as the official
 * encoder prints what it parsed (`normal`). */
static void add_json(struct writer *w, struct json_object *value, bool normal)
{
    w->scratch.len = 0;
    if (normal)
        json_dump_normal(&w->scratch, value);
    else
        json_dump(&w->scratch, value);
    add_plain(w, w->scratch.data, w->scratch.len);
}

/* A string, an array of parts, or NULL. */
static void add_content(struct writer *w, struct json_object *content)
{
    if (json_object_is_type(content, json_type_string))
        add_string(w, content);
    if (!json_object_is_type(content, json_type_array))
        return;
    for (size_t i = 0; i < json_object_array_length(content); i++) {
        struct json_object *part = json_object_array_get_idx(content, i);
        struct json_object *type = json_member(part, "type", NULL);
        if (i > 0)
            add_template(w, PROMPT_GAP);
        if (chat_text_is(type, "text")) {
            add_string(w, json_member(part, "text", NULL));
            continue;
        }
        add_template(w, PROMPT_UNSUPPORTED_OPEN);
        add_string(w, type);
        add_template(w, PROMPT_UNSUPPORTED_CLOSE);
    }
}

/* ---- tools and tool calls -------------------------------------------------------------------- */

static void add_tools(struct writer *w, struct json_object *tools)
{
    add_template(w, PROMPT_GAP PROMPT_TOOLS_HEAD);
    for (size_t i = 0; i < json_object_array_length(tools); i++) {
        if (i > 0)
            add_template(w, "\n");
        add_json(w, json_member(json_object_array_get_idx(tools, i), "function", NULL), false);
    }
    add_template(w, PROMPT_TOOLS_TAIL);
}

static void add_parameter(struct writer *w, const char *name, struct json_object *value)
{
    bool string = json_object_is_type(value, json_type_string);
    add_template(w, PROMPT_PARAMETER_OPEN);
    add_plain(w, name, strlen(name));
    add_template(w, string ? PROMPT_PARAMETER_STRING : PROMPT_PARAMETER_JSON);
    if (string)
        add_string(w, value);
    else
        add_json(w, value, true);
    add_template(w, PROMPT_PARAMETER_CLOSE);
}

/* Arguments that are no JSON object (as json_parse has it) become one string parameter. */
static void add_arguments(struct writer *w, struct json_object *arguments)
{
    struct json_object *object = NULL;
    enum status status =
        json_parse(json_object_get_string(arguments), (size_t)json_object_get_string_len(arguments),
                   &object, NULL, NULL);
    if (status != OK || !json_object_is_type(object, json_type_object)) {
        add_parameter(w, PROMPT_PARAMETER_RAW, arguments);
        json_object_put(object);
        return;
    }
    bool first = true;
    json_object_object_foreach(object, name, value)
    {
        if (!first)
            add_template(w, "\n");
        first = false;
        add_parameter(w, name, value);
    }
    json_object_put(object);
}

static void add_tool_calls(struct writer *w, struct json_object *calls)
{
    add_template(w, PROMPT_GAP PROMPT_CALLS_OPEN);
    for (size_t i = 0; i < json_object_array_length(calls); i++) {
        struct json_object *function =
            json_member(json_object_array_get_idx(calls, i), "function", NULL);
        if (i > 0)
            add_template(w, "\n");
        add_template(w, PROMPT_INVOKE_OPEN);
        add_string(w, json_member(function, "name", NULL));
        add_template(w, PROMPT_INVOKE_NAMED);
        add_arguments(w, json_member(function, "arguments", NULL));
        add_template(w, PROMPT_INVOKE_CLOSE);
    }
    add_template(w, PROMPT_CALLS_CLOSE);
}

/* ---- turns ----------------------------------------------------------------------------------- */

/* What a system or developer message carries behind its text. */
static void add_attachments(struct writer *w, const struct chat_message *message)
{
    if (message->tools != NULL)
        add_tools(w, message->tools);
    if (message->response_format != NULL) {
        add_template(w, PROMPT_GAP PROMPT_RESPONSE_FORMAT);
        add_json(w, message->response_format, false);
    }
}

static void add_user(struct writer *w, const struct chat_block *blocks, size_t count)
{
    add_control(w, CONTROL_USER);
    for (size_t i = 0; i < count; i++) {
        if (i > 0)
            add_template(w, PROMPT_GAP);
        if (blocks[i].tool_result)
            add_template(w, PROMPT_RESULT_OPEN);
        add_content(w, blocks[i].content);
        if (blocks[i].tool_result)
            add_template(w, PROMPT_RESULT_CLOSE);
    }
}

/* Asks what the model wrote.  Only between control tokens, where it can stand without changing how
 * its neighbours are encoded. */
static void recall(struct writer *w, const struct chat_request *request,
                   const struct chat_message *message, bool reasoning)
{
    if (request->recall == NULL || w->ids == NULL || w->run.len > 0 || message->wo_eos)
        return;
    const struct chat_sent sent = {.content = message->content,
                                   .reasoning = message->reasoning,
                                   .tool_calls = message->tool_calls,
                                   .thinking = reasoning};
    w->recalled.ids.len = 0;
    w->recalled.reasoning.len = 0;
    w->source = request->recall(request->recall_user, &sent, w->ids, &w->recalled);
}

static void add_replayed(struct writer *w)
{
    for (size_t i = 0; i < w->recalled.ids.len; i++) {
        size_t len;
        const char *bytes = tokenizer_token_bytes(w->tokenizer, w->recalled.ids.data[i], &len);
        ids_add(w->ids, w->recalled.ids.data[i]);
        if (w->text != NULL)
            buf_add(w->text, bytes, len);
    }
}

/* <think> itself stands in the transition of the turn before. */
static void add_assistant(struct writer *w, const struct chat_request *request,
                          const struct chat_message *message, bool reasoning)
{
    recall(w, request, message, reasoning);
    if (w->source == CHAT_REPLAYED) {
        add_replayed(w);
        add_control(w, CONTROL_EOS);
        return;
    }
    if (reasoning) {
        if (w->source == CHAT_REASONING)
            add_plain(w, w->recalled.reasoning.data, w->recalled.reasoning.len);
        else
            add_content(w, message->reasoning);
        add_control(w, CONTROL_THINK_CLOSE);
    }
    add_content(w, message->content);
    if (message->tool_calls != NULL)
        add_tool_calls(w, message->tool_calls);
    if (!message->wo_eos)
        add_control(w, CONTROL_EOS);
}

static void add_turn(struct writer *w, const struct chat_request *request,
                     const struct chat_turns *turns, size_t i)
{
    const struct chat_turn *turn = &turns->turns[i];
    const struct chat_message *message = &turn->message;
    w->source = CHAT_SENT;
    bool after_task = i > 0 && turns->turns[i - 1].message.task >= 0;
    switch (message->role) {
    case ROLE_SYSTEM:
        add_content(w, message->content);
        add_attachments(w, message);
        return;
    case ROLE_DEVELOPER:
        add_control(w, CONTROL_USER);
        add_content(w, message->content);
        add_attachments(w, message);
        return;
    case ROLE_USER:
        add_user(w, &turns->blocks[turn->first_block], turn->n_blocks);
        return;
    case ROLE_LATEST_REMINDER:
        add_control(w, CONTROL_LATEST_REMINDER);
        add_content(w, message->content);
        return;
    case ROLE_ASSISTANT:
        add_assistant(w, request, message,
                      request->thinking && !after_task &&
                          (!turns->drop_thinking || (ptrdiff_t)i > turns->last_user));
        return;
    case ROLE_TOOL:
        break;
    }
    ASSERT(!"tool messages are blocks of a user turn");
}

/* Hands the word to the assistant, where it is its turn next. */
static void add_transition(struct writer *w, const struct chat_turns *turns, size_t i,
                           bool thinking)
{
    const struct chat_message *message = &turns->turns[i].message;
    if (i + 1 < turns->n_turns) {
        enum chat_role next = turns->turns[i + 1].message.role;
        if (next != ROLE_ASSISTANT && next != ROLE_LATEST_REMINDER)
            return;
    }
    if (message->task >= 0) {
        enum control task = (enum control)(CONTROL_TASK_ACTION + message->task);
        if (task == CONTROL_TASK_ACTION) {
            add_control(w, CONTROL_ASSISTANT);
            add_control(w, thinking ? CONTROL_THINK_OPEN : CONTROL_THINK_CLOSE);
        }
        add_control(w, task);
    } else if (message->role == ROLE_USER || message->role == ROLE_DEVELOPER) {
        bool think = thinking && (!turns->drop_thinking || (ptrdiff_t)i >= turns->last_user);
        add_control(w, CONTROL_ASSISTANT);
        add_control(w, think ? CONTROL_THINK_OPEN : CONTROL_THINK_CLOSE);
    }
}

/* A turn whose text can not be one with the text before it. */
static bool opens_with_control(const struct chat_turns *turns, size_t i)
{
    enum chat_role role = turns->turns[i].message.role;
    return role == ROLE_USER || role == ROLE_DEVELOPER || role == ROLE_LATEST_REMINDER;
}

/* ---- spans ----------------------------------------------------------------------------------- */

void chat_spans_free(struct chat_spans *spans)
{
    free(spans->data);
    *spans = (struct chat_spans){0};
}

/* Takes note of a turn that has been written.  A span stays open while text waits to be encoded:
 * with what follows, it will be one text. */
static void add_span(struct writer *w, struct chat_spans *spans, const struct chat_turn *turn,
                     bool *open)
{
    if (!*open) {
        if (spans->len == spans->cap) {
            spans->cap = spans->cap == 0 ? 16 : spans->cap * 2;
            spans->data = realloc(spans->data, spans->cap * sizeof *spans->data);
            ASSERT(spans->data != NULL);
        }
        spans->data[spans->len++] = (struct chat_span){.first_message = turn->first_message};
    }
    struct chat_span *span = &spans->data[spans->len - 1];
    span->n_messages += turn->n_messages;
    span->source = w->source > span->source ? w->source : span->source;
    span->ids_end = w->ids->len;
    *open = w->run.len > 0;
}

/* ---- all ------------------------------------------------------------------------------------- */

static void render(struct writer *w, const struct chat_request *request,
                   const struct chat_turns *turns, bool effort_max)
{
    struct chat_spans *spans = w->ids == NULL ? NULL : request->spans;
    bool open = false;
    add_control(w, CONTROL_BOS);
    if (effort_max && request->thinking)
        add_template(w, PROMPT_EFFORT_MAX);
    for (size_t i = 0; i < turns->n_turns; i++) {
        add_turn(w, request, turns, i);
        add_transition(w, turns, i, request->thinking);
        if (w->ids != NULL && (i + 1 == turns->n_turns || opens_with_control(turns, i + 1)))
            flush_run(w);
        if (spans != NULL)
            add_span(w, spans, &turns->turns[i], &open);
    }
    ASSERT(!open);
}

enum status chat_render(const struct tokenizer *tokenizer, const struct chat_tokens *tokens,
                        const struct chat_request *request, struct ids *ids, struct buf *text,
                        struct error *err)
{
    bool effort_max = request->effort != NULL && strcmp(request->effort, "max") == 0;
    if (request->effort != NULL && !effort_max && strcmp(request->effort, "high") != 0)
        return error_set(err, ERR_INPUT, "effort: expected \"high\" or \"max\"");
    struct chat_turns turns;
    enum status status = chat_turns_build(request, &turns, err);
    if (status == OK) {
        struct writer w = {.tokenizer = tokenizer, .tokens = tokens, .ids = ids, .text = text};
        if (ids != NULL && request->spans != NULL)
            w.control_texts = &request->spans->control_texts;
        render(&w, request, &turns, effort_max);
        buf_free(&w.run);
        buf_free(&w.scratch);
        ids_free(&w.recalled.ids);
        buf_free(&w.recalled.reasoning);
    }
    chat_turns_free(&turns);
    return status;
}
