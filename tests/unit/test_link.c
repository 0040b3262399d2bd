/*
 * What the link lets through: every byte of a head, of a step and of a pick in turn, and fields
 * that single bytes do not reach.  What runs is what the network asserts, said once more.
 */
#include "config/model.h"
#include "engine/model/snapshot.h"
#include "kernels/link.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

static const struct link_limits LIMITS = {
    .timelines = {{64, 40, 38}, {64, 7, 7}, {64, 0, 0}, {512, 256, 256}, {512, 0, 0}},
    .pools = {{3, 2}},
    .vocab = 500,
    .step_tokens = SPAN_TOKENS_MAX,
    .layers = 6,
    .drafts = true};

static struct link_step good_step(uint32_t kind)
{
    struct link_step step = {.number = 5, .kind = kind};
    struct link_segment *g = step.segments;
    switch (kind) {
    case LINK_STEP:
        step.n_segments = 2;
        step.n_ids = 5;
        g[0] = (struct link_segment){0, 40, 38, 4, 0, LEG_PREFILL, LINK_WANT_ALL, 3, 0};
        g[1] = (struct link_segment){2, 0, 0, 1, 0, LEG_DECODE, LINK_CROSSOVER, 0, 0};
        break;
    case LINK_DRAFT:
        step.n_segments = 1;
        step.n_ids = 2;
        g[0] = (struct link_segment){0, 40, 38, 2, 0, LEG_DECODE, LINK_WANT_LAST, 1, 0};
        break;
    case LINK_LAYER:
    case LINK_EXPERTS:
        step.n_segments = kind == LINK_LAYER;
        step.n_ids = 3;
        step.block = 5;
        step.leg = LEG_DECODE;
        g[0] = (struct link_segment){2, 0, 0, 3, 0, LEG_PREFILL, 0, 0, 0};
        break;
    case LINK_OPEN:
        step.n_segments = 1;
        step.room = 77;
        g[0].timeline = 9;
        break;
    case LINK_CLOSE:
    case LINK_RESET:
        step.n_segments = 1;
        g[0] = (struct link_segment){1, 7, 7, 0, 0, 0, 0, 0, 0};
        break;
    case LINK_POOL_OPEN:
        step.pool = 1;
        step.n_blocks = step.n_tails = 4;
        break;
    case LINK_SAVE:
        step.n_segments = 1;
        step.tail = 1;
        step.piece = 1;
        step.at = 256;
        g[0] = (struct link_segment){3, 256, 256, 0, 0, 0, 0, 0, 0};
        break;
    case LINK_LOAD:
        step.n_segments = 1;
        step.piece = 2;
        g[0].timeline = 4;
        break;
    default:
        step.piece = 1;
    }
    for (int32_t i = 0; i < step.n_ids; i++)
        step.ids[i] = 499 - i;
    return step;
}

/* What the network asserts, said once more. */
static void assert_segment(const struct link_step *step, const struct link_segment *g)
{
    assert_in_range(g->timeline, 0, LINK_TIMELINES - 1);
    const struct link_timeline *t = &LIMITS.timelines[g->timeline];
    if (step->kind == LINK_OPEN) {
        assert_true(t->room == 0 && step->room >= 1 && step->room <= POSITIONS_MAX);
        return;
    }
    assert_true(t->room > 0 && g->drafted >= 0 && g->drafted <= g->length);
    assert_true(g->n_picks <= g->n && g->n_picks <= (step->kind == LINK_STEP ? PICKS_MAX : 1));
    assert_true(t->drafted - g->drafted <= SLIDING_WINDOW);
    assert_true(g->length <= t->length && t->length - g->length <= SLIDING_WINDOW);
    if (step->kind > LINK_LAYER)
        return;
    int64_t end = (int64_t)g->length + g->n;
    if (step->kind == LINK_DRAFT)
        end = (int64_t)g->drafted + g->n + (g->beyond > 0 ? g->beyond - 1 : 0);
    assert_true(g->n >= 1 && end <= t->room && g->beyond >= (step->kind == LINK_DRAFT ? 0 : -128));
    if (step->kind == LINK_DRAFT)
        assert_true(g->beyond == 0 ? end <= g->length : g->n == 1 && g->drafted == g->length);
    assert_true(g->leg == LEG_DECODE || (step->kind != LINK_DRAFT && g->leg == LEG_PREFILL));
}

