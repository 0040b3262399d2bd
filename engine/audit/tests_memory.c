/* Recall and needles: answers that the reference has and the profile loses. */
#include "config/model.h"
#include "engine/audit/pace.h"
#include "engine/audit/tests_common.h"
#include "engine/base/clock.h"
#include "engine/serve/schedule.h"
#include "kernels/check.h"

#include <math.h>
#include <stdio.h>

/* ---- items ----------------------------------------------------------------------------------- */

static const int32_t TURNS[] = {2, 5, 10, 20, 40};
static const char *const TURN_NAMES[] = {"2 turns", "5 turns", "10 turns", "20 turns", "40 turns"};

/* What surrounds a talk: bit 0 a harness' tools, bit 1 thinking. */
static const char *const FORM_NAMES[] = {"plain", "tools", "thinking", "tools and thinking"};
#define FORMS 4

/* Tokens of a text, and how many lengths from there on: every residue of 128 (and so of 4) in turn.
 * The edge of the choice is where the indexer has one block more than it may choose. */
static const struct {
    const char *name;
    int32_t tokens, residues;
    bool choice;
} LENGTHS[] = {
    {"edge of the choice", -RATIO_CSA, 2 * RATIO_CSA, true},
    {"256", 256, RATIO_HCA, false},
    {"512", 512, RATIO_HCA, false},
    {"1024", 1024, RATIO_HCA, false},
    {"2048", 2048, RATIO_HCA, false},
    {"4096", 4096, RATIO_HCA, false},
    {"8192", 8192, RATIO_HCA, false},
    {"16384", 16384, RATIO_HCA, false},
    {"32000", 32000, RATIO_HCA, false},
};

/* Where a value lies in its prompt of n tokens. */
enum depth {
    AT_START,
    AT_10,
    AT_30,
    AT_50,
    AT_70,
    AT_90,
    AT_END,
    AT_INSIDE,
    AT_RIM,
    AT_OUTSIDE,
    AT_GROUP,
    AT_BLOCK,
    AT_STEP,
    DEPTHS
};
static const char *const DEPTH_NAMES[DEPTHS] = {
    [AT_START] = "start",
    [AT_10] = "10 %",
    [AT_30] = "30 %",
    [AT_50] = "50 %",
    [AT_70] = "70 %",
    [AT_90] = "90 %",
    [AT_END] = "in the last 100",
    [AT_INSIDE] = "just in the window",
    [AT_RIM] = "over the window's edge",
    [AT_OUTSIDE] = "just out of the window",
    [AT_GROUP] = "over the edge of a group of 4",
    [AT_BLOCK] = "over the edge of a block of 128",
    [AT_STEP] = "over the edge of a step",
};

#define COUNT(list) ((int32_t)(sizeof(list) / sizeof *(list)))
/* Residues of 128 side by side in the table, a line for each residue of 4. */
#define RESIDUE_BANDS 8
static const char *const RESIDUE_NAMES[] = {"0 of 4", "1 of 4", "2 of 4", "3 of 4"};
static const char *const BAND_NAMES[] = {"0.. of 128",  "16.. of 128", "32.. of 128",
                                         "48.. of 128", "64.. of 128", "80.. of 128",
                                         "96.. of 128", "112.. of 128"};

/* Odd, so that lengths meet every residue of 128; the golden section of it, so that few do already.
 */
#define RESIDUE_STRIDE 79
/* So that few items meet places all over the text, and thirteen meet all. */
#define DEPTH_STRIDE 4
/* Items have the seeds from the run's on. */
#define EDGES_SEED (1 << 19)

/* Tokens in front of a value in the first sentence, and behind it in the last, with some room. */
#define NEEDLE_FRONT 40
#define NEEDLE_BACK  80
/* Of a value that begins so far in front of an edge the middle lies on it: they have 4 to 9. */
#define NEEDLE_HALF 3

