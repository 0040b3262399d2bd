/*
 * The code that makes somebody the first operator of a box without SSH keys: random, shown on the
 * serial line, good once, and guessed at a bounded rate.  Pure but for its random bytes: knows no
 * SSH, no file, and not who asks.
 */
#ifndef V4BOX_INIT_CLAIM_H
#define V4BOX_INIT_CLAIM_H

#include "config/box.h"
#include "init/text.h"

#include <stdbool.h>
#include <stdint.h>

enum claim_result {
    CLAIM_RIGHT,
    CLAIM_WRONG,
    CLAIM_WAIT,  /* too many guesses; this one was not looked at */
    CLAIM_CLOSED /* the box has its operator */
};

struct claim {
    bool open;
    char code[CLAIM_CODE_CHARS + 1];
    int guesses;       /* that may still be made at once */
    int64_t refill_ms; /* when there is one more */
};

/** Makes a new code.  @err false: no random bytes; it stays closed */
bool claim_open(struct claim *c, int64_t now_ms);

/** Forgets the code. */
void claim_close(struct claim *c);

/** Appends the code as it is shown, in groups.  Nothing when it is closed. */
void claim_show(const struct claim *c, struct text *out);

/**
 * Compares what was typed, in constant time; case, hyphens, and the letters O, I and L for the
 * digits they look like do not matter.  The code stays good until claim_close().
 */
enum claim_result claim_try(struct claim *c, const char *typed, int64_t now_ms);

/** What to answer, for people. */
const char *claim_result_text(enum claim_result result);

#endif
