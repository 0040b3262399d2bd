/*
 * The server on a real socket, over a scripted engine: heads that are refused, bodies in pieces,
 * signs of life, clients that leave, a full queue, a clean stop.  After each the server still
 * serves.
 */
#include "engine/api/api.h"
#include "engine/api/listen.h"
#include "engine/api/profiles.h"
#include "engine/base/clock.h"

#include "tests/unit/fake_engine.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define WAIT_MS_MAX 20000 /* a bound, never a measure */
#define KEY_HEADER  "Authorization: Bearer "

/* How the next requests go. */
enum { SAY, SILENT, FLOOD };
static atomic_int mode;

static struct meter *meter;
static struct api api;
static struct tokenizer *tokenizer;
static struct keys *keys;
static struct listener listener;
static struct http_server *server;
static char secret[KEY_SECRET_CHARS + 1], keys_path[64];
static int port;

static void fake_script(struct fake_request *r)
{
    static const char WORDS[] = "The code is 4711.";
    struct ids ids = {0};
    int32_t n;
    for (int ms = 0; mode == SILENT && !atomic_load(&r->cancelled) && ms < WAIT_MS_MAX; ms += 5)
        fake_wait(5);
    fake_prefill(r, 0);
    tokenizer_encode(tokenizer, WORDS, strlen(WORDS), false, &ids);
    n = mode == FLOOD ? r->asked.tokens_max : (int32_t)ids.len;
    for (int32_t i = 0; i < n && !atomic_load(&r->cancelled); i++)
        fake_token(r, ids.data[i % (int32_t)ids.len]);
    ids_free(&ids);
    fake_end(r, atomic_load(&r->cancelled) ? END_CANCELLED : END_STOP);
}

/* ---- server --------------------------------------------------------------------------------- */

static int start_server(void **state)
{
    struct error err;
    api.meter = meter = meter_create();
    struct http_options options = {
        .keys = keys, .meter = meter, .profile = api_profile_now, .user = &api};
    (void)state;
    mode = SAY;
    assert_int_equal(listener_open("127.0.0.1:0", &listener, &err), OK);
    port = atoi(strrchr(listener.text, ':') + 1);
    options.take_listen_fd = listener.fd;
    options.body_bytes_max = api_body_bytes_max(&api);
    options.routes = api_routes(&options.n_routes);
    assert_int_equal(http_start(&options, &server, &err), OK);
    return 0;
}

static int stop_server(void **state)
{
    (void)state;
    http_stop(server);
    server = NULL;
    fake_join();
    meter_destroy(meter);
    return 0;
}

static int open_all(void **state)
{
    struct error err;
    struct key key;
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    snprintf(keys_path, sizeof keys_path, "/tmp/v4box-test-http-%d", (int)getpid());
    assert_int_equal(tokenizer_open("rootfs/models/demo/tokenizer.json", &tokenizer, &err), OK);
    assert_int_equal(api_init(&api, NULL, tokenizer, "baseline", &err), OK);
    assert_int_equal(keys_open(keys_path, &keys, &err), OK);
    assert_int_equal(keys_create(keys, "test", &key, secret, &err), OK);
    api.heartbeat_ms = 50;
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    keys_close(keys);
    unlink(keys_path);
    tokenizer_close(tokenizer);
    return 0;
}

/* ---- client --------------------------------------------------------------------------------- */

static int dial(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

static void tell(int fd, const char *text, size_t len)
{
    while (len > 0) {
        ssize_t n = send(fd, text, len, MSG_NOSIGNAL);
        if (n <= 0)
            return; /* the server has closed: the answer is what the test looks at */
        text += n;
        len -= (size_t)n;
    }
}

/* Reads until the server closes or `until` (NULL: never) is there. */
static void hear(int fd, struct buf *out, const char *until)
{
    char bytes[4096];
    int64_t end = clock_ms() + WAIT_MS_MAX;
    while (clock_ms() < end) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, 100) == 0)
            continue;
        ssize_t n = recv(fd, bytes, sizeof bytes, 0);
        if (n <= 0)
            break;
        buf_add(out, bytes, (size_t)n);
        if (until != NULL && strstr(buf_cstr(out), until) != NULL)
            break;
    }
    buf_cstr(out);
}

