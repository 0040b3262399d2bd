/* What an operator may set, and a network that comes back by itself. */
#include "init/files.h"
#include "init/keyfile.h"
#include "init/netplan.h"
#include "init/network.h"
#include "init/settings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <unistd.h>

static char path[64];

static int make_path(void **state)
{
    (void)state;
    strcpy(path, "/tmp/test_init_settings.XXXXXX");
    int fd = mkstemp(path);
    close(fd);
    return fd < 0 || unlink(path) != 0;
}

static int remove_path(void **state)
{
    (void)state;
    return unlink(path);
}

static void values_are_of_their_kind(void **state)
{
    (void)state;
    static const struct {
        const char *name, *value;
        bool good;
    } CASES[] = {
        {"hostname", "box-1", true},
        {"hostname", "a", true},
        {"hostname", "", false},
        {"hostname", "-box", false},
        {"hostname", "box-", false},
        {"hostname", "b.x", false},
        {"hostname", "b x", false},
        {"hostname", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", true},
        {"hostname", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false},
        {"net.mode", "dhcp", true},
        {"net.mode", "static", true},
        {"net.mode", "DHCP", false},
        {"net.mode", "", false},
        {"net.address", "", true},
        {"net.address", "10.0.2.15/24", true},
        {"net.address", "10.0.2.15", false},
        {"net.address", "10.0.2.15/", false},
        {"net.address", "10.0.2.15/0", false},
        {"net.address", "10.0.2.15/31", false},
        {"net.address", "10.0.2.15/24 ", false},
        {"net.address", "10.0.2/24", false},
        {"net.address", "10.0.2.256/24", false},
        {"net.address", "0.0.0.1/24", false},
        {"net.address", "127.0.0.1/8", false},
        {"net.address", "224.0.0.1/8", false},
        {"net.address", "10.0.2.15/+4", false},
        {"net.router", "", true},
        {"net.router", "10.0.2.2", true},
        {"net.router", "10.0.2.2/24", false},
        {"net.router", "255.255.255.255", false},
        {"net.router", "10.0.2.2 10.0.2.3", false},
        {"metrics", "open", true},
        {"metrics", "closed", true},
        {"metrics", "", false},
        {"metrics", "0.0.0.0:9464", false},
        {"gpus", "auto", true},
        {"gpus", "2x4", true},
        {"gpus", "3x4", false},
        {"gpus", "", false},
        {"nothing", "1", false},
        {"", "", false},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        struct settings s, before;
        settings_init(&s);
        before = s;
        bool good = settings_set(&s, CASES[i].name, CASES[i].value) == NULL;
        if (good != CASES[i].good)
            fail_msg("%s = '%s'", CASES[i].name, CASES[i].value);
        if (!good)
            assert_memory_equal(&s, &before, sizeof s);
    }
}

static void addresses_are_taken_apart(void **state)
{
    (void)state;
    struct lease lease;
    char text[INET_ADDRSTRLEN];
    assert_true(lease_from_text(&lease, "192.168.7.9/20", "192.168.0.1"));
    assert_string_equal(inet_ntop(AF_INET, &lease.address, text, sizeof text), "192.168.7.9");
    assert_string_equal(inet_ntop(AF_INET, &lease.netmask, text, sizeof text), "255.255.240.0");
    assert_string_equal(inet_ntop(AF_INET, &lease.router, text, sizeof text), "192.168.0.1");
    assert_true(lease.bound);
    assert_true(lease_from_text(&lease, "10.0.0.1/1", ""));
    assert_int_equal(lease.router, 0);
}

static void files_are_good_or_defaults(void **state)
{
    (void)state;
    char bytes[2048];
    struct settings in, out;
    settings_init(&in);
    assert_true(settings_load(&out, path)); /* none is no fault */
    assert_memory_equal(&in, &out, sizeof in);
    assert_null(settings_set(&in, "hostname", "other"));
    assert_null(settings_set(&in, "net.mode", "static"));
    assert_non_null(settings_check(&in)); /* without an address */
    assert_null(settings_set(&in, "net.address", "10.1.2.3/8"));
    assert_null(settings_check(&in));
    assert_true(settings_save(&in, path));
    assert_true(settings_load(&out, path));
    assert_memory_equal(&in, &out, sizeof in);

    ssize_t n = file_load(path, bytes, sizeof bytes);
    assert_true(n > 0 && settings_good(bytes, (size_t)n));
    for (ssize_t i = 0; i < n; i++) {
        bytes[i] ^= 4;
        assert_false(settings_good(bytes, (size_t)n));
        bytes[i] ^= 4;
        assert_false(settings_good(bytes, (size_t)i));
    }
    /* Whole, and still not to be used. */
    static const char *const BODIES[][2] = {{"hostname", "-"}, {"net.mode", "static"}};
    for (size_t i = 0; i < sizeof BODIES / sizeof BODIES[0]; i++) {
        struct text t = text_over(bytes, sizeof bytes);
        keyfile_add(&t, BODIES[i][0], BODIES[i][1]);
        keyfile_seal(&t);
        assert_false(settings_parse(&out, t.data, t.len));
        assert_memory_equal(&in, &out, sizeof in);
    }
    /* Of a later version, whose settings this one does not know all. */
    struct text t = text_over(bytes, sizeof bytes);
    keyfile_add(&t, "later", "1");
    keyfile_add(&t, "hostname", "kept");
    keyfile_seal(&t);
    assert_true(settings_parse(&out, t.data, t.len));
    assert_string_equal(out.value[SETTING_HOSTNAME], "kept");
    unlink(path);
}

/* The program that does DHCP, as the plan sees it. */
static void carry_out(struct netplan *p, bool *dhcp, int64_t now_ms)
{
    for (int i = 0; i < 4; i++) {
        switch (netplan_turn(p, *dhcp, now_ms)) {
        case NETPLAN_START_DHCP:
            *dhcp = true;
            break;
        case NETPLAN_STOP_DHCP:
            *dhcp = false;
            break;
        case NETPLAN_SET_ADDRESS:
            assert_false(*dhcp);
            netplan_done(p);
            break;
        case NETPLAN_NOTHING:
            return;
        }
    }
    fail_msg("it comes to no end");
}

static void what_is_tried_goes_back(void **state)
{
    (void)state;
    struct netplan p;
    struct settings to;
    bool dhcp = false;
    assert_true(netplan_open(&p, path));
    carry_out(&p, &dhcp, 0);
    assert_true(dhcp);
    to = p.saved;
    assert_null(settings_set(&to, "net.mode", "static"));
    assert_non_null(netplan_change(&p, &to, 10, 1000)); /* without an address */
    assert_true(dhcp);
    assert_null(settings_set(&to, "net.address", "10.1.2.3/8"));
    assert_null(netplan_change(&p, &to, 10, 1000));
    carry_out(&p, &dhcp, 1000);
    assert_false(dhcp);
    assert_int_equal(access(path, F_OK), -1); /* a power cut would go back as well */
    carry_out(&p, &dhcp, 10999);
    assert_false(dhcp);
    carry_out(&p, &dhcp, 11000);
    assert_true(dhcp);
    assert_false(p.trying);
    assert_non_null(netplan_confirm(&p));
}

static void what_is_confirmed_stays(void **state)
{
    (void)state;
    struct netplan p;
    struct settings to;
    bool dhcp = true;
    assert_true(netplan_open(&p, path));
    to = p.saved;
    assert_null(settings_set(&to, "net.address", "10.1.2.3/8"));
    assert_null(settings_set(&to, "net.mode", "static"));
    assert_null(netplan_change(&p, &to, 10, 0));
    carry_out(&p, &dhcp, 0);
    assert_null(netplan_confirm(&p));
    carry_out(&p, &dhcp, 20000);
    assert_false(dhcp);
    assert_true(netplan_open(&p, path));
    assert_string_equal(p.now.value[SETTING_NET_MODE], "static");
    /* From one address to another, at once and for good. */
    assert_null(settings_set(&to, "net.address", "10.1.2.4/8"));
    carry_out(&p, &dhcp, 0);
    assert_null(netplan_change(&p, &to, 0, 0));
    assert_int_equal(netplan_turn(&p, false, 0), NETPLAN_SET_ADDRESS);
    assert_true(netplan_open(&p, path));
    assert_string_equal(p.now.value[SETTING_NET_ADDRESS], "10.1.2.4/8");
    /* What can not be saved is not done. */
    p.path = "/nowhere/settings";
    assert_null(settings_set(&to, "net.mode", "dhcp"));
    assert_non_null(netplan_change(&p, &to, 0, 0));
    assert_string_equal(p.now.value[SETTING_NET_MODE], "static");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_of_their_kind),   cmocka_unit_test(addresses_are_taken_apart),
        cmocka_unit_test(files_are_good_or_defaults), cmocka_unit_test(what_is_tried_goes_back),
        cmocka_unit_test(what_is_confirmed_stays),
    };
    return cmocka_run_group_tests(tests, make_path, remove_path);
}
