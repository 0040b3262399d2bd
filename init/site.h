/*
 * What the place brings along: API keys and SSH keys, given by the machine's owner through QEMU's
 * fw_cfg.  On metal there is none, and the box waits to be claimed.  Copies bounded bytes;
 * the programs that use them parse them.
 */
#ifndef V4BOX_INIT_SITE_H
#define V4BOX_INIT_SITE_H

#include <stdbool.h>
#include <sys/types.h>

enum site_result { SITE_ABSENT, SITE_COPIED, SITE_REFUSED };

/**
 * Copies one file of text to `to`, which is new, with the given owner and mode 0600.
 * @err SITE_REFUSED: empty, larger than BOOT_SITE_BYTES_MAX, with a NUL byte, or not writable
 */
enum site_result site_copy(const char *from, const char *to, uid_t owner);

#endif
