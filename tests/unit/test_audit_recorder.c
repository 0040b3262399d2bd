/* The flight recorder: what makes room for what, what is pinned, and what is forgotten. */
#include "engine/audit/recorder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Request `i`: its prompt is i, i + 1, .. of so many tokens. */
static void begin(struct recorder *r, int32_t i, int32_t n)
{
    struct recording what = {.time_s = i, .sampling = {.seed = (uint64_t)i}, .ended = true};
    struct ids prompt = {0};
    snprintf(what.id, sizeof what.id, "req_%06x", (unsigned)i);
    for (int32_t t = 0; t < n; t++)
        ids_add(&prompt, i + t);
    recorder_begin(r, &what, &prompt);
    ids_free(&prompt);
}

static void end(struct recorder *r, int32_t i)
{
    char id[RECORDING_ID_BYTES];
    struct ids answer = {0};
    snprintf(id, sizeof id, "req_%06x", (unsigned)i);
    ids_add(&answer, 1000 + i);
    recorder_end(r, id, &answer, 7);
    ids_free(&answer);
}

static enum status pin(struct recorder *r, int32_t i)
{
    char id[RECORDING_ID_BYTES];
    struct error err;
    snprintf(id, sizeof id, "chatcmpl-%06x", (unsigned)i);
    return recorder_pin(r, id, &err);
}

static void newest(void **state)
{
    struct recorder *r = recorder_create();
    const int32_t places = RECORDER_RECENT + RECORDER_PINS_MAX, n = places + 5;
    (void)state;
    for (int32_t i = 1; i <= n; i++)
        begin(r, i, 3);
    for (int32_t i = 1; i <= n - places; i++)
        assert_int_equal(pin(r, i), ERR_INPUT); /* made room */
    assert_int_equal(pin(r, n - places + 1), OK);
    begin(r, 99, RECORDING_TOKENS_MAX + 1); /* too long: makes nobody go */
    assert_int_equal(pin(r, 99), ERR_INPUT);
    assert_int_equal(pin(r, n - places + 2), OK);
    recorder_destroy(r);
}

/* Pins stay whatever comes; only so many can be. */
static void pins(void **state)
{
    struct recorder *r = recorder_create();
    struct recording list[RECORDER_PINS_MAX], one;
    struct error err;
    (void)state;
    assert_int_equal(recorder_list(r, list), 0);
    for (int32_t i = 1; i <= RECORDER_PINS_MAX; i++) {
        begin(r, i, i);
        assert_int_equal(pin(r, i), OK);
        assert_int_equal(pin(r, i), OK); /* it is already */
    }
    begin(r, 50, 2);
    assert_int_equal(pin(r, 50), ERR_CAPACITY);
    assert_int_equal(recorder_pin(r, "next", &err), ERR_CAPACITY);
    for (int32_t i = 100; i < 200; i++)
        begin(r, i, 2);
    assert_int_equal(recorder_get(r, "req_000002", &one, &err), ERR_INPUT); /* it runs still */
    end(r, 2);
    end(r, 2); /* told twice: the first one counts */
    assert_int_equal(recorder_get(r, "msg_000002", &one, &err), OK);
    assert_int_equal(one.prompt.len, 2);
    assert_int_equal(one.prompt.data[1], 3);
    assert_int_equal(one.answer.len, 1);
    assert_int_equal(one.answer.data[0], 1002);
    assert_int_equal(one.sampling.seed, 2);
    assert_int_equal(one.reused, 7);
    recording_clear(&one);
    assert_int_equal(recorder_list(r, list), RECORDER_PINS_MAX);
    for (int32_t i = 0; i < RECORDER_PINS_MAX; i++)
        assert_int_equal(list[i].time_s, i + 1);
    assert_int_equal(recorder_unpin(r, "000002", &err), OK);
    assert_int_equal(recorder_unpin(r, "000002", &err), ERR_INPUT);
    assert_int_equal(recorder_get(r, "000002", &one, &err), ERR_INPUT);
    assert_int_equal(recorder_list(r, list), RECORDER_PINS_MAX - 1);
    recorder_destroy(r);
}

static void next(void **state)
{
    struct recorder *r = recorder_create();
    struct recording list[RECORDER_PINS_MAX];
    struct error err;
    (void)state;
    begin(r, 1, 2);
    assert_int_equal(recorder_pin(r, "next", &err), OK);
    begin(r, 2, 2);
    begin(r, 3, 2);
    assert_int_equal(recorder_list(r, list), 1);
    assert_int_equal(list[0].time_s, 2);
    assert_int_equal(recorder_pin(r, "next", &err), OK);
    assert_int_equal(recorder_unpin(r, "next", &err), OK);
    begin(r, 4, 2);
    assert_int_equal(recorder_list(r, list), 1);
    assert_int_equal(recorder_pin(r, "", &err), ERR_INPUT);
    assert_int_equal(recorder_pin(r, "req_", &err), ERR_INPUT); /* no free place has this name */
    recorder_destroy(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(newest),
        cmocka_unit_test(pins),
        cmocka_unit_test(next),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
