/*
 * The keys file: what is accepted and refused, line by line; that a key once made is found, that
 * nothing else is, and that a change is whole or not at all.
 */
#include "engine/api/keys.h"
#include "engine/base/clock.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* printf %s SECRET | sha256sum */
#define SECRET "ds_aB3dEf7h_0123456789abcdefghijklmnopqrstuv"
#define HASH   "25681605661845865aa4eef4fc0e2f364b0a4f84e35c24b6c131b138b8a4d05f"
#define LINE   "aB3dEf7h " HASH " laptop\n"

/* The clock, held and moved by the tests. */
static int64_t now_ms;
int64_t clock_ms(void)
{
    return now_ms;
}

static char folder[] = "/tmp/v4box-keys-XXXXXX";
static char path[64], temp[64];

static int setup(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL)
        return -1;
    snprintf(path, sizeof path, "%s/keys", folder);
    snprintf(temp, sizeof temp, "%s/keys.new", folder);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder); /* fails when a temporary file was left */
}

static void file_put(const char *text, size_t len)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, len, file), len);
    fclose(file);
}

static char *file_get(void)
{
    static char text[KEYS_FILE_BYTES_MAX + 1];
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    return text;
}

static struct keys *open_good(void)
{
    struct keys *keys = NULL;
    struct error err;
    if (keys_open(path, &keys, &err) != OK)
        fail_msg("%s", err.text);
    return keys;
}

static bool check(struct keys *keys, const char *secret)
{
    struct key key;
    return keys_check(keys, secret, strlen(secret), &key);
}

static void test_missing_file(void **state)
{
    (void)state;
    unlink(path);
    struct keys *keys = open_good();
    struct key list[KEYS_MAX], key;
    assert_int_equal(keys_list(keys, list), 0);
    assert_false(check(keys, SECRET));
    assert_int_not_equal(access(path, F_OK), 0); /* opening makes nothing */

    char secret[KEY_SECRET_CHARS + 1];
    struct error err;
    assert_int_equal(keys_create(keys, "first", &key, secret, &err), OK);
    assert_true(check(keys, secret));
    keys_close(keys);
    keys = open_good();
    assert_true(check(keys, secret));
    keys_close(keys);
}

static void test_file_form(void **state)
{
    (void)state;
    file_put("# made by hand\n\n" LINE, strlen("# made by hand\n\n" LINE));
    struct keys *keys = open_good();
    struct key key = {0};
    assert_true(keys_check(keys, SECRET, strlen(SECRET), &key));
    assert_string_equal(key.id, "aB3dEf7h");
    assert_string_equal(key.name, "laptop");
    /* base 62, digits then capitals then small letters */
    static const int DIGITS[] = {36, 11, 3, 39, 14, 41, 7, 43};
    uint64_t number = 0;
    for (int i = 0; i < 8; i++)
        number = number * 62 + (uint64_t)DIGITS[i];
    assert_int_equal(key.number, number + 1);
    keys_close(keys);
}

static void test_malformed(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says; /* says: the line and the start of the reason */
    } CASES[] = {
        {"aB3dEf7h\n", "line 1: is not"},
        {LINE LINE, "line 2: ID is there twice"},
        {"# one\n\naB3dEf7 0 x\n", "line 3: ID"},
        {"aB3dEf7hh 0 x\n", "line 1: ID"},
        {"aB3dEf7- 0 x\n", "line 1: ID"},
        {" aB3dEf7h 0 x\n", "line 1: ID"},
        {"aB3dEf7h 0\n", "line 1: is not"},
        {"aB3dEf7h 0 x\n", "line 1: SHA256HEX"},
        {"aB3dEf7h 89B31e5d3f00e9d6af0ba3e2fe7f23f8c9d5e1c0b3e0e5ddc6a3aa7f3aa6d8b2 x\n",
         "line 1: SHA256HEX"},
        {"aB3dEf7h " HASH " \n", "line 1: NAME"},
        {"aB3dEf7h " HASH " a b\n", "line 1: what follows NAME"},
        {"aB3dEf7h " HASH " a \n", "line 1: what follows NAME"},
        {"aB3dEf7h " HASH " a  rate=1\n", "line 1: what follows NAME"},
        {"aB3dEf7h " HASH " a speed=1\n", "line 1: what follows NAME"},
        {"aB3dEf7h " HASH " a rate=1 rate=2\n", "line 1: a limit is there twice"},
        {"aB3dEf7h " HASH " a rate=0\n", "line 1: a limit has a value"},
        {"aB3dEf7h " HASH " a rate=1 \n", "line 1: what follows NAME"},
        {"aB3dEf7h " HASH " a rate=1\r\n", "line 1: a limit has a value"},
        {"aB3dEf7h " HASH " x\r\n", "line 1: NAME"},
        {"#\naB3dEf7h " HASH " x", "line 2: has no end"},
        {"\r\n", "line 1: is not"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        file_put(CASES[i].text, strlen(CASES[i].text));
        struct keys *keys = NULL;
        struct error err;
        assert_int_equal(keys_open(path, &keys, &err), ERR_INPUT);
        assert_null(keys);
        assert_memory_equal(err.text, path, strlen(path));
        const char *says = err.text + strlen(path) + 2;
        if (strncmp(says, CASES[i].says, strlen(CASES[i].says)) != 0)
            fail_msg("case %zu: %s", i, err.text);
    }
    file_put("\0\n", 2);
    struct keys *keys = NULL;
    struct error err;
    assert_int_equal(keys_open(path, &keys, &err), ERR_INPUT);
    assert_int_not_equal(keys_open(folder, &keys, &err), OK); /* a folder */
}

