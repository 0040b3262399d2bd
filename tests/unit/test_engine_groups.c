/*
 * Where requests of several groups go, over engines that are what the test says: a conversation
 * goes to who knows it, load is spread, nobody waits where another has a place, and a group that is
 * lost gets nothing while another computes.  And what they say together.
 */
#include "engine/serve/groups.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { GROUPS = 3, SESSIONS = 4 };

/* ---- the engines ---------------------------------------------------------------------------- */

struct engine {
    struct engine_stats stats;
    struct gauges gauges;
    bool told, destroyed;
};

static struct engine engines[GROUPS];

void engine_stats_get(struct engine *e, struct engine_stats *out)
{
    *out = e->stats;
}

bool engine_gauges_get(struct engine *e, struct gauges *out)
{
    if (e->told)
        *out = e->gauges;
    return e->told;
}

void engine_destroy(struct engine *e)
{
    e->destroyed = true;
}

static struct groups *open_groups(void)
{
    struct engine *list[GROUPS];
    memset(engines, 0, sizeof engines);
    for (int i = 0; i < GROUPS; i++)
        list[i] = &engines[i];
    return groups_create(list, GROUPS, SESSIONS);
}

/* A prompt of n tokens, of which the first `common` are those of all others. */
static int place(struct groups *g, uint64_t who, int32_t common, int32_t n, int32_t own)
{
    static int32_t ids[1 << 16];
    assert_in_range(n, 1, 1 << 16);
    for (int32_t i = 0; i < n; i++)
        ids[i] = i < common ? i : own + i;
    const struct engine_request r = {.ids = ids, .n_ids = n, .reuse_namespace = who};
    return (int)(groups_place(g, &r) - engines);
}

static void loads(int a, int b, int c)
{
    engines[0].stats.running = a;
    engines[1].stats.running = b;
    engines[2].stats.running = c;
}

/* ---- where requests go ---------------------------------------------------------------------- */

static void test_load(void **state)
{
    (void)state;
    struct groups *g = open_groups();
    loads(2, 1, 3);
    assert_int_equal(place(g, 1, 0, 100, 1000), 1);
    engines[1].stats.waiting = 2; /* who waits is load, too */
    assert_int_equal(place(g, 2, 0, 100, 1000), 0);
    engines[0].stats.lost = true;
    assert_int_equal(place(g, 3, 0, 100, 1000), 1);
    engines[1].stats.lost = engines[2].stats.lost = true; /* all: then it waits for one of them */
    assert_int_equal(place(g, 4, 0, 100, 1000), 0);
    groups_destroy(g);
    assert_true(engines[0].destroyed && engines[1].destroyed && engines[2].destroyed);
}

/* A conversation that grows, beside another one. */
static void test_home(void **state)
{
    (void)state;
    struct groups *g = open_groups();
    loads(1, 0, 1);
    assert_int_equal(place(g, 7, 40, 100, 5000), 1);
    loads(0, 1, 1);
    assert_int_equal(place(g, 7, 40, 90, 9000), 0); /* another beginning */
    loads(1, 1, 1);
    for (int32_t n = 120; n < 60000; n *= 2)
        assert_int_equal(place(g, 7, 40, n, 5000), 1);
    assert_int_equal(place(g, 7, 40, 200, 9000), 0);
    /* Whose key may not reuse it, or who reuses nothing, has no home. */
    loads(1, 1, 0);
    assert_int_equal(place(g, 8, 40, 60000, 5000), 2);
    assert_int_equal(place(g, 0, 40, 60000, 5000), 2);
    groups_destroy(g);
}

/* A long beginning is worth some load; a place at once is worth more. */
static void test_home_or_load(void **state)
{
    (void)state;
    struct groups *g = open_groups();
    loads(1, 0, 1);
    assert_int_equal(place(g, 7, 0, 2 * GROUP_TOKENS_WORTH, 5000), 1);
    loads(0, 2, 0);
    assert_int_equal(place(g, 7, 0, 2 * GROUP_TOKENS_WORTH, 5000), 1);
    loads(0, 3, 0);
    assert_int_equal(place(g, 7, 0, 2 * GROUP_TOKENS_WORTH, 5000), 0);
    loads(2, 0, 0); /* and who has got it now is its home */
    assert_int_equal(place(g, 7, 0, 2 * GROUP_TOKENS_WORTH, 5000), 0);
    assert_int_equal(place(g, 7, 0, 8 * GROUP_TOKENS_WORTH, 5000), 0);
    loads(SESSIONS, SESSIONS - 1, SESSIONS - 1);
    assert_int_equal(place(g, 7, 0, 8 * GROUP_TOKENS_WORTH, 5000), 1);
    loads(SESSIONS, SESSIONS + 1, SESSIONS); /* it waits everywhere */
    assert_int_equal(place(g, 7, 0, 8 * GROUP_TOKENS_WORTH, 5000), 1);
    loads(9, 0, 0);
    engines[1].stats.lost = true;
    assert_int_equal(place(g, 7, 0, 8 * GROUP_TOKENS_WORTH, 5000), 2);
    groups_destroy(g);
}