static bool has(struct buf *text, const char *part)
{
    return strstr(buf_cstr(text), part) != NULL;
}

/* A POST of a body with the right key; `more`: further header lines. */
static void add_post(struct buf *out, const char *more, const char *body)
{
    buf_printf(out,
               "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost:%d\r\n" KEY_HEADER "%s\r\n"
               "Content-Type: application/json\r\n%sContent-Length: %zu\r\n\r\n%s",
               port, secret, more, strlen(body), body);
}

#define CHAT(members)                                                                              \
    "{\"model\":\"deepseek-v4-demo\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]" members \
    "}"

static void post(int fd, const char *body)
{
    struct buf text = {0};
    add_post(&text, "", body);
    tell(fd, text.data, text.len);
    buf_free(&text);
}

/* Asks on a connection of its own.  @return whether the answer is right and whole */
static bool serves(void)
{
    struct buf got = {0};
    int fd = dial();
    mode = SAY;
    post(fd, CHAT(""));
    hear(fd, &got, "}}");
    bool right = has(&got, "HTTP/1.1 200") && has(&got, "The code is 4711.");
    close(fd);
    buf_free(&got);
    return right;
}

static void assert_serves(void)
{
    assert_true(serves());
}

/* ---- heads ---------------------------------------------------------------------------------- */

#define HOST "Host: 127.0.0.1\r\n"
#define JSON "Content-Type: application/json\r\n"

