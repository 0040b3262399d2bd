/*
 * Rows that live in the engine around the network: a request of the proof's own runs under the
 * profile and under one whose rows of this kind are all exchanged, and what the engine did with it
 * is compared with the table.  What the table says they mean stands here once more, so that the
 * engine is not asked to judge itself.
 */
#include "config/limits.h"
#include "engine/precision/proof_core.h"
#include "kernels/check.h"

#include <stddef.h>
#include <string.h>

/* One row: what a run shows of it, against what its value means. */
struct deed {
    enum precision_row row;
    size_t seen;                        /* member of struct proof_served */
    int32_t want[PRECISION_VALUES_MAX]; /* -1: any number above 0 */
    int other[PRECISION_VALUES_MAX];    /* the value that is exchanged for it */
    const char *what;
};

static const struct deed DEEDS[] = {
    {ROW_PREFILL_CHUNK,
     offsetof(struct proof_served, piece),
     {STEP_TOKENS_MAX, STEP_TOKENS_MAX / 4, STEP_TOKENS_MAX / 16},
     {PREFILL_CHUNK_SIXTEENTH, PREFILL_CHUNK_STEP, PREFILL_CHUNK_STEP},
     "tokens of a prompt in one step"},
    {ROW_PREFIX_REUSE,
     offsetof(struct proof_served, reused),
     {0, -1},
     {PREFIX_REUSE_ON, PREFIX_REUSE_OFF},
     "tokens of an earlier request continued"},
    {ROW_DRAFT_DEPTH,
     offsetof(struct proof_served, guessed),
     {0, 1, 2, 3},
     {DRAFT_DEPTH_ONE, DRAFT_DEPTH_NONE, DRAFT_DEPTH_NONE, DRAFT_DEPTH_NONE},
     "tokens guessed ahead at once"},
};
#define N_DEEDS (sizeof DEEDS / sizeof DEEDS[0])

static int32_t seen_of(const struct deed *d, const struct proof_served *served)
{
    int32_t seen;
    memcpy(&seen, (const char *)served + d->seen, sizeof seen);
    return seen;
}

static void mark(struct proof *p, enum precision_row row, enum proof_state state, int32_t seen,
                 const char *what)
{
    for (int leg = 0; leg < LEGS; leg++) {
        if ((PRECISION[row].legs >> leg & 1) == 0)
            continue;
        struct proof_cell *cell = &p->cells[row][KIND_BOX][leg];
        cell->rows = (uint64_t)seen;
        if (state == PROOF_LIVE)
            proof_mark(p, row, KIND_BOX, (enum leg)leg, state, "%s", "");
        else
            proof_mark(p, row, KIND_BOX, (enum leg)leg, state, "%d %s", seen, what);
    }
}

static void judge(struct proof *p, const struct deed *d, const struct proof_served *own,
                  const struct proof_served *other)
{
    int32_t want = d->want[p->profile.values[d->row]], seen = seen_of(d, own);
    bool as_said = want < 0 ? seen > 0 : seen == want;
    bool too_much = want >= 0 && seen > want;
    if (as_said)
        mark(p, d->row, PROOF_LIVE, seen, d->what);
    else /* with company a step has less room, and what was left behind may be gone */
        mark(p, d->row, too_much || own->alone ? PROOF_WRONG : PROOF_UNPROVEN, seen, d->what);
    if (other->alone && own->alone && seen == seen_of(d, other))
        mark(p, d->row, PROOF_INERT, seen, d->what);
}

static bool same_answer(const struct proof_served *a, const struct proof_served *b)
{
    return memcmp(a->answer, b->answer, sizeof a->answer) == 0;
}

/* No value of these rows may change an answer: finds the row that does, one exchanged at a time. */
static void blame(struct proof *p, const struct proof_options *o, const struct proof_served *own,
                  const struct profile *exchanged)
{
    for (size_t i = 0; i < N_DEEDS; i++) {
        struct profile alone = p->profile;
        struct proof_served served = {0};
        ASSERT(profile_set(&alone, DEEDS[i].row, exchanged->values[DEEDS[i].row]));
        if (o->serve(o->serve_user, &alone, &served) && !same_answer(own, &served))
            mark(p, DEEDS[i].row, PROOF_WRONG, seen_of(&DEEDS[i], &served),
                 "of it change the answer");
    }
}

static void unproven(struct proof *p, const char *why)
{
    for (size_t i = 0; i < N_DEEDS; i++) {
        for (int leg = 0; leg < LEGS; leg++) {
            if (PRECISION[DEEDS[i].row].legs >> leg & 1)
                proof_mark(p, DEEDS[i].row, KIND_BOX, (enum leg)leg, PROOF_UNPROVEN, "%s", why);
        }
    }
}

void proof_serve_run(struct proof *p, const struct proof_options *o, bool drafts)
{
    struct proof_served own = {0}, other = {0};
    struct profile exchanged = p->profile;
    for (size_t i = 0; i < N_DEEDS; i++) {
        if (DEEDS[i].row != ROW_DRAFT_DEPTH || drafts)
            ASSERT(profile_set(&exchanged, DEEDS[i].row,
                               DEEDS[i].other[p->profile.values[DEEDS[i].row]]));
    }
    if (o->serve == NULL || !o->serve(o->serve_user, &p->profile, &own) ||
        !o->serve(o->serve_user, &exchanged, &other)) {
        unproven(p, o->serve == NULL ? "no engine serves here" : "the engine had no room for it");
        return;
    }
    for (size_t i = 0; i < N_DEEDS; i++) {
        if (DEEDS[i].row != ROW_DRAFT_DEPTH || drafts)
            judge(p, &DEEDS[i], &own, &other);
        else
            proof_mark(p, ROW_DRAFT_DEPTH, KIND_BOX, LEG_DECODE, PROOF_UNPROVEN, "%s",
                       "this model has no draft block");
    }
    if (!same_answer(&own, &other))
        blame(p, o, &own, &exchanged);
}
