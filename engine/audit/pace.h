/*
 * What fits the time that is left: pieces of known size, begun only when they will probably end in
 * time.  Times come from the caller; knows no clock and nothing of what the pieces are.
 */
#ifndef V4BOX_ENGINE_AUDIT_PACE_H
#define V4BOX_ENGINE_AUDIT_PACE_H

#include <stdbool.h>
#include <stdint.h>

struct pace {
    int64_t until_ms; /* 0: no end */
    int64_t begin_ms; /* of the piece that runs */
    double size;      /* of that piece */
    double sizes, ms; /* of all that ended */
    double last;      /* ms for one of size 1, of the newest */
    int32_t dropped;  /* that did not fit */
};

/** Begins a piece of this size, or drops it.  The first one fits whenever there is time at all:
 * nothing is known of it.  @return false: dropped */
bool pace_begin(struct pace *pace, double size, int64_t now_ms);
/** It has ended. */
void pace_end(struct pace *pace, int64_t now_ms);

#endif
