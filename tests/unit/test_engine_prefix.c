/*
 * The prefix cache behind the engine, over the toy network: what is found, what never is, what is
 * evicted, and that no answer changes.  That the state of the real network survives is the matter
 * of tests/serve.
 */
#include "tests/unit/engine_toy.h"

#include "engine/model/prefix.h"

/* n tokens of text `seed`; from `fork` on of text `other`. */
static const int32_t *forked(uint64_t seed, int32_t fork, uint64_t other, int32_t n)
{
    static int32_t ids[CONTEXT];
    memcpy(ids, prompt(other, n), (size_t)n * sizeof *ids);
    memcpy(ids, prompt(seed, n), (size_t)fork * sizeof *ids);
    return ids;
}

static int32_t ask(struct engine *engine, const int32_t *ids, int32_t n, uint64_t name)
{
    struct engine_request r = request(ids, n, 9);
    r.reuse_namespace = name;
    return converse(engine, &r);
}

static struct engine_stats stats_of(struct engine *engine)
{
    struct engine_stats stats;
    engine_stats_get(engine, &stats);
    return stats;
}

/* Branches at every residue: as much as lies in whole blocks in front of the fork is reused. */
static void test_branches(void **state)
{
    (void)state;
    struct engine *engine = engine_start_cached(2, 2, 60);
    assert_int_equal(ask(engine, prompt(1, 1000), 1000, NAMESPACE_A), 0);
    static const int32_t FORKS[] = {0, 1, 127, 128, 129, 255, 256, 257, 511, 640, 895, 896, 899};
    for (uint64_t i = 0; i < sizeof FORKS / sizeof FORKS[0]; i++) {
        int32_t whole = FORKS[i] / SNAPSHOT_TOKENS * SNAPSHOT_TOKENS, n = FORKS[i] + 150;
        assert_int_equal(ask(engine, forked(1, FORKS[i], 100 + i, n), n, NAMESPACE_A), whole);
    }
    assert_int_equal(stats_of(engine).prefix_evicted, 0);
    engine_end(engine);
}

/* The last token of a prompt is always fed, so a prompt of 128 tokens finds nothing. */
static void test_lengths(void **state)
{
    (void)state;
    struct engine *engine = engine_start_cached(1, 1, 8);
    assert_int_equal(ask(engine, prompt(1, 400), 400, NAMESPACE_A), 0);
    static const int32_t LENGTHS[][2] = {{1, 0},     {127, 0},   {128, 0},   {129, 128},
                                         {256, 128}, {257, 256}, {384, 256}, {385, 384}};
    for (size_t i = 0; i < sizeof LENGTHS / sizeof LENGTHS[0]; i++)
        assert_int_equal(ask(engine, prompt(1, LENGTHS[i][0]), LENGTHS[i][0], NAMESPACE_A),
                         LENGTHS[i][1]);
    engine_end(engine);
}

/* What was answered is stored as what was asked, and a whole timeline beats a shorter prefix. */
static void test_answers_are_stored(void **state)
{
    (void)state;
    struct engine *engine = engine_start_cached(2, 1, 8);
    struct engine_request r = request(prompt(1, 120), 120, 300);
    r.reuse_namespace = NAMESPACE_A;
    assert_int_equal(converse(engine, &r), 0);
    int32_t ids[CONTEXT];
    enum end_reason reason;
    memcpy(ids, r.ids, 120 * sizeof *ids);
    int32_t n = 120 + expect(&r, ids + 120, &reason);
    assert_int_equal(n, 420);
    ids[n++] = 5;
    assert_int_equal(ask(engine, ids, n, NAMESPACE_A), 419); /* the timeline */
    assert_int_equal(ask(engine, ids, n - 7, NAMESPACE_A), 384);
    assert_int_equal(ask(engine, ids, 300, NAMESPACE_A), 256);
    engine_end(engine);
}

