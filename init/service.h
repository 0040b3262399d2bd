/*
 * The life of one supervised service as a table of state and event.  Pure: no clock, no process, no
 * log; the caller says what happened and when, and does what the answer says.
 *
 *            start            alive SERVICE_STABLE_MS
 *   stopped ------> starting -------------------------> running
 *      ^               |  ^                                |
 *      |          exit |  | timer                          | exit
 *      |               v  |                                |
 *      |             backoff <-----------------------------+
 *      |               |  SERVICE_CRASHES_MAX failed starts in a row
 *      |               v
 *      |             failed  (tried again after SERVICE_FAILED_MS)
 *      +---- stopping <---- stop, from every state that has a process
 */
#ifndef V4BOX_INIT_SERVICE_H
#define V4BOX_INIT_SERVICE_H

#include <stdint.h>

enum service_state {
    SERVICE_STOPPED,
    SERVICE_STARTING,
    SERVICE_RUNNING,
    SERVICE_BACKOFF,
    SERVICE_FAILED,
    SERVICE_STOPPING,
    SERVICE_STATE_COUNT
};

enum service_event {
    SERVICE_START,     /* bring it up */
    SERVICE_EXIT_GOOD, /* its process ended with exit code 0 */
    SERVICE_EXIT_BAD,  /* ... with another code or by a signal, or could not be started */
    SERVICE_TIMER,     /* the time in `deadline_ms` has come */
    SERVICE_STOP,      /* take it down for good */
    SERVICE_EVENT_COUNT
};

enum service_action {
    SERVICE_DO_NOTHING,
    SERVICE_DO_SPAWN, /* start its process; answer with EXIT_BAD when that fails */
    SERVICE_DO_TERM,  /* send SIGTERM */
    SERVICE_DO_KILL   /* send SIGKILL */
};

enum service_policy {
    RESTART_ALWAYS, /* a daemon: every end is a failure */
    RESTART_LOGIN,  /* a login session: a good end is normal and is followed by the next session */
    RESTART_NEVER   /* a task: a good end is the end; a bad one is tried again */
};

struct service {
    enum service_policy policy;
    enum service_state state;
    int64_t deadline_ms; /* when SERVICE_TIMER is due; -1: none */
    int crashes;         /* failed starts in a row */
    uint32_t restarts;   /* starts after the first, since boot */
};

/** Puts a service into `stopped`. */
void service_init(struct service *s, enum service_policy policy);

/** Applies one event at `now_ms` (any monotonic clock) and says what to do. */
enum service_action service_step(struct service *s, enum service_event event, int64_t now_ms);

/** The state's name, for people. */
const char *service_state_name(enum service_state state);

#endif