static int32_t most(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

static int32_t needle_at(enum depth depth, int32_t n, int32_t chunk)
{
    int32_t edge = most(n / 2 / chunk * chunk, chunk);
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
        return n - most(n / 10, NEEDLE_BACK);
    case AT_END:
        return n - NEEDLE_BACK;
    case AT_INSIDE:
        return n - SLIDING_WINDOW + 1;
    case AT_RIM:
        return n - SLIDING_WINDOW - NEEDLE_HALF;
    case AT_OUTSIDE:
        return n - SLIDING_WINDOW - 4 * NEEDLE_HALF;
    case AT_GROUP:
        return n / 4 / RATIO_CSA * RATIO_CSA - 1;
    case AT_BLOCK:
        return n / 3 / RATIO_HCA * RATIO_HCA - NEEDLE_HALF + RATIO_HCA;
    case AT_STEP: /* so that what it needs was made in another step */
        return edge - NEEDLE_HALF;
    case DEPTHS:
        break;
    }
    ASSERT(false);
}

struct audit_cell {
    int line, column, form;
    enum audit_carry carry;
};

/* Coprime with the number of pairs, whatever n is; chosen so that the first items already have the
 * shares that all have. */
#define PAIR_STRIDE 43
#define PAIR_OFFSET 11

/* One of n sizes for item i: the smaller one of a pair of [0, n) and [0, n], and each way of
 * carrying goes through all pairs.  What takes twice the time comes about half as often, so that
 * the answers of a budget are many and none of its sizes is left out. */
static int32_t size_at(int32_t i, int32_t n)
{
    int32_t pair = (i / CARRIES * PAIR_STRIDE + i % CARRIES * PAIR_OFFSET) % (n * (n + 1));
    int32_t a = pair % n, b = pair / n;
    return a < b ? a : b;
}

/* Every number of turns meets every place, form and way of carrying, whatever the budget. */
static bool make_recall(const struct audit_run *run, int32_t i, struct audit_item *out,
                        struct audit_cell *cell)
{
    int32_t turns = 0;
    while (turns < COUNT(TURNS) && TURNS[turns] <= run->budget->turns_max)
        turns++;
    *cell = (struct audit_cell){size_at(i, turns), i % PLACES, i / PLACES % FORMS,
                                (enum audit_carry)(i % CARRIES)};
    struct recall_plan plan = {
        .seed = run->seed + (uint64_t)i,
        .turns = TURNS[cell->line],
        .place = (enum audit_place)cell->column,
        .tools = (cell->form & 1) != 0,
        .thinking = (cell->form & 2) != 0,
        .decoys = TURNS[cell->line] < 5 ? 0 : 3,
    };
    conversation_recall(run->text, &plan, out);
    return true;
}

static bool make_needle(const struct audit_run *run, int32_t i, struct audit_item *out,
                        struct audit_cell *cell)
{
    int32_t lengths = 0;
    while (lengths < COUNT(LENGTHS) && LENGTHS[lengths].tokens <= run->budget->needle_max)
        lengths++;
    *cell = (struct audit_cell){size_at(i, lengths), i * DEPTH_STRIDE % DEPTHS, 0,
                                (enum audit_carry)(i % CARRIES)};
    int32_t choice = RATIO_CSA * machine_config(run->machine)->index_topk;
    int32_t n = LENGTHS[cell->line].tokens + (LENGTHS[cell->line].choice ? choice : 0) +
                i * RESIDUE_STRIDE % LENGTHS[cell->line].residues;
    int32_t chunk = schedule_chunk(run->profile, machine_step_tokens(run->machine));
    int32_t at = needle_at((enum depth)cell->column, n, chunk);
    struct needle_plan plan = {run->seed + (uint64_t)i, n, at, 3};
    struct error err;
    return conversation_needle(run->text, &plan, out, &err) == OK;
}

/* As long as the budget's needles. */
static int32_t edges_tokens(const struct audit_run *run)
{
    int32_t room = machine_context(run->machine) - AUDIT_ANSWER_TOKENS;
    return run->budget->needle_max < room ? run->budget->needle_max : room;
}

/* A text of so many tokens, with a fact on every edge of the profile's steps. */
static int32_t make_edges(const struct audit_run *run, int32_t tokens, struct audit_item *out)
{
    int32_t chunk = schedule_chunk(run->profile, machine_step_tokens(run->machine));
    struct edges_plan plan = {run->seed + EDGES_SEED, tokens, chunk};
    return conversation_edges(run->text, &plan, out);
}

/* One of them, as an item of its own. */
static bool make_edge(const struct audit_run *run, int32_t i, struct audit_item *out,
                      struct audit_cell *cell)
{
    struct audit_item all[AUDIT_EDGES_MAX];
    int32_t n = make_edges(run, edges_tokens(run), all);
    *cell = (struct audit_cell){0};
    for (int32_t j = 0; j < n; j++) {
        if (j == i)
            *out = all[j];
        else
            audit_item_free(&all[j]);
    }
    return i < n;
}

