/*
 * Whose the box is: somebody's, once there is an SSH key, or nobody's, with a claim code on the
 * serial line and a socket on which the code, with a key, makes an owner.  Knows no service; the
 * caller asks `claimed` and lets people in.
 */
#ifndef V4BOX_INIT_OWNER_H
#define V4BOX_INIT_OWNER_H

#include "init/claim.h"
#include "init/control.h"
#include "init/journal.h"

#include <stdbool.h>

struct owner {
    bool claimed;
    struct claim claim;
    struct control control;  /* of the claimants; not open once the box is claimed at its start */
    struct journal *journal; /* borrows */
};

/** Begins; for nobody's box with a new code, which is shown on the serial line and kept nowhere. */
void owner_open(struct owner *o, bool claimed, struct journal *journal);

/** Somebody may log in now: the code is forgotten. */
void owner_claimed(struct owner *o);

/** Answers `claim` of an operator: whose it is, or the code.  As long as there is one, only the
 * serial line has a console. */
void owner_tell(const struct owner *o, struct text *answer);

#endif
