/* Long texts with facts at exact places, and the pads that bring them there. */
#include "engine/audit/conversation.h"

#include "config/model.h"
#include "engine/audit/fact.h"
#include "kernels/check.h"

#include <string.h>

#define COUNT(list) ((int32_t)(sizeof(list) / sizeof *(list)))

/* A question for a fact, with what stands around it: at most so many tokens. */
#define QUESTION_TOKENS 48

static const char READ[] = "Read this text:\n";

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
        if (decoys > 0 && draws_below(d, (tokens - used) / size + 1) < decoys) {
            struct fact decoy = fact_decoy(d, fact);
            fact_put(&one, &decoy, decoy.value);
            decoys--;
        } else {
            fact_put_sentence(&one, d);
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

/* One message of a user, without tools and without thinking. */
static void render(const struct audit_text *text, const struct buf *content, struct audit_item *out)
{
    struct json_object *messages = json_object_new_array();
    struct error err;
    conversation_say(messages, "user", content);
    const struct chat_request request = {.messages = messages};
    enum status status = conversation_render(text, &request, out, &err);
    ASSERT(status == OK); /* our own text */
    json_object_put(messages);
}

static void render_haystack(const struct audit_text *text, const struct haystack *h,
                            const struct fact *fact, const char *value, struct audit_item *out)
{
    struct buf content = {0};
    buf_puts(&content, READ);
    buf_add(&content, h->head.data, h->head.len);
    for (int32_t i = 0; i < h->head_pads; i++)
        buf_puts(&content, h->pad);
    buf_puts(&content, h->head.len > 0 || h->head_pads > 0 ? " " : "");
    fact_put(&content, fact, value);
    buf_puts(&content, " ");
    buf_add(&content, h->tail.data, h->tail.len);
    for (int32_t i = 0; i < h->tail_pads; i++)
        buf_puts(&content, h->pad);
    buf_puts(&content, "\n\n");
    fact_put_question(&content, fact);
    render(text, &content, out);
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
    out->value = strdup(fact->value);
    ASSERT(out->value != NULL);
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
    struct fact fact = fact_draw(&d);
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

/* ---- facts on edges -------------------------------------------------------------------------- */

/* A text that grows, and the facts that lie on its edges. */
struct strewn {
    const struct audit_text *text;
    const char *pad;
    struct draws draws;
    struct buf content; /* owns; of the message */
    int32_t at;         /* tokens of the prompt so far */
    struct fact facts[AUDIT_EDGES_MAX];
    int32_t places[AUDIT_EDGES_MAX]; /* of the values' first tokens */
    int32_t n;
};

/* Every piece begins with a blank and a letter and ends with a stop, so that it is the same tokens
 * wherever it stands. */
static void strew(struct strewn *s, const struct buf *piece)
{
    buf_add(&s->content, piece->data, piece->len);
    s->at += tokens_of(s->text, piece->data, piece->len);
}

/* @return false: it has more tokens than that */
static bool strew_sentence(struct strewn *s, int32_t most)
{
    struct buf one = {0};
    buf_puts(&one, " ");
    fact_put_sentence(&one, &s->draws);
    buf_puts(&one, ".");
    bool fits = tokens_of(s->text, one.data, one.len) <= most;
    if (fits)
        strew(s, &one);
    buf_free(&one);
    return fits;
}

static struct fact another_fact(struct strewn *s)
{
    struct fact out;
    bool again = true;
    while (again) { /* thousands of subjects, and few facts */
        out = fact_draw(&s->draws);
        again = false;
        for (int32_t i = 0; i < s->n; i++)
            again =
                again || (s->facts[i].attribute == out.attribute &&
                          s->facts[i].adjective == out.adjective && s->facts[i].noun == out.noun);
    }
    return out;
}

/* A fact whose value begins in front of the edge and ends behind it, unless that is too near. */
static void strew_fact(struct strewn *s, int32_t edge)
{
    struct fact fact = another_fact(s);
    struct buf piece = {0}, value = {0};
    buf_puts(&piece, " ");
    fact_put(&piece, &fact, fact.value);
    buf_printf(&value, " %s.", fact.value);
    int32_t rest = tokens_of(s->text, value.data, value.len);
    int32_t lead = tokens_of(s->text, piece.data, piece.len) - rest, want = edge - rest / 2;
    if (want - lead - s->at >= 0) {
        while (strew_sentence(s, want - lead - s->at))
            ;
        for (; want - lead - s->at > 0; s->at++)
            buf_puts(&s->content, s->pad);
        strew(s, &piece);
        s->facts[s->n] = fact;
        s->places[s->n++] = want;
    }
    buf_free(&piece);
    buf_free(&value);
}

/* The text with the question for one fact.  @return false: the value is not where it should be */
static bool ask(const struct strewn *s, int32_t i, struct audit_item *out)
{
    struct buf content = {0}, value = {0};
    buf_add(&content, s->content.data, s->content.len);
    buf_puts(&content, "\n\n");
    fact_put_question(&content, &s->facts[i]);
    render(s->text, &content, out);
    buf_free(&content);
    out->value = strdup(s->facts[i].value);
    ASSERT(out->value != NULL);
    out->value_at = s->places[i];
    size_t len = 0, all = strlen(out->value) + 1; /* its first token has the blank */
    for (; value.len < all && (size_t)(out->value_at + out->value_n) < out->ids.len;
         out->value_n++) {
        const char *bytes = tokenizer_token_bytes(
            s->text->tokenizer, out->ids.data[out->value_at + out->value_n], &len);
        buf_add(&value, bytes, len);
    }
    bool there = value.len == all && memcmp(value.data + 1, out->value, all - 1) == 0;
    buf_free(&value);
    return there;
}

int32_t conversation_edges(const struct audit_text *text, const struct edges_plan *plan,
                           struct audit_item *out)
{
    struct strewn s = {.text = text, .pad = find_pad(text), .draws = {.seed = plan->seed}};
    struct audit_item empty;
    int32_t n = 0, last = plan->length - SLIDING_WINDOW - QUESTION_TOKENS;
    if (s.pad == NULL)
        return 0;
    buf_puts(&s.content, READ);
    render(text, &s.content, &empty);
    s.at = (int32_t)empty.ids.len - 2; /* without what opens the answer */
    audit_item_free(&empty);
    int32_t edges = last / plan->step, stride = edges / AUDIT_EDGES_MAX + 1;
    for (int32_t i = (int32_t)(plan->seed % (uint64_t)stride) + 1; i <= edges; i += stride)
        strew_fact(&s, i * plan->step);
    while (strew_sentence(&s, plan->length - QUESTION_TOKENS - s.at))
        ;
    for (int32_t i = 0; i < s.n; i++) {
        if (ask(&s, i, &out[n]))
            n++;
        else
            audit_item_free(&out[n]);
    }
    buf_free(&s.content);
    return n;
}
