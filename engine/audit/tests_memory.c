/* Recall and needles: answers that the reference has and the profile loses. */
#include "engine/audit/tests_common.h"
#include "kernels/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- items ----------------------------------------------------------------------------------- */

static const int32_t TURNS[] = {2, 5, 10, 20, 40};
static const char *const TURN_NAMES[] = {"2 turns", "5 turns", "10 turns", "20 turns", "40 turns"};
/* Around the window, the reach of the top-k of small models, and then in octaves. */
static const int32_t LENGTHS[] = {256, 520, 1024, 2047, 2049, 4096, 8192, 16384, 32000};
static const char *const LENGTH_NAMES[] = {"256",  "520",  "1024",  "2047", "2049",
                                           "4096", "8192", "16384", "32000"};

/* Where a value lies in its prompt of n tokens. */
enum depth { AT_START, AT_10, AT_30, AT_50, AT_70, AT_90, AT_WINDOW, AT_STEP, AT_BLOCK, DEPTHS };
static const char *const DEPTH_NAMES[DEPTHS] = {
    [AT_START] = "start",
    [AT_10] = "10 %",
    [AT_30] = "30 %",
    [AT_50] = "50 %",
    [AT_70] = "70 %",
    [AT_90] = "90 %",
    [AT_WINDOW] = "out of the window", /* just */
    [AT_STEP] = "over the edge of a step",
    [AT_BLOCK] = "over the edge of a block",
};

#define COUNT(list) ((int32_t)(sizeof(list) / sizeof *(list)))

/* Tokens in front of a value in the first sentence, and behind it in the last, with some room. */
#define NEEDLE_FRONT 40
#define NEEDLE_BACK  80

static int32_t needle_at(enum depth depth, int32_t n)
{
    switch (depth) {
    case AT_START:
        return NEEDLE_FRONT;
    case AT_10:
        return n / 10 + NEEDLE_FRONT / 2;
    case AT_30:
        return n * 3 / 10;
    case AT_50:
        return n / 2;
    case AT_70:
        return n * 7 / 10;
    case AT_90:
        return n - n / 10 > n - NEEDLE_BACK ? n - NEEDLE_BACK : n - n / 10;
    case AT_WINDOW:
        return n - SLIDING_WINDOW - 12;
    case AT_STEP: /* in the middle of the text, so that it is asked for in another step */
        return n / 2 / STEP_TOKENS_MAX * STEP_TOKENS_MAX - 3 +
               (n / 2 < STEP_TOKENS_MAX ? STEP_TOKENS_MAX : 0);
    case AT_BLOCK:
        return n / 3 / RATIO_HCA * RATIO_HCA - 3 + RATIO_HCA;
    case DEPTHS:
        break;
    }
    ASSERT(false);
}

static bool make_recall(const struct audit_run *run, int32_t i, struct audit_item *out, int *line,
                        int *column)
{
    *line = i % COUNT(TURNS);
    *column = (i / COUNT(TURNS) + i) % PLACES;
    struct recall_plan plan = {
        .seed = run->seed + (uint64_t)i,
        .turns = TURNS[*line],
        .place = (enum audit_place) * column,
        .tools = i % 2 == 1,
        .decoys = TURNS[*line] < 5 ? 0 : 3,
    };
    conversation_recall(run->text, &plan, out);
    return true;
}

static bool make_needle(const struct audit_run *run, int32_t i, struct audit_item *out, int *line,
                        int *column)
{
    int32_t lengths = 0;
    while (lengths < COUNT(LENGTHS) && LENGTHS[lengths] <= run->budget->needle_max)
        lengths++;
    *line = i % lengths;
    *column = (i / lengths * 2 + i) % DEPTHS;
    int32_t n = LENGTHS[*line] + i / 3 % 4; /* every residue of 4 */
    struct needle_plan plan = {run->seed + (uint64_t)i, n, needle_at((enum depth) * column, n), 3};
    struct error err;
    return conversation_needle(run->text, &plan, out, &err) == OK;
}

bool audit_item_make(const struct audit_run *run, enum audit_test test, int32_t i,
                     struct audit_item *out, int *line, int *column)
{
    bool made = test == TEST_RECALL ? make_recall(run, i, out, line, column)
                                    : make_needle(run, i, out, line, column);
    int32_t room = machine_context(run->machine) - AUDIT_ANSWER_TOKENS;
    if (made && (int32_t)out->ids.len > room) {
        audit_item_free(out);
        return false;
    }
    return made;
}

