/*
 * Runs the audit's items on timelines of its own in a laboratory: under one profile or two, fresh
 * or with state carried from turn to turn.  Deterministic: no clock, no draw; the same setting
 * gives the same answer.  Knows items and profiles, no statistics, and not whether the model serves
 * meanwhile.  Once the laboratory is gone nothing is computed any more, and what comes out means
 * nothing: whoever asks looks at lab->gone.
 */
#ifndef V4BOX_ENGINE_AUDIT_MACHINE_H
#define V4BOX_ENGINE_AUDIT_MACHINE_H

#include "engine/audit/conversation.h"
#include "engine/precision/lab.h"

#include <stdbool.h>
#include <stdint.h>

struct audit_machine;

/* How the prompt gets into the timeline. */
enum audit_carry {
    CARRY_NONE,   /* all at once, as a first request */
    CARRY_LIVE,   /* turn by turn: what an assistant wrote is decoded, the rest prefilled */
    CARRY_STORED, /* turn by turn into new timelines, each from the stored prefix of the last */
    CARRIES
};
const char *audit_carry_name(enum audit_carry carry);

/* Prefill under one profile, decode under another: equal except when legs are told apart.  Rows
 * that both write and read state follow the first. */
struct audit_setting {
    const struct profile *prefill, *decode; /* borrow */
    enum audit_carry carry;
};

struct audit_answer {
    enum audit_grade grade;
    /* Least, over the tokens of the value, of the right one's lead over the best wrong one in
     * log-probability; negative where the answer left the value.  NaN: reasoning never ended. */
    double margin;
};

/** Timelines of `context` tokens and the memory to carry them.  The laboratory stays the caller's
 *  and outlives the machine.  @own machine_destroy  @err ERR_CAPACITY; ERR_IO: the model is gone */
enum status MUST_CHECK machine_create(struct lab *lab, const struct audit_text *text,
                                      int32_t context, struct audit_machine **out,
                                      struct error *err);
void machine_destroy(struct audit_machine *machine);
const struct model_config *machine_config(const struct audit_machine *machine);
/** Tokens that its model takes in one step. */
int32_t machine_step_tokens(const struct audit_machine *machine);
int32_t machine_context(const struct audit_machine *machine);

/** Answers an item greedily and grades it.  @shape the item and AUDIT_ANSWER_TOKENS fit the context
 * (ASSERTed) */
void machine_answer(struct audit_machine *machine, const struct audit_item *item,
                    const struct audit_setting *setting, struct audit_answer *out);

/** Answers items of one text: what all of them begin with is fed once and continued by each.
 *  @shape items, out [n]; each as above */
void machine_answers(struct audit_machine *machine, const struct audit_item *items, int32_t n,
                     const struct audit_setting *setting, struct audit_answer *out);

/** What the answer is, appended: its ids with the end of sentence, the log-probability of each, and
 *  its text behind the reasoning; any may be NULL.  @shape logprobs [AUDIT_ANSWER_TOKENS] */
void machine_say(struct audit_machine *machine, const struct audit_item *item,
                 const struct audit_setting *setting, struct ids *answer, double *logprobs,
                 struct buf *said);

/** Log-probabilities of ids[from..n) behind those in front of each, which are a prompt up to `from`
 *  and decoded from there on (teacher-forced).  @shape ids [n], out [n - from]; from >= 1
 *  @return how many of the first of them are the likeliest: all are what it would have said */
int32_t machine_follow(struct audit_machine *machine, const int32_t *ids, int32_t n, int32_t from,
                       const struct profile *profile, double *out);

/* What two settings say about the next token, at one position. */
struct audit_difference {
    double kl;      /* KL(a || b), nats, over the whole vocabulary */
    bool same_top;  /* the lowest of the likeliest ids is the same */
    bool same_bits; /* every logit */
};

/* What two settings say behind the token at a position; the rows may be changed. */
typedef void machine_see_fn(void *user, int32_t position, float *a, float *b);

/** Feeds the same ids under two settings, as machine_compare does, and shows all logits.
 *  @shape ids [n]; n fits the context (ASSERTed) */
void machine_both(struct audit_machine *machine, const int32_t *ids, int32_t n, int32_t decode_from,
                  const struct audit_setting *a, const struct audit_setting *b, machine_see_fn *see,
                  void *user);

/**
 * Feeds the same ids under two settings and compares all logits.  Positions below `decode_from` are
 * prefilled, the others decoded one by one (teacher-forced).
 * @shape  ids [n], out [n]; n fits the context; the settings' carry must be CARRY_NONE (ASSERTed)
 */
void machine_compare(struct audit_machine *machine, const int32_t *ids, int32_t n,
                     int32_t decode_from, const struct audit_setting *a,
                     const struct audit_setting *b, struct audit_difference *out);

/** The same under one setting on two networks of one configuration: this machine's, and that of
 *  `beside`.  @shape as machine_compare; n fits both contexts */
void machine_beside(struct audit_machine *machine, struct audit_machine *beside, const int32_t *ids,
                    int32_t n, int32_t decode_from, const struct audit_setting *setting,
                    struct audit_difference *out);

/* Ways to bring the same ids into a timeline; none may change anything. */
enum audit_way {
    WAY_COLD,    /* steps of the profile's chunk: what the others are compared with */
    WAY_ONES,    /* one token a step */
    WAY_ODD,     /* steps of 3, 5, 7, .. tokens: every phase of the blocks of 4 */
    WAY_EDGE,    /* steps of 127 and 129 tokens */
    WAY_STORED,  /* again and again from the stored prefix of the last multiple of 128 */
    WAY_COMPANY, /* another timeline takes part in every step */
    WAY_REWOUND, /* other tokens were fed before every step and taken back */
    WAY_GUESSED, /* decoded behind guesses, of which some are wrong and taken back */
    WAYS
};
const char *audit_way_name(enum audit_way way);
/** What of a conversation the way is like: "chunk", "restore", "batch", "rewind", "draft"; "again"
 * for the same steps once more. */
const char *audit_way_leg(enum audit_way way);

/** Feeds ids, as a prompt up to `decode_from` and decoded one by one from there on, and hashes the
 *  logits behind each: two ways agree bit for bit where their hashes do.  Notes the root mean
 *  square of the streams behind each layer as well, zeros where the model cannot be looked into.
 *  @shape ids [n], hashes [n] or NULL, rms [n, num_hidden_layers] or NULL; 1 <= decode_from <= n */
void machine_rows(struct audit_machine *machine, const int32_t *ids, int32_t n, int32_t decode_from,
                  const struct profile *profile, enum audit_way way, uint64_t *hashes, double *rms);

/** How far a row of logits [n] puts an id above the best other one: the difference of their
 * log-probabilities. */
double machine_lead(const float *row, int32_t n, int32_t id);

#endif
