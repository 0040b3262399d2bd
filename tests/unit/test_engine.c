/*
 * The serving core over the toy network: answers, queue, interleaving, cancel, faults, start and
 * end.
 */
#include "tests/unit/engine_toy.h"

/* ---- one request ---------------------------------------------------------------------------- */

static void test_answers(void **state)
{
    (void)state;
    struct engine *engine = engine_start(2, 4);
    static const int32_t LENGTHS[] = {1, 2, 5, 127, 255, 256, 257, 511, 700, 1500};
    for (size_t i = 0; i < sizeof LENGTHS / sizeof LENGTHS[0]; i++) {
        for (int way = 0; way < 3; way++) {
            struct engine_request r = request(prompt(i, LENGTHS[i]), LENGTHS[i], 1 + 37 * way);
            if (way == 0)
                r.sampling.temperature = 0;
            assert_int_equal(converse(engine, &r), 0);
        }
    }
    struct engine_stats stats;
    engine_stats_get(engine, &stats);
    assert_int_equal(stats.requests, 30);
    assert_int_equal(stats.prompt_tokens,
                     3 * (1 + 2 + 5 + 127 + 255 + 256 + 257 + 511 + 700 + 1500));
    assert_int_equal(stats.answer_tokens, 10 * (1 + 38 + 75));
    assert_int_equal(stats.reused_tokens, 0);
    assert_int_equal(stats.steps, toy.steps);
    assert_int_equal(stats.running + stats.waiting, 0);
    assert_ptr_equal(engine_model_config(engine), &TOY_CONFIG);
    assert_int_equal(engine_context_max(engine), CONTEXT);
    engine_end(engine);
}

static void test_stop_ids(void **state)
{
    (void)state;
    struct engine *engine = engine_start(1, 0);
    struct engine_request r = request(prompt(3, 20), 20, 200);
    int32_t answer[ANSWER_MAX];
    enum end_reason reason;
    assert_int_equal(expect(&r, answer, &reason), 200);
    for (int32_t at = 0; at < 200; at += 13) {
        const int32_t stops[2] = {at > 5 ? answer[at] : -5, answer[at]};
        r.stop_ids = stops;
        r.n_stop_ids = 2;
        struct client *c = submit(engine, &r);
        check_answer(c, &r);
        assert_int_equal(c->reason, END_STOP);
        for (int32_t i = 0; i < c->n_answer; i++)
            assert_int_not_equal(c->answer[i], answer[at]);
        client_destroy(c);
    }
    engine_end(engine);
}

static void test_context_end(void **state)
{
    (void)state;
    struct engine *engine = engine_start(1, 0);
    struct engine_request r = request(prompt(4, CONTEXT - 100), CONTEXT - 100, 100);
    r.reuse_namespace = NAMESPACE_A;
    converse(engine, &r);
    struct engine_request brim = request(prompt(5, CONTEXT - 1), CONTEXT - 1, 1);
    converse(engine, &brim);
    struct error err;
    struct engine_request over = request(prompt(5, CONTEXT - 1), CONTEXT - 1, 2);
    assert_int_equal(refused(engine, &over, &err), ERR_INPUT);
    over = request(prompt(5, 10), 10, INT32_MAX);
    assert_int_equal(refused(engine, &over, &err), ERR_INPUT);
    engine_end(engine);
}

static void test_refusals(void **state)
{
    (void)state;
    struct engine *engine = engine_start(1, 0);
    int32_t ids[] = {1, VOCAB, -1, 2};
    const int32_t stops[STOP_IDS_MAX + 1] = {0};
    struct engine_request good = request(prompt(1, 3), 3, 3), bad[6];
    for (int i = 0; i < 6; i++)
        bad[i] = good;
    bad[0].n_ids = 0;
    bad[1].tokens_max = 0;
    bad[2].ids = ids;
    bad[3].ids = ids + 2;
    bad[4].stop_ids = stops;
    bad[4].n_stop_ids = STOP_IDS_MAX + 1;
    bad[5].sampling.temperature = NAN;
    for (int i = 0; i < 6; i++) {
        struct error err;
        assert_int_equal(refused(engine, &bad[i], &err), ERR_INPUT);
    }
    struct error err;
    assert_int_equal(refused(engine, &good, &err), OK);
    struct engine_stats stats;
    engine_stats_get(engine, &stats);
    assert_int_equal(stats.requests, 1);
    engine_end(engine);
}

