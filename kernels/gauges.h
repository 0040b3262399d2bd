/*
 * What a worker tells of its GPUs: a record that it writes every few seconds into the memory that
 * it shares with the engine (kernels/link.h), and the table of its numbers.  Fixed width types
 * only. Knows neither a driver nor who looks.
 */
#ifndef V4BOX_KERNELS_GAUGES_H
#define V4BOX_KERNELS_GAUGES_H

#include "config/limits.h"

#include <stdbool.h>
#include <stdint.h>

enum gauge {
#define GAUGE(id, ...) GAUGE_##id,
#include "config/gauges.def"
#undef GAUGE
    GAUGES
};
#define GAUGE_UNKNOWN (-1)

/* How ranks reach each other (kernels/cuda/peers.cu), by its self-test. */
enum gauge_peers {
    PEERS_ALONE,   /* there is one rank */
    PEERS_PUSH,    /* every byte has come */
    PEERS_SHARED,  /* they copy: they share GPUs, or do not reach each other's memory */
    PEERS_LOST,    /* they copy: bytes pushed to another GPU's memory were lost */
    PEERS_UNKNOWN, /* not a GPU's, or nothing was told */
    PEERS
};

struct gpu_gauges {
    char bus[GAUGE_BUS_BYTES]; /* "0000:41:00.0"; NUL-terminated, as all words here */
    char name[GAUGE_NAME_BYTES];
    int64_t value[GAUGES]; /* GAUGE_UNKNOWN, or 0 up to the most of its row */
};

struct gauges {
    int64_t at_ms; /* CLOCK_MONOTONIC, which both processes share; 0: nothing was told */
    int32_t n;
    int32_t peers;                 /* enum gauge_peers */
    char driver[GAUGE_NAME_BYTES]; /* its version */
    char note[GAUGE_NOTE_BYTES];   /* why there is nothing to tell; "": nothing is missing */
    struct gpu_gauges gpu[RANKS_MAX];
};

#ifdef __cplusplus
extern "C" {
#endif

/** Holds the record to what it may be: words printable and ended, numbers within their rows. */
void gauges_clean(struct gauges *gauges);

/** Name and meaning of a gauge, by its row. */
const char *gauge_name(enum gauge gauge);
const char *gauge_help(enum gauge gauge);
/** The verdict of the self-test, as people read it. */
const char *gauge_peers_text(enum gauge_peers peers);

#ifdef __cplusplus
}
#endif

#endif
