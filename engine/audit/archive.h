/*
 * The reports that a box keeps: one signed file each in a folder of its own, as many and as large
 * as config/limits.h says, the oldest makes room.  A file that is damaged or was not signed here is
 * never shown as a report.  Knows what the head of a report says, nothing of its tests.
 *
 *   FOLDER/key          the seed of the box's signing key, 32 bytes, made at first use
 *   FOLDER/schedule     schedule.h
 *   FOLDER/0000012.json the report of audit 12
 */
#ifndef V4BOX_ENGINE_AUDIT_ARCHIVE_H
#define V4BOX_ENGINE_AUDIT_ARCHIVE_H

#include "config/limits.h"
#include "engine/audit/report.h"
#include "engine/audit/signature.h"

#include <stdbool.h>
#include <stdint.h>

struct archive;

/* How far an audit came. */
enum archive_state {
    ARCHIVE_UNFINISHED, /* runs, or was interrupted and goes on */
    ARCHIVE_FINISHED,
    ARCHIVE_ABORTED, /* by the operator */
    ARCHIVE_CUT,     /* it was interrupted too often, or cannot go on here */
    ARCHIVE_DAMAGED, /* the file is no report of this box */
    ARCHIVE_STATES
};
const char *archive_state_name(enum archive_state state);

/* What a report says of its audit in the member "run". */
struct archive_head {
    int32_t id;
    int64_t time_s; /* since the epoch, at the beginning */
    enum archive_state state;
    enum audit_verdict verdict;
    bool scheduled;
    char what[16], budget[8], profile[32];
};

/** Opens the folder; makes it, and the key, when they are missing.
 *  @own archive_close  @err ERR_IO, ERR_INPUT naming the file */
enum status MUST_CHECK archive_open(const char *folder, struct archive **out, struct error *err);
void archive_close(struct archive *archive);

/** The number of the next audit: never one that was given before while any report is kept. */
int32_t archive_next_id(struct archive *archive);
/** Signs a report and keeps it under the number that its member "run" names, in place of an earlier
 *  one of that number; older ones make room.
 *  @err ERR_CAPACITY: larger than a report may be; ERR_IO */
enum status MUST_CHECK archive_put(struct archive *archive, struct json_object *report,
                                   struct error *err);
/** @own json_object_put  @err ERR_INPUT: no such report, or its file is damaged; ERR_IO */
enum status MUST_CHECK archive_get(struct archive *archive, int32_t id, struct json_object **out,
                                   struct error *err);
/** Oldest first.  @return how many */
int archive_list(struct archive *archive, struct archive_head out[AUDIT_KEPT_MAX]);
/** The box's public key. */
void archive_key(struct archive *archive, char out[REPORT_KEY_CHARS + 1]);

#endif
