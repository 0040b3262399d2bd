/* Facts, the talk around them, and their places. */
#include "engine/audit/conversation.h"

#include "engine/base/json.h"
#include "engine/serve/sampler.h"
#include "kernels/check.h"

#include <stdlib.h>
#include <string.h>

static const char *const ATTRIBUTES[] = {
#define AUDIT_ATTRIBUTE(text) text,
#include "config/audit.def"
};
static const char *const ADJECTIVES[] = {
#define AUDIT_ADJECTIVE(text) text,
#include "config/audit.def"
};
static const char *const NOUNS[] = {
#define AUDIT_NOUN(text) text,
#include "config/audit.def"
};
static const char *const VERBS[] = {
#define AUDIT_VERB(text) text,
#include "config/audit.def"
};
static const char *const SMALL[][2] = {
#define AUDIT_SMALL(user, assistant) {user, assistant},
#include "config/audit.def"
};
static const char TOOLS[] = "["
#define AUDIT_TOOL(name, description, properties, required)                                        \
    "{\"type\": \"function\", \"function\": {\"name\": \"" name                                    \
    "\", \"description\": \"" description                                                          \
    "\", \"parameters\": {\"type\": \"object\", \"properties\": " properties                       \
    ", \"required\": " required "}}},"
#include "config/audit.def"
    ;

#define COUNT(list) ((int32_t)(sizeof(list) / sizeof *(list)))

/* ---- draws ----------------------------------------------------------------------------------- */

struct draws {
    uint64_t seed, position;
};

static int32_t below(struct draws *d, int32_t n)
{
    return (int32_t)(sampler_uniform(d->seed, d->position++) * n);
}

struct fact {
    int32_t attribute, adjective, noun;
    char value[AUDIT_VALUE_BYTES];
};

static struct fact draw_fact(struct draws *d)
{
    static const char letters[] = "ABCDEFGHJKLMNPQRTUVWXY", digits[] = "23456789";
    struct fact f = {.attribute = below(d, COUNT(ATTRIBUTES)),
                     .adjective = below(d, COUNT(ADJECTIVES)),
                     .noun = below(d, COUNT(NOUNS))};
    for (int i = 0; i < AUDIT_VALUE_BYTES - 1; i++) {
        f.value[i] = i < 3    ? letters[below(d, (int32_t)sizeof letters - 1)]
                     : i == 3 ? '-'
                              : digits[below(d, (int32_t)sizeof digits - 1)];
    }
    return f;
}

/* A fact that cannot be taken for `other`, but shares something with it. */
static struct fact draw_decoy(struct draws *d, const struct fact *other)
{
    struct fact f = draw_fact(d);
    if (below(d, 2) == 0)
        f.attribute = other->attribute;
    else
        f.noun = other->noun;
    if (f.adjective == other->adjective)
        f.adjective = (f.adjective + 1) % COUNT(ADJECTIVES);
    if (strcmp(f.value, other->value) == 0)
        f.value[0] = f.value[0] == 'A' ? 'B' : 'A';
    return f;
}

static void put_subject(struct buf *b, const struct fact *f)
{
    buf_printf(b, "%s of the %s %s", ATTRIBUTES[f->attribute], ADJECTIVES[f->adjective],
               NOUNS[f->noun]);
}

static void put_fact(struct buf *b, const struct fact *f, const char *value)
{
    buf_puts(b, "The ");
    put_subject(b, f);
    buf_printf(b, " is %s.", value);
}

static void put_question(struct buf *b, const struct fact *f)
{
    buf_puts(b, "What is the ");
    put_subject(b, f);
    buf_puts(b, "? Answer with the value only.");
}

static void put_sentence(struct buf *b, struct draws *d)
{
    int32_t pick[5] = {below(d, COUNT(ADJECTIVES)), below(d, COUNT(NOUNS)), below(d, COUNT(VERBS)),
                       below(d, COUNT(ADJECTIVES)), below(d, COUNT(NOUNS))};
    buf_printf(b, "The %s %s %s the %s %s", ADJECTIVES[pick[0]], NOUNS[pick[1]], VERBS[pick[2]],
               ADJECTIVES[pick[3]], NOUNS[pick[4]]);
}

