/*
 * Which steps a backend may run again as it recorded them: the keys that local_step and local_draft
 * ask with, over the embedded model.  That a replay gives the same bits is a matter of tests/gpu.
 */
#include "engine/model/network.h"
#include "kernels/check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MODEL_DIR "rootfs/models/demo"
#define KEY_BYTES 8192

/* What the network asked for last. */
static struct {
    uint8_t key[KEY_BYTES];
    size_t bytes;
    int asked, ended, embeds;
    bool answer;
} spy;
static void (*embed)(struct backend *b, const struct embed_params *p);

static bool spy_replay(struct backend *b, const void *key, size_t bytes)
{
    (void)b;
    assert_in_range(bytes, 1, KEY_BYTES);
    memcpy(spy.key, key, bytes);
    spy.bytes = bytes;
    spy.asked++;
    return spy.answer;
}

static void spy_end(struct backend *b)
{
    (void)b;
    spy.ended++;
}

static void spy_embed(struct backend *b, const struct embed_params *p)
{
    spy.embeds++;
    embed(b, p);
}

static struct model *open_spied(struct backend_ops *ops)
{
    struct model *model = NULL;
    struct model_options options = {.threads = 1};
    struct error err;
    if (model_open(MODEL_DIR, &options, &model, &err) != OK)
        fail_msg("%s", err.text);
    *ops = *model->backend->ops;
    embed = ops->embed;
    ops->replay = spy_replay, ops->replay_end = spy_end, ops->embed = spy_embed;
    model->backend->ops = ops;
    memset(&spy, 0, sizeof spy);
    return model;
}

/* How a step is asked for. */
struct ask {
    enum profile_column profile;
    struct sequence *sequence;
    int32_t position, n;
    enum leg leg;
    bool all;
};

struct kept {
    uint8_t key[KEY_BYTES];
    size_t bytes;
};

static void ask(struct model *model, const struct ask *a, struct kept *out)
{
    static float logits[65 * 4096];
    int32_t ids[65] = {1, 2, 3};
    a->sequence->length = a->position;
    sequence_crossover(a->sequence, NULL);
    struct segment segment = {.sequence = a->sequence,
                              .ids = ids,
                              .n = a->n,
                              .logits_last = a->all ? NULL : logits,
                              .logits_all = a->all ? logits : NULL,
                              .leg = a->leg};
    model_step(model, profile_builtin_at(a->profile), &segment, 1);
    memcpy(out->key, spy.key, spy.bytes);
    out->bytes = spy.bytes;
}

static bool same(const struct kept *a, const struct kept *b)
{
    return a->bytes == b->bytes && memcmp(a->key, b->key, a->bytes) == 0;
}

/* A key is the same where every parameter of the operations is, and nowhere else. */
static void test_keys(void **state)
{
    (void)state;
    struct backend_ops ops;
    struct model *model = open_spied(&ops);
    struct sequence *s[3];
    struct error err;
    static const int32_t ROOM[] = {4096, 4096, 8192};
    for (int i = 0; i < 3; i++) {
        if (sequence_create(model, ROOM[i], &s[i], &err) != OK)
            fail_msg("%s", err.text);
        s[i]->mixed = true; /* several profiles feed it */
        state_lay_out(s[i], (struct state_format){ENTRY_F32, ENTRY_F32});
    }
    const struct ask first = {PROFILE_OFFICIAL, s[0], 1024, 1, LEG_DECODE, false};
    static const int32_t SAME[] = {1024, 1025, 1030, 1200, 2046};
    static struct kept base, other;
    ask(model, &first, &base);
    for (size_t i = 0; i < sizeof SAME / sizeof *SAME; i++) {
        struct ask again = first;
        again.position = SAME[i];
        ask(model, &again, &other);
        assert_true(same(&base, &other));
    }
    const struct ask OTHERS[] = {
        {PROFILE_REFERENCE, s[0], 1024, 1, LEG_DECODE, false}, /* numerics */
        {PROFILE_FAST, s[0], 1024, 1, LEG_DECODE, false},
        {PROFILE_OFFICIAL, s[1], 1024, 1, LEG_DECODE, false}, /* other memory */
        {PROFILE_OFFICIAL, s[2], 1024, 1, LEG_DECODE, false},
        {PROFILE_OFFICIAL, s[0], 1027, 1, LEG_DECODE, false}, /* ends a block of four */
        {PROFILE_OFFICIAL, s[0], 1151, 1, LEG_DECODE, false}, /* and one of 128 */
        {PROFILE_OFFICIAL, s[0], 2048, 1, LEG_DECODE, false}, /* out of reach */
        {PROFILE_OFFICIAL, s[0], 1024, 2, LEG_DECODE, false},
        {PROFILE_OFFICIAL, s[0], 1024, 1, LEG_PREFILL, false},
        {PROFILE_OFFICIAL, s[0], 1024, 1, LEG_DECODE, true},
    };
    for (size_t i = 0; i < sizeof OTHERS / sizeof *OTHERS; i++) {
        ask(model, &OTHERS[i], &other);
        if (same(&base, &other))
            fail_msg("step %zu has the key of another one", i);
    }
    model->perturbation.hc_transposed = true;
    ask(model, &first, &other);
    assert_false(same(&base, &other));
    for (int i = 0; i < 3; i++)
        sequence_destroy(s[i]);
    model_close(model);
}

