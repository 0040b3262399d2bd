/*
 * The answer splitter (answer.h).  Text goes detokenizer -> fresh -> reasoning, or -> held ->
 * content once no stop string can begin in it, or -> dsml.  With tools offered, the end of `fresh`
 * stays there while it may be the beginning of a tool-call block.  Stop strings are matched byte by
 * byte with one automaton each (Knuth-Morris-Pratt), so the cost per byte is constant and cuts
 * cannot depend on token borders.
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

/* What the text that comes is. */
enum channel { CHANNEL_REASONING, CHANNEL_CONTENT, CHANNEL_OPENING, CHANNEL_BLOCK };

struct answer {
    const struct tokenizer *tokenizer; /* borrows */
    const struct chat_tokens *tokens;  /* borrows */
    struct detokenizer detokenizer;
    struct stop stops[STOP_STRINGS_MAX];
    int32_t n_stops;
    struct buf fresh; /* owns: text of this push */
    struct buf held;  /* owns: content that may be the start of a stop string */
    enum channel channel;
    enum channel before; /* CHANNEL_OPENING: where the text goes if it opens nothing */
    struct dsml *dsml;   /* owns; NULL until a mark came */
    struct buf opening;  /* owns: CHANNEL_OPENING: the text so far, the "<" included */
    enum answer_block block;
    struct json_object *tools; /* one reference; NULL: none offered */
    int32_t calls_max;
    bool stopped, unfaithful;
    const struct stop *ended_by; /* the stop string that was completed, or NULL */
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

/* Takes one byte of content into `held`.  Returns the stop string that it completes (the longest
 * one), or NULL. */
static const struct stop *hold_byte(struct answer *a, char byte)
{
    const struct stop *complete = NULL;
    buf_add(&a->held, &byte, 1);
    for (int32_t i = 0; i < a->n_stops; i++) {
        struct stop *stop = &a->stops[i];
        stop->matched = stop_advance(stop, stop->matched, byte);
        if (stop->matched == stop->len && (complete == NULL || stop->len > complete->len))
            complete = stop;
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

/* Takes the first `n` bytes of `fresh` as content. */
static void add_content(struct answer *a, size_t n, struct buf *content)
{
    for (size_t i = 0; i < n; i++) {
        const struct stop *complete = hold_byte(a, a->fresh.data[i]);
        if (complete != NULL) {
            release(a, a->held.len - complete->len, content);
            a->held.len = 0;
            a->ended_by = complete;
            a->stopped = true;
            a->unfaithful = true;
            return;
        }
    }
    size_t keep = 0;
    for (int32_t i = 0; i < a->n_stops; i++)
        keep = a->stops[i].matched > keep ? a->stops[i].matched : keep;
    release(a, a->held.len - keep, content);
}

/* ---- tool calls ------------------------------------------------------------------------------ */

/* Bytes at the end of the text that may lead to a block: at most two line ends and a "<". */
static size_t lead_length(const struct buf *text)
{
    size_t n = text->len > 0 && text->data[text->len - 1] == '<';
    for (int i = 0; i < 2 && n < text->len && text->data[text->len - 1 - n] == '\n'; i++)
        n++;
    return n;
}

static void begin_opening(struct answer *a)
{
    a->opening.len = 0;
    buf_add(&a->opening, a->fresh.data, a->fresh.len);
    a->fresh.len = 0;
    a->before = a->channel;
    a->channel = CHANNEL_OPENING;
    dsml_destroy(a->dsml);
    a->dsml = dsml_create(a->tools, a->before == CHANNEL_REASONING);
}

/* A block it is: what stood before it is complete. */
static void begin_block(struct answer *a, struct buf *content)
{
    release(a, a->held.len, content);
    a->channel = CHANNEL_BLOCK;
    a->block = BLOCK_OPEN;
}

/* No block: the text goes where it would have gone without the mark. */
static void end_opening(struct answer *a)
{
    buf_add(&a->opening, a->fresh.data, a->fresh.len);
    a->fresh.len = 0;
    buf_add(&a->fresh, a->opening.data, a->opening.len);
    a->channel = a->before;
    a->unfaithful = true;
}

static void look_at_block(struct answer *a, enum dsml_progress progress)
{
    int32_t n_calls;
    dsml_calls(a->dsml, &n_calls);
    bool enough = a->calls_max > 0 && n_calls >= a->calls_max && dsml_in_call(a->dsml);
    if (progress == DSML_MALFORMED)
        a->block = BLOCK_MALFORMED;
    else if (progress == DSML_ENDED || enough)
        a->block = BLOCK_ENDED;
    a->stopped = progress == DSML_MALFORMED || enough;
    a->unfaithful = a->unfaithful || a->stopped;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

/* Text or, with `mark`, the mark behind it, where a block is or may be. */
static void deliver_to_block(struct answer *a, bool mark, struct buf *content)
{
    enum dsml_progress progress =
        mark ? dsml_push_mark(a->dsml) : dsml_push_text(a->dsml, a->fresh.data, a->fresh.len);
    if (progress == DSML_NONE) {
        end_opening(a);
        return;
    }
    if (a->channel == CHANNEL_OPENING)
        buf_add(&a->opening, a->fresh.data, a->fresh.len);
    a->fresh.len = 0;
    if (a->channel == CHANNEL_OPENING && progress != DSML_OPENING)
        begin_block(a, content);
    if (a->channel == CHANNEL_BLOCK)
        look_at_block(a, progress);
}

/* Hands on the text in `fresh`.  `whole`: nothing that could belong to it will follow. */
static void deliver(struct answer *a, bool whole, struct buf *reasoning, struct buf *content)
{
    if (a->fresh.len > 0 && (a->channel == CHANNEL_OPENING || a->channel == CHANNEL_BLOCK))
        deliver_to_block(a, false, content);
    if (a->fresh.len == 0) /* taken, or the block has turned out to be text */
        return;
    size_t keep = whole || a->tools == NULL ? 0 : lead_length(&a->fresh);
    size_t n = a->fresh.len - keep;
    if (a->channel == CHANNEL_REASONING)
        buf_add(reasoning, a->fresh.data, n);
    else
        add_content(a, n, content);
    memmove(a->fresh.data, a->fresh.data + n, keep);
    a->fresh.len = keep;
}

static void push_mark(struct answer *a, struct buf *reasoning, struct buf *content)
{
    if (a->channel == CHANNEL_OPENING || a->channel == CHANNEL_BLOCK) {
        deliver_to_block(a, true, content);
        if (a->channel == CHANNEL_BLOCK)
            return;
        deliver(a, false, reasoning, content); /* no block; this mark may open one */
    }
    if (a->stopped)
        return;
    begin_opening(a);
}

static bool is_reasoning(const struct answer *a)
{
    return a->channel == CHANNEL_REASONING ||
           (a->channel == CHANNEL_OPENING && a->before == CHANNEL_REASONING);
}

static void push_control(struct answer *a, int32_t id, struct buf *reasoning, struct buf *content)
{
    bool mark = id == a->tokens->dsml && a->tools != NULL;
    bool closes = id == a->tokens->think_close && is_reasoning(a);
    if (closes && a->channel == CHANNEL_OPENING)
        end_opening(a);
    deliver(a, closes, reasoning, content);
    if (a->stopped)
        return;
    if (mark)
        push_mark(a, reasoning, content);
    else if (closes)
        a->channel = CHANNEL_CONTENT;
    else
        a->unfaithful = true;
}

bool answer_push(struct answer *a, int32_t id, struct buf *reasoning, struct buf *content)
{
    if (a->block == BLOCK_ENDED)
        a->stopped = true;
    if (a->stopped)
        return true;
    a->reasoning_tokens += is_reasoning(a) ? 1 : 0;
    if (tokenizer_is_added(a->tokenizer, id)) {
        detokenizer_finish(&a->detokenizer, &a->fresh);
        push_control(a, id, reasoning, content);
    } else {
        detokenizer_push(&a->detokenizer, a->tokenizer, id, &a->fresh);
        deliver(a, false, reasoning, content);
    }
    return a->stopped;
}

void answer_finish(struct answer *a, struct buf *reasoning, struct buf *content)
{
    if (a->stopped)
        return;
    detokenizer_finish(&a->detokenizer, &a->fresh);
    deliver(a, true, reasoning, content);
    if (a->channel == CHANNEL_OPENING) /* markup that was cut says nothing to anybody */
        begin_block(a, content);
    if (a->block == BLOCK_OPEN && dsml_is_settled(a->dsml))
        a->block = BLOCK_ENDED;
    if (!a->stopped)
        release(a, a->held.len, content);
    a->stopped = true;
}

const struct dsml_call *answer_calls(const struct answer *a, int32_t *count)
{
    *count = 0;
    return a->block == BLOCK_NONE ? NULL : dsml_calls(a->dsml, count);
}

void answer_stop_string(const struct answer *a, struct buf *out)
{
    if (a->ended_by != NULL)
        buf_add(out, a->ended_by->text, a->ended_by->len);
}

enum answer_block answer_block(const struct answer *a)
{
    return a->block;
}

const char *answer_block_fault(const struct answer *a)
{
    return a->block == BLOCK_MALFORMED ? dsml_fault(a->dsml) : "";
}

bool answer_in_reasoning(const struct answer *a)
{
    return is_reasoning(a);
}

bool answer_is_faithful(const struct answer *a)
{
    return !a->unfaithful;
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
    a->channel = options->thinking ? CHANNEL_REASONING : CHANNEL_CONTENT;
    a->tools = json_object_get(options->tools);
    a->calls_max = options->calls_max;
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
    buf_free(&a->opening);
    dsml_destroy(a->dsml);
    json_object_put(a->tools);
    free(a);
}
