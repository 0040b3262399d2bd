/* The HTTP server over libmicrohttpd (0.9.75 to 1.x): epoll threads, suspend and resume. */
#include "engine/api/http.h"

#include "config/limits.h"
#include "engine/api/listen.h"
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "kernels/check.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define IPV6_NETWORK_BYTES 8 /* of an address: /64 */

struct http_server {
    struct http_options options;
    struct MHD_Daemon *daemon;       /* owns */
    struct connections *connections; /* owns */
    atomic_llong body_bytes;         /* reserved by all requests together */
    atomic_bool stopping;
};

/* ---- answers -------------------------------------------------------------------------------- */

static void add_header(struct MHD_Response *response, const char *name, const char *value)
{
    ASSERT(MHD_add_response_header(response, name, value) == MHD_YES);
}

static void add_profile(struct MHD_Response *response, const struct profile *profile)
{
    char text[PROFILE_NAME_BYTES + sizeof "; hash=" + PROFILE_HASH_BYTES], hash[PROFILE_HASH_BYTES];
    profile_hash_text(profile, hash);
    snprintf(text, sizeof text, "%s; hash=%s", profile->name, hash);
    add_header(response, "x-v4box-profile", text);
}

static enum MHD_Result answer(struct exchange *x, int status, const char *media,
                              struct MHD_Response *response)
{
    ASSERT(response != NULL && x->status == 0);
    add_header(response, "Content-Type", media);
    add_header(response, "Cache-Control", "no-store");
    add_header(response, "X-Content-Type-Options", "nosniff");
    add_header(response, "x-request-id", x->id);
    add_header(response, "request-id", x->id);
    add_profile(response, &x->profile);
    x->status = status;
    enum MHD_Result result = MHD_queue_response(x->connection, (unsigned)status, response);
    MHD_destroy_response(response);
    return result;
}

enum MHD_Result http_reply(struct exchange *x, int status, const char *media, struct buf *take_body)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(take_body->len, take_body->data, MHD_RESPMEM_MUST_FREE);
    *take_body = (struct buf){0};
    return answer(x, status, media, response);
}

enum MHD_Result http_reply_text(struct exchange *x, int status, const char *constant)
{
    return answer(x, status, "text/plain; charset=utf-8",
                  MHD_create_response_from_buffer(strlen(constant), (void *)(uintptr_t)constant,
                                                  MHD_RESPMEM_PERSISTENT));
}

static void add_retry_headers(struct MHD_Response *response, int retry_s)
{
    char number[24];
    if (retry_s == 0) {
        add_header(response, "x-should-retry", "false");
        return;
    }
    snprintf(number, sizeof number, "%d", retry_s);
    add_header(response, "Retry-After", number);
    snprintf(number, sizeof number, "%d", retry_s * 1000);
    add_header(response, "retry-after-ms", number);
}

/* After these the place where the next request starts is unknown. */
static bool must_close(const struct exchange *x, enum api_code code)
{
    return x->head.body_bytes != 0 || code == API_FRAMING || code == API_HTTP_VERSION;
}

enum MHD_Result http_reply_error(struct exchange *x, const struct api_error *err)
{
    const struct api_error_row *row = api_error_row(err->code);
    const struct dialect *dialect = x->route == NULL ? NULL : x->route->dialect;
    struct buf body = {0};
    metrics_error(x->server->options.metrics, err->code);
    if (dialect == NULL || dialect->dump_error == NULL)
        api_error_dump(&body, err);
    else
        dialect->dump_error(&body, x, err);
    struct MHD_Response *response =
        MHD_create_response_from_buffer(body.len, body.data, MHD_RESPMEM_MUST_FREE);
    ASSERT(response != NULL);
    add_retry_headers(response, err->retry_s != 0 ? err->retry_s : row->retry_s);
    if (row->status == 401)
        add_header(response, "WWW-Authenticate", "Bearer");
    if (x->allow != NULL)
        add_header(response, "Allow", x->allow);
    if (!x->running && must_close(x, err->code))
        add_header(response, "Connection", "close");
    return answer(x, row->status, "application/json", response);
}

enum MHD_Result http_reply_reader(struct exchange *x, const char *media,
                                  MHD_ContentReaderCallback reader, void *user)
{
    struct MHD_Response *response = MHD_create_response_from_callback(
        MHD_SIZE_UNKNOWN, HTTP_CONNECTION_BYTES / 4, reader, user, NULL);
    ASSERT(response != NULL);
    add_header(response, "X-Accel-Buffering", "no"); /* proxies must not collect the stream */
    return answer(x, 200, media, response);
}

