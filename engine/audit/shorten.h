/*
 * The smallest form of a conversation from outside that still shows what a convicted row breaks.
 * Knows no search for rows.
 */
#ifndef V4BOX_ENGINE_AUDIT_SHORTEN_H
#define V4BOX_ENGINE_AUDIT_SHORTEN_H

#include "engine/audit/tests.h"

/**
 * Leaves out halves of run->given's exchanges, then quarters, and so on to single ones, as long as
 * the reference still gives the expected answer and `alone` does not; at most AUDIT_SHORTENINGS_MAX
 * times.  @return what is left, by number, and every try.  @own the caller: json_object_put
 */
struct json_object *shorten(const struct audit_run *run, const struct profile *alone,
                            enum audit_carry carry, const char *expected);

#endif
