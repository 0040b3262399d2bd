/*
 * The admin socket: the frame byte by byte without sockets, then a live server with slow, greedy,
 * silent and rude clients.  What the commands ask of the engine is given here: the commands
 * only report what they say.
 */
#include "engine/admin/admin_commands.h"
#include "engine/base/clock.h"
#include "engine/base/json.h"
#include "tests/unit/admin_engine.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define ANSWER_WAIT_MS 30000 /* longer is a hang */

static void metrics_page(void *user, struct buf *out)
{
    buf_printf(out, "# HELP a \"b\" \\ c\n# TYPE a gauge\na{b=\"c\"} %d\n", *(const int *)user);
}

static int metrics_value = 7;
static char folder[] = "/tmp/v4box-admin-XXXXXX";
static char socket_path[64], keys_path[64];
static struct admin_scope scope = {.model = "de\"mo",
                                   .isa = "avx2",
                                   .listening = "127.0.0.1:8080",
                                   .layout = "1 group of 4 ranks (set)",
                                   .metrics = metrics_page,
                                   .metrics_user = &metrics_value};

static int setup(void **state)
{
    (void)state;
    struct error err;
    if (mkdtemp(folder) == NULL || chmod(folder, 0755) != 0)
        return -1;
    snprintf(socket_path, sizeof socket_path, "%s/engine.sock", folder);
    snprintf(keys_path, sizeof keys_path, "%s/keys", folder);
    if (store_open(NULL, "reference", &scope.profiles, &err) != OK)
        return -1;
    const struct control_options options = {.store = scope.profiles};
    if (control_start(&options, &scope.control, &err) != OK)
        return -1;
    return keys_open(keys_path, &scope.keys, &err) == OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    control_stop(scope.control);
    store_close(scope.profiles);
    keys_close(scope.keys);
    unlink(keys_path);
    return rmdir(folder);
}

/* ---- the frame ------------------------------------------------------------------------------ */

/* Parses an answer: one line, one object, with ok and text.  The caller puts it back. */
static struct json_object *parse_answer(const char *answer, size_t len)
{
    struct json_object *object = NULL;
    struct error err;
    assert_true(len > 0 && answer[len - 1] == '\n');
    assert_ptr_equal(memchr(answer, '\n', len), answer + len - 1);
    if (json_parse(answer, len - 1, &object, NULL, &err) != OK)
        fail_msg("%.*s: %s", (int)len, answer, err.text);
    bool is_null;
    assert_true(json_object_is_type(json_member(object, "ok", &is_null), json_type_boolean));
    assert_true(json_object_is_type(json_member(object, "text", &is_null), json_type_string));
    bool ok = json_object_get_boolean(json_member(object, "ok", &is_null));
    struct json_object *data = json_member(object, "data", &is_null);
    assert_int_equal(ok, json_object_is_type(data, json_type_object));
    return object;
}

static struct json_object *ask(const char *line, size_t len)
{
    struct buf out = {0};
    const struct buf none = {0};
    uint64_t job = admin_answer(&scope, 3661, line, len, &none, &out);
    while (job != 0 && !admin_answer_job(&scope, job, &out))
        usleep(1000);
    struct json_object *answer = parse_answer(out.data, out.len);
    buf_free(&out);
    return answer;
}

static struct json_object *member(struct json_object *object, const char *name)
{
    bool is_null;
    struct json_object *value = json_member(object, name, &is_null);
    assert_non_null(value);
    return value;
}

static const char *text_of(struct json_object *answer)
{
    return json_object_get_string(member(answer, "text"));
}

static bool is_ok(struct json_object *answer)
{
    return json_object_get_boolean(member(answer, "ok"));
}

