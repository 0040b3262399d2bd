/* Groups and ranks, as words and from numbers. */
#include "common/layout.h"

#include "config/limits.h"

#include <string.h>

bool layout_parse(const char *text, struct layout *out)
{
    struct layout layout = {0, 0};
    if (strcmp(text, "auto") != 0) {
        /* One figure each: no box has more than RANKS_MAX of either. */
        if (strlen(text) != 3 || text[1] != 'x' || text[0] < '1' || text[0] > '9' ||
            text[2] < '1' || text[2] > '9')
            return false;
        layout = (struct layout){text[0] - '0', text[2] - '0'};
        if (layout.groups * layout.ranks > RANKS_MAX)
            return false;
    }
    *out = layout;
    return true;
}

int32_t layout_groups(int32_t ranks, int32_t gpus)
{
    int32_t groups = ranks > 0 ? gpus / ranks : 0;
    if (groups > GROUPS_MAX)
        groups = GROUPS_MAX;
    return groups > 1 ? groups : 1;
}
