/*
 * Switching profiles on a box that serves: one thread that proves a profile between the steps of
 * the engine, lets it serve when the proof is good, and goes back when it is not or when a trial is
 * not confirmed.  The same thread verifies, ranks and saves on request; there is one job at a time.
 * Knows the engine, the store and the proof; no socket and no terminal.
 */
#ifndef V4BOX_ENGINE_PRECISION_CONTROL_H
#define V4BOX_ENGINE_PRECISION_CONTROL_H

#include "engine/engine.h"
#include "engine/precision/proof.h"
#include "engine/precision/store.h"

struct control;

struct control_options {
    struct engine *engine; /* borrows */
    struct store *store;   /* borrows */
    proof_render_fn *render;
    void *render_user;     /* borrows */
    proof_serve_fn *serve; /* of the engine, or of the group of it that is proven */
};

/** Lets the store's profile serve and starts the thread.
 *  @own control_stop, in front of engine_destroy
 *  @err ERR_INPUT: this model can not run it, naming the row; ERR_CAPACITY */
enum status MUST_CHECK control_start(const struct control_options *options, struct control **out,
                                     struct error *err);
/** Gives up a job that runs, joins the thread.  Accepts NULL. */
void control_stop(struct control *control);

enum control_phase { CONTROL_SERVING, CONTROL_BUSY, CONTROL_TRIAL };

struct control_status {
    enum control_phase phase;
    struct profile current, previous;
    int64_t trial_s;   /* seconds until an unconfirmed trial ends */
    bool proven;       /* the current profile's last proof in this process was good */
    int64_t proven_s;  /* when that was, since the epoch; 0: never */
    uint64_t switches; /* since the start */
    const char *alarm; /* the newest thing that went wrong, borrowed for ever; "": nothing did */
    const char *job;   /* the command that asked for what runs; "": none does */
};
void control_status_get(struct control *control, struct control_status *out);

/* ---- jobs: they begin at once, and run in the thread ------------------------------------------
 */

struct control_set {
    const char *name;
    bool drain;    /* new requests wait until those of the old profile have ended */
    int32_t try_s; /* > 0: goes back after so many seconds unless confirmed */
};

/** @return the job's number in *job  @err ERR_CAPACITY: another job runs, or a trial does;
 *  ERR_INPUT: no such profile */
enum status MUST_CHECK control_set(struct control *control, const struct control_set *set,
                                   uint64_t *job, struct error *err);
/** Proves a profile that need not serve.  @err as above */
enum status MUST_CHECK control_verify(struct control *control, const char *name, uint64_t *job,
                                      struct error *err);
enum status MUST_CHECK control_rank(struct control *control, uint64_t *job, struct error *err);
/** Writes the engine's file of prefixes (engine_save).  @err ERR_CAPACITY: another job runs */
enum status MUST_CHECK control_save(struct control *control, uint64_t *job, struct error *err);

struct control_result {
    bool good;
    struct buf text, data; /* own; data: one JSON object */
};
/** @return false: the job runs still  @own *out: the caller's; a job's result is given once */
bool control_take(struct control *control, uint64_t job, struct control_result *out);

/* ---- at once ----------------------------------------------------------------------------------
 */

/** Makes a trial final.  @err ERR_INPUT: there is none; ERR_IO */
enum status MUST_CHECK control_confirm(struct control *control, struct error *err);
/** Back to the profile before, or out of a trial, without a proof: what is left is worse.
 *  @err ERR_CAPACITY: a switch is under way; ERR_INPUT: there is none before; ERR_IO */
enum status MUST_CHECK control_rollback(struct control *control, struct error *err);

/** The report of /v1/profile: one JSON object with the table, what serves, and the last proof. */
void control_report(struct control *control, struct buf *out);

#endif
