/* What an operator has set. */
#include "init/settings.h"

#include "common/layout.h"
#include "config/box.h"
#include "init/files.h"
#include "init/keyfile.h"
#include "init/modelplan.h"
#include "init/network.h"
#include "init/syslog.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define FILE_BYTES   4096 /* a line is at most 32 + 3 + 64 characters */
#define ALPHANUMERIC "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

static bool is_name(const char *value)
{
    size_t n = strlen(value);
    return n > 0 && n < SETTING_BYTES && strspn(value, ALPHANUMERIC "-") == n && value[0] != '-' &&
           value[n - 1] != '-';
}

static bool is_mode(const char *value)
{
    return strcmp(value, "dhcp") == 0 || strcmp(value, "static") == 0;
}

static bool is_door(const char *value)
{
    return strcmp(value, "closed") == 0 || strcmp(value, "open") == 0;
}

static bool is_address(const char *value)
{
    struct lease lease;
    return value[0] == '\0' || lease_from_text(&lease, value, "");
}

static bool is_router(const char *value)
{
    struct lease lease;
    return lease_from_text(&lease, "192.0.2.1/24", value); /* any address: the router is checked */
}

static bool is_collector(const char *value)
{
    struct syslog_target target;
    return value[0] == '\0' || syslog_target_parse(&target, value);
}

static bool is_layout(const char *value)
{
    struct layout layout;
    return layout_parse(value, &layout);
}

static const struct {
    const char *name, *value, *help;
    bool (*good)(const char *value);
} ROWS[SETTING_COUNT] = {
#define GOOD_NAME                            is_name
#define GOOD_MODE                            is_mode
#define GOOD_DOOR                            is_door
#define GOOD_MODEL                           modelplan_name_good
#define GOOD_ADDRESS                         is_address
#define GOOD_ROUTER                          is_router
#define GOOD_COLLECTOR                       is_collector
#define GOOD_LAYOUT                          is_layout
#define SETTING(id, name, kind, value, help) [SETTING_##id] = {name, value, help, GOOD_##kind},
#include "config/settings.def"
#undef SETTING
};

void settings_init(struct settings *s)
{
    memset(s, 0, sizeof *s);
    for (int i = 0; i < SETTING_COUNT; i++)
        snprintf(s->value[i], SETTING_BYTES, "%s", ROWS[i].value);
}

const char *settings_set(struct settings *s, const char *name, const char *value)
{
    for (int i = 0; i < SETTING_COUNT; i++) {
        if (strcmp(ROWS[i].name, name) != 0)
            continue;
        if (strlen(value) >= SETTING_BYTES || !ROWS[i].good(value))
            return "the value is not one that this setting may have";
        snprintf(s->value[i], SETTING_BYTES, "%s", value);
        return NULL;
    }
    return "there is no setting of this name";
}

const char *settings_value(const struct settings *s, const char *name)
{
    int i = 0;
    while (strcmp(ROWS[i].name, name) != 0)
        assert(++i < SETTING_COUNT);
    return s->value[i];
}

const char *settings_check(const struct settings *s)
{
    struct lease lease;
    if (strcmp(s->value[SETTING_NET_MODE], "static") == 0 &&
        !lease_from_text(&lease, s->value[SETTING_NET_ADDRESS], s->value[SETTING_NET_ROUTER]))
        return "mode static needs an address";
    return NULL;
}

/* A name that is not known is another version's, which an update or a rollback left behind: what is
 * known must not be lost with it, the address least of all. */
static bool take(void *context, const char *key, const char *value)
{
    for (int i = 0; i < SETTING_COUNT; i++)
        if (strcmp(ROWS[i].name, key) == 0)
            return settings_set(context, key, value) == NULL;
    return true;
}

bool settings_parse(struct settings *s, const char *bytes, size_t n)
{
    struct settings read;
    settings_init(&read);
    if (!keyfile_parse(bytes, n, take, &read) || settings_check(&read) != NULL)
        return false;
    *s = read;
    return true;
}

bool settings_good(const char *bytes, size_t n)
{
    struct settings ignored;
    return settings_parse(&ignored, bytes, n);
}

bool settings_load(struct settings *s, const char *path)
{
    char bytes[FILE_BYTES];
    settings_init(s);
    ssize_t n = file_load(path, bytes, sizeof bytes);
    if (n < 0)
        return errno == ENOENT;
    errno = EINVAL;
    return settings_parse(s, bytes, (size_t)n);
}

bool settings_save(const struct settings *s, const char *path)
{
    char bytes[FILE_BYTES];
    struct text t = text_over(bytes, sizeof bytes);
    /* What is as without a word is left out: the system of the other slot may not know it. */
    for (int i = 0; i < SETTING_COUNT; i++)
        if (strcmp(s->value[i], ROWS[i].value) != 0)
            keyfile_add(&t, ROWS[i].name, s->value[i]);
    keyfile_seal(&t);
    return file_save(path, t.data, t.len, BOX_UID_ROOT);
}

void settings_list(const struct settings *s, struct text *out)
{
    for (int i = 0; i < SETTING_COUNT; i++)
        text_printf(out, "%-12s %-20s %s\n", ROWS[i].name,
                    s->value[i][0] == '\0' ? "-" : s->value[i], ROWS[i].help);
}
