/*
 * What each API key uses, held against its limits, and how often an address comes without a valid
 * key.  In memory alone: a restart begins a new minute and a new day.  Knows no HTTP and no file.
 *
 * Rates are those of a bucket that fills evenly: a key may use its minute's requests at once, and
 * then one whenever the next has come in.  A wait that is told is exact.
 */
#ifndef V4BOX_ENGINE_API_METER_H
#define V4BOX_ENGINE_API_METER_H

#include "engine/api/errors.h"
#include "engine/api/keys.h"

#include <stdbool.h>
#include <stdint.h>

struct meter; /* any thread may call; one lock inside */

/* Two clocks: waits are measured by the one that never jumps, days are those of the calendar. */
struct meter_time {
    int64_t ms;    /* monotonic */
    int64_t utc_s; /* since 1970 */
};
struct meter_time meter_now(void);

/** @own meter_destroy */
struct meter *meter_create(void);
void meter_destroy(struct meter *meter);

/** A request of this key begins; meter_end follows.
 *  @err false, with *err and the wait: API_RATE, API_CONCURRENT, API_TOKENS; nothing has begun */
bool meter_begin(struct meter *meter, const struct key *key, struct meter_time now,
                 struct api_error *err);
void meter_end(struct meter *meter, uint64_t key_number);

/** Tokens that were computed for the key.  They count for the day in which they are told. */
void meter_tokens(struct meter *meter, uint64_t key_number, struct meter_time now, int64_t tokens);

/** A request without a valid key, from an address in any form ([len] bytes).
 *  @err false: API_KEY, or API_KEY_RATE with the wait once it came too often */
bool meter_failed(struct meter *meter, const void *address, size_t len, struct meter_time now,
                  struct api_error *err);

#endif
