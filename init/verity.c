/* A partition under dm-verity, set up by the kernel's own calls: no library knows how to be as
 * small. */
#include "init/verity.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/dm-ioctl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>
#include <sys/types.h>
#include <unistd.h>

#define CONTROL      "/dev/mapper/control"
#define NAME         "gpu"
#define SECTORS      (VERITY_BLOCK_BYTES / 512)
#define PARAMS_BYTES 512 /* two hashes of 64 characters and two paths */
#define READ_BLOCKS  256
#define HEX          "0123456789abcdef"
#define VERSION      "0123456789."
#define DIGITS_MAX   12 /* of blocks: 16 PB, and no overflow */

/* One word of `set` behind which `end` comes.  Returns what follows, NULL: there is none. */
static const char *take(const char *text, const char *limit, const char *set, char end, char *out,
                        size_t cap)
{
    size_t n = 0;
    while (text + n < limit && text[n] != '\0' && strchr(set, text[n]) != NULL)
        n++;
    if (n == 0 || n >= cap || text + n == limit || text[n] != end)
        return NULL;
    memcpy(out, text, n);
    out[n] = '\0';
    return text + n + 1;
}

bool verity_parse(struct verity *v, const char *text, size_t n)
{
    char blocks[DIGITS_MAX + 1];
    const char *limit = text + n;
    const char *at = take(text, limit, HEX, ' ', v->root, sizeof v->root);
    at = at == NULL ? NULL : take(at, limit, HEX, ' ', v->salt, sizeof v->salt);
    at = at == NULL ? NULL : take(at, limit, "0123456789", ' ', blocks, sizeof blocks);
    at = at == NULL ? NULL : take(at, limit, VERSION, '\n', v->version, sizeof v->version);
    if (at != limit || strlen(v->root) != VERITY_HEX_CHARS || strlen(v->salt) != VERITY_HEX_CHARS)
        return false;
    for (v->blocks = 0, at = blocks; *at != '\0'; at++)
        v->blocks = v->blocks * 10 + (uint64_t)(*at - '0');
    return v->blocks > 0;
}

/* What the kernel takes: one request, one target, and the target's words. */
struct order {
    struct dm_ioctl io;
    struct dm_target_spec target;
    char params[PARAMS_BYTES];
};

static bool send_order(int control, unsigned long command, struct order *order, uint32_t flags)
{
    order->io.version[0] = DM_VERSION_MAJOR;
    order->io.data_size = sizeof *order;
    order->io.data_start = sizeof order->io;
    order->io.flags = flags;
    snprintf(order->io.name, sizeof order->io.name, NAME);
    return ioctl(control, command, order) == 0;
}

static bool set_up(int control, const struct verity *v, const char *device, dev_t *made)
{
    struct order create = {.io = {.version = {0}}}, load = create, resume = create;
    load.io.target_count = 1;
    load.target.length = v->blocks * SECTORS;
    load.target.next = sizeof load.target + sizeof load.params;
    strcpy(load.target.target_type, "verity");
    int n =
        snprintf(load.params, sizeof load.params, "1 %s %s %d %d %llu %llu sha256 %s %s", device,
                 device, VERITY_BLOCK_BYTES, VERITY_BLOCK_BYTES, (unsigned long long)v->blocks,
                 (unsigned long long)v->blocks, v->root, v->salt);
    if (n >= (int)sizeof load.params || !send_order(control, DM_DEV_CREATE, &create, 0) ||
        !send_order(control, DM_TABLE_LOAD, &load, DM_READONLY_FLAG) ||
        !send_order(control, DM_DEV_SUSPEND, &resume,
                    DM_READONLY_FLAG)) /* without its flag: resume */
        return false;
    *made = (dev_t)resume.io.dev;
    return true;
}

bool verity_open(const struct verity *v, const char *device, char *path, size_t cap)
{
    dev_t made = 0;
    int control = open(CONTROL, O_RDWR | O_CLOEXEC);
    if (control < 0)
        return false;
    bool good = set_up(control, v, device, &made);
    int code = errno;
    close(control);
    if (!good)
        verity_close();
    errno = code;
    snprintf(path, cap, "/dev/dm-%u", minor(made));
    return good;
}

void verity_close(void)
{
    struct order gone = {.io = {.version = {0}}};
    int control = open(CONTROL, O_RDWR | O_CLOEXEC);
    if (control < 0)
        return;
    send_order(control, DM_DEV_REMOVE, &gone, 0);
    close(control);
}

bool verity_read_all(const struct verity *v, const char *path, uint64_t *bad)
{
    static char bytes[READ_BLOCKS * VERITY_BLOCK_BYTES];
    uint64_t end = v->blocks * VERITY_BLOCK_BYTES, at = 0;
    size_t piece = sizeof bytes;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && at < end) {
        size_t n = end - at < piece ? (size_t)(end - at) : piece;
        ssize_t got = pread(fd, bytes, n, (off_t)at);
        if (got > 0)
            at += (uint64_t)got;
        else if (piece == VERITY_BLOCK_BYTES)
            break;
        else
            piece = VERITY_BLOCK_BYTES; /* from here on block by block: which one is it */
    }
    *bad = at;
    if (fd >= 0)
        close(fd);
    return at == end;
}
