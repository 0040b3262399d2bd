/*
 * What an audit leaves behind.  The report is one JSON value (schema v4box-audit/1, checked by
 * tests/data/audit-report.schema.json); text and page are views of it, so that an old file can be
 * shown and compared.  Knows no model and runs nothing.
 *
 * Nothing of a user's is in a report: items are seeds, and values are made up.
 */
#ifndef V4BOX_ENGINE_AUDIT_REPORT_H
#define V4BOX_ENGINE_AUDIT_REPORT_H

#include "engine/base/buf.h"
#include "engine/base/json.h"
#include "engine/base/status.h"

#define REPORT_SCHEMA "v4box-audit/1"

enum audit_verdict {
    VERDICT_PASS,
    VERDICT_FAIL,
    VERDICT_UNDECIDED, /* too few items for an answer at the stated error */
    VERDICT_MODEL,     /* the reference profile fails too */
    VERDICT_INVALID,   /* a row that the verdict rests on is not proven live */
    VERDICTS,
};
const char *audit_verdict_name(enum audit_verdict verdict);
/** A word that is no verdict is INVALID. */
enum audit_verdict audit_verdict_parse(const char *name);
/** The verdict of several: the first of FAIL, INVALID, UNDECIDED, MODEL that occurs, else PASS. */
enum audit_verdict audit_verdict_worst(enum audit_verdict a, enum audit_verdict b);

/** One page for a terminal. */
void report_text(struct json_object *report, struct buf *out);
/** One self-contained page: no script, no font, no address; opens from a USB stick.  `history` are
 *  the audits of this box, {"id", "time", "state", "verdict", "what", "budget", "profile"} each, or
 *  NULL. */
void report_html(struct json_object *report, struct json_object *history, struct buf *out);
/** What changed from report a to report b, for a terminal: verdicts, estimates beside their
 *  intervals, rows.  @err ERR_INPUT: not reports of this schema */
enum status MUST_CHECK report_diff(struct json_object *a, struct json_object *b, struct buf *out,
                                   struct error *err);
/** Reads a report, or an answer of the admin socket that has one as its data.
 *  @err ERR_INPUT/ERR_IO naming the file and what is wrong with it */
enum status MUST_CHECK report_read(const char *path, struct json_object **out, struct error *err);

#endif
