/* Tool calls: whether they are still made, in form and by their schemas, and how sure the tokens
 * are that make their form. */
#include "engine/audit/pace.h"
#include "engine/audit/tests_common.h"
#include "engine/base/clock.h"
#include "engine/text/answer.h"
#include "kernels/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct tool_gates {
    const char *profile;
    double mean, worst;
} GATES[] = {
#define GATE(profile, mean, worst) {profile, mean, worst},
    AUDIT_TOOL_GATES(GATE)
#undef GATE
};

static const struct tool_gates *gates_of(const struct profile *profile)
{
    const struct tool_gates *out = &GATES[0];
    for (size_t i = 0; i < sizeof GATES / sizeof *GATES; i++) {
        if (strcmp(GATES[i].profile, profile->name) == 0)
            return &GATES[i];
        if (strcmp(GATES[i].profile, "balanced") == 0)
            out = &GATES[i];
    }
    return out;
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* The parameters of an offered tool; NULL: none has that name. */
static struct json_object *parameters_of(struct json_object *tools, const struct buf *name)
{
    for (size_t i = 0; i < json_object_array_length(tools); i++) {
        struct json_object *function =
            json_member(json_object_array_get_idx(tools, i), "function", NULL);
        struct json_object *own = json_member(function, "name", NULL);
        if ((size_t)json_object_get_string_len(own) == name->len &&
            memcmp(json_object_get_string(own), name->data, name->len) == 0)
            return json_member(function, "parameters", NULL);
    }
    return NULL;
}

static bool has_type(struct json_object *value, const char *type)
{
    static const struct {
        const char *name;
        enum json_type type;
    } TYPES[] = {
        {"string", json_type_string}, {"integer", json_type_int}, {"array", json_type_array}};
    for (size_t i = 0; i < sizeof TYPES / sizeof *TYPES; i++) {
        if (strcmp(TYPES[i].name, type) == 0)
            return json_object_is_type(value, TYPES[i].type);
    }
    ASSERT(false); /* our own tools have no other */
}

bool audit_call_valid(struct json_object *tools, const struct dsml_call *call)
{
    struct json_object *parameters = parameters_of(tools, &call->name), *arguments;
    struct error err;
    if (parameters == NULL ||
        json_parse(call->arguments.data, call->arguments.len, &arguments, NULL, &err) != OK)
        return false;
    bool good = json_object_is_type(arguments, json_type_object);
    struct json_object *required = json_member(parameters, "required", NULL);
    for (size_t i = 0; good && i < json_object_array_length(required); i++) {
        const char *key = json_object_get_string(json_object_array_get_idx(required, i));
        good = json_member(arguments, key, NULL) != NULL;
    }
    struct json_object *properties = json_member(parameters, "properties", NULL);
    if (good) {
        json_object_object_foreach(arguments, key, value)
        {
            struct json_object *declared = json_member(properties, key, NULL);
            good = good && declared != NULL &&
                   has_type(value, json_object_get_string(json_member(declared, "type", NULL)));
        }
    }
    json_object_put(arguments);
    return good;
}

/* What an answer called. */
struct called {
    int32_t calls;
    bool formed, valid; /* the block is whole; each call of it is by its schema */
    struct buf text;    /* owns; names and arguments */
};

static void read_calls(const struct audit_run *run, const struct ids *ids, bool thinking,
                       struct called *out)
{
    struct json_object *tools = conversation_tools();
    const struct answer_options options = {.tokenizer = run->text->tokenizer,
                                           .tokens = run->text->tokens,
                                           .thinking = thinking,
                                           .tools = tools};
    struct answer *answer;
    struct error err;
    struct buf reasoning = {0}, content = {0};
    *out = (struct called){0};
    enum status status = answer_create(&options, &answer, &err);
    ASSERT(status == OK); /* without stop strings */
    for (size_t i = 0; i < ids->len; i++) {
        if (answer_push(answer, ids->data[i], &reasoning, &content))
            break;
    }
    answer_finish(answer, &reasoning, &content);
    const struct dsml_call *calls = answer_calls(answer, &out->calls);
    out->formed = answer_block(answer) == BLOCK_ENDED;
    out->valid = out->formed && out->calls > 0;
    for (int32_t i = 0; i < out->calls; i++) {
        out->valid = out->valid && audit_call_valid(tools, &calls[i]);
        buf_add(&out->text, calls[i].name.data, calls[i].name.len);
        buf_add(&out->text, calls[i].arguments.data, calls[i].arguments.len);
    }
    answer_destroy(answer);
    json_object_put(tools);
    buf_free(&reasoning);
    buf_free(&content);
}

/* ---- items ----------------------------------------------------------------------------------- */

struct tooled {
    int32_t n, reference, profile, losses, gains, formed, same;
    int32_t skipped, dropped; /* did not fit */
    int32_t tokens;           /* that make the form of a call */
    double gap, worst;
};

/* Control tokens, and what stands behind the mark: the names of the tags. */
static bool is_structural(const struct audit_run *run, const struct ids *ids, size_t i)
{
    const struct chat_tokens *t = run->text->tokens;
    int32_t id = ids->data[i];
    return id == t->dsml || id == t->eos || id == t->think_close ||
           (i > 0 && ids->data[i - 1] == t->dsml);
}

/* The reference's own answer under another profile: how much less sure that is of its form.
 * @return true: it would have said the same */
static bool compare_form(const struct audit_run *run, const struct profile *profile,
                         const struct audit_item *item, const struct ids *answer,
                         const double *logprobs, struct tooled *t)
{
    double other[AUDIT_ANSWER_TOKENS] = {0};
    struct ids all = {0};
    int32_t from = (int32_t)item->ids.len;
    for (int32_t i = 0; i < from; i++)
        ids_add(&all, item->ids.data[i]);
    for (size_t i = 0; i < answer->len; i++)
        ids_add(&all, answer->data[i]);
    int32_t likeliest =
        machine_follow(run->machine, all.data, (int32_t)all.len, from, profile, other);
    for (size_t i = 0; i < answer->len; i++) {
        if (!is_structural(run, answer, i))
            continue;
        double gap = fabs(logprobs[i] - other[i]);
        t->tokens++;
        t->gap += gap;
        t->worst = isfinite(gap) ? fmax(t->worst, gap) : INFINITY;
    }
    ids_free(&all);
    return likeliest == (int32_t)answer->len;
}

static struct call_plan plan_of(const struct audit_run *run, int32_t i)
{
    return (struct call_plan){.seed = run->seed + (uint64_t)i, .errand = i, .thinking = i % 3 == 2};
}

/* An answer that is the reference's token by token is not sampled once more. */
static void run_call(const struct audit_run *run, const struct profile *profile, int32_t i,
                     struct pace *pace, struct tooled *t)
{
    struct call_plan plan = plan_of(run, i);
    struct audit_item item;
    struct audit_setting reference = {run->reference, run->reference, CARRY_NONE};
    struct audit_setting live = {profile, profile, CARRY_NONE};
    struct ids wanted_ids = {0}, got_ids = {0};
    struct called wanted, got;
    struct tooled form = {0};
    double logprobs[AUDIT_ANSWER_TOKENS];
    conversation_call(run->text, &plan, &item);
    if ((int32_t)item.ids.len > machine_context(run->machine) - AUDIT_ANSWER_TOKENS) {
        t->skipped++;
        audit_item_free(&item);
        return;
    }
    if (!pace_begin(pace, (double)item.ids.len + AUDIT_ANSWER_TOKENS, clock_ms())) {
        audit_item_free(&item);
        return;
    }
    machine_say(run->machine, &item, &reference, &wanted_ids, logprobs, NULL);
    read_calls(run, &wanted_ids, plan.thinking, &wanted);
    bool same = compare_form(run, profile, &item, &wanted_ids, logprobs, &form);
    if (!same)
        machine_say(run->machine, &item, &live, &got_ids, NULL, NULL);
    read_calls(run, same ? &wanted_ids : &got_ids, plan.thinking, &got);
    t->n++;
    t->reference += wanted.valid;
    t->profile += got.valid;
    t->losses += wanted.valid && !got.valid;
    t->gains += got.valid && !wanted.valid;
    t->formed += got.formed;
    t->same += wanted.valid && got.text.len == wanted.text.len &&
               memcmp(got.text.data, wanted.text.data, got.text.len) == 0;
    if (wanted.valid) {
        t->tokens += form.tokens;
        t->gap += form.gap;
        t->worst = fmax(t->worst, form.worst);
    }
    buf_free(&wanted.text);
    buf_free(&got.text);
    ids_free(&wanted_ids);
    ids_free(&got_ids);
    audit_item_free(&item);
    pace_end(pace, clock_ms());
}

/* A third as many as facts: their prompts are long, since all tools are in them. */
static int32_t calls_of(const struct audit_run *run)
{
    return run->budget->items / 3;
}

int32_t audit_calls_lost(const struct audit_run *run, const struct profile *profile)
{
    struct tooled t = {0};
    struct pace pace = {0};
    for (int32_t i = 0; i < calls_of(run) && t.losses == 0 && !audit_cancelled(run); i++)
        run_call(run, profile, i, &pace, &t);
    return t.losses;
}

static enum audit_verdict judge(const struct audit_run *run, const struct tooled *t,
                                const struct tool_gates *g, char *why, size_t why_size)
{
    struct sprt test = {run->budget->good, run->budget->bad, AUDIT_ALPHA,
                        AUDIT_BETA,        t->losses,        t->reference};
    if (t->n == 0) {
        snprintf(why, why_size, "no request with tools fits the context or the time");
        return VERDICT_UNDECIDED;
    }
    if (t->reference < AUDIT_MODEL_SHARE * t->n) {
        snprintf(why, why_size, "the reference profile calls a tool in %d of %d", t->reference,
                 t->n);
        return VERDICT_MODEL;
    }
    enum sprt_state state = sprt_state(&test);
    bool over = t->gap > g->mean * t->tokens || t->worst > g->worst;
    int n =
        snprintf(why, why_size, "%d of the reference's %d valid calls lost, %d other; the form %s",
                 t->losses, t->reference, t->reference - t->same,
                 over ? "is less sure than its gate" : "is as sure as it must be");
    if (t->dropped > 0)
        snprintf(why + n, why_size - (size_t)n, "; no time was left for %d of them", t->dropped);
    return over || state == SPRT_BAD ? VERDICT_FAIL
           : state == SPRT_GOOD      ? VERDICT_PASS
                                     : VERDICT_UNDECIDED;
}

struct json_object *test_tools(const struct audit_run *run, enum audit_verdict *verdict)
{
    struct tooled t = {0};
    struct pace pace = {.until_ms = run->until_ms};
    const struct tool_gates *g = gates_of(run->profile);
    for (int32_t i = 0; i < calls_of(run) && !audit_cancelled(run); i++)
        run_call(run, run->profile, i, &pace, &t);
    char why[192], gate[128];
    t.dropped = pace.dropped;
    *verdict = judge(run, &t, g, why, sizeof why);
    snprintf(gate, sizeof gate,
             "form: mean %.3g, worst %.3g nats; lost: %.3g accepted, %.3g refused", g->mean,
             g->worst, run->budget->good, run->budget->bad);
    struct json_object *out = result_new(audit_test_name(TEST_TOOLS), *verdict, why, t.n, gate);
    if (t.reference > 0)
        result_estimate(out, (double)t.losses / t.reference,
                        stats_rate(t.losses, t.reference, AUDIT_CONFIDENCE));
    struct json_object *numbers = result_part(out, "numbers", false);
    result_number(numbers, "valid calls in reference", t.reference);
    result_number(numbers, "valid calls in profile", t.profile);
    result_number(numbers, "well-formed blocks in profile", t.formed);
    result_number(numbers, "the same call", t.same);
    result_number(numbers, "lost", t.losses);
    result_number(numbers, "won", t.gains);
    result_number(numbers, "one-sided exact McNemar p", stats_mcnemar(t.losses, t.gains));
    result_number(numbers, "did not fit", t.skipped);
    result_number(numbers, RESULT_DROPPED, t.dropped);
    result_number(numbers, "tokens of the form", t.tokens);
    result_number(numbers, "gap of their log-probability, mean",
                  t.tokens > 0 ? t.gap / t.tokens : 0);
    result_number(numbers, "gap of their log-probability, worst", t.worst);
    return out;
}
