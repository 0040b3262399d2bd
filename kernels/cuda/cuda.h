/*
 * The CUDA backend: every operation of kernels/backend.h on one GPU.  A failing GPU ends the
 * process with one line that says why: nothing behind such a failure can be trusted.
 *
 * Weights are named by where they lie in host memory (the mapped checkpoint); their copies on the
 * device, re-ordered for the kernels, are made at first use and kept.
 */
#ifndef V4BOX_KERNELS_CUDA_CUDA_H
#define V4BOX_KERNELS_CUDA_CUDA_H

#include "kernels/backend.h"
#include "kernels/gauges.h"

#ifdef __cplusplus
extern "C" {
#endif

/** GPUs of this machine; 0 without a driver. */
int backend_cuda_devices(void);

/** All memory of GPU number `device`.  @unit bytes; 0: no such GPU */
uint64_t backend_cuda_memory(int device);

/** Where GPU number `device` is on the PCI bus, as the kernel writes it.  @return false: no such
 * GPU
 */
_Bool backend_cuda_bus(int device, char bus[GAUGE_BUS_BYTES]);

/** How the ranks of this process reach each other, by their self-test. */
enum gauge_peers backend_cuda_peers(void);

/** A backend on GPU number `device`, all scratch memory taken; for the thread that calls.
 *  @own  ops->destroy
 *  @return NULL with a reason: no such GPU, none that the kernels were built for, no memory */
struct backend *backend_cuda_create(int device, const struct backend_limits *limits,
                                    const char **reason);

/** Whether steps that come again are recorded and replayed, which they are from the start on: for
 *  comparisons. */
void backend_cuda_recording(struct backend *b, _Bool on);

/** Reads all of some device memory: what a kernel can read at best. */
void backend_cuda_read(struct backend *b, const void *device, size_t bytes);
/** Multiplies on the tensor cores by mma.sync, out of registers.  @return floating-point operations
 */
double backend_cuda_multiply(struct backend *b, int rounds);

/* Times of a region of the stream, by the device's own clock. */
struct cuda_timer;
struct cuda_timer *cuda_timer_create(struct backend *b);
void cuda_timer_destroy(struct cuda_timer *timer);
/** Records what `work` enqueues as a graph, replays it `warm` times, then `times` times.
 *  @unit milliseconds; out[times] */
void cuda_timer_run(struct cuda_timer *timer, void (*work)(void *user), void *user, int warm,
                    int times, float *out);

#ifdef __cplusplus
}
#endif

#endif
