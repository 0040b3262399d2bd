/*
 * The automaton's engine room: threads, the pool of frames, one symbol at a time.  Knows no JSON
 * and no calls.
 */
#include "engine/text/automaton_steps.h"

#include "kernels/check.h"

#include <stdlib.h>
#include <string.h>

/* Frames that the threads need at most when the pool was compacted: the open containers of each,
 * what stands around the outermost, and the remembered keys. */
#define FRAMES_LIVE_MAX (MASK_THREADS_MAX * (MASK_DEPTH_MAX + 8 + MASK_EXTRA_KEYS_MAX))
/* Frames that a symbol adds for each thread: a container around a value and a remembered key, or a
 * call around a name. */
#define FRAMES_PER_SYMBOL 2

_Static_assert(MASK_STRINGS_MAX <= UINT16_MAX && MASK_STRING_LEN_MAX < UINT16_MAX, "text.lo, at");
_Static_assert(MASK_NODES_MAX <= UINT16_MAX, "frame.node");
_Static_assert(MASK_DEPTH_MAX < GRAMMAR_NEVER, "heights");
_Static_assert(MASK_NUMBER_BYTES_MAX < UINT8_MAX && MASK_SPACES_MAX < UINT8_MAX, "frame counters");

static void step_nowhere(struct automaton *a, struct automaton_frame f, unsigned symbol)
{
    (void)a;
    (void)f;
    (void)symbol;
}

static automaton_step_fn *const STEPS[N_STATES] = {
    [STATE_OBJECT_FIRST] = step_object_first,
    [STATE_OBJECT_COLON] = step_object_colon,
    [STATE_OBJECT_NEXT] = step_object_next,
    [STATE_OBJECT_KEY] = step_object_key,
    [STATE_CALL_CHOICE] = step_call_choice,
    [STATE_CALL_TEXT] = step_call_text,
    [STATE_CALL_END] = step_nowhere,
    [STATE_ARRAY_FIRST] = step_array_first,
    [STATE_ARRAY_NEXT] = step_array_next,
    [STATE_VALUE] = step_value,
    [STATE_NUMBER] = step_number,
    [STATE_WORD] = step_word,
    [STATE_WORD_SET] = step_word_set,
    [STATE_STRING] = step_string,
    [STATE_ESCAPE] = step_escape,
    [STATE_HEX] = step_hex,
    [STATE_LOW] = step_low,
    [STATE_NAME] = step_name,
    [STATE_RAW] = step_raw,
    [STATE_ROOT] = step_root,
    [STATE_EXTRA] = step_nowhere,
};

/* ---- for the steps --------------------------------------------------------------------------- */

void automaton_emit(struct automaton *a, struct automaton_frame f)
{
    if (a->n_out < MASK_THREADS_MAX)
        a->out[a->n_out++] = f;
}

int32_t automaton_hold(struct automaton *a, struct automaton_frame f)
{
    ASSERT(a->n_pool < a->pool_max);
    a->pool[a->n_pool] = f;
    return a->n_pool++;
}

void automaton_pop(struct automaton *a, const struct automaton_frame *f)
{
    a->popped = true;
    automaton_emit(a, a->pool[f->parent]);
}

void automaton_pop_retry(struct automaton *a, const struct automaton_frame *f)
{
    a->popped = true;
    automaton_retry(a, a->pool[f->parent]);
}

void automaton_retry(struct automaton *a, struct automaton_frame f)
{
    ASSERT(!a->retrying);
    a->retry = f;
    a->retrying = true;
}

