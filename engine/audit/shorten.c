/* Delta debugging over exchanges, coarse to fine. */
#include "engine/audit/shorten.h"

#include "engine/audit/tests_common.h"
#include "kernels/check.h"

#include <stdlib.h>
#include <string.h>

struct shortening {
    const struct audit_run *run;
    struct audit_setting reference, alone;
    const char *expected;
    bool *kept, *before; /* own [n + 1]; the last one asks, and stays */
    int32_t n;
    int32_t tokens; /* of the shortest that showed it */
    struct json_object *tries;
};

static int32_t count_kept(const struct shortening *s)
{
    int32_t n = 0;
    for (int32_t i = 0; i <= s->n; i++)
        n += s->kept[i];
    return n;
}

/* What is not a request any more shows nothing. */
static bool shows(struct shortening *s)
{
    struct audit_item item;
    struct audit_answer wanted, got;
    struct error err;
    if (given_item(s->run->given, s->run->text, s->kept, &item, &err) != OK)
        return false;
    free(item.value);
    item.value = strdup(s->expected);
    ASSERT(item.value != NULL);
    machine_answer(s->run->machine, &item, &s->alone, &got);
    machine_answer(s->run->machine, &item, &s->reference, &wanted);
    bool out = got.grade == GRADE_WRONG && wanted.grade != GRADE_WRONG;
    if (out)
        s->tokens = (int32_t)item.ids.len;
    audit_item_free(&item);
    return out;
}

static void try_without(struct shortening *s, int32_t from, int32_t n)
{
    memcpy(s->before, s->kept, (size_t)s->n + 1);
    memset(s->kept + from, false, (size_t)n);
    bool showed = shows(s);
    struct json_object *one = json_object_new_object();
    json_set(one, "exchanges", json_object_new_int(count_kept(s)));
    json_set(one, "shows", json_object_new_boolean(showed));
    json_object_array_add(s->tries, one);
    if (!showed)
        memcpy(s->kept, s->before, (size_t)s->n + 1);
}

static void search(struct shortening *s)
{
    for (int32_t size = (s->n + 1) / 2; size > 0; size = size == 1 ? 0 : (size + 1) / 2) {
        for (int32_t from = 0; from < s->n; from += size) {
            int32_t n = from + size < s->n ? size : s->n - from;
            if (memchr(s->kept + from, true, (size_t)n) == NULL)
                continue;
            if (json_object_array_length(s->tries) == AUDIT_SHORTENINGS_MAX ||
                audit_cancelled(s->run))
                return;
            try_without(s, from, n);
        }
    }
}

struct json_object *shorten(const struct audit_run *run, const struct profile *alone,
                            enum audit_carry carry, const char *expected)
{
    struct shortening s = {.run = run,
                           .reference = {run->reference, run->reference, CARRY_NONE},
                           .alone = {alone, alone, carry},
                           .expected = expected,
                           .n = given_exchanges(run->given) - 1,
                           .tries = json_object_new_array()};
    s.kept = calloc((size_t)s.n + 1, sizeof *s.kept);
    s.before = calloc((size_t)s.n + 1, sizeof *s.before);
    ASSERT(s.kept != NULL && s.before != NULL);
    memset(s.kept, true, (size_t)s.n + 1);
    search(&s);
    struct json_object *out = json_object_new_object(), *kept = json_object_new_array();
    for (int32_t i = 0; i <= s.n; i++) {
        if (s.kept[i])
            json_object_array_add(kept, json_object_new_int(i));
    }
    json_set(out, "exchanges", json_object_new_int(s.n + 1));
    json_set(out, "kept", kept);
    if (s.tokens > 0) /* else nothing could be left out */
        json_set(out, "tokens", json_object_new_int(s.tokens));
    json_set(out, "tries", s.tries);
    free(s.kept);
    free(s.before);
    return out;
}
