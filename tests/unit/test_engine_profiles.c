/*
 * Requests of several profiles in one engine, over the toy network, whose states differ between
 * profiles that sum differently: each is computed by its own from start to end, none continues
 * another's, and all get their turns.
 */
#include "tests/unit/engine_toy.h"

/* The official profile with one row changed. */
static struct profile with(enum precision_row row, int value)
{
    struct profile profile = *profile_builtin_at(PROFILE_OFFICIAL);
    assert_true(profile_set(&profile, row, value));
    return profile;
}

/* Two profiles whose states differ. */
static const struct profile *column(int i)
{
    static struct profile precise;
    precise = with(ROW_SUM, SUM_F64);
    return i % 2 == 0 ? profile_builtin_at(PROFILE_OFFICIAL) : &precise;
}

static void test_many(void **state)
{
    (void)state;
    enum { N = 160, BATCH = 8 };
    struct engine *engine = engine_start_all(4, N, 12, 1);
    for (uint64_t i = 0; i < N; i += BATCH) {
        struct client *clients[BATCH];
        struct engine_request requests[BATCH];
        int32_t ids[BATCH][500];
        for (uint64_t j = 0; j < BATCH; j++) {
            int32_t n = 1 + (int32_t)(mix(i + j) % 499);
            memcpy(ids[j], prompt((i + j) % 3, n), (size_t)n * sizeof **ids);
            requests[j] = request(ids[j], n, 1 + (int32_t)(mix(i + j + 77) % 40));
            requests[j].reuse_namespace = j % 3;
            requests[j].profile = column((int)(mix(i + j + 5) % 2));
            clients[j] = submit(engine, &requests[j]);
        }
        for (int j = 0; j < BATCH; j++) {
            check_answer(clients[j], &requests[j]);
            client_destroy(clients[j]);
        }
    }
    struct engine_stats stats;
    engine_stats_get(engine, &stats);
    assert_true(stats.reused_tokens > 1000);
    engine_end(engine);
}

/* The same prompt under another profile is computed anew; under one of equal values it is not. */
static void test_nothing_is_shared(void **state)
{
    (void)state;
    for (int32_t pieces = 0; pieces <= 16; pieces += 16) {
        struct engine *engine = engine_start_cached(2, 2, pieces);
        struct engine_request r = request(prompt(1, 300), 300, 9);
        r.reuse_namespace = NAMESPACE_A;
        assert_int_equal(converse(engine, &r), 0);
        r.n_ids = 290;
        r.profile = column(1);
        assert_int_equal(converse(engine, &r), 0);
        r.n_ids = 280;
        assert_int_equal(converse(engine, &r), pieces > 0 ? 256 : 0);
        struct profile same = with(ROW_SUM, SUM_F32);
        strcpy(same.name, "another-name");
        r.profile = &same;
        assert_int_equal(converse(engine, &r), pieces > 0 ? 256 : 0);
        engine_end(engine);
    }
}

/* Of two profiles that both want every step, each gets every second one. */
static void test_turns(void **state)
{
    (void)state;
    struct engine *engine = engine_start(3, 3);
    struct engine_request requests[3];
    struct client *clients[3];
    toy_hold();
    for (int i = 0; i < 3; i++) {
        int32_t *ids = calloc(40, sizeof *ids);
        memcpy(ids, prompt((uint64_t)i, 40), 40 * sizeof *ids);
        requests[i] = request(ids, 40, 100);
        requests[i].profile = column(i); /* two against one */
        clients[i] = submit(engine, &requests[i]);
        if (i == 0)
            toy_wait_held();
    }
    toy_release();
    for (int i = 0; i < 3; i++)
        check_answer(clients[i], &requests[i]);
    int32_t last[3] = {-1, -1, -1}, waits = 0;
    for (int32_t i = 0; i < toy.n_entries; i++) {
        const struct step_entry *entry = &toy.entries[i];
        int32_t s = entry->sequence;
        if (last[s] >= 0 && entry->step - last[s] > 2)
            fail_msg("sequence %d waited from step %d to %d", s, last[s], entry->step);
        waits += last[s] >= 0 && entry->step - last[s] == 2;
        last[s] = entry->step;
    }
    assert_true(waits > 150);
    for (int i = 0; i < 3; i++) {
        client_destroy(clients[i]);
        free((int32_t *)(uintptr_t)requests[i].ids);
    }
    engine_end(engine);
}

