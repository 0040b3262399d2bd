/* The GPU payload of a system, on its way and on the disk. */
#include "init/payload.h"

#include "init/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define PIECE_BLOCKS 256 /* 1 MiB: what is checked and then written at once */
#define PATH_BYTES   (sizeof "/dev/" + STORAGE_NAME_BYTES)

static uint8_t piece[PIECE_BLOCKS * VERITY_BLOCK_BYTES];

bool payload_plan(struct payload *p, const struct verity *v)
{
    if (v->blocks > PAYLOAD_BYTES_MAX / VERITY_BLOCK_BYTES)
        return false;
    hashtree_plan(&p->tree, v);
    return payload_bytes(p) <= PAYLOAD_BYTES_MAX &&
           p->tree.blocks * VERITY_BLOCK_BYTES <= sizeof p->hashes;
}

uint64_t payload_bytes(const struct payload *p)
{
    return (p->tree.data + p->tree.blocks) * VERITY_BLOCK_BYTES;
}

const char *payload_take_hashes(struct payload *p, payload_source source, void *context)
{
    size_t n = (size_t)p->tree.blocks * VERITY_BLOCK_BYTES;
    if (source(context, p->hashes, n) != n)
        return "the GPU payload is cut off";
    return hashtree_whole(&p->tree, p->hashes)
               ? NULL
               : "the GPU payload is not the one that the program names, or damaged";
}

/* Blocks of the piece that begins at block `at`. */
static size_t piece_blocks(const struct payload *p, uint64_t at)
{
    uint64_t left = p->tree.data - at;
    return left < PIECE_BLOCKS ? (size_t)left : PIECE_BLOCKS;
}

/* How many blocks of the piece at block `at` are good, from its first on. */
static size_t good_blocks(const struct payload *p, uint64_t at, size_t blocks)
{
    size_t i = 0;
    while (i < blocks && hashtree_fits(&p->tree, p->hashes, at + i, piece + i * VERITY_BLOCK_BYTES))
        i++;
    return i;
}

const char *payload_take_data(const struct payload *p, payload_source source, void *context, int fd)
{
    if (fd >= 0 && lseek(fd, 0, SEEK_SET) != 0)
        return "the GPU payload can not be written";
    for (uint64_t at = 0; at < p->tree.data; at += PIECE_BLOCKS) {
        size_t blocks = piece_blocks(p, at), n = blocks * VERITY_BLOCK_BYTES;
        if (source(context, piece, n) != n)
            return "the GPU payload is cut off";
        if (good_blocks(p, at, blocks) != blocks)
            return "the GPU payload is damaged";
        if (fd >= 0 && !file_write(fd, piece, n))
            return "the GPU payload can not be written";
    }
    if (fd >= 0 &&
        (!file_write(fd, p->hashes, (size_t)p->tree.blocks * VERITY_BLOCK_BYTES) || fsync(fd) != 0))
        return "the GPU payload can not be written";
    return NULL;
}

static bool read_whole(int fd, uint8_t *bytes, size_t n, uint64_t at)
{
    for (size_t len = 0; len < n;) {
        ssize_t got = pread(fd, bytes + len, n - len, (off_t)(at + len));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        len += (size_t)got;
    }
    return true;
}

/* From the disk, not from the memory that it was written through; and it stays out of memory, which
 * the engine needs. */
bool payload_check(struct payload *p, int fd, uint64_t *bad)
{
    uint64_t tree_at = p->tree.data * VERITY_BLOCK_BYTES;
    size_t tree_bytes = (size_t)p->tree.blocks * VERITY_BLOCK_BYTES;
    *bad = tree_at;
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    if (!read_whole(fd, p->hashes, tree_bytes, tree_at) || !hashtree_whole(&p->tree, p->hashes))
        return false;
    for (uint64_t at = 0; at < p->tree.data; at += PIECE_BLOCKS) {
        size_t blocks = piece_blocks(p, at), n = blocks * VERITY_BLOCK_BYTES;
        *bad = at * VERITY_BLOCK_BYTES;
        if (!read_whole(fd, piece, n, *bad))
            return false;
        posix_fadvise(fd, (off_t)*bad, (off_t)n, POSIX_FADV_DONTNEED);
        size_t good = good_blocks(p, at, blocks);
        *bad += good * VERITY_BLOCK_BYTES;
        if (good != blocks)
            return false;
    }
    return true;
}

static int open_device(const char *device, int flags)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "/dev/%s", device);
    return device[0] == '\0' ? -1 : open(path, flags | O_CLOEXEC);
}

int payload_open(const struct payload *p, const char device[SLOT_COUNT][STORAGE_NAME_BYTES],
                 int first, const char **wrong)
{
    *wrong = "this box has no partition for a GPU payload that is free";
    for (int i = 0; i < SLOT_COUNT; i++) {
        /* Without O_CREAT: refused while the kernel's device mapper has it. */
        int fd = open_device(device[first ^ i], O_RDWR | O_EXCL);
        if (fd < 0)
            continue;
        off_t size = lseek(fd, 0, SEEK_END);
        if (size >= 0 && (uint64_t)size >= payload_bytes(p)) {
            *wrong = NULL;
            return fd;
        }
        close(fd);
        *wrong = "the GPU payload is larger than the partition for it";
    }
    return -1;
}

int payload_find(struct payload *p, const char device[SLOT_COUNT][STORAGE_NAME_BYTES], int first)
{
    for (int i = 0; i < SLOT_COUNT; i++) {
        uint64_t bad;
        int fd = open_device(device[first ^ i], O_RDONLY);
        bool whole = fd >= 0 && payload_check(p, fd, &bad);
        if (fd >= 0)
            close(fd);
        if (whole)
            return first ^ i;
    }
    return -1;
}
