/*
 * How hot the box is (config/sensors.def): a thread that looks every few seconds, so that somebody
 * is told when nobody looks.  Reads /sys/class/hwmon, and what the engine knows of GPUs; changes
 * nothing.
 */
#ifndef V4BOX_ENGINE_API_SENSORS_H
#define V4BOX_ENGINE_API_SENSORS_H

#include "engine/base/status.h"
#include "engine/engine.h"

#include <stdbool.h>
#include <stdint.h>

#define SENSORS_HWMON "/sys/class/hwmon"

enum sensor {
#define SENSOR(id, ...) SENSOR_##id,
#include "config/sensors.def"
#undef SENSOR
    SENSORS
};

/* What was seen last.  @unit degrees Celsius */
struct sensors_view {
    int celsius[SENSORS]; /* GAUGE_UNKNOWN: nothing tells it */
    bool alarm[SENSORS];
};

struct sensors;

/** Starts the thread.  @param hwmon  folder, borrowed  @own sensors_stop  @err ERR_CAPACITY */
enum status MUST_CHECK sensors_start(struct engine *engine, const char *hwmon, struct sensors **out,
                                     struct error *err);
/** Ends it.  Accepts NULL. */
void sensors_stop(struct sensors *sensors);

/** @thread any; NULL: nothing is known */
void sensors_get(struct sensors *sensors, struct sensors_view *out);

const char *sensor_name(enum sensor sensor);

/** Goes on from `view` with what was read: an alarm begins at the row's degrees, and ends
 *  ALARM_SLACK_CELSIUS below, or when nothing tells the temperature any more.
 *  @return bits of the sensors whose alarm has begun or ended */
unsigned sensors_turn(struct sensors_view *view, const int celsius[SENSORS]);

/** The hottest temperature of the chips in a folder that are named in `chips`, divided by blanks.
 *  Any files may be there; what is no temperature is left out.
 *  @unit degrees Celsius  @return GAUGE_UNKNOWN: there is none */
int hwmon_hottest(const char *hwmon, const char *chips);

#endif
