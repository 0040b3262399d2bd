/* Lines of the log as messages of syslog. */
#include "init/syslog.h"

#include "config/box.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* Eight levels a facility: local0 at "informational" for the services, whose lines have no level,
 * and that of the kernel at "notice", the least of its levels that are kept. */
#define PRIORITY_SERVICE (16 * 8 + 6)
#define PRIORITY_KERNEL  (0 * 8 + 5)
#define APP_BYTES        48 /* RFC 5424 */

bool syslog_target_parse(struct syslog_target *t, const char *text)
{
    static const char TCP[] = "tcp:";
    char address[INET_ADDRSTRLEN];
    struct in_addr parsed;
    bool tcp = strncmp(text, TCP, sizeof TCP - 1) == 0;
    const char *from = tcp ? text + sizeof TCP - 1 : text;
    const char *colon = strchr(from, ':');
    uint32_t port = 0;
    if (colon == NULL || colon == from || (size_t)(colon - from) >= sizeof address)
        return false;
    snprintf(address, sizeof address, "%.*s", (int)(colon - from), from);
    const char *p = colon + 1;
    for (; *p >= '0' && *p <= '9' && port <= UINT16_MAX; p++)
        port = port * 10 + (uint32_t)(*p - '0');
    if (*p != '\0' || p == colon + 1 || port == 0 || port > UINT16_MAX ||
        inet_pton(AF_INET, address, &parsed) != 1)
        return false;
    *t = (struct syslog_target){tcp, parsed.s_addr, (uint16_t)port};
    return true;
}

/* Takes the time off the front of a line, in milliseconds; false: it has none. */
static bool take_stamp(const char **line, size_t *n, int64_t *ms)
{
    size_t i = 0;
    int64_t value = 0;
    int digits = 0;
    while (i < *n && (*line)[i] == ' ')
        i++;
    for (; i < *n && digits < 12 && (((*line)[i] >= '0' && (*line)[i] <= '9') || (*line)[i] == '.');
         i++)
        if ((*line)[i] != '.') {
            value = value * 10 + ((*line)[i] - '0');
            digits++;
        }
    if (digits < 4 || i == *n || (*line)[i] != ' ')
        return false;
    *line += i + 1;
    *n -= i + 1;
    *ms = value;
    return true;
}

/* Takes the service's name; false: there is none that may be an APP-NAME. */
static bool take_app(const char **line, size_t *n, char app[APP_BYTES + 1])
{
    const char *colon = memmem(*line, *n, ": ", 2);
    size_t length = colon == NULL ? 0 : (size_t)(colon - *line);
    if (length == 0 || length > APP_BYTES)
        return false;
    for (size_t i = 0; i < length; i++)
        if ((*line)[i] <= ' ' || (*line)[i] > '~')
            return false;
    snprintf(app, APP_BYTES + 1, "%.*s", (int)length, *line);
    *line += length + 2;
    *n -= length + 2;
    return true;
}

void syslog_message(struct text *out, const char *line, size_t n, const char *host,
                    int64_t start_us, bool tcp)
{
    char bytes[SYSLOG_MESSAGE_BYTES], app[APP_BYTES + 1] = "-", stamp[32] = "-";
    struct text t = text_over(bytes, sizeof bytes);
    struct tm tm;
    int64_t ms;
    if (take_stamp(&line, &n, &ms)) {
        int64_t when_ms = start_us / 1000 + ms;
        time_t second = (time_t)(when_ms / 1000);
        char seconds[24];
        if (gmtime_r(&second, &tm) != NULL &&
            strftime(seconds, sizeof seconds, "%Y-%m-%dT%H:%M:%S", &tm) > 0)
            snprintf(stamp, sizeof stamp, "%s.%03dZ", seconds, (int)(when_ms % 1000));
    }
    (void)take_app(&line, &n, app);
    text_printf(&t, "<%d>1 %s %s %s - - - ",
                strcmp(app, "kernel") == 0 ? PRIORITY_KERNEL : PRIORITY_SERVICE, stamp, host, app);
    text_add(&t, line, n);
    if (tcp)
        text_printf(out, "%zu ", t.len);
    text_add(out, t.data, t.len);
}