int32_t audit_items(const struct audit_run *run, enum audit_test test)
{
    struct audit_item all[AUDIT_EDGES_MAX];
    int32_t n = test == TEST_NEEDLE ? make_edges(run, edges_tokens(run), all) : 0;
    for (int32_t i = 0; i < n; i++)
        audit_item_free(&all[i]);
    return run->budget->items + n;
}

static bool make_item(const struct audit_run *run, enum audit_test test, int32_t i,
                      struct audit_item *out, struct audit_cell *cell)
{
    int32_t beyond = i - run->budget->items;
    bool made = test == TEST_RECALL ? make_recall(run, i, out, cell)
                : beyond >= 0       ? make_edge(run, beyond, out, cell)
                                    : make_needle(run, i, out, cell);
    int32_t room = machine_context(run->machine) - AUDIT_ANSWER_TOKENS;
    if (made && (int32_t)out->ids.len > room) {
        audit_item_free(out);
        return false;
    }
    return made;
}

bool audit_item_make(const struct audit_run *run, enum audit_test test, int32_t i,
                     struct audit_item *out)
{
    struct audit_cell cell;
    return make_item(run, test, i, out, &cell);
}

/* ---- pairs ----------------------------------------------------------------------------------- */

static void pairs_add(struct audit_pairs *p, bool first, bool second)
{
    p->n++;
    p->first += first;
    p->second += second;
    p->losses += first && !second;
    p->gains += second && !first;
}

struct memory {
    struct audit_pairs rows;    /* reference, fresh; profile, carried as the item says */
    struct audit_pairs carried; /* profile, fresh; profile, carried */
    struct audit_pairs edges;   /* reference; profile; facts on the edges of steps */
    struct pace pace;
    int32_t format, skipped, edges_dropped;
    double least_margin;
    struct grid places, forms, residues;
};

static void grid_add(struct grid *grid, int line, int column, bool reference, bool right)
{
    grid->n[line][column]++;
    grid->reference[line][column] += reference;
    grid->right[line][column] += right;
}

/* What an item costs: tokens that are prefilled, and some that are decoded, so many times. */
static double size_of(const struct audit_item *item, int32_t times)
{
    return (double)times * (double)(item->ids.len + AUDIT_ANSWER_TOKENS / 2);
}

/* One item under both profiles.  The profile gets it in each way in turn, and fresh beside it: what
 * only the carried one loses is lost in the state. */
static void run_item(const struct audit_run *run, enum audit_test test, int32_t i, struct memory *m)
{
    struct audit_item item;
    struct audit_cell cell;
    if (!make_item(run, test, i, &item, &cell)) {
        m->skipped++;
        return;
    }
    if (!pace_begin(&m->pace, size_of(&item, cell.carry != CARRY_NONE ? 3 : 2), clock_ms())) {
        audit_item_free(&item);
        return;
    }
    struct audit_setting reference = {run->reference, run->reference, CARRY_NONE};
    struct audit_setting fresh = {run->profile, run->profile, CARRY_NONE};
    struct audit_setting carried = {run->profile, run->profile, cell.carry};
    struct audit_answer wanted, plain, got;
    machine_answer(run->machine, &item, &reference, &wanted);
    machine_answer(run->machine, &item, &carried, &got);
    bool was = wanted.grade == GRADE_RIGHT, is = got.grade == GRADE_RIGHT;
    if (cell.carry != CARRY_NONE) {
        machine_answer(run->machine, &item, &fresh, &plain);
        pairs_add(&m->carried, plain.grade == GRADE_RIGHT, is);
    }
    pairs_add(&m->rows, was, is);
    m->format += got.grade == GRADE_FORMAT;
    if (was && !(got.margin >= m->least_margin))
        m->least_margin = got.margin;
    grid_add(&m->places, cell.line, cell.column, was, is);
    grid_add(&m->forms, (int)cell.carry, cell.form, was, is);
    int32_t residue = (int32_t)item.ids.len % RATIO_HCA;
    grid_add(&m->residues, residue % RATIO_CSA, residue * RESIDUE_BANDS / RATIO_HCA, was, is);
    audit_item_free(&item);
    if (!audit_cancelled(run))
        pace_end(&m->pace, clock_ms());
}

