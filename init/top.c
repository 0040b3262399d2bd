/* The live view of the console. */
#include "init/top.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* From nothing to the most: a serial terminal need not know more than ASCII. */
static const char LEVELS[] = " .:-=+*#";

/* Where the value of a member begins; the answer was parsed as JSON when it came, and its members'
 * names stand in no other place.  NULL: there is none. */
static const char *member(const char *data, size_t n, const char *name)
{
    char quoted[48];
    int length = snprintf(quoted, sizeof quoted, "\"%s\":", name);
    const char *found = memmem(data, n, quoted, (size_t)length);
    if (found == NULL)
        return NULL;
    for (found += length; found < data + n && *found == ' ';)
        found++;
    return found < data + n ? found : NULL;
}

static int64_t number(const char *data, size_t n, const char *name)
{
    const char *p = member(data, n, name);
    int64_t value = 0;
    for (int digits = 0; p != NULL && p < data + n && *p >= '0' && *p <= '9' && digits < 18;
         digits++)
        value = value * 10 + (*p++ - '0');
    return value;
}

/* What is not told is no temperature of 0. */
static double celsius(const char *data, size_t n, const char *name)
{
    return member(data, n, name) == NULL ? -1 : (double)number(data, n, name);
}

static void word(char *to, size_t cap, const char *data, size_t n, const char *name)
{
    const char *p = member(data, n, name);
    size_t length = 0;
    if (p != NULL && *p == '"')
        for (p++; p < data + n && *p != '"' && *p >= ' ' && *p <= '~' && length + 1 < cap; p++)
            to[length++] = *p;
    to[length] = '\0';
}

static void push(struct top *t, enum top_row row, double value)
{
    memmove(t->sample[row], t->sample[row] + 1, (TOP_SAMPLES - 1) * sizeof(double));
    t->sample[row][TOP_SAMPLES - 1] = value;
}

/* An engine that began anew counts from 0 again. */
static double rate(int64_t now, int64_t before, int64_t ms)
{
    return ms > 0 && now >= before ? (double)(now - before) * 1000 / (double)ms : 0;
}

void top_add(struct top *t, const char *data, size_t n, int64_t now_ms)
{
    int64_t ms = t->last_ms == 0 ? 0 : now_ms - t->last_ms;
    int64_t answer = number(data, n, "answer_tokens"), prompt = number(data, n, "prompt_tokens");
    int64_t blocks = number(data, n, "prefix_blocks"), most = number(data, n, "prefix_blocks_max");
    push(t, TOP_ANSWER, rate(answer, t->answer_tokens, ms));
    push(t, TOP_PROMPT, rate(prompt, t->prompt_tokens, ms));
    push(t, TOP_RUNNING, (double)number(data, n, "running"));
    push(t, TOP_WAITING, (double)number(data, n, "waiting"));
    push(t, TOP_KV, most > 0 ? (double)blocks * 100 / (double)most : 0);
    int64_t taken = number(data, n, "state_bytes"), room = number(data, n, "state_bytes_max");
    push(t, TOP_STATE, room > 0 ? (double)taken * 100 / (double)room : 0);
    push(t, TOP_MEMORY, (double)number(data, n, "rss_bytes") / (1024 * 1024));
    push(t, TOP_CPU, celsius(data, n, "cpu_celsius"));
    push(t, TOP_DISK, celsius(data, n, "disk_celsius"));
    push(t, TOP_GPU, celsius(data, n, "gpu_celsius"));
    word(t->model, sizeof t->model, data, n, "model");
    word(t->profile, sizeof t->profile, data, n, "profile");
    word(t->audit, sizeof t->audit, data, n, "audit");
    t->answer_tokens = answer;
    t->prompt_tokens = prompt;
    t->last_ms = now_ms;
    t->count += t->count < TOP_SAMPLES;
}

/* The samples as levels of the highest one, or of `full` when that is higher. */
static void draw_line(const struct top *t, enum top_row row, double full,
                      char line[TOP_SAMPLES + 1])
{
    double most = full;
    const int steps = (int)sizeof LEVELS - 2;
    for (int i = TOP_SAMPLES - t->count; i < TOP_SAMPLES; i++)
        most = t->sample[row][i] > most ? t->sample[row][i] : most;
    for (int i = 0; i < TOP_SAMPLES; i++) {
        double value = i < TOP_SAMPLES - t->count ? 0 : t->sample[row][i];
        int level = most > 0 ? (int)(value / most * steps + 0.5) : 0;
        line[i] = LEVELS[value > 0 && level == 0 ? 1 : level]; /* little is not nothing */
    }
    line[TOP_SAMPLES] = '\0';
}

void top_draw(const struct top *t, struct text *out)
{
    static const struct {
        const char *name, *form;
        double full; /* what a full line stands for, unless a sample is more */
    } ROWS[TOP_ROWS] = {
        [TOP_ANSWER] = {"answer tok/s", "%8.1f", 1}, [TOP_PROMPT] = {"prompt tok/s", "%8.1f", 1},
        [TOP_RUNNING] = {"running", "%8.0f", 1},     [TOP_WAITING] = {"waiting", "%8.0f", 1},
        [TOP_KV] = {"KV kept %", "%8.1f", 100},      [TOP_STATE] = {"KV planned %", "%8.1f", 100},
        [TOP_MEMORY] = {"memory MiB", "%8.1f", 1},   [TOP_CPU] = {"CPU C", "%8.0f", 100},
        [TOP_DISK] = {"disk C", "%8.0f", 100},       [TOP_GPU] = {"GPU C", "%8.0f", 100},
    };
    char line[TOP_SAMPLES + 1], value[32];
    text_printf(out, "%s, profile %s\naudit %s\n", t->model, t->profile, t->audit);
    for (int row = 0; row < TOP_ROWS; row++) {
        if (t->sample[row][TOP_SAMPLES - 1] < 0)
            continue;
        draw_line(t, (enum top_row)row, ROWS[row].full, line);
        snprintf(value, sizeof value, ROWS[row].form, t->sample[row][TOP_SAMPLES - 1]);
        text_printf(out, "%-13s%s |%s|\n", ROWS[row].name, value, line);
    }
}
