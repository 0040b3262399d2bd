/*
 * What the driver of NVIDIA's GPUs reports of errors (Xid), picked out of the kernel's lines and
 * counted.  Knows neither where lines come from nor the GPUs themselves.
 */
#ifndef V4BOX_INIT_XID_H
#define V4BOX_INIT_XID_H

#include "config/box.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct xid {
    char bus[PCI_BUS_BYTES]; /* "0000:41:00", without the function; "": the place is free */
    int code;                /* of the last one */
    unsigned count;
    int64_t last_ms; /* since the kernel's start */
};

struct xids {
    struct xid gpu[BOX_GPUS_MAX];
    unsigned others; /* of GPUs that there was no place for */
};

/** Takes a line of the kernel.  @err false: it is none about an Xid */
bool xid_take(struct xids *xids, const char *line, size_t n, int64_t now_ms);

/** Those of the GPU at `bus` ("0000:41:00.0"), or NULL. */
const struct xid *xid_find(const struct xids *xids, const char *bus);

/** What the number means, for people; NULL: it is a rare one. */
const char *xid_meaning(int code);

#endif
