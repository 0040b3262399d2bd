/* Rows as candidates, configurations as mixed profiles, and verdicts. */
#include "engine/audit/culprit.h"

#include "engine/audit/locate.h"
#include "engine/audit/report_fields.h"
#include "engine/audit/shorten.h"
#include "engine/audit/tests_common.h"
#include "kernels/check.h"

#include <math.h>
#include <string.h>

_Static_assert(PRECISION_ROWS <= ISOLATE_ROWS_MAX, "every row can be a candidate");

struct search {
    const struct audit_run *run;
    enum audit_test test;
    enum precision_row candidates[PRECISION_ROWS];
    struct isolate_row rows[PRECISION_ROWS];
    int n;
    int32_t failing[AUDIT_FAILING_MAX]; /* items to decide on */
    int n_failing;
    bool chosen;
    struct audit_item given; /* owns; of a conversation from outside, with what must be answered */
};

/* ---- candidates ------------------------------------------------------------------------------ */

static bool of_prompt(enum precision_row row)
{
    return PRECISION[row].legs == 1u << LEG_PROMPT;
}

/* Rows of the prompt change what is asked, not how it is computed, and speculation is not used. */
static bool exercised(enum audit_test test, enum precision_row row)
{
    return of_prompt(row) == (test == TEST_PROMPT) && row != ROW_DRAFT_DEPTH;
}

static uint32_t legs_of(enum precision_row row)
{
    if (of_prompt(row))
        return ISOLATE_PREFILL; /* in front of it */
    uint32_t legs = PRECISION[row].legs, out = 0;
    bool state = (legs & 1u << LEG_STATE) != 0;
    /* the numbers of a state row are made while prefilling and decoding, and read later */
    if ((legs & 1u << LEG_PREFILL) != 0 || (state && PRECISION[row].by == BY_OPERATION))
        out |= ISOLATE_PREFILL;
    if ((legs & 1u << LEG_DECODE) != 0 || (state && PRECISION[row].by == BY_OPERATION))
        out |= ISOLATE_DECODE;
    return state ? out | ISOLATE_STATE : out;
}

/* The reference with the rows of `live` as the profile has them. */
static struct profile mixed(const struct search *s, uint64_t live)
{
    struct profile out = *s->run->reference;
    for (int i = 0; i < s->n; i++) {
        enum precision_row row = s->candidates[i];
        if ((live >> i & 1) != 0 && !profile_set(&out, row, s->run->profile->values[row]))
            ASSERT(false);
    }
    return out;
}

/* Prior weight: what the row alone does to logits on a short text. */
static double suspicion(const struct search *s, int i)
{
    if (s->test == TEST_PROMPT)
        return 1;
    struct audit_budget small = {.texts = 1, .text_tokens = AUDIT_PRIOR_TOKENS};
    struct audit_run run = *s->run;
    run.budget = &small;
    struct profile alone = mixed(s, UINT64_C(1) << i);
    struct audit_setting setting = {&alone, &alone, CARRY_NONE};
    double kl = audit_kl(&run, &setting);
    return isfinite(kl) ? kl + AUDIT_KL_NOTHING : 1 / AUDIT_KL_NOTHING;
}

static void find_candidates(struct search *s)
{
    for (int row = 0; row < PRECISION_ROWS; row++) {
        if (s->run->profile->values[row] != s->run->reference->values[row] &&
            exercised(s->test, (enum precision_row)row))
            s->candidates[s->n++] = (enum precision_row)row;
    }
    for (int i = 0; i < s->n; i++) {
        enum precision_row row = s->candidates[i];
        s->rows[i] = (struct isolate_row){PRECISION[row].name, legs_of(row), suspicion(s, i)};
    }
}

/* ---- verdicts -------------------------------------------------------------------------------- */

static bool item_right(const struct search *s, int32_t i, const struct audit_setting *setting)
{
    struct audit_item item;
    struct audit_answer answer;
    if (s->run->given != NULL) { /* other words around it are no fault */
        machine_answer(s->run->machine, &s->given, setting, &answer);
        return answer.grade != GRADE_WRONG;
    }
    if (!audit_item_make(s->run, s->test, i, &item))
        return true; /* it does not exist, and fails nobody */
    machine_answer(s->run->machine, &item, setting, &answer);
    audit_item_free(&item);
    return answer.grade == GRADE_RIGHT;
}

/* Items that this setting gets wrong: those that the reference gets right, if there are any.  A
 * conversation from outside is an item for each way to carry it. */
