/*
 * Tokens picked on the GPU against the CPU's sampler: the same token and the same logprobs, to the
 * bit, whatever the logits and the request.  Knows no other operation.
 */
#include "kernels/sampler.h"
#include "tests/gpu/sides.h"

#include <math.h>

/* Rows of one call: more than are on their way at once. */
#define ROWS      40
#define VOCAB_MAX 129280

enum shape {
    SPREAD, /* as a network's */
    FLAT,   /* little apart: thousands are likely */
    TIES,   /* few values */
    EQUAL,
    PEAK,   /* one far above all */
    BARRED, /* most are -inf */
    HUGE,   /* to the ends of float32 */
    SHAPES
};

enum want { MASK = 1, SAID = 2, TOLD = 4 };

static const struct pick_case {
    const char *name;
    int32_t vocab;
    enum shape shape;
    int wants;
    struct sampling sampling; /* temperature -1: all ways, row by row */
} CASES[] = {
    {"picks: greedy", VOCAB_MAX, SPREAD, 0, {.top_p = 1}},
    {"picks: greedy, ties, logprobs", VOCAB_MAX, TIES, TOLD, {.top_p = 1}},
    {"picks: temperature", VOCAB_MAX, SPREAD, 0, {.temperature = 1, .top_p = 1}},
    {"picks: top-p", VOCAB_MAX, SPREAD, 0, {.temperature = 1, .top_p = 0.95}},
    {"picks: top-p of a flat row", VOCAB_MAX, FLAT, 0, {.temperature = 1, .top_p = 0.7}},
    {"picks: top-k", VOCAB_MAX, SPREAD, 0, {.temperature = 1, .top_p = 1, .top_k = 50}},
    {"picks: top-k through ties", VOCAB_MAX, TIES, 0, {.temperature = 2, .top_p = 1, .top_k = 999}},
    {"picks: every way", VOCAB_MAX, SPREAD, MASK | SAID | TOLD, {.temperature = -1}},
    {"picks: every way, flat", VOCAB_MAX, FLAT, MASK | TOLD, {.temperature = -1}},
    {"picks: every way, ties", VOCAB_MAX, TIES, SAID | TOLD, {.temperature = -1}},
    {"picks: every way, all equal", VOCAB_MAX, EQUAL, 0, {.temperature = -1}},
    {"picks: every way, one peak", VOCAB_MAX, PEAK, MASK | SAID | TOLD, {.temperature = -1}},
    {"picks: every way, few not barred", VOCAB_MAX, BARRED, MASK | TOLD, {.temperature = -1}},
    {"picks: every way, huge", VOCAB_MAX, HUGE, SAID | TOLD, {.temperature = -1}},
    {"picks: one block", 2048, SPREAD, MASK | SAID | TOLD, {.temperature = -1}},
    {"picks: one block and a token", 2049, FLAT, MASK | SAID | TOLD, {.temperature = -1}},
    {"picks: 77 tokens", 77, TIES, MASK | SAID | TOLD, {.temperature = -1}},
    {"picks: one token", 1, SPREAD, MASK | SAID | TOLD, {.temperature = -1}},
};

static float logit_of(struct side *s, enum shape shape, int32_t i)
{
    double x = random_unit(s), y = random_unit(s);
    switch (shape) {
    case SPREAD:
        return (float)(4 * (x + y) - 3 * fabs(x) + (random_word(s) % 1000 == 0 ? 10 : 0));
    case FLAT:
        return (float)(x / 4);
    case TIES:
        return (float)floor(6 * x) / 2;
    case EQUAL:
        return -1.25f;
    case PEAK:
        return i % 4001 == 7 ? 90.0f + (float)x : (float)(10 * x);
    case BARRED:
        return random_word(s) % 500 == 0 ? (float)x : -INFINITY;
    default:
        return (float)(3.4e38 * x);
    }
}

/* Every mixture of what a request may say. */
static struct sampling any_way(struct side *s)
{
    static const double TEMPERATURES[] = {0, 1, 0.7, 0.05, 3, 1e-300, 1e300};
    static const double TOP_PS[] = {1, 1, 0.9, 0.5, 1e-9, 0.999999};
    static const int32_t TOP_KS[] = {0, 0, 1, 20, 1000, 100000, 1 << 30};
    static const double MIN_PS[] = {0, 0, 0.05, 1};
    return (struct sampling){.temperature = TEMPERATURES[random_word(s) % 7],
                             .top_p = TOP_PS[random_word(s) % 6],
                             .top_k = TOP_KS[random_word(s) % 7],
                             .min_p = MIN_PS[random_word(s) % 4],
                             .seed = random_word(s),
                             .presence_penalty = random_unit(s),
                             .frequency_penalty = random_unit(s),
                             .repetition_penalty = random_word(s) % 3 == 0 ? 0 : 1.3};
}

/* All of a case, in host memory. */
struct table {
    float *logits;           /* owns; [ROWS, vocab] */
    uint64_t *allowed;       /* owns; [ROWS, words] */
    struct token_said *said; /* owns; [ROWS, vocab] */
    struct pick picks[ROWS], told[ROWS];
};

