/*
 * Rows that live in the engine around the network: requests of the proof's own run under the
 * profile and under one whose rows of this kind are all exchanged, and what the engine did with
 * them is compared with the table.  What the table says they mean stands here once more, so that
 * the engine is not asked to judge itself.  Whatever it continued, stored or guessed, the answers
 * must be the same, and every token of a greedy one the likeliest by the network.
 */
#include "config/limits.h"
#include "engine/model/logits.h"
#include "engine/precision/proof_core.h"
#include "kernels/check.h"

#include <stddef.h>
#include <stdlib.h>
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
     {1, 4, 16}, /* parts of a step; its tokens in `wanted` */
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

/* Of a step that takes more than the proof's prompt, the prompt is what can be seen. */
static int32_t wanted(const struct proof *p, const struct deed *d, int32_t step_tokens)
{
    int32_t want = d->want[p->profile.values[d->row]];
    if (d->row != ROW_PREFILL_CHUNK)
        return want;
    want = step_tokens / want;
    return want < PROOF_PROMPT_TOKENS ? want : PROOF_PROMPT_TOKENS;
}

static void judge(struct proof *p, const struct deed *d, int32_t step_tokens,
                  const struct proof_served *own, const struct proof_served *other)
{
    int32_t want = wanted(p, d, step_tokens), seen = seen_of(d, own);
    bool as_said = want < 0 ? seen > 0 : seen == want;
    bool too_much = want >= 0 && seen > want;
    if (as_said)
        mark(p, d->row, PROOF_LIVE, seen, d->what);
    else /* with company a step has less room, and what was left behind may be gone */
        mark(p, d->row, too_much || own->alone ? PROOF_WRONG : PROOF_UNPROVEN, seen, d->what);
    if (other->alone && own->alone && seen == seen_of(d, other))
        mark(p, d->row, PROOF_INERT, seen, d->what);
}

/* How many tokens were said otherwise: of prompts too, as one's answer is part of the next. */
static int32_t apart(const struct proof_served *a, const struct proof_served *b)
{
    int32_t n = 0;
    for (int talk = 0; talk < PROOF_TALKS; talk++) {
        const struct proof_said *x = &a->said[talk], *y = &b->said[talk];
        for (int i = 0; i < PROOF_PROMPT_TOKENS; i++)
            n += x->prompt[i] != y->prompt[i];
        for (int i = 0; i < PROOF_ANSWER_TOKENS; i++)
            n += x->answer[i] != y->answer[i];
    }
    return n;
}

/* No value of these rows may change an answer: finds the row that does, one exchanged at a time. */
static void blame(struct proof *p, const struct proof_options *o, const struct proof_served *own,
                  const struct profile *exchanged, struct proof_served *served)
{
    for (size_t i = 0; i < N_DEEDS; i++) {
        struct profile alone = p->profile;
        ASSERT(profile_set(&alone, DEEDS[i].row, exchanged->values[DEEDS[i].row]));
        if (!o->serve(o->serve_user, &alone, served))
            continue;
        int32_t n = apart(own, served);
        if (n > 0)
            mark(p, DEEDS[i].row, PROOF_WRONG, n, "tokens are others under its other value");
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

/* How many tokens of a cold answer are not the likeliest (the lowest id of equals) behind those
 * before them, by the network alone. */
static int32_t unlikely(const struct profile *profile, struct lab *lab,
                        const struct proof_said *said)
{
    const struct lab_under under = {.profile = profile};
    int32_t vocab = lab->config->vocab_size, n = 0;
    struct sequence *sequence = lab_sequence_create(lab, said->n_prompt + PROOF_ANSWER_TOKENS);
    float *logits = calloc((size_t)vocab, sizeof *logits);
    ASSERT(logits != NULL);
    bool good = sequence != NULL;
    for (int32_t at = 0; good && at < said->n_prompt; at += SPAN_TOKENS_MAX) {
        int32_t left = said->n_prompt - at;
        struct segment prompt = {.sequence = sequence,
                                 .ids = said->prompt + at,
                                 .n = left < SPAN_TOKENS_MAX ? left : SPAN_TOKENS_MAX,
                                 .logits_last = logits,
                                 .leg = LEG_PREFILL};
        good = lab_step(lab, &under, &prompt, 1);
    }
    for (int i = 0; good && i < PROOF_ANSWER_TOKENS; i++) {
        struct segment token = {.sequence = sequence,
                                .ids = &said->answer[i],
                                .n = 1,
                                .logits_last = logits,
                                .leg = LEG_DECODE};
        n += said->answer[i] != logits_top(logits, vocab);
        good = lab_step(lab, &under, &token, 1);
    }
    free(logits);
    lab_sequence_destroy(lab, sequence);
    return good ? n : 0;
}

/* Whether the network is not what the table says: then other answers follow from that. */
static bool network_bad(const struct proof *p)
{
    for (int row = 0; row < PRECISION_ROWS; row++) {
        for (int kind = 0; kind < PROOF_KINDS; kind++) {
            for (int leg = 0; leg < LEGS; leg++) {
                const struct proof_cell *cell = &p->cells[row][kind][leg];
                if (cell->missing || cell->state >= PROOF_INERT)
                    return true;
            }
        }
    }
    return false;
}

void proof_serve_run(struct proof *p, struct lab *lab, const struct proof_options *o)
{
    bool drafts = lab->config->num_nextn_predict_layers > 0;
    struct proof_served *own = calloc(2, sizeof *own), *other = own + 1;
    struct profile exchanged = p->profile;
    ASSERT(own != NULL);
    for (size_t i = 0; i < N_DEEDS; i++) {
        if (DEEDS[i].row != ROW_DRAFT_DEPTH || drafts)
            ASSERT(profile_set(&exchanged, DEEDS[i].row,
                               DEEDS[i].other[p->profile.values[DEEDS[i].row]]));
    }
    if (o->serve == NULL || !o->serve(o->serve_user, &p->profile, own) ||
        !o->serve(o->serve_user, &exchanged, other)) {
        unproven(p, o->serve == NULL ? "no engine serves here" : "the engine had no room for it");
        free(own);
        return;
    }
    bool good = !network_bad(p); /* before the rows of the engine are judged */
    int32_t wrong = good ? unlikely(&p->profile, lab, &own->said[TALK_COLD]) : 0;
    for (size_t i = 0; i < N_DEEDS; i++) {
        if (wrong > 0)
            mark(p, DEEDS[i].row, PROOF_WRONG, wrong,
                 "tokens served that others are likelier than");
        else if (DEEDS[i].row != ROW_DRAFT_DEPTH || drafts)
            judge(p, &DEEDS[i], lab->step_tokens, own, other);
        else
            proof_mark(p, ROW_DRAFT_DEPTH, KIND_BOX, LEG_DECODE, PROOF_UNPROVEN, "%s",
                       "this model has no draft block");
    }
    if (good && apart(own, other) > 0)
        blame(p, o, own, &exchanged, other);
    free(own);
}
