/* The choice of a step's segments: its promises, on every small input and on many random ones. */
#include "config/limits.h"
#include "engine/serve/schedule.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t random_state = 20260731;

static uint32_t random_below(uint32_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % n;
}

/* What is wrong with a choice, or NULL: the promises of schedule.h, written a second way. */
static const char *wrong(const struct schedule_slot *slots, int n, int32_t step_tokens,
                         const int32_t *take, int32_t sum)
{
    int32_t total = 0, prefill = 0, wanted = 0, least = INT32_MAX, most = 0;
    bool decode = false;
    for (int i = 0; i < n; i++) {
        total += take[i];
        decode |= slots[i].decode;
        if (slots[i].decode && take[i] != 1)
            return "a decode waits";
        if (slots[i].decode)
            continue;
        if (take[i] < 0 || take[i] > slots[i].prefill)
            return "more than the prompt";
        if (slots[i].prefill > 0 && take[i] == 0)
            return "a prompt starves";
        prefill += take[i];
        wanted += slots[i].prefill;
        if (take[i] < slots[i].prefill && take[i] < least)
            least = take[i];
        if (take[i] > most)
            most = take[i];
    }
    int32_t cap = decode ? STEP_PREFILL_MIXED_MAX : step_tokens;
    if (total != sum || total > step_tokens)
        return "the sum";
    if (prefill != (wanted < cap ? wanted : cap))
        return "budget left over or exceeded";
    if (least != INT32_MAX && most > least + 1)
        return "an unfair share";
    return NULL;
}

static void check(const struct schedule_slot *slots, int n)
{
    int32_t take[SESSIONS_MAX];
    for (int32_t tokens = SPAN_TOKENS_MAX; tokens <= STEP_TOKENS_MAX; tokens *= 2) {
        memset(take, 0x5a, sizeof take);
        int32_t sum = schedule_step(slots, n, tokens, take);
        const char *what = wrong(slots, n, tokens, take, sum);
        if (what != NULL)
            fail_msg("%s, %d slots, first %d/%d, %d tokens", what, n, slots[0].prefill,
                     slots[0].decode, tokens);
    }
}

static void test_nothing(void **state)
{
    (void)state;
    struct schedule_slot slots[3] = {{0}};
    int32_t take[3];
    assert_int_equal(schedule_step(slots, 0, SPAN_TOKENS_MAX, take), 0);
    assert_int_equal(schedule_step(slots, 3, SPAN_TOKENS_MAX, take), 0);
    assert_int_equal(take[0] | take[1] | take[2], 0);
}

static void test_known(void **state)
{
    (void)state;
    /* clang-format off */
    static const struct {
        struct schedule_slot slots[3];
        int32_t take[3];
    } CASES[] = {
        {{{.prefill = 1000}, {0}, {0}},                             {256, 0, 0}},
        {{{.prefill = 1000}, {.decode = true}, {0}},                {64, 1, 0}},
        {{{.prefill = 1000}, {.prefill = 1000}, {0}},               {128, 128, 0}},
        {{{.prefill = 1000}, {.prefill = 10}, {.decode = true}},    {54, 10, 1}},
        {{{.prefill = 3}, {.prefill = 10}, {.decode = true}},       {3, 10, 1}},
        {{{.decode = true}, {.decode = true}, {.decode = true}},    {1, 1, 1}},
    };
    /* clang-format on */
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        int32_t take[3];
        schedule_step(CASES[i].slots, 3, SPAN_TOKENS_MAX, take);
        assert_memory_equal(take, CASES[i].take, sizeof take);
    }
}

/* Every combination of a few telling sizes over up to four slots. */
static void test_small_exhaustive(void **state)
{
    (void)state;
    static const int32_t SIZES[] = {-1 /* decode */, 0, 1, 2, 31, 63, 64, 65, 255, 256, 257,
                                    100000};
    enum { N = sizeof SIZES / sizeof SIZES[0] };
    for (int n = 1; n <= 4; n++) {
        int combinations = 1;
        for (int i = 0; i < n; i++)
            combinations *= N;
        for (int c = 0; c < combinations; c++) {
            struct schedule_slot slots[4] = {{0}};
            for (int i = 0, rest = c; i < n; i++, rest /= N) {
                slots[i].decode = SIZES[rest % N] < 0;
                slots[i].prefill = slots[i].decode ? 0 : SIZES[rest % N];
            }
            check(slots, n);
        }
    }
}

static void test_random(void **state)
{
    (void)state;
    for (int round = 0; round < 20000; round++) {
        struct schedule_slot slots[SESSIONS_MAX] = {{0}};
        int n = 1 + (int)random_below(SESSIONS_MAX);
        for (int i = 0; i < n; i++) {
            uint32_t kind = random_below(4);
            slots[i].decode = kind == 0;
            if (kind > 1)
                slots[i].prefill = (int32_t)random_below(kind == 2 ? 12 : 1 << 20);
        }
        check(slots, n);
    }
}

