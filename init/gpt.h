/*
 * The partition table of the box's own disk, for the one change that is made to it: the last
 * partition takes the rest of a disk that is larger than the image it was written from.  The copy
 * at the new end of the disk is written first, so that a power cut at any moment leaves a table
 * that firmware and kernel take.  Knows no file system.
 */
#ifndef V4BOX_INIT_GPT_H
#define V4BOX_INIT_GPT_H

#include "config/box.h"

#include <stddef.h>
#include <stdint.h>

/* Where the partition is, in bytes. */
struct gpt_part {
    int number; /* from 1 */
    uint64_t start, bytes;
};

/**
 * Lets the partition `label` of the disk behind `fd` reach to its end, `disk_bytes`, but for the
 * copy of the table; it must be the last one.  `part` is how it is afterwards.
 * @err NULL: done, or nothing was to be done; else what is wrong, for people
 */
const char *gpt_grow(int fd, uint64_t disk_bytes, const char *label, struct gpt_part *part);

/** CRC-32 as GPT wants it. */
uint32_t gpt_crc(const void *bytes, size_t n);

#endif
