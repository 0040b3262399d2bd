/* Draws, made-up facts, and sentences that say nothing. */
#include "engine/audit/fact.h"

#include "engine/model/sampler.h"

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

#define COUNT(list) ((int32_t)(sizeof(list) / sizeof *(list)))

int32_t draws_below(struct draws *d, int32_t n)
{
    return (int32_t)(sampler_uniform(d->seed, d->position++) * n);
}

struct fact fact_draw(struct draws *d)
{
    static const char letters[] = "ABCDEFGHJKLMNPQRTUVWXY", digits[] = "23456789";
    struct fact f = {.attribute = draws_below(d, COUNT(ATTRIBUTES)),
                     .adjective = draws_below(d, COUNT(ADJECTIVES)),
                     .noun = draws_below(d, COUNT(NOUNS))};
    for (int i = 0; i < AUDIT_VALUE_BYTES - 1; i++) {
        f.value[i] = i < 3    ? letters[draws_below(d, (int32_t)sizeof letters - 1)]
                     : i == 3 ? '-'
                              : digits[draws_below(d, (int32_t)sizeof digits - 1)];
    }
    return f;
}

struct fact fact_decoy(struct draws *d, const struct fact *other)
{
    struct fact f = fact_draw(d);
    if (draws_below(d, 2) == 0)
        f.attribute = other->attribute;
    else
        f.noun = other->noun;
    if (f.adjective == other->adjective)
        f.adjective = (f.adjective + 1) % COUNT(ADJECTIVES);
    if (strcmp(f.value, other->value) == 0)
        f.value[0] = f.value[0] == 'A' ? 'B' : 'A';
    return f;
}

void fact_put_subject(struct buf *b, const struct fact *f)
{
    buf_printf(b, "%s of the %s %s", ATTRIBUTES[f->attribute], ADJECTIVES[f->adjective],
               NOUNS[f->noun]);
}

void fact_put(struct buf *b, const struct fact *f, const char *value)
{
    buf_puts(b, "The ");
    fact_put_subject(b, f);
    buf_printf(b, " is %s.", value);
}

void fact_put_question(struct buf *b, const struct fact *f)
{
    buf_puts(b, "What is the ");
    fact_put_subject(b, f);
    buf_puts(b, "? Answer with the value only.");
}

void fact_put_sentence(struct buf *b, struct draws *d)
{
    int32_t pick[5] = {draws_below(d, COUNT(ADJECTIVES)), draws_below(d, COUNT(NOUNS)),
                       draws_below(d, COUNT(VERBS)), draws_below(d, COUNT(ADJECTIVES)),
                       draws_below(d, COUNT(NOUNS))};
    buf_printf(b, "The %s %s %s the %s %s", ADJECTIVES[pick[0]], NOUNS[pick[1]], VERBS[pick[2]],
               ADJECTIVES[pick[3]], NOUNS[pick[4]]);
}
