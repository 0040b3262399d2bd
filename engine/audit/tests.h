/*
 * The audit's tests: which items, under which settings, and what verdict the outcomes are.  Each
 * gives one member of a report's "tests" (report.h).  All items follow from the seed.
 */
#ifndef V4BOX_ENGINE_AUDIT_TESTS_H
#define V4BOX_ENGINE_AUDIT_TESTS_H

#include "engine/audit/given.h"
#include "engine/audit/golden.h"
#include "engine/audit/machine.h"
#include "engine/audit/report.h"

struct audit_budget {
    const char *name;
    int32_t seconds;  /* that all of it may take; 0: as long as it takes */
    double good, bad; /* rates of lost answers that are told apart */
    int32_t items;    /* of recall, and of needles, at most */
    int32_t texts, text_tokens;
    int32_t needle_max; /* tokens */
    int32_t turns_max;
};
/** @return NULL: no such budget */
const struct audit_budget *audit_budget(const char *name);
/** The budgets in their order, the smallest first.  @return NULL: there are no more */
const struct audit_budget *audit_budget_at(int i);
/** One line for people: what it holds, so that they see what it does not ask. */
void audit_budget_print(const struct audit_budget *budget, struct buf *out);

/* What logits are held against beside the reference profile, which shares the network with the
 * audited one. */
struct audit_anchors {
    struct audit_machine *cpu; /* the CPU's network on the same weights; NULL: it computes anyway */
    struct golden *golden[GOLDEN_FILES_MAX];
    int n_golden;
};

struct audit_run {
    struct audit_machine *machine;
    const struct audit_text *text;
    const struct profile *profile, *reference;
    const struct audit_budget *budget;
    const struct audit_given *given;     /* that a search decides on; NULL: items of its test */
    const struct audit_anchors *anchors; /* NULL: none */
    uint64_t seed;
    int64_t until_ms; /* of clock_ms(): what would end behind it is dropped; 0: never */
    int64_t repeats;  /* runs of one configuration before a search calls it good */
    bool (*cancelled)(void *user); /* asked between items; NULL: never */
    void *user;
};

enum audit_test {
    TEST_PROMPT,
    TEST_FLOOR,
    TEST_REPLAY,
    TEST_LOGITS,
    TEST_TOOLS,
    TEST_RECALL,
    TEST_NEEDLE,
    AUDIT_TESTS
};
const char *audit_test_name(enum audit_test test);
/** @return false when the name is none of them */
bool audit_test_parse(const char *name, enum audit_test *out);

/** The seed of a run's first item: runs of neighbouring seeds share none. */
uint64_t audit_seed(int32_t seed);
/** Its part of the time that is left to it and to those behind it: config/audit_gates.h */
int audit_test_share(enum audit_test test);
/** Runs one test: UNDECIDED when no time is left for it.  @own the caller: json_object_put */
struct json_object *audit_test(const struct audit_run *run, enum audit_test test,
                               enum audit_verdict *verdict);

#endif
