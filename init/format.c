/* The empty config file system. */
#include "init/format.h"

#include "config/box.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#define MAGIC        "V4BOXFS1"
#define HEADER_BYTES 16
#define RECORD_BYTES (4 + STORAGE_BLOCK_BYTES)

static const unsigned char ZEROS[STORAGE_BLOCK_BYTES];

static bool read_exactly(int fd, unsigned char *bytes, size_t n)
{
    for (size_t len = 0; len < n;) {
        ssize_t done = read(fd, bytes + len, n - len);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0) {
            errno = done == 0 ? EINVAL : errno;
            return false;
        }
        len += (size_t)done;
    }
    return true;
}

static bool write_block(int fd, uint32_t block, const unsigned char *bytes)
{
    off_t at = (off_t)block * STORAGE_BLOCK_BYTES;
    ssize_t done = pwrite(fd, bytes, STORAGE_BLOCK_BYTES, at);
    if (done >= 0 && done != STORAGE_BLOCK_BYTES)
        errno = ENOSPC;
    return done == STORAGE_BLOCK_BYTES;
}

static uint32_t number(const unsigned char *bytes)
{
    return bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

bool format_is_blank(const char *device)
{
    unsigned char block[STORAGE_BLOCK_BYTES];
    int fd = open(device, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool blank = read_exactly(fd, block, sizeof block) && memcmp(block, ZEROS, sizeof block) == 0;
    close(fd);
    return blank;
}

static bool malformed(void)
{
    errno = EINVAL;
    return false;
}

/* Copies the template over the device, with zeros between its records. */
static bool fill(int device, int template, uint32_t blocks, uint32_t records)
{
    unsigned char first[STORAGE_BLOCK_BYTES], record[RECORD_BYTES];
    uint32_t next = 1;
    if (!write_block(device, 0, ZEROS) || fsync(device) != 0)
        return false;
    for (uint32_t i = 0; i < records; i++) {
        if (!read_exactly(template, record, sizeof record))
            return false;
        uint32_t block = number(record);
        if (i == 0) {
            if (block != 0)
                return malformed();
            memcpy(first, record + 4, sizeof first);
            continue;
        }
        if (block < next || block >= blocks)
            return malformed();
        for (; next < block; next++)
            if (!write_block(device, next, ZEROS))
                return false;
        if (!write_block(device, next++, record + 4))
            return false;
    }
    for (; next < blocks; next++)
        if (!write_block(device, next, ZEROS))
            return false;
    return fsync(device) == 0 && write_block(device, 0, first) && fsync(device) == 0;
}

bool format_device(const char *device, const char *template_path)
{
    unsigned char header[HEADER_BYTES];
    bool good = false;
    int template = open(template_path, O_RDONLY | O_CLOEXEC);
    if (template <0)
        return false;
    /* O_EXCL on a block device: refused while it is mounted. */
    int fd = open(device, O_WRONLY | O_EXCL | O_CLOEXEC);
    if (fd >= 0 && read_exactly(template, header, sizeof header)) {
        uint32_t blocks = number(header + 8), records = number(header + 12);
        if (memcmp(header, MAGIC, 8) == 0 && records > 0 && blocks <= STORAGE_BLOCKS_MAX)
            good = fill(fd, template, blocks, records);
        else
            good = malformed();
    }
    int code = errno;
    if (fd >= 0)
        close(fd);
    close(template);
    errno = code;
    return good;
}
