/*
 * What timelines take together when they share pages: a page counts once, so that more of them run
 * at once, and what they hold never exceeds what there is, whoever ends first.  Over the toy
 * network, which counts the pages of all sequences in every step itself and ASSERTs that
 * (toy_taken).
 */
#include "tests/unit/engine_toy.h"

enum { COMMON = 14 * SNAPSHOT_TOKENS, OWN = SNAPSHOT_TOKENS, MORE = 4 };

/* Starts with the same COMMON tokens, goes on in its own way, and ends in its own time. */
static struct engine_request branch(int32_t *ids, uint64_t number, uint64_t reuse_namespace)
{
    memcpy(ids, prompt(1, COMMON), COMMON * sizeof *ids);
    memcpy(ids + COMMON, prompt(100 + number, 60), 60 * sizeof *ids);
    struct engine_request r = request(ids, COMMON + 60, 5 + (int32_t)(number * 7 % 60));
    r.reuse_namespace = reuse_namespace;
    return r;
}

/* @return how many of N branches of one prefix ran at once */
static int32_t branches_at_once(uint64_t reuse_namespace)
{
    enum { N = 9 };
    static int32_t ids[N][COMMON + 60];
    struct engine_request requests[N];
    struct client *clients[N];
    struct engine_stats stats;
    struct engine *engine = engine_start_cached(N, N, 40);
    for (uint64_t i = 0; i < N; i++)
        requests[i] = branch(ids[i], i, reuse_namespace);
    converse(engine, &requests[0]);
    toy.n_entries = 0;
    toy_hold();
    clients[0] = submit(engine, &requests[0]);
    toy_wait_held();
    for (int i = 1; i < N; i++)
        clients[i] = submit(engine, &requests[i]);
    toy_release();
    for (int i = 0; i < N; i++) {
        check_answer(clients[i], &requests[i]);
        client_destroy(clients[i]);
    }
    engine_stats_get(engine, &stats);
    assert_true(stats.state_bytes <= stats.state_bytes_max);
    assert_int_equal(stats.state_bytes, toy_taken());
    engine_end(engine);
    return toy_most_at_once();
}

/* Room for one of them and a page for each of MORE others. */
static void test_branches(void **state)
{
    (void)state;
    toy.state_bytes = COMMON + OWN + MORE * OWN;
    assert_int_equal(branches_at_once(NAMESPACE_A), 1 + MORE);
    assert_true(toy.taken_most > toy.state_bytes - OWN);
    assert_int_equal(branches_at_once(0), 1); /* nothing is shared */
    toy.state_bytes = 0;
}

/* Who waits for room gets it when the one ends that the common pages were counted for. */
static void test_first_ends(void **state)
{
    (void)state;
    static int32_t ids[3][COMMON + 60];
    struct engine_request requests[3];
    struct client *clients[3];
    struct engine_stats stats;
    toy.state_bytes = COMMON + 2 * OWN;
    struct engine *engine = engine_start_cached(3, 3, 40);
    for (uint64_t i = 0; i < 3; i++)
        requests[i] = branch(ids[i], i, NAMESPACE_A);
    converse(engine, &requests[0]);
    requests[0].tokens_max = 10;
    requests[1].tokens_max = requests[2].tokens_max = 60;
    toy.n_entries = 0;
    toy_hold();
    clients[0] = submit(engine, &requests[0]);
    toy_wait_held();
    for (int i = 1; i < 3; i++)
        clients[i] = submit(engine, &requests[i]);
    toy_release();
    for (int i = 0; i < 3; i++)
        check_answer(clients[i], &requests[i]);
    assert_int_equal(clients[2]->reused, COMMON);
    for (int i = 0; i < 3; i++)
        client_destroy(clients[i]);
    engine_stats_get(engine, &stats);
    assert_int_equal(stats.state_bytes, toy_taken());
    engine_end(engine);
    int32_t together = 0;
    for (int32_t i = 1; i < toy.n_entries; i++)
        together += toy.entries[i].step == toy.entries[i - 1].step;
    assert_int_equal(toy_most_at_once(), 2);
    assert_true(together > 30); /* the third did not wait for the second */
    toy.state_bytes = 0;
}

/* Bytes of all pages of all sequences, as if none were shared. */
static uint64_t held_apart(void)
{
    uint64_t sum = 0;
    for (int32_t i = 0; i < toy.n_sequences; i++) {
        const struct sequence *s = toy.sequences[i];
        for (int32_t at = 0; at < TOY_PAGES; at++)
            sum += s->pages[at] == PAGE_NONE ? 0 : SNAPSHOT_TOKENS * s->token_bytes;
    }
    return sum;
}

/* A request of a random branch, profile and length; some give up on the way. */
static struct engine_request any_request(int32_t *ids, uint64_t seed)
{
    static struct profile precise;
    precise = *profile_builtin_at(PROFILE_OFFICIAL);
    assert_true(profile_set(&precise, ROW_SUM, SUM_F64));
    int32_t n = 1 + (int32_t)(mix(seed) % 800), fork = 200 + (int32_t)(mix(seed + 1) % 500);
    memcpy(ids, prompt(mix(seed + 2) % 4 == 0, n), (size_t)n * sizeof *ids);
    for (int32_t i = fork; i < n; i++)
        ids[i] = (ids[i] + (int32_t)(mix(seed + 3) % 3)) % (VOCAB - 1);
    struct engine_request r = request(ids, n, 1 + (int32_t)(mix(seed + 4) % 40));
    r.reuse_namespace = 2 - mix(seed + 5) % 5 / 2;
    if (mix(seed + 6) % 5 == 0)
        r.profile = &precise;
    return r;
}

/* Random branches in little memory, with guesses and a cache that evicts: in every step what is
 * held fits, and when nothing runs what is planned is what is held. */
static void test_random(void **state)
{
    (void)state;
    enum { LIVES = 12, BATCHES = 6, N = 8 };
    static int32_t ids[N][840];
    uint64_t spared = 0;
    for (uint64_t life = 0; life < LIVES; life++) {
        toy.state_bytes = CONTEXT + mix(life) % CONTEXT;
        struct engine *engine =
            engine_start_all(5, N, 16 + (int32_t)(mix(life + 50) % 24), life % 2 == 0 ? 3 : 0);
        for (uint64_t batch = 0; batch < BATCHES; batch++) {
            struct engine_request requests[N];
            struct client *clients[N];
            struct engine_stats stats;
            for (uint64_t i = 0; i < N; i++) {
                uint64_t seed = (life * BATCHES + batch) * N + i;
                requests[i] = any_request(ids[i], 100 * seed);
                clients[i] = submit(engine, &requests[i]);
                if (mix(seed) % 6 == 0)
                    engine_cancel(engine, clients[i]->number);
            }
            for (int i = 0; i < N; i++) {
                client_wait_end(clients[i]);
                client_destroy(clients[i]);
            }
            engine_stats_get(engine, &stats);
            assert_int_equal(stats.state_bytes, toy_taken());
            spared += held_apart() - stats.state_bytes;
        }
        engine_end(engine);
    }
    assert_true(spared > 1000); /* which ones meet is up to the threads: some always do */
    toy.state_bytes = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_branches),
        cmocka_unit_test(test_first_ends),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