/* Of many conversations, more than are remembered, each place is a group, and nobody aborts. */
static void test_many(void **state)
{
    (void)state;
    struct groups *g = open_groups();
    int32_t same = 0;
    for (int32_t turn = 0; turn < 2; turn++) {
        for (int32_t i = 0; i < 2000; i++) {
            loads(i % 3 != 0, i % 3 != 1, i % 3 != 2);
            if (turn > 0)
                loads(1, 1, 1);
            same += place(g, (uint64_t)i + 1, 0, 64, i) == i % 3 && turn > 0;
        }
    }
    assert_in_range(same, 900, 2000); /* of 4,000 beginnings in 4,096 places */
    groups_destroy(g);
}

/* ---- what they say -------------------------------------------------------------------------- */

static void test_stats(void **state)
{
    (void)state;
    struct groups *g = open_groups();
    struct engine_stats out;
    for (int i = 0; i < GROUPS; i++)
        engines[i].stats = (struct engine_stats){.requests = 10,
                                                 .answer_tokens = (uint64_t)i,
                                                 .running = 1,
                                                 .prefix_blocks = 2,
                                                 .state_bytes = 100,
                                                 .losses = (uint64_t)i,
                                                 .recovered_ms = 5 - (uint64_t)i,
                                                 .worker = i == 0 ? 0 : 40 + i};
    engines[2].stats.lost = true;
    groups_stats(g, &out);
    assert_true(out.requests == 30 && out.answer_tokens == 3 && out.running == 3);
    assert_true(out.prefix_blocks == 6 && out.state_bytes == 300 && out.losses == 3);
    assert_true(out.recovered_ms == 5 && out.worker == 41 && out.lost);
    groups_destroy(g);
}

static void test_gauges(void **state)
{
    (void)state;
    struct groups *g = open_groups();
    struct gauges out = {.n = -1};
    assert_false(groups_gauges(g, &out));
    assert_int_equal(out.n, -1);
    /* Each sees the whole machine, and knows of one GPU what computes there. */
    for (int i = 1; i < GROUPS; i++) {
        struct gauges *told = &engines[i].gauges;
        engines[i].told = true;
        *told = (struct gauges){.n = RANKS_MAX - 2, .at_ms = 100 - i};
        for (int k = 0; k < told->n; k++) {
            struct gpu_gauges *gpu = &told->gpu[k];
            snprintf(gpu->bus, sizeof gpu->bus, "0000:%02x:00.0", k);
            gpu->value[GAUGE_RANK] = k == i ? 0 : GAUGE_UNKNOWN;
            gpu->value[GAUGE_GROUP] = k == i ? i + 1 : GAUGE_UNKNOWN;
        }
    }
    strcpy(engines[2].gauges.gpu[0].bus, "0000:41:00.0"); /* the first has not seen it */
    assert_true(groups_gauges(g, &out));
    assert_int_equal(out.n, RANKS_MAX - 1);
    assert_int_equal(out.at_ms, 98);
    assert_string_equal(out.gpu[RANKS_MAX - 2].bus, "0000:41:00.0");
    for (int k = 0; k < out.n; k++) {
        bool known = k > 0 && k < GROUPS;
        assert_int_equal(out.gpu[k].value[GAUGE_GROUP], known ? k + 1 : GAUGE_UNKNOWN);
        assert_int_equal(out.gpu[k].value[GAUGE_RANK], known ? 0 : GAUGE_UNKNOWN);
    }
    for (int k = 0; k < RANKS_MAX; k++) /* the largest box has no more */
        snprintf(engines[2].gauges.gpu[k].bus, GAUGE_BUS_BYTES, "0000:a%d:00.0", k);
    engines[2].gauges.n = RANKS_MAX;
    assert_true(groups_gauges(g, &out));
    assert_int_equal(out.n, RANKS_MAX);
    groups_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_load),         cmocka_unit_test(test_home),
        cmocka_unit_test(test_home_or_load), cmocka_unit_test(test_many),
        cmocka_unit_test(test_stats),        cmocka_unit_test(test_gauges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