static void test_set(void **state)
{
    (void)state;
    struct engine *engine = engine_start(2, 2);
    struct profile profile;
    struct error err = {0};
    struct engine_request old = request(prompt(1, 600), 600, 60), new = old;
    toy_hold();
    struct client *before = submit(engine, &old);
    toy_wait_held();
    assert_int_equal(engine_profile_set(engine, column(1), &err), OK);
    engine_profile_get(engine, &profile);
    assert_true(profile_equal(&profile, column(1)));
    struct engine_stats stats;
    engine_stats_get(engine, &stats);
    assert_int_equal(stats.session_bytes, 2 * CONTEXT); /* that of the one that was set */
    struct client *after = submit(engine, &new);
    toy_release();
    check_answer(before, &old); /* as it began */
    new.profile = column(1);
    check_answer(after, &new);
    client_destroy(before);
    client_destroy(after);
    struct profile audit = with(ROW_MOE_CLAMP, MOE_CLAMP_OFF);
    assert_int_equal(engine_profile_set(engine, &audit, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "moe.clamp"));
    new.profile = &audit;
    assert_int_equal(refused(engine, &new, &err), ERR_INPUT);
    engine_profile_get(engine, &profile);
    assert_true(profile_equal(&profile, column(1)));
    engine_end(engine);
}

/* The rows that the serving core obeys. */
static void test_rows(void **state)
{
    (void)state;
    struct engine *engine = engine_start_cached(1, 1, 16);
    struct profile off = with(ROW_PREFIX_REUSE, PREFIX_REUSE_OFF);
    struct engine_request r = request(prompt(1, 300), 300, 9);
    struct engine_stats stats;
    r.reuse_namespace = NAMESPACE_A;
    r.profile = &off;
    for (int i = 0; i < 3; i++) {
        r.n_ids = 290 + i;
        assert_int_equal(converse(engine, &r), 0);
    }
    engine_stats_get(engine, &stats);
    assert_int_equal(stats.prefix_blocks, 0);
    static const int32_t MOST[PREFILL_CHUNK_VALUES] = {SPAN_TOKENS_MAX, SPAN_TOKENS_MAX / 4,
                                                       SPAN_TOKENS_MAX / 16};
    for (int i = 0; i < PREFILL_CHUNK_VALUES; i++) {
        struct profile chunk = with(ROW_PREFILL_CHUNK, i);
        r.profile = &chunk;
        int32_t from = toy.n_entries, most = 0;
        converse(engine, &r);
        for (int32_t j = from; j < toy.n_entries; j++)
            most = toy.entries[j].n > most ? toy.entries[j].n : most;
        assert_int_equal(most, MOST[i]);
    }
    engine_end(engine);
}

/* Kept apart: who names another profile waits until all that run have ended, and is lost neither
 * way. */
static void test_apart(void **state)
{
    (void)state;
    struct engine *engine = engine_start(4, 8);
    struct client *clients[6];
    struct engine_request requests[6];
    int32_t ids[6][100];
    engine_profiles_apart(engine, true);
    toy_hold();
    for (int i = 0; i < 6; i++) {
        memcpy(ids[i], prompt((uint64_t)i, 100), sizeof ids[i]);
        requests[i] = request(ids[i], 100, 20);
        requests[i].profile = column(i < 2 ? 0 : i < 4 ? 1 : 0);
        clients[i] = submit(engine, &requests[i]);
    }
    toy_release();
    for (int i = 0; i < 6; i++)
        check_answer(clients[i], &requests[i]);
    assert_true(clients[0]->order < clients[2]->order && clients[3]->order < clients[4]->order);
    for (int i = 0; i < 6; i++)
        client_destroy(clients[i]);
    engine_profiles_apart(engine, false);
    engine_end(engine);
}