/* ---- many requests -------------------------------------------------------------------------- */

static void test_many(void **state)
{
    (void)state;
    enum { N = 60 };
    struct engine *engine = engine_start(5, N);
    struct client *clients[N];
    struct engine_request requests[N];
    for (int i = 0; i < N; i++) {
        int32_t n = 1 + (int32_t)(mix((uint64_t)i) % 600);
        int32_t *ids = calloc((size_t)n, sizeof *ids);
        memcpy(ids, prompt((uint64_t)i, n), (size_t)n * sizeof *ids);
        requests[i] = request(ids, n, 1 + (int32_t)(mix((uint64_t)i + 77) % 90));
        requests[i].reuse_namespace = (uint64_t)(i % 3);
        clients[i] = submit(engine, &requests[i]);
    }
    for (int i = 0; i < N; i++) {
        check_answer(clients[i], &requests[i]);
        assert_int_equal(clients[i]->order, i); /* first in, first out */
    }
    engine_end(engine);
    for (int i = 0; i < N; i++) {
        assert_int_equal(clients[i]->ends, 1);
        client_destroy(clients[i]);
        free((void *)requests[i].ids);
    }
}

/* The comparison above must see a network whose results depend on the chunking. */
static void test_many_negative_control(void **state)
{
    (void)state;
    struct engine *engine = engine_start(2, 2);
    toy.chunk_bug = true;
    struct engine_request r = request(prompt(9, 300), 300, 40);
    struct client *c = submit(engine, &r);
    client_wait_end(c);
    assert_non_null(differs(c, &r));
    engine_end(engine);
    client_destroy(c);
}

static void test_queue_full(void **state)
{
    (void)state;
    struct engine *engine = engine_start(2, 3);
    toy_hold();
    struct engine_request r = request(prompt(6, 30), 30, 5);
    struct client *clients[5];
    clients[0] = submit(engine, &r);
    toy_wait_held();
    for (int i = 1; i < 5; i++)
        clients[i] = submit(engine, &r);
    struct error err;
    assert_int_equal(refused(engine, &r, &err), ERR_CAPACITY);
    struct engine_stats stats;
    engine_stats_get(engine, &stats);
    assert_int_equal(stats.running, 1);
    assert_int_equal(stats.waiting, 4);
    toy_release();
    for (int i = 0; i < 5; i++)
        check_answer(clients[i], &r);
    assert_int_equal(refused(engine, &r, &err), OK); /* room again */
    engine_end(engine);
    for (int i = 0; i < 5; i++)
        client_destroy(clients[i]);
}

/* Neither a long prompt nor a long answer holds up the other. */
static void test_interleaving(void **state)
{
    (void)state;
    struct engine *engine = engine_start(2, 2);
    toy_hold();
    struct engine_request talker = request(prompt(1, 4), 4, 200);
    struct client *talking = submit(engine, &talker);
    toy_wait_held();
    struct engine_request reader = request(prompt(2, 1800), 1800, 50);
    int32_t *ids = calloc(1800, sizeof *ids);
    memcpy(ids, reader.ids, 1800 * sizeof *ids);
    reader.ids = ids;
    struct client *reading = submit(engine, &reader);
    toy_release();
    talker.ids = prompt(1, 4);
    check_answer(talking, &talker);
    check_answer(reading, &reader);
    int32_t together = 0;
    for (int32_t i = 0; i + 1 < toy.n_entries; i++) {
        const struct step_entry *a = &toy.entries[i], *b = &toy.entries[i + 1];
        if (a->step != b->step || b->length_before >= 1800)
            continue;
        assert_int_equal(a->n, 1);
        assert_int_equal(b->n, 1800 - b->length_before < STEP_PREFILL_MIXED_MAX
                                   ? 1800 - b->length_before
                                   : STEP_PREFILL_MIXED_MAX);
        together++;
    }
    assert_int_equal(together, (1800 + STEP_PREFILL_MIXED_MAX - 1) / STEP_PREFILL_MIXED_MAX);
    engine_end(engine);
    client_destroy(talking);
    client_destroy(reading);
    free(ids);
}

