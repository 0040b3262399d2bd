/*
 * The CPU backend: every operation of kernels/backend.h in float32, weights decoded while they are
 * multiplied.  It is the product's path on machines without a GPU and the executable specification
 * for other backends.
 */
#ifndef V4BOX_KERNELS_CPU_CPU_H
#define V4BOX_KERNELS_CPU_CPU_H

#include "kernels/backend.h"

#include <stdbool.h>

enum cpu_isa { CPU_BASELINE, CPU_AVX2, CPU_AVX512, CPU_ISAS };

/** True when this processor (and the kernel under us) can run the variant. */
bool cpu_isa_available(enum cpu_isa isa);
/** The best one available. */
enum cpu_isa cpu_isa_best(void);

/** @param threads 1..CPU_THREADS_MAX
 *  @own  ops->destroy  @return NULL when the system refuses memory or a thread */
struct backend *backend_cpu_create(enum cpu_isa isa, int threads,
                                   const struct backend_limits *limits);

#endif
