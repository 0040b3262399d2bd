/*
 * The place where engine and connection meet: what is most urgent, when a sign of life is due, the
 * bounds on waiting by a clock that the test turns, and who frees what; then what a client reads
 * when a bound is reached.
 */
#include "engine/api/completion.h"
#include "engine/api/stream.h"
#include "engine/base/clock.h"

#include "tests/unit/fake_engine.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define HEARTBEAT_MS 1000

static atomic_bool starts; /* whether the engine begins with the next request */

/* Says nothing until it is cancelled. */
static void fake_script(struct fake_request *r)
{
    if (atomic_load(&starts))
        fake_prefill(r, 0);
    while (!atomic_load(&r->cancelled))
        fake_wait(1);
    fake_end(r, END_CANCELLED);
}

static void event(struct stream *s, struct engine_event event)
{
    stream_on_event(s, &event);
}

static enum stream_news next(struct stream *s)
{
    struct stream_item item;
    return stream_next(s, NULL, &item);
}

/* ---- the stream alone ------------------------------------------------------------------------ */

static void tokens_come_before_the_end(void **state)
{
    struct stream *s = stream_create(3, 0, HEARTBEAT_MS);
    struct stream_progress progress;
    struct stream_item item;
    (void)state;
    stream_retain(s);
    assert_int_equal(next(s), STREAM_NOTHING);
    stream_progress_get(s, &progress);
    assert_int_equal(progress.started_ms, 0);
    event(s, (struct engine_event){.kind = EVENT_PREFILL, .reused = 7, .done = 9});
    assert_int_equal(next(s), STREAM_NOTHING);
    stream_progress_get(s, &progress);
    assert_int_equal(progress.reused, 7);
    assert_int_equal(progress.computed, 2);
    assert_true(progress.started_ms > 0 && progress.first_token_ms == 0);
    for (int32_t id = 5; id < 8; id++)
        event(s, (struct engine_event){.kind = EVENT_TOKEN, .id = id});
    event(s, (struct engine_event){.kind = EVENT_END, .reason = END_LENGTH});
    for (int32_t id = 5; id < 8; id++) {
        assert_int_equal(stream_next(s, NULL, &item), STREAM_TOKEN);
        assert_int_equal(item.id, id);
    }
    assert_int_equal(stream_next(s, NULL, &item), STREAM_END);
    assert_int_equal(item.reason, END_LENGTH);
    stream_release(s);
}

static void what_ends_a_stream_goes_first(void **state)
{
    struct stream *s = stream_create(3, 0, HEARTBEAT_MS);
    (void)state;
    stream_retain(s);
    event(s, (struct engine_event){.kind = EVENT_TOKEN, .id = 5});
    stream_tick(s, clock_ms() + ANSWER_MS_MAX + 1000);
    assert_int_equal(next(s), STREAM_UNSTARTED);
    stream_stop(s);
    assert_int_equal(next(s), STREAM_STOPPING);
    stream_hang_up(s);
    assert_int_equal(next(s), STREAM_GONE);
    event(s, (struct engine_event){.kind = EVENT_END, .reason = END_CANCELLED});
    assert_int_equal(next(s), STREAM_GONE);
    stream_release(s);
}

static void signs_of_life(void **state)
{
    struct stream *s = stream_create(3, 0, HEARTBEAT_MS);
    int64_t now = clock_ms();
    (void)state;
    stream_tick(s, now);
    assert_int_equal(next(s), STREAM_NOTHING);
    stream_tick(s, now + HEARTBEAT_MS + 100);
    assert_int_equal(next(s), STREAM_HEARTBEAT);
    assert_int_equal(next(s), STREAM_NOTHING); /* one, not one for each look */
    stream_retain(s);
    stream_tick(s, now + 10 * HEARTBEAT_MS);
    event(s, (struct engine_event){.kind = EVENT_TOKEN, .id = 5});
    assert_int_equal(next(s), STREAM_TOKEN); /* of which nothing may be told yet */
    assert_int_equal(next(s), STREAM_HEARTBEAT);
    stream_tick(s, now + 10 * HEARTBEAT_MS);
    event(s, (struct engine_event){.kind = EVENT_TOKEN, .id = 5});
    assert_int_equal(next(s), STREAM_TOKEN);
    stream_spoke(s);
    assert_int_equal(next(s), STREAM_NOTHING);
    event(s, (struct engine_event){.kind = EVENT_END, .reason = END_STOP});
    stream_release(s);
}

