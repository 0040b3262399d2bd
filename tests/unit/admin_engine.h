/* The engine that the tests of the admin socket play: numbers that are easily told apart, a GPU if
 * the test says so, and no model. */
#ifndef V4BOX_TESTS_ADMIN_ENGINE_H
#define V4BOX_TESTS_ADMIN_ENGINE_H

#include "engine/base/clock.h"
#include "tests/unit/fake_groups.h"

static bool save_file, save_fails;
static int saves;

enum status engine_save(struct engine *engine, struct error *err)
{
    (void)engine;
    if (save_fails)
        return error_set(err, ERR_IO, "/prefixes: the disk is full");
    saves++;
    return OK;
}

void engine_stats_get(struct engine *engine, struct engine_stats *out)
{
    (void)engine;
    *out = (struct engine_stats){.requests = 12345678901,
                                 .prompt_tokens = 11,
                                 .reused_tokens = 7,
                                 .answer_tokens = 5,
                                 .steps = 3,
                                 .prefix_blocks = 21,
                                 .prefix_tails = 4,
                                 .prefix_blocks_max = 35,
                                 .prefix_tails_max = 36,
                                 .prefix_file = save_file,
                                 .prefix_saved_blocks = saves > 0 ? 20 : 0,
                                 .prefix_saved_s = saves > 0 ? 1790000000 : 0,
                                 .prefix_evicted = 6,
                                 .prefix_bytes = 21000,
                                 .prefix_bytes_max = 50000,
                                 .session_bytes = 70000,
                                 .state_bytes = 90000,
                                 .state_bytes_max = 280000,
                                 .state_pages_own = 31,
                                 .state_pages_shared = 12,
                                 .state_pages_free = 57,
                                 .drafts = 9,
                                 .drafts_right = 8,
                                 .running = 2,
                                 .waiting = 1};
}

/* One GPU, or none; `age_ms` behind now. */
static bool gpu_told;
static int64_t gpu_age_ms;

bool engine_gauges_get(struct engine *engine, struct gauges *out)
{
    (void)engine;
    *out = (struct gauges){.n = 1,
                           .at_ms = clock_ms() - gpu_age_ms,
                           .peers = PEERS_LOST,
                           .driver = "580.65.06",
                           .gpu = {{.bus = "0000:41:00.0", .name = "Made-up \"GPU\""}}};
    for (int i = 0; i < GAUGES; i++)
        out->gpu[0].value[i] = GAUGE_UNKNOWN;
    out->gpu[0].value[GAUGE_RANK] = 3;
    out->gpu[0].value[GAUGE_GROUP] = 2;
    out->gpu[0].value[GAUGE_TEMPERATURE] = 61;
    out->gpu[0].value[GAUGE_POWER] = 312500;
    out->gpu[0].value[GAUGE_CLOCK_LIMITS] = 0x44;
    return gpu_told;
}

int32_t engine_context_max(const struct engine *engine)
{
    (void)engine;
    return 4096;
}

static struct profile serves;

enum status engine_profile_set(struct engine *engine, const struct profile *profile,
                               struct error *err)
{
    (void)engine, (void)err;
    serves = *profile;
    return OK;
}

void engine_profile_get(struct engine *engine, struct profile *out)
{
    (void)engine;
    *out = serves;
}

void engine_profiles_apart(struct engine *engine, bool apart)
{
    (void)engine, (void)apart;
}

int32_t engine_step_tokens(const struct engine *engine)
{
    (void)engine;
    return SPAN_TOKENS_MAX;
}

const struct model_config *engine_model_config(const struct engine *engine)
{
    static const struct model_config CONFIG = {.name = "none", .vocab_size = 8};
    (void)engine;
    return &CONFIG;
}

/* An engine that goes down: no proof ends well. */
bool engine_between_steps(struct engine *engine, engine_work_fn *work, void *user)
{
    (void)engine, (void)work, (void)user;
    return false;
}

#endif
