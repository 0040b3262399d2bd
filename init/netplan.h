/*
 * The network as it is set, and as it is tried: a change with a time limit goes back by itself
 * unless somebody confirms it, so that nobody locks himself out.  What is tried is never in the
 * file: a power cut goes back as well.  Decides; the caller starts DHCP and sets addresses.
 */
#ifndef V4BOX_INIT_NETPLAN_H
#define V4BOX_INIT_NETPLAN_H

#include "init/settings.h"

#include <stdbool.h>
#include <stdint.h>

struct netplan {
    struct settings saved; /* what the file says */
    struct settings now;   /* what holds */
    bool trying;
    int64_t revert_ms; /* when a trial ends */
    bool applied;      /* `now` has been carried out */
    const char *path;  /* borrows: of the file */
};

enum netplan_action {
    NETPLAN_NOTHING,
    NETPLAN_STOP_DHCP,  /* ask its program to end */
    NETPLAN_START_DHCP, /* start its program */
    NETPLAN_SET_ADDRESS /* carry out the static address; answer with netplan_done */
};

/** Begins with the file.  @err false with errno: it can not be used, defaults hold */
bool netplan_open(struct netplan *p, const char *path);

/**
 * Changes what holds; with `try_s` seconds it is not saved before netplan_confirm.
 * @err NULL: done; else what is wrong, for people; nothing has changed then
 */
const char *netplan_change(struct netplan *p, const struct settings *to, int try_s, int64_t now_ms);

/** Saves what is tried.  @err as above */
const char *netplan_confirm(struct netplan *p);

/** What to do, given whether the DHCP program has a process, or waits for one. */
enum netplan_action netplan_turn(struct netplan *p, bool dhcp_lives, int64_t now_ms);

/** NETPLAN_SET_ADDRESS was carried out. */
void netplan_done(struct netplan *p);

#endif
