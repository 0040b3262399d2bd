/*
 * The hardware watchdog: opened as soon as its driver is there, fed while PID 1 boots by a child
 * with a limit, then by PID 1 alone.  A machine without one goes on without.  Knows nothing of what
 * makes the machine worth feeding.
 */
#ifndef V4BOX_INIT_WATCHDOG_H
#define V4BOX_INIT_WATCHDOG_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct watchdog {
    int fd; /* owns; -1: there is none */
    int64_t fed_ms;
    pid_t feeder; /* the child that feeds it, 0: none */
};

/**
 * Opens the device, which starts it, and asks for WATCHDOG_S.
 * @err false with errno: there is none, or it does not take the time; the latter runs all the same
 */
bool watchdog_open(struct watchdog *w, const char *path);

/**
 * A child feeds it every `period_ms` for at most `limit_ms`: a step of the boot may be in the
 * kernel for longer than WATCHDOG_S (a driver that looks for eight GPUs), but no boot hangs for
 * ever.
 */
void watchdog_keep(struct watchdog *w, int64_t period_ms, int64_t limit_ms);

/** The boot is over: the child ends. */
void watchdog_release(struct watchdog *w);

/** Feeds it, unless it was fed within WATCHDOG_FEED_MS. */
void watchdog_feed(struct watchdog *w, int64_t now_ms);

#endif
