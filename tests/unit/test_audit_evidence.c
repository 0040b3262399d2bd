/* What a proof and a ranking make of a report: which states count, and which verdict follows. */
#include "engine/audit/evidence.h"

#include "engine/audit/report_fields.h"
#include "engine/audit/tests_common.h"
#include "engine/audit/work.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A proof of `official` in which everything is live that acts. */
static struct proof *proof_good(void)
{
    struct proof *p = calloc(1, sizeof *p);
    assert_non_null(p);
    p->profile = *profile_builtin_at(PROFILE_OFFICIAL);
    p->complete = p->good = true;
    for (int row = 0; row < PRECISION_ROWS; row++)
        p->cells[row][KIND_CSA][LEG_DECODE] = (struct proof_cell){.state = PROOF_LIVE, .rows = 7};
    p->counts[PROOF_LIVE] = PRECISION_ROWS;
    return p;
}

/* The verdict on a proof whose cell of `row` is `cell`. */
static enum audit_verdict verdict_with(enum precision_row row, const struct proof_cell *cell,
                                       struct json_object **report)
{
    enum audit_verdict verdict;
    struct proof *p = proof_good();
    p->cells[row][KIND_CSA][LEG_DECODE] = *cell;
    *report = json_object_new_object();
    struct json_object *test = evidence_proof(p, NULL, *report, &verdict);
    assert_string_equal(report_string(test, "verdict"), audit_verdict_name(verdict));
    assert_int_equal(report_count(report_member(*report, "rows")),
                     PRECISION_ROWS - (cell->state == PROOF_NONE));
    if (verdict == VERDICT_INVALID) /* the place is named */
        assert_non_null(strstr(report_string(test, "why"), PRECISION[row].name));
    json_object_put(test);
    free(p);
    return verdict;
}

static void states(void **state)
{
    static const struct {
        struct proof_cell cell;
        enum audit_verdict verdict;
    } CASES[] = {
        {{.state = PROOF_LIVE, .rows = 1}, VERDICT_PASS},
        {{.state = PROOF_NONE}, VERDICT_PASS},
        {{.state = PROOF_UNPROVEN, .why = "one device"}, VERDICT_PASS},
        {{.state = PROOF_UNPROVEN, .missing = true, .why = "nothing was seen"}, VERDICT_INVALID},
        {{.state = PROOF_INERT, .why = "no difference"}, VERDICT_INVALID},
        {{.state = PROOF_INERT, .missing = true, .why = "no difference"}, VERDICT_INVALID},
        {{.state = PROOF_WRONG, .why = "ran fp32"}, VERDICT_INVALID},
        {{.state = PROOF_WRONG, .missing = true, .why = "ran fp32"}, VERDICT_INVALID},
        {{.state = PROOF_LIVE, .missing = true}, VERDICT_INVALID}, /* contradicts itself */
    };
    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        for (int row = 0; row < PRECISION_ROWS; row++) {
            struct json_object *report;
            enum audit_verdict got = verdict_with((enum precision_row)row, &CASES[i].cell, &report);
            assert_int_equal(got, CASES[i].verdict);
            json_object_put(report);
        }
    }
}

/* The page for a terminal names what counts, with its place, and only lists what does not. */
static void shown(void **state)
{
    struct json_object *report;
    struct buf text = {0};
    (void)state;
    const struct proof_cell wrong = {.state = PROOF_WRONG, .why = "ran tf32 in 3 of 9 calls"};
    verdict_with(ROW_HC_MIX, &wrong, &report);
    report_text(report, &text);
    assert_non_null(strstr(buf_cstr(&text), "csa layers, decode: wrong, ran tf32 in 3 of 9 calls"));
    json_object_put(report);
    text.len = 0;
    const struct proof_cell away = {.state = PROOF_UNPROVEN, .why = "one device"};
    verdict_with(ROW_HC_MIX, &away, &report);
    report_text(report, &text);
    assert_null(strstr(buf_cstr(&text), "no verdict may rest on"));
    assert_non_null(strstr(buf_cstr(&text), "nothing shows them here: hc.mix\n"));
    json_object_put(report);
    buf_free(&text);
}

static void unfinished(void **state)
{
    enum audit_verdict verdict;
    struct proof *p = proof_good();
    struct json_object *report = json_object_new_object();
    (void)state;
    p->complete = false;
    json_object_put(evidence_proof(p, NULL, report, &verdict));
    assert_int_equal(verdict, VERDICT_INVALID);
    json_object_put(report);
    free(p);
}