static void test_namespaces(void **state)
{
    (void)state;
    struct engine *engine = engine_start_cached(1, 1, 16);
    assert_int_equal(ask(engine, prompt(1, 300), 300, NAMESPACE_A), 0);
    assert_int_equal(ask(engine, prompt(1, 300), 300, NAMESPACE_B), 0);
    assert_int_equal(ask(engine, prompt(1, 300), 300, 0), 0);
    assert_int_equal(ask(engine, prompt(1, 300), 300, 0), 0); /* nobody's is never stored */
    assert_int_equal(ask(engine, prompt(1, 300), 300, NAMESPACE_B), 256);
    assert_int_equal(ask(engine, prompt(1, 300), 300, NAMESPACE_A), 256);
    assert_int_equal(stats_of(engine).prefix_blocks, 4);
    engine_end(engine);
}

/* A prompt with one other token early on shares nothing, however much follows. */
static void test_every_token_counts(void **state)
{
    (void)state;
    struct engine *engine = engine_start_cached(1, 1, 60);
    assert_int_equal(ask(engine, prompt(1, 300), 300, NAMESPACE_A), 0);
    for (int32_t at = 0; at < 128; at += 9) {
        int32_t ids[300];
        memcpy(ids, prompt(1, 300), sizeof ids);
        ids[at] ^= 1;
        assert_int_equal(ask(engine, ids, 300, NAMESPACE_A), 0);
    }
    engine_end(engine);
}

/* Of a conversation that outgrows the cache the middle goes first, and ends stay continuable. */
static void test_eviction(void **state)
{
    (void)state;
    struct engine *engine = engine_start_cached(1, 1, 6);
    assert_int_equal(ask(engine, prompt(1, 6 * 128 + 1), 6 * 128 + 1, NAMESPACE_A), 0);
    assert_int_equal(stats_of(engine).prefix_evicted, 0);
    assert_int_equal(ask(engine, prompt(2, 200), 200, NAMESPACE_A), 0); /* evicts the first one */
    assert_int_equal(ask(engine, prompt(2, 200), 200, NAMESPACE_A), 128);
    assert_int_equal(ask(engine, prompt(1, 200), 200, NAMESPACE_A), 0);
    struct engine_stats stats = stats_of(engine);
    assert_true(stats.prefix_evicted > 0);
    assert_in_range(stats.prefix_blocks, 1, 6);
    assert_int_equal(stats.prefix_bytes,
                     (stats.prefix_blocks + stats.prefix_tails) * TOY_PIECE_BYTES);
    assert_int_equal(stats.prefix_bytes_max, 6 * 2 * TOY_PIECE_BYTES);
    assert_int_equal(stats.session_bytes, CONTEXT);
    assert_in_range(stats.prefix_tails, 1, stats.prefix_blocks);
    assert_int_equal(ask(engine, prompt(3, 1500), 1500, NAMESPACE_A), 0); /* longer than all */
    assert_int_equal(ask(engine, prompt(3, 1500), 1500, NAMESPACE_A), 6 * 128);
    engine_end(engine);
}

/* Not-a-number: what was stored for this key since is not trusted; other keys keep theirs. */
static void test_fault_forgets(void **state)
{
    (void)state;
    struct engine *engine = engine_start_cached(2, 2, 16);
    int32_t ids[300];
    assert_int_equal(ask(engine, prompt(1, 300), 300, NAMESPACE_A), 0);
    assert_int_equal(ask(engine, prompt(1, 300), 300, NAMESPACE_B), 0);
    memcpy(ids, prompt(2, 300), sizeof ids);
    ids[299] = NAN_ID;
    assert_int_equal(ask(engine, ids, 300, NAMESPACE_A), 0);
    assert_int_equal(ask(engine, prompt(1, 300), 300, NAMESPACE_A), 0);
    assert_int_equal(ask(engine, prompt(1, 300), 300, NAMESPACE_B), 256);
    engine_end(engine);
}