static void test_status(void **state)
{
    (void)state;
    static const char LINE[] = "{\"command\":\"status\"}";
    struct json_object *answer = ask(LINE, strlen(LINE));
    assert_true(is_ok(answer));
    struct json_object *data = member(answer, "data");
    static const struct {
        const char *name;
        int64_t value;
    } NUMBERS[] = {{"context_max", 4096},
                   {"running", 2},
                   {"waiting", 1},
                   {"prompt_tokens", 11},
                   {"reused_tokens", 7},
                   {"answer_tokens", 5},
                   {"steps", 3},
                   {"prefix_blocks", 21},
                   {"prefix_tails", 4},
                   {"prefix_evicted", 6},
                   {"prefix_bytes", 21000},
                   {"prefix_bytes_max", 50000},
                   {"session_bytes", 70000},
                   {"state_bytes", 90000},
                   {"state_bytes_max", 280000},
                   {"state_pages_own", 31},
                   {"state_pages_shared", 12},
                   {"state_pages_free", 57},
                   {"drafts", 9},
                   {"drafts_right", 8},
                   {"requests", 12345678901},
                   {"uptime_seconds", 3661},
                   {"turns_kept", 0},
                   {"turns_bytes", 0}};
    for (size_t i = 0; i < sizeof NUMBERS / sizeof NUMBERS[0]; i++)
        assert_int_equal(json_object_get_int64(member(data, NUMBERS[i].name)), NUMBERS[i].value);
    assert_true(json_object_get_int64(member(data, "rss_bytes")) > 1 << 20);
    assert_string_equal(json_object_get_string(member(data, "model")), "de\"mo");
    assert_string_equal(json_object_get_string(member(data, "isa")), "avx2");
    assert_string_equal(json_object_get_string(member(data, "profile")), "reference");
    assert_string_equal(json_object_get_string(member(data, "listening")), "127.0.0.1:8080");
    assert_non_null(strstr(text_of(answer), "running         2\n"));
    json_object_put(answer);
}

static void test_gpu(void **state)
{
    (void)state;
    static const char LINE[] = "{\"command\":\"gpu\"}";
    struct json_object *answer = ask(LINE, strlen(LINE));
    assert_true(is_ok(answer));
    assert_string_equal(text_of(answer), "no worker: the engine computes on the processor\n");
    json_object_put(answer);

    gpu_told = true;
    answer = ask(LINE, strlen(LINE));
    assert_string_equal(
        text_of(answer),
        "1 group of 4 ranks (set)\n"
        "driver 580.65.06; ranks copy: bytes pushed to another GPU's memory were lost\n"
        "GPU 0000:41:00.0  Made-up \"GPU\", group 2, rank 3\n"
        "  61 C, 312 of ? W, ? of ? MiB, busy ? %, ? of ? MHz (power limit, TOO HOT), ECC errors: "
        "? corrected, ? not\n");
    struct json_object *gpu = json_object_array_get_idx(member(member(answer, "data"), "gpus"), 0);
    assert_int_equal(json_object_get_int64(member(gpu, "power_milliwatts")), 312500);
    assert_string_equal(json_object_get_string(member(gpu, "name")), "Made-up \"GPU\"");
    json_object_put(answer);

    gpu_age_ms = GAUGE_STALE_MS + 1000;
    answer = ask(LINE, strlen(LINE));
    assert_non_null(strstr(text_of(answer), "this is 31 s OLD"));
    json_object_put(answer);
    gpu_told = false;
}

