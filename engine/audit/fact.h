/*
 * Inside the conversations: draws from a seed, made-up facts, and sentences that say nothing.
 * Knows no chat and no tokens.  Texts: config/audit.def.
 */
#ifndef V4BOX_ENGINE_AUDIT_FACT_H
#define V4BOX_ENGINE_AUDIT_FACT_H

#include "config/limits.h"
#include "engine/base/buf.h"

#include <stdint.h>

struct draws {
    uint64_t seed, position;
};

/** The next draw, in [0, n). */
int32_t draws_below(struct draws *d, int32_t n);

/* "The <attribute> of the <adjective> <noun> is <value>." */
struct fact {
    int32_t attribute, adjective, noun;
    char value[AUDIT_VALUE_BYTES];
};

struct fact fact_draw(struct draws *d);
/** A fact that cannot be taken for `other`, but shares something with it. */
struct fact fact_decoy(struct draws *d, const struct fact *other);

/* Each appends. */
void fact_put_subject(struct buf *b, const struct fact *f);
/** `value` in place of the fact's own. */
void fact_put(struct buf *b, const struct fact *f, const char *value);
void fact_put_question(struct buf *b, const struct fact *f);
/** Without a stop. */
void fact_put_sentence(struct buf *b, struct draws *d);

#endif