/* Every cut of a good file, and every byte of it replaced, is accepted or refused, nothing else. */
static void test_hostile_bytes(void **state)
{
    (void)state;
    static const char GOOD[] = "# c\naB3dEf7h " HASH " laptop rate=5 expires=2027-01-31\n";
    static const char BYTES[] = {0, '\n', ' ', '#', (char)0xff, 'z'};
    int accepted = 0;
    struct error err;
    for (size_t i = 0; i < sizeof GOOD; i++) {
        struct keys *keys = NULL;
        file_put(GOOD, i);
        if (keys_open(path, &keys, &err) == OK) {
            accepted++;
            keys_close(keys);
        }
        for (size_t b = 0; b < sizeof BYTES && i < sizeof GOOD - 1; b++) {
            char text[sizeof GOOD];
            memcpy(text, GOOD, sizeof text);
            text[i] = BYTES[b];
            file_put(text, sizeof text - 1);
            keys = NULL;
            if (keys_open(path, &keys, &err) == OK)
                keys_close(keys);
        }
    }
    assert_int_equal(accepted, 3); /* empty, the comment alone, all */
}

static void test_check(void **state)
{
    (void)state;
    file_put(LINE, strlen(LINE));
    struct keys *keys = open_good();
    assert_true(check(keys, SECRET));
    char wrong[KEY_SECRET_CHARS + 2];
    for (size_t i = 0; i < KEY_SECRET_CHARS; i++) {
        memcpy(wrong, SECRET, sizeof SECRET);
        wrong[i] = wrong[i] == 'x' ? 'y' : 'x';
        assert_false(check(keys, wrong));
        wrong[i] = '\0'; /* also as a shorter string */
        assert_false(check(keys, wrong));
        struct key key;
        assert_false(keys_check(keys, wrong, KEY_SECRET_CHARS, &key));
    }
    assert_false(check(keys, SECRET "x"));
    assert_false(check(keys, ""));
    struct key key;
    assert_false(keys_check(keys, NULL, 0, &key));
    char *large = malloc(1 << 20);
    memset(large, 'a', 1 << 20);
    memcpy(large, SECRET, KEY_SECRET_CHARS);
    assert_false(keys_check(keys, large, 1 << 20, &key));
    free(large);
    keys_close(keys);
}

