/* What came of loading a list of kernel modules. */
#include "init/loading.h"

#include <errno.h>
#include <stddef.h>

const char *loading_count(struct loading *l, bool opened, int code)
{
    l->wanted++;
    if (opened && (code == 0 || code == EEXIST)) {
        l->loaded++;
        return NULL;
    }
    if (opened && code == ENODEV) {
        l->absent++;
        return NULL;
    }
    /* It needs one that is not loaded, maybe since that one has no device. */
    if (opened && code == ENOENT && l->absent > 0)
        return "the kernel refused it: what it needs is not loaded";
    l->faults++;
    if (!opened)
        return "cannot open it";
    if (code == EPERM || code == EKEYREJECTED) /* of a kernel that is locked down; or told to ask */
        return "the kernel refused it: not signed by a key that it trusts";
    return "the kernel refused it; the list may have it before what it needs";
}
