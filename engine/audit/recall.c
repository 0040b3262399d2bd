/* Long talks: a fact is said, other things follow, and the fact is asked for. */
#include "engine/audit/conversation.h"

#include "engine/audit/fact.h"
#include "kernels/check.h"

#include <string.h>

static const struct small {
    const char *user, *assistant, *reasoning;
} SMALL[] = {
#define AUDIT_SMALL(user, assistant, reasoning) {user, assistant, reasoning},
#include "config/audit.def"
};
static const struct errand {
    const char *user, *tool, *arguments, *result, *assistant, *reasoning;
} ERRANDS[] = {
#define AUDIT_ERRAND(user, tool, arguments, result, assistant, reasoning)                          \
    {user, tool, arguments, result, assistant, reasoning},
#include "config/audit.def"
};
static const char AGENT[] =
#define AUDIT_AGENT(text) text
#include "config/audit.def"
    ;
static const char NOTE[] = "The user gives a fact. I should note it.";

#define COUNT(list) ((int32_t)(sizeof(list) / sizeof *(list)))

/* One errand in so many turns, where there are tools. */
#define ERRAND_TURNS 3

struct talk {
    const struct recall_plan *plan;
    struct json_object *messages; /* borrows */
    struct draws draws;
    struct fact fact;
    bool tools;
    int32_t calls; /* made so far: their ids */
};

static void set(struct json_object *object, const char *key, const char *text)
{
    ASSERT(json_object_object_add(object, key, json_object_new_string(text)) == 0);
}

static struct json_object *reply(struct talk *t, const char *content, const char *reasoning)
{
    struct json_object *message = conversation_say_text(t->messages, "assistant", content);
    if (t->plan->thinking)
        set(message, "reasoning_content", reasoning);
    return message;
}

/* A tool is called, says `result`, and the assistant says what it saw. */
static void run_errand(struct talk *t, const struct errand *e, const struct buf *result)
{
    char id[16];
    struct buf name = {0};
    buf_printf(&name, "call_%d", ++t->calls);
    strncpy(id, buf_cstr(&name), sizeof id - 1);
    id[sizeof id - 1] = '\0';
    buf_free(&name);
    conversation_say_text(t->messages, "user", e->user);
    struct json_object *calls = json_object_new_array(), *call = json_object_new_object(),
                       *function = json_object_new_object();
    set(function, "name", e->tool);
    set(function, "arguments", e->arguments);
    set(call, "id", id);
    set(call, "type", "function");
    ASSERT(json_object_object_add(call, "function", function) == 0);
    ASSERT(json_object_array_add(calls, call) == 0);
    ASSERT(json_object_object_add(reply(t, "", e->reasoning), "tool_calls", calls) == 0);
    set(conversation_say(t->messages, "tool", result), "tool_call_id", id);
    reply(t, e->assistant, "I have the result. I should answer.");
}

static void make_small(struct talk *t, const struct small *s)
{
    conversation_say_text(t->messages, "user", s->user);
    reply(t, s->assistant, s->reasoning);
}

static void tell(struct talk *t, const struct fact *fact)
{
    struct buf said = {0};
    fact_put(&said, fact, fact->value);
    conversation_say(t->messages, "user", &said);
    reply(t, "Noted.", NOTE);
    buf_free(&said);
}

/* The first turn, with the fact in its place. */
static void begin(struct talk *t)
{
    struct buf said = {0}, text = {0};
    enum audit_place place = t->plan->place;
    fact_put(&said, &t->fact, t->fact.value);
    if (t->tools || place == PLACE_SYSTEM) {
        buf_puts(&text, t->tools ? AGENT : "You are a helpful assistant. ");
        if (place == PLACE_SYSTEM)
            buf_add(&text, said.data, said.len);
        conversation_say(t->messages, "system", &text);
    }
    switch (place) {
    case PLACE_SYSTEM:
        make_small(t, &SMALL[0]);
        break;
    case PLACE_USER:
        tell(t, &t->fact);
        break;
    case PLACE_ASSISTANT:
        text.len = 0;
        buf_puts(&text, "Choose the ");
        fact_put_subject(&text, &t->fact);
        buf_puts(&text, ".");
        conversation_say(t->messages, "user", &text);
        reply(t, buf_cstr(&said), "The user wants me to choose. I choose one.");
        break;
    case PLACE_TOOL:
        run_errand(t,
                   &(struct errand){"Read notes.txt.", "read", "{\"path\": \"notes.txt\"}", NULL,
                                    "I have read notes.txt.", "I call read to see notes.txt."},
                   &said);
        break;
    case PLACES:
        ASSERT(false);
    }
    buf_free(&said);
    buf_free(&text);
}

static void pass_turn(struct talk *t)
{
    if (t->tools && draws_below(&t->draws, ERRAND_TURNS) == 0) {
        const struct errand *e = &ERRANDS[draws_below(&t->draws, COUNT(ERRANDS))];
        struct buf result = {0};
        buf_puts(&result, e->result);
        run_errand(t, e, &result);
        buf_free(&result);
    } else {
        make_small(t, &SMALL[draws_below(&t->draws, COUNT(SMALL))]);
    }
}

/* The whole of it; the messages are done with. */
static void render_talk(const struct audit_text *text, struct talk *t, struct audit_item *out)
{
    struct error err;
    struct chat_request request = {.messages = t->messages,
                                   .tools = t->tools ? conversation_tools() : NULL,
                                   .thinking = t->plan->thinking,
                                   .drop_thinking = true};
    enum status status = conversation_render(text, &request, out, &err);
    ASSERT(status == OK); /* our own text */
    json_object_put(t->messages);
    json_object_put(request.tools);
}

void conversation_recall(const struct audit_text *text, const struct recall_plan *plan,
                         struct audit_item *out)
{
    ASSERT(plan->turns >= 2 && plan->turns <= AUDIT_TURNS_MAX);
    ASSERT(plan->decoys >= 0 && plan->decoys <= plan->turns - 2);
    struct talk t = {.plan = plan,
                     .messages = json_object_new_array(),
                     .draws = {.seed = plan->seed},
                     .tools = plan->tools || plan->place == PLACE_TOOL};
    t.fact = fact_draw(&t.draws);
    begin(&t);
    int32_t decoys = plan->decoys;
    for (int32_t left = plan->turns - 2; left > 0; left--) {
        if (draws_below(&t.draws, left) < decoys) {
            struct fact decoy = fact_decoy(&t.draws, &t.fact);
            tell(&t, &decoy);
            decoys--;
        } else {
            pass_turn(&t);
        }
    }
    struct buf question = {0};
    fact_put_question(&question, &t.fact);
    conversation_say(t.messages, "user", &question);
    render_talk(text, &t, out);
    out->value = strdup(t.fact.value);
    ASSERT(out->value != NULL);
    buf_free(&question);
}

void conversation_call(const struct audit_text *text, const struct call_plan *plan,
                       struct audit_item *out)
{
    const struct recall_plan as = {.thinking = plan->thinking};
    struct talk t = {.plan = &as,
                     .messages = json_object_new_array(),
                     .draws = {.seed = plan->seed},
                     .tools = true};
    conversation_say_text(t.messages, "system", AGENT);
    pass_turn(&t);
    conversation_say_text(t.messages, "user", ERRANDS[plan->errand % COUNT(ERRANDS)].user);
    render_talk(text, &t, out);
}
