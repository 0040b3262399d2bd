/* NVIDIA's management library: none, one that is no such library, and a made-up one. */
#include "kernels/worker/nvml.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define MADE_UP "build/host/unit/nvml.so" /* tests/gpu/nvml.c */

static void libraries_that_are_none(void **state)
{
    (void)state;
    const char *wrong = nvml_open("libnvidia-ml-of-nobody.so.1");
    assert_non_null(wrong);
    assert_non_null(strstr(wrong, "libnvidia-ml-of-nobody.so.1"));
    wrong = nvml_open("libm.so.6");
    assert_non_null(wrong);
    assert_non_null(strstr(wrong, "nvmlInit_v2 is missing"));
    nvml_close();
}

static void what_is_told(void **state)
{
    (void)state;
    static const struct {
        enum gauge gauge;
        int64_t value;
    } FIRST[] = {{GAUGE_RANK, GAUGE_UNKNOWN}, {GAUGE_TEMPERATURE, 61},
                 {GAUGE_POWER, 312500},       {GAUGE_POWER_MAX, 600000},
                 {GAUGE_MEMORY_USED, 40},     {GAUGE_MEMORY, 100},
                 {GAUGE_CLOCK, 2310},         {GAUGE_CLOCK_MAX, 2430},
                 {GAUGE_CLOCK_LIMITS, 4},     {GAUGE_BUSY, 97},
                 {GAUGE_ECC_CORRECTED, 5},    {GAUGE_ECC_LOST, 2}};
    struct gauges g = {.n = 0};
    assert_null(nvml_open(MADE_UP));
    nvml_read(&g);
    nvml_close();
    gauges_clean(&g);
    assert_int_equal(g.n, 2);
    assert_string_equal(g.driver, "580.65.06");
    assert_string_equal(g.note, "GPU 2 does not answer NVML, 999");
    assert_string_equal(g.gpu[0].bus, "0000:41:00.0");
    assert_string_equal(g.gpu[0].name, "Made-up GPU");
    for (size_t i = 0; i < sizeof FIRST / sizeof FIRST[0]; i++)
        assert_int_equal(g.gpu[0].value[FIRST[i].gauge], FIRST[i].value);
    assert_string_equal(g.gpu[1].bus, "");
    assert_int_equal(strlen(g.gpu[1].name), GAUGE_NAME_BYTES - 1);
    for (int row = 0; row < GAUGES; row++)
        assert_int_equal(g.gpu[1].value[row], GAUGE_UNKNOWN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(libraries_that_are_none),
                                       cmocka_unit_test(what_is_told)};
    return cmocka_run_group_tests_name("nvml", tests, NULL, NULL);
}
