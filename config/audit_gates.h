/*
 * What the audit demands of a profile, and how much it runs for a budget.
 *
 * Gates start from the design (fidelity.md 8.5).  Those of `official` and `balanced` are wider than
 * there: the texts are sentences of random words, where the next token is often a near tie; the
 * embedded model under `official` has a mean KL of 4.8e-3 on them and agrees on 0.95 of the
 * positions.  The design's 2e-2 for `fast` is what its `moe.experts w4a4` alone may cost
 * (precision.def); KL of independent shortcuts adds (fidelity.md 4.3), so that what `official` may
 * cost comes on top.  Below what a profile declares a search convicts rows that keep their budget.
 *
 * A profile's gate is not the sum of its rows' budgets: those of `fast` are 7.3e-2 together, which
 * would pass a model whose `moe.experts` alone costs 3.2e-2 of its 2e-2.  Rows are held
 * to their budgets by `rank`, the profile to what is still good together.
 *
 * A mean is held against its gate as it is.  A share (of positions beyond the 99.9 % KL, of
 * likeliest tokens that agree) is a count of few: it is over its gate when all of its 95 % interval
 * is, and a result says when the share is over and its interval is not.
 */
#ifndef V4BOX_CONFIG_AUDIT_GATES_H
#define V4BOX_CONFIG_AUDIT_GATES_H

/* GATES(profile, mean KL, 99.9 % KL, top-1 agreement, growth of KL from the first to the last
 * quarter of a prompt); a profile without a line of its own has balanced's. */
#define AUDIT_GATES(GATES)                                                                         \
    GATES("reference", 0.0, 0.0, 1.0, 1.0)                                                         \
    GATES("official", 1e-2, 0.5, 0.93, 2.0)                                                        \
    GATES("balanced", 1e-2, 0.5, 0.93, 2.0)                                                        \
    GATES("fast", 3e-2, 0.5, 0.90, 3.0)

/* TOOL_GATES(profile, mean and worst gap of the log-probability of a call's structural tokens,
 * nats, fidelity.md 8.5); the same for profiles without a line. */
#define AUDIT_TOOL_GATES(TOOL_GATES)                                                               \
    TOOL_GATES("reference", 0.0, 0.0)                                                              \
    TOOL_GATES("official", 0.05, 0.7)                                                              \
    TOOL_GATES("balanced", 0.05, 0.7)                                                              \
    TOOL_GATES("fast", 0.1, 1.0)

/* BUDGET(name, seconds that it promises or 0, rates that recall and needles tell apart, most items
 * of either, texts and their tokens for logits, longest needle, most turns of recall): 1 % against
 * 10 % takes 32 items that all pass, 1 % against 5 % 73, 0.5 % against 3 % 118.  What does not fit
 * the time is dropped and counted: fewer items decide less, never otherwise.  `quick` is as small
 * as a test can be, and takes what it takes. */
#define AUDIT_BUDGETS(BUDGET)                                                                      \
    BUDGET("quick", 0, 0.01, 0.50, 10, 1, 256, 520, 10)                                            \
    BUDGET("1m", 60, 0.01, 0.30, 24, 2, 512, 2048, 20)                                             \
    BUDGET("5m", 300, 0.01, 0.10, 64, 4, 1024, 8192, 40)                                           \
    BUDGET("30m", 1800, 0.01, 0.05, 160, 6, 4096, 32000, 40)                                       \
    BUDGET("3h", 10800, 0.005, 0.03, 480, 8, 16384, 32000, 40)

/* SHARE(test, part): of the time that is left to it and the tests behind it in `all`.  Facts decide
 * by their number, so they have most; what a test leaves goes to those behind it. */
#define AUDIT_SHARES(SHARE)                                                                        \
    SHARE(TEST_PROMPT, 2)                                                                          \
    SHARE(TEST_FLOOR, 2)                                                                           \
    SHARE(TEST_REPLAY, 6)                                                                          \
    SHARE(TEST_LOGITS, 16)                                                                         \
    SHARE(TEST_TOOLS, 14)                                                                          \
    SHARE(TEST_RECALL, 30)                                                                         \
    SHARE(TEST_NEEDLE, 30)
/* Of a budget's time, in percent, that is kept for what an estimate misses. */
#define AUDIT_RESERVE_PERCENT 2

/* SOAK(test, part): how often a round of `soak` is of this test, once each had one.  What the
 * prompt is does not change with the seed. */
#define AUDIT_SOAK(SOAK)                                                                           \
    SOAK(TEST_PROMPT, 0)                                                                           \
    SOAK(TEST_FLOOR, 1)                                                                            \
    SOAK(TEST_REPLAY, 2)                                                                           \
    SOAK(TEST_LOGITS, 2)                                                                           \
    SOAK(TEST_TOOLS, 2)                                                                            \
    SOAK(TEST_RECALL, 4)                                                                           \
    SOAK(TEST_NEEDLE, 4)
/* Of the time for needles, in percent, that the facts on edges may have at least. */
#define AUDIT_EDGES_PERCENT 25

/* Chance to call a good engine bad, and a bad one good. */
#define AUDIT_ALPHA      0.01
#define AUDIT_BETA       0.05
#define AUDIT_CONFIDENCE 0.95
/* Chance that a search takes a configuration with a flaky fault for a good one. */
#define AUDIT_MISS 1e-3
/* Below this share of right answers in the reference profile the items say nothing: MODEL. */
#define AUDIT_MODEL_SHARE 0.5
/* Fewer positions have no 99.9 %, which would be the largest of them, and no growth. */
#define AUDIT_TAIL_POSITIONS 1000
/* The share of positions behind the 99.9 %. */
#define AUDIT_TAIL 1e-3
/* Mean KL up to which two programs compute the same `reference`, where sums are in double and
 * nothing is rounded: the engine is 2e-14 from the numpy reference, a GPU's logits 2.1e-7 of
 * themselves from the CPU's (kernels/cuda/NOTES.md), which is below 1e-11; a window that is one
 * token short costs 5e-7 of a text of 400 tokens. A profile that rounds is held to its own gate:
 * sums in another order tip its roundings elsewhere, so that two programs are as far from each
 * other as each is from the reference.  Of the embedded model under `official`, in nats: AVX-512
 * and baseline 1.6e-2 on a text where the first is 1.8e-2 from the reference; an H200 and
 * AVX-512 2.9e-3 on sentences where the first is 3.7e-3 from it. */
#define AUDIT_KL_EXACT 1e-8
/* KL this small is no distance: the growth between two of them is not judged. */
#define AUDIT_KL_NOTHING 1e-6

/* EVIDENCE(state of a row in one place, should have run there and was not seen, no verdict may rest
 * on it).  What this hardware or this model can not run is not missing: traffic does not meet it
 * either; of what the engine obeys without changing a number there is nothing to see. */
#define AUDIT_EVIDENCE(EVIDENCE)                                                                   \
    EVIDENCE(PROOF_NONE, false, false)                                                             \
    EVIDENCE(PROOF_LIVE, false, false)                                                             \
    EVIDENCE(PROOF_UNPROVEN, false, false)                                                         \
    EVIDENCE(PROOF_UNPROVEN, true, true)                                                           \
    EVIDENCE(PROOF_INERT, false, true)                                                             \
    EVIDENCE(PROOF_INERT, true, true)                                                              \
    EVIDENCE(PROOF_WRONG, false, true)                                                             \
    EVIDENCE(PROOF_WRONG, true, true)

#endif
