/*
 * Prepares checked messages as the official encoder does (model.md 5.1): tool messages and
 * neighbouring user messages merge, tool results are sorted, reasoning of earlier turns is dropped.
 * Knows no token and no template.
 */
#include "engine/text/chat_turns.h"

#include "kernels/check.h"

#include <stdlib.h>
#include <string.h>

/* ---- merging (5.1.1) ------------------------------------------------------------------------- */

/* A user or tool message becomes a block of the user turn before it, where there is one.  The task
 * of a user message survives only when it opens the turn; a turn with a task takes no more text. */
static void add_block(struct chat_turns *out, const struct chat_message *message, size_t index)
{
    bool tool_result = message->role == ROLE_TOOL;
    struct chat_turn *last = out->n_turns > 0 ? &out->turns[out->n_turns - 1] : NULL;
    if (last == NULL || last->message.role != ROLE_USER ||
        (last->message.task >= 0 && !tool_result)) {
        last = &out->turns[out->n_turns++];
        *last = (struct chat_turn){
            .message = {.role = ROLE_USER, .task = tool_result ? -1 : message->task},
            .first_block = out->n_blocks,
            .first_message = index};
    }
    out->blocks[out->n_blocks++] = (struct chat_block){
        .content = message->content, .call_id = message->call_id, .tool_result = tool_result};
    last->n_blocks++;
    last->n_messages++;
}

static bool has_system(struct json_object *messages)
{
    for (size_t i = 0; i < json_object_array_length(messages); i++) {
        struct json_object *message = json_object_array_get_idx(messages, i);
        if (chat_text_is(json_member(message, "role", NULL), "system"))
            return true;
    }
    return false;
}

/* Moves what the request itself has for the first system message into that. */
static enum status attach(struct chat_checker *checker, struct json_object **from,
                          struct json_object **to, const char *name, size_t index)
{
    if (*from != NULL && *to != NULL)
        return error_set(checker->err, ERR_INPUT, "messages[%zu].%s: the request has %s too", index,
                         name, name);
    if (*from != NULL)
        *to = *from;
    *from = NULL;
    return OK;
}

/* Reads all messages; the request's tools and response format go to the first system message, or to
 * an empty new one. */
static enum status read_messages(const struct chat_request *request, struct chat_checker *checker,
                                 struct chat_turns *out)
{
    struct json_object *tools = chat_or_null(request->tools);
    struct json_object *format = chat_or_null(request->response_format);
    if ((tools != NULL || format != NULL) && !has_system(request->messages)) {
        out->turns[out->n_turns++].message = (struct chat_message){
            .role = ROLE_SYSTEM, .task = -1, .tools = tools, .response_format = format};
        tools = format = NULL;
    }
    size_t count = json_object_array_length(request->messages);
    for (size_t i = 0; i < count; i++) {
        struct chat_message message;
        enum status status = chat_message_read(
            checker, json_object_array_get_idx(request->messages, i), i, &message);
        if (status != OK)
            return status;
        if (message.role == ROLE_USER || message.role == ROLE_TOOL) {
            add_block(out, &message, i);
            continue;
        }
        if (message.role == ROLE_SYSTEM) {
            status = attach(checker, &tools, &message.tools, "tools", i);
            if (status == OK)
                status = attach(checker, &format, &message.response_format, "response_format", i);
            if (status != OK)
                return status;
        }
        out->turns[out->n_turns++] =
            (struct chat_turn){.message = message, .first_message = i, .n_messages = 1};
    }
    return OK;
}

/* ---- sorting (5.1.2) ------------------------------------------------------------------------- */

struct call {
    const char *id; /* borrows [len] */
    size_t len, index;
};

/* The calls of one assistant turn by id. */
struct call_order {
    struct call *calls; /* owns [count], sorted */
    size_t count;
};

static int ids_compare(const struct call *a, const struct call *b)
{
    int order = memcmp(a->id, b->id, a->len < b->len ? a->len : b->len);
    return order != 0 ? order : (a->len > b->len) - (a->len < b->len);
}

/* By id; of equal ids the last call comes first, since it is the one that counts. */
static int calls_compare(const void *left, const void *right)
{
    const struct call *a = left, *b = right;
    int order = ids_compare(a, b);
    return order != 0 ? order : (a->index < b->index) - (a->index > b->index);
}

static struct call call_key(struct json_object *id)
{
    return (struct call){.id = json_object_get_string(id),
                         .len = (size_t)json_object_get_string_len(id)};
}

static void order_build(struct call_order *order, struct json_object *tool_calls)
{
    size_t n = json_object_array_length(tool_calls);
    free(order->calls);
    *order = (struct call_order){.calls = malloc(n * sizeof *order->calls)};
    ASSERT(order->calls != NULL);
    for (size_t i = 0; i < n; i++) {
        struct json_object *call = json_object_array_get_idx(tool_calls, i);
        struct json_object *id = chat_or_null(json_member(call, "id", NULL));
        if (id == NULL)
            continue;
        order->calls[order->count] = call_key(id);
        order->calls[order->count++].index = i;
    }
    qsort(order->calls, order->count, sizeof *order->calls, calls_compare);
}