/* Asks for all facts of a text on edges.  @return false: that does not fit the time */
static bool ask_edges(const struct audit_run *run, const struct audit_item *items, int32_t n,
                      struct memory *m)
{
    struct audit_answer wanted[AUDIT_EDGES_MAX], got[AUDIT_EDGES_MAX];
    struct audit_setting reference = {run->reference, run->reference, CARRY_NONE};
    struct audit_setting live = {run->profile, run->profile, CARRY_NONE};
    double size = size_of(&items[0], 2) + 4.0 * AUDIT_ANSWER_TOKENS * n;
    if (!pace_begin(&m->pace, size, clock_ms())) {
        m->pace.dropped--; /* they are no items */
        return false;
    }
    machine_answers(run->machine, items, n, &reference, wanted);
    machine_answers(run->machine, items, n, &live, got);
    for (int32_t i = 0; i < n; i++)
        pairs_add(&m->edges, wanted[i].grade == GRADE_RIGHT, got[i].grade == GRADE_RIGHT);
    return true;
}

/* The text is halved until it fits the time: a few edges tell more than none. */
static void run_edges(const struct audit_run *run, struct memory *m)
{
    struct audit_item items[AUDIT_EDGES_MAX];
    bool asked = false;
    int32_t all = 0, n = 1;
    for (int32_t tokens = edges_tokens(run); !asked && n > 0; tokens /= 2) {
        n = make_edges(run, tokens, items);
        all = n > all ? n : all;
        asked = n > 0 && ask_edges(run, items, n, m);
        for (int32_t i = 0; i < n; i++)
            audit_item_free(&items[i]);
    }
    m->edges_dropped = all - m->edges.n;
}

static enum audit_verdict sprt_verdict(const struct audit_budget *budget,
                                       const struct audit_pairs *p)
{
    struct sprt test = {budget->good, budget->bad, AUDIT_ALPHA, AUDIT_BETA, p->losses, p->first};
    enum sprt_state state = sprt_state(&test);
    return state == SPRT_GOOD ? VERDICT_PASS : state == SPRT_BAD ? VERDICT_FAIL : VERDICT_UNDECIDED;
}

enum audit_verdict audit_memory_judge(const struct audit_budget *budget,
                                      const struct audit_pairs *items,
                                      const struct audit_pairs *edges, struct buf *why)
{
    if (sprt_verdict(budget, edges) == VERDICT_FAIL) {
        buf_printf(why, "%d of the reference's %d right answers about facts on edges lost",
                   edges->losses, edges->first);
        return VERDICT_FAIL;
    }
    if (items->n == 0) {
        buf_puts(why, "nothing was asked");
        return VERDICT_UNDECIDED;
    }
    if (items->first < AUDIT_MODEL_SHARE * items->n) {
        buf_printf(why, "the reference profile answers %d of %d", items->first, items->n);
        return VERDICT_MODEL;
    }
    buf_printf(why, "%d of the reference's %d right answers lost, %d won", items->losses,
               items->first, items->gains);
    return sprt_verdict(budget, items);
}

static void put_pairs(struct json_object *numbers, const struct audit_pairs *p,
                      const char *const names[5])
{
    const double values[5] = {p->first, p->second, p->losses, p->gains,
                              stats_mcnemar(p->losses, p->gains)};
    for (int i = 0; i < 5; i++)
        result_number(numbers, names[i], values[i]);
}

static void put_numbers(struct json_object *out, const struct memory *m, bool edges)
{
    static const char *const ROWS[] = {"right in reference", "right in profile", "lost", "won",
                                       "one-sided exact McNemar p"};
    static const char *const CARRIED[] = {"carried: right fresh", "carried: right", "carried: lost",
                                          "carried: won", "carried: one-sided exact McNemar p"};
    static const char *const EDGES[] = {
        "edges of steps: right in reference", "edges of steps: right in profile",
        "edges of steps: lost", "edges of steps: won", "edges of steps: one-sided exact McNemar p"};
    struct json_object *numbers = result_part(out, "numbers", false);
    put_pairs(numbers, &m->rows, ROWS);
    put_pairs(numbers, &m->carried, CARRIED);
    result_number(numbers, "carried: n", m->carried.n);
    if (edges) {
        put_pairs(numbers, &m->edges, EDGES);
        result_number(numbers, "edges of steps: n", m->edges.n);
        result_number(numbers, "edges of steps: " RESULT_DROPPED, m->edges_dropped);
    }
    result_number(numbers, "value there, form wrong", m->format);
    result_number(numbers, "did not fit", m->skipped);
    result_number(numbers, RESULT_DROPPED, m->pace.dropped);
    result_number(numbers, "least margin of a value's tokens, nats", m->least_margin);
}

