/*
 * The live view of the console: what the engine's `status` says each second, as rates and lines of
 * the last minute.  Pure: asks nobody, draws into a text.
 */
#ifndef V4BOX_INIT_TOP_H
#define V4BOX_INIT_TOP_H

#include "config/box.h"
#include "init/text.h"

#include <stddef.h>
#include <stdint.h>

enum top_row {
    TOP_ANSWER,  /* tokens a second */
    TOP_PROMPT,  /* likewise */
    TOP_RUNNING, /* requests */
    TOP_WAITING,
    TOP_KV,     /* percent of the blocks of kept prefixes */
    TOP_STATE,  /* percent of the bytes of sessions, by what they may come to */
    TOP_MEMORY, /* MiB of the engine */
    TOP_CPU,    /* degrees Celsius of the hottest, as the two behind; below 0: nothing tells it */
    TOP_DISK,
    TOP_GPU,
    TOP_ROWS
};

struct top {
    int64_t last_ms; /* of the newest sample; 0: there is none */
    int64_t answer_tokens, prompt_tokens;
    int count;                              /* of samples */
    double sample[TOP_ROWS][TOP_SAMPLES];   /* the newest last */
    char model[64], profile[64], audit[96]; /* as the engine says */
};

/** Takes the data of the engine's `status`, JSON.  What is not there counts as 0. */
void top_add(struct top *t, const char *data, size_t n, int64_t now_ms);

/** Draws the view, without any control character but newlines. */
void top_draw(const struct top *t, struct text *out);

#endif