static void assert_piece(const struct link_step *step)
{
    const struct link_pool *pool = &LIMITS.pools[step->pool];
    const struct link_segment *g = &step->segments[0];
    assert_true(step->piece >= 0 && step->piece < (step->tail ? pool->n_tails : pool->n_blocks));
    if (step->kind == LINK_GET || step->kind == LINK_PUT)
        return;
    const struct link_timeline *t = &LIMITS.timelines[g->timeline];
    int64_t end = step->tail ? step->at : ((int64_t)step->at + 1) * SNAPSHOT_TOKENS;
    assert_true(step->at >= 0 && end <= (step->kind == LINK_LOAD ? t->room : g->length));
    assert_true(!step->tail || (step->at > 0 && step->at % SNAPSHOT_TOKENS == 0));
    if (step->kind == LINK_LOAD)
        assert_true(g->length == 0 && g->drafted == 0);
    else if (step->tail)
        assert_true(g->length - step->at < SPAN_TOKENS_MAX);
}

static void assert_runs(const struct link_step *step)
{
    int64_t rows = 0;
    assert_true(step->kind < LINK_KINDS && step->n_segments <= LINK_TIMELINES);
    for (int32_t i = 0; i < step->n_segments; i++) {
        assert_segment(step, &step->segments[i]);
        for (int32_t j = 0; j < i; j++)
            assert_int_not_equal(step->segments[i].timeline, step->segments[j].timeline);
        rows += step->segments[i].n;
    }
    if (step->kind == LINK_EXPERTS)
        rows = step->n_ids;
    assert_true(rows <= SPAN_TOKENS_MAX && rows == step->n_ids);
    for (int64_t i = 0; i < rows; i++)
        assert_in_range(step->ids[i], 0, 499);
    if (step->kind == LINK_LAYER || step->kind == LINK_EXPERTS)
        assert_in_range(step->block, 0, step->kind == LINK_LAYER ? 5 : 6);
    bool opens = step->kind == LINK_POOL_OPEN;
    if (opens || (step->kind >= LINK_POOL_CLOSE && step->kind <= LINK_PUT))
        assert_in_range(step->pool, opens ? 1 : 0, opens ? LINK_POOLS - 1 : 0);
    if (opens)
        assert_true(step->n_blocks >= 1 && step->n_blocks <= PREFIX_PIECES_MAX &&
                    step->n_tails >= 1 && step->n_tails <= PREFIX_PIECES_MAX);
    if (step->kind >= LINK_SAVE && step->kind <= LINK_PUT)
        assert_piece(step);
}

static void test_step_bytes(void **state)
{
    (void)state;
    for (uint32_t kind = 0; kind < LINK_KINDS; kind++) {
        struct link_step good = good_step(kind);
        if (link_step_wrong(&good, &LIMITS) != NULL)
            fail_msg("kind %u: %s", kind, link_step_wrong(&good, &LIMITS));
        size_t refused = 0;
        for (size_t at = 0; at < sizeof good; at++) {
            for (int value = 0; value < 256; value++) {
                struct link_step step = good;
                ((uint8_t *)&step)[at] = (uint8_t)value;
                if (link_step_wrong(&step, &LIMITS) == NULL)
                    assert_runs(&step);
                else
                    refused++;
            }
        }
        /* Values alone are more than that; were nothing checked, there would be none. */
        assert_true(refused > 60 * 250);
    }
    struct link_limits undrafted = LIMITS;
    undrafted.drafts = false;
    struct link_step step = good_step(LINK_DRAFT);
    assert_string_equal(link_step_wrong(&step, &undrafted), "kind");
}

