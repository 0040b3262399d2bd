/*
 * The time that deadlines are counted in.
 */
#ifndef V4BOX_ENGINE_CLOCK_H
#define V4BOX_ENGINE_CLOCK_H

#include <stdint.h>

/** @unit milliseconds since some moment before the start, never going back  @thread any */
int64_t clock_ms(void);

#endif