/* %s of each row is the key header, where there is one. */
static const struct {
    const char *text, *status, *part;
} HEADS[] = {
    {"GET /healthz HTTP/1.1\r\n" HOST "\r\n", "200", "ok\n"},
    {"GET / HTTP/1.1\r\n" HOST "\r\n", "200", "x-request-id: req_"},
    {"HEAD / HTTP/1.1\r\n" HOST "\r\n", "200", "Content-Length: 3"},
    {"GET /v1/models HTTP/1.1\r\n" HOST "%s\r\n", "200", "\"deepseek-v4-demo\""},
    {"GET /models/deepseek-v4-demo HTTP/1.1\r\n" HOST "%s\r\n", "200", "\"max_model_len\":8192"},
    {"GET /v1/models/gpt HTTP/1.1\r\n" HOST "%s\r\n", "404", "model_not_found"},
    {"GET /v1/models HTTP/1.1\r\n" HOST "\r\n", "401", "invalid_api_key"},
    {"GET /v1/models HTTP/1.1\r\n" HOST "Authorization: Bearer ds_00000000_x\r\n\r\n", "401",
     "invalid_api_key"},
    {"GET /v1/models HTTP/1.1\r\n" HOST "Authorization: Basic eA==\r\n\r\n", "401",
     "x-should-retry: false"},
    {"GET /nothing HTTP/1.1\r\n" HOST "\r\n", "404", "not_found"},
    {"GET /v1/models%%00 HTTP/1.1\r\n" HOST "\r\n", "404", "not_found"},
    {"GET /v1/models/../../etc HTTP/1.1\r\n" HOST "\r\n", "404", "not_found"},
    {"DELETE /v1/models HTTP/1.1\r\n" HOST "\r\n", "405", "Allow: GET, HEAD"},
    {"GET /v1/chat/completions HTTP/1.1\r\n" HOST "\r\n", "405", "Allow: POST"},
    {"OPTIONS /v1/chat/completions HTTP/1.1\r\n" HOST "\r\n", "405", "method_not_allowed"},
    {"GET /healthz HTTP/1.1\r\n" HOST "Origin: http://evil.example\r\n\r\n", "403",
     "origin_not_allowed"},
    {"GET /healthz HTTP/1.1\r\nHost: evil.example\r\n\r\n", "403", "host_not_allowed"},
    {"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1.evil.example\r\n\r\n", "403", "host_not_allowed"},
    {"GET /healthz HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", "200", "ok"},
    {"GET /healthz HTTP/1.1\r\n" HOST HOST "\r\n", "400", ""},
    {"GET /healthz HTTP/1.1\r\n\r\n", "400", ""},
    {"GET /healthz HTTP/1.0\r\n" HOST "\r\n", "505", "unsupported_http_version"},
    {"POST /v1/chat/completions HTTP/1.1\r\n" HOST "%s" JSON
     "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
     "400", ""},
    {"POST /v1/chat/completions HTTP/1.1\r\n" HOST "%s" JSON
     "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
     "400", ""},
    {"POST /v1/chat/completions HTTP/1.1\r\n" HOST "%s" JSON "Content-Length: +5\r\n\r\nhello",
     "400", ""},
    {"POST /v1/chat/completions HTTP/1.1\r\n" HOST "%s" JSON "Content-Length: 40000000\r\n\r\n",
     "413", "request_too_large"},
    {"POST /v1/chat/completions HTTP/1.1\r\n" HOST "%s" JSON
     "Content-Length: 9223372036854775808\r\n\r\n",
     "400", "invalid_request"},
    {"POST /v1/chat/completions HTTP/1.1\r\n" HOST JSON "Content-Length: 5\r\n\r\n", "401",
     "invalid_api_key"},
    {"POST /v1/chat/completions HTTP/1.1\r\n" HOST "%sContent-Length: 2\r\n\r\n{}", "415",
     "unsupported_media_type"},
    {"POST /v1/chat/completions HTTP/1.1\r\n" HOST
     "%sContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}",
     "415", "unsupported_media_type"},
    {"POST /v1/chat/completions HTTP/1.1\r\n" HOST "%s" JSON
     "Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
     "415", "unsupported_media_type"},
    {"POST /v1/chat/completions HTTP/1.1\r\n" HOST "%s" JSON "Content-Length: 0\r\n\r\n", "400",
     "invalid_json"},
    {"POST /v1/chat/completions HTTP/1.1\r\n" HOST "%s" JSON
     "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
     "400", "\"param\":\"model\""},
    {"POST /nothing HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nhello", "404", "not_found"},
    {"GET /healthz HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nhello", "400", "invalid_request"},
};

static void heads(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof HEADS / sizeof HEADS[0]; i++) {
        struct buf text = {0}, got = {0};
        char key[128];
        int fd = dial();
        snprintf(key, sizeof key, KEY_HEADER "%s\r\n", secret);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-security"
        buf_printf(&text, HEADS[i].text, key);
#pragma GCC diagnostic pop
        tell(fd, text.data, text.len);
        shutdown(fd, SHUT_WR);
        hear(fd, &got, NULL);
        if (got.len < 12 || memcmp(got.data + 9, HEADS[i].status, 3) != 0 ||
            !has(&got, HEADS[i].part))
            fail_msg("%s\nanswered\n%s", buf_cstr(&text), buf_cstr(&got));
        /* The server says nothing about itself, and never repeats the key. */
        assert_false(has(&got, "libmicrohttpd/") || has(&got, secret));
        close(fd);
        buf_free(&text);
        buf_free(&got);
    }
    assert_serves();
}

/* Bytes that are no HTTP at all. */
static void garbage(void **state)
{
    uint32_t seed = 5;
    (void)state;
    print_message("# seed %u\n", seed);
    for (int round = 0; round < 200; round++) {
        struct buf text = {0};
        add_post(&text, "", CHAT(""));
        for (int flips = 0; flips < 1 + round % 8; flips++) {
            seed = seed * 1664525 + 1013904223;
            text.data[(seed >> 8) % text.len] = (char)(seed >> 24);
        }
        int fd = dial();
        tell(fd, text.data, text.len);
        close(fd);
        buf_free(&text);
    }
    assert_serves();
}