static void pick_fill(struct side *s, const struct pick_case *c, struct table *t, int32_t row)
{
    int32_t words = (c->vocab + 63) / 64;
    uint64_t *allowed = t->allowed + (int64_t)row * words;
    struct token_said *said = t->said + (int64_t)row * c->vocab;
    struct pick *p = &t->picks[row];
    *p = (struct pick){.sampling = c->sampling, .position = (uint64_t)row * 977, .id = -9};
    p->sampling.seed = random_word(s);
    if (c->sampling.temperature < 0)
        p->sampling = any_way(s);
    if ((c->wants & TOLD) != 0 && row % 3 != 0)
        p->logprobs = true, p->n_top = (int32_t)(random_word(s) % (LOGPROBS_TOP_MAX + 1));
    if ((c->wants & MASK) != 0 && row % 4 != 1) {
        for (int32_t i = 0; i < words; i++)
            allowed[i] = row == 2 || row == 10 ? 0 : random_word(s) & random_word(s);
        if (row == 10 && c->vocab % 64 != 0) /* only what is behind the vocabulary */
            allowed[words - 1] = UINT64_MAX << (c->vocab % 64);
        p->allowed = allowed;
    }
    if ((c->wants & SAID) != 0 && row % 5 != 2) {
        int32_t step = 1 + (int32_t)(random_word(s) % 50);
        for (int32_t id = (int32_t)(random_word(s) % 7); id < c->vocab; id += step)
            said[p->n_said++] = (struct token_said){id, (int32_t)(random_word(s) % 4)};
        p->said = said;
    }
}

static void table_fill(struct side *s, const struct pick_case *c, struct table *t)
{
    size_t vocab = (size_t)c->vocab;
    t->logits = calloc(ROWS * vocab, sizeof *t->logits);
    t->allowed = calloc(ROWS * (vocab + 63) / 64 + ROWS, sizeof *t->allowed);
    t->said = calloc(ROWS * vocab, sizeof *t->said);
    ASSERT(t->logits != NULL && t->allowed != NULL && t->said != NULL);
    for (int32_t i = 0; i < c->vocab; i++)
        t->logits[i] = logit_of(s, c->shape, i);
    for (int32_t row = 0; row < ROWS; row++) { /* the same numbers, each further on */
        for (int32_t i = 0; i < c->vocab && row > 0; i++)
            t->logits[(int64_t)row * c->vocab + i] = t->logits[(i + row * 131) % c->vocab];
        pick_fill(s, c, t, row);
    }
    /* faults: of a network, and where nothing is left */
    t->logits[(int64_t)5 * c->vocab + c->vocab / 2] = NAN;
    t->logits[(int64_t)6 * c->vocab + c->vocab - 1] = INFINITY;
    for (int32_t i = 0; i < c->vocab; i++)
        t->logits[(int64_t)9 * c->vocab + i] = -INFINITY;
}

/* @return rows that the GPU picked as the CPU does */
static int32_t table_run(struct side *s, int32_t vocab, struct table *t)
{
    struct pick_row rows[ROWS];
    struct sampler sampler;
    size_t bytes = (size_t)ROWS * (size_t)vocab * sizeof(float);
    int32_t same = 0;
    sampler_init(&sampler, vocab);
    memcpy(t->told, t->picks, sizeof t->told);
    for (int32_t i = 0; i < ROWS; i++) /* in another order than they lie */
        rows[i] = (struct pick_row){ROWS - 1 - i, &t->told[ROWS - 1 - i]};
    float *logits = side_put(s, t->logits, bytes);
    s->b->ops->pick(s->b, &(struct pick_params){logits, rows, ROWS, vocab});
    for (int32_t i = 0; i < ROWS; i++) {
        sampler_take(&sampler, t->logits + (int64_t)i * vocab, &t->picks[i]);
        same += memcmp(&t->picks[i], &t->told[i], sizeof t->told[i]) == 0;
    }
    sampler_clear(&sampler);
    return same;
}

static void table_free(struct table *t)
{
    free(t->logits);
    free(t->allowed);
    free(t->said);
}

static bool case_run(struct backend *b, const struct pick_case *c)
{
    static struct table t;
    struct side s = {.b = b, .random = (uint64_t)(c - CASES) + 1};
    int32_t ids = 0;
    table_fill(&s, c, &t);
    int32_t same = table_run(&s, c->vocab, &t);
    for (int32_t i = 0; i < ROWS && same < ROWS; i++) {
        if (memcmp(&t.picks[i], &t.told[i], sizeof t.told[i]) != 0 && ids++ < 3)
            printf("# row %d: %d, the CPU picks %d\n", i, t.told[i].id, t.picks[i].id);
    }
    side_end(&s);
    side_clear(&s);
    table_free(&t);
    return same == ROWS;
}

/* The comparison sees another draw, and one unit in one logprob. */
static bool control(struct backend *b)
{
    static struct table t;
    struct side s = {.b = b, .random = 3};
    table_fill(&s, &CASES[2], &t);
    for (int32_t i = 0; i < ROWS; i++)
        t.picks[i].logprobs = true;
    (void)table_run(&s, CASES[2].vocab, &t);
    int32_t other = 0;
    for (int32_t i = 0; i < ROWS; i++)
        other += t.told[i].id != t.told[(i + 1) % ROWS].id;
    t.told[0].told.chosen = nextafterf(t.told[0].told.chosen, 1);
    bool seen = memcmp(&t.picks[0], &t.told[0], sizeof t.told[0]) != 0;
    side_end(&s);
    side_clear(&s);
    table_free(&t);
    return seen && other > ROWS / 2;
}

void picks_run(struct backend *b, const char *word, void (*report)(bool good, const char *what))
{
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        if (strstr(CASES[i].name, word) != NULL)
            report(case_run(b, &CASES[i]), CASES[i].name);
    }
    if (*word == '\0')
        report(control(b), "control: another token or logprob is seen");
}
