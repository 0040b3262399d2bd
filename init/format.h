/*
 * The empty config file system, written from a template of the build: this box has no mkfs, and a
 * reset must overwrite every secret anyway.
 *
 *   0   8  "V4BOXFS1"
 *   8   4  blocks of the file system, little-endian
 *   12  4  records
 *   then each record, blocks ascending, block 0 first: 4 bytes number, STORAGE_BLOCK_BYTES content;
 *   every other block is zero
 *
 * Block 0 holds the superblock.  It is zeroed first and written last: a partition whose first block
 * is zero is one that was never formatted, or whose reset was cut off, and nothing else.
 */
#ifndef V4BOX_INIT_FORMAT_H
#define V4BOX_INIT_FORMAT_H

#include <stdbool.h>

/** True when the first block of a device is zero.  @err false as well when it can not be read */
bool format_is_blank(const char *device);

/**
 * Overwrites a device.
 * @err false with errno; EINVAL: the template is malformed, ENOSPC: the device is too small, EBUSY:
 * it is mounted
 */
bool format_device(const char *device, const char *template_path);

#endif
