/*
 * What an operator has set: a closed list (config/settings.def), each value checked by its kind, in
 * one file with a checksum.  Knows what values are allowed, not what they do.
 */
#ifndef V4BOX_INIT_SETTINGS_H
#define V4BOX_INIT_SETTINGS_H

#include "init/text.h"

#include <stdbool.h>
#include <stddef.h>

#define SETTING_BYTES 64 /* a host name is 63 characters at most */

enum setting {
#define SETTING(id, name, kind, value, help) SETTING_##id,
#include "config/settings.def"
#undef SETTING
    SETTING_COUNT
};

struct settings {
    char value[SETTING_COUNT][SETTING_BYTES];
};

void settings_init(struct settings *s);

/** Sets one by its name.  @err NULL: done; else what is wrong, for people; *s is then untouched */
const char *settings_set(struct settings *s, const char *name, const char *value);

/** The value of the setting of that name, which there must be.  @own borrowed from *s */
const char *settings_value(const struct settings *s, const char *name);

/** Whether the values fit each other.  @err as above */
const char *settings_check(const struct settings *s);

/** Reads a whole file over the defaults; names of another version are passed over.  @err false:
 * malformed, or a value that is not allowed */
bool settings_parse(struct settings *s, const char *bytes, size_t n);

/** The same as a question, for the files that are looked at at each boot. */
bool settings_good(const char *bytes, size_t n);

/** @err ENOENT as well: *s is then the defaults; false with errno */
bool settings_load(struct settings *s, const char *path);
bool settings_save(const struct settings *s, const char *path);

/** A line each, for people. */
void settings_list(const struct settings *s, struct text *out);

#endif
