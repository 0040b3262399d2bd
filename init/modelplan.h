/*
 * Which model serves, and which is tried: the engine is ended and started with another one, and a
 * trial goes back by itself unless the engine has given a token.  What is tried is not remembered:
 * a power cut goes back as well.  Decides; the caller ends and starts the engine.
 */
#ifndef V4BOX_INIT_MODELPLAN_H
#define V4BOX_INIT_MODELPLAN_H

#include "config/box.h"

#include <stdbool.h>
#include <stdint.h>

struct modelplan {
    char now[MODEL_NAME_CHARS + 1];    /* what the engine runs, or is about to */
    char before[MODEL_NAME_CHARS + 1]; /* what a trial goes back to */
    bool trying;
    bool ending;      /* the engine has to end before it starts with another one */
    int64_t since_ms; /* of the engine's last start by this plan */
};

enum modelplan_action {
    MODELPLAN_NOTHING,
    MODELPLAN_STOP,  /* ask engine and heart to end */
    MODELPLAN_START, /* start both, with `now` */
    MODELPLAN_KEEP,  /* the trial is good: remember `now` */
    MODELPLAN_BACK   /* it was not: `now` is again what was before */
};

/* How the engine fares. */
struct modelplan_engine {
    bool ended;      /* neither it nor its heart has a process, or will get one */
    bool crashed;    /* it ended by itself */
    int64_t beat_ms; /* of the last sign of life, which follows a token; -1: none */
};

/** Letters, digits, and between them dots, hyphens and underscores. */
bool modelplan_name_good(const char *name);

/** Where a model of that name lies, in `folder` of `cap` bytes; the box's own goes first.  @err
 * false: nowhere */
bool modelplan_find(const char *name, char *folder, int cap);

void modelplan_init(struct modelplan *p, const char *name);

/** From now on it is this one.  @err NULL: done; else what is wrong, for people */
const char *modelplan_use(struct modelplan *p, const char *name, bool try);

enum modelplan_action modelplan_turn(struct modelplan *p, const struct modelplan_engine *engine,
                                     int64_t now_ms);

#endif