/* ---- endings -------------------------------------------------------------------------------- */

static void test_cancel_waiting(void **state)
{
    (void)state;
    struct engine *engine = engine_start(1, 2);
    toy_hold();
    struct engine_request r = request(prompt(1, 10), 10, 20);
    struct client *running = submit(engine, &r);
    toy_wait_held();
    struct client *first = submit(engine, &r), *second = submit(engine, &r);
    engine_cancel(engine, first->number);
    engine_cancel(engine, first->number + 1000); /* unknown: ignored */
    toy_release();
    client_wait_end(first);
    assert_int_equal(first->reason, END_CANCELLED);
    assert_int_equal(first->n_prefill + first->n_answer, 0);
    check_answer(running, &r);
    check_answer(second, &r);
    engine_cancel(engine, second->number); /* over already: ignored */
    engine_end(engine);
    client_destroy(running);
    client_destroy(first);
    client_destroy(second);
}

/* A cancel that comes while a step computes ends the request when that step is over. */
static void test_cancel_in_prefill(void **state)
{
    (void)state;
    struct engine *engine = engine_start(1, 0);
    toy_hold();
    struct engine_request r = request(prompt(1, 1500), 1500, 20);
    r.reuse_namespace = NAMESPACE_A;
    struct client *c = submit(engine, &r);
    toy_wait_held();
    engine_cancel(engine, c->number);
    toy_release();
    client_wait_end(c);
    assert_int_equal(c->reason, END_CANCELLED);
    assert_int_equal(c->done, SPAN_TOKENS_MAX);
    assert_int_equal(toy.steps, 1);
    assert_int_equal(converse(engine, &r), SPAN_TOKENS_MAX); /* what was fed serves the retry */
    engine_end(engine);
    client_destroy(c);
}

static void test_cancel_in_callback(void **state)
{
    (void)state;
    struct engine *engine = engine_start(1, 0);
    struct engine_request r = request(prompt(1, 10), 10, 500);
    toy_hold();
    struct client *c = submit(engine, &r);
    toy_wait_held();
    c->cancel_at = 9;
    toy_release();
    client_wait_end(c);
    assert_int_equal(c->reason, END_CANCELLED);
    assert_int_equal(c->n_answer, 9);
    assert_int_equal(toy.steps, 9); /* no step after the cancel */
    converse(engine, &r);
    engine_end(engine);
    client_destroy(c);
}

static void test_destroy_ends_all(void **state)
{
    (void)state;
    struct engine *engine = engine_start(2, 4);
    toy_hold();
    struct engine_request r = request(prompt(1, 400), 400, 500);
    struct client *clients[6];
    for (int i = 0; i < 6; i++)
        clients[i] = submit(engine, &r);
    toy_release();
    client_wait(clients[0], 3);
    engine_end(engine);
    for (int i = 0; i < 6; i++) {
        assert_null(clients[i]->wrong);
        assert_int_equal(clients[i]->ends, 1);
        assert_int_equal(clients[i]->reason,
                         i < 2 && clients[i]->n_answer == 500 ? END_LENGTH : END_CANCELLED);
        client_destroy(clients[i]);
    }
    engine_destroy(NULL);
}

/* Cancels at any moment, from the callback and from outside: every request ends once, and what was
 * delivered is the beginning of the right answer. */
