/* NVIDIA's GPUs on the PCI bus. */
#include "init/pci.h"

#include "common/layout.h"
#include "init/files.h"
#include "init/journal.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VENDOR     0x10de
#define DISPLAY    0x03 /* the class of what has a picture or could have */
#define PATH_BYTES 256
#define FILE_BYTES 4096 /* a page is all that /sys gives */

static const struct {
    unsigned device;
    const char *name;
} NAMES[] = {
#define PCI_GPU(device, name) {device, name},
#include "config/pci_gpus.def"
#undef PCI_GPU
};

/* ---- files ------------------------------------------------------------------------------------
 */

/* The first line of a file of a device, printable; "": there is none. */
static void read_word(const char *folder, const char *bus, const char *name, char *to, size_t cap)
{
    char path[PATH_BYTES], bytes[FILE_BYTES];
    struct text t = text_over(to, cap);
    int length = snprintf(path, sizeof path, "%s/%s/%s", folder, bus, name);
    ssize_t n = length >= (int)sizeof path ? -1 : file_load(path, bytes, sizeof bytes);
    size_t line = 0;
    while (n > 0 && line < (size_t)n && bytes[line] != '\n' && line + 1 < cap)
        line++;
    text_add_printable(&t, bytes, line);
}

static long long read_number(const char *folder, const char *bus, const char *name, int base,
                             long long most)
{
    char word[PCI_WORD_BYTES], *end;
    read_word(folder, bus, name, word, sizeof word);
    long long value = strtoll(word, &end, base);
    return end == word || *end != '\0' || value < 0 || value > most ? -1 : value;
}

/* The sum of a file of AER: its line "TOTAL_ERR_COR 12". */
static long long read_total(const char *folder, const char *bus, const char *name,
                            const char *total)
{
    char path[PATH_BYTES], bytes[FILE_BYTES + 1], *end;
    int length = snprintf(path, sizeof path, "%s/%s/%s", folder, bus, name);
    ssize_t n = length >= (int)sizeof path ? -1 : file_load(path, bytes, FILE_BYTES);
    if (n < 0)
        return -1;
    bytes[n] = '\0';
    const char *found = strstr(bytes, total);
    if (found == NULL || (found != bytes && found[-1] != '\n'))
        return -1;
    long long value = strtoll(found + strlen(total), &end, 10);
    return end == found + strlen(total) || value < 0 ? -1 : value;
}

/* ---- GPUs -------------------------------------------------------------------------------------
 */

static bool is_bus(const char *name)
{
    size_t n = strlen(name);
    return n > 0 && n < PCI_BUS_BYTES && strspn(name, "0123456789abcdef:.") == n && name[0] != '.';
}

static void read_driver(const char *folder, const char *bus, char *to, size_t cap)
{
    char path[PATH_BYTES], target[PATH_BYTES];
    struct text t = text_over(to, cap);
    int length = snprintf(path, sizeof path, "%s/%s/driver", folder, bus);
    ssize_t n = length >= (int)sizeof path ? -1 : readlink(path, target, sizeof target - 1);
    if (n <= 0)
        return;
    target[n] = '\0';
    const char *slash = strrchr(target, '/');
    const char *name = slash == NULL ? target : slash + 1;
    text_add_printable(&t, name, strnlen(name, cap - 1));
}

static void name_gpu(struct pci_gpu *g, long long device)
{
    snprintf(g->name, sizeof g->name, "NVIDIA 10de:%04llx", device & 0xffff);
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++)
        if (device == (long long)NAMES[i].device)
            snprintf(g->name, sizeof g->name, "NVIDIA %s", NAMES[i].name);
}

