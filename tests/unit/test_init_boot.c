/* What init reads from outside: kernel command line, DHCP events, site data, /proc. */
#include "config/box.h"
#include "init/loading.h"
#include "init/network.h"
#include "init/options.h"
#include "init/site.h"
#include "init/status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

static void options_from_the_list_only(void **state)
{
    (void)state;
    static const struct {
        const char *cmdline, *isa, *profile;
        int complaints;
    } CASES[] = {
        {"", "auto", "official", 0},
        {"console=ttyS0 panic=10 quiet\n", "auto", "official", 0},
        {"v4box.isa=baseline", "baseline", "official", 0},
        {"a v4box.isa=avx2 v4box.profile=reference\tb", "avx2", "reference", 0},
        {"v4box.isa=avx2 v4box.isa=avx512", "avx512", "official", 0},
        {"v4box.isa=", "auto", "official", 1},
        {"v4box.isa", "auto", "official", 1},
        {"v4box.isa=baselineX", "auto", "official", 1},
        {"v4box.isa=base", "auto", "official", 1},
        {"v4box.is=baseline v4box.isaa=baseline", "auto", "official", 2},
        {"v4box.shell=/bin/sh", "auto", "official", 1},
        {"xv4box.isa=baseline V4BOX.isa=baseline v4box.", "auto", "official", 0},
        {"v4box.isa=\x1b[2J", "auto", "official", 1},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        struct options o;
        char bytes[512];
        struct text t = text_over(bytes, sizeof bytes);
        options_init(&o);
        options_parse(&o, CASES[i].cmdline, strlen(CASES[i].cmdline), &t);
        assert_string_equal(o.value[OPTION_ISA], CASES[i].isa);
        assert_string_equal(options_value(&o, "profile"), CASES[i].profile);
        int lines = 0;
        for (const char *p = bytes; *p != '\0'; p++)
            lines += *p == '\n';
        assert_int_equal(lines, CASES[i].complaints);
        assert_null(strchr(bytes, '\x1b'));
    }
    struct options o;
    options_init(&o);
    assert_null(options_value(&o, "shell"));
    /* Nobody but a starter who says so opens a door to the network. */
    assert_string_equal(options_value(&o, "metrics"), BOX_METRICS);
}

static void leases_are_addresses(void **state)
{
    (void)state;
    struct lease l;
    assert_true(lease_parse(&l, "bound", "10.0.2.15", "255.255.255.0", "10.0.2.2 10.0.2.3"));
    assert_true(l.bound);
    assert_int_equal(ntohl(l.address), 0x0a00020f);
    assert_int_equal(ntohl(l.netmask), 0xffffff00);
    assert_int_equal(ntohl(l.router), 0x0a000202);
    assert_true(lease_parse(&l, "renew", "10.0.2.15", "255.255.255.0", NULL));
    assert_int_equal(l.router, 0);
    assert_true(lease_parse(&l, "deconfig", NULL, NULL, NULL));
    assert_false(l.bound);
    static const struct {
        const char *event, *ip, *subnet, *router;
    } BAD[] = {
        {"", "10.0.2.15", "255.255.255.0", NULL},
        {"leasefail", NULL, NULL, NULL},
        {"bound", NULL, "255.255.255.0", NULL},
        {"bound", "10.0.2.15", NULL, NULL},
        {"bound", "", "255.255.255.0", NULL},
        {"bound", "10.0.2.15;reboot", "255.0.0.0", NULL},
        {"bound", "10.0.2", "255.255.255.0", NULL},
        {"bound", "10.0.2.256", "255.0.0.0", NULL},
        {"bound", "10.0.2.15", "255.255.255.0", "x"},
        {"bound", "$(sh)", "255.0.0.0", NULL},
        {"bound", "1111.1111.1111.1111.1", "255.0.0.0", NULL},
    };
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++)
        assert_false(lease_parse(&l, BAD[i].event, BAD[i].ip, BAD[i].subnet, BAD[i].router));
}

static char folder[] = "/tmp/v4box-site-XXXXXX";
static char from[64], to[64];

static void write_file(const char *path, size_t n, char fill)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (size_t i = 0; i < n; i++)
        fputc(fill, f);
    fclose(f);
}

