/*
 * Counts for Prometheus: what answers and errors add, and the page that tells them together with
 * what others count (config/metrics.def, config/histograms.def).  No key, no address and nothing of
 * a request's content.
 */
#ifndef V4BOX_ENGINE_API_METRICS_H
#define V4BOX_ENGINE_API_METRICS_H

#include "engine/api/errors.h"
#include "engine/api/sensors.h"
#include "engine/base/buf.h"
#include "engine/precision/profile.h"

#include <stdint.h>

struct metrics; /* any thread may call; one lock inside */

/* How an answer ended, in vLLM's words. */
enum metrics_finish {
    METRICS_STOP,
    METRICS_LENGTH,
    METRICS_ABORT,
    METRICS_ERROR,
    METRICS_FINISHES
};

/* A finished answer.  @unit milliseconds since the request came; 0: it did not get so far */
struct metrics_answer {
    enum metrics_finish finish;
    const struct profile *profile; /* borrows; that it ran under */
    int64_t started_ms, first_token_ms, last_token_ms, ended_ms;
    int32_t prompt_tokens, answer_tokens;
};

/* What others count. */
struct metrics_sample {
    const char *model, *profile, *profile_hash; /* borrow; plain ASCII without quotes */
    uint64_t running, waiting, requests, prompt_tokens, reused_tokens, answer_tokens, steps;
    uint64_t prefix_blocks, prefix_tails, prefix_bytes, session_bytes, prefix_evicted, drafts,
        drafts_right, losses, lost, recovered_s;
    uint64_t state_bytes, state_bytes_max, state_pages_own, state_pages_shared, state_pages_free;
    uint64_t turns_kept, turns_bytes;
    uint64_t audits, audit_alarms, audit_alarm, audit_verdict, audit_time_s, audit_runs;
    uint64_t unknown_fields, control_texts; /* filled by metrics_dump */
    struct sensors_view heat;
    const struct gauges *gpus; /* borrows; NULL: no worker tells anything */
};

/** @own metrics_destroy */
struct metrics *metrics_create(void);
void metrics_destroy(struct metrics *metrics);

/* Each takes NULL too: nothing is counted. */
void metrics_answer(struct metrics *metrics, const struct metrics_answer *answer);
void metrics_error(struct metrics *metrics, enum api_code code);
/** What a request held that nothing was made of. */
void metrics_request(struct metrics *metrics, int32_t unknown_fields, size_t control_texts);

/** Appends the page in the text format of Prometheus, version 0.0.4. */
void metrics_dump(struct metrics *metrics, const struct metrics_sample *sample, struct buf *out);

#endif
