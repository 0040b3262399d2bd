/* A piece is expected to take what the mean of its size took, or the newest: whichever is longer.
 */
#include "engine/audit/pace.h"

#include <math.h>

bool pace_begin(struct pace *p, double size, int64_t now_ms)
{
    double rate = p->sizes > 0 ? fmax(p->ms / p->sizes, p->last) : 0;
    if (p->until_ms != 0 &&
        (now_ms >= p->until_ms || rate * size > (double)(p->until_ms - now_ms))) {
        p->dropped++;
        return false;
    }
    p->begin_ms = now_ms;
    p->size = size;
    return true;
}

void pace_end(struct pace *p, int64_t now_ms)
{
    double ms = (double)(now_ms - p->begin_ms);
    p->sizes += p->size;
    p->ms += ms;
    p->last = ms / p->size;
}