/* Fed step by step, every prompt ends, in the least number of steps. */
static void test_drains(void **state)
{
    (void)state;
    struct schedule_slot slots[5] = {
        {.prefill = 1000}, {.prefill = 1}, {.prefill = 300}, {.prefill = 77}, {.prefill = 2000}};
    int32_t take[5];
    int steps = 0;
    while (schedule_step(slots, 5, SPAN_TOKENS_MAX, take) > 0) {
        for (int i = 0; i < 5; i++)
            slots[i].prefill -= take[i];
        steps++;
    }
    assert_int_equal(steps, (1000 + 1 + 300 + 77 + 2000 + SPAN_TOKENS_MAX - 1) / SPAN_TOKENS_MAX);
}

/* However many want a step, a profile is served in one of as many steps as there are profiles. */
static void test_profiles(void **state)
{
    (void)state;
    for (uint64_t n_profiles = 1; n_profiles <= 5; n_profiles++) {
        struct schedule_slot slots[9] = {{0}};
        int32_t take[9];
        for (int i = 0; i < 9; i++)
            slots[i].profile = random_below((uint32_t)n_profiles);
        for (int step = 1; step < 300; step++) {
            for (int i = 0; i < 9; i++) {
                slots[i].decode = i % 2 == 0;
                slots[i].prefill = slots[i].decode ? 0 : 1000;
            }
            assert_true(schedule_step(slots, 9, SPAN_TOKENS_MAX, take) > 0);
            uint64_t served = UINT64_MAX;
            for (int i = 0; i < 9; i++) {
                if (take[i] > 0 && served == UINT64_MAX)
                    served = slots[i].profile;
            }
            for (int i = 0; i < 9; i++) {
                assert_int_equal(take[i] > 0, slots[i].profile == served);
                slots[i].starved = take[i] > 0 ? 0 : slots[i].starved + 1;
                assert_true(slots[i].starved < (int32_t)n_profiles);
            }
        }
    }
}

/* The checker itself must see each kind of bad choice. */
static void test_negative_control(void **state)
{
    (void)state;
    const struct schedule_slot slots[3] = {{.prefill = 50}, {.decode = true}, {.prefill = 50}};
    const int32_t good[3] = {32, 1, 32};
    assert_null(wrong(slots, 3, SPAN_TOKENS_MAX, good, 65));
    static const int32_t BAD[][3] = {{32, 0, 32}, {51, 1, 13}, {64, 1, 0},
                                     {34, 1, 30}, {31, 1, 32}, {33, 1, 32}};
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++)
        assert_non_null(
            wrong(slots, 3, SPAN_TOKENS_MAX, BAD[i], BAD[i][0] + BAD[i][1] + BAD[i][2]));
    assert_non_null(wrong(slots, 3, SPAN_TOKENS_MAX, good, 64));
}

/* ---- what timelines take ------------------------------------------------------------------- */

enum { CLAIMS = 6, PLACES = 5 };

/* The same sum, said the other way: what is nobody's alone, and every page by its number. */
static uint64_t taken(const struct schedule_claim *claims, int n, uint64_t page_bytes)
{
    bool there[CLAIMS * PLACES] = {false};
    uint64_t sum = 0;
    for (int i = 0; i < n; i++) {
        sum += claims[i].bytes;
        for (int32_t at = 0; at < claims[i].n_pages; at++) {
            int32_t page = claims[i].pages[at];
            if (page < 0)
                continue;
            sum -= there[page] ? page_bytes : 0;
            there[page] = true;
        }
    }
    return sum;
}

/* Timelines that branch from each other at random: a page counts once, whoever is asked first, and
 * who ends gives back what nobody else has. */
static void test_taken(void **state)
{
    (void)state;
    uint64_t spared = 0;
    for (int round = 0; round < 20000; round++) {
        struct schedule_claim claims[CLAIMS], others[CLAIMS];
        int32_t pages[CLAIMS][PLACES];
        int n = 1 + (int)random_below(CLAIMS);
        uint64_t page_bytes = 1 + random_below(9), all = 0;
        for (int i = 0; i < n; i++) {
            int32_t n_pages = (int32_t)random_below(PLACES + 1);
            int like = i == 0 ? 0 : (int)random_below((uint32_t)i);
            for (int32_t at = 0; at < n_pages; at++) {
                bool same = i > 0 && at < claims[like].n_pages && random_below(4) > 0;
                pages[i][at] = same ? pages[like][at] : i * PLACES + at;
                if (random_below(9) == 0)
                    pages[i][at] = -1 - (int32_t)random_below(2);
            }
            claims[i] = (struct schedule_claim){(uint64_t)n_pages * page_bytes + random_below(20),
                                                n_pages > 0 ? pages[i] : NULL, n_pages, page_bytes};
            all += claims[i].bytes;
        }
        uint64_t sum = schedule_taken(claims, n);
        assert_int_equal(sum, taken(claims, n, page_bytes));
        spared += all - sum;
        int gone = (int)random_below((uint32_t)n);
        for (int i = n - 1, m = 0; i >= 0; i--) { /* the others, from the last one on */
            if (i != gone)
                others[m++] = claims[i];
        }
        uint64_t rest = schedule_taken(others, n - 1);
        assert_int_equal(rest, taken(others, n - 1, page_bytes));
        assert_true(rest <= sum && sum - rest <= claims[gone].bytes);
        others[n - 1] = claims[gone];
        assert_int_equal(schedule_taken(others, n), sum);
    }
    assert_true(spared > 10000);
    assert_int_equal(schedule_taken(NULL, 0), 0);
}

