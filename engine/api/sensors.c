/* How hot the box is. */
#include "engine/api/sensors.h"

#include "engine/base/log.h"
#include "engine/base/thread.h"
#include "kernels/check.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CELSIUS_MAX 150 /* silicon does not outlive more; a sensor that says so is broken */

static const struct {
    const char *name, *chips;
    int alarm;
} ROWS[SENSORS] = {
#define SENSOR(id, name, chips, alarm) [SENSOR_##id] = {name, chips, alarm},
#include "config/sensors.def"
#undef SENSOR
};

struct sensors {
    struct engine *engine; /* borrows */
    const char *hwmon;     /* borrows */
    pthread_t thread;
    pthread_mutex_t lock; /* protects all below */
    pthread_cond_t stop;
    bool stopping;
    struct sensors_view view;
};

const char *sensor_name(enum sensor sensor)
{
    return ROWS[sensor].name;
}

/* ---- /sys/class/hwmon ----------------------------------------------------------------------- */

/* The first line of a small file.  @return false: there is none */
static bool line_read(int folder, const char *name, char line[SENSORS_LINE_BYTES])
{
    int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n = fd < 0 ? -1 : read(fd, line, SENSORS_LINE_BYTES - 1);
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return false;
    line[n] = '\0';
    line[strcspn(line, "\n")] = '\0';
    return true;
}

static bool is_among(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = list; *p != '\0' && n > 0; p += strspn(p, " ")) {
        size_t length = strcspn(p, " ");
        if (length == n && memcmp(p, word, n) == 0)
            return true;
        p += length;
    }
    return false;
}

/* One input of a chip: "temp7_input", in thousandths. */
static int input_read(int chip, int number)
{
    char name[32], line[SENSORS_LINE_BYTES], *end;
    snprintf(name, sizeof name, "temp%d_input", number);
    if (!line_read(chip, name, line))
        return GAUGE_UNKNOWN;
    long value = strtol(line, &end, 10);
    bool good = end != line && *end == '\0' && value >= 0 && value <= CELSIUS_MAX * 1000L;
    return good ? (int)(value / 1000) : GAUGE_UNKNOWN;
}

static int chip_hottest(int folder, const char *name, const char *chips)
{
    char line[SENSORS_LINE_BYTES];
    int hottest = GAUGE_UNKNOWN;
    int chip = openat(folder, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (chip < 0)
        return GAUGE_UNKNOWN;
    if (line_read(chip, "name", line) && is_among(chips, line)) {
        for (int i = 1; i <= SENSORS_INPUTS_MAX; i++) {
            int celsius = input_read(chip, i);
            hottest = celsius > hottest ? celsius : hottest;
        }
    }
    close(chip);
    return hottest;
}

int hwmon_hottest(const char *hwmon, const char *chips)
{
    int hottest = GAUGE_UNKNOWN, seen = 0;
    DIR *folder = opendir(hwmon);
    if (folder == NULL)
        return GAUGE_UNKNOWN;
    for (struct dirent *e = readdir(folder); e != NULL && seen < SENSORS_CHIPS_MAX;
         e = readdir(folder)) {
        if (strncmp(e->d_name, "hwmon", 5) != 0)
            continue;
        int celsius = chip_hottest(dirfd(folder), e->d_name, chips);
        hottest = celsius > hottest ? celsius : hottest;
        seen++;
    }
    closedir(folder);
    return hottest;
}

/* ---- alarms --------------------------------------------------------------------------------- */

unsigned sensors_turn(struct sensors_view *view, const int celsius[SENSORS])
{
    unsigned changed = 0;
    for (int i = 0; i < SENSORS; i++) {
        int limit = ROWS[i].alarm - (view->alarm[i] ? ALARM_SLACK_CELSIUS : 0);
        bool alarm = celsius[i] >= limit;
        changed |= (unsigned)(alarm != view->alarm[i]) << i;
        view->alarm[i] = alarm;
        view->celsius[i] = celsius[i];
    }
    return changed;
}

static void say_changes(const struct sensors_view *view, unsigned changed)
{
    for (int i = 0; i < SENSORS; i++) {
        if ((changed >> i & 1) != 0)
            log_line(view->alarm[i] ? LOG_LEVEL_ERROR : LOG_LEVEL_INFO, "sensors",
                     "%s: %d C, %s %d C", ROWS[i].name, view->celsius[i],
                     view->alarm[i] ? "TOO HOT: the alarm is at" : "no alarm any more; it is at",
                     ROWS[i].alarm);
    }
}

static int gpu_hottest(struct engine *engine)
{
    struct gauges gauges;
    int64_t hottest = GAUGE_UNKNOWN;
    if (!engine_gauges_get(engine, &gauges))
        return GAUGE_UNKNOWN;
    for (int32_t i = 0; i < gauges.n; i++) {
        int64_t celsius = gauges.gpu[i].value[GAUGE_TEMPERATURE];
        hottest = celsius > hottest ? celsius : hottest;
    }
    return (int)hottest;
}

/* ---- the thread ----------------------------------------------------------------------------- */

static void look(struct sensors *s)
{
    int celsius[SENSORS];
    for (int i = 0; i < SENSORS; i++)
        celsius[i] = ROWS[i].chips[0] == '\0' ? gpu_hottest(s->engine)
                                              : hwmon_hottest(s->hwmon, ROWS[i].chips);
    pthread_mutex_lock(&s->lock);
    unsigned changed = sensors_turn(&s->view, celsius);
    struct sensors_view view = s->view;
    pthread_mutex_unlock(&s->lock);
    say_changes(&view, changed);
}

static void *run(void *context)
{
    struct sensors *s = context;
    for (bool go_on = true; go_on;) {
        struct timespec until;
        look(s);
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += SENSORS_PERIOD_MS / 1000;
        pthread_mutex_lock(&s->lock);
        while (!s->stopping && pthread_cond_timedwait(&s->stop, &s->lock, &until) == 0)
            continue;
        go_on = !s->stopping;
        pthread_mutex_unlock(&s->lock);
    }
    return NULL;
}

enum status sensors_start(struct engine *engine, const char *hwmon, struct sensors **out,
                          struct error *err)
{
    struct sensors *s = calloc(1, sizeof *s);
    if (s == NULL)
        return error_set(err, ERR_CAPACITY, "out of memory");
    pthread_condattr_t clock;
    s->engine = engine;
    s->hwmon = hwmon;
    for (int i = 0; i < SENSORS; i++)
        s->view.celsius[i] = GAUGE_UNKNOWN;
    ASSERT(pthread_condattr_init(&clock) == 0);
    ASSERT(pthread_condattr_setclock(&clock, CLOCK_MONOTONIC) == 0);
    ASSERT(pthread_mutex_init(&s->lock, NULL) == 0);
    ASSERT(pthread_cond_init(&s->stop, &clock) == 0);
    pthread_condattr_destroy(&clock);
    enum status status = thread_start(&s->thread, "sensors", run, s, err);
    if (status != OK) {
        free(s);
        return status;
    }
    *out = s;
    return OK;
}

void sensors_stop(struct sensors *s)
{
    if (s == NULL)
        return;
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    pthread_cond_signal(&s->stop);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    pthread_cond_destroy(&s->stop);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

void sensors_get(struct sensors *s, struct sensors_view *out)
{
    if (s == NULL) {
        *out = (struct sensors_view){.alarm = {false}};
        for (int i = 0; i < SENSORS; i++)
            out->celsius[i] = GAUGE_UNKNOWN;
        return;
    }
    pthread_mutex_lock(&s->lock);
    *out = s->view;
    pthread_mutex_unlock(&s->lock);
}
