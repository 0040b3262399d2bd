/*
 * The steps of the boot that are not services: mounts, modules, names, site data, host key, seal.
 * Each step is a row of BOOT_STEPS, run once, in order; a step that fails is reported and, when it
 * is vital, ends in a panic.  Everything else goes on: a box without network still has its console.
 */
#ifndef V4BOX_INIT_BOOT_H
#define V4BOX_INIT_BOOT_H

#include "init/journal.h"
#include "init/options.h"

#include <stdbool.h>

struct box {
    struct journal journal;
    struct options options;
    bool has_keys;       /* the site gave API keys */
    bool has_authorized; /* the site gave SSH keys, and the host key exists */
};

/** Runs every step. */
void boot_run(struct box *box);

#endif
