/*
 * The steps of the boot that are not services: mounts, modules, watchdog, names, storage, slots,
 * site data, model, GPU, host key, seal. Each step is a row of BOOT_STEPS, run once, in order; a
 * step that fails is reported and, when it is vital, ends in a panic.  Everything else goes on: a
 * box without network still has its console.
 */
#ifndef V4BOX_INIT_BOOT_H
#define V4BOX_INIT_BOOT_H

#include "init/gpu.h"
#include "init/journal.h"
#include "init/modelplan.h"
#include "init/netplan.h"
#include "init/options.h"
#include "init/slots.h"
#include "init/storage.h"
#include "init/watchdog.h"

#include <stdbool.h>

struct box {
    struct journal journal;
    struct options options;
    struct storage storage;
    struct slots slots;
    struct watchdog watchdog;
    struct gpu gpu;
    struct netplan net; /* and the other settings */
    struct modelplan model;
    char model_folder[sizeof BOX_ATTACHED "/" + MODEL_NAME_CHARS]; /* what the engine is given */
    bool has_authorized; /* there are SSH keys: kept from before, or given by the site */
    bool has_host_key;
    bool has_certificate;
};

/** Runs every step. */
void boot_run(struct box *box);

#endif