static void large_head(void **state)
{
    struct buf text = {0}, got = {0};
    (void)state;
    buf_puts(&text, "GET /healthz HTTP/1.1\r\n" HOST "X-Fill: ");
    for (int i = 0; i < 80000; i++)
        buf_puts(&text, "a");
    buf_puts(&text, "\r\n\r\n");
    int fd = dial();
    tell(fd, text.data, text.len);
    hear(fd, &got, NULL);
    assert_false(has(&got, "HTTP/1.1 200"));
    close(fd);
    buf_free(&text);
    buf_free(&got);
    assert_serves();
}

/* Two requests in one write: two answers, in order, on one connection. */
static void pipelining(void **state)
{
    static const char TWO[] = "GET /healthz HTTP/1.1\r\n" HOST "\r\n"
                              "GET /nothing HTTP/1.1\r\n" HOST "\r\n";
    struct buf got = {0};
    (void)state;
    int fd = dial();
    tell(fd, TWO, sizeof TWO - 1);
    hear(fd, &got, "not_found");
    assert_true(has(&got, "HTTP/1.1 200") && has(&got, "HTTP/1.1 404"));
    close(fd);
    buf_free(&got);
}

static void byte_by_byte(void **state)
{
    struct buf text = {0}, got = {0};
    (void)state;
    add_post(&text, "", CHAT(",\"stream\":true,\"stream_options\":{\"include_usage\":true}"));
    int fd = dial();
    for (size_t i = 0; i < text.len; i++)
        tell(fd, text.data + i, 1);
    hear(fd, &got, "[DONE]");
    assert_true(has(&got, "text/event-stream") && has(&got, "x-v4box-profile: official"));
    assert_true(has(&got, "\"finish_reason\":\"stop\"") && has(&got, "\"prompt_tokens\":"));
    close(fd);
    buf_free(&text);
    buf_free(&got);
}

/* curl asks before it sends a large body; it hears "go on" or the error. */
static void expect_continue(void **state)
{
    struct buf text = {0}, got = {0};
    const char *body = CHAT("");
    (void)state;
    add_post(&text, "Expect: 100-continue\r\n", body);
    int fd = dial();
    tell(fd, text.data, text.len - strlen(body));
    hear(fd, &got, "\r\n\r\n");
    assert_true(has(&got, "HTTP/1.1 100"));
    tell(fd, body, strlen(body));
    hear(fd, &got, "}}");
    assert_true(has(&got, "HTTP/1.1 200"));
    close(fd);
    buf_free(&text);
    buf_free(&got);
}

/* The body of a refused request comes all the same; the answer must survive it. */
static void refused_while_sending(void **state)
{
    struct buf text = {0}, got = {0};
    (void)state;
    buf_puts(&text,
             "POST /v1/chat/completions HTTP/1.1\r\n" HOST JSON "Content-Length: 1000000\r\n\r\n");
    for (int i = 0; i < 1000000; i++)
        buf_puts(&text, "[");
    int fd = dial();
    tell(fd, text.data, text.len);
    hear(fd, &got, NULL);
    assert_true(has(&got, "HTTP/1.1 401") && has(&got, "invalid_api_key"));
    close(fd);
    buf_free(&text);
    buf_free(&got);
    assert_serves();
}

static void chunked_too_large(void **state)
{
    struct buf text = {0}, got = {0};
    (void)state;
    buf_printf(&text,
               "POST /v1/chat/completions HTTP/1.1\r\n" HOST JSON KEY_HEADER
               "%s\r\nTransfer-Encoding: chunked\r\n\r\n",
               secret);
    for (int i = 0; i < 300; i++) /* 1.2 MiB, and the limit of this context is 1.02 MiB */
        buf_printf(&text, "1000\r\n%04096d\r\n", 0);
    buf_puts(&text, "0\r\n\r\n");
    int fd = dial();
    tell(fd, text.data, text.len);
    hear(fd, &got, "}}");
    assert_true(has(&got, "HTTP/1.1 413") && has(&got, "request_too_large"));
    close(fd);
    buf_free(&text);
    buf_free(&got);
    assert_serves();
}

