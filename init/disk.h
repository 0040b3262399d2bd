/*
 * Which block devices are the box's own: partitions found by their GPT labels, all on one disk.
 * Reads what the kernel says of them, never the disk itself; mounts nothing.
 */
#ifndef V4BOX_INIT_DISK_H
#define V4BOX_INIT_DISK_H

#include "config/box.h"

#include <stdbool.h>
#include <stddef.h>

enum disk_part {
    DISK_ESP,
    DISK_CONFIG,
    DISK_LOG,
    DISK_MODELS,
    DISK_OWN_COUNT,              /* those that make a disk the box's */
    DISK_GPU_A = DISK_OWN_COUNT, /* beside them: the payloads of the two slots */
    DISK_GPU_B,
    DISK_ATTACHED, /* models that somebody prepared, on any other disk */
    DISK_PART_COUNT
};

enum disk_result {
    DISK_FOUND,
    DISK_ABSENT,   /* no disk has every label */
    DISK_AMBIGUOUS /* more than one has, or has one of them twice */
};

struct disk {
    char name[STORAGE_NAME_BYTES];                    /* of the disk: "vda" */
    char device[DISK_PART_COUNT][STORAGE_NAME_BYTES]; /* of the partitions: "vda4"; "": none */
};

/** One partition as the kernel describes it. */
struct disk_partition {
    char disk[STORAGE_NAME_BYTES], device[STORAGE_NAME_BYTES];
    enum disk_part part;
};

/**
 * Reads a partition's `uevent` text and the target of its link in /sys/class/block.
 * @err false: a whole disk, no label of ours, or malformed
 */
bool disk_partition_parse(struct disk_partition *p, const char *uevent, size_t n, const char *link);

/** Looks through a folder like /sys/class/block. */
enum disk_result disk_find(struct disk *disk, const char *sys_class_block);

#endif
