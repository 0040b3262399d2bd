/*
 * Switching profiles, over an engine, a proof and a ranking that do what the test says: what serves
 * when a proof is good, bad or cut, trials that are confirmed, expire or are cut by a restart, two
 * switches at once, and a disk that is full.
 */
#include "engine/precision/control.h"
#include "engine/precision/rank.h"
#include "kernels/check.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define WAIT_S 60 /* longer is a hang */

/* ---- the engine, the proof and the ranking that are played ------------------------------------
 */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct profile serves;
    bool drained; /* as asked with the last switch */
    int switches;
    bool hold;   /* proofs wait */
    bool proves; /* one waits */
    bool bad;    /* proofs fail */
    int proofs;
    int groups;    /* of the engine */
    int bad_group; /* whose proofs fail; below 0: none's */
    int saves;
    bool full; /* the disk, for the engine */
} world = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* What stands for each group. */
static char played[4];

int32_t engine_groups(const struct engine *engine)
{
    (void)engine;
    return world.groups;
}

struct engine *engine_group(struct engine *engine, int32_t i)
{
    (void)engine;
    return (struct engine *)(void *)&played[i];
}

static void wait_or_die(void)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += WAIT_S;
    ASSERT(pthread_cond_timedwait(&world.changed, &world.lock, &until) == 0);
}

enum status engine_profile_set(struct engine *engine, const struct profile *profile,
                               struct error *err)
{
    (void)engine;
    if (profile->values[ROW_DRAFT_DEPTH] == DRAFT_DEPTH_THREE)
        return error_set(err, ERR_INPUT, "draft.depth: this model has no such block");
    pthread_mutex_lock(&world.lock);
    world.serves = *profile;
    world.switches++;
    pthread_cond_broadcast(&world.changed);
    pthread_mutex_unlock(&world.lock);
    return OK;
}

void engine_profile_get(struct engine *engine, struct profile *out)
{
    (void)engine;
    pthread_mutex_lock(&world.lock);
    *out = world.serves;
    pthread_mutex_unlock(&world.lock);
}

void engine_profiles_apart(struct engine *engine, bool apart)
{
    (void)engine;
    world.drained = apart;
}

int32_t engine_step_tokens(const struct engine *engine)
{
    (void)engine;
    return SPAN_TOKENS_MAX;
}

const struct model_config *engine_model_config(const struct engine *engine)
{
    static const struct model_config CONFIG = {.name = "played", .vocab_size = 64};
    (void)engine;
    return &CONFIG;
}

bool engine_between_steps(struct engine *engine, engine_work_fn *work, void *user)
{
    (void)engine, (void)work, (void)user;
    return true; /* the played proof asks whether it may go on, and needs no model */
}

enum status engine_save(struct engine *engine, struct error *err)
{
    (void)engine;
    if (world.full)
        return error_set(err, ERR_IO, "no room");
    world.saves++;
    return OK;
}

void engine_stats_get(struct engine *engine, struct engine_stats *out)
{
    (void)engine;
    *out = (struct engine_stats){.prefix_saved_blocks = 7};
}

static void no_work(void *user, struct model *model)
{
    (void)user, (void)model;
}

void proof_run(struct lab *lab, const struct proof_options *options, struct proof *out)
{
    *out = (struct proof){.profile = *options->profile, .time_s = 1};
    pthread_mutex_lock(&world.lock);
    world.proves = true;
    world.proofs++;
    pthread_cond_broadcast(&world.changed);
    while (world.hold && (out->complete = lab->run(lab->host, no_work, NULL))) {
        struct timespec soon;
        clock_gettime(CLOCK_MONOTONIC, &soon);
        soon.tv_nsec += 5000000;
        soon.tv_sec += soon.tv_nsec / 1000000000;
        soon.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&world.changed, &world.lock, &soon);
    }
    out->complete = lab->run(lab->host, no_work, NULL);
    bool bad = world.bad || (world.bad_group >= 0 &&
                             options->serve_user == (const void *)&played[world.bad_group]);
    out->good = out->complete && !bad;
    if (bad) {
        out->cells[ROW_HC_MIX][KIND_CSA][LEG_DECODE].state = PROOF_WRONG;
        out->counts[PROOF_WRONG] = 1;
        strcpy(out->cells[ROW_HC_MIX][KIND_CSA][LEG_DECODE].why, "ran bf16 in 3 of 4 calls");
    }
    world.proves = false;
    pthread_mutex_unlock(&world.lock);
}

