/*
 * Lines of the log as messages of syslog (RFC 5424), and where they go.  Pure: sends nothing.
 */
#ifndef V4BOX_INIT_SYSLOG_H
#define V4BOX_INIT_SYSLOG_H

#include "init/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct syslog_target {
    bool tcp;         /* else UDP: a message a datagram */
    uint32_t address; /* in the network's order */
    uint16_t port;
};

/** Parses [tcp:]a.b.c.d:PORT.  @err false: anything else */
bool syslog_target_parse(struct syslog_target *t, const char *text);

/**
 * Appends a line of the log as a message; over TCP its length goes before it (RFC 6587).
 * @param start_us  when the kernel started, since 1970, from where the line's own time counts
 */
void syslog_message(struct text *out, const char *line, size_t n, const char *host,
                    int64_t start_us, bool tcp);

#endif
