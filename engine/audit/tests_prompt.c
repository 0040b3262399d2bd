/* The prompt: what the network is asked, before any number of it can be wrong.  Runs no model. */
#include "engine/audit/tests_common.h"
#include "kernels/check.h"

#include <stdio.h>
#include <string.h>

/* Short requests, and their prompts as the published encoder writes them. */
static const struct {
    const char *name;
    bool thinking;
    const char *messages, *text;
} PROMPTS[] = {
#define AUDIT_PROMPT(name, thinking, messages, text) {name, thinking, messages, text},
#include "config/audit.def"
};
#define PROMPTS_N ((int)(sizeof PROMPTS / sizeof *PROMPTS))

/* What a request that does not say becomes under the profile's rows; `thinking` is the model's
 * default. */
static void render(const struct audit_run *run, int i, bool thinking, const struct profile *profile,
                   struct ids *ids, struct buf *text)
{
    const uint8_t *rows = profile->values;
    struct error err;
    struct json_object *messages;
    enum status status =
        json_parse(PROMPTS[i].messages, strlen(PROMPTS[i].messages), &messages, NULL, &err);
    ASSERT(status == OK); /* our own text */
    struct chat_request request = {
        .messages = messages,
        .thinking = thinking != (rows[ROW_THINK_DEFAULT] == THINK_DEFAULT_FLIPPED),
        .effort = rows[ROW_THINK_EFFORT] == THINK_EFFORT_MAX ? "max" : NULL,
        .drop_thinking = rows[ROW_THINK_DROP] == THINK_DROP_OFFICIAL,
    };
    status = chat_render(run->text->tokenizer, run->text->tokens, &request, ids, text, &err);
    ASSERT(status == OK);
    json_object_put(messages);
}

static bool same_ids(const struct audit_run *run, int i, bool thinking,
                     const struct profile *profile)
{
    struct ids a = {0}, b = {0};
    render(run, i, thinking, run->reference, &a, NULL);
    render(run, i, thinking, profile, &b, NULL);
    bool same = a.len == b.len && memcmp(a.data, b.data, a.len * sizeof *a.data) == 0;
    ids_free(&a);
    ids_free(&b);
    return same;
}

int audit_prompts_changed(const struct audit_run *run, const struct profile *profile)
{
    int changed = 0;
    for (int i = 0; i < PROMPTS_N; i++)
        changed += !same_ids(run, i, false, profile) + !same_ids(run, i, true, profile);
    return changed;
}

/* The bytes that ids stand for. */
static void spell(const struct audit_run *run, const struct ids *ids, struct buf *out)
{
    for (size_t i = 0; i < ids->len; i++) {
        size_t len;
        const char *bytes = tokenizer_token_bytes(run->text->tokenizer, ids->data[i], &len);
        buf_add(out, bytes, len);
    }
}

const char *audit_prompt_misspelt(const struct audit_run *run)
{
    const char *found = NULL;
    for (int i = 0; i < PROMPTS_N && found == NULL; i++) {
        struct profile official = *profile_builtin_at(PROFILE_REFERENCE);
        struct ids ids = {0};
        struct buf text = {0}, spelt = {0};
        render(run, i, PROMPTS[i].thinking, &official, &ids, &text);
        spell(run, &ids, &spelt);
        if (strcmp(buf_cstr(&text), PROMPTS[i].text) != 0 ||
            strcmp(buf_cstr(&spelt), PROMPTS[i].text) != 0)
            found = PROMPTS[i].name;
        ids_free(&ids);
        buf_free(&text);
        buf_free(&spelt);
    }
    return found;
}

bool audit_prompt_row(const struct audit_run *run, enum precision_row row)
{
    struct profile alone = *run->reference;
    if (PRECISION[row].legs != 1u << LEG_PROMPT)
        return false;
    if (!profile_set(&alone, row, run->profile->values[row]))
        ASSERT(false);
    return audit_prompts_changed(run, &alone) > 0;
}

struct json_object *test_prompt(const struct audit_run *run, enum audit_verdict *verdict)
{
    const char *misspelt = audit_prompt_misspelt(run);
    int changed = audit_prompts_changed(run, run->profile), n = 2 * PROMPTS_N;
    struct buf why = {0};
    if (misspelt != NULL)
        buf_printf(&why, "not as the published encoder writes it: %s", misspelt);
    else if (changed == 0)
        buf_puts(&why, "the ids are the reference's, and spell what the published encoder writes");
    else
        buf_printf(&why, "%d of %d prompts have other ids, by", changed, n);
    for (int row = 0; row < PRECISION_ROWS && misspelt == NULL; row++) {
        if (audit_prompt_row(run, (enum precision_row)row))
            buf_printf(&why, " %s", PRECISION[row].name);
    }
    *verdict = misspelt != NULL || changed > 0 ? VERDICT_FAIL : VERDICT_PASS;
    struct json_object *out = result_new(audit_test_name(TEST_PROMPT), *verdict, buf_cstr(&why), n,
                                         "every id of every prompt equal");
    buf_free(&why);
    result_estimate(out, (double)changed / n, stats_rate(changed, n, AUDIT_CONFIDENCE));
    return out;
}