static void site_data_is_copied_or_refused(void **state)
{
    (void)state;
    struct stat st;
    assert_non_null(mkdtemp(folder));
    snprintf(from, sizeof from, "%s/from", folder);
    snprintf(to, sizeof to, "%s/to", folder);
    assert_int_equal(site_copy(from, to, getuid()), SITE_ABSENT);
    static const struct {
        size_t n;
        char fill;
        enum site_result result;
    } CASES[] = {
        {0, 'a', SITE_REFUSED},
        {1, 'a', SITE_COPIED},
        {BOOT_SITE_BYTES_MAX, 'a', SITE_COPIED},
        {BOOT_SITE_BYTES_MAX + 1, 'a', SITE_REFUSED},
        {10, '\0', SITE_REFUSED},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        write_file(from, CASES[i].n, CASES[i].fill);
        assert_int_equal(site_copy(from, to, getuid()), CASES[i].result);
        assert_int_equal(stat(to, &st) == 0, CASES[i].result == SITE_COPIED);
        if (CASES[i].result == SITE_COPIED) {
            assert_int_equal(st.st_mode & 07777, 0600);
            assert_int_equal((size_t)st.st_size, CASES[i].n);
            /* Never over a file that is there already. */
            assert_int_equal(site_copy(from, to, getuid()), SITE_REFUSED);
        }
        unlink(to);
    }
    unlink(from);
    rmdir(folder);
}

static void fields_of_proc(void **state)
{
    (void)state;
    static const char TEXT[] =
        "Name:\tx\nVmRSSX:\t 1 kB\nVmRSS:\t   1234 kB\nUid:\t100\t100\nBad:\tx";
    assert_int_equal(status_field(TEXT, sizeof TEXT - 1, "VmRSS"), 1234);
    assert_int_equal(status_field(TEXT, sizeof TEXT - 1, "Uid"), 100);
    assert_int_equal(status_field(TEXT, sizeof TEXT - 1, "Bad"), -1);
    assert_int_equal(status_field(TEXT, sizeof TEXT - 1, "Absent"), -1);
    assert_int_equal(status_field(TEXT, 0, "Name"), -1);
    for (size_t n = 0; n < sizeof TEXT; n++) {
        char *copy = malloc(n + 1);
        memcpy(copy, TEXT, n);
        status_field(copy, n, "VmRSS");
        free(copy);
    }
}

static void mounts_as_json(void **state)
{
    (void)state;
    static const char TEXT[] = "proc /proc proc rw,nosuid 0 0\nnone /a\"b tmpfs ro 0 0\nshort\n";
    char bytes[512];
    struct text t = text_over(bytes, sizeof bytes);
    status_mounts(&t, TEXT, sizeof TEXT - 1);
    assert_string_equal(bytes, "[{\"path\":\"/proc\",\"type\":\"proc\",\"options\":\"rw,nosuid\"},"
                               "{\"path\":\"/a\\\"b\",\"type\":\"tmpfs\",\"options\":\"ro\"},"
                               "{\"path\":\"\",\"type\":\"\",\"options\":\"\"}]");
}

/* A driver without its card, and what needs that driver, are no faults; everything else is. */
static void faults_of_modules(void **state)
{
    (void)state;
    static const struct {
        bool opened;
        int code;
        bool said, fault;
    } CASES[] = {
        {true, 0, false, false},      {true, EEXIST, false, false},
        {true, ENOENT, true, true}, /* nothing is absent yet */
        {true, ENODEV, false, false}, {true, ENOENT, true, false},
        {true, EPERM, true, true},    {true, EKEYREJECTED, true, true},
        {true, ENOEXEC, true, true},  {false, 0, true, true},
    };
    struct loading l = {.wanted = 0};
    int faults = 0;
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        faults += CASES[i].fault;
        assert_int_equal(loading_count(&l, CASES[i].opened, CASES[i].code) != NULL, CASES[i].said);
        assert_int_equal(l.faults, faults);
    }
    assert_int_equal(l.wanted, 9);
    assert_int_equal(l.loaded, 2);
    assert_int_equal(l.absent, 1);
    assert_non_null(strstr(loading_count(&l, true, EPERM), "not signed"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_from_the_list_only),
        cmocka_unit_test(leases_are_addresses),
        cmocka_unit_test(site_data_is_copied_or_refused),
        cmocka_unit_test(fields_of_proc),
        cmocka_unit_test(mounts_as_json),
        cmocka_unit_test(faults_of_modules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
