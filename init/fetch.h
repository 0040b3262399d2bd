/*
 * Fetches one file by HTTP: an address in numbers, one GET, one answer with its length.  No names,
 * no redirects, no encodings, no TLS: what is fetched carries a signature, and that alone decides;
 * a box that resolves no names asks nobody on the way.  Runs without rights (the caller's matter),
 * since it reads what anybody may have sent.
 */
#ifndef V4BOX_INIT_FETCH_H
#define V4BOX_INIT_FETCH_H

#include "config/box.h"
#include "config/slots.h"

#include <stddef.h>
#include <stdint.h>

struct fetch {
    uint32_t address; /* network order */
    uint16_t port;
    char host[24]; /* as written, port included: what Host wants */
    char path[CONTROL_WORD_BYTES + 1];
};

/** Reads "http://A.B.C.D[:PORT]/PATH".  @err NULL: good; else what is wrong, for people */
const char *fetch_parse(struct fetch *f, const char *url);

/**
 * Reads the head of an answer, its empty line included.
 * @err NULL: good, and *bytes follow; else what is wrong, for people
 */
const char *fetch_head(const char *head, size_t n, uint64_t *bytes);

/**
 * Asks, and passes what follows the head on to `out`, at most `bytes_max` of it.
 * @err NULL: all of it was passed on; else what went wrong, for people
 */
const char *fetch_run(const struct fetch *f, int out, uint64_t bytes_max);

#endif
