/*
 * Inside the admin commands: what a handler gets and fills.
 */
#ifndef V4BOX_ENGINE_ADMIN_CALL_H
#define V4BOX_ENGINE_ADMIN_CALL_H

#include "engine/admin/admin.h"
#include "engine/base/buf.h"

#include <stdbool.h>

#define CALL_TIME_BYTES 32  /* "9999-12-31 23:59:59 UTC" */
#define CALL_SAID_BYTES 160 /* a verdict, three names and a time */

/* Text for people always, data (one JSON object) when it went well. */
struct call {
    const struct admin_scope *scope;
    long long uptime_s;
    const char *args[ADMIN_ARGS_MAX]; /* borrows; NUL-terminated, without control characters */
    int n_args;
    const struct buf *file; /* borrows: what came behind the request; empty: nothing */
    int listed;             /* elements of the list that is being written */
    uint64_t job;           /* not 0: the answer is the result of this job (control_take) */
    struct buf text, data;  /* owns */
};

/** A list in the data: list_begin writes {"NAME": [, list_next what stands in front of each element
 *  (an object, which it opens), list_end closes both; the text says `none` when there was none. */
void list_begin(struct call *call, const char *name);
void list_next(struct call *call);
void list_end(struct call *call, const char *none);

/** A moment as people read it.  @unit seconds since the epoch  @return `out` */
const char *call_time(int64_t seconds, char out[CALL_TIME_BYTES]);

/** `profile VERB ...`: profile_commands.c.  @return false: refused, the text says why */
bool run_profile(struct call *call);
/** `gpu`: gpu_commands.c */
bool run_gpu(struct call *call);
/** `audit VERB ...`: audit_commands.c */
bool run_audit(struct call *call);
/** Bytes of the file that may follow these words behind `audit`; 0: none does. */
size_t audit_file_max(const struct call *call);

#endif