static void test_keys(void **state)
{
    (void)state;
    static const char LIST[] = "{\"command\":\"keys\",\"args\":[\"list\"]}";
    static const char CREATE[] = "{\"command\":\"keys\",\"args\":[\"create\",\"a\\\"b\"]}";
    struct json_object *answer = ask(LIST, strlen(LIST));
    assert_true(is_ok(answer));
    assert_int_equal(json_object_array_length(member(member(answer, "data"), "keys")), 0);
    json_object_put(answer);

    struct json_object *created = ask(CREATE, strlen(CREATE));
    assert_true(is_ok(created));
    struct json_object *data = member(created, "data");
    const char *secret = json_object_get_string(member(data, "secret"));
    const char *id = json_object_get_string(member(data, "id"));
    struct key key;
    assert_true(keys_check(scope.keys, secret, strlen(secret), &key));
    assert_string_equal(key.id, id);
    assert_memory_equal(text_of(created), secret, strlen(secret));

    answer = ask(LIST, strlen(LIST));
    struct json_object *list = member(member(answer, "data"), "keys");
    assert_int_equal(json_object_array_length(list), 1);
    struct json_object *first = json_object_array_get_idx(list, 0);
    assert_string_equal(json_object_get_string(member(first, "name")), "a\"b");
    assert_string_equal(json_object_get_string(member(first, "id")), id);
    assert_null(strstr(text_of(answer), secret));
    json_object_put(answer);

    /* Limits: set, shown, taken away; wrong ones are explained. */
    static const struct {
        const char *args, *text; /* text: how the answer begins */
        bool ok;
    } LIMITS[] = {
        {"\"limit\",\"%s\",\"rate\",\"60\"", "rate 60\n", true},
        {"\"expire\",\"%s\",\"9999-12-31\"", "expires 9999-12-31\n", true},
        {"\"disable\",\"%s\"", "disabled yes\n", true},
        {"\"list\"", "%s  a\"b rate=60 expires=9999-12-31 disabled=yes\n", true},
        {"\"enable\",\"%s\"", "disabled has no limit\n", true},
        {"\"limit\",\"%s\",\"rate\",\"none\"", "rate has no limit\n", true},
        {"\"expire\",\"%s\",\"never\"", "expires has no limit\n", true},
        {"\"list\"", "%s  a\"b\n", true},
        {"\"limit\",\"%s\",\"rate\",\"fast\"", "rate: must be a whole number", false},
        {"\"limit\",\"%s\",\"speed\",\"1\"", "no limit has this name; limits are:", false},
        {"\"limit\",\"%s\"", "usage: ", false},
        {"\"disable\",\"nobodyis\"", "no key has this id", false},
    };
    for (size_t i = 0; i < sizeof LIMITS / sizeof LIMITS[0]; i++) {
        char args[128], request[256], want[128];
        snprintf(args, sizeof args, LIMITS[i].args, id);
        snprintf(want, sizeof want, LIMITS[i].text, id);
        snprintf(request, sizeof request, "{\"command\":\"keys\",\"args\":[%s]}", args);
        answer = ask(request, strlen(request));
        assert_int_equal(is_ok(answer), LIMITS[i].ok);
        assert_memory_equal(text_of(answer), want, strlen(want));
        json_object_put(answer);
    }

    char line[128];
    snprintf(line, sizeof line, "{\"args\":[\"delete\",\"%s\"],\"command\":\"keys\"}", id);
    answer = ask(line, strlen(line));
    assert_true(is_ok(answer));
    json_object_put(answer);
    assert_false(keys_check(scope.keys, secret, strlen(secret), &key));
    answer = ask(line, strlen(line));
    assert_false(is_ok(answer));
    assert_string_equal(text_of(answer), "no key has this id");
    json_object_put(answer);
    json_object_put(created);
}

/* The key of the box's own test: it opens the API, and no list has it. */
static void test_keys_pass(void **state)
{
    (void)state;
    static const char PASS[] = "{\"command\":\"keys\",\"args\":[\"pass\"]}";
    static const char LIST[] = "{\"command\":\"keys\",\"args\":[\"list\"]}";
    struct json_object *answer = ask(PASS, strlen(PASS));
    assert_true(is_ok(answer));
    const char *secret = json_object_get_string(member(member(answer, "data"), "secret"));
    struct key key;
    assert_true(keys_check(scope.keys, secret, strlen(secret), &key));
    assert_memory_equal(text_of(answer), secret, strlen(secret)); /* how the heart reads it */
    json_object_put(answer);
    answer = ask(LIST, strlen(LIST));
    assert_null(strstr(text_of(answer), key.id));
    json_object_put(answer);
}

