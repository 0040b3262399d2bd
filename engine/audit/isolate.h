/*
 * The search for the row that breaks a failing test: which configurations to try, in which order,
 * and what the answers prove.  A pure strategy over sets of rows: what a row is, how a
 * configuration is run and how often, the caller knows.
 *
 * Stages (each verdict is one call of the caller's function):
 *   control   everything live must fail, everything at reference must pass             2
 *   legs      prefill or decode alone at reference, and live without reuse             3
 *   search    rows in falling order of suspicion; the shortest prefix that fails ends
 *             with a row that is needed for the failure                                ceil(log2 n)
 *   confirm   that row alone must fail; everything but that row must pass              2
 * Alone it fails, but so does the rest: one culprit of several, and the search goes on in the rest.
 * Alone it passes: it needs a partner, searched in front of it with it live.  Where one row repairs
 * another, more live rows can fail less; still nothing is convicted that does not fail alone.
 */
#ifndef V4BOX_ENGINE_AUDIT_ISOLATE_H
#define V4BOX_ENGINE_AUDIT_ISOLATE_H

#include "config/limits.h"

#include <stdbool.h>
#include <stdint.h>

/* Legs that a row can touch; a row may touch several. */
enum isolate_leg {
    ISOLATE_PREFILL = 1,
    ISOLATE_DECODE = 2,
    ISOLATE_STATE = 4, /* carried from one turn to the next */
    ISOLATE_ALL = 7,
};

struct isolate_row {
    const char *name; /* borrows */
    uint32_t legs;    /* of enum isolate_leg */
    double suspicion; /* prior weight, > 0: leave-one-in KL, or 1 for all */
};

/* What is live: bit i is row i; the others are at reference. */
struct isolate_config {
    uint64_t live_prefill, live_decode; /* equal except while legs are told apart */
    bool reuse;                         /* carried state is used */
};

enum isolate_verdict { ISOLATE_PASS, ISOLATE_FAIL, ISOLATE_UNSURE };

/** Decides the test in one configuration: one run when it is deterministic, else as many as
 *  stats_repeats says.  ISOLATE_UNSURE ends the search. */
typedef enum isolate_verdict isolate_run_fn(void *user, const struct isolate_config *config);

enum isolate_stage {
    ISOLATE_CONTROL,
    ISOLATE_LEGS,
    ISOLATE_SEARCH,
    ISOLATE_CONFIRM,
    ISOLATE_BUDGET, /* the caller's, where nothing fails: a row alone, held against its own budget
                     */
};

struct isolate_try {
    enum isolate_stage stage;
    struct isolate_config config;
    enum isolate_verdict verdict;
};

enum isolate_outcome {
    ISOLATE_CONVICTED, /* culprits[] */
    ISOLATE_MODEL,     /* reference fails too: no row is to blame */
    ISOLATE_NO_FAULT,  /* everything live passes: more repeats, or another start */
    ISOLATE_UNDECIDED, /* a verdict was unsure, or the hard stop came */
    ISOLATE_CARRIED,   /* an equality that no row may break is broken at reference, too: state is
                          carried wrongly.  Said by the caller in the place of ISOLATE_MODEL */
    ISOLATE_OUTCOMES
};

/* Rows that break the test together: one, or several that do it only in company. */
struct isolate_culprit {
    uint64_t rows;
};

struct isolate_report {
    enum isolate_outcome outcome;
    uint32_t legs; /* that the legs stage pointed at */
    struct isolate_culprit culprits[ISOLATE_CULPRITS_MAX];
    int n_culprits;
    uint64_t acquitted; /* live in a configuration that passed, and not a culprit */
    struct isolate_try tries[ISOLATE_VERDICTS_MAX];
    int n_tries;
};

/** Runs the search.  @shape rows [n], 1 <= n <= ISOLATE_ROWS_MAX
 *  @src fidelity.md section 9; the prefix search is the progression of QuickXplain (Junker, 2004)
 */
void isolate(const struct isolate_row *rows, int n, isolate_run_fn *run, void *user,
             struct isolate_report *out);

const char *isolate_outcome_name(enum isolate_outcome outcome);
const char *isolate_stage_name(enum isolate_stage stage);

#endif