/* What is compared with is proven, too, and a search rests on both. */
static void reference(void **state)
{
    static const struct {
        enum proof_state state;
        const char *outcome;
        enum audit_verdict proven, whole;
    } CASES[] = {
        {PROOF_LIVE, "convicted", VERDICT_PASS, VERDICT_FAIL},
        {PROOF_INERT, "convicted", VERDICT_INVALID, VERDICT_INVALID},
        {PROOF_WRONG, "no fault", VERDICT_INVALID, VERDICT_INVALID},
        {PROOF_LIVE, "no fault", VERDICT_PASS, VERDICT_PASS},
    };
    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        enum audit_verdict verdict;
        struct proof *good = proof_good(), *other = proof_good();
        struct json_object *report = json_object_new_object();
        other->cells[ROW_MOE_CLAMP][KIND_CSA][LEG_DECODE].state = CASES[i].state;
        struct json_object *test = evidence_proof(good, other, report, &verdict);
        assert_int_equal(verdict, CASES[i].proven);
        assert_int_equal(report_count(report_member(report, "reference_rows")), PRECISION_ROWS);
        if (verdict == VERDICT_INVALID)
            assert_non_null(strstr(report_string(test, "why"), "in the reference: moe.clamp"));
        json_object_array_add(result_part(report, "tests", true), test);
        json_set(result_part(report, "isolation", false), "outcome",
                 json_object_new_string(CASES[i].outcome));
        assert_int_equal(audit_report_worst(report), CASES[i].whole);
        json_object_put(report);
        free(good);
        free(other);
    }
}

/* Inert in the profile: forgiven where the row has the reference's value and is live there. */
static void swallowed(void **state)
{
    static const struct {
        enum proof_state profile, reference;
        bool missing, other_value;
        enum audit_verdict verdict;
    } CASES[] = {
        {PROOF_INERT, PROOF_LIVE, false, false, VERDICT_PASS},
        {PROOF_INERT, PROOF_LIVE, true, false, VERDICT_INVALID},
        {PROOF_INERT, PROOF_LIVE, false, true, VERDICT_INVALID},
        {PROOF_INERT, PROOF_UNPROVEN, false, false, VERDICT_INVALID},
        {PROOF_WRONG, PROOF_LIVE, false, false, VERDICT_INVALID},
    };
    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        enum audit_verdict verdict;
        struct proof *p = proof_good(), *other = proof_good();
        struct json_object *report = json_object_new_object();
        struct proof_cell *cell = &p->cells[ROW_MOE_CLAMP][KIND_CSA][LEG_DECODE];
        cell->state = CASES[i].profile;
        cell->missing = CASES[i].missing;
        other->cells[ROW_MOE_CLAMP][KIND_CSA][LEG_DECODE].state = CASES[i].reference;
        other->profile.values[ROW_MOE_CLAMP] ^= CASES[i].other_value;
        json_object_put(evidence_proof(p, other, report, &verdict));
        assert_int_equal(verdict, CASES[i].verdict);
        json_object_put(report);
        free(p);
        free(other);
    }
}

/* One value of the profile that costs only decoded tokens something, and one of another. */
static enum audit_verdict rank_verdict(bool complete, double chosen_kl, double other_kl)
{
    enum audit_verdict verdict;
    struct rank *rank = calloc(1, sizeof *rank);
    struct profile profile = *profile_builtin_at(PROFILE_REFERENCE);
    struct json_object *report = json_object_new_object();
    assert_non_null(rank);
    assert_true(profile_set(&profile, ROW_HC_MIX, 1));
    rank->complete = complete;
    rank->n = 2;
    rank->entries[0] =
        (struct rank_entry){.row = ROW_HC_MIX, .value = 1, .ran = true, .kl_mean = chosen_kl / 10};
    rank->entries[0].kl[LEG_DECODE] = chosen_kl;
    rank->entries[1] = (struct rank_entry){.row = ROW_HEAD_LOGITS, .value = 1, .ran = true};
    rank->entries[1].kl_mean = rank->entries[1].kl[LEG_PREFILL] = other_kl;
    struct json_object *test = evidence_rank(rank, &profile, report, &verdict);
    assert_int_equal(report_number(test, "n"), 1);
    assert_int_equal(report_count(report_member(report, "ranking")), 2);
    if (verdict == VERDICT_FAIL)
        assert_non_null(strstr(report_string(test, "why"), "hc.mix="));
    json_object_put(test);
    json_object_put(report);
    free(rank);
    return verdict;
}

static void budgets(void **state)
{
    double budget = PRECISION[ROW_HC_MIX].budget;
    (void)state;
    assert_int_equal(rank_verdict(true, budget, 9), VERDICT_PASS);
    assert_int_equal(rank_verdict(true, budget * 1.01 + 1e-9, 0), VERDICT_FAIL);
    assert_int_equal(rank_verdict(false, budget + 9, 0), VERDICT_UNDECIDED);
}

/* Every verdict comes out of `worst`, whatever the order. */
static void worst(void **state)
{
    static const enum audit_verdict RISING[VERDICTS] = {
        VERDICT_PASS, VERDICT_MODEL, VERDICT_UNDECIDED, VERDICT_INVALID, VERDICT_FAIL};
    (void)state;
    for (int i = 0; i < VERDICTS; i++) {
        for (int j = 0; j < VERDICTS; j++)
            assert_int_equal(audit_verdict_worst(RISING[i], RISING[j]), RISING[i > j ? i : j]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states),    cmocka_unit_test(shown),     cmocka_unit_test(unfinished),
        cmocka_unit_test(reference), cmocka_unit_test(swallowed), cmocka_unit_test(budgets),
        cmocka_unit_test(worst),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
