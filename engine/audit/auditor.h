/*
 * Audits on a model that serves: one thread that runs one audit at a time between the steps of the
 * engine, keeps its report after every test, goes on where a restart interrupted it, and begins
 * audits by itself when the schedule says so.
 *
 * The tests need every logit, mixed profiles and stored prefixes of their own, which requests do
 * not have; so they run in a laboratory and not through the queue.  Its sequences are its own and
 * no bit of an answer depends on what the engine does between two steps, so no answer changes.
 * Clients come first: while requests run or wait an audit takes AUDIT_SHARE_PERCENT of the time,
 * unless it was asked for exclusively.  Knows no socket and sees no user's text.
 */
#ifndef V4BOX_ENGINE_AUDIT_AUDITOR_H
#define V4BOX_ENGINE_AUDIT_AUDITOR_H

#include "engine/audit/archive.h"
#include "engine/audit/schedule.h"
#include "engine/audit/work.h"
#include "engine/engine.h"

#include <stdbool.h>
#include <stdint.h>

struct auditor;

struct auditor_options {
    struct engine *engine;  /* borrows */
    struct audit_text text; /* borrows */
    struct proof_options
        proving; /* what renders and serves for the proof; profile and serve_user are set here */
    const char *folder; /* of archive.h; borrows */
    const char *model;  /* folder of the weights, which an order with `cpu` opens; borrows */
};

/** Opens the folder and starts the thread; an audit that was interrupted goes on.
 *  @own auditor_stop, in front of engine_destroy  @err ERR_INPUT, ERR_IO, ERR_CAPACITY */
enum status MUST_CHECK auditor_start(const struct auditor_options *options, struct auditor **out,
                                     struct error *err);
/** Interrupts an audit that runs: the next auditor goes on with it.  Accepts NULL. */
void auditor_stop(struct auditor *auditor);

/** Begins an audit; `take_pinned`, when it is not NULL, is the request that a replay or a search is
 *  of, and is taken when that goes well.  Its prompt fits the context with AUDIT_ANSWER_TOKENS.
 *  @return the audit's number in *id  @err ERR_CAPACITY: another one runs */
enum status MUST_CHECK auditor_begin(struct auditor *auditor, const struct audit_order *order,
                                     bool exclusive, struct recording *take_pinned, int32_t *id,
                                     struct error *err);
/** Ends the audit that runs; its report keeps the tests that were finished.
 *  @err ERR_INPUT: none runs */
enum status MUST_CHECK auditor_abort(struct auditor *auditor, struct error *err);
/** Lets audits run by themselves, or not (budget NULL).  @err ERR_IO */
enum status MUST_CHECK auditor_schedule(struct auditor *auditor,
                                        const struct audit_schedule *schedule, struct error *err);

struct auditor_status {
    int32_t id; /* of the audit that runs; 0: none does */
    struct audit_order order;
    const char *step; /* that runs; borrows a constant */
    int done, steps;
    bool exclusive, scheduled;
    int64_t started_s; /* since the epoch */
    struct audit_schedule schedule;
    uint64_t audits, alarms;  /* ended since the start; with FAIL or INVALID among them */
    struct archive_head last; /* the newest that came to its end; id 0: there is none */
};
void auditor_status_get(struct auditor *auditor, struct auditor_status *out);
struct archive *auditor_archive(struct auditor *auditor);
/* A golden file among the reports: golden.h. */
#define AUDITOR_GOLDEN "golden.json"
/** Puts a golden file among the reports, in the place of one that is there: the next audits hold
 *  the engine against it.  @err ERR_INPUT naming the field: it is none, of other weights, or longer
 *  than the context; ERR_IO */
enum status MUST_CHECK auditor_golden_put(struct auditor *auditor, const struct buf *text,
                                          struct error *err);
/** Takes it away.  @err ERR_INPUT: none is there; ERR_IO */
enum status MUST_CHECK auditor_golden_remove(struct auditor *auditor, struct error *err);
/** Who made the golden file that `logits` is held against, what is wrong with it (it is left out
 *  then), or how one comes here: one line without its end, appended. */
void auditor_golden_print(struct auditor *auditor, struct buf *out);

/** Whether a verdict is one that somebody should be woken for. */
bool auditor_alarms(enum audit_verdict verdict);

#endif
