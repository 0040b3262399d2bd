/* Calls of one operation for several sequences, which become one launch (spans.cuh). */
#include "kernels/cuda/spans.cuh"

#include <stdlib.h>
#include <string.h>

/* Of the operations that are held, all of which are plain numbers and pointers. */
#define PARAMS_BYTES 384

struct span_calls {
    alignas(16) unsigned char params[PARAMS_BYTES]; /* of the first */
    struct span_call first;
    struct spans spans;
};

struct span_calls *spans_create(void)
{
    struct span_calls *calls = (struct span_calls *)calloc(1, sizeof *calls);
    ASSERT(calls != NULL);
    return calls;
}

void spans_destroy(struct span_calls *calls)
{
    free(calls);
}

void spans_release(struct cuda_backend *b)
{
    b->holds_spans = false;
    b->spans->first.operation->run(b, b->spans->params, &b->spans->spans);
}

/* Whether a call goes on where those that are held end. */
static bool follows(const struct span_calls *held, const struct span_call *call)
{
    const struct span_operation *o = call->operation;
    if (o != held->first.operation || call->n != held->spans.n || held->spans.count == SPANS_MAX)
        return false;
    for (int i = 0; i < SAME_MAX && o->same[i].bytes > 0; i++) {
        if (memcmp((const char *)call->params + o->same[i].at, held->params + o->same[i].at,
                   o->same[i].bytes) != 0)
            return false;
    }
    for (int i = 0; i < SPAN_ROWS_MAX; i++) {
        const struct memory *first = &held->first.rows[i], *next = &call->rows[i];
        uintptr_t behind = first->bytes * (size_t)held->spans.count;
        if (first->bytes != next->bytes || (uintptr_t)next->at != (uintptr_t)first->at + behind)
            return false;
    }
    return true;
}

void spans_call(struct cuda_backend *b, const struct span_call *call)
{
    const struct span_operation *o = call->operation;
    struct span_calls *held = b->spans;
    ASSERT(o->bytes <= PARAMS_BYTES && call->n >= 1);
    if (!b->holds_spans || !follows(held, call)) {
        (void)stream_of(b);
        memcpy(held->params, call->params, o->bytes);
        held->first = *call, held->first.params = held->params;
        held->spans.n = call->n, held->spans.count = 0;
        b->holds_spans = true;
    }
    held->spans.list[held->spans.count++] = call->state;
    int32_t reach = 0, most = 0;
    if (o->reach == 0)
        return;
    memcpy(&reach, (const char *)call->params + o->reach, sizeof reach);
    memcpy(&most, held->params + o->reach, sizeof most);
    most = reach > most ? reach : most;
    memcpy(held->params + o->reach, &most, sizeof most);
}

struct memory spans_cover(const struct spans *s, int memory, size_t bytes)
{
    uintptr_t from = UINTPTR_MAX, to = 0;
    for (int32_t i = 0; i < s->count; i++) {
        uintptr_t at = (uintptr_t)s->list[i].memory[memory];
        from = at < from ? at : from;
        to = at + bytes > to ? at + bytes : to;
    }
    return {(const void *)from, to - from};
}
