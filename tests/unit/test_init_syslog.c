/* The log as messages of syslog, and where it may go. */
#include "init/syslog.h"

#include "config/box.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define START_US (INT64_C(1796040000) * 1000000) /* 2026-11-30T12:00:00Z */

static void targets_are_checked(void **state)
{
    (void)state;
    struct syslog_target t;
    assert_true(syslog_target_parse(&t, "192.0.2.7:514"));
    assert_false(t.tcp);
    assert_int_equal(t.address, htonl(0xc0000207));
    assert_int_equal(t.port, 514);
    assert_true(syslog_target_parse(&t, "tcp:192.0.2.7:65535"));
    assert_true(t.tcp);
    assert_int_equal(t.port, 65535);
    static const char *const BAD[] = {"",
                                      "192.0.2.7",
                                      "192.0.2.7:",
                                      "192.0.2.7:0",
                                      "192.0.2.7:65536",
                                      "192.0.2.7:5140000000000",
                                      "192.0.2.7:514x",
                                      ":514",
                                      "tcp:",
                                      "tcp:514",
                                      "udp:192.0.2.7:514",
                                      "192.0.2:514",
                                      "collector:514",
                                      "192.0.2.7:-1",
                                      "192.0.2.7: 514",
                                      "[::1]:514",
                                      "192.000.002.007.192.0.2:514"};
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++)
        assert_false(syslog_target_parse(&t, BAD[i]));
}

static const char *message(const char *line, bool tcp)
{
    static char bytes[SYSLOG_MESSAGE_BYTES + 8];
    struct text t = text_over(bytes, sizeof bytes);
    syslog_message(&t, line, strlen(line), "box7", START_US, tcp);
    assert_false(t.cut);
    return bytes;
}

static void lines_become_messages(void **state)
{
    (void)state;
    assert_string_equal(message("    61.250 engine: listening: on a socket", false),
                        "<134>1 2026-11-30T12:01:01.250Z box7 engine - - - listening: on a socket");
    assert_string_equal(message("     0.001 kernel: Linux version 6", false),
                        "<5>1 2026-11-30T12:00:00.001Z box7 kernel - - - Linux version 6");
    assert_string_equal(message("     0.001 kernel: x", true),
                        "49 <5>1 2026-11-30T12:00:00.001Z box7 kernel - - - x");
}

static void other_lines_are_sent_as_they_are(void **state)
{
    (void)state;
    assert_string_equal(message("no time", false), "<134>1 - box7 - - - - no time");
    assert_string_equal(message("", false), "<134>1 - box7 - - - - ");
    assert_string_equal(message("12 x: y", false), "<134>1 - box7 - - - - 12 x: y");
    assert_string_equal(message("     1.000 two words: y", false),
                        "<134>1 2026-11-30T12:00:01.000Z box7 - - - - two words: y");
}

/* The longest line and the longest names fit; every line stays one. */
static void the_longest_line_fits(void **state)
{
    (void)state;
    char line[LOG_LINE_BYTES + 1], host[HOST_NAME_BYTES + 1], bytes[SYSLOG_MESSAGE_BYTES + 8];
    memset(line, 'x', sizeof line - 1);
    line[sizeof line - 1] = '\0';
    memcpy(line, "999999.999 ", 11);
    memcpy(line + 11 + 48, ": ", 2);
    memset(host, 'h', sizeof host - 1);
    host[sizeof host - 1] = '\0';
    struct text t = text_over(bytes, sizeof bytes);
    syslog_message(&t, line, strlen(line), host, START_US, true);
    assert_false(t.cut);
    assert_int_equal(bytes[t.len - 1], 'x');
    size_t length = 0;
    assert_int_equal(sscanf(bytes, "%zu <134>1 ", &length), 1);
    assert_int_equal(length, t.len - 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(targets_are_checked),
        cmocka_unit_test(lines_become_messages),
        cmocka_unit_test(other_lines_are_sent_as_they_are),
        cmocka_unit_test(the_longest_line_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