static void choose_items(struct search *s, const struct audit_setting *live)
{
    struct audit_setting reference = {s->run->reference, s->run->reference, CARRY_NONE};
    int32_t hopeless[AUDIT_FAILING_MAX];
    int n_hopeless = 0;
    int32_t items = s->run->given != NULL ? CARRIES : audit_items(s->run, s->test);
    for (int32_t i = 0; i < items && s->n_failing < AUDIT_FAILING_MAX; i++) {
        struct audit_setting setting = *live;
        setting.carry = (enum audit_carry)(i % CARRIES);
        if (audit_cancelled(s->run) || item_right(s, i, &setting))
            continue;
        if (item_right(s, i, &reference))
            s->failing[s->n_failing++] = i;
        else if (n_hopeless < AUDIT_FAILING_MAX)
            hopeless[n_hopeless++] = i;
    }
    if (s->n_failing == 0) {
        memcpy(s->failing, hopeless, sizeof hopeless);
        s->n_failing = n_hopeless;
    }
    s->chosen = true;
}

static bool memory_fails(struct search *s, const struct audit_setting *setting, bool reuse)
{
    if (!s->chosen)
        choose_items(s, setting);
    for (int i = 0; i < s->n_failing; i++) {
        struct audit_setting here = *setting;
        here.carry = reuse ? (enum audit_carry)(s->failing[i] % CARRIES) : CARRY_NONE;
        if (!item_right(s, s->failing[i], &here))
            return true;
    }
    return false;
}

static bool fails_once(struct search *s, const struct audit_setting *setting, bool reuse)
{
    switch (s->test) {
    case TEST_PROMPT:
        return audit_prompt_misspelt(s->run) != NULL ||
               audit_prompts_changed(s->run, setting->prefill) > 0;
    case TEST_RECALL:
    case TEST_NEEDLE:
        return memory_fails(s, setting, reuse);
    case TEST_TOOLS:
        return audit_calls_lost(s->run, setting->prefill) > 0;
    case TEST_LOGITS:
        return audit_kl(s->run, setting) > audit_gates(s->run->profile)->kl_mean;
    default:
        return audit_replay_failures(s->run, setting->prefill) > 0;
    }
}

/* One failure is a failure; what passes has to pass as often as a flaky fault needs to show. */
static enum isolate_verdict decide(void *user, const struct isolate_config *config)
{
    struct search *s = user;
    struct profile prefill = mixed(s, config->live_prefill), decode = mixed(s, config->live_decode);
    struct audit_setting setting = {&prefill, &decode, CARRY_NONE};
    for (int64_t i = 0; i < s->run->repeats; i++) {
        if (audit_cancelled(s->run))
            return ISOLATE_UNSURE;
        if (fails_once(s, &setting, config->reuse))
            return ISOLATE_FAIL;
    }
    return ISOLATE_PASS;
}

/* ---- report ---------------------------------------------------------------------------------- */

static struct json_object *names_of(const struct search *s, uint64_t rows)
{
    struct json_object *out = json_object_new_array();
    for (int i = 0; i < s->n; i++) {
        if ((rows >> i & 1) != 0)
            json_object_array_add(out, json_object_new_string(s->rows[i].name));
    }
    return out;
}

static const char *verdict_word(enum isolate_verdict verdict)
{
    static const char *const words[] = {"pass", "fail", "unsure"};
    return words[verdict];
}

static void put_tries(const struct search *s, const struct isolate_report *r,
                      struct json_object *out)
{
    struct json_object *tries = result_part(out, "tries", true);
    for (int i = 0; i < r->n_tries; i++) {
        const struct isolate_try *t = &r->tries[i];
        struct json_object *one = json_object_new_object();
        json_object_object_add(one, "stage", json_object_new_string(isolate_stage_name(t->stage)));
        json_object_object_add(one, "prefill", names_of(s, t->config.live_prefill));
        json_object_object_add(one, "decode", names_of(s, t->config.live_decode));
        json_object_object_add(one, "reuse", json_object_new_boolean(t->config.reuse));
        json_object_object_add(one, "verdict", json_object_new_string(verdict_word(t->verdict)));
        json_object_array_add(tries, one);
    }
}