void rank_run(struct lab *lab, const int32_t *prompt, int32_t n, const struct profile *only,
              struct rank *out)
{
    (void)lab, (void)prompt;
    assert_null(only); /* an operator chooses among all */
    *out = (struct rank){.complete = n > 0};
}

/* ---- helpers -------------------------------------------------------------------------------- */

static char folder[] = "/tmp/v4box-control-XXXXXX";
static char path[64];
static struct store *store;
static struct control *control;

static void start(void)
{
    struct error err;
    if (store_open(path, "balanced", &store, &err) != OK)
        fail_msg("%s", err.text);
    const struct control_options options = {.store = store};
    assert_int_equal(control_start(&options, &control, &err), OK);
}

static void stop(void)
{
    control_stop(control);
    store_close(store);
    control = NULL;
    store = NULL;
}

static int setup_all(void **state)
{
    (void)state;
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&world.changed, &clock);
    pthread_condattr_destroy(&clock);
    if (mkdtemp(folder) == NULL)
        return -1;
    snprintf(path, sizeof path, "%s/profiles", folder);
    return 0;
}

static int setup(void **state)
{
    (void)state;
    world.hold = world.bad = world.drained = false;
    world.switches = world.proofs = 0;
    world.groups = 1, world.bad_group = -1;
    world.serves = (struct profile){0}; /* no profile of the store */
    start();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    stop();
    unlink(path);
    return 0;
}

static int teardown_all(void **state)
{
    (void)state;
    return rmdir(folder);
}

static void assert_serves(const char *name)
{
    struct control_status s;
    control_status_get(control, &s);
    assert_string_equal(s.current.name, name);
    pthread_mutex_lock(&world.lock);
    assert_string_equal(world.serves.name, name);
    pthread_mutex_unlock(&world.lock);
}

