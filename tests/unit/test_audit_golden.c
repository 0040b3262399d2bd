/* Golden files: distances from their rows, and files that are none. */
#include "engine/audit/golden.h"
#include "engine/base/buf.h"
#include "engine/model/logits.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define VOCAB 6
static const char WEIGHTS[] = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
static char path[] = "/tmp/v4box-golden-XXXXXX";

static const char GOOD[] =
    "{\"schema\": \"v4box-golden/1\", \"made\": {\"by\": \"a friend\", \"profile\": \"official\"}, "
    "\"model\": {\"name\": \"tiny\", \"weights\": "
    "\"00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\"}, "
    "\"ids\": [0, 5, 3], \"rows\": [{\"position\": 0, \"tail\": 0.25, \"top\": "
    "[[4, -0.6931471805599453], [1, -1.3862943611198906]]}, "
    "{\"position\": 2, \"tail\": 0, \"top\": [[2, 0]]}]}";

static enum status read_text(const char *text, size_t len, struct golden **out, struct error *err)
{
    struct golden_model model = {.name = "tiny", .vocab = VOCAB};
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, len, file), len);
    assert_int_equal(fclose(file), 0);
    memcpy(model.weights, WEIGHTS, sizeof WEIGHTS);
    return golden_read(path, &model, out, err);
}

static void distances(void **state)
{
    /* probabilities 1/2 and 1/4 for ids 4 and 1, 1/16 for each other one */
    static const float same[VOCAB] = {0, 1.38629436f, 0, 0, 2.07944154f, 0};
    static const float flat[VOCAB] = {0};
    static const float ill[VOCAB] = {NAN};
    struct golden *g = NULL;
    struct error err;
    double kl;
    bool top;
    (void)state;
    assert_int_equal(read_text(GOOD, sizeof GOOD - 1, &g, &err), OK);
    assert_string_equal(golden_made_by(g), "a friend");
    assert_string_equal(golden_profile(g), "official");
    assert_int_equal(golden_rows(g), 2);
    assert_int_equal(golden_ids(g)->len, 3);
    char hex[65], changed[sizeof GOOD + 1];
    memcpy(hex, golden_sha256(g), sizeof hex);
    assert_int_equal(strspn(hex, "0123456789abcdef"), 64);
    struct golden *other;
    snprintf(changed, sizeof changed, "%s ", GOOD); /* it says the same, and is another file */
    assert_int_equal(read_text(changed, sizeof GOOD, &other, &err), OK);
    assert_string_not_equal(hex, golden_sha256(other));
    golden_free(other);
    assert_true(golden_kl(g, 0, same, VOCAB, &kl, &top) && top && fabs(kl) < 1e-6);
    assert_true(golden_kl(g, 0, flat, VOCAB, &kl, &top) && !top);
    double want = 0.5 * log(0.5 * 6) + 0.25 * log(0.25 * 6) + 0.25 * log(0.25 * 6 / 4);
    assert_true(fabs(kl - want) < 1e-6);
    assert_true(kl <= logits_kl(same, flat, VOCAB)); /* what it does not tell apart costs nothing */
    assert_false(golden_kl(g, 1, flat, VOCAB, &kl, &top));
    assert_true(golden_kl(g, 2, flat, VOCAB, &kl, &top) && fabs(kl - log(6)) < 1e-6);
    assert_true(golden_kl(g, 2, ill, VOCAB, &kl, &top) && isinf(kl));
    golden_free(g);
    golden_free(NULL);
}

/* The good file with one text replaced. */
static void refused(const char *from, const char *to, const char *word)
{
    struct buf text = {0};
    struct golden *g = NULL;
    struct error err;
    const char *at = strstr(GOOD, from);
    assert_non_null(at);
    buf_add(&text, GOOD, (size_t)(at - GOOD));
    buf_puts(&text, to);
    buf_puts(&text, at + strlen(from));
    assert_int_equal(read_text(text.data, text.len, &g, &err), ERR_INPUT);
    assert_null(g);
    assert_non_null(strstr(err.text, path));
    assert_non_null(strstr(err.text, word));
    buf_free(&text);
}

static void files_that_are_none(void **state)
{
    static const char *const CASES[][3] = {
        {"golden/1", "golden/2", "schema"},
        {"\"a friend\"", "\"\"", "made.by"},
        {"\"a friend\"", "\"a\\u0000b\"", "made.by"},
        {"\"official\"", "\"quickest\"", "made.profile"},
        {"\"tiny\"", "\"flash\"", "model.name"},
        {"\"0011", "\"0012", "model.weights"},
        {"[0, 5, 3]", "[0]", "ids"},
        {"[0, 5, 3]", "[0, 6, 3]", "ids[1]"},
        {"[0, 5, 3]", "[0, -1, 3]", "ids[1]"},
        {"[0, 5, 3]", "{}", "ids"},
        {"\"rows\": [", "\"rows\": [7, ", "rows[0].position"},
        {"\"position\": 2", "\"position\": 0", "rows[1].position"},
        {"\"position\": 2", "\"position\": 3", "rows[1].position"},
        {"\"tail\": 0.25", "\"tail\": -0.25", "rows[0].tail"},
        {"\"tail\": 0.25", "\"tail\": \"0.25\"", "rows[0].tail"},
        {"\"tail\": 0.25", "\"tail\": 0.5", "rows[0].top and tail"},
        {"[[2, 0]]", "[]", "rows[1].top"},
        {"[[2, 0]]", "[[2, 0], [2, -9]]", "rows[1].top[1]"},
        {"[[2, 0]]", "[[2, 0.5]]", "rows[1].top[0]"},
        {"[[2, 0]]", "[[6, 0]]", "rows[1].top[0]"},
        {"[[2, 0]]", "[[2, 0, 0]]", "rows[1].top[0]"},
        {"[[4, -0.6931471805599453], [1, -1.3862943611198906]]",
         "[[1, -1.3862943611198906], [4, -0.6931471805599453]]", "rows[0].top[1]"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++)
        refused(CASES[i][0], CASES[i][1], CASES[i][2]);
}

/* Cut anywhere, and every byte another one: an error or a golden, never more than its text says. */
static void torn_and_changed(void **state)
{
    struct golden *g;
    struct error err;
    char text[sizeof GOOD];
    (void)state;
    for (size_t len = 0; len < sizeof GOOD - 1; len++)
        assert_int_equal(read_text(GOOD, len, &g, &err), ERR_INPUT);
    for (size_t i = 0; i < sizeof GOOD - 1; i++) {
        memcpy(text, GOOD, sizeof GOOD);
        text[i] = (char)(text[i] == '7' ? '1' : '7');
        if (read_text(text, sizeof GOOD - 1, &g, &err) == OK) {
            assert_in_range(golden_rows(g), 1, 3);
            golden_free(g);
        }
    }
    struct golden_model model = {.name = "tiny", .vocab = VOCAB};
    assert_int_equal(golden_read("/nowhere/golden.json", &model, &g, &err), ERR_IO);
    assert_non_null(strstr(err.text, "/nowhere/golden.json"));
}

static int make_file(void **state)
{
    int fd = mkstemp(path);
    (void)state;
    return fd < 0 || close(fd) != 0;
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(distances),
        cmocka_unit_test(files_that_are_none),
        cmocka_unit_test(torn_and_changed),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
