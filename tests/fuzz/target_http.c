/*
 * Any bytes on a connection of the server, over a serving core that answers at once.  Whatever
 * comes back begins as HTTP and ends when the input does, and the server goes on.
 */
#include "tests/fuzz/fuzz.h"

#include "engine/api/api.h"
#include "engine/api/profiles.h"

#include "tests/unit/fake_engine.h"

#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>

/* Beyond the deadlines of the server: a connection that stays open so long is a fault. */
#define WAIT_MS_MAX 90000
/* The scripted answers take less; only how much is covered depends on it. */
#define ANSWER_MS 3
#define SECRET    "ds_aB3dEf7h_0123456789abcdefghijklmnopqrstuv"
/* printf %s SECRET | sha256sum */
#define KEY_LINE                                                                                   \
    "aB3dEf7h 25681605661845865aa4eef4fc0e2f364b0a4f84e35c24b6c131b138b8a4d05f laptop\n"

static struct fuzz_text lang;
static struct api api;
static struct keys *keys;
static struct http_server *server;
static struct sockaddr_un address;
static socklen_t address_len;

/* One token, and the end. */
static void fake_script(struct fake_request *r)
{
    fake_prefill(r, 0);
    fake_token(r, 1000);
    fake_end(r, END_STOP);
}

/* A listening socket that has no place in the file system. */
static int listen_anywhere(void)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    ASSERT(fd >= 0);
    address.sun_family = AF_UNIX;
    ASSERT(bind(fd, (struct sockaddr *)&address, sizeof address.sun_family) == 0);
    address_len = sizeof address;
    ASSERT(getsockname(fd, (struct sockaddr *)&address, &address_len) == 0);
    ASSERT(listen(fd, SOMAXCONN) == 0);
    return fd;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    struct fuzz_file file;
    struct error err = {0};
    struct http_options options = {.profile = api_profile_now, .user = &api};
    (void)argc;
    (void)argv;
    signal(SIGPIPE, SIG_IGN);
    fuzz_text_open(&lang);
    fuzz_file_open(&file);
    fuzz_file_set(&file, KEY_LINE, sizeof KEY_LINE - 1);
    ASSERT(keys_open(file.path, &keys, &err) == OK);
    ASSERT(api_init(&api, NULL, lang.tokenizer, "baseline", &err) == OK);
    api.masks = lang.masks;
    options.take_listen_fd = listen_anywhere();
    options.keys = keys;
    options.meter = meter_create();
    options.body_bytes_max = api_body_bytes_max(&api);
    options.routes = api_routes(&options.n_routes);
    ASSERT(http_start(&options, &server, &err) == OK);
    return 0;
}

/* Appends what comes until nothing does for `wait_ms`.  @return false: the server has closed */
static bool hear(int fd, int wait_ms, struct buf *out)
{
    char bytes[4096];
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int ready = poll(&p, 1, wait_ms);
        if (ready < 0 && errno == EINTR)
            continue; /* the fuzzing engine has a clock */
        if (ready <= 0)
            return true;
        ssize_t got = recv(fd, bytes, sizeof bytes, 0);
        if (got <= 0)
            return false;
        buf_add(out, bytes, (size_t)got);
    }
}

/* Waits until the server has read all.  libmicrohttpd sees an end that comes together with the last
 * bytes only when it clears idle connections away (HTTP_IDLE_S_MAX), which is no fault, but is too
 * long for one input. */
static void wait_read(int fd)
{
    for (int unread = 1, ms = 0; unread > 0 && ms < WAIT_MS_MAX; ms++) {
        ASSERT(ioctl(fd, SIOCOUTQ, &unread) == 0);
        if (unread > 0)
            poll(NULL, 0, 1);
    }
}

/* Sends what the server takes and hears its answer, then says that no more comes. */
static void talk(int fd, const uint8_t *data, size_t n, struct buf *out)
{
    while (n > 0) {
        ssize_t sent = send(fd, data, n, MSG_NOSIGNAL);
        if (sent <= 0)
            break; /* it has closed: what it said is looked at */
        data += sent;
        n -= (size_t)sent;
    }
    if (!hear(fd, ANSWER_MS, out))
        return;
    wait_read(fd);
    shutdown(fd, SHUT_WR);
    ASSERT(!hear(fd, WAIT_MS_MAX, out));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct buf out = {0};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT(fd >= 0);
    ASSERT(connect(fd, (struct sockaddr *)&address, address_len) == 0);
    talk(fd, data, n, &out);
    close(fd);
    ASSERT(out.len == 0 || (out.len > 12 && memcmp(out.data, "HTTP/1.", 7) == 0));
    ASSERT(out.len == 0 || memmem(out.data, out.len, SECRET, sizeof SECRET - 1) == NULL);
    buf_free(&out);
    fake_join();
    return 0;
}