/* ---- pairs ----------------------------------------------------------------------------------- */

struct pairs {
    int32_t n, reference, profile, losses, gains, format, skipped;
    double least_margin;
    struct grid grid;
};

/* One item under both profiles.  The profile gets it in each way in turn. */
static void run_pair(const struct audit_run *run, enum audit_test test, int32_t i, struct pairs *p)
{
    struct audit_item item;
    int line, column;
    if (!audit_item_make(run, test, i, &item, &line, &column)) {
        p->skipped++;
        return;
    }
    struct audit_setting fresh = {run->reference, run->reference, CARRY_NONE};
    struct audit_setting tried = {run->profile, run->profile, (enum audit_carry)(i % CARRIES)};
    struct audit_answer wanted, got;
    machine_answer(run->machine, &item, &fresh, &wanted);
    machine_answer(run->machine, &item, &tried, &got);
    bool reference = wanted.grade == GRADE_RIGHT, profile = got.grade == GRADE_RIGHT;
    p->n++;
    p->reference += reference;
    p->profile += profile;
    p->losses += reference && !profile;
    p->gains += profile && !reference;
    p->format += got.grade == GRADE_FORMAT;
    if (reference && !(got.margin >= p->least_margin))
        p->least_margin = got.margin;
    p->grid.n[line][column]++;
    p->grid.right[line][column] += profile;
    audit_item_free(&item);
}

static enum audit_verdict judge(const struct audit_run *run, const struct pairs *p, char *why,
                                size_t why_size)
{
    struct sprt test = {run->budget->good, run->budget->bad, AUDIT_ALPHA,
                        AUDIT_BETA,        p->losses,        p->reference};
    if (p->n == 0 || p->reference < AUDIT_MODEL_SHARE * p->n) {
        snprintf(why, why_size, "the reference profile answers %d of %d", p->reference, p->n);
        return VERDICT_MODEL;
    }
    enum sprt_state state = sprt_state(&test);
    snprintf(why, why_size, "%d of the reference's %d right answers lost, %d won", p->losses,
             p->reference, p->gains);
    return state == SPRT_GOOD ? VERDICT_PASS : state == SPRT_BAD ? VERDICT_FAIL : VERDICT_UNDECIDED;
}

static struct json_object *test_memory(const struct audit_run *run, enum audit_test test,
                                       enum audit_verdict *verdict)
{
    struct pairs p = {.least_margin = INFINITY};
    for (int32_t i = 0; i < run->budget->items && !audit_cancelled(run); i++)
        run_pair(run, test, i, &p);
    char why[128], gate[96];
    *verdict = judge(run, &p, why, sizeof why);
    snprintf(gate, sizeof gate, "lost: %.3g accepted, %.3g refused", run->budget->good,
             run->budget->bad);
    struct json_object *out = result_new(audit_test_name(test), *verdict, why, p.n, gate);
    if (p.reference > 0)
        result_estimate(out, (double)p.losses / p.reference,
                        stats_rate(p.losses, p.reference, AUDIT_CONFIDENCE));
    struct json_object *numbers = result_part(out, "numbers", false);
    result_number(numbers, "right in reference", p.reference);
    result_number(numbers, "right in profile", p.profile);
    result_number(numbers, "lost", p.losses);
    result_number(numbers, "won", p.gains);
    result_number(numbers, "value there, form wrong", p.format);
    result_number(numbers, "did not fit", p.skipped);
    result_number(numbers, "one-sided exact McNemar p", stats_mcnemar(p.losses, p.gains));
    result_number(numbers, "least margin of a value's tokens, nats", p.least_margin);
    if (test == TEST_RECALL) {
        const char *places[PLACES];
        for (int i = 0; i < PLACES; i++)
            places[i] = audit_place_name((enum audit_place)i);
        result_grid(out, "right answers by turns and by who said the fact", &p.grid, TURN_NAMES,
                    COUNT(TURNS), places, PLACES);
    } else {
        result_grid(out, "right answers by tokens and place", &p.grid, LENGTH_NAMES, COUNT(LENGTHS),
                    DEPTH_NAMES, DEPTHS);
    }
    return out;
}

struct json_object *test_recall(const struct audit_run *run, enum audit_verdict *verdict)
{
    return test_memory(run, TEST_RECALL, verdict);
}

struct json_object *test_needle(const struct audit_run *run, enum audit_verdict *verdict)
{
    return test_memory(run, TEST_NEEDLE, verdict);
}
