/*
 * The folder of the models, and a model on its way in.  A model comes under a name of its own:
 * first its manifest and leaves, then its bytes in any order and as often as it takes; each leaf is
 * checked before it is written, and what is there is remembered, so that a sender asks what is
 * missing and goes on, also after a power cut.  It gets its place when every byte of it has been
 * read back from the disk and fits.
 *
 *   ROOT/NAME                   a model, whole when it was put here
 *   ROOT/.incoming/NAME         one on its way; every file has its final size from the beginning
 *   ROOT/.incoming/NAME.have    a bit for each leaf that is on the disk, lowest first
 *
 * One writer at a time.  Knows neither the console nor where the bytes come from.
 */
#ifndef V4BOX_INIT_STORE_H
#define V4BOX_INIT_STORE_H

#include "common/leaves.h"
#include "config/box.h"
#include "init/text.h"

struct store {
    const char *root; /* borrows */
    int lock;         /* owns: the writer's, -1: none */
    struct leaves leaves;
    uint8_t have[LEAVES_MAX / 8];
    uint8_t state[LEAVES_MAX];
    char text[MANIFEST_BYTES_MAX + LEAVES_TEXT_BYTES]; /* manifest, then leaves */
};

/* Gives up to `n` bytes; fewer at the end. */
typedef size_t (*store_source)(void *context, void *bytes, size_t n);

/* All of these return whether it went well, and say what there is to say in either case. */

/** Begins `name` with the `n` bytes of `s->text`, or goes on with what there is of the same. */
bool store_begin(struct store *s, const char *name, size_t n, struct text *said);

/** Says "FILE FIRST COUNT" for runs of leaves that are missing, MODEL_RUNS_MAX of them at most. */
bool store_missing(struct store *s, const char *name, struct text *said);

/**
 * Takes leaves of one file from `first` on, as many as come.  Ends at the first that does not fit:
 * what came before it stays.
 */
bool store_take(struct store *s, const char *name, const char *file, uint32_t first,
                store_source source, void *context, struct text *said);

/** Reads everything back and puts the model in its place; leaves that do not fit are missing again.
 */
bool store_finish(struct store *s, const char *name, struct text *said);

/** Reads a model that is in its place. */
bool store_verify(struct store *s, const char *name, struct text *said);

/** Removes a model, or what there is of one on its way. */
bool store_delete(struct store *s, const char *name, struct text *said);

/** A line for each model of the folder; `mark` is put behind the one called `active`. */
void store_list(struct store *s, const char *active, const char *mark, struct text *said);

/** Whether a model of this name is in its place, with every file of its size.  @err says why not */
bool store_is_whole(struct store *s, const char *name, struct text *said);

#endif
