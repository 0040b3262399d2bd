/*
 * The serving core over the embedded model: the engine's interleaving, chunking and continuation
 * change neither one logit bit nor one token.  The reference feeds the network directly, one
 * timeline, whole steps.  Prompts are arbitrary ids: what they mean does not matter here.
 */
#include "tests/unit/engine_client.h"

#include "engine/model/sampler.h"

#define MODEL_DIR "rootfs/models/demo"
#define CONTEXT   1024
#define TURNS     3

static const struct model_options OPTIONS = {.isa = ISA_AUTO};

static struct model *open_model(void)
{
    struct model *model = NULL;
    struct error err;
    if (model_open(MODEL_DIR, &OPTIONS, &model, &err) != OK)
        fail_msg("%s", err.text);
    return model;
}

static struct sequence *open_sequence(struct model *model)
{
    struct sequence *sequence = NULL;
    struct error err;
    if (sequence_create(model, CONTEXT, &sequence, &err) != OK)
        fail_msg("%s", err.text);
    return sequence;
}

/* Feeds ids in pieces of at most `piece`; logits get those behind the last one. */
static void feed(struct model *model, struct sequence *s, const int32_t *ids, int32_t n,
                 int32_t piece, float *logits)
{
    for (int32_t at = 0; at < n; at += piece) {
        struct segment segment = {.sequence = s,
                                  .ids = ids + at,
                                  .n = n - at < piece ? n - at : piece,
                                  .leg = LEG_PREFILL};
        segment.logits_last = at + segment.n == n ? logits : NULL;
        model_step(model, profile_builtin_at(PROFILE_OFFICIAL), &segment, 1);
    }
}

struct history {
    int32_t ids[CONTEXT], n;
};

static void say(struct history *h, uint64_t seed, int32_t n, int32_t vocab_size)
{
    for (int32_t i = 0; i < n; i++)
        h->ids[h->n++] = (int32_t)(sampler_uniform(seed, (uint64_t)i) * vocab_size);
}

/* What the network answers to the history, without any engine, from an empty timeline. */
static void expect(struct model *model, const struct engine_request *r, int32_t *answer)
{
    int32_t vocab_size = model_config(model)->vocab_size;
    struct sequence *s = open_sequence(model);
    float *logits = calloc((size_t)vocab_size, sizeof *logits);
    struct sampler sampler;
    sampler_init(&sampler, vocab_size);
    feed(model, s, r->ids, r->n_ids, SPAN_TOKENS_MAX, logits);
    for (int32_t i = 0; i < r->tokens_max; i++) {
        answer[i] = sampler_pick(&sampler, logits, &r->sampling, (uint64_t)(r->n_ids + i));
        assert_int_not_equal(answer[i], SAMPLE_FAULT);
        feed(model, s, &answer[i], 1, 1, logits);
    }
    sampler_clear(&sampler);
    free(logits);
    sequence_destroy(s);
}

/* A conversation of three turns with the answers it should get. */
struct script {
    struct history turns[TURNS]; /* the prompt of each */
    int32_t answers[TURNS][ANSWER_MAX];
    int32_t tokens_max;
};

static struct engine_request turn_request(const struct script *script, int turn, uint64_t name)
{
    const struct history *h = &script->turns[turn];
    struct engine_request r = request(h->ids, h->n, script->tokens_max);
    r.reuse_namespace = name;
    return r;
}

static void script_write(struct script *script, struct model *model, uint64_t seed, int32_t first)
{
    int32_t vocab_size = model_config(model)->vocab_size;
    struct history h = {0};
    script->tokens_max = 8;
    for (int turn = 0; turn < TURNS; turn++) {
        say(&h, seed + (uint64_t)turn, turn == 0 ? first : 9, vocab_size);
        script->turns[turn] = h;
        struct engine_request r = turn_request(script, turn, 0);
        expect(model, &r, script->answers[turn]);
        memcpy(h.ids + h.n, script->answers[turn], (size_t)r.tokens_max * sizeof *h.ids);
        h.n += r.tokens_max;
    }
}

/* Waits for an answer and compares.  @return tokens reused */
static int32_t take_answer(struct client *c, const struct script *script, int turn)
{
    client_wait_end(c);
    assert_int_equal(c->reason, END_LENGTH);
    assert_int_equal(c->n_answer, script->tokens_max);
    assert_memory_equal(c->answer, script->answers[turn],
                        (size_t)script->tokens_max * sizeof *c->answer);
    int32_t reused = c->reused;
    client_destroy(c);
    return reused;
}

/* A timeline that answered and was continued has the same logits as one fed in one go. */
static void test_logits(void **state)
{
    (void)state;
    struct model *model = open_model();
    int32_t vocab_size = model_config(model)->vocab_size;
    size_t bytes = (size_t)vocab_size * sizeof(float);
    struct history h = {0};
    say(&h, 1, 161, vocab_size);
    float *cold = malloc(bytes), *continued = malloc(bytes), *shifted = malloc(bytes);
    struct sequence *s = open_sequence(model);
    feed(model, s, h.ids, h.n, SPAN_TOKENS_MAX, cold);
    sequence_reset(s);
    feed(model, s, h.ids, 130, 64, continued);
    feed(model, s, h.ids + 130, 20, 1, continued);
    feed(model, s, h.ids + 150, 11, SPAN_TOKENS_MAX, continued);
    assert_memory_equal(cold, continued, bytes);
    /* Negative control: one token missing from the middle shows. */
    sequence_reset(s);
    feed(model, s, h.ids, 130, 64, shifted);
    feed(model, s, h.ids + 131, 30, SPAN_TOKENS_MAX, shifted);
    assert_memory_not_equal(cold, shifted, bytes);
    sequence_destroy(s);
    free(cold);
    free(continued);
    free(shifted);
    model_close(model);
}

/* Two conversations of two keys at once, with and without reuse. */
static void test_conversations(void **state)
{
    (void)state;
    static struct script scripts[2];
    struct model *model = open_model();
    script_write(&scripts[0], model, 100, 135);
    script_write(&scripts[1], model, 200, 5);
    assert_memory_not_equal(scripts[0].answers[0], scripts[1].answers[0], 8 * sizeof(int32_t));

    struct engine *engine = NULL;
    struct error err;
    const struct engine_options options = {
        .sessions_max = 2, .context_max = CONTEXT, .queue_max = 2};
    if (engine_create(model, &options, &engine, &err) != OK)
        fail_msg("%s", err.text);
    for (int way = 0; way < 2; way++) {
        for (int turn = 0; turn < TURNS; turn++) {
            struct client *clients[2];
            for (int i = 0; i < 2; i++) {
                struct engine_request r =
                    turn_request(&scripts[i], turn, way == 0 ? 0 : NAMESPACE_A + (uint64_t)i);
                clients[i] = submit(engine, &r);
            }
            for (int i = 0; i < 2; i++) {
                int32_t fed = turn == 0 ? 0 : scripts[i].turns[turn].n - 9 - 1;
                assert_int_equal(take_answer(clients[i], &scripts[i], turn), way == 0 ? 0 : fed);
            }
        }
    }
    engine_destroy(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits),
        cmocka_unit_test(test_conversations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
