/* The kernel's tables of sockets and its messages, and texts that are none. */
#include "config/box.h"
#include "init/kmsg.h"
#include "init/ports.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const char TCP[] =
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout\n"
    "   0: 00000000:01BB 00000000:0000 0A 00000000:00000000 00:00000000 00000000   101        0 1\n"
    "   1: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000   100        0 2\n"
    "   2: 0F02000A:01BB 0202000A:D1F2 01 00000000:00000000 00:00000000 00000000   101        0 "
    "3\n";
static const char TCP6[] =
    "  sl  local_address                         remote_address                        st\n"
    "   0: 00000000000000000000000000000000:0016 00000000000000000000000000000000:0000 0A 0\n"
    "   1: 00000000000000000000000001000000:0016 00000000000000000000000000000000:0000 0A 0\n";
static const char UDP[] = "   sl  local_address rem_address   st tx_queue\n"
                          "  123: 00000000:0044 00000000:0000 07 00000000:00000000\n"
                          "  124: 0F02000A:0045 0202000A:0035 01 00000000:00000000\n";

static void listening_sockets_are_named(void **state)
{
    (void)state;
    char bytes[512];
    struct text t = text_over(bytes, sizeof bytes);
    ports_add(&t, ", ", "tcp", TCP, strlen(TCP));
    ports_add(&t, ", ", "tcp6", TCP6, strlen(TCP6));
    ports_add(&t, ", ", "udp", UDP, strlen(UDP));
    assert_string_equal(bytes, "tcp 0.0.0.0:443, tcp 127.0.0.1:8080, tcp6 [::]:22, tcp6 [::1]:22, "
                               "udp 0.0.0.0:68");
}

static void damaged_tables_are_survived(void **state)
{
    (void)state;
    char bytes[512], damaged[sizeof TCP];
    for (size_t i = 0; i < sizeof TCP - 1; i++) {
        struct text t = text_over(bytes, sizeof bytes);
        ports_add(&t, ",", "tcp", TCP, i);
        memcpy(damaged, TCP, sizeof TCP);
        damaged[i] ^= 0x41;
        ports_add(&t, ",", "tcp", damaged, sizeof TCP - 1);
    }
    struct text t = text_over(bytes, sizeof bytes);
    ports_add(&t, ",", "tcp", "0: 0:0 0:0 0A\n0: 000000000:01BB 0:0 0A\n", 40);
    assert_int_equal(t.len, 0);
}

static void records_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *record, *text; /* NULL: not printed */
    } ROWS[] = {
        {"5,0,0,-;Linux version 6.1\n", "Linux version 6.1"},
        {"3,339,5140900,-;nvme nvme0: I/O timeout\n SUBSYSTEM=nvme\n DEVICE=c1:1\n",
         "nvme nvme0: I/O timeout"},
        {"4,1,1,-,caller=T1;x", "x"},
        {"6,1,1,-;an information\n", NULL},
        {"12,1,1,-;from user space\n", NULL},
        {"999999999,1,1,-;x\n", NULL},
        {"3,1,1,-;\n", NULL},
        {"3,1,1,-", NULL},
        {";x", NULL},
        {"", NULL},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        size_t n = 0;
        const char *text = kmsg_text(ROWS[i].record, strlen(ROWS[i].record), &n);
        if (ROWS[i].text == NULL) {
            assert_null(text);
            continue;
        }
        assert_int_equal(n, strlen(ROWS[i].text));
        assert_memory_equal(text, ROWS[i].text, n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(listening_sockets_are_named),
        cmocka_unit_test(damaged_tables_are_survived),
        cmocka_unit_test(records_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
