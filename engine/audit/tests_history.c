/* Long histories: what stands in one is its turns, one after another, however many there are.  Each
 * turn is short, as the prompts of the published encoder are; what a renderer does only to long
 * histories or far behind their beginning shows in none of those.  Runs no model. */
#include "engine/audit/fact.h"
#include "engine/audit/tests_common.h"
#include "kernels/check.h"

#include <string.h>

/* One turn in so many has a system message in front, or calls a tool three times. */
#define RULE_TURNS 7
#define CALL_TURNS 5
#define CALLS      3
/* Results come in an order that is neither that of the calls nor the reverse. */
static const int ORDER[CALLS] = {2, 0, 1};

static const struct form {
    const char *name;
    bool thinking, drop, tools;
} FORMS[] = {
    {"a long history", false, false, false},
    {"a long history that forgets its thinking", true, true, false},
    {"a long history that keeps its thinking, with tools", true, false, true},
};
#define FORMS_N ((int)(sizeof FORMS / sizeof *FORMS))

static void set(struct json_object *object, const char *key, const char *text)
{
    ASSERT(json_object_object_add(object, key, json_object_new_string(text)) == 0);
}

static struct json_object *say_drawn(struct json_object *messages, struct draws *d,
                                     const char *role, int sentences)
{
    struct buf text = {0};
    for (int i = 0; i < sentences; i++) {
        buf_puts(&text, i == 0 ? "" : " ");
        fact_put_sentence(&text, d);
        buf_puts(&text, ".");
    }
    struct json_object *message = conversation_say(messages, role, &text);
    buf_free(&text);
    return message;
}

/* Three calls of one message, and their results. */
static void put_calls(struct json_object *messages, struct draws *d, bool sorted)
{
    static const char *const IDS[CALLS] = {"call_a", "call_b", "call_c"};
    struct json_object *calls = json_object_new_array();
    for (int i = 0; i < CALLS; i++) {
        struct json_object *call = json_object_new_object(), *function = json_object_new_object();
        set(function, "name", "read");
        set(function, "arguments", "{\"path\": \"notes.txt\"}");
        set(call, "id", IDS[i]);
        set(call, "type", "function");
        ASSERT(json_object_object_add(call, "function", function) == 0);
        ASSERT(json_object_array_add(calls, call) == 0);
    }
    struct json_object *caller = conversation_say_text(messages, "assistant", "");
    set(caller, "reasoning_content", "I call read three times.");
    ASSERT(json_object_object_add(caller, "tool_calls", calls) == 0);
    for (int i = 0; i < CALLS; i++) {
        int which = sorted ? i : ORDER[i];
        struct draws own = {.seed = d->seed, .position = d->position + (uint64_t)which};
        set(say_drawn(messages, &own, "tool", 1), "tool_call_id", IDS[which]);
    }
    d->position += CALLS;
}

/* The turn of this number, from a system message or the user on to the assistant's answer. */
static void put_turn(struct json_object *messages, int32_t turn, bool sorted)
{
    struct draws d = {.seed = (uint64_t)turn};
    if (turn % RULE_TURNS == 0)
        say_drawn(messages, &d, "system", 1);
    say_drawn(messages, &d, "user", AUDIT_HISTORY_SENTENCES);
    if (turn % CALL_TURNS == 2)
        put_calls(messages, &d, sorted);
    set(say_drawn(messages, &d, "assistant", 1), "reasoning_content", "I should answer.");
}

struct rendered {
    struct ids ids;  /* own */
    struct buf text; /* owns */
};

static void rendered_free(struct rendered *r)
{
    ids_free(&r->ids);
    buf_free(&r->text);
}

/* The messages are done with. */
static struct rendered render(const struct audit_run *run, struct json_object *messages,
                              const struct form *form, bool tools)
{
    struct rendered out = {{0}, {0}};
    struct error err;
    const struct chat_request request = {.messages = messages,
                                         .tools = tools ? conversation_tools() : NULL,
                                         .thinking = form->thinking,
                                         .drop_thinking = form->drop};
    enum status status =
        chat_render(run->text->tokenizer, run->text->tokens, &request, &out.ids, &out.text, &err);
    ASSERT(status == OK); /* our own text */
    json_object_put(messages);
    json_object_put(request.tools);
    return out;
}

static bool same(const struct rendered *a, const struct rendered *b)
{
    return a->ids.len == b->ids.len && a->text.len == b->text.len &&
           memcmp(a->ids.data, b->ids.data, a->ids.len * sizeof *a->ids.data) == 0 &&
           memcmp(a->text.data, b->text.data, a->text.len) == 0;
}

/* Appends a turn without the token that begins every prompt. */
static void append(const struct audit_run *run, const struct rendered *turn, struct rendered *to)
{
    size_t begins;
    tokenizer_token_bytes(run->text->tokenizer, run->text->tokens->bos, &begins);
    size_t from = to->ids.len > 0;
    for (size_t i = from; i < turn->ids.len; i++)
        ids_add(&to->ids, turn->ids.data[i]);
    buf_add(&to->text, turn->text.data + from * begins, turn->text.len - from * begins);
}

/* The last turn asks.  What it forgets is written as if nobody had thought. */
static bool turn_by_turn(const struct audit_run *run, const struct form *form)
{
    struct json_object *all = json_object_new_array();
    struct rendered turns = {{0}, {0}};
    for (int32_t turn = 0; turn <= AUDIT_HISTORY_TURNS; turn++) {
        bool last = turn == AUDIT_HISTORY_TURNS;
        struct json_object *own = json_object_new_array();
        struct form as = *form;
        as.thinking = form->thinking && (!form->drop || last);
        if (last) {
            conversation_say_text(all, "user", "And now?");
            conversation_say_text(own, "user", "And now?");
        } else {
            put_turn(all, turn, false);
            put_turn(own, turn, false);
        }
        struct rendered one = render(run, own, &as, form->tools && turn == 0);
        append(run, &one, &turns);
        rendered_free(&one);
    }
    struct rendered whole = render(run, all, form, form->tools);
    bool good = same(&whole, &turns);
    rendered_free(&whole);
    rendered_free(&turns);
    return good;
}

/* Results stand in the order of their calls, in whatever order they came. */
static bool results_sorted(const struct audit_run *run)
{
    struct json_object *came = json_object_new_array(), *sorted = json_object_new_array();
    put_turn(came, 2, false);
    put_turn(sorted, 2, true);
    struct rendered a = render(run, came, &FORMS[0], false);
    struct rendered b = render(run, sorted, &FORMS[0], false);
    bool good = same(&a, &b);
    rendered_free(&a);
    rendered_free(&b);
    return good;
}

const char *audit_history_wrong(const struct audit_run *run)
{
    if (!results_sorted(run))
        return "results of three calls in another order";
    for (int i = 0; i < FORMS_N; i++) {
        if (!turn_by_turn(run, &FORMS[i]))
            return FORMS[i].name;
    }
    return NULL;
}