static void test_create_and_delete(void **state)
{
    (void)state;
    file_put("# kept\n" LINE, strlen("# kept\n" LINE));
    chmod(path, 0644);
    struct keys *keys = open_good();
    struct key made, list[KEYS_MAX];
    char secret[KEY_SECRET_CHARS + 1];
    struct error err;
    assert_int_equal(keys_create(keys, "desk", &made, secret, &err), OK);
    assert_int_equal(strlen(secret), KEY_SECRET_CHARS);
    assert_memory_equal(secret, "ds_", 3);
    assert_memory_equal(secret + 3, made.id, KEY_ID_CHARS);
    assert_string_equal(made.name, "desk");
    assert_true(check(keys, secret) && check(keys, SECRET));
    assert_int_equal(keys_list(keys, list), 2);
    assert_string_equal(list[0].id, "aB3dEf7h");
    assert_string_equal(list[1].id, made.id);
    assert_int_equal(list[1].number, made.number);

    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_not_equal(access(temp, F_OK), 0);
    assert_memory_equal(file_get(), "# kept\n" LINE, strlen("# kept\n" LINE));
    assert_null(strstr(file_get(), secret)); /* the secret is nowhere */
    assert_null(strstr(file_get(), secret + 12));

    assert_int_equal(keys_delete(keys, "aB3dEf7h", &err), OK);
    assert_false(check(keys, SECRET));
    assert_true(check(keys, secret));
    assert_null(strstr(file_get(), "laptop"));
    assert_memory_equal(file_get(), "# kept\n", 7);
    assert_int_equal(keys_delete(keys, "aB3dEf7h", &err), ERR_INPUT);
    assert_int_equal(keys_delete(keys, "# kept", &err), ERR_INPUT);
    assert_int_equal(keys_delete(keys, "", &err), ERR_INPUT);
    assert_int_equal(keys_delete(keys, made.id, &err), OK);
    assert_int_equal(keys_list(keys, list), 0);
    assert_string_equal(file_get(), "# kept\n");
    keys_close(keys);
}

static void test_names(void **state)
{
    (void)state;
    static const char *const BAD[] = {
        "",
        "a b",
        "a\n",
        "\x7f",
        "ü",
        "a\tb",
        "12345678901234567890123456789012345678901234567890123456789012345"};
    unlink(path);
    struct keys *keys = open_good();
    struct key key;
    char secret[KEY_SECRET_CHARS + 1] = "untouched";
    struct error err;
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++)
        assert_int_equal(keys_create(keys, BAD[i], &key, secret, &err), ERR_INPUT);
    assert_string_equal(secret, "untouched");
    assert_int_not_equal(access(path, F_OK), 0);
    assert_int_equal(keys_create(keys, BAD[6] + 1, &key, secret, &err), OK);
    assert_int_equal(keys_create(keys, "#\"\\'<>;", &key, secret, &err), OK);
    keys_close(keys);
    keys = open_good();
    assert_true(check(keys, secret));
    keys_close(keys);
}

static void test_capacity(void **state)
{
    (void)state;
    unlink(path);
    struct keys *keys = open_good();
    struct key list[KEYS_MAX], key;
    char secret[KEY_SECRET_CHARS + 1];
    struct error err;
    char name[KEY_NAME_BYTES_MAX + 1];
    memset(name, 'n', KEY_NAME_BYTES_MAX);
    name[KEY_NAME_BYTES_MAX] = '\0';
    for (int i = 0; i < KEYS_MAX; i++)
        assert_int_equal(keys_create(keys, name, &key, secret, &err), OK);
    assert_int_equal(keys_create(keys, "more", &key, secret, &err), ERR_CAPACITY);
    assert_int_equal(keys_list(keys, list), KEYS_MAX);
    for (int i = 0; i < KEYS_MAX; i++) {
        for (int j = 0; j < i; j++)
            assert_int_not_equal(list[i].number, list[j].number);
    }
    assert_true(check(keys, secret));
    keys_close(keys);
    keys = open_good();
    assert_int_equal(keys_delete(keys, key.id, &err), OK);
    keys_close(keys);
}

/* A change works on the file as it is by now; one that can not be read or written changes nothing.
 */
