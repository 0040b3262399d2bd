/*
 * The kernel's messages into the log: reads /dev/kmsg for ever and prints what is worth a line.
 * Gives up everything but that one open file first.  Knows no other log.
 */
#include "config/box.h"
#include "init/confine.h"
#include "init/kmsg.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(void)
{
    char record[KERNEL_RECORD_BYTES];
    int fd = open("/dev/kmsg", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || confine_process() != 0 || confine_files(NULL, 0) != 0 ||
        confine_user(BOX_UID_KERNEL) != 0) {
        fprintf(stderr, "/dev/kmsg: %s\n", strerror(errno));
        return 2;
    }
    for (;;) {
        ssize_t n = read(fd, record, sizeof record);
        size_t length;
        const char *text = n > 0 ? kmsg_text(record, (size_t)n, &length) : NULL;
        if (text != NULL)
            dprintf(STDOUT_FILENO, "%.*s\n", (int)length, text);
        else if (n < 0 && errno == EPIPE) /* the kernel was faster than we */
            dprintf(STDOUT_FILENO, "messages were lost\n");
        else if (n < 0 && errno != EINTR && errno != EINVAL)
            return 1;
    }
}