static void put_legs(const struct search *s, uint32_t legs, struct json_object *out)
{
    struct buf text = {0};
    bool prompt = s->test == TEST_PROMPT;
    buf_printf(&text, "%s%s%s",
               (legs & ISOLATE_PREFILL) == 0 ? ""
               : prompt                      ? "prompt "
                                             : "prefill ",
               (legs & ISOLATE_DECODE) != 0 ? "decode " : "",
               (legs & ISOLATE_STATE) != 0 ? "state " : "");
    size_t len = text.len > 0 ? text.len - 1 : 0;
    json_object_object_add(out, "legs", json_object_new_string_len(buf_cstr(&text), (int)len));
    buf_free(&text);
}

/* The item to look for the place on: one that failed.  @own audit_item_free unless it is given */
static bool place_item(const struct search *s, struct audit_item *out)
{
    switch (s->test) {
    case TEST_RECALL:
    case TEST_NEEDLE:
        return s->n_failing > 0 && audit_item_make(s->run, s->test, s->failing[0], out);
    case TEST_LOGITS:
        return audit_text_make(s->run, out);
    default: /* the prompt has no layers, and replay says where by itself */
        return false;
    }
}

/* Where each culprit departs, and how little of the conversation shows it. */
static void put_places(const struct search *s, const struct isolate_report *r,
                       struct json_object *out)
{
    struct audit_item made = {0};
    const struct audit_item *item = &s->given;
    if (s->run->given == NULL && !place_item(s, &made))
        return;
    if (s->run->given == NULL)
        item = &made;
    struct json_object *places = result_part(out, "places", true);
    for (int i = 0; i < r->n_culprits; i++) {
        struct profile alone = mixed(s, r->culprits[i].rows);
        double budget = AUDIT_KL_NOTHING;
        for (int row = 0; row < s->n; row++) {
            if ((r->culprits[i].rows >> row & 1) != 0)
                budget = fmax(budget, PRECISION[s->candidates[row]].budget);
        }
        struct json_object *place = locate(s->run, &alone, budget, item);
        json_set(place, "rows", names_of(s, r->culprits[i].rows));
        if (s->run->given != NULL && s->n_failing > 0)
            json_set(place, "smallest",
                     shorten(s->run, &alone, (enum audit_carry)(s->failing[0] % CARRIES),
                             s->given.value));
        json_object_array_add(places, place);
    }
    audit_item_free(&made);
}

/* The item, and what must be answered: the reference says it where nobody else does.
 * @return false: it says nothing */
static bool take_given(struct search *s, struct json_object *out)
{
    struct error err;
    enum status status = given_item(s->run->given, s->run->text, NULL, &s->given, &err);
    ASSERT(status == OK); /* it was read and rendered before */
    struct json_object *about = result_part(out, "conversation", false);
    json_set(about, "tokens", json_object_new_int((int)s->given.ids.len));
    json_set(about, "exchanges", json_object_new_int(given_exchanges(s->run->given)));
    json_set(about, "expected",
             json_object_new_string(s->given.value != NULL ? "by the file" : "by the reference"));
    if (s->given.value == NULL) {
        struct audit_setting reference = {s->run->reference, s->run->reference, CARRY_NONE};
        struct buf said = {0};
        machine_say(s->run->machine, &s->given, &reference, NULL, NULL, &said);
        s->given.value = strdup(buf_cstr(&said));
        ASSERT(s->given.value != NULL);
        buf_free(&said);
    }
    return s->given.value[0] != '\0';
}

static void put_rows(const struct search *s, const struct isolate_report *r,
                     struct json_object *out)
{
    struct json_object *culprits = result_part(out, "culprits", true);
    for (int i = 0; i < r->n_culprits; i++)
        json_object_array_add(culprits, names_of(s, r->culprits[i].rows));
    json_object_object_add(out, "acquitted", names_of(s, r->acquitted));
    struct json_object *alone = result_part(out, "kl_alone", false);
    for (int i = 0; i < s->n && s->test != TEST_PROMPT; i++)
        result_number(alone, s->rows[i].name, s->rows[i].suspicion - AUDIT_KL_NOTHING);
    struct json_object *prompt = result_part(out, "prompt_rows", true);
    for (int row = 0; row < PRECISION_ROWS; row++) {
        if (audit_prompt_row(s->run, (enum precision_row)row))
            json_object_array_add(prompt, json_object_new_string(PRECISION[row].name));
    }
}