/* What is wrong with the numbers themselves, sampling_check says (test_sampler). */
static void test_pick_bytes(void **state)
{
    (void)state;
    const struct link_pick good = {.temperature = 1, .top_p = 1, .n_top = 3, .n_said = 256};
    assert_null(link_pick_wrong(&good, 500));
    size_t refused = 0;
    for (size_t at = 0; at < sizeof good; at++) {
        for (int value = 0; value < 256; value++) {
            struct link_pick pick = good;
            ((uint8_t *)&pick)[at] = (uint8_t)value;
            refused += link_pick_wrong(&pick, 500) != NULL;
            if (link_pick_wrong(&pick, 500) == NULL)
                assert_true(pick.n_top >= -1 && pick.n_top <= LOGPROBS_TOP_MAX &&
                            pick.n_said >= 0 && pick.n_said <= 500 && pick.masked <= 1);
        }
    }
    assert_true(refused > 10 * 250);
}

/* Fields that single bytes do not reach. */
static void test_step_fields(void **state)
{
    (void)state;
    struct link_step step = good_step(LINK_STEP);
    step.perturbation.clamp_limit = -1;
    assert_string_equal(link_step_wrong(&step, &LIMITS), "perturbation");
    step.perturbation.clamp_limit = (double)NAN;
    assert_string_equal(link_step_wrong(&step, &LIMITS), "perturbation");
    step = good_step(LINK_SAVE);
    step.at = INT32_MIN;
    assert_string_equal(link_step_wrong(&step, &LIMITS), "at");
    step.tail = 0;
    assert_string_equal(link_step_wrong(&step, &LIMITS), "at");
    step = good_step(LINK_DRAFT);
    step.segments[0] = (struct link_segment){0, 40, 40, 1, 25, LEG_DECODE, 0, 0, 0};
    step.n_ids = 1;
    assert_string_equal(link_step_wrong(&step, &LIMITS), "beyond");
    step.segments[0].beyond = DRAFT_DEPTH_MAX;
    assert_null(link_step_wrong(&step, &LIMITS));
    step = good_step(LINK_STEP);
    step.segments[0].length = 30; /* in front of the 38 that the draft block has taken */
    assert_string_equal(link_step_wrong(&step, &LIMITS), "drafted");
    step.segments[0].drafted = 30;
    assert_null(link_step_wrong(&step, &LIMITS));
    step = good_step(LINK_CLOSE);
    step.segments[0] = (struct link_segment){3, 100, 100, 0, 0, 0, 0, 0, 0};
    assert_string_equal(link_step_wrong(&step, &LIMITS), "length"); /* further back than a window */
}

/* As many tokens as the backend takes, and never more rows of logits than an answer has room for.
 */
static void test_step_tokens(void **state)
{
    (void)state;
    struct link_limits wide = LIMITS;
    wide.step_tokens = STEP_TOKENS_MAX;
    struct link_step step = good_step(LINK_STEP);
    step.n_segments = 1;
    step.segments[0] = (struct link_segment){4, 0, 0, 300, 0, LEG_PREFILL, LINK_WANT_LAST, 1, 0};
    step.n_ids = 300;
    assert_string_equal(link_step_wrong(&step, &LIMITS), "n_ids");
    assert_null(link_step_wrong(&step, &wide));
    step.segments[0].flags = LINK_WANT_ALL;
    assert_string_equal(link_step_wrong(&step, &wide), "flags");
    step.segments[0].n = step.n_ids = LOGITS_ROWS_MAX;
    assert_null(link_step_wrong(&step, &wide));
    step.n_segments = 2;
    step.segments[1] = (struct link_segment){2, 0, 0, 1, 0, LEG_DECODE, LINK_WANT_LAST, 0, 0};
    step.n_ids++;
    assert_string_equal(link_step_wrong(&step, &wide), "flags");
    step = good_step(LINK_LAYER); /* given rows are of one span */
    step.segments[0] = (struct link_segment){4, 0, 0, 300, 0, LEG_PREFILL, 0, 0, 0};
    step.n_ids = 300;
    assert_string_equal(link_step_wrong(&step, &wide), "n_ids");
}

