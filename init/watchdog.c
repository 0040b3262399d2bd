/* The hardware watchdog. */
#include "init/watchdog.h"

#include "config/slots.h"

#include <fcntl.h>
#include <linux/watchdog.h>
#include <sys/ioctl.h>
#include <unistd.h>

bool watchdog_open(struct watchdog *w, const char *path)
{
    int seconds = WATCHDOG_S;
    *w = (struct watchdog){.fd = open(path, O_WRONLY | O_CLOEXEC)};
    return w->fd >= 0 && ioctl(w->fd, WDIOC_SETTIMEOUT, &seconds) == 0;
}

void watchdog_feed(struct watchdog *w, int64_t now_ms)
{
    if (w->fd < 0 || now_ms - w->fed_ms < WATCHDOG_FEED_MS)
        return;
    /* Any byte feeds but 'V', which would stop it at the end of the program. */
    if (write(w->fd, "+", 1) == 1)
        w->fed_ms = now_ms;
}
