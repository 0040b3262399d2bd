/* Listening sockets, by the kernel's tables. */
#include "init/ports.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define STATE_LISTEN 0x0a /* of include/net/tcp_states.h */
#define STATE_CLOSE  0x07 /* what an unconnected udp socket is in */
#define LINE_BYTES   256  /* the tables' own width is 150 */

/* Words of four bytes, each in the machine's own order. */
static bool parse_address(const char *hex, size_t digits, uint32_t words[4])
{
    for (size_t i = 0; i < digits / 8; i++)
        if (sscanf(hex + 8 * i, "%8" SCNx32, &words[i]) != 1)
            return false;
    return true;
}

static void add_line(struct text *out, const char *between, const char *kind, const char *line)
{
    char hex[33], host[INET6_ADDRSTRLEN];
    unsigned port, state;
    uint32_t words[4] = {0};
    bool tcp = strncmp(kind, "tcp", 3) == 0;
    if (sscanf(line, " %*u: %32[0-9A-Fa-f]:%4x %*[0-9A-Fa-f]:%*x %2x", hex, &port, &state) != 3 ||
        state != (tcp ? STATE_LISTEN : STATE_CLOSE))
        return;
    size_t digits = strlen(hex);
    if ((digits != 8 && digits != 32) || !parse_address(hex, digits, words))
        return;
    inet_ntop(digits == 8 ? AF_INET : AF_INET6, words, host, sizeof host);
    text_printf(out, digits == 8 ? "%s%s %s:%u" : "%s%s [%s]:%u", out->len > 0 ? between : "", kind,
                host, port);
}

void ports_add(struct text *out, const char *between, const char *kind, const char *table, size_t n)
{
    for (size_t i = 0; i < n;) {
        char line[LINE_BYTES];
        const char *newline = memchr(table + i, '\n', n - i);
        size_t length = newline == NULL ? n - i : (size_t)(newline - table) - i;
        if (length < sizeof line) {
            memcpy(line, table + i, length);
            line[length] = '\0';
            add_line(out, between, kind, line);
        }
        i += length + 1;
    }
}
