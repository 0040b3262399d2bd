/*
 * What came of loading a list of kernel modules: which refusals are faults, and what people are
 * told. Pure: the caller asks the kernel.
 */
#ifndef V4BOX_INIT_LOADING_H
#define V4BOX_INIT_LOADING_H

#include <stdbool.h>

struct loading {
    int wanted, loaded;
    int absent; /* drivers whose device is not there, which is no fault of theirs */
    int faults;
};

/**
 * Counts a module: whether its file could be opened, and the kernel's errno, 0 when it was taken.
 * Returns what people must know of it, NULL: nothing.
 */
const char *loading_count(struct loading *l, bool opened, int code);

#endif