/* ---- rendering ------------------------------------------------------------------------------- */

static struct json_object *json_of(struct buf *text)
{
    struct json_object *out;
    struct error err;
    enum status status = json_parse(text->data, text->len, &out, NULL, &err);
    ASSERT(status == OK); /* our own text */
    return out;
}

static struct json_object *tools_of(bool wanted)
{
    if (!wanted)
        return NULL;
    struct buf text = {0};
    buf_add(&text, TOOLS, sizeof TOOLS - 2); /* without the last comma */
    buf_puts(&text, "]");
    struct json_object *out = json_of(&text);
    buf_free(&text);
    return out;
}

/* The messages as `role\0content\0..` would be awkward to nest, so they are written as JSON. */
static void put_message(struct buf *json, const char *role, const struct buf *content)
{
    buf_printf(json, "%s{\"role\": \"%s\", \"content\": ", json->len > 1 ? ", " : "", role);
    json_dump_string(json, content->len == 0 ? "" : content->data, content->len);
    buf_puts(json, "}");
}

static void put_text(struct buf *json, const char *role, const char *content)
{
    struct buf text = {0};
    buf_puts(&text, content);
    put_message(json, role, &text);
    buf_free(&text);
}

/* The prompt's ids, and which of them an assistant wrote. */
static void render(const struct audit_text *text, struct buf *json, bool tools, bool thinking,
                   struct audit_item *out)
{
    struct chat_spans spans = {0};
    struct error err;
    struct chat_request request = {.messages = json_of(json),
                                   .tools = tools_of(tools),
                                   .thinking = thinking,
                                   .drop_thinking = true,
                                   .spans = &spans};
    enum status status =
        chat_render(text->tokenizer, text->tokens, &request, &out->ids, NULL, &err);
    ASSERT(status == OK);
    out->turns = calloc(spans.len + 1, sizeof *out->turns);
    ASSERT(out->turns != NULL);
    for (size_t i = 0; i < spans.len; i++) {
        if (spans.data[i].n_messages == 0)
            continue;
        struct json_object *message =
            json_object_array_get_idx(request.messages, spans.data[i].first_message);
        const char *role = json_object_get_string(json_object_object_get(message, "role"));
        if (strcmp(role, "assistant") == 0)
            out->turns[out->n_turns++] = (struct audit_turn){
                i == 0 ? 0 : (int32_t)spans.data[i - 1].ids_end, (int32_t)spans.data[i].ids_end};
    }
    json_object_put(request.messages);
    json_object_put(request.tools);
    chat_spans_free(&spans);
}

void audit_item_free(struct audit_item *item)
{
    ids_free(&item->ids);
    free(item->turns);
    *item = (struct audit_item){0};
}

/* ---- recall ---------------------------------------------------------------------------------- */

static void put_place(struct buf *json, const struct recall_plan *plan, const struct fact *fact)
{
    struct buf said = {0}, request = {0};
    if (plan->place == PLACE_SYSTEM)
        buf_puts(&said, "You are a helpful assistant. ");
    put_fact(&said, fact, fact->value);
    switch (plan->place) {
    case PLACE_SYSTEM:
        put_message(json, "system", &said);
        put_text(json, "user", SMALL[0][0]);
        put_text(json, "assistant", SMALL[0][1]);
        break;
    case PLACE_USER:
        put_message(json, "user", &said);
        put_text(json, "assistant", "Noted.");
        break;
    case PLACE_ASSISTANT:
        buf_puts(&request, "Choose the ");
        put_subject(&request, fact);
        buf_puts(&request, ".");
        put_message(json, "user", &request);
        put_message(json, "assistant", &said);
        break;
    case PLACE_TOOL:
        put_text(json, "user", "Read notes.txt.");
        buf_puts(json, ", {\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [{\"id\": "
                       "\"call_1\", \"type\": \"function\", \"function\": {\"name\": \"read\", "
                       "\"arguments\": \"{\\\"path\\\": \\\"notes.txt\\\"}\"}}]}");
        buf_puts(json, ", {\"role\": \"tool\", \"tool_call_id\": \"call_1\", \"content\": ");
        json_dump_string(json, said.data, said.len);
        buf_puts(json, "}");
        put_text(json, "assistant", "I have read notes.txt.");
        break;
    case PLACES:
        ASSERT(false);
    }
    buf_free(&said);
    buf_free(&request);
}

