/*
 * The EFI partition while it is used: mounted in a name space of its own, seen by nobody else, and
 * its files replaced in place.  A FAT has no journal: a program is written over the old one of its
 * slot, so that neither the folder nor the table changes, and a power cut costs that slot alone.
 * Knows no slots, no signatures.
 */
#ifndef V4BOX_INIT_ESP_H
#define V4BOX_INIT_ESP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/** Leaves the other processes' mounts.  Once, before esp_mount.  @err false with errno */
bool esp_enter(void);

/** Mounts `device` ("vda1") at SLOT_MOUNT.  @err false with errno */
bool esp_mount(const char *device, bool writable);

/** @err false with errno: something may not have been written */
bool esp_unmount(void);

/** Overwrites a file, path below SLOT_MOUNT, and waits for the disk.  @err false with errno */
bool esp_write(const char *path, const uint8_t *bytes, size_t n);

/** Reads a whole file of at most `cap` bytes.  @err -1 with errno */
ssize_t esp_read(const char *path, uint8_t *bytes, size_t cap);

#endif
