/* Inside the tests: gates, and members of their results. */
#ifndef V4BOX_ENGINE_AUDIT_TESTS_COMMON_H
#define V4BOX_ENGINE_AUDIT_TESTS_COMMON_H

#include "config/audit_gates.h"
#include "engine/audit/locate.h"
#include "engine/audit/stats.h"
#include "engine/audit/tests.h"
#include "engine/base/json.h"
#include "engine/text/dsml.h"

struct audit_gates {
    const char *profile;
    double kl_mean, kl_999, top1, growth;
};
/** The profile's line, or balanced's. */
const struct audit_gates *audit_gates(const struct profile *profile);

bool audit_cancelled(const struct audit_run *run);

/** Adds a member.  @own takes the value */
/** A result with name, verdict, why, n and gate; the texts are copied. */
struct json_object *result_new(const char *name, enum audit_verdict verdict, const char *why,
                               int64_t n, const char *gate);
/** Left out when it is not finite: JSON has no word for that. */
void result_number(struct json_object *object, const char *key, double value);
/** estimate, low, high */
void result_estimate(struct json_object *result, double value, struct interval interval);
/** The member "numbers", "grids" or "curves", made when it is not there. */
struct json_object *result_part(struct json_object *result, const char *key, bool list);

/* The number of what did not fit the time, in every test's result that has pieces. */
#define RESULT_DROPPED "dropped, no time was left"

/* Share right by line and column. */
#define GRID_LINES_MAX   16
#define GRID_COLUMNS_MAX 16
struct grid {
    int32_t n[GRID_LINES_MAX][GRID_COLUMNS_MAX], right[GRID_LINES_MAX][GRID_COLUMNS_MAX];
    int32_t reference[GRID_LINES_MAX][GRID_COLUMNS_MAX]; /* right there */
};
/** @shape lines [n_lines], columns [n_columns] */
void result_grid(struct json_object *result, const char *title, const struct grid *grid,
                 const char *const *lines, int n_lines, const char *const *columns, int n_columns);

/* Answers to the same items in two ways. */
struct audit_pairs {
    int32_t n, first, second, losses, gains;
};
/** The verdict on answers: `items` are one prompt each, under the reference and under the profile;
 *  facts on `edges` share a text, so that they are no items of their own and can only make it
 *  worse.  Appends why. */
enum audit_verdict audit_memory_judge(const struct audit_budget *budget,
                                      const struct audit_pairs *items,
                                      const struct audit_pairs *edges, struct buf *why);

/* One implementation a test: audit_test() chooses. */
struct json_object *test_prompt(const struct audit_run *run, enum audit_verdict *verdict);
struct json_object *test_floor(const struct audit_run *run, enum audit_verdict *verdict);
struct json_object *test_replay(const struct audit_run *run, enum audit_verdict *verdict);
struct json_object *test_logits(const struct audit_run *run, enum audit_verdict *verdict);
struct json_object *test_tools(const struct audit_run *run, enum audit_verdict *verdict);
struct json_object *test_recall(const struct audit_run *run, enum audit_verdict *verdict);
struct json_object *test_needle(const struct audit_run *run, enum audit_verdict *verdict);

/** Item `i` of recall or needle; those from budget->items on are facts on edges.  Item i is carried
 *  in way i % CARRIES.  @return false: there is none of that number (it does not fit)
 *  @own audit_item_free */
bool audit_item_make(const struct audit_run *run, enum audit_test test, int32_t i,
                     struct audit_item *out);
/** How many numbers there are. */
int32_t audit_items(const struct audit_run *run, enum audit_test test);
/** The text on which logits are compared first.  @return false: none fits  @own audit_item_free */
bool audit_text_make(const struct audit_run *run, struct audit_item *out);
/** The same of so many tokens. */
bool audit_text_of(const struct audit_run *run, int32_t tokens, struct audit_item *out);
/** Holds the profile against the anchors of the run: a member "anchors" of the result, with what
 *  each says.  @return false: one is over its gate; each is told in `why` */
bool audit_anchors_hold(const struct audit_run *run, struct json_object *result, struct buf *why);
/** The least text on which every row acts.  @unit tokens */
int32_t audit_text_least(const struct audit_run *run);
/** Mean KL of prefilled and of decoded positions against the reference; the larger one. */
double audit_kl(const struct audit_run *run, const struct audit_setting *setting);
/** Whether a way of replay changes a bit: positions of the first that does. */
int audit_replay_failures(const struct audit_run *run, const struct profile *profile);
/** Which legs of carried state change a bit, and where each does first: objects with leg, ways,
 *  differ (positions of the first way), position, and layer and position_in_layer where the model
 *  can be looked into.  @own the caller: json_object_put */
struct json_object *audit_replay_state(const struct audit_run *run, const struct profile *profile);
/** Whether a call is by the schemas of these tools, which are flat as those of config/audit.def:
 * every required property is there, every one that is there is declared and of its type. */
bool audit_call_valid(struct json_object *tools, const struct dsml_call *call);
/** Valid calls of the reference that are not valid under the profile: 1 once there is one. */
int32_t audit_calls_lost(const struct audit_run *run, const struct profile *profile);
/** Requests that do not say how to think and get other ids than under the reference. */
int audit_prompts_changed(const struct audit_run *run, const struct profile *profile);
/** True when the profile's value of this row alone changes the ids of a request. */
bool audit_prompt_row(const struct audit_run *run, enum precision_row row);
/** A long history that is not its turns one after another, whatever the profile; NULL: none. */
const char *audit_history_wrong(const struct audit_run *run);
/** A prompt that is not what the published encoder writes, such a history, or a text with other
 *  tokens, whatever the profile; NULL: none. */
const char *audit_prompt_misspelt(const struct audit_run *run);

#endif
