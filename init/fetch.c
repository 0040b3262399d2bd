/* One file by HTTP. */
#include "init/fetch.h"

#include "init/files.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define SCHEME     "http://"
#define SECURE     "https://"
#define HTTP_PORT  80
#define LENGTH     "content-length:"
#define ENCODING   "transfer-encoding:"
#define PIECE      65536
#define DIGITS_MAX 15 /* of a length: far above every limit, far below an overflow */

/* The port behind the address, or HTTP's.  False: neither. */
static bool take_port(struct fetch *f, const char *text, size_t n)
{
    unsigned long port = 0;
    if (n == 0) {
        f->port = HTTP_PORT;
        return true;
    }
    for (size_t i = 1; i < n; i++) {
        if (text[i] < '0' || text[i] > '9' || n > 6)
            return false;
        port = port * 10 + (unsigned long)(text[i] - '0');
    }
    f->port = (uint16_t)port;
    return text[0] == ':' && port > 0 && port <= UINT16_MAX;
}

const char *fetch_parse(struct fetch *f, const char *url)
{
    char address[INET_ADDRSTRLEN];
    struct in_addr in;
    if (strncmp(url, SECURE, strlen(SECURE)) == 0)
        return "http:// is enough: an update is believed by its signature, wherever it comes from";
    if (strncmp(url, SCHEME, strlen(SCHEME)) != 0)
        return "it has the form http://ADDRESS[:PORT]/FILE";
    const char *host = url + strlen(SCHEME), *path = strchr(host, '/');
    size_t host_n = path == NULL ? 0 : (size_t)(path - host), n = strcspn(host, ":/");
    if (host_n == 0 || host_n >= sizeof f->host || n >= sizeof address ||
        strlen(path) >= sizeof f->path)
        return "it has the form http://ADDRESS[:PORT]/FILE";
    snprintf(address, sizeof address, "%.*s", (int)n, host);
    if (inet_pton(AF_INET, address, &in) != 1)
        return "its host is no address in numbers; the box asks nobody for names";
    for (const char *p = path; *p != '\0'; p++)
        if (*p <= ' ' || *p > '~')
            return "its path has characters that must be escaped";
    if (!take_port(f, host + n, host_n - n))
        return "its port is none";
    f->address = in.s_addr;
    snprintf(f->host, sizeof f->host, "%.*s", (int)host_n, host);
    snprintf(f->path, sizeof f->path, "%s", path);
    return NULL;
}

static const char *take_length(const char *text, size_t n, uint64_t *bytes)
{
    size_t digits = 0;
    while (n > 0 && *text == ' ') {
        text++;
        n--;
    }
    for (*bytes = 0; digits < n && text[digits] >= '0' && text[digits] <= '9'; digits++)
        *bytes = *bytes * 10 + (uint64_t)(text[digits] - '0');
    return digits == n && n > 0 && n <= DIGITS_MAX ? NULL
                                                   : "the server's answer has no sound length";
}

static bool begins(const char *line, size_t n, const char *name)
{
    return n >= strlen(name) && strncasecmp(line, name, strlen(name)) == 0;
}

const char *fetch_head(const char *head, size_t n, uint64_t *bytes)
{
    static const char STATUS[] = "HTTP/1.x 200";
    const char *wrong = "the server's answer has no length";
    bool has_length = false;
    for (size_t i = 0, line = 0; i < n; line++) {
        const char *text = head + i, *end = memchr(text, '\n', n - i);
        if (end == NULL)
            return "the server's answer is cut off";
        size_t length = (size_t)(end - text);
        i += length + 1;
        length -= length > 0 && text[length - 1] == '\r';
        if (line == 0) {
            bool http = length >= strlen(STATUS) && memcmp(text, "HTTP/1.", 7) == 0;
            if (!http || memcmp(text + 8, " 200", 4) != 0)
                return http ? "the server does not give the file (its status is not 200)"
                            : "the server speaks no HTTP";
        } else if (begins(text, length, ENCODING)) {
            return "the server's answer is encoded, which was not asked for";
        } else if (begins(text, length, LENGTH)) {
            uint64_t before = *bytes;
            wrong = take_length(text + strlen(LENGTH), length - strlen(LENGTH), bytes);
            if (wrong != NULL || (has_length && *bytes != before))
                return "the server's answer has no sound length";
            has_length = true;
        }
    }
    return wrong;
}

/* ---- the wire ----------------------------------------------------------------------------------
 */

static bool wait_for(int fd, short events)
{
    struct pollfd wait = {.fd = fd, .events = events};
    return poll(&wait, 1, FETCH_STALL_MS) == 1;
}

static int open_connection(const struct fetch *f)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(f->port), .sin_addr = {.s_addr = f->address}};
    int code = 0, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    socklen_t size = sizeof code;
    if (fd < 0)
        return -1;
    if (connect(fd, (struct sockaddr *)&to, sizeof to) == 0 ||
        (errno == EINPROGRESS && wait_for(fd, POLLOUT) &&
         getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &size) == 0 && code == 0))
        return fd;
    close(fd);
    errno = code != 0 ? code : ETIMEDOUT;
    return -1;
}

/* Bytes as they come: 0 at the end, -1 when the sender has fallen silent. */
static ssize_t receive(int fd, char *bytes, size_t n)
{
    for (;;) {
        ssize_t got = wait_for(fd, POLLIN) ? recv(fd, bytes, n, 0) : -1;
        if (got >= 0 || (errno != EINTR && errno != EAGAIN))
            return got;
    }
}

/* Up to and with the empty line; a byte at a time, since what follows is not the head's. */
static size_t receive_head(int fd, char *head, size_t cap)
{
    size_t n = 0;
    while (n < cap && receive(fd, head + n, 1) == 1) {
        n++;
        if ((n >= 4 && memcmp(head + n - 4, "\r\n\r\n", 4) == 0) ||
            (n >= 2 && memcmp(head + n - 2, "\n\n", 2) == 0))
            return n;
    }
    return 0;
}

static const char *pass_on(int fd, int out, uint64_t bytes)
{
    static char piece[PIECE];
    while (bytes > 0) {
        ssize_t n = receive(fd, piece, bytes < sizeof piece ? (size_t)bytes : sizeof piece);
        if (n <= 0)
            return "the server's answer is cut off";
        if (!file_write(out, piece, (size_t)n))
            return "nobody wants the rest";
        bytes -= (uint64_t)n;
    }
    return NULL;
}

static const char *exchange(const struct fetch *f, int fd, int out, uint64_t bytes_max)
{
    char request[2 * CONTROL_WORD_BYTES + 128], head[FETCH_HEAD_BYTES];
    uint64_t bytes = 0;
    int n = snprintf(request, sizeof request,
                     "GET %s HTTP/1.0\r\nHost: %s\r\nAccept-Encoding: identity\r\n\r\n", f->path,
                     f->host);
    if (send(fd, request, (size_t)n, MSG_NOSIGNAL) != (ssize_t)n)
        return "the server takes no request";
    size_t head_n = receive_head(fd, head, sizeof head);
    const char *wrong =
        head_n == 0 ? "the server gives no answer" : fetch_head(head, head_n, &bytes);
    if (wrong == NULL && bytes > bytes_max)
        wrong = "the file is larger than an update may be";
    return wrong != NULL ? wrong : pass_on(fd, out, bytes);
}

const char *fetch_run(const struct fetch *f, int out, uint64_t bytes_max)
{
    int fd = open_connection(f);
    if (fd < 0)
        return "the server can not be reached";
    const char *wrong = exchange(f, fd, out, bytes_max);
    close(fd);
    return wrong;
}