static void put_grids(struct json_object *out, const struct memory *m, bool needle)
{
    const char *places[PLACES], *carries[CARRIES], *lengths[COUNT(LENGTHS)];
    for (int i = 0; i < PLACES; i++)
        places[i] = audit_place_name((enum audit_place)i);
    for (int i = 0; i < CARRIES; i++)
        carries[i] = audit_carry_name((enum audit_carry)i);
    for (int i = 0; i < COUNT(LENGTHS); i++)
        lengths[i] = LENGTHS[i].name;
    if (needle) {
        result_grid(out, "right answers by tokens and place", &m->places, lengths, COUNT(LENGTHS),
                    DEPTH_NAMES, DEPTHS);
        result_grid(out, "right answers by the length's residues of 4 and of 128", &m->residues,
                    RESIDUE_NAMES, RATIO_CSA, BAND_NAMES, RESIDUE_BANDS);
    } else {
        result_grid(out, "right answers by turns and by who said the fact", &m->places, TURN_NAMES,
                    COUNT(TURNS), places, PLACES);
        result_grid(out, "right answers by way of carrying and by form", &m->forms, carries,
                    CARRIES, FORM_NAMES, FORMS);
    }
}

/* Sizes of which no item was asked, whether the budget has none or none fitted its time. */
static void tell_unasked(const struct memory *m, bool needle, struct buf *why)
{
    int sizes = needle ? COUNT(LENGTHS) : COUNT(TURNS);
    const char *between = "; none asked of ";
    for (int i = 0; i < sizes; i++) {
        int32_t asked = 0;
        for (int j = 0; j < GRID_COLUMNS_MAX; j++)
            asked += m->places.n[i][j];
        if (asked > 0)
            continue;
        buf_printf(why, "%s%s", between, needle ? LENGTHS[i].name : TURN_NAMES[i]);
        between = ", ";
    }
    if (needle && between[0] == ',')
        buf_puts(why, " tokens");
}

static struct json_object *test_memory(const struct audit_run *run, enum audit_test test,
                                       enum audit_verdict *verdict)
{
    struct memory m = {.least_margin = INFINITY, .pace = {.until_ms = run->until_ms}};
    char gate[96];
    struct buf why = {0};
    if (test == TEST_NEEDLE && run->until_ms != 0)
        m.pace.until_ms -= (run->until_ms - clock_ms()) * AUDIT_EDGES_PERCENT / 100;
    for (int32_t i = 0; i < run->budget->items && !audit_cancelled(run); i++)
        run_item(run, test, i, &m);
    m.pace.until_ms = run->until_ms;
    if (test == TEST_NEEDLE && !audit_cancelled(run))
        run_edges(run, &m);
    *verdict = audit_memory_judge(run->budget, &m.rows, &m.edges, &why);
    if (m.carried.losses > m.carried.gains)
        buf_puts(&why, "; fresh it loses fewer");
    if (m.pace.dropped > 0)
        buf_printf(&why, "; no time was left for %d of %d items", (int)m.pace.dropped,
                   (int)run->budget->items);
    tell_unasked(&m, test == TEST_NEEDLE, &why);
    snprintf(gate, sizeof gate, "lost: %.3g accepted, %.3g refused", run->budget->good,
             run->budget->bad);
    struct json_object *out =
        result_new(audit_test_name(test), *verdict, buf_cstr(&why), m.rows.n, gate);
    buf_free(&why);
    if (m.rows.first > 0)
        result_estimate(out, (double)m.rows.losses / m.rows.first,
                        stats_rate(m.rows.losses, m.rows.first, AUDIT_CONFIDENCE));
    put_numbers(out, &m, test == TEST_NEEDLE);
    put_grids(out, &m, test == TEST_NEEDLE);
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