void http_watch(struct exchange *x, struct stream *stream)
{
    connections_watch(x->server->connections, x->peer, stream);
}

void http_body_done(struct exchange *x)
{
    buf_free(&x->body);
    atomic_fetch_sub(&x->server->body_bytes, x->body_reserved);
    x->body_reserved = 0;
}

/* ---- checks before the body ------------------------------------------------------------------ */

static bool path_matches(const struct route *route, const char *url, const char **rest)
{
    size_t n = strlen(route->path);
    if (route->path[n - 1] != '*')
        return strcmp(route->path, url) == 0;
    if (strncmp(route->path, url, n - 1) != 0 || url[n - 1] == '\0' || strchr(url + n - 1, '/'))
        return false;
    *rest = url + n - 1;
    return true;
}

static bool find_route(struct exchange *x, const char *url, const char *method)
{
    const struct http_options *o = &x->server->options;
    if (strcmp(method, "HEAD") == 0)
        method = "GET";
    for (int i = 0; i < o->n_routes; i++) {
        const struct route *route = &o->routes[i];
        if (!path_matches(route, url, &x->rest))
            continue;
        if (strcmp(route->method, method) == 0) {
            x->route = route;
            x->allow = NULL;
            return true;
        }
        x->allow = strcmp(route->method, "GET") == 0 ? "GET, HEAD" : route->method;
    }
    return api_fail(&x->error, x->allow != NULL ? API_METHOD : API_NOT_FOUND, NULL);
}

/* Where a request comes from, as a number: of IPv6 the network, in which a client can choose any.
 * Behind a proxy on a unix socket it is the address that this adds last, else the peer's. */
struct origin {
    unsigned char bytes[16];
    size_t n;
};

static void origin_v6(struct origin *o, const struct in6_addr *v6)
{
    o->n = IN6_IS_ADDR_V4MAPPED(v6) ? sizeof v6->s6_addr : IPV6_NETWORK_BYTES;
    memcpy(o->bytes, v6->s6_addr, o->n);
}

static void origin_forwarded(struct origin *o, const char *list)
{
    const char *comma = list == NULL ? NULL : strrchr(list, ',');
    const char *last = list == NULL ? "" : comma == NULL ? list : comma + 1;
    struct in6_addr v6;
    last += strspn(last, " ");
    o->n = inet_pton(AF_INET, last, o->bytes) == 1 ? sizeof(struct in_addr) : 0;
    if (o->n == 0 && inet_pton(AF_INET6, last, &v6) == 1)
        origin_v6(o, &v6);
}

static bool check_address(struct exchange *x)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr *peer = info == NULL ? NULL : info->client_addr;
    struct origin o = {.n = 0};
    if (peer != NULL && peer->sa_family == AF_INET) {
        o.n = sizeof(struct in_addr);
        memcpy(o.bytes, &((const struct sockaddr_in *)(const void *)peer)->sin_addr, o.n);
    } else if (peer != NULL && peer->sa_family == AF_INET6) {
        origin_v6(&o, &((const struct sockaddr_in6 *)(const void *)peer)->sin6_addr);
    } else {
        origin_forwarded(&o, x->head.forwarded);
    }
    return meter_failed(x->server->options.meter, o.bytes, o.n, meter_now(), &x->error);
}

/* The same answer for a missing, malformed, unknown, disabled and expired key.  Those that come too
 * often from one address are only told to wait: a good key from there passes all the same, since a
 * secret is not to be guessed and many may share an address. */
static bool check_key(struct exchange *x)
{
    const struct dialect *dialect = x->route->dialect;
    const char *secret = head_bearer(&x->head);
    if (dialect != NULL && dialect->x_api_key && x->head.n_authorizations == 0 &&
        x->head.n_api_keys == 1)
        secret = x->head.api_key;
    if (x->route->open)
        return true;
    if (!keys_check(x->server->options.keys, secret == NULL ? "" : secret,
                    secret == NULL ? 0 : strlen(secret), &x->key))
        return check_address(x);
    x->metered = meter_begin(x->server->options.meter, &x->key, meter_now(), &x->error);
    return x->metered;
}

