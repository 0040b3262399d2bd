/*
 * A partition under dm-verity: data blocks, then the tree of their hashes, both of 4096 bytes; the
 * root hash is the caller's, from a system that was signed.  Every block is checked when it is
 * read; one that differs is an error of the disk.  Knows no file system.
 */
#ifndef V4BOX_INIT_VERITY_H
#define V4BOX_INIT_VERITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VERITY_HEX_CHARS     64
#define VERITY_VERSION_BYTES 32
#define VERITY_BLOCK_BYTES   4096

struct verity {
    char root[VERITY_HEX_CHARS + 1], salt[VERITY_HEX_CHARS + 1];
    uint64_t blocks;                    /* of data */
    char version[VERITY_VERSION_BYTES]; /* of the driver, for people */
};

/** Reads "ROOT SALT BLOCKS VERSION\n", as tools/payload.sh writes it.  @err false */
bool verity_parse(struct verity *v, const char *text, size_t n);

/** Makes the read-only device `path` ("/dev/dm-0") of `device` ("/dev/vda2").  @err false with
 * errno */
bool verity_open(const struct verity *v, const char *device, char *path, size_t cap);

/** Takes it away again. */
void verity_close(void);

/** Reads every block.  @err false: *bad is the first byte that can not be read or is not as it was
 */
bool verity_read_all(const struct verity *v, const char *path, uint64_t *bad);

#endif