/* The key of the box's own test opens the API, stands nowhere, and goes by itself. */
static void test_pass(void **state)
{
    (void)state;
    struct keys *keys;
    struct key key, listed[KEYS_MAX];
    char first[KEY_SECRET_CHARS + 1], second[KEY_SECRET_CHARS + 1];
    struct error err;
    file_put(LINE, strlen(LINE));
    now_ms = 1000;
    assert_int_equal(keys_open(path, &keys, &err), OK);
    assert_false(keys_check(keys, "ds_00000000_", 12, &key)); /* none was made yet */
    keys_pass(keys, first);
    assert_int_equal(strlen(first), KEY_SECRET_CHARS);
    assert_true(keys_check(keys, first, KEY_SECRET_CHARS, &key));
    assert_string_equal(key.name, "self-test");
    assert_memory_equal(key.id, first + 3, KEY_ID_CHARS);
    assert_true(keys_check(keys, SECRET, KEY_SECRET_CHARS, listed));
    assert_int_equal(keys_list(keys, listed), 1);
    assert_string_equal(file_get(), LINE);
    assert_int_equal(keys_delete(keys, key.id, &err), ERR_INPUT);
    assert_int_equal(keys_limit(keys, "aB3dEf7h", "rate", "5", &err), OK); /* it outlives changes */
    assert_true(keys_check(keys, first, KEY_SECRET_CHARS, &key));
    first[KEY_SECRET_CHARS - 1] ^= 1;
    assert_false(keys_check(keys, first, KEY_SECRET_CHARS, &key));
    first[KEY_SECRET_CHARS - 1] ^= 1;

    keys_pass(keys, second);
    assert_false(keys_check(keys, first, KEY_SECRET_CHARS, &key));
    assert_true(keys_check(keys, second, KEY_SECRET_CHARS, &key));
    now_ms += KEY_PASS_MS - 1;
    assert_true(keys_check(keys, second, KEY_SECRET_CHARS, &key));
    now_ms++;
    assert_false(keys_check(keys, second, KEY_SECRET_CHARS, &key));
    keys_close(keys);
    unlink(path);
}

static void test_edited_file(void **state)
{
    (void)state;
    unlink(path);
    struct keys *keys = open_good();
    struct key key;
    char secret[KEY_SECRET_CHARS + 1], other[KEY_SECRET_CHARS + 1];
    struct error err;
    assert_int_equal(keys_create(keys, "one", &key, secret, &err), OK);
    file_put("nonsense\n", 9);
    assert_true(check(keys, secret)); /* looked at only when a key is made or deleted */
    assert_int_equal(keys_create(keys, "two", &key, other, &err), ERR_INPUT);
    assert_int_equal(keys_delete(keys, key.id, &err), ERR_INPUT);
    assert_string_equal(file_get(), "nonsense\n");
    assert_true(check(keys, secret));

    file_put(LINE, strlen(LINE));
    assert_int_equal(keys_create(keys, "two", &key, other, &err), OK);
    assert_false(check(keys, secret)); /* its line had been taken out by hand */
    assert_true(check(keys, SECRET) && check(keys, other));

    /* A folder in place of the temporary file: nothing can be written. */
    assert_int_equal(mkdir(temp, 0700), 0);
    assert_int_equal(keys_create(keys, "three", &key, secret, &err), ERR_IO);
    assert_int_equal(keys_delete(keys, "aB3dEf7h", &err), ERR_IO);
    assert_int_equal(rmdir(temp), 0);
    assert_true(check(keys, SECRET) && check(keys, other));

    /* A link in its place is replaced, not followed. */
    char aim[64];
    snprintf(aim, sizeof aim, "%s/aim", folder);
    assert_int_equal(symlink(aim, temp), 0);
    assert_int_equal(keys_delete(keys, "aB3dEf7h", &err), OK);
    assert_int_not_equal(access(aim, F_OK), 0);
    keys_close(keys);
}