/* Where the culprits, or what is carried whatever the rows are, break an equality. */
static void put_state(const struct search *s, const struct isolate_report *r,
                      struct json_object *out)
{
    uint64_t rows = 0;
    struct buf legs = {0};
    for (int i = 0; i < r->n_culprits; i++)
        rows |= r->culprits[i].rows;
    struct profile alone = mixed(s, rows);
    struct json_object *state = audit_replay_state(s->run, &alone);
    for (size_t i = 0; i < report_count(state); i++)
        buf_printf(&legs, "%s%s", i == 0 ? "carried state: " : ", ",
                   report_string(json_object_array_get_idx(state, i), "leg"));
    json_set(out, "state", state);
    if (legs.len > 0)
        json_set(out, "legs", json_object_new_string(buf_cstr(&legs)));
    buf_free(&legs);
}

/* The search, where there are rows to search; replay asks for equalities, which hold whatever the
 * rows are. */
static void search_rows(struct search *s, struct isolate_report *r)
{
    struct isolate_config reference = {.reuse = true};
    if (s->n > 0) {
        isolate(s->rows, s->n, decide, s, r);
    } else if (s->test == TEST_REPLAY && s->run->given == NULL) {
        enum isolate_verdict verdict = decide(s, &reference);
        r->tries[r->n_tries++] = (struct isolate_try){ISOLATE_CONTROL, reference, verdict};
        r->outcome = verdict == ISOLATE_FAIL   ? ISOLATE_MODEL
                     : verdict == ISOLATE_PASS ? ISOLATE_NO_FAULT
                                               : ISOLATE_UNDECIDED;
    }
    if (s->test == TEST_REPLAY && r->outcome == ISOLATE_MODEL)
        r->outcome = ISOLATE_CARRIED;
}

/* Where the profile holds its gates a row of it can still cost more than it may.  One of which the
 * short text says so is looked at on more of them: one token that tips is no defect. */
static void search_budgets(const struct search *s, struct isolate_report *r)
{
    const struct audit_budget more = {.texts = AUDIT_BUDGET_TEXTS,
                                      .text_tokens = AUDIT_PRIOR_TOKENS};
    struct audit_run run = *s->run;
    uint64_t guilty = 0;
    run.budget = &more;
    for (int i = 0; i < s->n && r->n_culprits < ISOLATE_CULPRITS_MAX; i++) {
        double budget = PRECISION[s->candidates[i]].budget;
        if (s->rows[i].suspicion - AUDIT_KL_NOTHING <= fmax(budget, AUDIT_KL_NOTHING) ||
            audit_cancelled(&run))
            continue;
        uint64_t bit = UINT64_C(1) << i;
        struct profile alone = mixed(s, bit);
        struct audit_setting setting = {&alone, &alone, CARRY_NONE};
        bool over = audit_kl(&run, &setting) > budget;
        r->tries[r->n_tries++] = (struct isolate_try){
            ISOLATE_BUDGET, {bit, bit, true}, over ? ISOLATE_FAIL : ISOLATE_PASS};
        if (!over)
            continue;
        guilty |= bit;
        r->culprits[r->n_culprits++].rows = bit;
        r->legs |= s->rows[i].legs;
        r->outcome = ISOLATE_CONVICTED;
    }
    r->acquitted &= ~guilty;
}

struct json_object *culprit_search(const struct audit_run *run, enum audit_test test,
                                   enum isolate_outcome *outcome)
{
    struct search s = {.run = run, .test = test};
    struct isolate_report r = {.outcome = ISOLATE_NO_FAULT};
    struct json_object *out = json_object_new_object();
    const char *name = run->given != NULL ? "conversation" : audit_test_name(test);
    json_object_object_add(out, "test", json_object_new_string(name));
    find_candidates(&s);
    if (run->given != NULL && !take_given(&s, out))
        r.outcome = ISOLATE_MODEL;
    else
        search_rows(&s, &r);
    if (test == TEST_LOGITS && r.outcome == ISOLATE_NO_FAULT)
        search_budgets(&s, &r);
    *outcome = r.outcome;
    json_object_object_add(out, "outcome", json_object_new_string(isolate_outcome_name(r.outcome)));
    put_legs(&s, r.legs, out);
    put_rows(&s, &r, out);
    put_tries(&s, &r, out);
    if (r.outcome == ISOLATE_CONVICTED)
        put_places(&s, &r, out);
    if (test == TEST_REPLAY && (r.outcome == ISOLATE_CONVICTED || r.outcome == ISOLATE_CARRIED))
        put_state(&s, &r, out);
    audit_item_free(&s.given);
    return out;
}