struct automaton_frame automaton_inner(const struct automaton *a, int32_t parent, uint8_t state,
                                       int32_t node)
{
    /* Frames are compared as bytes, so that there are no unset ones. */
    struct automaton_frame f;
    memset(&f, 0, sizeof f);
    f.parent = parent;
    f.state = state;
    f.node = (uint16_t)node;
    if (parent >= 0) {
        f.depth = a->pool[parent].depth;
        f.n_extras = a->pool[parent].n_extras;
    }
    return f;
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* Two readings that have met are one from here on. */
static void merge(struct automaton *a)
{
    int32_t kept = 1;
    for (int32_t i = 1; i < a->n_out; i++) {
        bool new = true;
        for (int32_t k = 0; k < kept && new; k++)
            new = memcmp(&a->out[k], &a->out[i], sizeof a->out[i]) != 0;
        if (new)
            a->out[kept++] = a->out[i];
    }
    a->n_out = kept;
}

int32_t automaton_step(struct automaton *a, const struct automaton_frame *from, int32_t n,
                       unsigned symbol, struct automaton_frame *out)
{
    a->out = out;
    a->n_out = 0;
    a->popped = false;
    for (int32_t i = 0; i < n; i++) {
        STEPS[from[i].state](a, from[i], symbol);
        while (a->retrying) {
            a->retrying = false;
            STEPS[a->retry.state](a, a->retry, symbol);
        }
    }
    if (a->popped && a->n_out > 1)
        merge(a);
    return a->n_out;
}

bool automaton_push(struct automaton *a, unsigned symbol)
{
    struct automaton_frame out[MASK_THREADS_MAX];
    a->n_threads = automaton_step(a, a->threads, a->n_threads, symbol, out);
    memcpy(a->threads, out, (size_t)a->n_threads * sizeof *out);
    return a->n_threads > 0;
}

/* ---- the pool -------------------------------------------------------------------------------- */

static void mark_list(const struct automaton *a, int32_t at, int32_t *to)
{
    for (; at >= 0 && to[at] == 0; at = a->pool[at].parent) {
        to[at] = 1;
        if (a->pool[at].state < STATES_WITH_OBJECT) {
            /* Lists of keys are chains of their own that lead nowhere else. */
            for (int32_t k = a->pool[at].object.extras; k >= 0 && to[k] == 0; k = a->pool[k].parent)
                to[k] = 1;
        }
    }
}

static void relink(struct automaton_frame *f, const int32_t *to)
{
    if (f->parent >= 0)
        f->parent = to[f->parent];
    if (f->state < STATES_WITH_OBJECT && f->object.extras >= 0)
        f->object.extras = to[f->object.extras];
}

void automaton_compact(struct automaton *a)
{
    int32_t *to = a->moves, n = 0;
    memset(to, 0, (size_t)a->n_pool * sizeof *to);
    for (int32_t i = 0; i < a->n_threads; i++) {
        mark_list(a, a->threads[i].parent, to);
        if (a->threads[i].state < STATES_WITH_OBJECT)
            mark_list(a, a->threads[i].object.extras, to);
    }
    /* Frames lead to earlier ones only, so one pass in order moves and relinks. */
    for (int32_t i = 0; i < a->n_pool; i++) {
        if (to[i] == 0)
            continue;
        a->pool[n] = a->pool[i];
        relink(&a->pool[n], to);
        to[i] = n++;
    }
    a->n_pool = n;
    ASSERT(n <= FRAMES_LIVE_MAX);
    for (int32_t i = 0; i < a->n_threads; i++)
        relink(&a->threads[i], to);
}

/* ---- life ------------------------------------------------------------------------------------ */

void automaton_init(struct automaton *a, const struct grammar *grammar, int32_t calls_max,
                    size_t ahead)
{
    memset(a, 0, sizeof *a);
    a->grammar = grammar;
    a->calls_max = calls_max;
    a->pool_max = FRAMES_LIVE_MAX + FRAMES_PER_SYMBOL * MASK_THREADS_MAX * (int32_t)(ahead + 1);
    a->pool = calloc((size_t)a->pool_max, sizeof *a->pool);
    a->moves = calloc((size_t)a->pool_max, sizeof *a->moves);
    ASSERT(a->pool != NULL && a->moves != NULL);
}

void automaton_free(struct automaton *a)
{
    free(a->pool);
    free(a->moves);
    memset(a, 0, sizeof *a);
}

void automaton_reset(struct automaton *a)
{
    a->n_threads = a->n_pool = 0;
}

void automaton_add_json(struct automaton *a, int32_t node)
{
    ASSERT(a->n_threads < MASK_THREADS_MAX && grammar_fits(a->grammar, node, 0));
    int32_t root = automaton_hold(a, automaton_inner(a, -1, STATE_ROOT, 0));
    a->threads[a->n_threads++] = automaton_inner(a, root, STATE_VALUE, node);
}

bool automaton_may_end(const struct automaton *a)
{
    for (int32_t i = 0; i < a->n_threads; i++) {
        const struct automaton_frame *f = &a->threads[i];
        bool open_end = (f->state == STATE_NUMBER && number_may_end(a, f)) ||
                        (f->state == STATE_WORD_SET && word_may_end(a, f));
        if (f->state == STATE_ROOT || f->state == STATE_CALL_END ||
            (open_end && a->pool[f->parent].state == STATE_ROOT))
            return true;
    }
    return false;
}

int automaton_utf8(uint8_t missing, uint8_t byte)
{
    /* 1 to 3: so many continuation bytes; 4 to 7: the first of them is limited (Unicode 15, table
     * 3-7). */
    static const struct {
        uint8_t low, high, next;
    } ROWS[8] = {{0, 0, 0},       {0x80, 0xBF, 0}, {0x80, 0xBF, 1}, {0x80, 0xBF, 2},
                 {0xA0, 0xBF, 1}, {0x80, 0x9F, 1}, {0x90, 0xBF, 2}, {0x80, 0x8F, 2}};
    if (missing > 0)
        return byte >= ROWS[missing].low && byte <= ROWS[missing].high ? ROWS[missing].next : -1;
    if (byte < 0x80)
        return 0;
    if (byte < 0xC2 || byte > 0xF4)
        return -1;
    if (byte < 0xE0)
        return 1;
    if (byte < 0xF0)
        return byte == 0xE0 ? 4 : byte == 0xED ? 5 : 2;
    return byte == 0xF0 ? 6 : byte == 0xF4 ? 7 : 3;
}
