/*
 * The hardware watchdog: opened as soon as its driver is there, then fed by PID 1 alone.  A machine
 * without one goes on without.  Knows nothing of what makes the machine worth feeding.
 */
#ifndef V4BOX_INIT_WATCHDOG_H
#define V4BOX_INIT_WATCHDOG_H

#include <stdbool.h>
#include <stdint.h>

struct watchdog {
    int fd; /* owns; -1: there is none */
    int64_t fed_ms;
};

/**
 * Opens the device, which starts it, and asks for WATCHDOG_S.
 * @err false with errno: there is none, or it does not take the time; the latter runs all the same
 */
bool watchdog_open(struct watchdog *w, const char *path);

/** Feeds it, unless it was fed within WATCHDOG_FEED_MS. */
void watchdog_feed(struct watchdog *w, int64_t now_ms);

#endif