/* ---- memory --------------------------------------------------------------------------------- */

/* As many run at once as their profile's bytes fit, the others wait: twice as many of one that
 * takes half. */
static void test_memory(void **state)
{
    (void)state;
    enum { N = 12, EACH = 512 }; /* 300 tokens and 100 of an answer, by whole pages */
    toy.state_bytes = 8 * EACH;
    for (int i = 0; i < 2; i++) {
        struct engine *engine = engine_start(N, N);
        struct engine_request r = request(prompt(1, 300), 300, 100);
        struct client *clients[N];
        struct engine_stats stats;
        r.profile = column(i);
        toy_hold();
        clients[0] = submit(engine, &r);
        toy_wait_held();
        for (int j = 1; j < N; j++)
            clients[j] = submit(engine, &r);
        toy_release();
        for (int j = 0; j < N; j++) {
            check_answer(clients[j], &r);
            client_destroy(clients[j]);
        }
        assert_int_equal(toy_most_at_once(), i == 0 ? 8 : 4);
        engine_stats_get(engine, &stats);
        assert_int_equal(stats.state_bytes_max, 8 * EACH);
        assert_int_equal(stats.state_bytes, 0);
        engine_end(engine);
    }
    toy.state_bytes = 0;
    struct engine *engine = engine_start(1, 1);
    struct engine_stats stats;
    engine_stats_get(engine, &stats);
    assert_int_equal(stats.state_bytes_max, 2 * CONTEXT); /* one of whichever profile */
    engine_end(engine);
}

/* Timelines that are kept give way, the oldest first; what never fits is refused. */
static void test_memory_of_idle(void **state)
{
    (void)state;
    toy.state_bytes = CONTEXT + 500;
    struct engine *engine = engine_start(4, 4);
    struct engine_request r = request(prompt(1, 300), 300, 9),
                          large = request(prompt(3, 2000), 2000, 9);
    struct engine_stats stats;
    struct error err = {0};
    int32_t ids[2][320];
    r.reuse_namespace = NAMESPACE_A;
    for (int i = 0; i < 2; i++) {
        memcpy(ids[i], prompt((uint64_t)i, 320), sizeof ids[i]);
        r.ids = ids[i];
        r.n_ids = 300;
        converse(engine, &r);
    }
    engine_stats_get(engine, &stats);
    assert_int_equal(stats.state_bytes, 2 * 384);
    converse(engine, &large); /* has room beside one of them */
    engine_stats_get(engine, &stats);
    assert_int_equal(stats.state_bytes, 384);
    /* What was kept goes on where it ended; what was given up begins again. */
    struct client *c[2];
    int32_t answer[2][ANSWER_MAX];
    enum end_reason reason;
    for (int i = 1; i >= 0; i--) {
        r.ids = ids[i];
        r.n_ids = 300;
        int32_t n = expect(&r, answer[i], &reason);
        memcpy(ids[i] + 300, answer[i], (size_t)n * sizeof **answer);
        r.n_ids = 300 + n;
        c[i] = submit(engine, &r);
        check_answer(c[i], &r);
        assert_int_equal(c[i]->reused > 0, i == 1);
        client_destroy(c[i]);
    }
    large.profile = column(1);
    assert_int_equal(refused(engine, &large, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "bytes under profile"));
    engine_end(engine);
    struct model model = {1};
    const struct engine_options little = {
        .sessions_max = 1, .context_max = 256, .state_bytes = 255};
    toy.n_sequences = 0;
    assert_int_equal(engine_create(&model, &little, &engine, &err), ERR_INPUT);
    assert_non_null(strstr(err.text, "256 takes 256"));
    assert_int_equal(toy.sequences_alive + model.alive, 0);
    toy.state_bytes = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_apart),
        cmocka_unit_test(test_nothing_is_shared),
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_set),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_memory_of_idle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
