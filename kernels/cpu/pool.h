/*
 * A fixed set of threads that share out the units of one job at a time.
 * Which thread takes which unit is left to chance; a unit's work must not depend on it.
 * Waiting spins for a bounded while (a step has a hundred jobs of some microseconds), then sleeps.
 */
#ifndef V4BOX_KERNELS_CPU_POOL_H
#define V4BOX_KERNELS_CPU_POOL_H

#include <stdint.h>

struct pool;

/* Works on units begin..end-1; `thread` is 0..threads-1, one call at a time for each. */
typedef void pool_fn(void *job, int thread, int32_t begin, int32_t end);

/** @own pool_destroy  @return NULL when the system refuses memory or a thread */
struct pool *pool_create(int threads);
void pool_destroy(struct pool *pool);
int pool_threads(const struct pool *pool);

/** Runs fn over 0..units-1 in pieces of `grain` and returns when all are done.
 *  @thread one caller at a time, which does its share */
void pool_run(struct pool *pool, pool_fn *fn, void *job, int32_t units, int32_t grain);

#endif
