/*
 * What `status` and `log` of init say: a text for people, and the same as JSON.
 * Reads /proc, changes nothing.
 */
#ifndef V4BOX_INIT_STATUS_H
#define V4BOX_INIT_STATUS_H

#include "init/slots.h"
#include "init/storage.h"
#include "init/supervise.h"
#include "init/text.h"

/* What the answer is about. */
struct status {
    const struct supervisor *services; /* borrows, as the others */
    const struct storage *storage;
    const struct slots *slots;
    int64_t boot_ms;
    bool claimed; /* somebody may log in over SSH */
};

/** Writes the whole answer line about the box, what it keeps, its slots, and its services. */
void status_answer(struct text *answer, const struct status *status);

/** Writes the whole answer line with the newest `count` lines of the journal. */
void log_answer(struct text *answer, const struct journal *journal, size_t count);

/**
 * The number behind `name` in text made of lines "name: number ...", as /proc writes them.
 * @err -1: absent or not a number
 */
int64_t status_field(const char *text, size_t n, const char *name);

/** Appends /proc/self/mounts' text as a JSON array of {path, type, options}. */
void status_mounts(struct text *out, const char *text, size_t n);

/** Appends the newest `count` lines of the log, each with its end. */
void log_lines(struct text *out, const struct journal *journal, size_t count);

#endif
