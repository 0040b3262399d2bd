/* Xid lines. */
#include "init/xid.h"

#include <stdio.h>
#include <string.h>

#define HEAD "NVRM: Xid (PCI:"

static const struct {
    int code;
    const char *meaning;
} MEANINGS[] = {
#define XID(code, meaning) {code, meaning},
#include "config/xid.def"
#undef XID
};

const char *xid_meaning(int code)
{
    for (size_t i = 0; i < sizeof MEANINGS / sizeof MEANINGS[0]; i++)
        if (MEANINGS[i].code == code)
            return MEANINGS[i].meaning;
    return NULL;
}

/* "NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus." */
static bool parse(const char *line, size_t n, char bus[PCI_BUS_BYTES], int *code)
{
    size_t at = sizeof HEAD - 1, length = 0;
    if (n < at || memcmp(line, HEAD, at) != 0)
        return false;
    while (at + length < n && length + 1 < PCI_BUS_BYTES && line[at + length] != '\0' &&
           strchr("0123456789abcdef:", line[at + length]) != NULL)
        length++;
    memcpy(bus, line + at, length);
    bus[length] = '\0';
    at += length;
    if (length == 0 || n - at < 4 || memcmp(line + at, "): ", 3) != 0)
        return false;
    *code = 0;
    size_t digits = 0;
    for (at += 3; at < n && digits < 5 && line[at] >= '0' && line[at] <= '9'; at++, digits++)
        *code = *code * 10 + (line[at] - '0');
    return digits > 0 && (at == n || line[at] == ',');
}

bool xid_take(struct xids *xids, const char *line, size_t n, int64_t now_ms)
{
    char bus[PCI_BUS_BYTES];
    int code, i = 0;
    if (!parse(line, n, bus, &code))
        return false;
    while (i < BOX_GPUS_MAX && xids->gpu[i].bus[0] != '\0' && strcmp(xids->gpu[i].bus, bus) != 0)
        i++;
    if (i == BOX_GPUS_MAX) {
        xids->others++;
        return true;
    }
    struct xid *x = &xids->gpu[i];
    snprintf(x->bus, sizeof x->bus, "%s", bus);
    x->code = code;
    x->count++;
    x->last_ms = now_ms;
    return true;
}

const struct xid *xid_find(const struct xids *xids, const char *bus)
{
    for (int i = 0; i < BOX_GPUS_MAX; i++) {
        const struct xid *x = &xids->gpu[i];
        size_t n = strlen(x->bus);
        if (n > 0 && strncmp(bus, x->bus, n) == 0 && (bus[n] == '.' || bus[n] == '\0'))
            return x;
    }
    return NULL;
}
