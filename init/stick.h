/*
 * A file on a USB stick: one name, on any FAT of any disk that hangs on USB, read only, nothing of
 * it started.  Knows no content.
 */
#ifndef V4BOX_INIT_STICK_H
#define V4BOX_INIT_STICK_H

#include "config/box.h"

#include <stddef.h>

/**
 * The block devices on USB of a folder like /sys/class/block, disks and partitions, in the order of
 * their names; returns how many.
 */
int stick_find(char device[STORAGE_DISKS_MAX][STORAGE_NAME_BYTES], const char *sys_class_block);

/**
 * Opens the file `name` of the first stick that has it.  The caller has left the other processes'
 * mounts (esp.h).
 * @own close(), after which nothing of the stick is in use  @err -1: no stick has it
 */
int stick_open(const char *name);

#endif
