/*
 * The store of precision profiles: every change survives a restart, every damage is seen, nothing
 * half done is ever read, and what is built in or in use can not be changed.
 */
#include "engine/base/file.h"
#include "engine/precision/store.h"

#include <setjmp.h>
#include <signal.h>
#include <sodium.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define CUTS 40 /* kills of a writer, each at another moment */

static char folder[] = "/tmp/v4box-profiles-XXXXXX";
static char path[64], aside[64], temp[64];

static int setup(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL)
        return -1;
    snprintf(path, sizeof path, "%s/profiles", folder);
    snprintf(aside, sizeof aside, "%s/profiles.bad", folder);
    snprintf(temp, sizeof temp, "%s/profiles.new", folder);
    return 0;
}

static int clean(void **state)
{
    (void)state;
    unlink(path);
    unlink(aside);
    unlink(temp);
    return 0;
}

static int teardown(void **state)
{
    clean(state);
    return rmdir(folder);
}

static struct store *open_store(void)
{
    struct store *store;
    struct error err;
    if (store_open(path, "balanced", &store, &err) != OK)
        fail_msg("%s", err.text);
    return store;
}

static struct store *reopen(struct store *store)
{
    store_close(store);
    return open_store();
}

#define GOOD(call)                                                                                 \
    do {                                                                                           \
        struct error err_ = {0};                                                                   \
        if ((call) != OK)                                                                          \
            fail_msg(#call ": %s", err_.text);                                                     \
    } while (0)

static void refused(enum status status, const struct error *err, const char *says)
{
    assert_int_not_equal(status, OK);
    if (strstr(err->text, says) == NULL)
        fail_msg("'%s' does not say '%s'", err->text, says);
}

#define REFUSED(call, says)                                                                        \
    do {                                                                                           \
        struct error err_ = {0};                                                                   \
        refused((call), &err_, says);                                                              \
    } while (0)

static void assert_serving(struct store *store, const char *current, const char *previous)
{
    struct profile now, before;
    store_serving(store, &now, &before);
    assert_string_equal(now.name, current);
    assert_string_equal(before.name, previous);
}

/* ---- what stays ----------------------------------------------------------------------------- */

static void test_empty(void **state)
{
    (void)state;
    struct store *store = open_store();
    struct profile list[PROFILES_MAX];
    assert_int_equal(store_list(store, list), PROFILE_BUILTINS);
    assert_string_equal(list[0].name, "reference");
    assert_serving(store, "balanced", "balanced");
    assert_string_equal(store_lost(store), "");
    assert_int_equal(access(path, F_OK), -1);
    store_close(store);
}

static void test_own(void **state)
{
    (void)state;
    struct store *store = open_store();
    struct profile p, fast = *profile_builtin("fast"), list[PROFILES_MAX];
    GOOD(store_copy(store, "fast", "mine", &err_));
    assert_true(store_find(store, "mine", &p));
    assert_int_equal(p.hash, fast.hash);
    GOOD(store_row(store, "mine", "hc.mix", "fp32", &err_));
    GOOD(store_copy(store, "mine", "other", &err_));
    GOOD(store_row(store, "other", "index.score", "fp32", &err_));
    store = reopen(store);
    assert_true(store_find(store, "mine", &p));
    assert_string_equal(profile_value_name(&p, ROW_HC_MIX), "fp32");
    for (int row = 0; row < PRECISION_ROWS; row++)
        assert_true(row == ROW_HC_MIX || p.values[row] == fast.values[row]);
    assert_true(profile_set(&p, ROW_INDEX_SCORE, INDEX_SCORE_FP32));
    assert_int_equal(store_list(store, list), PROFILE_BUILTINS + 2);
    assert_int_equal(list[PROFILE_BUILTINS + 1].hash, p.hash);
    GOOD(store_delete(store, "mine", &err_));
    store = reopen(store);
    assert_false(store_find(store, "mine", &p));
    assert_true(store_find(store, "other", &p));
    store_close(store);
}

static void test_refusals(void **state)
{
    (void)state;
    struct store *store = open_store();
    GOOD(store_copy(store, "official", "mine", &err_));
    REFUSED(store_copy(store, "nobody", "a", &err_), "no profile is named nobody");
    REFUSED(store_copy(store, "fast", "mine", &err_), "mine is there already");
    REFUSED(store_copy(store, "fast", "reference", &err_), "is there already");
    REFUSED(store_copy(store, "fast", "", &err_), "a name has");
    REFUSED(store_copy(store, "fast", "a b", &err_), "a name has");
    REFUSED(store_copy(store, "fast", "../x", &err_), "a name has");
    REFUSED(store_copy(store, "fast", "a23456789-123456789-123456789-12", &err_), "a name has");
    REFUSED(store_row(store, "official", "hc.mix", "bf16", &err_), "built in");
    REFUSED(store_row(store, "nobody", "hc.mix", "bf16", &err_), "no profile is named");
    REFUSED(store_row(store, "mine", "hc.mux", "bf16", &err_), "no row is named hc.mux");
    REFUSED(store_row(store, "mine", "hc.mix", "fp9", &err_),
            "hc.mix has no value fp9; it has fp32, tf32, bf16");
    REFUSED(store_row(store, "mine", "moe.clamp", "off", &err_), "for audits alone");
    REFUSED(store_delete(store, "fast", &err_), "built in");
    REFUSED(store_delete(store, "nobody", &err_), "no profile is named");
    struct profile p;
    assert_true(store_find(store, "mine", &p));
    assert_int_equal(p.hash, profile_builtin("official")->hash);
    struct store *none;
    REFUSED(store_open(path, "mine", &none, &err_), "built in");
    store_close(store);
}

/* What serves, what rollback goes to and what is tried can not be changed or deleted. */
static void test_in_use(void **state)
{
    (void)state;
    struct store *store = open_store();
    GOOD(store_copy(store, "fast", "a", &err_));
    GOOD(store_copy(store, "fast", "b", &err_));
    GOOD(store_copy(store, "fast", "c", &err_));
    GOOD(store_note(store, SWITCH_SET, "a", &err_));
    GOOD(store_note(store, SWITCH_SET, "b", &err_));
    GOOD(store_note(store, SWITCH_TRIED, "c", &err_));
    assert_serving(store, "c", "b");
    for (const char *name = "abc"; *name != '\0'; name++) {
        const char text[2] = {*name};
        REFUSED(store_row(store, text, "hc.mix", "fp32", &err_), "serves, or is what rollback");
        REFUSED(store_delete(store, text, &err_), "serves, or is what rollback");
    }
    GOOD(store_note(store, SWITCH_EXPIRED, "b", &err_));
    GOOD(store_delete(store, "c", &err_));
    store_close(store);
}

static void test_bounded(void **state)
{
    (void)state;
    struct store *store = open_store();
    char name[PROFILE_NAME_BYTES];
    for (int i = PROFILE_BUILTINS; i < PROFILES_MAX; i++) {
        memset(name, 'a', sizeof name);
        name[0] = (char)('A' + i % 26);
        name[1] = (char)('A' + i / 26);
        name[sizeof name - 1] = '\0';
        GOOD(store_copy(store, "fast", name, &err_));
    }
    REFUSED(store_copy(store, "fast", "more", &err_), "no more fit");
    for (int i = 0; i < SWITCH_EVENTS_MAX + 5; i++)
        GOOD(store_note(store, i % 2 == 0 ? SWITCH_ROLLED_BACK : SWITCH_CONFIRMED, name, &err_));
    store = reopen(store);
    assert_string_equal(store_lost(store), "");
    struct switch_event events[SWITCH_EVENTS_MAX];
    assert_int_equal(store_history(store, events), SWITCH_EVENTS_MAX);
    assert_int_equal(events[SWITCH_EVENTS_MAX - 1].kind, SWITCH_ROLLED_BACK);
    assert_string_equal(events[0].to, name);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    print_message("a full store has %d bytes\n", (int)st.st_size);
    assert_true(st.st_size <= PROFILES_FILE_BYTES_MAX);
    assert_int_equal(st.st_mode & 0777, 0600);
    store_close(store);
}

/* ---- what serves ---------------------------------------------------------------------------- */

static void test_switching(void **state)
{
    (void)state;
    struct store *store = open_store();
    struct switch_event events[SWITCH_EVENTS_MAX];
    GOOD(store_note(store, SWITCH_SET, "fast", &err_));
    assert_serving(store, "fast", "balanced");
    GOOD(store_note(store, SWITCH_UNPROVEN, "official", &err_));
    assert_serving(store, "fast", "balanced");
    GOOD(store_note(store, SWITCH_TRIED, "reference", &err_));
    assert_serving(store, "reference", "fast");
    GOOD(store_note(store, SWITCH_CONFIRMED, "reference", &err_));
    assert_serving(store, "reference", "fast");
    store = reopen(store);
    assert_serving(store, "reference", "fast");
    REFUSED(store_note(store, SWITCH_SET, "nobody", &err_), "no profile is named nobody");
    assert_serving(store, "reference", "fast");
    assert_int_equal(store_history(store, events), 4);
    assert_int_equal(events[1].kind, SWITCH_UNPROVEN);
    assert_string_equal(events[3].from, "reference");
    assert_true(events[3].time_s >= (int64_t)time(NULL) - 600);
    store_close(store);
}

static void test_trial_cut_by_restart(void **state)
{
    (void)state;
    struct store *store = open_store();
    struct switch_event events[SWITCH_EVENTS_MAX];
    GOOD(store_note(store, SWITCH_SET, "official", &err_));
    GOOD(store_note(store, SWITCH_TRIED, "fast", &err_));
    store = reopen(store);
    assert_serving(store, "official", "balanced");
    assert_int_equal(store_history(store, events), 3);
    assert_int_equal(events[2].kind, SWITCH_RESTARTED);
    assert_string_equal(events[2].from, "fast");
    store = reopen(store);
    assert_int_equal(store_history(store, events), 3);
    store_close(store);
}

/* ---- damage --------------------------------------------------------------------------------- */

static void file_write(const char *bytes, size_t n)
{
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

static struct buf file_bytes(void)
{
    struct buf bytes = {0};
    struct error err;
    assert_int_equal(file_read(path, PROFILES_FILE_BYTES_MAX, &bytes, &err), OK);
    return bytes;
}

static void assert_lost(const char *bytes, size_t n, const char *says)
{
    file_write(bytes, n);
    struct store *store = open_store();
    if (strstr(store_lost(store), says) == NULL)
        fail_msg("'%s' does not say '%s'", store_lost(store), says);
    assert_serving(store, "balanced", "balanced");
    struct switch_event events[SWITCH_EVENTS_MAX];
    assert_int_equal(store_history(store, events), 1);
    assert_int_equal(events[0].kind, SWITCH_LOST);
    assert_int_equal(access(aside, F_OK), 0);
    store = reopen(store);
    assert_string_equal(store_lost(store), "");
    store_close(store);
}

static struct buf sample(void)
{
    struct store *store = open_store();
    GOOD(store_copy(store, "fast", "mine", &err_));
    GOOD(store_note(store, SWITCH_SET, "mine", &err_));
    store_close(store);
    return file_bytes();
}

static void test_damaged(void **state)
{
    (void)state;
    struct buf bytes = sample();
    for (size_t i = 0; i < bytes.len; i += 7) { /* each place of a line, in one line or another */
        bytes.data[i] ^= 1;
        assert_lost(bytes.data, bytes.len, "profiles: ");
        bytes.data[i] ^= 1;
    }
    for (size_t n = 0; n < bytes.len; n += 13)
        assert_lost(bytes.data, n, "checksum");
    file_write(bytes.data, bytes.len);
    struct store *store = open_store(); /* and whole it is good */
    assert_string_equal(store_lost(store), "");
    assert_serving(store, "mine", "balanced");
    store_close(store);
    buf_free(&bytes);
}

/* Whoever can write a sum can write the lines: they are checked all the same. */
static void assert_line_refused(const char *lines, const char *says)
{
    struct buf text = {0};
    uint8_t hash[32];
    char hex[65];
    buf_puts(&text, lines);
    crypto_hash_sha256(hash, (const unsigned char *)text.data, text.len);
    for (int i = 0; i < 32; i++)
        snprintf(hex + 2 * i, 3, "%02x", hash[i]);
    buf_printf(&text, "sum %s\n", hex);
    assert_lost(text.data, text.len, says);
    buf_free(&text);
}

#define HEAD "v4box-profiles 1\n"

static void test_hostile_lines(void **state)
{
    (void)state;
    static const struct {
        const char *lines, *says;
    } CASES[] = {
        {"v4box-profiles 2\nserve fast fast\n", "line 1: is not"},
        {HEAD "serve fast\n", "line 2: is no line"},
        {HEAD "serve fast fast fast fast fast fast\n", "line 2: is no line"},
        {HEAD "serve  fast\n", "line 2: is no line"},
        {HEAD "\nserve fast fast\n", "line 2: is no line"},
        {HEAD "serve fast nobody\n", "line 2: no profile"},
        {HEAD "serve fast fast\nserve fast fast\n", "line 3: what serves is there twice"},
        {HEAD "trial nobody\n", "line 2: the trial"},
        {HEAD "profile fast\n", "built in"},
        {HEAD "profile a\nprofile a\n", "line 3: a profile is there twice"},
        {HEAD "profile a/b\n", "the name of a profile"},
        {HEAD "row hc.mix bf16\n", "in front of all"},
        {HEAD "profile a\nrow hc.mux bf16\n", "line 3: no row"},
        {HEAD "profile a\nrow hc.mix fp9\n", "line 3: the row has no such value"},
        {HEAD "profile a\nrow moe.clamp off\n", "line 3: the row has no such value"},
        {HEAD "profile a\nrow hc.mix bf16\nrow hc.mix bf16\n", "line 4: the row is there twice"},
        {HEAD "event 12x set a b\n", "the time"},
        {HEAD "event 9999999999999999 set a b\n", "the time"},
        {HEAD "event 12 sat a b\n", "this kind"},
        {HEAD "event 12 set a/ b\n", "the name"},
        {HEAD "profile a\n", "does not say what serves"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++)
        assert_line_refused(CASES[i].lines, CASES[i].says);
    struct buf many = {0};
    buf_puts(&many, HEAD);
    for (int i = 0; i <= SWITCH_EVENTS_MAX; i++)
        buf_puts(&many, "event 12 set a b\n");
    assert_line_refused(buf_cstr(&many), "one event too many");
    many.len = 0;
    buf_puts(&many, HEAD);
    for (int i = 0; i < PROFILES_MAX; i++)
        buf_printf(&many, "profile a%d\n", i);
    assert_line_refused(buf_cstr(&many), "one profile too many");
    buf_free(&many);
}

static void test_not_a_file(void **state)
{
    (void)state;
    struct store *store;
    struct error err = {0};
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(store_open(path, "balanced", &store, &err), ERR_IO);
    assert_int_equal(rmdir(path), 0);
    char *large = calloc(1, PROFILES_FILE_BYTES_MAX + 1);
    assert_lost(large, PROFILES_FILE_BYTES_MAX + 1, "larger than");
    free(large);
}

/* ---- a disk that is full, a power cut ---------------------------------------------------------
 */

static void test_full_disk(void **state)
{
    (void)state;
    struct buf before = sample();
    struct store *store = open_store();
    struct rlimit old, small = {100, RLIM_INFINITY};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small.rlim_max = old.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    struct error err = {0};
    enum status copied = store_copy(store, "fast", "more", &err);
    struct error set_err = {0}, expired_err = {0};
    enum status set = store_note(store, SWITCH_SET, "official", &set_err);
    enum status expired = store_note(store, SWITCH_EXPIRED, "mine", &expired_err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(copied, ERR_IO);
    assert_non_null(strstr(err.text, "cannot write"));
    assert_int_equal(set, ERR_IO);
    assert_int_equal(expired, ERR_IO);
    struct profile p;
    assert_false(store_find(store, "more", &p));
    assert_serving(store, "mine", "balanced");
    struct buf after = file_bytes();
    assert_int_equal(after.len, before.len);
    assert_memory_equal(after.data, before.data, before.len);
    assert_int_equal(access(temp, F_OK), -1);
    store_close(store);
    buf_free(&before);
    buf_free(&after);
}

/* A writer that switches and changes without end. */
static void write_on(void)
{
    struct store *store = open_store();
    struct error err;
    for (int i = 0;; i++) {
        if (store_note(store, SWITCH_SET, i % 2 == 0 ? "fast" : "official", &err) != OK ||
            store_copy(store, "fast", "mine", &err) != OK ||
            store_row(store, "mine", "hc.mix", "fp32", &err) != OK ||
            store_delete(store, "mine", &err) != OK)
            _exit(1);
    }
}

static void test_cut_while_writing(void **state)
{
    (void)state;
    struct store *store = open_store();
    GOOD(store_note(store, SWITCH_SET, "fast", &err_));
    store_close(store);
    for (int i = 0; i < CUTS; i++) {
        int status;
        pid_t writer = fork();
        if (writer == 0)
            write_on();
        nanosleep(&(struct timespec){0, 3000000 + i * 700000}, NULL);
        assert_int_equal(kill(writer, SIGKILL), 0);
        assert_int_equal(waitpid(writer, &status, 0), writer);
        assert_true(WIFSIGNALED(status));
        struct profile p;
        store = open_store();
        assert_string_equal(store_lost(store), "");
        store_serving(store, &p, &p);
        if (store_find(store, "mine", &p))
            GOOD(store_delete(store, "mine", &err_));
        store_close(store);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_empty, clean),
        cmocka_unit_test_teardown(test_own, clean),
        cmocka_unit_test_teardown(test_refusals, clean),
        cmocka_unit_test_teardown(test_in_use, clean),
        cmocka_unit_test_teardown(test_bounded, clean),
        cmocka_unit_test_teardown(test_switching, clean),
        cmocka_unit_test_teardown(test_trial_cut_by_restart, clean),
        cmocka_unit_test_teardown(test_damaged, clean),
        cmocka_unit_test_teardown(test_hostile_lines, clean),
        cmocka_unit_test_teardown(test_not_a_file, clean),
        cmocka_unit_test_teardown(test_full_disk, clean),
        cmocka_unit_test_teardown(test_cut_while_writing, clean),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
