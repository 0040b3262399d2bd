/* The time from the network: answers that are none, and what is made of those that are. */
#include "init/sntp.h"

#include "config/box.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define COOKIE UINT64_C(0x0123456789abcdef)
#define NOW_US (INT64_C(1795000000) * 1000000) /* 2026-11-18 */
#define SECOND INT64_C(1000000)

static void put64(uint8_t *p, uint64_t value)
{
    for (int i = 0; i < 8; i++)
        p[i] = (uint8_t)(value >> (56 - 8 * i));
}

static uint64_t stamp(int64_t us)
{
    uint64_t second = (uint64_t)(us / SECOND + 2208988800) & 0xffffffff;
    return second << 32 | ((uint64_t)(us % SECOND) << 32) / SECOND;
}

/* As a server of stratum 2 answers whose clock shows these times. */
static void answer(uint8_t packet[SNTP_BYTES], int64_t there_us, int64_t back_us)
{
    memset(packet, 0, SNTP_BYTES);
    packet[0] = 4 << 3 | 4;
    packet[1] = 2;
    put64(packet + 24, COOKIE);
    put64(packet + 32, stamp(there_us));
    put64(packet + 40, stamp(back_us));
}

static enum sntp_result judge(struct sntp_sample *out, const uint8_t *packet, int64_t took_us)
{
    return sntp_answer(out, packet, SNTP_BYTES, COOKIE, NOW_US, NOW_US + took_us);
}

static void a_question_tells_nothing_but_its_cookie(void **state)
{
    (void)state;
    uint8_t packet[SNTP_BYTES], wanted[SNTP_BYTES] = {0x23};
    put64(wanted + 40, COOKIE);
    sntp_question(packet, COOKIE);
    assert_memory_equal(packet, wanted, sizeof packet);
}

static void offset_and_delay_are_right(void **state)
{
    (void)state;
    uint8_t packet[SNTP_BYTES];
    struct sntp_sample out;
    /* The clock is 3 s slow; 20 ms there, 5 ms at the server, 20 ms back. */
    answer(packet, NOW_US + 3 * SECOND + 20000, NOW_US + 3 * SECOND + 25000);
    assert_int_equal(judge(&out, packet, 45000), SNTP_GOOD);
    assert_in_range(out.offset_us, 3 * SECOND - 2, 3 * SECOND + 2);
    assert_in_range(out.delay_us, 39998, 40002);
    assert_int_equal(out.stratum, 2);
    /* And one that is a second fast. */
    answer(packet, NOW_US - SECOND + 500, NOW_US - SECOND + 500);
    assert_int_equal(judge(&out, packet, 1000), SNTP_GOOD);
    assert_in_range(-out.offset_us, SECOND - 2, SECOND + 2);
}

static void the_next_era_is_understood(void **state)
{
    (void)state;
    uint8_t packet[SNTP_BYTES];
    struct sntp_sample out;
    int64_t us = INT64_C(2200000000) * SECOND; /* 2039, when 32 bits have begun anew */
    answer(packet, us, us);
    assert_int_equal(sntp_answer(&out, packet, SNTP_BYTES, COOKIE, us, us), SNTP_GOOD);
    assert_in_range(out.offset_us + 1, 0, 2);
}

static void what_is_no_answer_changes_nothing(void **state)
{
    (void)state;
    uint8_t packet[SNTP_BYTES];
    struct sntp_sample out;
    answer(packet, NOW_US, NOW_US);
    assert_int_equal(judge(&out, packet, 0), SNTP_GOOD); /* the control */
    for (size_t n = 0; n < SNTP_BYTES; n++)
        assert_int_equal(sntp_answer(&out, packet, n, COOKIE, NOW_US, NOW_US), SNTP_FOREIGN);
    for (int bit = 0; bit < 64; bit++)
        assert_int_equal(
            sntp_answer(&out, packet, SNTP_BYTES, COOKIE ^ UINT64_C(1) << bit, NOW_US, NOW_US),
            SNTP_FOREIGN);
    for (int first = 0; first < 256; first++) {
        packet[0] = (uint8_t)first;
        int version = first >> 3 & 7;
        bool good = (first & 7) == 4 && (version == 3 || version == 4);
        enum sntp_result wanted = !good             ? SNTP_FOREIGN
                                  : first >> 6 == 3 ? SNTP_UNSYNCED
                                                    : SNTP_GOOD;
        assert_int_equal(judge(&out, packet, 0), wanted);
    }
}

static void servers_that_know_nothing_are_not_believed(void **state)
{
    (void)state;
    uint8_t packet[SNTP_BYTES];
    struct sntp_sample out;
    for (int stratum = 0; stratum < 256; stratum++) {
        answer(packet, NOW_US, NOW_US);
        packet[1] = (uint8_t)stratum;
        assert_int_equal(judge(&out, packet, 0), stratum == 0    ? SNTP_KISS
                                                 : stratum <= 15 ? SNTP_GOOD
                                                                 : SNTP_UNSYNCED);
    }
    answer(packet, NOW_US, NOW_US);
    packet[8 + 1] = 2; /* it says that it may be 2 s wrong */
    assert_int_equal(judge(&out, packet, 0), SNTP_UNSYNCED);
    answer(packet, NOW_US, NOW_US);
    packet[4] = 0x80; /* and of its way to the next one */
    assert_int_equal(judge(&out, packet, 0), SNTP_UNSYNCED);
}