/* ---- the queue ------------------------------------------------------------------------------ */

static void test_first(void **state)
{
    (void)state;
    enum { FULL = PRIORITY_PATIENCE };
    static const struct {
        struct schedule_waiting waiting[3];
        int32_t first;
    } CASES[] = {
        {{{0, 0}, {0, 0}, {0, 0}}, 0},         {{{0, 0}, {1, 0}, {1, 0}}, 1},
        {{{-1, 0}, {-2, 0}, {0, 0}}, 2},       {{{0, FULL - 1}, {1, 0}, {0, 0}}, 1},
        {{{0, FULL}, {1, 0}, {0, 0}}, 0},      {{{-1, FULL}, {1, 0}, {1, 1}}, 1},
        {{{-1, 2 * FULL}, {0, 0}, {1, 0}}, 0},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++)
        assert_int_equal(schedule_first(CASES[i].waiting, 3), CASES[i].first);
}

/* Random arrivals, always more than go: the queue of the engine, and the first broken promise. */
static const char *serve_queue(int rounds,
                               int32_t (*first)(const struct schedule_waiting *, int32_t))
{
    enum { WAITING = 24 };
    struct {
        struct schedule_waiting w;
        int32_t passed;
    } queue[WAITING];
    struct schedule_waiting w[WAITING];
    int32_t n = 0;
    for (int round = 0; round < rounds; round++) {
        while (n < WAITING) {
            memset(&queue[n], 0, sizeof queue[n]);
            queue[n++].w.priority = (int32_t)random_below(2 * PRIORITY_MAX + 1) - PRIORITY_MAX;
        }
        for (int32_t i = 0; i < n; i++)
            w[i] = queue[i].w;
        int32_t at = first(w, n);
        if (at < 0 || at >= n)
            return "nobody's place";
        for (int32_t i = 0; i < at; i++) {
            queue[i].w.passed++;
            int32_t more = queue[at].w.priority - queue[i].w.priority;
            if (more <= 0)
                return "a younger one of no more priority went first";
            if (++queue[i].passed > 2 * PRIORITY_MAX * PRIORITY_PATIENCE)
                return "one was passed too often";
        }
        n--;
        memmove(&queue[at], &queue[at + 1], (size_t)(n - at) * sizeof queue[0]);
    }
    return NULL;
}

static int32_t youngest(const struct schedule_waiting *waiting, int32_t n)
{
    (void)waiting;
    return n - 1;
}

/* Without patience the least important one waits for ever. */
static int32_t most_important(const struct schedule_waiting *waiting, int32_t n)
{
    int32_t best = 0;
    for (int32_t i = 0; i < n; i++)
        best = waiting[i].priority > waiting[best].priority ? i : best;
    return best;
}

static void test_queue(void **state)
{
    (void)state;
    const char *what = serve_queue(50000, schedule_first);
    if (what != NULL)
        fail_msg("%s", what);
    assert_string_equal(serve_queue(50000, youngest),
                        "a younger one of no more priority went first");
    assert_string_equal(serve_queue(50000, most_important), "one was passed too often");
}

static void test_retry_after(void **state)
{
    (void)state;
    static const struct {
        double mean_ms;
        int32_t slots, seconds;
    } CASES[] = {{0, 4, 1},      {1, 1, 1},    {1000, 1, 1},    {2400, 1, 2},   {2600, 1, 3},
                 {40000, 4, 10}, {1e9, 1, 30}, {1e300, 32, 30}, {30000, 1, 30}, {29000, 1, 29}};
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++)
        assert_int_equal(schedule_retry_after_s(CASES[i].mean_ms, CASES[i].slots),
                         CASES[i].seconds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_known),
        cmocka_unit_test(test_small_exhaustive),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_drains),
        cmocka_unit_test(test_negative_control),
        cmocka_unit_test(test_profiles),
        cmocka_unit_test(test_taken),
        cmocka_unit_test(test_first),
        cmocka_unit_test(test_queue),
        cmocka_unit_test(test_retry_after),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
