/* The life of one supervised service. */
#include "init/service.h"

#include "config/box.h"

typedef enum service_action (*handler)(struct service *s, int64_t now_ms);

static enum service_action ignore(struct service *s, int64_t now_ms)
{
    (void)s, (void)now_ms;
    return SERVICE_DO_NOTHING;
}

static enum service_action enter(struct service *s, enum service_state state, int64_t deadline_ms,
                                 enum service_action action)
{
    s->state = state;
    s->deadline_ms = deadline_ms;
    return action;
}

static enum service_action start(struct service *s, int64_t now_ms)
{
    return enter(s, SERVICE_STARTING, now_ms + SERVICE_STABLE_MS, SERVICE_DO_SPAWN);
}

static enum service_action restart(struct service *s, int64_t now_ms)
{
    s->restarts++;
    return start(s, now_ms);
}

static enum service_action stable(struct service *s, int64_t now_ms)
{
    (void)now_ms;
    s->crashes = 0;
    return enter(s, SERVICE_RUNNING, -1, SERVICE_DO_NOTHING);
}

static enum service_action crash(struct service *s, int64_t now_ms)
{
    int64_t wait_ms = SERVICE_BACKOFF_MS;
    for (int i = 0; i < s->crashes && wait_ms < SERVICE_BACKOFF_MAX_MS; i++)
        wait_ms *= 2;
    if (++s->crashes > SERVICE_CRASHES_MAX) {
        s->crashes = 0;
        return enter(s, SERVICE_FAILED, now_ms + SERVICE_FAILED_MS, SERVICE_DO_NOTHING);
    }
    return enter(s, SERVICE_BACKOFF, now_ms + wait_ms, SERVICE_DO_NOTHING);
}

static enum service_action finish(struct service *s, int64_t now_ms)
{
    switch (s->policy) {
    case RESTART_NEVER:
        return enter(s, SERVICE_STOPPED, -1, SERVICE_DO_NOTHING);
    case RESTART_LOGIN:
        s->crashes = 0;
        return enter(s, SERVICE_BACKOFF, now_ms + SERVICE_BACKOFF_MS, SERVICE_DO_NOTHING);
    case RESTART_ALWAYS:
        break;
    }
    return crash(s, now_ms);
}

static enum service_action stop(struct service *s, int64_t now_ms)
{
    return enter(s, SERVICE_STOPPING, now_ms + SERVICE_STOP_MS, SERVICE_DO_TERM);
}

/* Killed once; a process that survives SIGKILL hangs in the kernel and no further signal helps. */
static enum service_action kill_it(struct service *s, int64_t now_ms)
{
    (void)now_ms;
    return enter(s, SERVICE_STOPPING, -1, SERVICE_DO_KILL);
}

static enum service_action rest(struct service *s, int64_t now_ms)
{
    (void)now_ms;
    return enter(s, SERVICE_STOPPED, -1, SERVICE_DO_NOTHING);
}

/* clang-format off */
static const handler TABLE[SERVICE_STATE_COUNT][SERVICE_EVENT_COUNT] = {
    /*                   START   EXIT_GOOD EXIT_BAD TIMER    STOP */
    [SERVICE_STOPPED]  = {start,  ignore,   ignore,  ignore,  ignore},
    [SERVICE_STARTING] = {ignore, finish,   crash,   stable,  stop},
    [SERVICE_RUNNING]  = {ignore, finish,   crash,   ignore,  stop},
    [SERVICE_BACKOFF]  = {ignore, ignore,   ignore,  restart, rest},
    [SERVICE_FAILED]   = {ignore, ignore,   ignore,  restart, rest},
    [SERVICE_STOPPING] = {ignore, rest,     rest,    kill_it, ignore},
};
/* clang-format on */

void service_init(struct service *s, enum service_policy policy)
{
    *s = (struct service){.policy = policy, .state = SERVICE_STOPPED, .deadline_ms = -1};
}

enum service_action service_step(struct service *s, enum service_event event, int64_t now_ms)
{
    return TABLE[s->state][event](s, now_ms);
}

const char *service_state_name(enum service_state state)
{
    static const char *const NAMES[SERVICE_STATE_COUNT] = {
        [SERVICE_STOPPED] = "stopped", [SERVICE_STARTING] = "starting",
        [SERVICE_RUNNING] = "running", [SERVICE_BACKOFF] = "backoff",
        [SERVICE_FAILED] = "failed",   [SERVICE_STOPPING] = "stopping",
    };
    return NAMES[state];
}
