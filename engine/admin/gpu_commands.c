/* What the worker tells of its GPUs, for people and as JSON. */
#include "engine/admin/call.h"
#include "engine/base/clock.h"
#include "engine/base/json.h"

#include <stdio.h>
#include <string.h>

#define MIB (1024 * 1024)

/* Why a clock is lower than it could be: bits of nvml.h (nvmlClocksEventReason). */
static const struct {
    int64_t bit;
    const char *name;
} LIMITS[] = {
    {0x1, "idle"},        {0x2, "set so"},       {0x4, "power limit"},
    {0x8, "SLOWED DOWN"}, {0x10, "in step"},     {0x20, "heat"},
    {0x40, "TOO HOT"},    {0x80, "POWER BRAKE"}, {0x100, "display"},
};

/* A number with its unit, or "?". */
static void say(struct buf *out, const char *before, int64_t value, const char *after)
{
    if (value == GAUGE_UNKNOWN)
        buf_printf(out, "%s?%s", before, after);
    else
        buf_printf(out, "%s%lld%s", before, (long long)value, after);
}

static int64_t scaled(int64_t value, int64_t unit)
{
    return value == GAUGE_UNKNOWN ? GAUGE_UNKNOWN : value / unit;
}

static void say_limits(struct buf *out, int64_t bits)
{
    const char *between = " (";
    for (size_t i = 0; bits > 0 && i < sizeof LIMITS / sizeof *LIMITS; i++) {
        if ((bits & LIMITS[i].bit) == 0)
            continue;
        buf_printf(out, "%s%s", between, LIMITS[i].name);
        between = ", ";
    }
    buf_puts(out, between[0] == ',' ? ")" : "");
}

static void say_gpu(struct buf *out, const struct gpu_gauges *gpu)
{
    const int64_t *v = gpu->value;
    buf_printf(out, "GPU %s  %s", gpu->bus, gpu->name);
    if (v[GAUGE_GROUP] != GAUGE_UNKNOWN)
        say(out, ", group ", v[GAUGE_GROUP], "");
    say(out, ", rank ", v[GAUGE_RANK], "\n");
    say(out, "  ", v[GAUGE_TEMPERATURE], " C");
    say(out, ", ", scaled(v[GAUGE_POWER], 1000), "");
    say(out, " of ", scaled(v[GAUGE_POWER_MAX], 1000), " W");
    say(out, ", ", scaled(v[GAUGE_MEMORY_USED], MIB), "");
    say(out, " of ", scaled(v[GAUGE_MEMORY], MIB), " MiB");
    say(out, ", busy ", v[GAUGE_BUSY], " %");
    say(out, ", ", v[GAUGE_CLOCK], "");
    say(out, " of ", v[GAUGE_CLOCK_MAX], " MHz");
    say_limits(out, v[GAUGE_CLOCK_LIMITS]);
    say(out, ", ECC errors: ", v[GAUGE_ECC_CORRECTED], " corrected");
    say(out, ", ", v[GAUGE_ECC_LOST], " not\n");
}

static void member(struct buf *out, const char *name, const char *value, const char *after)
{
    buf_printf(out, "\"%s\": ", name);
    json_dump_string(out, value, strlen(value));
    buf_puts(out, after);
}

static void dump_gpu(struct buf *out, const struct gpu_gauges *gpu)
{
    buf_puts(out, "{");
    member(out, "bus", gpu->bus, ", ");
    member(out, "name", gpu->name, "");
    for (int row = 0; row < GAUGES; row++) {
        const char *name = gauge_name((enum gauge)row);
        if (gpu->value[row] == GAUGE_UNKNOWN)
            buf_printf(out, ", \"%s\": null", name);
        else
            buf_printf(out, ", \"%s\": %lld", name, (long long)gpu->value[row]);
    }
    buf_puts(out, "}");
}

/* The record is the newest one, which may be old. */
static void say_worker(struct buf *out, const struct gauges *g, int64_t age_ms)
{
    if (g->driver[0] != '\0')
        buf_printf(out, "driver %s; %s\n", g->driver, gauge_peers_text((enum gauge_peers)g->peers));
    if (g->note[0] != '\0')
        buf_printf(out, "not everything is known: %s\n", g->note);
    if (age_ms > GAUGE_STALE_MS)
        buf_printf(out, "this is %lld s OLD: the worker or the driver tells nothing new\n",
                   (long long)(age_ms / 1000));
    if (g->n == 0 && g->note[0] == '\0')
        buf_puts(out, "the worker computes on the processor\n");
}

bool run_gpu(struct call *call)
{
    struct gauges g;
    if (!engine_gauges_get(call->scope->engine, &g)) {
        buf_puts(&call->text, "no worker: the engine computes on the processor\n");
        buf_puts(&call->data, "{\"gpus\": []}");
        return true;
    }
    int64_t age_ms = clock_ms() - g.at_ms;
    if (call->scope->layout[0] != '\0')
        buf_printf(&call->text, "%s\n", call->scope->layout);
    say_worker(&call->text, &g, age_ms);
    buf_puts(&call->data, "{");
    member(&call->data, "layout", call->scope->layout, ", ");
    member(&call->data, "driver", g.driver, ", ");
    member(&call->data, "peers", gauge_peers_text((enum gauge_peers)g.peers), ", ");
    member(&call->data, "note", g.note, "");
    buf_printf(&call->data, ", \"age_ms\": %lld, \"gpus\": [", (long long)age_ms);
    for (int32_t i = 0; i < g.n; i++) {
        say_gpu(&call->text, &g.gpu[i]);
        buf_puts(&call->data, i > 0 ? ", " : "");
        dump_gpu(&call->data, &g.gpu[i]);
    }
    buf_puts(&call->data, "]}");
    return true;
}
