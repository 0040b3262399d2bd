/*
 * The store of answers: by call and by place, for its key alone, by what a client saw and not by
 * how it is written; and its bounds, under any number of answers and several threads.
 */
#include "engine/api/turns.h"

#include "config/limits.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static int open_sodium(void **state)
{
    (void)state;
    return sodium_init() < 0 ? -1 : 0;
}

static struct buf text(const char *from)
{
    return (struct buf){.data = (char *)(uintptr_t)from, .len = strlen(from)};
}

/* An answer as the store takes it; all of it borrowed. */
struct made {
    struct buf reasoning, content;
    struct dsml_call call;
    struct turn_call calls[1];
    struct ids ids;
    int32_t id_list[8];
    struct turn turn;
};

static void make(struct made *m, uint64_t key, const char *place, const char *reasoning,
                 const char *content, const char *call_id, const char *arguments)
{
    *m = (struct made){.reasoning = text(reasoning), .content = text(content)};
    for (int32_t i = 0; i < 8; i++)
        m->id_list[i] = 100 + i;
    m->ids = (struct ids){.data = m->id_list, .len = 8};
    m->call = (struct dsml_call){.name = text("f"), .arguments = text(arguments)};
    m->calls[0].call = &m->call;
    snprintf(m->calls[0].id, sizeof m->calls[0].id, "%s", call_id);
    m->turn = (struct turn){.key = key,
                            .thinking = true,
                            .reasoning = &m->reasoning,
                            .content = &m->content,
                            .calls = m->calls,
                            .n_calls = call_id[0] != '\0',
                            .ids = &m->ids};
    int32_t first;
    memcpy(&first, place, sizeof first);
    turns_hash(&first, 1, m->turn.context);
}

static enum chat_source look(struct turns *turns, uint64_t key, const char *place,
                             const char *content, const char *call_id, const char *arguments)
{
    struct turns_reader reader;
    struct chat_recalled got = {0};
    int32_t first;
    memcpy(&first, place, sizeof first);
    struct ids before = {.data = &first, .len = 1};
    struct json_object *calls = NULL;
    if (call_id[0] != '\0') {
        struct json_object *call = json_object_new_object(), *function = json_object_new_object();
        calls = json_object_new_array();
        json_object_object_add(function, "name", json_object_new_string("f"));
        json_object_object_add(function, "arguments", json_object_new_string(arguments));
        json_object_object_add(call, "id", json_object_new_string(call_id));
        json_object_object_add(call, "function", function);
        json_object_array_add(calls, call);
    }
    struct chat_sent sent = {
        .content = json_object_new_string(content), .tool_calls = calls, .thinking = true};
    turns_reader_init(&reader, turns, key);
    enum chat_source source = turns_recall(&reader, &sent, &before, &got);
    if (source == CHAT_REPLAYED)
        assert_int_equal(got.ids.len, 8);
    if (source == CHAT_REASONING)
        assert_int_equal(got.ids.len, 0);
    json_object_put(sent.content);
    json_object_put(calls);
    ids_free(&got.ids);
    buf_free(&got.reasoning);
    return source;
}

#define CALL_A "call_aaaaaaaaaaaaaaaaaaaaaaaa"
#define CALL_B "call_bbbbbbbbbbbbbbbbbbbbbbbb"

static void test_found_and_not(void **state)
{
    (void)state;
    struct turns *turns = turns_create();
    struct made m;
    make(&m, 7, "aaaa", "why", "Ok.", CALL_A, "{\"n\": 1, \"s\": \"é\"}");
    turns_put(turns, &m.turn);
    make(&m, 7, "bbbb", "why not", "Done.", "", "");
    turns_put(turns, &m.turn);
    static const struct {
        uint64_t key;
        const char *place, *content, *call_id, *arguments;
        enum chat_source source;
    } ROWS[] = {
        {7, "zzzz", "Ok.", CALL_A, "{\"n\": 1, \"s\": \"é\"}", CHAT_REPLAYED}, /* by its call */
        {7, "aaaa", "Ok.", CALL_B, "{\"n\": 1, \"s\": \"é\"}", CHAT_REPLAYED}, /* by its place */
        {7, "zzzz", "Ok.", CALL_B, "{\"n\": 1, \"s\": \"é\"}", CHAT_SENT},
        {8, "aaaa", "Ok.", CALL_A, "{\"n\": 1, \"s\": \"é\"}", CHAT_SENT}, /* another key */
        /* the same arguments, printed anew */
        {7, "zzzz", "Ok.", CALL_A, "{\"n\":1.0,\"s\":\"\\u00e9\"}", CHAT_REPLAYED},
        {7, "zzzz", "\nOk. ", CALL_A, " { \"n\" : 1 , \"s\":\"é\" } ", CHAT_REPLAYED},
        /* others: the reasoning stays */
        {7, "zzzz", "Ok.", CALL_A, "{\"n\": 2, \"s\": \"é\"}", CHAT_REASONING},
        {7, "zzzz", "Ok.", CALL_A, "{\"n\": \"1\", \"s\": \"é\"}", CHAT_REASONING},
        {7, "zzzz", "Ok.", CALL_A, "{\"n\": 1}", CHAT_REASONING},
        {7, "zzzz", "Ok.", CALL_A, "{\"n\": [1], \"s\": \"é\"}", CHAT_REASONING},
        {7, "zzzz", "Ok.", CALL_A, "not json", CHAT_REASONING},
        {7, "zzzz", "Ok!", CALL_A, "{\"n\": 1, \"s\": \"é\"}", CHAT_REASONING},
        /* without a call: the place counts */
        {7, "bbbb", "Done.", "", "", CHAT_REPLAYED},
        {7, "bbbb", "Done", "", "", CHAT_SENT},
        {7, "cccc", "Done.", "", "", CHAT_SENT},
        {8, "bbbb", "Done.", "", "", CHAT_SENT},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++)
        assert_int_equal(look(turns, ROWS[i].key, ROWS[i].place, ROWS[i].content, ROWS[i].call_id,
                              ROWS[i].arguments),
                         ROWS[i].source);
    turns_destroy(turns);
    turns_destroy(NULL);
}

