/*
 * How the GPUs of a machine are shared out: G groups of T ranks each, as an operator writes it
 * (`2x4`), or `auto`: as many groups of as few ranks as the GPUs have room for.  Knows words and
 * numbers, no GPU and no engine.
 */
#ifndef V4BOX_COMMON_LAYOUT_H
#define V4BOX_COMMON_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

struct layout {
    int32_t groups, ranks; /* 0: auto */
};

/** @param text  auto, or GROUPSxRANKS: both from 1, together at most RANKS_MAX GPUs */
bool layout_parse(const char *text, struct layout *out);
/** Groups of so many ranks that so many GPUs have room for, at least one.
 *  @param gpus  of the machine; 0: processors compute */
int32_t layout_groups(int32_t ranks, int32_t gpus);

#endif
