/*
 * A place where the ranks of one process meet: all arrive, then all go on.  Carries a pointer of
 * each of them to the others.  Nobody waits for ever: a rank that does not come ends the process,
 * with its number.  Knows nothing of what they compute.
 */
#ifndef V4BOX_KERNELS_MEETING_H
#define V4BOX_KERNELS_MEETING_H

#include "config/limits.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct meeting;

/** @param limit_ms  of every wait; its end is that of the process
 *  @own meeting_destroy  @return NULL: out of memory */
struct meeting *meeting_create(int32_t ranks, uint32_t limit_ms);
void meeting_destroy(struct meeting *meeting);
int32_t meeting_ranks(const struct meeting *meeting);
/** @unit milliseconds */
uint32_t meeting_limit(const struct meeting *meeting);

/** Returns when all ranks have called this; what each wrote before is seen by all.
 *  @thread one for each rank */
void meeting_wait(struct meeting *meeting, int32_t rank);
/** Shows a pointer to the others, who see it behind the next meeting_wait. */
void meeting_show(struct meeting *meeting, int32_t rank, void *what);
void *meeting_shown(const struct meeting *meeting, int32_t rank);

#ifdef __cplusplus
}
#endif

#endif
