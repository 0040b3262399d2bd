/*
 * Proof and ranking as members of a report, and the verdicts that follow from them.
 */
#include "engine/audit/evidence.h"

#include "config/audit_gates.h"
#include "engine/audit/tests_common.h"
#include "kernels/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void put_text(struct json_object *object, const char *key, const char *text)
{
    json_set(object, key, json_object_new_string(text));
}

/* ---- the proof ------------------------------------------------------------------------------- */

bool evidence_counts(const struct proof_cell *cell)
{
    static const struct {
        enum proof_state state;
        bool missing, counts;
    } GATES[] = {
#define EVIDENCE(state, missing, counts) {state, missing, counts},
        AUDIT_EVIDENCE(EVIDENCE)
#undef EVIDENCE
    };
    for (size_t i = 0; i < sizeof GATES / sizeof *GATES; i++) {
        if (GATES[i].state == cell->state && GATES[i].missing == cell->missing)
            return GATES[i].counts;
    }
    return true; /* a state that no line speaks of is no evidence */
}

/* A row that has the reference's value and is live there can be inert beside coarser ones, which
 * swallow what it does: then nothing rests on it. */
static bool cell_counts(const struct proof *proof, const struct proof *reference, int row, int kind,
                        enum leg leg)
{
    const struct proof_cell *cell = &proof->cells[row][kind][leg];
    bool swallowed = reference != NULL && cell->state == PROOF_INERT && !cell->missing &&
                     reference->cells[row][kind][leg].state == PROOF_LIVE &&
                     proof->profile.values[row] == reference->profile.values[row];
    return evidence_counts(cell) && !swallowed;
}

static struct json_object *cell_json(const struct proof *proof, const struct proof *reference,
                                     int row, int kind, enum leg leg)
{
    const struct proof_cell *cell = &proof->cells[row][kind][leg];
    struct json_object *out = json_object_new_object();
    put_text(out, "row", PRECISION[row].name);
    put_text(out, "value", profile_value_name(&proof->profile, (enum precision_row)row));
    put_text(out, "kind", proof_kind_name(kind));
    put_text(out, "leg", leg_name(leg));
    put_text(out, "state", proof_state_name(cell->state));
    json_set(out, "witnessed", json_object_new_int64((int64_t)cell->rows));
    json_set(out, "counts", json_object_new_boolean(cell_counts(proof, reference, row, kind, leg)));
    put_text(out, "why", cell->why);
    return out;
}

/* @return places that no verdict may rest on; the first one is said in `why` */
static int put_rows(const struct proof *proof, const struct proof *reference,
                    struct json_object *rows, struct buf *why)
{
    int bad = 0;
    for (int row = 0; row < PRECISION_ROWS; row++) {
        for (int kind = 0; kind < PROOF_KINDS; kind++) {
            for (int leg = 0; leg < LEGS; leg++) {
                const struct proof_cell *cell = &proof->cells[row][kind][leg];
                if (cell->state == PROOF_NONE)
                    continue;
                json_object_array_add(rows, cell_json(proof, reference, row, kind, (enum leg)leg));
                if (cell_counts(proof, reference, row, kind, (enum leg)leg) && bad++ == 0)
                    buf_printf(why, "%s is %s in %s layers, %s: %s", PRECISION[row].name,
                               proof_state_name(cell->state), proof_kind_name(kind),
                               leg_name((enum leg)leg), cell->why);
            }
        }
    }
    return bad;
}

/* One proof's part in the verdict, and its rows as a member of the report. */
static bool judge_proof(const struct proof *proof, const struct proof *reference, const char *whose,
                        const char *member, struct json_object *report, struct buf *why)
{
    struct json_object *rows = json_object_new_array();
    struct buf first = {0};
    int bad = put_rows(proof, reference, rows, &first);
    json_set(report, member, rows);
    if (!proof->complete || bad > 0)
        buf_printf(why, "%s%s", why->len > 0 ? "; " : "", whose);
    if (!proof->complete)
        buf_puts(why, "the proof was not finished");
    else if (bad > 0)
        buf_add(why, first.data, first.len);
    if (proof->complete && bad > 1)
        buf_printf(why, "; %d places in all", bad);
    buf_free(&first);
    return proof->complete && bad == 0;
}

