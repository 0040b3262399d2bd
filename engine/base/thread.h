/*
 * How the engine starts a thread of its own: all signals stay with the main thread, and the stack
 * has a stated size (musl's default is 128 KiB).
 */
#ifndef V4BOX_ENGINE_THREAD_H
#define V4BOX_ENGINE_THREAD_H

#include "engine/base/status.h"

#include <pthread.h>

/** @err ERR_CAPACITY naming the thread.  The caller joins. */
enum status MUST_CHECK thread_start(pthread_t *out, const char *name, void *(*run)(void *),
                                    void *context, struct error *err);

#endif