/* Takes room for the body out of what all requests share. */
static bool reserve_body(struct exchange *x)
{
    int64_t limit = x->server->options.body_bytes_max;
    int64_t bytes = x->head.body_bytes == NUMBER_NONE ? limit : x->head.body_bytes;
    if (bytes > limit)
        return api_fail_limit(&x->error, API_BODY_SIZE, NULL, limit, bytes);
    x->body_reserved = bytes;
    if (atomic_fetch_add(&x->server->body_bytes, bytes) + bytes > HTTP_BODIES_BYTES_MAX)
        return api_fail(&x->error, API_BUSY, NULL);
    return true;
}

static bool check_head(struct exchange *x, const char *url, const char *method, const char *version)
{
    const struct http_options *o = &x->server->options;
    if (!head_read(x->connection, version, o->names, o->n_names, &x->head, &x->error))
        return false;
    if (!find_route(x, url, method) || !check_key(x))
        return false;
    if (x->route->open)
        return x->head.body_bytes == 0 || api_fail(&x->error, API_FRAMING, NULL);
    if (atomic_load(&x->server->stopping))
        return api_fail(&x->error, API_STOPPING, NULL);
    if (!x->route->body)
        return x->head.body_bytes == 0 || api_fail(&x->error, API_FRAMING, NULL);
    if (!head_is_json(&x->head))
        return api_fail(&x->error, API_MEDIA_TYPE, NULL);
    return reserve_body(x);
}

/* ---- one request ------------------------------------------------------------------------------
 */

static void make_id(char id[REQUEST_ID_CHARS + 1])
{
    unsigned char bytes[(REQUEST_ID_CHARS - 4) / 2];
    randombytes_buf(bytes, sizeof bytes);
    memcpy(id, "req_", 4);
    sodium_bin2hex(id + 4, REQUEST_ID_CHARS - 4 + 1, bytes, sizeof bytes);
}

/* The head is complete.  An error is told at once if a body would follow, as that is not wanted;
 * otherwise at the regular end of the request, so that the connection can stay open. */
static enum MHD_Result begin(struct http_server *server, struct MHD_Connection *connection,
                             const char *url, const char *method, const char *version, void **slot)
{
    struct peer *peer =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    if (peer == NULL) /* not the front: what it had sent before it was shut out */
        return MHD_NO;
    struct exchange *x = calloc(1, sizeof *x);
    ASSERT(x != NULL);
    *slot = x;
    x->server = server;
    x->peer = peer;
    x->connection = connection;
    x->user = server->options.user;
    server->options.profile(x->user, &x->profile);
    x->started_ms = clock_ms();
    make_id(x->id);
    connections_phase(server->connections, x->peer, PEER_BODY);
    if (check_head(x, url, method, version) || x->head.body_bytes == 0)
        return MHD_YES;
    connections_linger(server->connections, x->peer);
    return http_reply_error(x, &x->error);
}

/* A chunked body shows its size only as it comes; what is too much is dropped until it ends. */
static enum MHD_Result collect(struct exchange *x, const char *data, size_t n)
{
    int64_t limit = x->server->options.body_bytes_max;
    if (x->status != 0)
        return MHD_YES;
    if (x->body_dropped > 0 || (int64_t)(x->body.len + n) > limit) {
        x->body_dropped += (int64_t)n;
        return x->body_dropped <= limit ? MHD_YES : MHD_NO;
    }
    buf_add(&x->body, data, n);
    return MHD_YES;
}

static enum MHD_Result finish(struct exchange *x)
{
    if (x->status != 0) /* refused in begin(): some methods have their body read all the same */
        return MHD_YES;
    if (x->running)
        return x->route->run(x);
    if (x->body_dropped > 0)
        api_fail_limit(&x->error, API_BODY_SIZE, NULL, x->server->options.body_bytes_max,
                       NUMBER_NONE);
    connections_phase(x->server->connections, x->peer, PEER_ANSWER);
    if (x->error.code != API_OK)
        return http_reply_error(x, &x->error);
    x->running = true;
    return x->route->run(x);
}

static enum MHD_Result on_request(void *user, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *n_data, void **slot)
{
    if (*slot == NULL)
        return begin(user, connection, url, method, version, slot);
    struct exchange *x = *slot;
    if (*n_data > 0) {
        size_t n = *n_data;
        *n_data = 0;
        return collect(x, data, n);
    }
    return finish(x);
}