void conversation_recall(const struct audit_text *text, const struct recall_plan *plan,
                         struct audit_item *out)
{
    ASSERT(plan->turns >= 2 && plan->turns <= AUDIT_TURNS_MAX);
    ASSERT(plan->decoys >= 0 && plan->decoys <= plan->turns - 2);
    struct draws d = {.seed = plan->seed};
    struct fact fact = draw_fact(&d);
    struct buf json = {0}, content = {0};
    *out = (struct audit_item){0};
    memcpy(out->value, fact.value, sizeof fact.value);
    buf_puts(&json, "[");
    put_place(&json, plan, &fact);
    int32_t decoys = plan->decoys;
    for (int32_t left = plan->turns - 2; left > 0; left--) {
        if (below(&d, left) < decoys) {
            struct fact decoy = draw_decoy(&d, &fact);
            content.len = 0;
            put_fact(&content, &decoy, decoy.value);
            put_message(&json, "user", &content);
            put_text(&json, "assistant", "Noted.");
            decoys--;
        } else {
            int32_t i = below(&d, COUNT(SMALL));
            put_text(&json, "user", SMALL[i][0]);
            put_text(&json, "assistant", SMALL[i][1]);
        }
    }
    content.len = 0;
    put_question(&content, &fact);
    put_message(&json, "user", &content);
    buf_puts(&json, "]");
    render(text, &json, plan->tools || plan->place == PLACE_TOOL, plan->thinking, out);
    buf_free(&json);
    buf_free(&content);
}

/* ---- needles --------------------------------------------------------------------------------- */

/* A text of two parts around the fact; pads bring each to its exact length. */
struct haystack {
    struct buf head, tail;
    int32_t head_pads, tail_pads;
    const char *pad;
};

static int32_t tokens_of(const struct audit_text *text, const char *bytes, size_t len)
{
    struct ids ids = {0};
    tokenizer_encode(text->tokenizer, bytes, len, false, &ids);
    int32_t n = (int32_t)ids.len;
    ids_free(&ids);
    return n;
}

/* Sentences of about `tokens` tokens, among them `*decoys` in proportion. */
static void put_filler(const struct audit_text *text, struct draws *d, const struct fact *fact,
                       int32_t tokens, int32_t decoys, struct buf *out)
{
    struct buf one = {0};
    int32_t used = 0;
    while (true) {
        one.len = 0;
        buf_puts(&one, out->len == 0 ? "" : " ");
        int32_t size = used == 0 ? 10 : used / 10 + 10; /* about a sentence; only spreads decoys */
        if (decoys > 0 && below(d, (tokens - used) / size + 1) < decoys) {
            struct fact decoy = draw_decoy(d, fact);
            put_fact(&one, &decoy, decoy.value);
            decoys--;
        } else {
            put_sentence(&one, d);
            buf_puts(&one, ".");
        }
        int32_t n = tokens_of(text, one.data, one.len);
        if (used + n > tokens)
            break;
        used += n;
        buf_add(out, one.data, one.len);
    }
    buf_free(&one);
}

static void render_haystack(const struct audit_text *text, const struct haystack *h,
                            const struct fact *fact, const char *value, struct audit_item *out)
{
    struct buf content = {0}, json = {0};
    buf_puts(&content, "Read this text:\n");
    buf_add(&content, h->head.data, h->head.len);
    for (int32_t i = 0; i < h->head_pads; i++)
        buf_puts(&content, h->pad);
    buf_puts(&content, h->head.len > 0 || h->head_pads > 0 ? " " : "");
    put_fact(&content, fact, value);
    buf_puts(&content, " ");
    buf_add(&content, h->tail.data, h->tail.len);
    for (int32_t i = 0; i < h->tail_pads; i++)
        buf_puts(&content, h->pad);
    buf_puts(&content, "\n\n");
    put_question(&content, fact);
    buf_puts(&json, "[");
    put_message(&json, "user", &content);
    buf_puts(&json, "]");
    *out = (struct audit_item){0};
    render(text, &json, false, false, out);
    buf_free(&json);
    buf_free(&content);
}