static void times_that_can_not_be_are_refused(void **state)
{
    (void)state;
    uint8_t packet[SNTP_BYTES];
    struct sntp_sample out;
    const int64_t floor_us = CLOCK_FLOOR_S * SECOND, ceiling_us = CLOCK_CEILING_S * SECOND;
    static const struct {
        int64_t there_us, back_us, took_us;
    } BAD[] = {
        {NOW_US + 1000, NOW_US, 2000},  /* answered before it was asked */
        {NOW_US, NOW_US + 50000, 1000}, /* held longer than the whole took */
        {NOW_US, NOW_US, 2 * SECOND},   /* too slow to tell anything */
        {0, 0, 1000},                   /* 1970 */
        {NOW_US, 0, 1000},
    };
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        answer(packet, BAD[i].there_us, BAD[i].back_us);
        assert_int_equal(judge(&out, packet, BAD[i].took_us), SNTP_IMPLAUSIBLE);
    }
    answer(packet, floor_us - SECOND, floor_us - SECOND);
    assert_int_equal(judge(&out, packet, 1000), SNTP_IMPLAUSIBLE);
    answer(packet, floor_us, floor_us);
    assert_int_equal(judge(&out, packet, 1000), SNTP_GOOD);
    answer(packet, ceiling_us + SECOND, ceiling_us + SECOND);
    assert_int_equal(judge(&out, packet, 1000), SNTP_IMPLAUSIBLE);
}

static enum sntp_action decide(struct sntp_clock *c, int64_t offset_us)
{
    struct sntp_sample sample = {.offset_us = offset_us};
    return sntp_decide(c, &sample);
}

static void a_step_takes_two_answers(void **state)
{
    (void)state;
    struct sntp_clock c = {.right = false};
    assert_int_equal(decide(&c, 400 * SECOND), SNTP_WAIT);
    assert_int_equal(decide(&c, 700 * SECOND), SNTP_WAIT); /* not the same */
    assert_int_equal(decide(&c, 700 * SECOND + 1000), SNTP_STEP);
    assert_true(c.right);
    assert_int_equal(decide(&c, 100000), SNTP_SLEW);
    assert_int_equal(decide(&c, -20 * SECOND), SNTP_WAIT);
    assert_int_equal(decide(&c, 10), SNTP_SLEW); /* that one was alone */
    assert_int_equal(decide(&c, -20 * SECOND), SNTP_WAIT);
    assert_int_equal(decide(&c, -20 * SECOND), SNTP_STEP);
}

static void a_right_clock_is_not_sent_far_away(void **state)
{
    (void)state;
    struct sntp_clock c = {.right = false};
    assert_int_equal(decide(&c, 5000 * SECOND), SNTP_WAIT); /* a dead battery */
    assert_int_equal(decide(&c, 5000 * SECOND), SNTP_STEP);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(decide(&c, 5000 * SECOND), SNTP_REFUSE);
        assert_int_equal(decide(&c, -5000 * SECOND), SNTP_REFUSE);
    }
    assert_int_equal(decide(&c, 0), SNTP_SLEW);
}

static void typed_times_are_checked(void **state)
{
    (void)state;
    int64_t second;
    assert_true(sntp_parse_time("2026-11-30T12:00:00Z", &second));
    assert_int_equal(second, 1796040000);
    assert_true(sntp_parse_time("2028-02-29T23:59:59Z", &second));
    static const char *const BAD[] = {"",
                                      "2026-11-30",
                                      "2026-11-30T12:00:00",
                                      "2026-11-30 12:00:00Z",
                                      "2026-11-30T12:00:00ZZ",
                                      "2027-02-29T12:00:00Z",
                                      "2026-13-01T12:00:00Z",
                                      "2026-12-00T12:00:00Z",
                                      "2026-12-01T24:00:00Z",
                                      "2026-12-01T12:60:00Z",
                                      "1970-01-01T00:00:00Z",
                                      "9999-01-01T00:00:00Z",
                                      "2026-1-030T12:00:00Z",
                                      "-026-11-30T12:00:00Z"};
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++)
        assert_false(sntp_parse_time(BAD[i], &second));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_question_tells_nothing_but_its_cookie),
        cmocka_unit_test(offset_and_delay_are_right),
        cmocka_unit_test(the_next_era_is_understood),
        cmocka_unit_test(what_is_no_answer_changes_nothing),
        cmocka_unit_test(servers_that_know_nothing_are_not_believed),
        cmocka_unit_test(times_that_can_not_be_are_refused),
        cmocka_unit_test(a_step_takes_two_answers),
        cmocka_unit_test(a_right_clock_is_not_sent_far_away),
        cmocka_unit_test(typed_times_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