struct json_object *evidence_proof(const struct proof *proof, const struct proof *reference,
                                   struct json_object *report, enum audit_verdict *verdict)
{
    struct buf why = {0};
    int counts[PROOF_STATES] = {0}, n = 0;
    bool good = judge_proof(proof, reference, "", "rows", report, &why);
    if (reference != NULL)
        good = judge_proof(reference, NULL, "in the reference: ", "reference_rows", report, &why) &&
               good;
    *verdict = good ? VERDICT_PASS : VERDICT_INVALID;
    if (good)
        buf_puts(&why, "every row that can run here does what it says");
    for (int state = PROOF_LIVE; state < PROOF_STATES; state++) {
        counts[state] = proof->counts[state] + (reference != NULL ? reference->counts[state] : 0);
        n += counts[state];
    }
    struct json_object *out =
        result_new("prove", *verdict, buf_cstr(&why), n, "no row inert, wrong or unseen");
    buf_free(&why);
    struct json_object *numbers = result_part(out, "numbers", false);
    for (int state = PROOF_LIVE; state < PROOF_STATES; state++)
        result_number(numbers, proof_state_name((enum proof_state)state), counts[state]);
    return out;
}

struct json_object *evidence_prove_in(struct lab *lab, const struct proof_options *options,
                                      const struct profile *reference, struct json_object *report,
                                      enum audit_verdict *verdict)
{
    struct proof *proofs = calloc(2, sizeof *proofs);
    struct proof_options compared = *options;
    bool same = memcmp(options->profile->values, reference->values, sizeof reference->values) == 0;
    ASSERT(proofs != NULL);
    proof_run(lab, options, &proofs[0]);
    compared.profile = reference;
    if (!same)
        proof_run(lab, &compared, &proofs[1]);
    struct json_object *out = evidence_proof(&proofs[0], same ? NULL : &proofs[1], report, verdict);
    free(proofs);
    return out;
}

/* ---- the ranking ----------------------------------------------------------------------------- */

static struct json_object *entry_json(const struct rank_entry *e, bool chosen)
{
    const struct precision_switch *row = &PRECISION[e->row];
    struct json_object *out = json_object_new_object();
    put_text(out, "row", row->name);
    put_text(out, "value", row->values[e->value].name);
    json_set(out, "chosen", json_object_new_boolean(chosen));
    put_text(out, "tier", e->ran ? rank_tier_name(e->tier) : "did not run here");
    if (e->ran) {
        result_number(out, "kl", e->kl_mean);
        result_number(out, "kl_prefill", e->kl[LEG_PREFILL]);
        result_number(out, "kl_decode", e->kl[LEG_DECODE]);
        result_number(out, "top1_loss", e->top1_loss);
        result_number(out, "exposure", e->exposure);
    }
    return out;
}

struct json_object *evidence_rank(const struct rank *rank, const struct profile *profile,
                                  struct json_object *report, enum audit_verdict *verdict)
{
    struct json_object *ranking = json_object_new_array();
    struct buf why = {0};
    int n = 0, over = 0;
    for (int i = 0; i < rank->n; i++) {
        const struct rank_entry *e = &rank->entries[i];
        const struct precision_switch *row = &PRECISION[e->row];
        bool chosen = profile->values[e->row] == e->value;
        json_object_array_add(ranking, entry_json(e, chosen));
        n += chosen && e->ran;
        /* A leg that few tokens take is not to be lost in the mean of all. */
        double cost = fmax(e->kl[LEG_PREFILL], e->kl[LEG_DECODE]);
        if (!chosen || !e->ran || cost <= row->budget)
            continue;
        buf_printf(&why, "%s%s=%s alone costs %.3g of %.3g nats", over++ == 0 ? "" : "; ",
                   row->name, row->values[e->value].name, cost, row->budget);
    }
    *verdict = !rank->complete ? VERDICT_UNDECIDED : over > 0 ? VERDICT_FAIL : VERDICT_PASS;
    if (!rank->complete) {
        why.len = 0;
        buf_puts(&why, "the ranking was not finished");
    } else if (over == 0) {
        buf_puts(&why, "every value of the profile costs what its row may");
    }
    json_set(report, "ranking", ranking);
    struct json_object *out =
        result_new("rank", *verdict, buf_cstr(&why), n, "KL alone within the row's budget");
    buf_free(&why);
    return out;
}

struct json_object *evidence_rank_in(struct lab *lab, const struct profile *profile, bool own,
                                     const int32_t *prompt, int32_t n, struct json_object *report,
                                     enum audit_verdict *verdict)
{
    struct rank *rank = calloc(1, sizeof *rank);
    ASSERT(rank != NULL);
    rank_run(lab, prompt, n, own ? profile : NULL, rank);
    struct json_object *out = evidence_rank(rank, profile, report, verdict);
    free(rank);
    return out;
}
