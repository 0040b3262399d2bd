/* Temperatures: made-up folders of chips, whole and hostile; alarms that begin and end once. */
#include "engine/api/sensors.h"
#include "kernels/gauges.h"

#include "tests/unit/made_sys.h"

#include <time.h>
#include <unistd.h>

static int64_t gpu_celsius = GAUGE_UNKNOWN;

bool engine_gauges_get(struct engine *engine, struct gauges *out)
{
    (void)engine;
    *out = (struct gauges){.at_ms = 1, .n = 2};
    out->gpu[0].value[GAUGE_TEMPERATURE] = 40;
    out->gpu[1].value[GAUGE_TEMPERATURE] = gpu_celsius;
    return gpu_celsius != GAUGE_UNKNOWN;
}

#define CPU "coretemp k10temp"

static void chips(void **state)
{
    (void)state;
    assert_int_equal(hwmon_hottest("/nonexistent", CPU), GAUGE_UNKNOWN);
    assert_int_equal(hwmon_hottest(root, CPU), GAUGE_UNKNOWN);
    made_text("hwmon0", "name", "nvme\n");
    made_text("hwmon0", "temp1_input", "70850\n");
    assert_int_equal(hwmon_hottest(root, CPU), GAUGE_UNKNOWN);
    made_text("hwmon1", "name", "k10temp\n");
    made_text("hwmon1", "temp1_input", "41000\n");
    made_text("hwmon1", "temp3_input", "63999\n");
    made_text("hwmon1", "temp3_crit", "99000\n");
    made_text("hwmon12", "name", "coretemp\n");
    made_text("hwmon12", "temp130_input", "62000\n");
    assert_int_equal(hwmon_hottest(root, CPU), 63);
    assert_int_equal(hwmon_hottest(root, "nvme drivetemp"), 70);
    assert_int_equal(hwmon_hottest(root, "core k10"), GAUGE_UNKNOWN);
}

static void hostile_chips(void **state)
{
    static const char *const NUMBERS[] = {
        "",      "\n",      "-1000\n", "150001\n", "99999999999999999999999\n", "50000 and on\n",
        "hot\n", "0x2000\n"};
    char path[256];
    (void)state;
    made_text("hwmon0", "name", "coretemp\n");
    for (size_t i = 0; i < sizeof NUMBERS / sizeof NUMBERS[0]; i++) {
        made_text("hwmon0", "temp1_input", NUMBERS[i]);
        assert_int_equal(hwmon_hottest(root, CPU), GAUGE_UNKNOWN);
    }
    snprintf(path, sizeof path, "%s/hwmon0/temp2_input", root);
    assert_int_equal(mkfifo(path, 0600), 0); /* nobody writes there */
    made_text("hwmon0", "temp3_input", "30000\n");
    assert_int_equal(hwmon_hottest(root, CPU), 30);
    made_text("hwmon0", "name", "coretemp and more\n");
    assert_int_equal(hwmon_hottest(root, CPU), GAUGE_UNKNOWN);
    made_text("hwmon0", "name", "\n");
    assert_int_equal(hwmon_hottest(root, CPU), GAUGE_UNKNOWN);
}

static void alarms(void **state)
{
    (void)state;
    static const struct {
        int celsius;
        bool alarm, changed;
    } STEPS[] = {{87, false, false},          {88, true, true},   {85, true, false},
                 {84, false, true},           {87, false, false}, {90, true, true},
                 {GAUGE_UNKNOWN, false, true}};
    struct sensors_view view = {.alarm = {false}};
    for (size_t i = 0; i < sizeof STEPS / sizeof STEPS[0]; i++) {
        int celsius[SENSORS] = {20, 20, STEPS[i].celsius};
        assert_int_equal(sensors_turn(&view, celsius), (unsigned)STEPS[i].changed << SENSOR_GPU);
        assert_int_equal(view.alarm[SENSOR_GPU], STEPS[i].alarm);
        assert_int_equal(view.celsius[SENSOR_GPU], STEPS[i].celsius);
        assert_false(view.alarm[SENSOR_CPU]);
    }
}

static void a_thread_looks(void **state)
{
    struct sensors *sensors;
    struct sensors_view view;
    struct error err;
    (void)state;
    sensors_get(NULL, &view);
    assert_int_equal(view.celsius[SENSOR_CPU], GAUGE_UNKNOWN);
    made_text("hwmon0", "name", "coretemp\n");
    made_text("hwmon0", "temp1_input", "99000\n");
    gpu_celsius = 61;
    assert_int_equal(sensors_start(NULL, root, &sensors, &err), OK);
    time_t end = time(NULL) + 60;
    do {
        usleep(1000);
        sensors_get(sensors, &view);
    } while (view.celsius[SENSOR_CPU] == GAUGE_UNKNOWN && time(NULL) < end);
    assert_int_equal(view.celsius[SENSOR_CPU], 99);
    assert_true(view.alarm[SENSOR_CPU]);
    assert_int_equal(view.celsius[SENSOR_DISK], GAUGE_UNKNOWN);
    assert_int_equal(view.celsius[SENSOR_GPU], 61); /* the hottest of both */
    sensors_stop(sensors);
    sensors_stop(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(chips, make_root, clear_root),
        cmocka_unit_test_setup_teardown(hostile_chips, make_root, clear_root),
        cmocka_unit_test(alarms),
        cmocka_unit_test_setup_teardown(a_thread_looks, make_root, clear_root),
    };
    return cmocka_run_group_tests_name("sensors", tests, NULL, NULL);
}
