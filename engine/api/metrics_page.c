/* The page of /metrics: puts together what engine, memory and answers count. */
#include "engine/api/api.h"
#include "engine/audit/auditor.h"

#include <stdlib.h>

/* What somebody is woken by. */
static void add_audits(struct auditor *auditor, struct metrics_sample *out)
{
    struct auditor_status s;
    if (auditor == NULL)
        return;
    auditor_status_get(auditor, &s);
    out->audits = s.audits;
    out->audit_alarms = s.alarms;
    out->audit_runs = s.id != 0;
    if (s.last.id == 0)
        return;
    out->audit_alarm = auditor_alarms(s.last.verdict);
    out->audit_verdict = 1 + (uint64_t)s.last.verdict;
    out->audit_time_s = (uint64_t)s.last.time_s;
}

void api_metrics_dump(void *user, struct buf *out)
{
    const struct api *api = user;
    struct engine_stats engine;
    struct turns_stats turns;
    struct profile profile;
    struct gauges gpus;
    char hash[PROFILE_HASH_BYTES];
    engine_profile_get(api->engine, &profile);
    profile_hash_text(&profile, hash);
    engine_stats_get(api->engine, &engine);
    turns_stats_get(api->turns, &turns);
    struct metrics_sample sample = {.model = api->model,
                                    .profile = profile.name,
                                    .profile_hash = hash,
                                    .running = (uint64_t)engine.running,
                                    .waiting = (uint64_t)engine.waiting,
                                    .requests = engine.requests,
                                    .prompt_tokens = engine.prompt_tokens,
                                    .reused_tokens = engine.reused_tokens,
                                    .answer_tokens = engine.answer_tokens,
                                    .steps = engine.steps,
                                    .prefix_blocks = (uint64_t)engine.prefix_blocks,
                                    .prefix_bytes = engine.prefix_bytes,
                                    .session_bytes = engine.session_bytes,
                                    .state_bytes = engine.state_bytes,
                                    .state_bytes_max = engine.state_bytes_max,
                                    .state_pages_own = (uint64_t)engine.state_pages_own,
                                    .state_pages_shared = (uint64_t)engine.state_pages_shared,
                                    .state_pages_free = (uint64_t)engine.state_pages_free,
                                    .prefix_tails = (uint64_t)engine.prefix_tails,
                                    .prefix_evicted = engine.prefix_evicted,
                                    .drafts = engine.drafts,
                                    .drafts_right = engine.drafts_right,
                                    .losses = engine.losses,
                                    .lost = engine.lost,
                                    .recovered_s = (engine.recovered_ms + 999) / 1000,
                                    .turns_kept = (uint64_t)turns.kept,
                                    .turns_bytes = (uint64_t)turns.bytes};
    add_audits(api->auditor, &sample);
    sensors_get(api->sensors, &sample.heat);
    if (engine_gauges_get(api->engine, &gpus))
        sample.gpus = &gpus;
    metrics_dump(api->metrics, &sample, out);
}

enum MHD_Result api_metrics(struct exchange *x)
{
    struct buf body = {0};
    api_metrics_dump(x->user, &body);
    return http_reply(x, 200, "text/plain; version=0.0.4; charset=utf-8", &body);
}
