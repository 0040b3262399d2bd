/*
 * The end of PID 1 when it can not go on: say why on the console, wait so that it can be read, and
 * reboot.  A box that hangs silently is worse than one that comes back.
 */
#ifndef V4BOX_INIT_PANIC_H
#define V4BOX_INIT_PANIC_H

#define PANIC_UNLESS(cond, ...)                                                                    \
    do {                                                                                           \
        if (!(cond))                                                                               \
            panic(__VA_ARGS__);                                                                    \
    } while (0)

/** Prints the reason and reboots after PANIC_DELAY_S. */
_Noreturn void panic(const char *format, ...) __attribute__((format(printf, 1, 2)));

/** Turns a crash of PID 1 (SIGSEGV and its kin) into a panic with the signal's number. */
void panic_on_crash(void);

#endif
