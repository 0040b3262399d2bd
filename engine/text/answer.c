/*
 * The answer splitter (answer.h).  Text goes detokenizer -> fresh -> reasoning, or -> held ->
 * content once no stop string can begin in it.  Stop strings are matched byte by byte with one
 * automaton each (Knuth-Morris-Pratt), so the cost per byte is constant and cuts cannot depend on
 * token borders.
 */
#include "engine/text/answer.h"

#include "kernels/check.h"

#include <stdlib.h>
#include <string.h>

struct stop {
    char *text;       /* owns [len] */
    uint16_t *border; /* owns [len]: longest proper border of text[0..i], in bytes */
    size_t len;
    size_t matched; /* bytes of it that the content ends with */
};

struct answer {
    const struct tokenizer *tokenizer; /* borrows */
    const struct chat_tokens *tokens;  /* borrows */
    struct detokenizer detokenizer;
    struct stop stops[STOP_STRINGS_MAX];
    int32_t n_stops;
    struct buf fresh; /* owns: text of this push */
    struct buf held;  /* owns: content that may be the start of a stop string */
    bool reasoning, stopped;
    int32_t reasoning_tokens;
};

_Static_assert(STOP_STRING_BYTES_MAX <= UINT16_MAX, "border is 16 bits wide");

/* ---- stop strings ---------------------------------------------------------------------------- */

/* The longest border after one more byte; `matched` < len. */
static size_t stop_advance(const struct stop *stop, size_t matched, char byte)
{
    while (matched > 0 && stop->text[matched] != byte)
        matched = stop->border[matched - 1];
    return stop->text[matched] == byte ? matched + 1 : matched;
}

static void stop_init(struct stop *stop, const struct answer_stop *from)
{
    *stop = (struct stop){.text = malloc(from->len),
                          .border = calloc(from->len, sizeof *stop->border),
                          .len = from->len};
    ASSERT(stop->text != NULL && stop->border != NULL);
    memcpy(stop->text, from->text, from->len);
    for (size_t i = 1; i < from->len; i++)
        stop->border[i] = (uint16_t)stop_advance(stop, stop->border[i - 1], stop->text[i]);
}

/* Takes one byte of content into `held`.  Returns the length of the stop string that it completes
 * (the longest one), or 0. */
static size_t hold_byte(struct answer *a, char byte)
{
    size_t complete = 0;
    buf_add(&a->held, &byte, 1);
    for (int32_t i = 0; i < a->n_stops; i++) {
        struct stop *stop = &a->stops[i];
        stop->matched = stop_advance(stop, stop->matched, byte);
        if (stop->matched == stop->len && stop->len > complete)
            complete = stop->len;
    }
    return complete;
}

static void release(struct answer *a, size_t bytes, struct buf *content)
{
    buf_add(content, a->held.data, bytes);
    a->held.len -= bytes;
    if (a->held.len > 0)
        memmove(a->held.data, a->held.data + bytes, a->held.len);
}

static void add_content(struct answer *a, struct buf *content)
{
    for (size_t i = 0; i < a->fresh.len; i++) {
        size_t complete = hold_byte(a, a->fresh.data[i]);
        if (complete > 0) {
            release(a, a->held.len - complete, content);
            a->held.len = 0;
            a->stopped = true;
            return;
        }
    }
    size_t keep = 0;
    for (int32_t i = 0; i < a->n_stops; i++)
        keep = a->stops[i].matched > keep ? a->stops[i].matched : keep;
    release(a, a->held.len - keep, content);
}

/* ---- tokens ---------------------------------------------------------------------------------- */

/* Hands on the text that the detokenizer has just given. */
static void deliver(struct answer *a, struct buf *reasoning, struct buf *content)
{
    if (a->reasoning)
        buf_add(reasoning, a->fresh.data, a->fresh.len);
    else
        add_content(a, content);
    a->fresh.len = 0;
}

bool answer_push(struct answer *a, int32_t id, struct buf *reasoning, struct buf *content)
{
    if (a->stopped)
        return true;
    a->reasoning_tokens += a->reasoning ? 1 : 0;
    bool control = tokenizer_is_added(a->tokenizer, id);
    if (control)
        detokenizer_finish(&a->detokenizer, &a->fresh);
    else
        detokenizer_push(&a->detokenizer, a->tokenizer, id, &a->fresh);
    deliver(a, reasoning, content);
    if (id == a->tokens->think_close)
        a->reasoning = false;
    return a->stopped;
}

void answer_finish(struct answer *a, struct buf *reasoning, struct buf *content)
{
    if (a->stopped)
        return;
    detokenizer_finish(&a->detokenizer, &a->fresh);
    deliver(a, reasoning, content);
    if (!a->stopped)
        release(a, a->held.len, content);
    a->stopped = true;
}

int32_t answer_reasoning_tokens(const struct answer *a)
{
    return a->reasoning_tokens;
}

enum status answer_create(const struct answer_options *options, struct answer **out,
                          struct error *err)
{
    if (options->n_stops > STOP_STRINGS_MAX)
        return error_set(err, ERR_INPUT, "stop: more than %d strings", STOP_STRINGS_MAX);
    for (int32_t i = 0; i < options->n_stops; i++) {
        size_t len = options->stops[i].len;
        if (len == 0 || len > STOP_STRING_BYTES_MAX)
            return error_set(err, ERR_INPUT, "stop: string %d is %s", i,
                             len == 0 ? "empty" : "too long");
    }
    struct answer *a = calloc(1, sizeof *a);
    ASSERT(a != NULL);
    a->tokenizer = options->tokenizer;
    a->tokens = options->tokens;
    a->reasoning = options->thinking;
    a->n_stops = options->n_stops;
    for (int32_t i = 0; i < a->n_stops; i++)
        stop_init(&a->stops[i], &options->stops[i]);
    *out = a;
    return OK;
}

void answer_destroy(struct answer *a)
{
    if (a == NULL)
        return;
    for (int32_t i = 0; i < a->n_stops; i++) {
        free(a->stops[i].text);
        free(a->stops[i].border);
    }
    buf_free(&a->fresh);
    buf_free(&a->held);
    free(a);
}
