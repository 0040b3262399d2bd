/*
 * The flight recorder: what the newest requests were to the network, so that one that went wrong
 * can be pinned and computed again.  Token ids, profile and sampling of a bounded number of
 * requests of bounded size, in memory alone, wiped when they make room or are unpinned; never on a
 * disk and never in a report.  Knows no HTTP, no key and no text.
 */
#ifndef V4BOX_ENGINE_AUDIT_RECORDER_H
#define V4BOX_ENGINE_AUDIT_RECORDER_H

#include "config/limits.h"
#include "engine/base/buf.h"
#include "engine/engine.h"

#include <stdbool.h>
#include <stdint.h>

#define RECORDING_HASH_CHARS 64

struct recorder;

struct recording {
    char id[RECORDING_ID_BYTES]; /* of the request, without what surfaces put in front */
    int64_t time_s;              /* since the epoch, when it came */
    struct profile profile;
    struct sampling sampling; /* the seed that was drawn included */
    bool ruled;               /* tools or a format barred tokens from the answer */
    bool pinned, ended;
    int32_t reused;                             /* tokens of the prompt that were not computed */
    struct ids prompt, answer;                  /* own */
    char prompt_hash[RECORDING_HASH_CHARS + 1]; /* SHA-256 of the prompt, as receipts have it */
};

struct recorder *recorder_create(void); /** @own recorder_destroy */
void recorder_destroy(struct recorder *recorder);

/** Takes note of a request that was submitted; the oldest one that is not pinned makes room. Longer
 *  ones than RECORDING_TOKENS_MAX are not kept.  `prompt` is copied; the recording's own ids are
 * not looked at.  @thread any, as all below */
void recorder_begin(struct recorder *recorder, const struct recording *what,
                    const struct ids *prompt);
/** Its answer, as far as it was told. */
void recorder_end(struct recorder *recorder, const char *id, const struct ids *answer,
                  int32_t reused);

/** Pins the request of this id, as a client knows it, or with "next" the one that comes next.
 *  @err ERR_INPUT: it is not among the newest; ERR_CAPACITY: RECORDER_PINS_MAX are pinned */
enum status MUST_CHECK recorder_pin(struct recorder *recorder, const char *id, struct error *err);
/** Forgets a pinned request.  @err ERR_INPUT: none of this id is pinned */
enum status MUST_CHECK recorder_unpin(struct recorder *recorder, const char *id, struct error *err);
/** A copy of a pinned request that has ended.
 *  @own recording_clear  @err ERR_INPUT: none of this id is pinned, or it runs still */
enum status MUST_CHECK recorder_get(struct recorder *recorder, const char *id,
                                    struct recording *out, struct error *err);
/** Heads of all that are pinned, oldest first; their ids stay here.  @return how many */
int recorder_list(struct recorder *recorder, struct recording out[RECORDER_PINS_MAX]);

/** Wipes and frees the ids. */
void recording_clear(struct recording *recording);

#endif