/* A replay stands for all operations of a step; a long step is not asked for. */
static void test_replay(void **state)
{
    (void)state;
    struct backend_ops ops;
    struct model *model = open_spied(&ops);
    struct sequence *s = NULL;
    struct error err;
    static struct kept kept;
    if (sequence_create(model, 4096, &s, &err) != OK)
        fail_msg("%s", err.text);
    struct ask a = {PROFILE_OFFICIAL, s, 0, 1, LEG_DECODE, false};
    ask(model, &a, &kept);
    assert_true(spy.asked == 1 && spy.ended == 1 && spy.embeds == 1);
    spy.answer = true;
    ask(model, &a, &kept);
    assert_true(spy.asked == 2 && spy.ended == 1 && spy.embeds == 1);
    assert_int_equal(sequence_length(s), 1);
    a.n = RECORDED_TOKENS_MAX + 1;
    ask(model, &a, &kept);
    assert_true(spy.asked == 2 && spy.ended == 1 && spy.embeds == 2);
    sequence_destroy(s);
    model_close(model);
}

/* Drafts have keys of their own, and copy streams beside the recording. */
static void test_draft(void **state)
{
    (void)state;
    struct backend_ops ops;
    struct model *model = open_spied(&ops);
    struct sequence *s = NULL;
    struct error err;
    static struct kept step, draft;
    static float logits[4096];
    if (sequence_create(model, 4096, &s, &err) != OK)
        fail_msg("%s", err.text);
    const struct ask a = {PROFILE_OFFICIAL, s, 0, 1, LEG_DECODE, false};
    const int32_t next = 5;
    const struct draft_segment segment = {
        .sequence = s, .next_ids = &next, .n = 1, .logits_last = logits};
    for (int i = 0; i < 3; i++) {
        struct ask at = a;
        at.position = i;
        ask(model, &at, &step);
        int embeds = spy.embeds;
        spy.answer = i == 2;
        model_draft(model, profile_builtin_at(a.profile), &segment, 1);
        assert_true(spy.asked == 2 * i + 2 && spy.embeds == embeds + (i < 2));
        assert_true(i == 0 || (spy.bytes == draft.bytes &&
                               memcmp(spy.key, draft.key, spy.bytes) == 0)); /* at any place */
        draft.bytes = spy.bytes;
        memcpy(draft.key, spy.key, spy.bytes);
        assert_false(same(&step, &draft));
    }
    assert_int_equal(spy.ended, 5);
    sequence_destroy(s);
    model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_keys), cmocka_unit_test(test_replay),
                                       cmocka_unit_test(test_draft)};
    return cmocka_run_group_tests_name("recorded steps", tests, NULL, NULL);
}
