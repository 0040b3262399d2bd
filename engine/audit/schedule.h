/*
 * When an audit runs by itself: once a day at a time of day, for a budget.  A file of one line,
 * "daily HH:MM BUDGET SINCE\n", the last word being when it was set, in seconds since the epoch;
 * no file: never.  Knows no clock and no audit.
 */
#ifndef V4BOX_ENGINE_AUDIT_SCHEDULE_H
#define V4BOX_ENGINE_AUDIT_SCHEDULE_H

#include "engine/audit/tests.h"

#include <stdbool.h>
#include <stdint.h>

struct audit_schedule {
    const struct audit_budget *budget; /* NULL: never */
    int32_t minute;                    /* of the day, UTC */
    int64_t since_s;
};

/** From words as an operator writes them: "HH:MM" and a budget.  @return false: they are none */
bool schedule_parse(const char *time, const char *budget, int64_t now_s,
                    struct audit_schedule *out);
/** "daily 03:00 5m", or "off". */
void schedule_print(const struct audit_schedule *schedule, struct buf *out);

/** @err ERR_INPUT: the file is none; ERR_IO.  A missing file is "never". */
enum status MUST_CHECK schedule_read(const char *path, struct audit_schedule *out,
                                     struct error *err);
/** @err ERR_IO */
enum status MUST_CHECK schedule_write(const char *path, const struct audit_schedule *schedule,
                                      struct error *err);

/** Whether an audit is due, when the last one that the schedule began was at `last_s` (0: none).
 *  What was missed while the box was off is made up for once. */
bool schedule_due(const struct audit_schedule *schedule, int64_t last_s, int64_t now_s);

#endif
