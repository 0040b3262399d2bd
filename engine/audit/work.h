/*
 * One audit from its order to its report, in steps that can be run one by one: each leaves a
 * finished member in the report, so that whoever keeps the report between two steps can go on after
 * an interruption.  Runs in a laboratory, on a model of its own or on one that serves.
 * Time decides nothing but how many items there are.  Knows no files and no terminal.
 */
#ifndef V4BOX_ENGINE_AUDIT_WORK_H
#define V4BOX_ENGINE_AUDIT_WORK_H

#include "engine/audit/recorder.h"
#include "engine/audit/report.h"
#include "engine/audit/tests.h"
#include "engine/precision/proof.h"

/* What is asked for; everything that the outcome depends on. */
struct audit_order {
    const char *what;     /* a word of audit_order_words(); borrows a constant */
    enum audit_test test; /* that is searched, of "isolate" */
    const struct audit_budget *budget;
    struct profile profile, reference;
    int32_t seed;
    int32_t items; /* of recall, and of needles, at most; 0: as many as the budget has */
    const struct audit_given *given; /* that "isolate" searches in place of `test`; NULL: none */
    const struct recording *pinned;  /* borrows: the request that "replay" or "isolate" is of */
    int32_t percent;                 /* of the runs in which a flaky fault shows */
    bool cpu;                        /* logits are held against the CPU's network, too */
    int32_t group;                   /* of an engine that has several, that it runs on; from 0 */
};

/** Takes the word of an order, and for "isolate" its test (else NULL).
 *  @err ERR_USAGE naming what was wrong */
enum status MUST_CHECK audit_order_what(struct audit_order *order, const char *what,
                                        const char *test, struct error *err);
/** The words that an order can be, ' ' between them. */
void audit_order_words(struct buf *out);

/* prove, rank and all tests, or prove and a search */
#define AUDIT_STEPS_MAX (AUDIT_TESTS + 2)
/** Names of the steps, in their order.  @return how many */
int audit_order_steps(const struct audit_order *order, const char *steps[AUDIT_STEPS_MAX]);

struct audit_work {
    struct audit_order order;
    struct lab *lab;               /* borrows */
    struct audit_text text;        /* borrows */
    const char *weights;           /* SHA-256 of their manifest, in hex; "" without one; borrows */
    struct proof_options proving;  /* what renders and serves for the proof, or NULLs */
    struct lab *cpu;               /* borrows: the CPU's network on the same weights, or NULL */
    struct audit_anchors anchors;  /* owns the CPU's machine, borrows the golden files */
    struct audit_machine *machine; /* owns */
    struct json_object *report;    /* owns */
    enum audit_verdict verdict;    /* of the steps so far */
    int64_t begin_ms;              /* of clock_ms(), when it was opened */
    double before_s;               /* that it had spent before an interruption */
};

/** Begins an audit; `lab`, `text`, `order` and `proving` are set.  A report that is there already
 * is one of the same order that goes on.
 *  @own audit_work_close  @err ERR_CAPACITY, ERR_IO as machine_create */
enum status MUST_CHECK audit_work_open(struct audit_work *work, int32_t context, struct error *err);
/** Accepts one that is half open. */
void audit_work_close(struct audit_work *work);

/** Whether the report holds this step's outcome; soak is done once its time is up. */
bool audit_work_did(const struct audit_work *work, const char *step);
/** Runs one step, or one round of soak.  Where the budget promises a time, what does not fit the
 * part of it that the step may have is dropped; proofs, rankings and searches are always whole.
 * Nothing is added when the laboratory went away meanwhile: its outcome would mean
 * nothing.  @return the verdict of this step; UNDECIDED when it was cut
 *  @err ERR_INPUT: this model's tokenizer has no such text */
enum status MUST_CHECK audit_work_step(struct audit_work *work, const char *step,
                                       enum audit_verdict *verdict, struct error *err);
/** Seconds that the audit has spent, interruptions left out. */
double audit_work_spent(const struct audit_work *work);
/** Sets the report's verdict and the time that was spent.  `whole`: all steps were run, else the
 * verdict is UNDECIDED at best. */
void audit_work_judge(struct audit_work *work, bool whole);

/** The worst verdict of a report's tests and isolation; PASS when there are none.  INVALID is the
 *  worst where a search rests on it. */
enum audit_verdict audit_report_worst(struct json_object *report);
/** Whether a report's member "engine" speaks of this program, and of this model and its weights. */
bool audit_engine_is(struct json_object *engine, const char *model, const char *weights);
/** The audited profile of a report.  @return false: this engine has no such rows or values */
bool audit_report_profile(struct json_object *profile, struct profile *out);

#endif
