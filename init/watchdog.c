/* The hardware watchdog. */
#include "init/watchdog.h"

#include "config/slots.h"

#include <fcntl.h>
#include <linux/watchdog.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

bool watchdog_open(struct watchdog *w, const char *path)
{
    int seconds = WATCHDOG_S;
    *w = (struct watchdog){.fd = open(path, O_WRONLY | O_CLOEXEC)};
    return w->fd >= 0 && ioctl(w->fd, WDIOC_SETTIMEOUT, &seconds) == 0;
}

/* Any byte feeds but 'V', which would stop it at the end of the program. */
static bool feed(int fd)
{
    return write(fd, "+", 1) == 1;
}

void watchdog_keep(struct watchdog *w, int64_t period_ms, int64_t limit_ms)
{
    const struct timespec period = {period_ms / 1000, period_ms % 1000 * 1000000};
    if (w->fd < 0)
        return;
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (int64_t fed_ms = 0; fed_ms < limit_ms && feed(w->fd); fed_ms += period_ms)
            nanosleep(&period, NULL);
        _exit(0);
    }
    w->feeder = pid > 0 ? pid : 0;
}

void watchdog_release(struct watchdog *w)
{
    if (w->feeder == 0)
        return;
    kill(w->feeder, SIGKILL);
    waitpid(w->feeder, NULL, 0);
    w->feeder = 0;
}

void watchdog_feed(struct watchdog *w, int64_t now_ms)
{
    if (w->fd < 0 || now_ms - w->fed_ms < WATCHDOG_FEED_MS)
        return;
    if (feed(w->fd))
        w->fed_ms = now_ms;
}