/* ---- waiting and leaving -------------------------------------------------------------------- */

static void signs_of_life(void **state)
{
    (void)state;
    for (int stream = 0; stream < 2; stream++) {
        struct buf got = {0};
        int fd = dial();
        mode = SILENT;
        post(fd, stream ? CHAT(",\"stream\":true") : CHAT(""));
        hear(fd, &got, stream ? ": keep-alive\n\n" : "\r\n1\r\n\n\r\n");
        assert_true(has(&got, "HTTP/1.1 200"));
        mode = SAY;
        hear(fd, &got, stream ? "[DONE]" : "}}");
        assert_true(has(&got, "\"finish_reason\":\"stop\""));
        close(fd);
        buf_free(&got);
    }
}

/* Posts, and waits until the engine has the request. */
static struct fake_request *post_and_wait(int fd, const char *body)
{
    int64_t end = clock_ms() + WAIT_MS_MAX;
    int before = atomic_load(&fake_count);
    post(fd, body);
    while (atomic_load(&fake_count) == before && clock_ms() < end)
        fake_wait(5);
    assert_int_equal(atomic_load(&fake_count), before + 1);
    return &fake_requests[before];
}

/* Streamed and whole; closed, half-closed and reset. */
static void clients_leave(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++) {
        int fd = dial();
        mode = SILENT;
        struct fake_request *r =
            post_and_wait(fd, i % 2 == 0 ? CHAT(",\"stream\":true") : CHAT(""));
        assert_false(atomic_load(&r->cancelled));
        if (i / 2 == 1)
            shutdown(fd, SHUT_WR);
        if (i / 2 == 2)
            setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
        if (i / 2 != 1)
            close(fd);
        int64_t end = clock_ms() + WAIT_MS_MAX;
        while (!atomic_load(&r->cancelled) && clock_ms() < end)
            fake_wait(5);
        assert_true(atomic_load(&r->cancelled));
        if (i / 2 == 1)
            close(fd);
    }
    assert_serves();
}

/* A client that does not read holds up nobody, and what it is owed is bounded by its token limit.
 */
static void reader_that_does_not_read(void **state)
{
    int fds[8];
    (void)state;
    mode = FLOOD;
    for (int i = 0; i < 8; i++) {
        fds[i] = dial();
        post_and_wait(fds[i], CHAT(",\"stream\":true"));
    }
    assert_serves();
    for (int i = 0; i < 8; i++)
        close(fds[i]);
}

static void full_queue(void **state)
{
    struct buf got = {0};
    (void)state;
    int fd = dial();
    atomic_store(&fake_full, true);
    post(fd, CHAT(",\"stream\":true"));
    hear(fd, &got, "}}");
    atomic_store(&fake_full, false);
    assert_true(has(&got, "HTTP/1.1 429") && has(&got, "queue_full"));
    assert_true(has(&got, "Retry-After: 7\r\n") && has(&got, "retry-after-ms: 7000\r\n"));
    close(fd);
    buf_free(&got);
    assert_serves();
}

/* Sends a request of its own.  @return whether it is answered with this status and these words */
static bool hears(const char *text, const char *status, const char *words)
{
    struct buf got = {0};
    int fd = dial();
    tell(fd, text, strlen(text));
    hear(fd, &got, "}}");
    bool good = has(&got, status) && has(&got, words);
    close(fd);
    buf_free(&got);
    return good;
}

static void limit(const char *word, const char *value)
{
    char id[KEY_ID_CHARS + 1] = {0};
    struct error err;
    memcpy(id, secret + 3, KEY_ID_CHARS);
    assert_int_equal(keys_limit(keys, id, word, value, &err), OK);
}

