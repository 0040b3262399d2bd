/* Checks on the request head.  The HTTP library accepts more than one reading of some of these. */
#include "engine/api/head.h"

#include "config/limits.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

static const char *count(const char *value, int *n)
{
    (*n)++;
    return value == NULL ? "" : value;
}

static enum MHD_Result on_header(void *user, enum MHD_ValueKind kind, const char *key,
                                 const char *value)
{
    struct head *h = user;
    (void)kind;
    h->n_headers++;
    if (strcasecmp(key, "Content-Length") == 0)
        h->length = count(value, &h->n_lengths);
    else if (strcasecmp(key, "Transfer-Encoding") == 0)
        h->transfer = count(value, &h->n_encodings);
    else if (strcasecmp(key, "Host") == 0)
        h->host = count(value, &h->n_hosts);
    else if (strcasecmp(key, "Authorization") == 0)
        h->authorization = count(value, &h->n_authorizations);
    else if (strcasecmp(key, "x-api-key") == 0)
        h->api_key = count(value, &h->n_api_keys);
    else if (strcasecmp(key, "Origin") == 0)
        h->origin = value == NULL ? "" : value;
    else if (strcasecmp(key, "X-Forwarded-For") == 0)
        h->forwarded = value;
    else if (strcasecmp(key, "Content-Type") == 0)
        h->media = value;
    else if (strcasecmp(key, "Content-Encoding") == 0)
        h->coding = value;
    return MHD_YES;
}

/* Exactly one length, or exactly "chunked", or no body: anything else can be read in two ways by
 * two servers (request smuggling). */
static bool read_framing(struct head *h)
{
    h->body_bytes = NUMBER_NONE;
    if (h->n_lengths + h->n_encodings > 1 || h->n_headers > HTTP_HEADERS_MAX)
        return false;
    if (h->n_encodings == 1)
        return strcasecmp(h->transfer, "chunked") == 0;
    if (h->n_lengths == 0) {
        h->body_bytes = 0;
        return true;
    }
    size_t n = strlen(h->length);
    if (n == 0 || n > 18 || strspn(h->length, "0123456789") != n) /* 18 digits fit an int64 */
        return false;
    h->body_bytes = 0;
    for (size_t i = 0; i < n; i++)
        h->body_bytes = h->body_bytes * 10 + (h->length[i] - '0');
    return true;
}

static bool is_address(const char *text, size_t len)
{
    char host[INET6_ADDRSTRLEN + 2];
    unsigned char bytes[16];
    if (len == 0 || len >= sizeof host)
        return false;
    memcpy(host, text, len);
    host[len] = '\0';
    if (host[0] == '[') {
        if (host[len - 1] != ']')
            return false;
        host[len - 1] = '\0';
        return inet_pton(AF_INET6, host + 1, bytes) == 1;
    }
    return inet_pton(AF_INET, host, bytes) == 1;
}

bool head_host_allowed(const char *host, const char *const *names, int n_names)
{
    const char *colon = strrchr(host, ':');
    size_t len = strlen(host);
    if (colon != NULL && strchr(colon, ']') == NULL) {
        len = (size_t)(colon - host);
        if (strspn(colon + 1, "0123456789") != strlen(colon + 1) || strlen(colon + 1) > 5)
            return false;
    }
    /* An attacker's page reaches us under his own name, which he lets resolve to our address; an
     * address or localhost in Host cannot come from there (DNS rebinding). */
    if (is_address(host, len) || (len == 9 && strncasecmp(host, "localhost", 9) == 0))
        return true;
    for (int i = 0; i < n_names; i++) {
        if (strlen(names[i]) == len && strncasecmp(host, names[i], len) == 0)
            return true;
    }
    return false;
}

bool head_read(struct MHD_Connection *connection, const char *version, const char *const *names,
               int n_names, struct head *out, struct api_error *err)
{
    *out = (struct head){0};
    MHD_get_connection_values(connection, MHD_HEADER_KIND, on_header, out);
    if (!read_framing(out) || out->n_hosts > 1)
        return api_fail(err, API_FRAMING, NULL);
    if (strcmp(version, "HTTP/1.1") != 0)
        return api_fail(err, API_HTTP_VERSION, NULL);
    if (out->n_hosts == 0)
        return api_fail(err, API_FRAMING, NULL);
    if (!head_host_allowed(out->host, names, n_names))
        return api_fail(err, API_HOST, NULL);
    if (out->origin != NULL)
        return api_fail(err, API_ORIGIN, NULL);
    return true;
}

const char *head_bearer(const struct head *head)
{
    if (head->n_authorizations != 1 || strncasecmp(head->authorization, "Bearer ", 7) != 0)
        return NULL;
    return head->authorization + 7 + strspn(head->authorization + 7, " ");
}

bool head_is_json(const struct head *head)
{
    static const char JSON[] = "application/json";
    if (head->coding != NULL && strcasecmp(head->coding, "identity") != 0)
        return false;
    if (head->media == NULL || strncasecmp(head->media, JSON, sizeof JSON - 1) != 0)
        return false;
    const char *rest = head->media + sizeof JSON - 1;
    rest += strspn(rest, " \t");
    return *rest == '\0' || *rest == ';';
}