static void test_create_fails(void **state)
{
    (void)state;
    struct model model = {1};
    struct engine *engine = NULL;
    struct error err;
    struct engine_options options = {
        .sessions_max = 1, .context_max = 64, .prefix_bytes = 2 * TOY_PIECE_BYTES - 1};
    toy.n_sequences = 0;
    toy.fail_sequence = -1;
    assert_int_equal(engine_create(&model, &options, &engine, &err), ERR_INPUT);
    assert_int_equal(toy.sequences_alive + model.alive, 0);
    model.alive = 1;
    options.prefix_bytes++;
    toy.fail_snapshots = true;
    assert_int_equal(engine_create(&model, &options, &engine, &err), ERR_CAPACITY);
    assert_int_equal(toy.sequences_alive + model.alive, 0);
    toy.fail_snapshots = false;
    assert_null(engine);
}

/* The tree by itself, forgetting: every slot comes back, whatever the order was, and pieces of two
 * sizes never take more than there is. */
static void test_slots_return(void **state)
{
    (void)state;
    static struct model model = {1};
    struct prefix *p = NULL;
    struct error err;
    struct prefix_stats stats;
    int32_t larger = 0;
    struct sequence s = {.n = 5 * 128, .tokens_max = CONTEXT};
    assert_int_equal(prefix_create(&model, 20 * 2 * TOY_PIECE_BYTES,
                                   profile_builtin_at(PROFILE_OFFICIAL), &p, &err),
                     OK);
    for (uint64_t i = 0; i < 500; i++) {
        int32_t n = (1 + (int32_t)(mix(i) % 5)) * 128;
        int32_t fork = (int32_t)(mix(i + 1000) % 5) * 128;
        const int32_t *ids = forked(1 + i % 3, fork < n ? fork : n, i % 40, n);
        s.n = n;
        const struct prefix_owner owner = {1 + i % 2, profile_builtin_at(i % 3 == 0)};
        prefix_save(p, &owner, ids, n, i, &s);
        assert_int_equal(prefix_find(p, &owner, ids, n), n);
        if (i % 97 == 0)
            prefix_forget(p, 1);
        prefix_stats_get(p, &stats);
        assert_true(stats.bytes <= stats.bytes_max);
        larger += stats.bytes > (uint64_t)(stats.blocks + stats.tails) * TOY_PIECE_BYTES;
    }
    assert_in_range(larger, 100, 500); /* pieces of both sizes were there */
    assert_in_range(stats.tails, 1, stats.blocks);
    assert_true(stats.evicted > 100);
    prefix_forget(p, 1);
    prefix_forget(p, 2);
    prefix_stats_get(p, &stats);
    assert_int_equal(stats.blocks + stats.tails, 0);
    prefix_destroy(p);
    prefix_destroy(NULL);
}

/* Many clients of three keys on four timelines that share beginnings, with a cache that is always
 * too small. */
static void test_many(void **state)
{
    (void)state;
    enum { N = 300, BATCH = 6 };
    struct engine *engine = engine_start_cached(4, N, 12);
    for (uint64_t i = 0; i < N; i += BATCH) {
        struct client *clients[BATCH];
        struct engine_request requests[BATCH];
        int32_t ids[BATCH][700];
        for (uint64_t j = 0; j < BATCH; j++) {
            uint64_t k = i + j;
            int32_t n = 1 + (int32_t)(mix(k) % 699), fork = (int32_t)(mix(k + 7000) % 700);
            memcpy(ids[j], forked(3, fork < n ? fork : n, k, n), (size_t)n * sizeof **ids);
            requests[j] = request(ids[j], n, 1 + (int32_t)(mix(k + 77) % 40));
            requests[j].reuse_namespace = k % 4;
            clients[j] = submit(engine, &requests[j]);
        }
        for (int j = 0; j < BATCH; j++) {
            check_answer(clients[j], &requests[j]);
            client_destroy(clients[j]);
        }
    }
    struct engine_stats stats = stats_of(engine);
    assert_true(stats.reused_tokens > 1000 && stats.prefix_evicted > 100);
    engine_end(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_branches),           cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_answers_are_stored), cmocka_unit_test(test_namespaces),
        cmocka_unit_test(test_every_token_counts), cmocka_unit_test(test_eviction),
        cmocka_unit_test(test_fault_forgets),      cmocka_unit_test(test_create_fails),
        cmocka_unit_test(test_slots_return),       cmocka_unit_test(test_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