static void limits_of_a_key(void **state)
{
    struct buf text = {0};
    (void)state;
    add_post(&text, "Connection: close\r\n", CHAT(""));
    mode = SAY;
    limit("rate", "2");
    assert_serves();
    assert_serves();
    assert_true(hears(buf_cstr(&text), "HTTP/1.1 429", "Rate limit: "));
    assert_true(hears(buf_cstr(&text), "Retry-After: 30\r\n", "rate_limit_exceeded"));
    limit("rate", NULL);
    assert_serves();
    limit("context", "128");
    assert_serves(); /* its answer is cut to what fits */
    int fd = dial();
    limit("concurrent", "1");
    mode = SILENT;
    post_and_wait(fd, CHAT(",\"stream\":true"));
    assert_true(hears(buf_cstr(&text), "HTTP/1.1 429", "concurrency_limit_exceeded"));
    close(fd);
    limit("concurrent", NULL);
    limit("context", NULL);
    limit("disabled", "yes");
    assert_true(hears(buf_cstr(&text), "HTTP/1.1 401", "Missing or unknown API key."));
    limit("disabled", NULL);
    assert_serves();
    limit("tokens", "1"); /* used up by the answers before */
    assert_true(hears(buf_cstr(&text), "HTTP/1.1 429", "daily_limit_exceeded"));
    limit("tokens", NULL);
    buf_free(&text);
}

/* Wrong keys from one address are told to wait some day; a good one from there is served. */
static void wrong_keys(void **state)
{
    static const char WRONG[] = "GET /v1/models HTTP/1.1\r\n" HOST "Connection: close\r\n"
                                "Authorization: Bearer ds_00000000_x\r\n\r\n";
    int refused = 0;
    (void)state;
    while (hears(WRONG, "HTTP/1.1 401", "Missing or unknown API key."))
        assert_in_range(++refused, 1, KEY_FAILURES_PER_MIN + 1);
    assert_true(refused > 0);
    assert_true(hears(WRONG, "HTTP/1.1 429", "rate_limit_exceeded"));
    assert_true(hears(WRONG, "Retry-After: ", "from this address"));
    assert_serves();
}

/* More connections than are taken: those beyond are closed unheard, and so is a newcomer while the
 * server has not yet noticed that the others left; then all is as before. */
static void many_connections(void **state)
{
    int fds[300];
    (void)state;
    for (int i = 0; i < 300; i++)
        fds[i] = dial();
    for (int i = 0; i < 300; i++)
        close(fds[i]);
    int64_t end = clock_ms() + WAIT_MS_MAX;
    while (!serves())
        assert_true(clock_ms() < end);
    assert_serves();
}

/* Streams hear why they end; nothing hangs. */
static void clean_stop(void **state)
{
    struct buf events = {0}, whole = {0};
    (void)state;
    mode = SILENT;
    int a = dial(), b = dial(), idle = dial();
    post_and_wait(a, CHAT(",\"stream\":true"));
    post_and_wait(b, CHAT(""));
    http_stop(server);
    server = NULL;
    hear(a, &events, NULL);
    hear(b, &whole, NULL);
    assert_true(has(&events, "shutting_down") && !has(&events, "[DONE]"));
    assert_true(has(&whole, "shutting_down"));
    close(a);
    close(b);
    close(idle);
    buf_free(&events);
    buf_free(&whole);
}

int main(void)
{
#define SERVED(test) cmocka_unit_test_setup_teardown(test, start_server, stop_server)
    const struct CMUnitTest tests[] = {
        SERVED(heads),
        SERVED(garbage),
        SERVED(large_head),
        SERVED(pipelining),
        SERVED(byte_by_byte),
        SERVED(expect_continue),
        SERVED(refused_while_sending),
        SERVED(chunked_too_large),
        SERVED(signs_of_life),
        SERVED(clients_leave),
        SERVED(reader_that_does_not_read),
        SERVED(full_queue),
        SERVED(many_connections),
        SERVED(clean_stop),
        SERVED(limits_of_a_key),
        SERVED(wrong_keys),
    };
    return cmocka_run_group_tests_name("http", tests, open_all, close_all);
}