/* Position of the call with this id; 0 for an unknown one, as the official encoder has it. */
static size_t order_find(const struct call_order *order, struct json_object *id)
{
    if (id == NULL)
        return 0;
    struct call key = call_key(id);
    size_t low = 0, high = order->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (ids_compare(&order->calls[middle], &key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    bool found = low < order->count && ids_compare(&order->calls[low], &key) == 0;
    return found ? order->calls[low].index : 0;
}

struct ranked {
    struct chat_block block;
    size_t rank, at;
};

static int ranked_compare(const void *left, const void *right)
{
    const struct ranked *a = left, *b = right;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    return (a->at > b->at) - (a->at < b->at);
}

/* Sorts the results of a turn among themselves; texts keep their places. */
static void sort_results(struct chat_block *blocks, size_t count, const struct call_order *order)
{
    struct ranked *results = malloc(count * sizeof *results);
    ASSERT(results != NULL);
    size_t n = 0;
    for (size_t i = 0; i < count; i++) {
        if (blocks[i].tool_result) {
            results[n] = (struct ranked){blocks[i], order_find(order, blocks[i].call_id), i};
            n++;
        }
    }
    qsort(results, n, sizeof *results, ranked_compare);
    n = 0;
    for (size_t i = 0; i < count; i++) {
        if (blocks[i].tool_result)
            blocks[i] = results[n++].block;
    }
    free(results);
}

static void sort_all_results(struct chat_turns *turns)
{
    struct call_order order = {0};
    struct json_object *latest = NULL, *built = NULL;
    for (size_t i = 0; i < turns->n_turns; i++) {
        struct chat_turn *turn = &turns->turns[i];
        if (turn->message.role == ROLE_ASSISTANT && turn->message.tool_calls != NULL)
            latest = turn->message.tool_calls;
        if (turn->message.role != ROLE_USER || turn->n_blocks < 2 || latest == NULL)
            continue;
        if (built != latest) /* once an assistant turn, or many small turns would cost n^2 */
            order_build(&order, latest);
        built = latest;
        if (order.count > 0)
            sort_results(&turns->blocks[turn->first_block], turn->n_blocks, &order);
    }
    free(order.calls);
}

/* ---- dropping (5.1.3, 5.1.4) ----------------------------------------------------------------- */

static void find_last_user(struct chat_turns *turns)
{
    turns->last_user = -1;
    for (size_t i = turns->n_turns; i > 0 && turns->last_user < 0; i--) {
        enum chat_role role = turns->turns[i - 1].message.role;
        if (role == ROLE_USER || role == ROLE_DEVELOPER)
            turns->last_user = (ptrdiff_t)i - 1;
    }
}

/* Before the last user turn, reasoning and developer turns are forgotten. */
static void drop_earlier_thinking(struct chat_turns *turns)
{
    size_t kept = 0;
    for (size_t i = 0; i < turns->n_turns; i++) {
        struct chat_turn turn = turns->turns[i];
        if ((ptrdiff_t)i < turns->last_user) {
            if (turn.message.role == ROLE_DEVELOPER)
                continue;
            turn.message.reasoning = NULL;
        }
        turns->turns[kept++] = turn;
    }
    turns->n_turns = kept;
    find_last_user(turns);
}

enum status chat_turns_build(const struct chat_request *request, struct chat_turns *out,
                             struct error *err)
{
    struct chat_checker checker = {.err = err};
    *out = (struct chat_turns){0};
    enum status status = chat_tools_check(&checker, request->tools);
    if (status == OK && request->response_format != NULL &&
        !json_object_is_type(request->response_format, json_type_object))
        status = error_set(err, ERR_INPUT, "response_format: expected an object");
    if (status == OK && !json_object_is_type(chat_or_null(request->messages), json_type_array))
        status = error_set(err, ERR_INPUT, "messages: expected an array with a message");
    if (status == OK) {
        size_t count = json_object_array_length(request->messages);
        out->turns = calloc(count + 1, sizeof *out->turns); /* + the system message for the tools */
        out->blocks = calloc(count, sizeof *out->blocks);
        ASSERT(out->turns != NULL && out->blocks != NULL);
        status = read_messages(request, &checker, out);
    }
    buf_free(&checker.path);
    if (status != OK)
        return status;
    sort_all_results(out);
    find_last_user(out);
    out->drop_thinking = request->drop_thinking;
    for (size_t i = 0; i < out->n_turns; i++)
        out->drop_thinking = out->drop_thinking && out->turns[i].message.tools == NULL;
    if (request->thinking && out->drop_thinking)
        drop_earlier_thinking(out);
    return OK;
}

void chat_turns_free(struct chat_turns *turns)
{
    free(turns->turns);
    free(turns->blocks);
    *turns = (struct chat_turns){0};
}