static void bounds_on_waiting(void **state)
{
    static const struct {
        bool starts;
        int64_t after_ms;
        enum stream_news news;
    } ROWS[] = {
        {false, QUEUE_WAIT_MS_MAX - 5000, STREAM_HEARTBEAT},
        {false, QUEUE_WAIT_MS_MAX + 5000, STREAM_UNSTARTED},
        {true, QUEUE_WAIT_MS_MAX + 5000, STREAM_HEARTBEAT}, /* it waits no more */
        {true, ANSWER_MS_MAX - 5000, STREAM_HEARTBEAT},
        {true, ANSWER_MS_MAX + 5000, STREAM_WALL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        struct stream *s = stream_create(3, 0, HEARTBEAT_MS);
        if (ROWS[i].starts)
            event(s, (struct engine_event){.kind = EVENT_PREFILL});
        stream_tick(s, clock_ms() + ROWS[i].after_ms);
        assert_int_equal(next(s), ROWS[i].news);
        stream_release(s);
    }
}

static void set(void *flag)
{
    *(bool *)flag = true;
}

/* Whoever lets go last frees what is kept. */
static void two_owners(void **state)
{
    (void)state;
    for (int engine_first = 0; engine_first < 2; engine_first++) {
        struct stream *s = stream_create(3, 0, HEARTBEAT_MS);
        bool freed = false;
        stream_keep(s, &freed, set);
        stream_retain(s);
        if (!engine_first)
            stream_release(s);
        assert_false(freed);
        event(s, (struct engine_event){.kind = EVENT_END, .reason = END_STOP});
        assert_int_equal(freed, !engine_first);
        if (engine_first)
            stream_release(s);
        assert_true(freed);
    }
}

/* ---- what a client reads --------------------------------------------------------------------- */

static struct api api;
static struct tokenizer *tokenizer;

static int open_text(void **state)
{
    struct error err;
    (void)state;
    assert_int_equal(tokenizer_open("rootfs/models/demo/tokenizer.json", &tokenizer, &err), OK);
    assert_int_equal(api_init(&api, NULL, tokenizer, "baseline", &err), OK);
    return 0;
}

static int close_text(void **state)
{
    (void)state;
    tokenizer_close(tokenizer);
    return 0;
}

/* A request that waits until a bound is reached: an error event, no finish reason and a broken
 * end; asked for as a whole, a status. */
static void waits_until(int64_t after_ms, const char *code)
{
    static const int32_t PROMPT[] = {0, 5, 6};
    for (int stream = 0; stream < 2; stream++) {
        struct exchange x = {.id = "req_0123456789abcdef01234567",
                             .profile = *profile_builtin("official")};
        struct buf receipt = {0};
        struct request request = {.stream = stream, .tokens_max = 4};
        struct ids prompt = {.data = (int32_t *)(uintptr_t)PROMPT, .len = 3};
        struct completion *c;
        struct api_error err = {0};
        char text[4096] = "";
        size_t len = 0;
        ssize_t n;
        assert_true(
            completion_start(&api, &x, &OPENAI_SURFACE, &request, &prompt, &receipt, &c, &err));
        fake_wait(20); /* the engine has begun, if it does */
        stream_tick(completion_stream(c), clock_ms() + after_ms);
        if (stream) {
            while ((n = completion_read(c, 0, text + len, sizeof text - 1 - len)) >= 0)
                len += (size_t)n;
            assert_int_equal(n, MHD_CONTENT_READER_END_WITH_ERROR);
            assert_non_null(strstr(text, "data: {\"error\":{"));
            assert_non_null(strstr(text, code));
            assert_null(strstr(text, "\"finish_reason\":\""));
            assert_null(strstr(text, "[DONE]"));
        } else {
            assert_int_equal(completion_collect(c, &err), COMPLETION_FAILED);
            assert_string_equal(api_error_row(err.code)->code, code);
            assert_in_range(api_error_row(err.code)->status, 500, 599);
        }
        completion_free(c);
        fake_join();
    }
}

static void a_client_is_told(void **state)
{
    (void)state;
    atomic_store(&starts, false);
    waits_until(QUEUE_WAIT_MS_MAX + 5000, api_error_row(API_QUEUE_WAIT)->code);
    atomic_store(&starts, true);
    waits_until(ANSWER_MS_MAX + 5000, api_error_row(API_WALL)->code);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_come_before_the_end),
        cmocka_unit_test(what_ends_a_stream_goes_first),
        cmocka_unit_test(signs_of_life),
        cmocka_unit_test(bounds_on_waiting),
        cmocka_unit_test(two_owners),
        cmocka_unit_test_setup_teardown(a_client_is_told, open_text, close_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
