/*
 * The GPU payload: driver libraries, firmware, kernel modules and the worker, on a partition of its
 * own, under dm-verity with the root hash that the system carries.  A system without one computes
 * on the processor, and so does one whose payload is damaged: the block is named, and the box goes
 * on.
 */
#ifndef V4BOX_INIT_GPU_H
#define V4BOX_INIT_GPU_H

#include "init/disk.h"
#include "init/text.h"
#include "init/verity.h"

#include <sys/types.h>

struct gpu {
    bool wanted; /* the system names a payload */
    bool ready;  /* it is whole, and mounted at BOX_GPU */
    bool sound;  /* and the kernel has taken its modules; there may be no card for them */
    char device[STORAGE_NAME_BYTES];
    struct verity verity;
};

/**
 * Finds the payload of this system on either partition, that of `slot` (0, 1; else 0) first, reads
 * all of it once, and mounts it.  `note` gets a line for what people must know.
 * @err false: it is wanted, and not ready
 */
bool gpu_open(struct gpu *g, const struct disk *disk, int slot, struct text *note);

/** Makes the device nodes of the driver, which no helper of its own makes here.  @err false */
bool gpu_make_nodes(uid_t owner);

/** The dynamic number of a character device in a text like /proc/devices, -1: none. */
int gpu_major(const char *devices, size_t n, const char *name);

#endif
