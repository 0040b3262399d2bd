/* An update by HTTP and from USB: addresses, heads byte by byte, servers that lie; sticks by their
 * way. */
#include "init/fetch.h"
#include "init/stick.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void addresses(void **state)
{
    (void)state;
    static const char *const BAD[] = {"",
                                      "192.0.2.7/f",
                                      "ftp://192.0.2.7/f",
                                      "http://",
                                      "http:///f",
                                      "http://192.0.2.7",
                                      "http://host/f",
                                      "http://192.0.2.7:/f",
                                      "http://192.0.2.7:0/f",
                                      "http://192.0.2.7:65536/f",
                                      "http://192.0.2.7:8x/f",
                                      "http://192.0.2.7 /f",
                                      "http://192.0.2.7/a b",
                                      "http://192.0.2.7/a\r\nX: y",
                                      "http://192.0.2.256/f",
                                      "http://u@192.0.2.7/f",
                                      "http://[::1]/f",
                                      "https://192.0.2.7/f",
                                      "http://192.0.2.7:0000080/f"};
    struct fetch f;
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++)
        if (fetch_parse(&f, BAD[i]) == NULL)
            fail_msg("taken: %s", BAD[i]);
    assert_null(fetch_parse(&f, "http://192.0.2.7:8080/a/b?c"));
    assert_int_equal(f.port, 8080);
    assert_int_equal(ntohl(f.address), 0xc0000207);
    assert_string_equal(f.host, "192.0.2.7:8080");
    assert_string_equal(f.path, "/a/b?c");
    assert_null(fetch_parse(&f, "http://192.0.2.7/"));
    assert_int_equal(f.port, 80);
}

static void heads(void **state)
{
    (void)state;
    static const char GOOD[] = "HTTP/1.1 200 OK\r\nServer: x\r\nContent-Length: 12345\r\n\r\n";
    static const struct {
        const char *head, *says;
    } BAD[] = {
        {"HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\n", "status is not 200"},
        {"HTTP/1.1 301 Moved\r\nLocation: /x\r\n\r\n", "status is not 200"},
        {"HTTP/1.1 2000\r\nContent-Length: 3\r\n\r\n", ""},
        {"SSH-2.0-x\r\n\r\n", "no HTTP"},
        {"HTTP/1.1 200 OK\r\n\r\n", "no length"},
        {"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "sound length"},
        {"HTTP/1.1 200 OK\r\nContent-Length: 1x\r\n\r\n", "sound length"},
        {"HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n", "sound length"},
        {"HTTP/1.1 200 OK\r\nContent-Length: 9999999999999999\r\n\r\n", "sound length"},
        {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "sound length"},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n", "encoded"},
    };
    uint64_t bytes = 0;
    assert_null(fetch_head(GOOD, strlen(GOOD), &bytes));
    assert_int_equal(bytes, 12345);
    for (size_t n = 0; n < strlen(GOOD); n++) { /* cut off anywhere: never another length */
        char *head = malloc(n + 1);
        memcpy(head, GOOD, n);
        bytes = 0;
        if (fetch_head(head, n, &bytes) == NULL)
            assert_int_equal(bytes, 12345);
        free(head);
    }
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        const char *wrong = fetch_head(BAD[i].head, strlen(BAD[i].head), &bytes);
        if (strcmp(BAD[i].says, "") != 0 && (wrong == NULL || strstr(wrong, BAD[i].says) == NULL))
            fail_msg("%s: %s", BAD[i].head, wrong == NULL ? "taken" : wrong);
    }
}

/* ---- a server ----------------------------------------------------------------------------------
 */

static pid_t server;

/* Answers one request with these bytes; returns what asks it. */
static struct fetch serve(const char *answer, size_t n)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof at;
    struct fetch f;
    char url[64], request[1024];
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &size), 0);
    server = fork();
    if (server == 0) {
        int client = accept(fd, NULL, NULL);
        ssize_t got = read(client, request, sizeof request);
        bool asked = got > 0 && memcmp(request, "GET /f HTTP/1.0\r\nHost: 127.0.0.1:", 33) == 0;
        bool sent = asked && write(client, answer, n) == (ssize_t)n;
        _exit(sent ? 0 : 1);
    }
    close(fd);
    snprintf(url, sizeof url, "http://127.0.0.1:%d/f", ntohs(at.sin_port));
    assert_null(fetch_parse(&f, url));
    return f;
}

/* What comes of it: the reason, and what was passed on. */
static const char *ask(const char *answer, size_t n, uint64_t max, char *body, size_t cap,
                       ssize_t *got)
{
    int out[2];
    struct fetch f = serve(answer, n);
    assert_int_equal(pipe(out), 0);
    const char *wrong = fetch_run(&f, out[1], max);
    close(out[1]);
    *got = read(out[0], body, cap);
    close(out[0]);
    waitpid(server, NULL, 0);
    return wrong;
}

static void servers(void **state)
{
    (void)state;
    static const char GOOD[] = "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n12345";
    char body[64];
    ssize_t got;
    assert_null(ask(GOOD, strlen(GOOD), 100, body, sizeof body, &got));
    assert_int_equal(got, 5);
    assert_memory_equal(body, "12345", 5);
    static const char MORE[] = "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n12345and more";
    assert_null(ask(MORE, strlen(MORE), 100, body, sizeof body, &got));
    assert_int_equal(got, 5);
    assert_string_equal(ask(GOOD, strlen(GOOD), 4, body, sizeof body, &got),
                        "the file is larger than an update may be");
    assert_int_equal(got, 0);
    for (size_t n = 0; n < strlen(GOOD); n++) {
        assert_non_null(ask(GOOD, n, 100, body, sizeof body, &got));
        assert_true(got < 5);
    }
    struct fetch f = serve("", 0);
    assert_non_null(fetch_run(&f, STDOUT_FILENO, 100));
    waitpid(server, NULL, 0);
    assert_string_equal(fetch_run(&f, STDOUT_FILENO, 100), "the server can not be reached");
}

static void sticks(void **state)
{
    (void)state;
    static char device[STORAGE_DISKS_MAX][STORAGE_NAME_BYTES];
    char folder[] = "/tmp/test_init_fetch.XXXXXX", path[128];
    static const struct {
        const char *name, *link;
    } DEVICES[] = {
        {"sdb1", "../../devices/pci0000:00/0000:00:03.0/usb2/2-1/2-1:1.0/host6/block/sdb/sdb1"},
        {"vda1", "../../devices/pci0000:00/0000:00:05.0/virtio2/block/vda/vda1"},
        {"sdb", "../../devices/pci0000:00/0000:00:03.0/usb2/2-1/2-1:1.0/host6/block/sdb"},
        {"nvme0n1", "../../devices/pci0000:00/0000:00:01.0/nvme/nvme0/nvme0n1"},
    };
    assert_non_null(mkdtemp(folder));
    assert_int_equal(stick_find(device, folder), 0);
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, DEVICES[i].name);
        assert_int_equal(symlink(DEVICES[i].link, path), 0);
    }
    assert_int_equal(stick_find(device, folder), 2);
    assert_string_equal(device[0], "sdb");
    assert_string_equal(device[1], "sdb1");
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, DEVICES[i].name);
        unlink(path);
    }
    rmdir(folder);
    assert_int_equal(stick_find(device, folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(addresses), cmocka_unit_test(heads),
                                       cmocka_unit_test(servers), cmocka_unit_test(sticks)};
    return cmocka_run_group_tests_name("fetch", tests, NULL, NULL);
}
