/* The end of PID 1 when it can not go on. */
#include "init/panic.h"

#include "config/box.h"
#include "init/text.h"

#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/reboot.h>
#include <unistd.h>

void panic(const char *format, ...)
{
    char reason[LOG_LINE_BYTES], line[LOG_LINE_BYTES + 64];
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    struct text t = text_over(line, sizeof line);
    text_printf(&t, "\r\ninit: PANIC: %s; reboot in %d s\r\n", reason, PANIC_DELAY_S);
    int fd = open("/dev/console", O_WRONLY | O_NOCTTY | O_CLOEXEC);
    if (write(fd >= 0 ? fd : STDERR_FILENO, t.data, t.len) < 0)
        fd = -1; /* nobody can be told; the reboot still happens */
    sleep(PANIC_DELAY_S);
    sync();
    reboot(RB_AUTOBOOT);
    _exit(1); /* not reached as PID 1; elsewhere reboot() is refused */
}

static void crashed(int signal)
{
    panic("PID 1 crashed with signal %d", signal);
}

void panic_on_crash(void)
{
    static const int CRASHES[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
    /* Once: a second crash inside the handler takes the kernel's way, which reboots as well. */
    struct sigaction action = {.sa_handler = crashed, .sa_flags = SA_RESETHAND};
    for (size_t i = 0; i < sizeof CRASHES / sizeof CRASHES[0]; i++)
        sigaction(CRASHES[i], &action, NULL);
}
