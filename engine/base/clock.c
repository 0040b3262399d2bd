/* The monotonic clock in milliseconds. */
#include "engine/base/clock.h"

#include "kernels/check.h"

#include <time.h>

int64_t clock_ms(void)
{
    struct timespec now;
    ASSERT(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}