/* The one place where a request ends, however it ended. */
static void on_completed(void *user, struct MHD_Connection *connection, void **slot,
                         enum MHD_RequestTerminationCode how)
{
    struct http_server *server = user;
    struct exchange *x = *slot;
    (void)connection;
    if (x == NULL)
        return;
    *slot = NULL;
    connections_watch(server->connections, x->peer, NULL);
    if (x->state_free != NULL)
        x->state_free(x->state);
    connections_phase(server->connections, x->peer, PEER_IDLE);
    http_body_done(x);
    if (x->metered)
        meter_end(server->options.meter, x->key.number);
    log_line(LOG_LEVEL_INFO, "api", "%s key=%s %s %s status=%d end=%d ms=%lld", x->id,
             x->key.id[0] == '\0' ? "-" : x->key.id, x->route == NULL ? "-" : x->route->method,
             x->route == NULL ? "-" : x->route->path, x->status, (int)how,
             (long long)(clock_ms() - x->started_ms));
    sodium_memzero(&x->key, sizeof x->key);
    free(x);
}

/* A connection of somebody else than the front gets no peer, and no answer. */
static void on_connection(void *user, struct MHD_Connection *connection, void **slot,
                          enum MHD_ConnectionNotificationCode code)
{
    struct http_server *server = user;
    int front_uid = server->options.front_uid;
    if (code != MHD_CONNECTION_NOTIFY_STARTED) {
        if (*slot != NULL)
            connections_remove(server->connections, *slot);
        return;
    }
    int fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    *slot = NULL;
    if (front_uid == 0 || listener_peer_is(fd, (uid_t)front_uid)) {
        *slot = connections_add(server->connections, fd);
        return;
    }
    log_line(LOG_LEVEL_WARN, "api", "refused a connection that is not the front's");
    shutdown(fd, SHUT_RDWR);
}

/* Paths stay as they came: an escaped byte has no place in any of ours. */
static size_t keep_escapes(void *user, struct MHD_Connection *connection, char *text)
{
    (void)user;
    (void)connection;
    return strlen(text);
}

/* ---- the daemon -------------------------------------------------------------------------------
 */

static struct MHD_Daemon *start_daemon(struct http_server *server)
{
    struct MHD_OptionItem items[] = {
#if MHD_VERSION >= 0x01000000
        {MHD_OPTION_CLIENT_DISCIPLINE_LVL, 1, NULL},
#else
        {MHD_OPTION_STRICT_FOR_CLIENT, 1, NULL},
#endif
        {MHD_OPTION_LISTEN_SOCKET, server->options.take_listen_fd, NULL},
        {MHD_OPTION_THREAD_POOL_SIZE, HTTP_THREADS, NULL},
        {MHD_OPTION_THREAD_STACK_SIZE, HTTP_STACK_BYTES, NULL},
        {MHD_OPTION_CONNECTION_LIMIT, HTTP_CONNECTIONS_MAX, NULL},
        {MHD_OPTION_PER_IP_CONNECTION_LIMIT, HTTP_CONNECTIONS_PER_IP_MAX, NULL},
        {MHD_OPTION_CONNECTION_MEMORY_LIMIT, HTTP_CONNECTION_BYTES, NULL},
        {MHD_OPTION_CONNECTION_TIMEOUT, HTTP_IDLE_S_MAX, NULL},
        {MHD_OPTION_NOTIFY_COMPLETED, (intptr_t)on_completed, server},
        {MHD_OPTION_NOTIFY_CONNECTION, (intptr_t)on_connection, server},
        {MHD_OPTION_UNESCAPE_CALLBACK, (intptr_t)keep_escapes, NULL},
        {MHD_OPTION_END, 0, NULL},
    };
    return MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ITC,
                            0, NULL, NULL, on_request, server, MHD_OPTION_ARRAY, items,
                            MHD_OPTION_END);
}

enum status http_start(const struct http_options *options, struct http_server **out,
                       struct error *err)
{
    if (sodium_init() < 0)
        return error_set(err, ERR_IO, "no source of random numbers");
    struct http_server *server = calloc(1, sizeof *server);
    ASSERT(server != NULL);
    server->options = *options;
    enum status status = connections_create(&server->connections, err);
    if (status != OK) {
        close(options->take_listen_fd);
        goto out_server;
    }
    server->daemon = start_daemon(server);
    if (server->daemon == NULL) {
        status = error_set(err, ERR_IO, "cannot start the HTTP threads");
        goto out_connections;
    }
    *out = server;
    return OK;
out_connections:
    connections_destroy(server->connections);
out_server:
    free(server);
    return status;
}

void http_stop(struct http_server *server)
{
    if (server == NULL)
        return;
    atomic_store(&server->stopping, true);
    /* The library aborts when it is stopped with a suspended connection. */
    connections_stop(server->connections);
    MHD_stop_daemon(server->daemon);
    connections_destroy(server->connections);
    free(server);
}