static void read_gpu(const char *folder, const char *bus, struct pci_gpu *g)
{
    long long fatal = read_total(folder, bus, "aer_dev_fatal", "TOTAL_ERR_FATAL");
    long long other = read_total(folder, bus, "aer_dev_nonfatal", "TOTAL_ERR_NONFATAL");
    *g = (struct pci_gpu){.width = 0};
    memcpy(g->bus, bus, strlen(bus) + 1);
    name_gpu(g, read_number(folder, bus, "device", 16, 0xffff));
    read_driver(folder, bus, g->driver, sizeof g->driver);
    read_word(folder, bus, "current_link_speed", g->speed, sizeof g->speed);
    read_word(folder, bus, "max_link_speed", g->speed_max, sizeof g->speed_max);
    g->width = (int)read_number(folder, bus, "current_link_width", 10, 64);
    g->width_max = (int)read_number(folder, bus, "max_link_width", 10, 64);
    g->corrected = read_total(folder, bus, "aer_dev_correctable", "TOTAL_ERR_COR");
    g->uncorrected = fatal < 0 || other < 0 || fatal > LLONG_MAX - other ? -1 : fatal + other;
}

/* In front of those that come behind it on the bus, the last of which may have no place. */
static void place(const char *bus, char found[BOX_GPUS_MAX][PCI_BUS_BYTES], int *n)
{
    int at = *n;
    while (at > 0 && strcmp(bus, found[at - 1]) < 0)
        at--;
    if (at == BOX_GPUS_MAX)
        return;
    int behind = (*n < BOX_GPUS_MAX ? *n : BOX_GPUS_MAX - 1) - at;
    memmove(found[at + 1], found[at], (size_t)behind * PCI_BUS_BYTES);
    memcpy(found[at], bus, strlen(bus) + 1); /* is_bus holds it to PCI_BUS_BYTES */
    *n += *n < BOX_GPUS_MAX;
}

int pci_gpus(const char *devices, struct pci_gpu gpus[BOX_GPUS_MAX], int *all)
{
    char found[BOX_GPUS_MAX][PCI_BUS_BYTES];
    int n = 0, seen = 0;
    DIR *folder = opendir(devices);
    *all = 0;
    if (folder == NULL)
        return 0;
    for (struct dirent *e = readdir(folder); e != NULL && seen < PCI_DEVICES_MAX;
         e = readdir(folder), seen++) {
        if (!is_bus(e->d_name) || read_number(devices, e->d_name, "vendor", 16, 0xffff) != VENDOR ||
            read_number(devices, e->d_name, "class", 16, 0xffffff) >> 16 != DISPLAY)
            continue;
        (*all)++;
        place(e->d_name, found, &n);
    }
    closedir(folder);
    for (int i = 0; i < n; i++)
        read_gpu(devices, found[i], &gpus[i]);
    return n;
}

/* ---- telling ----------------------------------------------------------------------------------
 */

static const char *known(const char *word)
{
    return word[0] == '\0' ? "?" : word;
}

static void tell_xid(const struct xid *x, struct text *text, struct text *data)
{
    if (x == NULL) {
        text_printf(text, "none since the start\n");
        text_printf(data, "null");
        return;
    }
    const char *meaning = xid_meaning(x->code);
    long long ago_s = (clock_ms() - x->last_ms) / 1000;
    text_printf(text, "%d%s%s, %lld s ago, %u in all\n", x->code, meaning == NULL ? "" : ": ",
                meaning == NULL ? "" : meaning, ago_s, x->count);
    text_printf(data, "{\"code\":%d,\"count\":%u,\"ago_s\":%lld}", x->code, x->count, ago_s);
}

/* "x16", or "x?" */
static void tell_link(const char *speed, int width, struct text *text)
{
    text_printf(text, "%s x", known(speed));
    if (width < 0)
        text_printf(text, "?");
    else
        text_printf(text, "%d", width);
}

static void tell_errors(const struct pci_gpu *g, struct text *text)
{
    if (g->corrected < 0 || g->uncorrected < 0)
        text_printf(text, "nobody counts errors of the link");
    else
        text_printf(text, "errors of the link: %lld corrected, %lld not", g->corrected,
                    g->uncorrected);
}

