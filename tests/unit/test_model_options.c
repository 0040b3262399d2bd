/* Flags and token-id files of the commands that look into the network: what is taken and refused.
 */
#include "engine/model/options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

struct options {
    const char *text;
    int32_t number;
    bool on;
    struct profile profile;
    enum isa isa;
    int32_t few, n_each;
    const char *each[2];
};

/* `line`: the arguments behind the command's name, cut at '|'. */
static enum status parse(struct options *o, const char *line, struct error *err)
{
    static char words[256]; /* options point into it */
    struct flag_list list = {.texts = o->each, .max = 2};
    struct flag flags[] = {
        {"--text", FLAG_TEXT, &o->text, .required = true},
        {"--number", FLAG_NUMBER, &o->number, .required = false},
        {"--on", FLAG_SWITCH, &o->on, .required = false},
        {"--profile", FLAG_PROFILE, &o->profile, .required = false},
        {"--isa", FLAG_ISA, &o->isa, .required = false},
        {"--few", FLAG_NUMBER, &o->few, .max = 3},
        {"--each", FLAG_LIST, &list, .required = false},
    };
    char *argv[16] = {NULL};
    int argc = 1;
    assert_true(strlen(line) < sizeof words);
    strcpy(words, line);
    for (char *at = words; at != NULL && argc < 16;) {
        char *cut = strchr(at, '|');
        if (cut != NULL)
            *cut++ = '\0';
        if (cut != NULL || *at != '\0' || argc > 1)
            argv[argc++] = at;
        at = cut;
    }
    *o = (struct options){.number = 5};
    enum status status = flags_parse(argc, argv, flags, sizeof flags / sizeof *flags, err);
    o->n_each = list.n;
    return status;
}

static void test_flags(void **state)
{
    struct options o;
    struct error err;
    (void)state;
    assert_int_equal(parse(&o, "--on|--isa|avx2|--text|x|--profile|official|--number|0", &err), OK);
    assert_true(o.on && o.isa == ISA_AVX2 &&
                profile_equal(&o.profile, profile_builtin("official")) && o.number == 0);
    assert_string_equal(o.text, "x");
    assert_int_equal(parse(&o, "--text|", &err), OK);
    assert_true(!o.on && o.number == 5 && *o.text == '\0');
    assert_int_equal(parse(&o, "--each|a|--text|x|--few|3|--each|b", &err), OK);
    assert_true(o.few == 3 && o.n_each == 2 && *o.each[0] == 'a' && *o.each[1] == 'b');
}

static void test_flags_refused(void **state)
{
    static const struct {
        const char *line, *named;
    } BAD[] = {
        {"", "--text"},
        {"--text", "--text"},
        {"--text|a|--text|b", "--text"},
        {"--text|a|--what", "--what"},
        {"--text|a|word", "word"},
        {"--text|a|--number|x", "--number"},
        {"--text|a|--few|0", "--few: must be a number from 1 to 3"},
        {"--text|a|--few|4", "--few"},
        {"--text|a|--each|1|--each|2|--each|3", "--each: at most 2"},
        {"--text|a|--number|-1", "--number"},
        {"--text|a|--number|1x", "--number"},
        {"--text|a|--number| 1", "--number"},
        {"--text|a|--number|+1", "--number"},
        {"--text|a|--number|", "--number"},
        {"--text|a|--number|-", "--number"},
        {"--text|a|--number|99999999999999999999", "--number"},
        {"--text|a|--number|2147483648", "--number"},
        {"--text|a|--isa|sse", "--isa"},
        {"--text|a|--profile|exact", "--profile"},
        {"--text|a|--profile|official,hc.mix=bf17", "'hc.mix=bf17'"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        struct options o;
        struct error err = {0};
        if (parse(&o, BAD[i].line, &err) != ERR_USAGE)
            fail_msg("%s is taken", BAD[i].line);
        if (strstr(err.text, BAD[i].named) == NULL)
            fail_msg("%s does not name %s", err.text, BAD[i].named);
    }
}

/* The file's content to a temporary file, read back as ids below 100. */
static enum status read_ids(const char *content, size_t len, struct ids *ids, struct error *err)
{
    char path[] = "/tmp/v4box-ids-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, content, len), (ssize_t)len);
    close(fd);
    enum status status = ids_file_read(path, 100, ids, err);
    if (status != OK && strstr(err->text, path) == NULL)
        fail_msg("%s does not name the file", err->text);
    unlink(path);
    return status;
}

static void test_ids(void **state)
{
    static const char GOOD[] = " [0, 99,5 ]\n";
    struct error err = {0};
    (void)state;
    struct ids ids = {0};
    assert_int_equal(read_ids(GOOD, strlen(GOOD), &ids, &err), OK);
    assert_int_equal(ids.len, 3);
    assert_true(ids.data[0] == 0 && ids.data[1] == 99 && ids.data[2] == 5);
    ids_free(&ids);
    for (size_t len = 0; len < strlen(GOOD) - 2; len++) { /* cut anywhere: refused */
        ids = (struct ids){0};
        assert_int_equal(read_ids(GOOD, len, &ids, &err), ERR_INPUT);
        assert_int_equal(ids.len, 0);
    }
}

static void test_ids_refused(void **state)
{
    static const char *const BAD[] = {"[]",
                                      "{}",
                                      "5",
                                      "[100]",
                                      "[-1]",
                                      "[1.5]",
                                      "[1.0]",
                                      "[\"1\"]",
                                      "[[1]]",
                                      "[null]",
                                      "[true]",
                                      "[1,]",
                                      "[1] [2]",
                                      "[1e1]",
                                      "null",
                                      "[-0]",
                                      "[18446744073709551616]",
                                      "[4294967297]"};
    (void)state;
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        struct error err = {0};
        struct ids ids = {0};
        if (read_ids(BAD[i], strlen(BAD[i]), &ids, &err) != ERR_INPUT)
            fail_msg("%s is taken", BAD[i]);
    }
    struct error err = {0};
    struct ids ids = {0};
    assert_int_equal(ids_file_read("/no/such/file", 100, &ids, &err), ERR_IO);
    assert_non_null(strstr(err.text, "/no/such/file"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flags),
        cmocka_unit_test(test_flags_refused),
        cmocka_unit_test(test_ids),
        cmocka_unit_test(test_ids_refused),
    };
    return cmocka_run_group_tests_name("command options", tests, NULL, NULL);
}
