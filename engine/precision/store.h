/*
 * The precision profiles of this box: the built-in ones, the operator's own, which one serves, and
 * what was switched when.  One checksummed text file holds all that is not built in, and every
 * change replaces it as a whole, so that a power cut leaves what was or what is, never half of it.
 * Knows no engine, no proof and no socket.
 *
 *   v4box-profiles 1
 *   profile NAME                      an own profile; its rows follow, each once
 *   row ROW VALUE
 *   serve CURRENT PREVIOUS            what new requests get, and where `rollback` goes
 *   trial NAME                        one was tried and not confirmed when this was written
 *   event SECONDS KIND FROM TO        oldest first; seconds since the epoch
 *   sum SHA256HEX                     of all the bytes in front of this line
 */
#ifndef V4BOX_ENGINE_PRECISION_STORE_H
#define V4BOX_ENGINE_PRECISION_STORE_H

#include "engine/base/status.h"
#include "engine/precision/profile.h"

#include <stdbool.h>
#include <stdint.h>

struct store;

/* What happened to the profile that serves. */
enum switch_kind {
    SWITCH_SET,         /* proven and served */
    SWITCH_TRIED,       /* proven and served until confirmed or over */
    SWITCH_CONFIRMED,   /* a trial was made final */
    SWITCH_EXPIRED,     /* a trial was not confirmed in time, and what was before serves again */
    SWITCH_UNPROVEN,    /* the proof failed: never served */
    SWITCH_ROLLED_BACK, /* by the operator: to the profile before, or out of a trial */
    SWITCH_RESTARTED,   /* the box came up and a trial was under way: what was before it serves */
    SWITCH_LOST,        /* the file was damaged; the default serves */
    SWITCH_KINDS
};

struct switch_event {
    int64_t time_s; /* since the epoch */
    enum switch_kind kind;
    char from[PROFILE_NAME_BYTES], to[PROFILE_NAME_BYTES];
};

const char *switch_kind_name(enum switch_kind kind);

/**
 * Opens the file (NULL: nothing is kept); a missing one is an empty store that serves `fallback`.
 * A damaged one is put aside as PATH.bad and makes a store of SWITCH_LOST: a box must serve, and
 * say so loudly.
 * @own  store_close
 * @err  ERR_IO: the file can not be read or put aside; ERR_INPUT: no profile is named `fallback`
 */
enum status MUST_CHECK store_open(const char *path, const char *fallback, struct store **out,
                                  struct error *err);
void store_close(struct store *store);

/** @return false: no profile has this name.  @thread any, as all below */
bool store_find(struct store *store, const char *name, struct profile *out);
/** The built-in ones, then the own ones by age.  @return how many */
int store_list(struct store *store, struct profile out[PROFILES_MAX]);
/** What serves, and what did before it. */
void store_serving(struct store *store, struct profile *current, struct profile *previous);
/** Oldest first.  @return how many */
int store_history(struct store *store, struct switch_event out[SWITCH_EVENTS_MAX]);

/* ---- the operator's own; every change is on the disk when it returns ------------------------- */

/** @err ERR_INPUT: no profile `from`, or `to` is no name or taken; ERR_CAPACITY; ERR_IO */
enum status MUST_CHECK store_copy(struct store *store, const char *from, const char *to,
                                  struct error *err);
/** Sets one row.  @err ERR_INPUT: built in, in use, no such profile, row or value, or a value for
 * audits only; ERR_IO */
enum status MUST_CHECK store_row(struct store *store, const char *name, const char *row,
                                 const char *value, struct error *err);
/** @err ERR_INPUT: built in, in use, or no such profile; ERR_IO */
enum status MUST_CHECK store_delete(struct store *store, const char *name, struct error *err);

/* ---- what serves ----------------------------------------------------------------------------- */

/**
 * Takes note of an event: `to` serves from now on unless `kind` says otherwise, and during a trial
 * what was before is what a restart serves.
 * @err  ERR_INPUT: no profile `to`; ERR_IO: nothing is changed, except that a trial has expired
 */
enum status MUST_CHECK store_note(struct store *store, enum switch_kind kind, const char *to,
                                  struct error *err);
/** Whether the file was lost at the last start, and under which error. */
const char *store_lost(const struct store *store);

#endif