/* Renders, and finds the value: the ids that change when it does. */
static void measure(const struct audit_text *text, const struct haystack *h,
                    const struct fact *fact, struct audit_item *out)
{
    struct audit_item other;
    render_haystack(text, h, fact, fact->value, out);
    render_haystack(text, h, fact, "?", &other);
    size_t a = out->ids.len, b = other.ids.len, front = 0, back = 0;
    while (front < a && front < b && out->ids.data[front] == other.ids.data[front])
        front++;
    while (back < a - front && back < b - front &&
           out->ids.data[a - 1 - back] == other.ids.data[b - 1 - back])
        back++;
    out->value_at = (int32_t)front;
    out->value_n = (int32_t)(a - back - front);
    memcpy(out->value, fact->value, sizeof out->value);
    audit_item_free(&other);
}

/* A word that is one token where it follows another. */
static const char *find_pad(const struct audit_text *text)
{
    static const char *const words[] = {" too", " also", " again", " now", " so", " and", " the"};
    for (int32_t i = 0; i < COUNT(words); i++) {
        if (tokens_of(text, words[i], strlen(words[i])) == 1)
            return words[i];
    }
    return NULL;
}

enum status conversation_needle(const struct audit_text *text, const struct needle_plan *plan,
                                struct audit_item *out, struct error *err)
{
    struct draws d = {.seed = plan->seed};
    struct fact fact = draw_fact(&d);
    struct haystack h = {.pad = find_pad(text)};
    *out = (struct audit_item){0};
    if (h.pad == NULL)
        return error_set(err, ERR_INPUT, "the tokenizer has no pad of one token");
    measure(text, &h, &fact, out); /* nothing but the fact: what is left goes to the two parts */
    int32_t head = plan->at - out->value_at, tail = plan->length - (int32_t)out->ids.len - head;
    int32_t front =
        head > 0 && tail > 0 ? (int32_t)((int64_t)plan->decoys * head / (head + tail)) : 0;
    put_filler(text, &d, &fact, head - AUDIT_PADS_MAX / 2, front, &h.head);
    put_filler(text, &d, &fact, tail - AUDIT_PADS_MAX / 2, plan->decoys - front, &h.tail);
    bool exact = false;
    for (int i = 0; i < 4 && !exact; i++) { /* pads may join with what stands beside them */
        audit_item_free(out);
        measure(text, &h, &fact, out);
        int32_t head_lacks = plan->at - out->value_at;
        int32_t lacks = plan->length - (int32_t)out->ids.len;
        h.head_pads += head_lacks;
        h.tail_pads += lacks - head_lacks;
        exact = head_lacks == 0 && lacks == 0;
        if (h.head_pads < 0 || h.tail_pads < 0 || h.head_pads > AUDIT_PADS_MAX ||
            h.tail_pads > AUDIT_PADS_MAX)
            break;
    }
    buf_free(&h.head);
    buf_free(&h.tail);
    if (exact)
        return OK;
    audit_item_free(out);
    return error_set(err, ERR_INPUT, "no text of %d tokens has its value at token %d", plan->length,
                     plan->at);
}

/* ---- grading --------------------------------------------------------------------------------- */

enum audit_grade conversation_grade(const char *value, const char *answer, size_t n)
{
    const char *from = answer, *end = answer + n;
    size_t len = strlen(value);
    if (len <= n && memmem(answer, n, value, len) == NULL)
        return GRADE_WRONG;
    while (from < end && strchr(" \n\t", *from) != NULL)
        from++;
    while (end > from && strchr(" \n\t", end[-1]) != NULL)
        end--;
    if (end > from && end[-1] == '.')
        end--;
    if (len > n)
        return GRADE_WRONG;
    bool all = (size_t)(end - from) == len && memcmp(from, value, len) == 0;
    return all ? GRADE_RIGHT : GRADE_FORMAT;
}

const char *audit_place_name(enum audit_place place)
{
    static const char *const names[PLACES] = {"user", "system", "assistant", "tool"};
    return names[place];
}