static void test_nothing_to_keep(void **state)
{
    (void)state;
    struct turns *turns = turns_create();
    struct turns_stats stats;
    struct made m;
    make(&m, 7, "aaaa", "", "Ok.", "", "");
    m.turn.ids = NULL;
    turns_put(turns, &m.turn);
    make(&m, 0, "aaaa", "why", "Ok.", "", ""); /* no key */
    turns_put(turns, &m.turn);
    turns_stats_get(turns, &stats);
    assert_int_equal(stats.kept, 0);
    make(&m, 7, "aaaa", "why", "Ok.", "", "");
    turns_put(NULL, &m.turn);
    turns_put(turns, &m.turn);
    turns_put(turns, &m.turn); /* the same once more */
    turns_stats_get(turns, &stats);
    assert_int_equal(stats.kept, 1);
    assert_int_equal(look(NULL, 7, "aaaa", "Ok.", "", ""), CHAT_SENT);
    turns_destroy(turns);
}

static void put_numbered(struct turns *turns, uint64_t key, int n, size_t reasoning_bytes)
{
    static char reasoning[TURNS_KEY_BYTES_MAX + 2];
    struct made m;
    char place[sizeof n];
    memcpy(place, &n, sizeof n);
    make(&m, key, place, "", "Ok.", "", "");
    m.reasoning = (struct buf){.data = reasoning, .len = reasoning_bytes};
    memset(reasoning, 'r', reasoning_bytes);
    turns_put(turns, &m.turn);
}

static bool has_numbered(struct turns *turns, uint64_t key, int n)
{
    char place[sizeof n];
    memcpy(place, &n, sizeof n);
    return look(turns, key, place, "Ok.", "", "") != CHAT_SENT;
}

/* The one used longest ago goes first; looking at one is using it. */
static void test_bounds(void **state)
{
    (void)state;
    struct turns *turns = turns_create();
    struct turns_stats stats;
    for (int i = 0; i < TURNS_MAX; i++)
        put_numbered(turns, 1 + (uint64_t)i % 3, i, 1);
    turns_stats_get(turns, &stats);
    assert_int_equal(stats.kept, TURNS_MAX);
    assert_true(has_numbered(turns, 1, 0));
    put_numbered(turns, 1, TURNS_MAX, 1);
    put_numbered(turns, 1, TURNS_MAX + 1, 1);
    turns_stats_get(turns, &stats);
    assert_int_equal(stats.kept, TURNS_MAX);
    assert_true(has_numbered(turns, 1, 0));
    assert_false(has_numbered(turns, 2, 1));
    assert_false(has_numbered(turns, 3, 2));
    assert_true(has_numbered(turns, 1, 3));
    turns_destroy(turns);

    turns = turns_create(); /* one key fills its share, and takes nothing from others */
    put_numbered(turns, 2, 0, 1000);
    for (int i = 1; i < 40; i++) {
        put_numbered(turns, 1, i, TURNS_KEY_BYTES_MAX / 8);
        turns_stats_get(turns, &stats);
        assert_in_range(stats.bytes, 0, TURNS_KEY_BYTES_MAX + 4096);
    }
    assert_true(has_numbered(turns, 2, 0));
    assert_true(has_numbered(turns, 1, 39));
    assert_false(has_numbered(turns, 1, 1));
    put_numbered(turns, 1, 50, TURNS_KEY_BYTES_MAX + 1); /* larger than a share */
    assert_false(has_numbered(turns, 1, 50));
    assert_true(has_numbered(turns, 1, 39));
    for (int i = 0; i < 200; i++) { /* many keys fill the whole */
        put_numbered(turns, 100 + (uint64_t)i, i, TURNS_KEY_BYTES_MAX / 8);
        turns_stats_get(turns, &stats);
        assert_in_range(stats.bytes, 0, TURNS_BYTES_MAX);
    }
    assert_false(has_numbered(turns, 2, 0));
    assert_true(has_numbered(turns, 299, 199));
    turns_destroy(turns);
}

static void *work(void *user)
{
    for (int i = 0; i < 3000; i++) {
        struct made m;
        int32_t n = i % 700;
        char place[sizeof n];
        memcpy(place, &n, sizeof n);
        make(&m, 1 + (uint64_t)i % 5, place, "why", "Ok.", "", "");
        turns_put(user, &m.turn);
        assert_int_equal(look(user, 1 + (uint64_t)i % 5, place, "Ok.", "", ""), CHAT_REPLAYED);
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    struct turns *turns = turns_create();
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, turns), 0);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    turns_destroy(turns);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_found_and_not),
        cmocka_unit_test(test_nothing_to_keep),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, open_sodium, NULL);
}
