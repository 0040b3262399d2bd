/* Whether a start was good, and whether the engine is alive. */
#include "init/gate.h"

void gate_init(struct gate *g, int64_t now_ms)
{
    *g = (struct gate){.deadline_ms = now_ms + GATE_MS, .beat_ms = -1};
}

void gate_beat(struct gate *g, int64_t now_ms)
{
    g->beat_ms = now_ms;
}

enum gate_action gate_turn(struct gate *g, const struct gate_engine *engine, int64_t now_ms)
{
    if (g->decided || !engine->wanted)
        return GATE_NOTHING;
    bool heard = g->beat_ms >= 0;
    g->decided = heard || engine->state == SERVICE_FAILED || now_ms >= g->deadline_ms;
    if (!g->decided)
        return GATE_NOTHING;
    return heard ? GATE_CONFIRM : GATE_GIVE_UP;
}

bool gate_is_alive(const struct gate *g, const struct gate_engine *engine, int64_t now_ms)
{
    bool has_process = engine->state == SERVICE_STARTING || engine->state == SERVICE_RUNNING;
    if (!engine->wanted || !has_process)
        return true;
    if (g->beat_ms < engine->started_ms)
        return now_ms - engine->started_ms < GATE_MS;
    return now_ms - g->beat_ms < HEART_STALE_MS;
}
