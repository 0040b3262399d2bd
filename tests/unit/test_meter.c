/*
 * Limits of keys and addresses: what is let through, what is refused and for how long.  Time is the
 * test's own.
 */
#include "engine/api/meter.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define DAY_S 86400

static struct meter *meter;

static int open_meter(void **state)
{
    (void)state;
    meter = meter_create();
    return 0;
}

static int close_meter(void **state)
{
    (void)state;
    meter_destroy(meter);
    return 0;
}

static struct meter_time at(int64_t ms)
{
    return (struct meter_time){.ms = 1000000 + ms, .utc_s = 20000LL * DAY_S + ms / 1000};
}

static struct key key_with(uint64_t number, enum key_limit limit, int64_t value)
{
    struct key key = {.number = number};
    key.limits.values[limit] = value;
    return key;
}

/* A request that is over at once.  @return the error, API_OK when it was let through */
static enum api_code try(const struct key *key, int64_t ms, int32_t *retry_s)
{
    struct api_error err = {0};
    if (!meter_begin(meter, key, at(ms), &err)) {
        *retry_s = err.retry_s;
        return err.code;
    }
    meter_end(meter, key->number);
    return API_OK;
}

/* A minute's requests at once, then one each time the next has come in; the wait is exact. */
static void rate(void **state)
{
    struct key key = key_with(5, KEY_RATE, 6), other = key_with(6, KEY_RATE, 6);
    int32_t retry_s;
    (void)state;
    for (int i = 0; i < 6; i++)
        assert_int_equal(try(&key, 0, &retry_s), API_OK);
    assert_int_equal(try(&key, 0, &retry_s), API_RATE);
    assert_int_equal(retry_s, 10);
    assert_int_equal(try(&key, 9999, &retry_s), API_RATE);
    assert_int_equal(retry_s, 1);
    assert_int_equal(try(&other, 9999, &retry_s), API_OK); /* its own minute */
    assert_int_equal(try(&key, 10000, &retry_s), API_OK);
    assert_int_equal(try(&key, 10000, &retry_s), API_RATE);
    for (int i = 0; i < 6; i++) /* never more than a minute's */
        assert_int_equal(try(&key, 500000, &retry_s), API_OK);
    assert_int_equal(try(&key, 500000, &retry_s), API_RATE);
}

static void concurrent(void **state)
{
    struct key key = key_with(5, KEY_CONCURRENT, 2);
    struct api_error err;
    int32_t retry_s;
    (void)state;
    assert_true(meter_begin(meter, &key, at(0), &err));
    assert_true(meter_begin(meter, &key, at(0), &err));
    assert_int_equal(try(&key, 0, &retry_s), API_CONCURRENT);
    assert_int_equal(retry_s, 0); /* nobody knows: the table's */
    meter_end(meter, key.number);
    assert_int_equal(try(&key, 0, &retry_s), API_OK);
    meter_end(meter, key.number);
}

/* What was computed counts until midnight. */
static void tokens_of_a_day(void **state)
{
    struct key key = key_with(5, KEY_TOKENS, 100), other = key_with(6, KEY_TOKENS, 100);
    int32_t retry_s;
    (void)state;
    meter_tokens(meter, key.number, at(1000), 99);
    assert_int_equal(try(&key, 1000, &retry_s), API_OK);
    meter_tokens(meter, key.number, at(2000), 1);
    assert_int_equal(try(&key, 2000, &retry_s), API_TOKENS);
    assert_int_equal(retry_s, DAY_S - 2);
    assert_int_equal(try(&other, 2000, &retry_s), API_OK);
    assert_int_equal(try(&key, (DAY_S - 1) * 1000LL, &retry_s), API_TOKENS);
    assert_int_equal(retry_s, 1);
    assert_int_equal(try(&key, DAY_S * 1000LL, &retry_s), API_OK);
}

static void no_limits(void **state)
{
    struct key key = {.number = 9};
    int32_t retry_s;
    (void)state;
    meter_tokens(meter, key.number, at(0), INT64_C(1) << 50);
    for (int i = 0; i < 100000; i++)
        assert_int_equal(try(&key, 0, &retry_s), API_OK);
}

/* However many keys come and go, what runs is not forgotten. */
static void many_keys(void **state)
{
    struct key kept = key_with(1, KEY_CONCURRENT, 1);
    struct api_error err;
    int32_t retry_s;
    (void)state;
    assert_true(meter_begin(meter, &kept, at(0), &err));
    for (uint64_t i = 2; i < 5000; i++) {
        struct key key = key_with(i, KEY_RATE, 1);
        assert_int_equal(try(&key, (int64_t)i, &retry_s), API_OK);
        assert_int_equal(try(&key, (int64_t)i, &retry_s), API_RATE);
    }
    assert_int_equal(try(&kept, 5000, &retry_s), API_CONCURRENT);
    meter_end(meter, kept.number);
}

static enum api_code fail_from(const char *address, int64_t ms, int32_t *retry_s)
{
    struct api_error err = {0};
    assert_false(meter_failed(meter, address, strlen(address), at(ms), &err));
    *retry_s = err.retry_s;
    return err.code;
}

static void addresses(void **state)
{
    int32_t retry_s;
    (void)state;
    for (int i = 0; i < KEY_FAILURES_PER_MIN; i++)
        assert_int_equal(fail_from("a", 0, &retry_s), API_KEY);
    assert_int_equal(fail_from("a", 0, &retry_s), API_KEY_RATE);
    assert_int_equal(retry_s, 60 / KEY_FAILURES_PER_MIN);
    assert_int_equal(fail_from("b", 0, &retry_s), API_KEY);
    assert_int_equal(fail_from("", 0, &retry_s), API_KEY);
    for (int i = 0; i < 2 * KEY_FAILURE_ADDRESSES; i++) { /* the worst of them stays known */
        char address[16];
        snprintf(address, sizeof address, "c%d", i);
        assert_int_equal(fail_from(address, 0, &retry_s), API_KEY);
    }
    assert_int_equal(fail_from("a", 0, &retry_s), API_KEY_RATE);
    assert_int_equal(fail_from("a", 60000 / KEY_FAILURES_PER_MIN, &retry_s), API_KEY);
}

int main(void)
{
#define METERED(test) cmocka_unit_test_setup_teardown(test, open_meter, close_meter)
    const struct CMUnitTest tests[] = {
        METERED(rate),      METERED(concurrent), METERED(tokens_of_a_day),
        METERED(no_limits), METERED(many_keys),  METERED(addresses),
    };
    return cmocka_run_group_tests_name("meter", tests, NULL, NULL);
}
