/*
 * NVIDIA's management library, as far as it tells how GPUs fare.  It comes with the driver and is
 * opened at run time, so that a worker starts without it; every call may be missing or refuse, and
 * what it does not tell is unknown.
 */
#ifndef V4BOX_KERNELS_WORKER_NVML_H
#define V4BOX_KERNELS_WORKER_NVML_H

#include "kernels/gauges.h"

/** Opens the library of that name.  Once in a process.
 *  @return NULL: it is there; else why not, one line */
const char *nvml_open(const char *library);
/** Ends it.  Without nvml_open nothing happens. */
void nvml_close(void);

/** Fills n, driver, the GPUs with all but their ranks, and a note when something is missing. */
void nvml_read(struct gauges *out);

#endif
