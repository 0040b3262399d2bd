/*
 * The kernel command line's `v4box.name=value` words, against the closed list of
 * config/options.def.  The command line is the one place a test or a rescue may change the boot;
 * what is not in the list is refused and reported, and the default stays.
 */
#ifndef V4BOX_INIT_OPTIONS_H
#define V4BOX_INIT_OPTIONS_H

#include "init/text.h"

#include <stddef.h>

enum option {
#define OPTION(id, name, value, ...) OPTION_##id,
#include "config/options.def"
#undef OPTION
    OPTION_COUNT
};

struct options {
    const char *value[OPTION_COUNT]; /* views into constants, never into the command line */
};

/** All options at their defaults. */
void options_init(struct options *o);

/** Applies a command line; a line about each refused word is added to `complaints`. */
void options_parse(struct options *o, const char *cmdline, size_t n, struct text *complaints);

/** The value of the option called `name`, or NULL when there is none. */
const char *options_value(const struct options *o, const char *name);

#endif