/* Limits are kept in the file, beside everything else in it, and one at a time. */
static void test_limits(void **state)
{
    (void)state;
    static const char OTHER[] = "zzzzzzzz " HASH " other rate=7\n";
    char text[1024];
    snprintf(text, sizeof text, "# one\n" LINE "%s# two\n", OTHER);
    file_put(text, strlen(text));
    struct keys *keys = open_good();
    struct key key;
    struct error err;
    static const struct {
        const char *word, *value, *line;
    } STEPS[] = {
        {"concurrent", "3", " concurrent=3"},
        {"rate", "60", " rate=60 concurrent=3"}, /* in the order of the table */
        {"rate", "61", " rate=61 concurrent=3"},
        {"expires", "9999-12-31", " rate=61 concurrent=3 expires=9999-12-31"},
        {"rate", NULL, " concurrent=3 expires=9999-12-31"},
        {"tokens", NULL, " concurrent=3 expires=9999-12-31"},
        {"concurrent", NULL, " expires=9999-12-31"},
        {"profiles", "yes", " expires=9999-12-31 profiles=yes"},
    };
    for (size_t i = 0; i < sizeof STEPS / sizeof STEPS[0]; i++) {
        assert_int_equal(keys_limit(keys, "aB3dEf7h", STEPS[i].word, STEPS[i].value, &err), OK);
        snprintf(text, sizeof text, "# one\naB3dEf7h " HASH " laptop%s\n%s# two\n", STEPS[i].line,
                 OTHER);
        assert_string_equal(file_get(), text);
        assert_true(keys_check(keys, SECRET, strlen(SECRET), &key));
    }
    assert_int_equal(key.limits.values[KEY_PROFILES], 1);
    assert_int_equal(key.limits.values[KEY_RATE], 0);
    static const struct {
        const char *id, *word, *value;
    } WRONG[] = {{"aB3dEf7i", "rate", "1"},
                 {"aB3d", "rate", "1"},
                 {"aB3dEf7h", "speed", "1"},
                 {"aB3dEf7h", "rate", "0"},
                 {"aB3dEf7h", "rate", "1\n"}};
    for (size_t i = 0; i < sizeof WRONG / sizeof WRONG[0]; i++)
        assert_int_equal(keys_limit(keys, WRONG[i].id, WRONG[i].word, WRONG[i].value, &err),
                         ERR_INPUT);
    assert_string_equal(file_get(), text);

    /* Disabled and expired keys are unknown ones. */
    assert_int_equal(keys_limit(keys, "aB3dEf7h", "disabled", "yes", &err), OK);
    assert_false(check(keys, SECRET));
    assert_int_equal(keys_limit(keys, "aB3dEf7h", "disabled", NULL, &err), OK);
    assert_true(check(keys, SECRET));
    assert_int_equal(keys_limit(keys, "aB3dEf7h", "expires", "2001-01-01", &err), OK);
    assert_false(check(keys, SECRET));
    keys_close(keys);
}

/* What is sealed for a key is sealed with more than the file has. */
static void test_seal(void **state)
{
    (void)state;
    file_put(LINE, strlen(LINE));
    struct keys *keys = open_good();
    struct key key, again, list[KEYS_MAX], other;
    char secret[KEY_SECRET_CHARS + 1];
    struct error err;
    static const uint8_t NOTHING[SEAL_KEY_BYTES];
    assert_true(keys_check(keys, SECRET, strlen(SECRET), &key));
    assert_int_equal(keys_create(keys, "other", &other, secret, &err), OK);
    assert_true(keys_check(keys, secret, strlen(secret), &other));
    assert_memory_not_equal(key.seal, other.seal, SEAL_KEY_BYTES);
    keys_close(keys);
    keys = open_good(); /* the same after a restart */
    assert_true(keys_check(keys, SECRET, strlen(SECRET), &again));
    assert_memory_equal(key.seal, again.seal, SEAL_KEY_BYTES);
    assert_int_equal(keys_list(keys, list), 2);
    assert_memory_equal(list[0].seal, NOTHING, SEAL_KEY_BYTES);
    keys_close(keys);
}

static struct keys *shared;

static void *hammer(void *context)
{
    (void)context;
    size_t found = 0;
    for (int i = 0; i < 3000; i++)
        found += check(shared, SECRET);
    return (void *)found;
}

/* While others look up, keys come and go; the one that stays is always found. */
static void test_threads(void **state)
{
    (void)state;
    file_put(LINE, strlen(LINE));
    shared = open_good();
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, hammer, NULL), 0);
    for (int i = 0; i < 20; i++) {
        struct key key;
        char secret[KEY_SECRET_CHARS + 1];
        struct error err;
        assert_int_equal(keys_create(shared, "guest", &key, secret, &err), OK);
        assert_true(check(shared, secret));
        assert_int_equal(keys_delete(shared, key.id, &err), OK);
        assert_false(check(shared, secret));
    }
    for (int i = 0; i < 2; i++) {
        void *found;
        pthread_join(threads[i], &found);
        assert_int_equal((size_t)found, 3000);
    }
    keys_close(shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_missing_file), cmocka_unit_test(test_file_form),
        cmocka_unit_test(test_malformed),    cmocka_unit_test(test_hostile_bytes),
        cmocka_unit_test(test_check),        cmocka_unit_test(test_create_and_delete),
        cmocka_unit_test(test_names),        cmocka_unit_test(test_capacity),
        cmocka_unit_test(test_pass),         cmocka_unit_test(test_edited_file),
        cmocka_unit_test(test_threads),      cmocka_unit_test(test_limits),
        cmocka_unit_test(test_seal),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
