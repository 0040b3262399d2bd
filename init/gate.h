/*
 * Whether a start was good, and whether the engine is alive: the health gate and the heartbeat.
 * Pure: the caller says what the time is, how the engine's service fares and when it was heard of.
 */
#ifndef V4BOX_INIT_GATE_H
#define V4BOX_INIT_GATE_H

#include "config/slots.h"
#include "init/service.h"

#include <stdbool.h>
#include <stdint.h>

enum gate_action {
    GATE_NOTHING,
    GATE_CONFIRM, /* once: the engine has given a token */
    GATE_GIVE_UP  /* once: it did not in time, or crashed too often */
};

struct gate {
    int64_t deadline_ms;
    int64_t beat_ms; /* of the last sign of life; -1: none yet */
    bool decided;    /* confirmed, or given up */
};

/* How the engine's service fares. */
struct gate_engine {
    bool wanted; /* false: this start has none, in rescue */
    enum service_state state;
    int64_t started_ms; /* of its process */
};

void gate_init(struct gate *g, int64_t now_ms);

/** A sign of life.  The first one comes after the self-test. */
void gate_beat(struct gate *g, int64_t now_ms);

/** What has to be done now. */
enum gate_action gate_turn(struct gate *g, const struct gate_engine *engine, int64_t now_ms);

/**
 * Whether the machine may go on: false when the engine has a process that gives no sign of life any
 * more.  One that is loading has GATE_MS; one that has ended is the supervisor's.
 */
bool gate_is_alive(const struct gate *g, const struct gate_engine *engine, int64_t now_ms);

#endif