static void test_metrics(void **state)
{
    (void)state;
    static const char LINE[] = "{\"command\":\"metrics\"}";
    static const char MORE[] = "{\"command\":\"metrics\",\"args\":[\"all\"]}";
    struct json_object *answer = ask(LINE, strlen(LINE));
    assert_true(is_ok(answer));
    assert_string_equal(text_of(answer), "# HELP a \"b\" \\ c\n# TYPE a gauge\na{b=\"c\"} 7\n");
    json_object_put(answer);
    answer = ask(MORE, strlen(MORE));
    assert_false(is_ok(answer));
    assert_string_equal(text_of(answer), "usage: metrics");
    json_object_put(answer);
}

static void test_prefixes(void **state)
{
    (void)state;
    static const char STATUS_LINE[] = "{\"command\":\"prefixes\",\"args\":[\"status\"]}";
    static const char SAVE[] = "{\"command\":\"prefixes\",\"args\":[\"save\"]}";
    static const struct {
        const char *line, *text; /* text: the end of the answer's */
        bool file, fails, ok;
        int saves; /* so far */
    } STEPS[] = {
        {STATUS_LINE, "they end with the engine: no file was named at its start\n", false, false,
         true, 0},
        {STATUS_LINE, "6 made room for others\nnot saved since the start\n", true, false, true, 0},
        {SAVE, "/prefixes: the disk is full", true, true, false, 0},
        {STATUS_LINE, "not saved since the start\n", true, false, true, 0},
        {SAVE, "20 blocks of prefixes are saved\n", true, false, true, 1},
        {STATUS_LINE, "20 blocks were saved on 2026-09-21 14:13:20 UTC\n", true, false, true, 1},
    };
    for (size_t i = 0; i < sizeof STEPS / sizeof STEPS[0]; i++) {
        save_file = STEPS[i].file;
        save_fails = STEPS[i].fails;
        struct json_object *answer = ask(STEPS[i].line, strlen(STEPS[i].line));
        const char *text = text_of(answer), *want = STEPS[i].text;
        assert_int_equal(is_ok(answer), STEPS[i].ok);
        assert_true(strlen(text) >= strlen(want));
        assert_string_equal(text + strlen(text) - strlen(want), want);
        assert_int_equal(saves, STEPS[i].saves);
        if (i + 1 == sizeof STEPS / sizeof STEPS[0]) {
            struct json_object *data = member(answer, "data");
            assert_int_equal(json_object_get_int(member(data, "blocks")), 21);
            assert_int_equal(json_object_get_int(member(data, "blocks_max")), 35);
            assert_int_equal(json_object_get_int(member(data, "ends")), 4);
            assert_int_equal(json_object_get_int(member(data, "ends_max")), 36);
            assert_int_equal(json_object_get_int64(member(data, "saved_s")), 1790000000);
            assert_true(json_object_get_boolean(member(data, "file")));
        }
        json_object_put(answer);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *line, *says;
    } CASES[] = {
        {"", ""},
        {"status", ""},
        {"[]", "the request must be an object"},
        {"{}", "command: is missing"},
        {"{\"command\":7}", "command: must be a short string"},
        {"{\"command\":null}", "command: must be a short string"},
        {"{\"command\":\"sta\\u0000tus\"}", "command: must be a short string"},
        {"{\"command\":\"status\",\"x\":1}", "the request has a field other than"},
        {"{\"command\":\"status\",\"command\":\"status\"}", ""},
        {"{\"command\":\"status\",\"args\":{}}", "args: must be an array"},
        {"{\"command\":\"status\",\"args\":[1]}", "args: must be short strings"},
        {"{\"command\":\"status\",\"args\":[\"a\\nb\"]}", "args: must be short strings"},
        {"{\"command\":\"status\",\"args\":[\"x\"]}", "usage: status"},
        {"{\"command\":\"secret-command\"}", "unknown command; known are: status | keys list"},
        {"{\"command\":\"prefixes\"}", "usage: prefixes status | prefixes save"},
        {"{\"command\":\"keys\"}",
         "usage: keys list | keys create NAME | keys limit ID LIMIT VALUE|none | "},
        {"{\"command\":\"keys\",\"args\":[\"create\"]}", "usage: keys"},
        {"{\"command\":\"keys\",\"args\":[\"create\",\"a\",\"b\"]}", "usage: keys"},
        {"{\"command\":\"keys\",\"args\":[\"create\",\"a b\"]}", "the name must be"},
        {"{\"command\":\"keys\",\"args\":[\"delete\",\"x\"]}", "the id must be"},
        {"{\"command\":\"keys\",\"args\":[\"drop\",\"x\"]}", "usage: keys"},
        {"{\"command\":\"keys\",\"args\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\","
         "\"10\",\"11\",\"12\",\"13\",\"14\",\"15\",\"16\",\"17\"]}",
         "args: too many"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        struct json_object *answer = ask(CASES[i].line, strlen(CASES[i].line));
        assert_false(is_ok(answer));
        if (strncmp(text_of(answer), CASES[i].says, strlen(CASES[i].says)) != 0)
            fail_msg("case %zu: %s", i, text_of(answer));
        assert_null(
            strstr(text_of(answer), "secret-command")); /* nothing of the client's comes back */
        json_object_put(answer);
    }
}

/* Every cut and every byte of a good request gets an answer of the right form. */
static void test_hostile_bytes(void **state)
{
    (void)state;
    static const char GOOD[] = "{\"command\":\"keys\",\"args\":[\"list\"]}";
    char line[sizeof GOOD];
    for (size_t i = 0; i < sizeof GOOD - 1; i++) {
        struct json_object *answer = ask(GOOD, i);
        assert_false(is_ok(answer));
        json_object_put(answer);
        for (int byte = 0; byte < 256; byte++) {
            memcpy(line, GOOD, sizeof line);
            line[i] = (char)byte;
            json_object_put(ask(line, sizeof GOOD - 1));
        }
    }
    json_object_put(ask(GOOD, sizeof GOOD - 1));
}

/* ---- the server ----------------------------------------------------------------------------- */

static struct admin *server_start(void)
{
    struct admin *admin = NULL;
    struct error err;
    if (admin_start(socket_path, &scope, &admin, &err) != OK)
        fail_msg("%s", err.text);
    return admin;
}

static int dial(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, socket_path, sizeof socket_path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    close(fd);
    return -1;
}

/* Reads until the server closes.  @return bytes, with a NUL behind them */
static size_t drain(int fd, char *out, size_t size)
{
    size_t len = 0;
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        assert_int_equal(poll(&p, 1, ANSWER_WAIT_MS), 1);
        ssize_t n = recv(fd, out + len, size - 1 - len, 0);
        if (n <= 0)
            break;
        len += (size_t)n;
    }
    close(fd);
    out[len] = '\0';
    return len;
}

