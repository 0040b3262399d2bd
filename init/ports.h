/*
 * What the machine listens on, from the kernel's tables /proc/net/{tcp,tcp6,udp,udp6}.  Pure:
 * parses text.
 */
#ifndef V4BOX_INIT_PORTS_H
#define V4BOX_INIT_PORTS_H

#include "init/text.h"

#include <stddef.h>

/**
 * Appends "tcp 0.0.0.0:443" for each listening socket of one table, `between` before each but the
 * first of `out`.  `kind` is the table's name; of udp every bound socket counts, since all take
 * packets.  Lines of another form are left out.
 */
void ports_add(struct text *out, const char *between, const char *kind, const char *table,
               size_t n);

#endif
