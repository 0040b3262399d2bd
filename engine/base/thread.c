/* Threads with signals blocked and a stated stack. */
#include "engine/base/thread.h"

#include "kernels/check.h"

#include <signal.h>
#include <string.h>

enum status thread_start(pthread_t *out, const char *name, void *(*run)(void *), void *context,
                         struct error *err)
{
    pthread_attr_t attr;
    sigset_t all, before;
    sigfillset(&all);
    ASSERT(pthread_attr_init(&attr) == 0);
    ASSERT(pthread_attr_setstacksize(&attr, SERVE_STACK_BYTES) == 0);
    ASSERT(pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
    int code = pthread_create(out, &attr, run, context);
    ASSERT(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    pthread_attr_destroy(&attr);
    if (code != 0)
        return error_set(err, ERR_CAPACITY, "thread %s: %s", name, strerror(code));
    return OK;
}
