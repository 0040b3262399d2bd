/*
 * Texts through schemas, for tests: compile, accept, and the walk that shows that no reading of a
 * text ever comes to a dead end.  JSON is written with ' for ", so that it reads well in C.
 */
#ifndef V4BOX_TESTS_SCHEMA_TEXTS_H
#define V4BOX_TESTS_SCHEMA_TEXTS_H

#include "engine/base/json.h"
#include "engine/text/automaton.h"
#include "engine/text/schema.h"

#include <stdlib.h>
#include <string.h>

/* A copy of `text` with quotes.  @own the caller */
static inline char *quoted(const char *text)
{
    char *copy = strdup(text);
    for (char *c = copy; *c != '\0'; c++)
        *c = *c == '\'' ? '"' : *c;
    return copy;
}

static inline struct json_object *json_of(const char *text)
{
    struct json_object *value = NULL;
    char *copy = quoted(text);
    if (json_parse(copy, strlen(copy), &value, NULL, NULL) != OK)
        abort();
    free(copy);
    return value;
}

/* Whether a text, with quotes of its own, is JSON by a node. */
static inline bool accepts_bytes(const struct grammar *grammar, int32_t node, const char *text,
                                 size_t len)
{
    struct automaton a;
    automaton_init(&a, grammar, 1, 1);
    automaton_add_json(&a, node);
    bool alive = true;
    for (size_t i = 0; i < len && alive; i++) {
        alive = automaton_push(&a, (uint8_t)text[i]);
        automaton_compact(&a);
    }
    bool accepted = alive && automaton_may_end(&a);
    automaton_free(&a);
    return accepted;
}

/* Whether a text can be the beginning of JSON by a node, and how many readings it has. */
static inline int32_t readings(const struct grammar *grammar, int32_t node, const char *text)
{
    struct automaton a;
    char *copy = quoted(text);
    automaton_init(&a, grammar, 1, 1);
    automaton_add_json(&a, node);
    for (const char *c = copy; *c != '\0' && automaton_push(&a, (uint8_t)*c); c++)
        automaton_compact(&a);
    int32_t n = a.n_threads;
    automaton_free(&a);
    free(copy);
    return n;
}

static inline bool accepts(const struct grammar *grammar, int32_t node, const char *text)
{
    char *copy = quoted(text);
    bool accepted = accepts_bytes(grammar, node, copy, strlen(copy));
    free(copy);
    return accepted;
}

static inline uint32_t draw_from(uint64_t *random, uint32_t n)
{
    *random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((*random >> 33) % n);
}

/* One symbol at random of those that go on, closing ones more often with time.
 * @return false: there is none */
static inline bool step_at_random(struct automaton *a, uint64_t *random, int at, unsigned *symbol)
{
    static const char CLOSING[] = "\"}]</>\n0";
    unsigned possible[AUTOMATON_MARK + 1];
    uint32_t n = 0, closing = 0;
    struct automaton_frame out[MASK_THREADS_MAX];
    int32_t pool = a->n_pool;
    for (unsigned s = 0; s <= AUTOMATON_MARK; s++) {
        if (automaton_step(a, a->threads, a->n_threads, s, out) > 0)
            possible[n++] = s;
        a->n_pool = pool;
    }
    if (n == 0)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        unsigned s = possible[i];
        if (s == AUTOMATON_MARK || (s != 0 && strchr(CLOSING, (int)s) != NULL && s < 0x80))
            possible[closing++] = s;
    }
    bool close = closing > 0 && draw_from(random, 100) < (uint32_t)at;
    *symbol = possible[draw_from(random, close ? closing : n)];
    return true;
}

/* Follows symbols at random until the text may end.  @return false: a dead end */
static inline bool walks(struct automaton *a, uint64_t seed, int steps)
{
    for (int i = 0; i < steps; i++) {
        unsigned symbol;
        if (automaton_may_end(a) && draw_from(&seed, 2) == 0)
            return true;
        if (!step_at_random(a, &seed, i, &symbol))
            return automaton_may_end(a);
        if (!automaton_push(a, symbol))
            return false;
        automaton_compact(a);
    }
    return true;
}

static inline bool walks_json(const struct grammar *grammar, int32_t node, uint64_t seed)
{
    struct automaton a;
    automaton_init(&a, grammar, 1, 1);
    automaton_add_json(&a, node);
    bool good = walks(&a, seed, 300);
    automaton_free(&a);
    return good;
}

#endif