static void test_head_bytes(void **state)
{
    (void)state;
    int fd;
    const char *wrong;
    struct link *link = link_create(&fd);
    assert_non_null(link);
    assert_null(link_head_wrong(&link->head));
    for (size_t at = 0; at < sizeof link->head; at++) {
        for (int value = 0; value < 256; value++) {
            struct link_head head = link->head;
            ((uint8_t *)&head)[at] = (uint8_t)value;
            /* Nothing may differ but who the engine is, which the worker asks the system. */
            head.engine = link->head.engine;
            if (memcmp(&head, &link->head, sizeof head) != 0)
                assert_non_null(link_head_wrong(&head));
        }
    }
    assert_int_equal(ftruncate(fd, 4096), -1); /* nobody takes it away from under the other */
    link_unmap(link);
    close(fd);
    assert_null(link_map(-1, &wrong));
    /* The right size, and nothing keeps it so: a file, memory without seals. */
    FILE *file = tmpfile();
    assert_non_null(file);
    assert_int_equal(ftruncate(fileno(file), sizeof(struct link)), 0);
    assert_null(link_map(fileno(file), &wrong));
    fclose(file);
    fd = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(fd, sizeof(struct link)), 0);
    assert_null(link_map(fd, &wrong));
    close(fd);
}

/* ---- what is shown of GPUs ------------------------------------------------------------------ */

static void test_board_bytes(void **state)
{
    (void)state;
    static struct link_board board;
    struct gauges g = {.at_ms = 7, .n = 2, .peers = PEERS_PUSH, .driver = "580.65.06"}, seen;
    strcpy(g.gpu[1].name, "a GPU");
    g.gpu[1].value[GAUGE_TEMPERATURE] = 61;
    link_show(&board, &g);
    assert_true(link_look(&board, &seen));
    assert_memory_equal(&seen, &g, sizeof g);
    board.turn |= 1; /* its writer has died in between */
    assert_false(link_look(&board, &seen));
    board.turn++;
    /* Any byte of it may be anything: words stay words, numbers within their rows. */
    for (size_t at = 0; at < sizeof g; at++) {
        static const uint8_t VALUES[] = {0, 1, 27, 127, 128, 255};
        for (size_t k = 0; k < sizeof VALUES; k++) {
            board.gauges = g;
            ((uint8_t *)&board.gauges)[at] = VALUES[k];
            assert_true(link_look(&board, &seen));
            assert_true(seen.n >= 0 && seen.n <= RANKS_MAX && seen.peers >= 0 &&
                        seen.peers < PEERS && seen.at_ms >= 0);
        }
    }
    memset(&board.gauges, 0xff, sizeof g);
    board.gauges.n = RANKS_MAX;
    board.gauges.gpu[3].value[GAUGE_BUSY] = 101;
    board.gauges.gpu[3].value[GAUGE_POWER] = 10000000;
    assert_true(link_look(&board, &seen));
    assert_int_equal(strlen(seen.note), GAUGE_NOTE_BYTES - 1);
    assert_int_equal(strspn(seen.gpu[3].name, "?"), GAUGE_NAME_BYTES - 1);
    assert_int_equal(seen.gpu[3].value[GAUGE_BUSY], GAUGE_UNKNOWN);
    assert_int_equal(seen.gpu[3].value[GAUGE_POWER], 10000000);
    assert_int_equal(seen.gpu[2].value[GAUGE_POWER], GAUGE_UNKNOWN);
    board.gauges.n = RANKS_MAX + 1;
    assert_true(link_look(&board, &seen));
    assert_int_equal(seen.n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_head_bytes),  cmocka_unit_test(test_step_bytes),
        cmocka_unit_test(test_pick_bytes),  cmocka_unit_test(test_step_fields),
        cmocka_unit_test(test_step_tokens), cmocka_unit_test(test_board_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
