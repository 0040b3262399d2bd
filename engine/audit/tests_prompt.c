/* The prompt: what the network is asked, before any number of it can be wrong.  Runs no model. */
#include "engine/audit/tests_common.h"
#include "engine/base/fnv.h"
#include "kernels/check.h"

#include <stdio.h>
#include <string.h>

/* What a request says of its reasoning. */
struct asked {
    bool thinking;
    const char *effort; /* "": nothing */
    bool drop;
};

/* Short requests, and their prompts as the published encoder writes them. */
static const struct {
    const char *name;
    struct asked asked;
    const char *messages, *tools, *text;
} PROMPTS[] = {
#define AUDIT_PROMPT(name, thinking, effort, drop, messages, tools, text)                          \
    {name, {thinking, effort, drop}, messages, tools, text},
#include "config/audit_prompts.def"
};
#define PROMPTS_N ((int)(sizeof PROMPTS / sizeof *PROMPTS))

/* What the ids of all prompts and of a text hash to, by the vocabulary. */
static const struct {
    uint64_t vocabulary, ids;
} TOKENS[] = {
#define AUDIT_TOKENS(vocabulary, ids) {vocabulary, ids},
#include "config/audit_prompts.def"
};
static const char SPELT[] =
#define AUDIT_SPELT(text) text
#include "config/audit_prompts.def"
    ;

/* NULL where there is none.  @own json_object_put */
static struct json_object *parsed(const char *json)
{
    struct json_object *out = NULL;
    struct error err;
    enum status status = json[0] == '\0' ? OK : json_parse(json, strlen(json), &out, NULL, &err);
    ASSERT(status == OK); /* our own text */
    return out;
}

static void render(const struct audit_run *run, int i, const struct asked *asked, struct ids *ids,
                   struct buf *text)
{
    struct error err;
    struct chat_request request = {
        .messages = parsed(PROMPTS[i].messages),
        .tools = parsed(PROMPTS[i].tools),
        .thinking = asked->thinking,
        .effort = asked->effort[0] != '\0' ? asked->effort : NULL,
        .drop_thinking = asked->drop,
    };
    enum status status =
        chat_render(run->text->tokenizer, run->text->tokens, &request, ids, text, &err);
    ASSERT(status == OK);
    json_object_put(request.messages);
    json_object_put(request.tools);
}

/* What a request that does not say becomes under the profile's rows; `thinking` is the model's
 * default. */
static struct asked unsaid(const struct profile *profile, bool thinking)
{
    const uint8_t *rows = profile->values;
    return (struct asked){thinking != (rows[ROW_THINK_DEFAULT] == THINK_DEFAULT_FLIPPED),
                          rows[ROW_THINK_EFFORT] == THINK_EFFORT_MAX ? "max" : "",
                          rows[ROW_THINK_DROP] == THINK_DROP_OFFICIAL};
}

static bool same_ids(const struct audit_run *run, int i, bool thinking,
                     const struct profile *profile)
{
    struct ids a = {0}, b = {0};
    struct asked reference = unsaid(run->reference, thinking), other = unsaid(profile, thinking);
    render(run, i, &reference, &a, NULL);
    render(run, i, &other, &b, NULL);
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

static uint64_t hash_ids(uint64_t hash, const struct ids *ids)
{
    for (size_t i = 0; i < ids->len; i++)
        hash = fnv_add(hash, (uint64_t)ids->data[i]);
    return fnv_add(hash, ids->len);
}

static uint64_t hash_vocabulary(const struct tokenizer *tokenizer)
{
    uint64_t hash = FNV_BASIS;
    for (int32_t id = 0; id < tokenizer_vocab_size(tokenizer); id++) {
        size_t len;
        const char *bytes = tokenizer_token_bytes(tokenizer, id, &len);
        for (size_t i = 0; i < len; i++)
            hash = fnv_add(hash, (uint8_t)bytes[i]);
        hash = fnv_add(hash, len);
    }
    return hash;
}

static uint64_t hash_prompts(const struct audit_run *run)
{
    uint64_t hash = FNV_BASIS;
    struct ids ids = {0};
    for (int i = 0; i < PROMPTS_N; i++) {
        ids.len = 0;
        render(run, i, &PROMPTS[i].asked, &ids, NULL);
        hash = hash_ids(hash, &ids);
    }
    ids.len = 0;
    tokenizer_encode(run->text->tokenizer, SPELT, sizeof SPELT - 1, false, &ids);
    hash = hash_ids(hash, &ids);
    ids_free(&ids);
    return hash;
}

/* Other ids can spell the same: where the vocabulary is known, its ids are. */
static bool ids_known_wrong(const struct audit_run *run)
{
    uint64_t vocabulary = hash_vocabulary(run->text->tokenizer);
    for (size_t i = 0; i < sizeof TOKENS / sizeof *TOKENS; i++) {
        if (TOKENS[i].vocabulary == vocabulary)
            return TOKENS[i].ids != hash_prompts(run);
    }
    return false;
}

const char *audit_prompt_misspelt(const struct audit_run *run)
{
    const char *found = NULL;
    for (int i = 0; i < PROMPTS_N && found == NULL; i++) {
        struct ids ids = {0};
        struct buf text = {0}, spelt = {0};
        render(run, i, &PROMPTS[i].asked, &ids, &text);
        spell(run, &ids, &spelt);
        if (strcmp(buf_cstr(&text), PROMPTS[i].text) != 0 ||
            strcmp(buf_cstr(&spelt), PROMPTS[i].text) != 0)
            found = PROMPTS[i].name;
        ids_free(&ids);
        buf_free(&text);
        buf_free(&spelt);
    }
    if (found == NULL && ids_known_wrong(run))
        found = "the tokens of a text";
    return found != NULL ? found : audit_history_wrong(run);
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