static char answer_text[8192];

/* Sends bytes, closes the sending side, and gives the answer ("" when there was none). */
static const char *talk(const char *bytes, size_t len)
{
    int fd = dial();
    assert_true(fd >= 0);
    for (size_t sent = 0; sent < len;) {
        ssize_t n = send(fd, bytes + sent, len - sent, MSG_NOSIGNAL);
        if (n < 0)
            break; /* the server has refused and closed meanwhile */
        sent += (size_t)n;
    }
    shutdown(fd, SHUT_WR);
    drain(fd, answer_text, sizeof answer_text);
    return answer_text;
}

static const char STATUS[] = "{\"command\":\"status\",\"args\":[]}\n";

static void test_server(void **state)
{
    (void)state;
    struct admin *admin = server_start();
    struct stat st;
    assert_int_equal(stat(socket_path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    struct json_object *answer = parse_answer(answer_text, strlen(talk(STATUS, strlen(STATUS))));
    assert_true(is_ok(answer));
    json_object_put(answer);

    int fd = dial(); /* byte by byte */
    for (size_t i = 0; i < strlen(STATUS); i++)
        assert_int_equal(send(fd, STATUS + i, 1, MSG_NOSIGNAL), 1);
    answer = parse_answer(answer_text, drain(fd, answer_text, sizeof answer_text));
    assert_true(is_ok(answer));
    json_object_put(answer);

    assert_non_null(strstr(talk("{\"command\"", 10), "no end of line"));
    assert_non_null(strstr(talk("{}\n{}\n", 6), "one request a connection"));
    assert_string_equal(talk("", 0), "");
    admin_stop(admin);
    assert_int_not_equal(access(socket_path, F_OK), 0);
    assert_int_equal(dial(), -1);
}

/* A request of exactly the bound is read, one byte more is refused, and so is a flood. */
static void test_server_bounds(void **state)
{
    (void)state;
    struct admin *admin = server_start();
    enum { FLOOD = 4 * ADMIN_REQUEST_BYTES_MAX };
    char *bytes = malloc(FLOOD);
    memset(bytes, ' ', FLOOD);
    memcpy(bytes, STATUS, strlen(STATUS) - 1);
    bytes[ADMIN_REQUEST_BYTES_MAX - 1] = '\n';
    assert_memory_equal(talk(bytes, ADMIN_REQUEST_BYTES_MAX), "{\"ok\": true", 11);
    bytes[ADMIN_REQUEST_BYTES_MAX - 1] = ' ';
    bytes[ADMIN_REQUEST_BYTES_MAX] = '\n';
    assert_non_null(strstr(talk(bytes, ADMIN_REQUEST_BYTES_MAX + 1), "larger than 64 KiB"));
    bytes[ADMIN_REQUEST_BYTES_MAX] = ' ';
    assert_non_null(strstr(talk(bytes, FLOOD), "larger than 64 KiB"));
    memset(bytes, '[', FLOOD);
    bytes[ADMIN_REQUEST_BYTES_MAX - 1] = '\n';
    assert_memory_equal(talk(bytes, ADMIN_REQUEST_BYTES_MAX), "{\"ok\": false", 12);
    free(bytes);
    admin_stop(admin);
}

/* A file follows the line of a request that takes one, in any pieces, and no other; one byte more
 * than it may have is refused before its end.  Who does not end is closed at the deadline of all.
 */
static void test_server_files(void **state)
{
    static const char LINE[] = "{\"command\":\"audit\",\"args\":[\"golden\"]}\n";
    static const char LIST[] = "{\"command\":\"audit\",\"args\":[\"list\"]}\n{}";
    static const char MORE[] = "{\"command\":\"audit\",\"args\":[\"golden\",\"a\"]}\n{}";
    (void)state;
    struct admin *admin = server_start();
    size_t n = strlen(LINE);
    char *bytes = malloc(n + GOLDEN_BYTES_MAX + 1);
    memset(bytes, 'x', n + GOLDEN_BYTES_MAX + 1);
    memcpy(bytes, LINE, n);
    assert_non_null(strstr(talk(LINE, n), "no audits here"));
    assert_non_null(strstr(talk(bytes, n + GOLDEN_BYTES_MAX), "no audits here"));
    assert_non_null(strstr(talk(bytes, n + GOLDEN_BYTES_MAX + 1), "larger than one may be"));
    assert_non_null(strstr(talk(LIST, strlen(LIST)), "one request a connection"));
    assert_non_null(strstr(talk(MORE, strlen(MORE)), "one request a connection"));
    int fd = dial();
    for (size_t i = 0; i < n + 2; i++) {
        assert_int_equal(send(fd, bytes + i, 1, MSG_NOSIGNAL), 1);
        assert_memory_equal(talk(STATUS, strlen(STATUS)), "{\"ok\": true", 11);
    }
    shutdown(fd, SHUT_WR);
    drain(fd, answer_text, sizeof answer_text);
    assert_non_null(strstr(answer_text, "no audits here"));
    fd = dial(); /* in the middle of a file when the server ends */
    assert_int_equal(send(fd, bytes, n + 9, MSG_NOSIGNAL), n + 9);
    admin_stop(admin);
    close(fd);
    free(bytes);
}

/* More silent clients than there are places: a real one is answered all the same, since the silent
 * ones are closed at their deadline; and a stop does not wait for them. */
static void test_server_silent_clients(void **state)
{
    (void)state;
    struct admin *admin = server_start();
    int silent[ADMIN_CLIENTS_MAX + 2];
    for (int i = 0; i < ADMIN_CLIENTS_MAX + 2; i++)
        assert_true((silent[i] = dial()) >= 0);
    assert_int_equal(send(silent[0], "{\"comm", 6, MSG_NOSIGNAL), 6);
    assert_memory_equal(talk(STATUS, strlen(STATUS)), "{\"ok\": true", 11);
    assert_int_equal(drain(silent[0], answer_text, sizeof answer_text), 0);
    for (int i = 1; i < ADMIN_CLIENTS_MAX; i++)
        assert_int_equal(drain(silent[i], answer_text, sizeof answer_text), 0);
    admin_stop(admin);
    close(silent[ADMIN_CLIENTS_MAX]);
    close(silent[ADMIN_CLIENTS_MAX + 1]);
}

static void test_server_place(void **state)
{
    (void)state;
    struct admin *first = server_start(), *second = NULL;
    struct error err;
    assert_int_equal(admin_start(socket_path, &scope, &second, &err),
                     ERR_INPUT); /* served already */
    assert_memory_equal(talk(STATUS, strlen(STATUS)), "{\"ok\": true", 11);
    admin_stop(first);

    struct sockaddr_un address = {.sun_family = AF_UNIX}; /* what a killed engine leaves */
    memcpy(address.sun_path, socket_path, sizeof socket_path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    close(fd);
    first = server_start();
    assert_memory_equal(talk(STATUS, strlen(STATUS)), "{\"ok\": true", 11);
    admin_stop(first);

    FILE *file = fopen(socket_path, "w"); /* a file of somebody's is not removed */
    assert_non_null(file);
    fclose(file);
    assert_int_equal(admin_start(socket_path, &scope, &second, &err), ERR_INPUT);
    assert_memory_equal(err.text, socket_path, strlen(socket_path));
    assert_int_equal(unlink(socket_path), 0);

    char deep[300];
    memset(deep, 'x', sizeof deep - 1);
    deep[sizeof deep - 1] = '\0';
    assert_int_equal(admin_start(deep, &scope, &second, &err), ERR_INPUT);
    assert_int_equal(admin_start("", &scope, &second, &err), ERR_INPUT);
    assert_int_equal(admin_start("/nowhere/engine.sock", &scope, &second, &err), ERR_IO);
    assert_null(second);
    admin_stop(NULL);
}

/* Another user is refused by the file's mode, and, with the mode opened, by the peer's identity. */
static void test_server_other_user(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip(); /* only root can become somebody else */
    struct admin *admin = server_start();
    for (int opened = 0; opened < 2; opened++) {
        if (opened)
            assert_int_equal(chmod(socket_path, 0666), 0);
        pid_t child = fork();
        if (child == 0) {
            if (setgid(65534) != 0 || setuid(65534) != 0)
                _exit(9);
            int fd = dial();
            if (fd < 0)
                _exit(errno == EACCES ? 1 : 9);
            char byte;
            send(fd, STATUS, strlen(STATUS), MSG_NOSIGNAL);
            _exit(recv(fd, &byte, 1, 0) <= 0 ? 2 : 3);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), opened ? 2 : 1);
    }
    assert_memory_equal(talk(STATUS, strlen(STATUS)), "{\"ok\": true", 11);
    admin_stop(admin);
}

/* ---- profiles ------------------------------------------------------------------------------- */

/* Asks for `profile WORDS` (in JSON), which must be answered so.  */
static void profile(const char *words, bool ok, const char *says)
{
    char line[256];
    int n = snprintf(line, sizeof line, "{\"command\":\"profile\",\"args\":[%s]}", words);
    struct json_object *answer = ask(line, (size_t)n);
    if (is_ok(answer) != ok || strstr(text_of(answer), says) == NULL)
        fail_msg("%s: %s", words, text_of(answer));
    json_object_put(answer);
}

static void test_profiles(void **state)
{
    (void)state;
    profile("\"list\"", true, "* reference");
    profile("\"show\"", true, "reference (");
    profile("\"show\",\"fast\"", true, "hc.mix         bf16");
    profile("\"show\",\"nobody\"", false, "no profile is named nobody");
    profile("\"diff\",\"reference\",\"reference\"", true, "no difference");
    profile("\"diff\",\"reference\",\"fast\"", true, "hc.mix         fp32          bf16");
    profile("\"copy\",\"fast\",\"mine\"", true, "mine (");
    profile("\"copy\",\"fast\",\"mine\"", false, "there already");
    profile("\"row\",\"mine\",\"hc.mix\",\"fp9\"", false, "it has fp32, tf32, bf16");
    profile("\"row\",\"mine\",\"hc.mix\",\"tf32\"", true, "mine (");
    profile("\"diff\",\"fast\",\"mine\"", true, "hc.mix         bf16          tf32");
    profile("\"delete\",\"mine\"", true, "deleted");
    profile("\"delete\",\"fast\"", false, "built in");
    profile("\"history\"", true, "nothing was switched yet");
    profile("\"confirm\"", false, "no trial");
    profile("\"rollback\"", false, "nothing served before");
}

static void test_profile_switches(void **state)
{
    (void)state;
    profile("\"set\",\"nobody\"", false, "no profile is named nobody");
    profile("\"set\",\"reference\"", false, "serves already");
    static const char *const WRONG[] = {
        "", "\"--then\"", "\"--try\"", "\"--now\",\"--now\"", "\"\"", "\"--now\",\"--drain\""};
    for (size_t i = 1; i < sizeof WRONG / sizeof WRONG[0]; i++) {
        char words[96];
        snprintf(words, sizeof words, "\"set\",\"fast\",%s", WRONG[i]);
        profile(words, false, "usage: profile set");
    }
    static const char *const TIMES[] = {
        "9",      "0",  "9s", "25h", "m", "", "-10", "1d", "10 m", "1e3", "99999999999999999999",
        "86401s", "+60"};
    for (size_t i = 0; i < sizeof TIMES / sizeof TIMES[0]; i++) {
        char words[96];
        snprintf(words, sizeof words, "\"set\",\"fast\",\"--try\",\"%s\"", TIMES[i]);
        profile(words, false, "--try: want a time");
    }
    /* The engine of this test goes down: a job is answered, and nothing was switched. */
    profile("\"set\",\"fast\",\"--drain\",\"--try\",\"10m\"", false, "the proof was not finished");
    profile("\"verify\"", false, "reference (");
    profile("\"verify\",\"fast\"", false, "fast (");
    profile("\"rank\"", false, "not finished");
    profile("\"list\"", true, "* reference");
    profile("", false, "usage: profile list | profile show [NAME]");
    profile("\"lost\"", false, "usage: profile list");
    profile("\"list\",\"more\"", false, "usage: profile list");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_profiles),     cmocka_unit_test(test_profile_switches),
        cmocka_unit_test(test_status),       cmocka_unit_test(test_keys),
        cmocka_unit_test(test_gpu),          cmocka_unit_test(test_prefixes),
        cmocka_unit_test(test_metrics),      cmocka_unit_test(test_keys_pass),
        cmocka_unit_test(test_refusals),     cmocka_unit_test(test_hostile_bytes),
        cmocka_unit_test(test_server),       cmocka_unit_test(test_server_bounds),
        cmocka_unit_test(test_server_files), cmocka_unit_test(test_server_silent_clients),
        cmocka_unit_test(test_server_place), cmocka_unit_test(test_server_other_user),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
