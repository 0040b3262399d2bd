/*
 * The one way to stop on a broken invariant.  ASSERT is always on: a numeric engine that goes on
 * after a violated shape answers with plausible nonsense.  Not for input errors: those are
 * returned.
 */
#ifndef V4BOX_KERNELS_CHECK_H
#define V4BOX_KERNELS_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#define ASSERT(cond)                                                                               \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "%s:%d: broken invariant: %s\n", __FILE__, __LINE__, #cond);           \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

#endif