static void test_many_cancels(void **state)
{
    (void)state;
    enum { N = 80, TOKENS = 60 };
    struct engine *engine = engine_start(4, N);
    struct client *clients[N];
    toy_hold(); /* until all are there: how many are cancelled is no matter of luck */
    for (uint64_t i = 0; i < N; i++) {
        int32_t n = 1 + (int32_t)(mix(i) % 400);
        struct engine_request r = request(prompt(i, n), n, TOKENS);
        r.reuse_namespace = 1 + i % 2;
        clients[i] = submit(engine, &r);
        pthread_mutex_lock(&clients[i]->lock);
        clients[i]->cancel_at = i % 4 == 0 ? 1 + (int32_t)(mix(i + 5) % TOKENS) : 0;
        pthread_mutex_unlock(&clients[i]->lock);
    }
    toy_release();
    for (uint64_t i = 0; i < N; i += 3)
        engine_cancel(engine, clients[mix(i + 9) % N]->number);
    int cancelled = 0;
    for (uint64_t i = 0; i < N; i++) {
        client_wait_end(clients[i]);
        int32_t n = clients[i]->total, answer[ANSWER_MAX];
        cancelled += clients[i]->reason == END_CANCELLED;
        if (n == 0)
            continue; /* never left the queue */
        struct engine_request r = request(prompt(i, n), n, TOKENS);
        enum end_reason reason;
        assert_true(expect(&r, answer, &reason) == TOKENS && clients[i]->n_answer <= TOKENS);
        assert_memory_equal(answer, clients[i]->answer,
                            (size_t)clients[i]->n_answer * sizeof *answer);
        if (clients[i]->reason != END_CANCELLED)
            assert_int_equal(clients[i]->n_answer, TOKENS);
    }
    assert_in_range(cancelled, N / 4 - 1, N / 4 + N / 3 + 1);
    engine_end(engine);
    for (int i = 0; i < N; i++)
        client_destroy(clients[i]);
}

/* Not-a-number ends one request loudly, leaves its neighbour alone and never serves as a prefix. */
static void test_fault(void **state)
{
    (void)state;
    struct engine *engine = engine_start(2, 2);
    int32_t ids[12];
    memcpy(ids, prompt(1, 12), sizeof ids);
    ids[9] = NAN_ID;
    struct engine_request good = request(prompt(1, 12), 12, 60), bad = request(ids, 10, 60);
    good.reuse_namespace = bad.reuse_namespace = NAMESPACE_A;
    toy_hold();
    struct client *a = submit(engine, &good), *b = submit(engine, &bad);
    toy_release();
    check_answer(a, &good);
    check_answer(b, &bad);
    assert_int_equal(b->reason, END_FAULT);
    assert_int_equal(b->n_answer, 0);
    bad.n_ids = 12; /* continues the faulty one */
    assert_int_equal(converse(engine, &bad), 0);
    engine_end(engine);
    client_destroy(a);
    client_destroy(b);
}

static void test_create_fails(void **state)
{
    (void)state;
    static const struct engine_options OPTIONS[] = {
        {.sessions_max = 0, .context_max = 64, .queue_max = 1},
        {.sessions_max = SESSIONS_MAX + 1, .context_max = 64, .queue_max = 1},
        {.sessions_max = 1, .context_max = 1, .queue_max = 1},
        {.sessions_max = 1, .context_max = POSITIONS_MAX + 1, .queue_max = 1},
        {.sessions_max = 1, .context_max = 64, .queue_max = -1},
        {.sessions_max = 1, .context_max = 64, .queue_max = QUEUE_MAX + 1},
    };
    struct engine *engine = NULL;
    struct error err;
    for (size_t i = 0; i < sizeof OPTIONS / sizeof OPTIONS[0]; i++) {
        struct model model = {1};
        assert_int_equal(engine_create(&model, &OPTIONS[i], &engine, &err), ERR_INPUT);
        assert_int_equal(model.alive, 0); /* taken also by a call that fails */
    }
    const struct engine_options good = {.sessions_max = 4, .context_max = 64, .queue_max = 1};
    for (int32_t fail = 0; fail < 4; fail++) {
        struct model model = {1};
        toy.n_sequences = 0;
        toy.fail_sequence = fail;
        assert_int_equal(engine_create(&model, &good, &engine, &err), ERR_CAPACITY);
        assert_int_equal(model.alive, 0);
        assert_int_equal(toy.sequences_alive, 0);
    }
    assert_null(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_stop_ids),
        cmocka_unit_test(test_context_end),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_many_negative_control),
        cmocka_unit_test(test_queue_full),
        cmocka_unit_test(test_interleaving),
        cmocka_unit_test(test_cancel_waiting),
        cmocka_unit_test(test_cancel_in_prefill),
        cmocka_unit_test(test_cancel_in_callback),
        cmocka_unit_test(test_destroy_ends_all),
        cmocka_unit_test(test_many_cancels),
        cmocka_unit_test(test_fault),
        cmocka_unit_test(test_create_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
