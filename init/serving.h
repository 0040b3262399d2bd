/*
 * Lets another model serve: carries out modelplan.h on the services of PID 1, and remembers in the
 * settings what holds.  Knows no model.
 */
#ifndef V4BOX_INIT_SERVING_H
#define V4BOX_INIT_SERVING_H

#include "init/boot.h"
#include "init/gate.h"
#include "init/supervise.h"

/**
 * From now on it is this model; tried, it is remembered once the engine has given a token, and the
 * one before comes back if it does not.  Without an engine it holds from the next start on.
 * @err NULL: done; else what is wrong, for people
 */
const char *serving_use(struct box *box, struct supervisor *services, const struct gate *gate,
                        const char *name, bool try);

/** Ends and starts the engine as the plan says.  Milliseconds until it has to be looked again, -1.
 */
int serving_turn(struct box *box, struct supervisor *services, const struct gate *gate);

#endif