static struct control_result result_of(uint64_t job)
{
    struct control_result result;
    int64_t left_ms = WAIT_S * 1000;
    while (!control_take(control, job, &result)) {
        assert_true(left_ms-- > 0);
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    return result;
}

/* Switches and waits.  @return whether it was done; the text holds `says` */
static bool set(const char *name, bool drain, int32_t try_s, const char *says)
{
    struct error err = {0};
    uint64_t job;
    const struct control_set asked = {name, drain, try_s};
    if (control_set(control, &asked, &job, &err) != OK)
        fail_msg("%s", err.text);
    struct control_result result = result_of(job);
    if (strstr(buf_cstr(&result.text), says) == NULL)
        fail_msg("'%s' does not say '%s'", buf_cstr(&result.text), says);
    assert_true(result.data.len > 0 && result.data.data[0] == '{');
    buf_free(&result.text);
    buf_free(&result.data);
    return result.good;
}

static void set_refused(const char *name, enum status status, const char *says)
{
    struct error err = {0};
    uint64_t job;
    const struct control_set asked = {.name = name};
    assert_int_equal(control_set(control, &asked, &job, &err), status);
    if (strstr(err.text, says) == NULL)
        fail_msg("'%s' does not say '%s'", err.text, says);
}

/* The newest event of the history. */
static struct switch_event last_event(void)
{
    struct switch_event events[SWITCH_EVENTS_MAX];
    int n = store_history(store, events);
    assert_true(n > 0);
    return events[n - 1];
}

static void assert_alarm(const char *says)
{
    struct control_status s;
    control_status_get(control, &s);
    if (strstr(s.alarm, says) == NULL || (says[0] == '\0' && s.alarm[0] != '\0'))
        fail_msg("alarm '%s', not '%s'", s.alarm, says);
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void test_good(void **state)
{
    (void)state;
    assert_serves("balanced");
    assert_int_equal(world.switches, 1);
    assert_true(set("fast", false, 0, "fast serves new requests"));
    assert_serves("fast");
    assert_false(world.drained);
    assert_true(set("official", true, 0, "once those that run have ended"));
    assert_serves("official");
    assert_true(world.drained);
    struct control_status s;
    control_status_get(control, &s);
    assert_true(s.proven);
    assert_int_equal(s.phase, CONTROL_SERVING);
    assert_string_equal(s.previous.name, "fast");
    stop();
    start(); /* it is kept */
    assert_serves("official");
    control_status_get(control, &s);
    assert_false(s.proven); /* by this process not yet */
}

static void test_unproven(void **state)
{
    (void)state;
    world.bad = true;
    assert_false(set("fast", false, 0, "wrong    hc.mix, csa layers, decode: ran bf16"));
    assert_serves("balanced");
    assert_int_equal(world.switches, 1);
    assert_int_equal(last_event().kind, SWITCH_UNPROVEN);
    assert_string_equal(last_event().to, "fast");
    assert_alarm("not proven");
    world.bad = false;
    assert_true(set("fast", false, 0, "serves"));
    assert_alarm("");
}

/* Every group is proven, and one that is not keeps the profile from all. */
static void test_groups(void **state)
{
    (void)state;
    world.groups = 3;
    assert_true(set("fast", false, 0, "group 3 of 3:"));
    assert_int_equal(world.proofs, 3);
    assert_serves("fast");
    for (world.bad_group = 0; world.bad_group < 3; world.bad_group++) {
        char says[32];
        snprintf(says, sizeof says, "group %d of 3:", world.bad_group + 1);
        world.proofs = 0;
        assert_false(set("official", false, 0, says));
        assert_int_equal(world.proofs, world.bad_group + 1);
        assert_serves("fast");
    }
}

static void test_verify(void **state)
{
    (void)state;
    struct error err = {0};
    uint64_t job;
    world.bad = true;
    assert_int_equal(control_verify(control, "reference", &job, &err), OK);
    struct control_result result = result_of(job);
    assert_false(result.good);
    assert_non_null(strstr(buf_cstr(&result.text), "reference ("));
    assert_non_null(strstr(buf_cstr(&result.text), "NOT PROVEN"));
    buf_free(&result.text);
    buf_free(&result.data);
    assert_serves("balanced");
    assert_int_equal(control_verify(control, "nobody", &job, &err), ERR_INPUT);
    assert_int_equal(control_rank(control, &job, &err), OK);
    result = result_of(job);
    assert_true(result.good);
    buf_free(&result.text);
    buf_free(&result.data);
    struct buf report = {0};
    control_report(control, &report);
    assert_non_null(strstr(buf_cstr(&report), "\"proof\": {\"profile\": \"reference\""));
    buf_free(&report);
}

/* The proof can be good and the engine still not able to serve it. */
static void test_engine_refuses(void **state)
{
    (void)state;
    struct error err = {0};
    assert_int_equal(store_copy(store, "fast", "deep", &err), OK);
    assert_int_equal(store_row(store, "deep", "draft.depth", "3", &err), OK);
    assert_false(set("deep", false, 0, "not switched: draft.depth"));
    assert_serves("balanced");
    assert_alarm("can not serve here");
    struct switch_event events[SWITCH_EVENTS_MAX];
    assert_int_equal(store_history(store, events), 0);
}

static void test_refusals(void **state)
{
    (void)state;
    struct error err = {0};
    set_refused("nobody", ERR_INPUT, "no profile is named nobody");
    set_refused("balanced", ERR_INPUT, "serves already");
    assert_int_equal(control_confirm(control, &err), ERR_INPUT);
    assert_int_equal(control_rollback(control, &err), ERR_INPUT);
    assert_serves("balanced");
    assert_int_equal(world.proofs, 0);
}

/* A save changes nothing that serves, and says when it did not come about. */
static void test_save(void **state)
{
    (void)state;
    for (int full = 0; full < 2; full++) {
        struct error err;
        uint64_t job;
        world.full = full;
        world.saves = 0;
        assert_int_equal(control_save(control, &job, &err), OK);
        struct control_result result = result_of(job);
        assert_int_equal(result.good, !full);
        assert_int_equal(world.saves, !full);
        assert_string_equal(buf_cstr(&result.text),
                            full ? "no room" : "7 blocks of prefixes are saved\n");
        assert_string_equal(buf_cstr(&result.data), full ? "" : "{\"saved_blocks\": 7}");
        buf_free(&result.text);
        buf_free(&result.data);
    }
    world.full = false;
    assert_serves("balanced");
    assert_int_equal(world.proofs, 0);
}

/* A second switch, a verification, a ranking, a save and a rollback while a switch is under way. */
static void test_two_at_once(void **state)
{
    (void)state;
    struct error err = {0};
    uint64_t job, other;
    const struct control_set asked = {.name = "fast"};
    world.hold = true;
    assert_int_equal(control_set(control, &asked, &job, &err), OK);
    pthread_mutex_lock(&world.lock);
    while (!world.proves)
        wait_or_die();
    pthread_mutex_unlock(&world.lock);
    set_refused("official", ERR_CAPACITY, "profile set runs");
    assert_int_equal(control_verify(control, "fast", &other, &err), ERR_CAPACITY);
    assert_int_equal(control_rank(control, &other, &err), ERR_CAPACITY);
    assert_int_equal(control_save(control, &other, &err), ERR_CAPACITY);
    assert_int_equal(control_rollback(control, &err), ERR_CAPACITY);
    struct control_status s;
    control_status_get(control, &s);
    assert_int_equal(s.phase, CONTROL_BUSY);
    assert_string_equal(s.job, "profile set");
    assert_serves("balanced"); /* until it is proven */
    pthread_mutex_lock(&world.lock);
    world.hold = false;
    pthread_cond_broadcast(&world.changed);
    pthread_mutex_unlock(&world.lock);
    struct control_result result = result_of(job);
    assert_true(result.good);
    buf_free(&result.text);
    buf_free(&result.data);
    assert_serves("fast");
    assert_int_equal(world.proofs, 1);
}

/* The box goes down in the middle of a proof: nothing was switched, nothing is left half done. */
static void test_stop_while_proving(void **state)
{
    (void)state;
    struct error err = {0};
    uint64_t job;
    const struct control_set asked = {.name = "fast", .try_s = 60};
    world.hold = true;
    assert_int_equal(control_set(control, &asked, &job, &err), OK);
    pthread_mutex_lock(&world.lock);
    while (!world.proves)
        wait_or_die();
    pthread_mutex_unlock(&world.lock);
    stop();
    world.hold = false;
    start();
    assert_serves("balanced");
    struct switch_event events[SWITCH_EVENTS_MAX];
    assert_int_equal(store_history(store, events), 0);
}

static void test_trial_expires(void **state)
{
    (void)state;
    assert_true(set("fast", false, 1, "on trial: goes back in 1 s"));
    pthread_mutex_lock(&world.lock);
    while (strcmp(world.serves.name, "balanced") != 0)
        wait_or_die();
    pthread_mutex_unlock(&world.lock);
    struct error err;
    assert_int_equal(control_confirm(control, &err), ERR_INPUT); /* too late; it waits its turn */
    assert_serves("balanced");
    assert_int_equal(last_event().kind, SWITCH_EXPIRED);
    assert_string_equal(last_event().from, "fast");
    assert_string_equal(last_event().to, "balanced");
    assert_alarm("not confirmed");
}

static void test_trial_confirmed(void **state)
{
    (void)state;
    struct error err;
    struct control_status s;
    assert_true(set("fast", false, 600, "on trial"));
    control_status_get(control, &s);
    assert_int_equal(s.phase, CONTROL_TRIAL);
    assert_in_range(s.trial_s, 1, 600);
    set_refused("official", ERR_CAPACITY, "a trial is under way");
    assert_serves("fast");
    assert_int_equal(control_confirm(control, &err), OK);
    assert_int_equal(control_confirm(control, &err), ERR_INPUT);
    control_status_get(control, &s);
    assert_int_equal(s.phase, CONTROL_SERVING);
    assert_string_equal(s.previous.name, "balanced");
    stop();
    start();
    assert_serves("fast");
}

static void test_trial_left(void **state)
{
    (void)state;
    struct error err;
    assert_true(set("official", false, 0, "serves"));
    assert_true(set("fast", false, 600, "on trial"));
    assert_int_equal(control_rollback(control, &err), OK);
    assert_serves("official");
    struct control_status s;
    control_status_get(control, &s);
    assert_string_equal(s.previous.name, "balanced");
    assert_int_equal(s.phase, CONTROL_SERVING);
    assert_int_equal(control_rollback(control, &err), OK); /* and once more goes further back */
    assert_serves("balanced");
    assert_int_equal(last_event().kind, SWITCH_ROLLED_BACK);
}

static void test_trial_cut_by_restart(void **state)
{
    (void)state;
    assert_true(set("fast", false, 600, "on trial"));
    stop();
    start();
    assert_serves("balanced");
    assert_int_equal(last_event().kind, SWITCH_RESTARTED);
}

static void test_full_disk(void **state)
{
    (void)state;
    struct rlimit old, small;
    assert_true(set("official", false, 0, "serves"));
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = (struct rlimit){50, old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    bool good = set("fast", false, 0, "not switched: ");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_false(good);
    assert_serves("official");
    assert_alarm("could not be stored");
    assert_true(set("fast", false, 0, "serves"));
}

/* Nobody comes for the results: they are bounded, and the newest are there. */
static void test_results_bounded(void **state)
{
    (void)state;
    uint64_t jobs[CONTROL_RESULTS_MAX + 4];
    struct error err;
    struct control_result result;
    for (int i = 0; i < CONTROL_RESULTS_MAX + 4; i++) {
        while (control_verify(control, "fast", &jobs[i], &err) == ERR_CAPACITY)
            nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    result = result_of(jobs[CONTROL_RESULTS_MAX + 3]);
    buf_free(&result.text);
    buf_free(&result.data);
    assert_false(control_take(control, jobs[0], &result));
    assert_false(control_take(control, jobs[CONTROL_RESULTS_MAX + 3], &result)); /* given once */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_good, setup, teardown),
        cmocka_unit_test_setup_teardown(test_unproven, setup, teardown),
        cmocka_unit_test_setup_teardown(test_groups, setup, teardown),
        cmocka_unit_test_setup_teardown(test_verify, setup, teardown),
        cmocka_unit_test_setup_teardown(test_engine_refuses, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refusals, setup, teardown),
        cmocka_unit_test_setup_teardown(test_save, setup, teardown),
        cmocka_unit_test_setup_teardown(test_two_at_once, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stop_while_proving, setup, teardown),
        cmocka_unit_test_setup_teardown(test_trial_expires, setup, teardown),
        cmocka_unit_test_setup_teardown(test_trial_confirmed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_trial_left, setup, teardown),
        cmocka_unit_test_setup_teardown(test_trial_cut_by_restart, setup, teardown),
        cmocka_unit_test_setup_teardown(test_full_disk, setup, teardown),
        cmocka_unit_test_setup_teardown(test_results_bounded, setup, teardown),
    };
    return cmocka_run_group_tests(tests, setup_all, teardown_all);
}