static void tell_gpu(const struct pci_gpu *g, const struct xid *x, struct text *text,
                     struct text *data)
{
    text_printf(text, "GPU %s  %s\n  driver %s, link ", g->bus, g->name,
                g->driver[0] == '\0' ? "NONE" : g->driver);
    tell_link(g->speed, g->width, text);
    text_printf(text, " of ");
    tell_link(g->speed_max, g->width_max, text);
    text_printf(text, "%s\n  ",
                g->width >= 0 && g->width < g->width_max ? ", NARROWER than it could be" : "");
    tell_errors(g, text);
    text_printf(text, "; Xid: ");
    text_printf(data, "{\"bus\":\"%s\",\"name\":", g->bus);
    text_json_string(data, g->name, strlen(g->name));
    text_printf(data, ",\"driver\":");
    text_json_string(data, g->driver, strlen(g->driver));
    text_printf(data, ",\"link_speed\":");
    text_json_string(data, g->speed, strlen(g->speed));
    text_printf(data, ",\"link_speed_max\":");
    text_json_string(data, g->speed_max, strlen(g->speed_max));
    text_printf(data,
                ",\"link_width\":%d,\"link_width_max\":%d,\"link_errors_corrected\":%lld,"
                "\"link_errors\":%lld,\"xid\":",
                g->width, g->width_max, g->corrected, g->uncorrected);
    tell_xid(x, text, data);
    text_printf(data, "}");
}

/* Why the engine computes where it does. */
static void tell_driver(const char *version, const struct gpu *payload, struct text *text)
{
    if (version[0] != '\0')
        text_printf(text, "driver %s is loaded", version);
    else
        text_printf(text, "no driver is loaded");
    if (payload->ready)
        text_printf(text, "; the payload on %s is whole, of driver %s\n", payload->device,
                    payload->verity.version);
    else
        text_printf(text, "; this system %s\n",
                    payload->wanted ? "has NO good payload: `status` says why"
                                    : "was built without a GPU payload");
}

const char *pci_layout_wrong(const char *devices, const char *layout, char *text, size_t cap)
{
    struct pci_gpu gpus[BOX_GPUS_MAX];
    struct layout wanted;
    int all;
    pci_gpus(devices, gpus, &all);
    if (!layout_parse(layout, &wanted) || wanted.groups * wanted.ranks <= all)
        return NULL;
    snprintf(text, cap,
             "gpus %s takes %d GPUs, and %d %s on the PCI bus (see: gpu); choose fewer, or auto",
             layout, (int)(wanted.groups * wanted.ranks), all, all == 1 ? "is" : "are");
    return text;
}

void pci_tell(const char *devices, const char *driver, const struct gpu *payload,
              const struct xids *xids, struct text *text, struct text *data)
{
    struct pci_gpu gpus[BOX_GPUS_MAX];
    char version[PCI_WORD_BYTES];
    int all, n = pci_gpus(devices, gpus, &all);
    const char *slash = strrchr(driver, '/');
    char folder[PATH_BYTES];
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - driver), driver);
    read_word(folder, ".", slash + 1, version, sizeof version);
    if (n == 0)
        text_printf(text, "no NVIDIA GPU on the PCI bus; the engine computes on the CPU\n");
    else
        text_printf(text, "%d NVIDIA GPU%s on the PCI bus%s\n", all, all == 1 ? "" : "s",
                    all > n ? ", of which these are the first" : "");
    if (n > 0 || payload->wanted)
        tell_driver(version, payload, text);
    text_printf(data, "{\"count\":%d,\"driver\":", all);
    text_json_string(data, version, strlen(version));
    text_printf(data, ",\"payload\":%s,\"xids_of_others\":%u,\"gpus\":[",
                payload->ready ? "true" : "false", xids->others);
    for (int i = 0; i < n; i++) {
        text_printf(data, "%s", i > 0 ? "," : "");
        tell_gpu(&gpus[i], xid_find(xids, gpus[i].bus), text, data);
    }
    text_printf(data, "]}");
}
