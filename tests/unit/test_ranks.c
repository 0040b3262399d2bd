/*
 * Several ranks as one backend: shares cover everything once, slices are the rows that they say,
 * operations give the bits of one rank alone, a lossy exchange is seen, and a rank that does not
 * come ends the process by name.
 */
#include "kernels/check.h"
#include "kernels/ranks.h"
#include "kernels/sampler.h"

#include "tests/unit/kernels_reference.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LIMIT_MS = 120000 };
enum { N = 5, HIDDEN = 256, INNER = 128, ROUTED = 8, TOP = 3, ROWS = 300 };

/* ---- shares and slices ---------------------------------------------------------------------- */

static void test_shares(void **state)
{
    (void)state;
    for (int32_t ranks = 1; ranks <= RANKS_MAX; ranks++) {
        for (int32_t rows = 1; rows <= 3000; rows += 37) {
            int32_t next = 0, least = rows, most = 0;
            for (int32_t r = 0; r < ranks; r++) {
                struct slice s = slice_rows(rows, SLICE_UNIT, r, ranks), units;
                units = slice_share((rows + SLICE_UNIT - 1) / SLICE_UNIT, r, ranks);
                assert_int_equal(s.first, next);
                assert_true(s.n >= 0 && (s.first % SLICE_UNIT == 0 || s.n == 0));
                next += s.n;
                least = units.n < least ? units.n : least;
                most = units.n > most ? units.n : most;
            }
            assert_int_equal(next, rows);
            assert_true(most - least <= 1);
            assert_true(slice_rows(rows, SLICE_UNIT, 0, ranks).n > 0);
        }
    }
}

/* On cards of 96 and of 141 GB. */
static void test_wanted(void **state)
{
    (void)state;
    const uint64_t giga = 1000000000, flash = 160 * giga, demo = giga / 40;
    assert_int_equal(slice_ranks(demo, 8, 96 * giga), 1);
    assert_int_equal(slice_ranks(72 * giga, 8, 96 * giga), 1);
    assert_int_equal(slice_ranks(72 * giga + 1, 8, 96 * giga), 2);
    assert_int_equal(slice_ranks(flash, 8, 141 * giga), 2);
    assert_int_equal(slice_ranks(flash, 8, 96 * giga), 4);
    assert_int_equal(slice_ranks(flash, 8, 32 * giga), 8);
    /* Fewer GPUs than it takes: all that there are, in twos. */
    const int32_t wanted[] = {1, 1, 2, 2, 4, 4, 4, 4, 8, 8};
    for (int32_t gpus = 0; gpus < (int32_t)(sizeof wanted / sizeof *wanted); gpus++)
        assert_int_equal(slice_ranks(flash, gpus, 16 * giga), wanted[gpus]);
    assert_int_equal(slice_ranks(flash, 64, giga), RANKS_MAX);
    assert_int_equal(slice_ranks(demo, 0, 0), 1);
}

static void test_slices(void **state)
{
    (void)state;
    static const uint8_t data[1 << 16], scale[1 << 12];
    static const struct {
        enum store store;
        size_t data, scale; /* of 256 rows of 64 columns */
    } STORES[] = {{STORE_BF16, 256 * 128, 0},
                  {STORE_F32, 256 * 256, 0},
                  {STORE_FP8, 256 * 64, 2},
                  {STORE_FP4, 256 * 32, 256 * 2},
                  {STORE_NVFP4, 256 * 32, 256 * 4}};
    for (size_t i = 0; i < sizeof STORES / sizeof *STORES; i++) {
        const struct tensor whole = {
            data, STORES[i].scale > 0 ? scale : NULL, 512, 64, STORES[i].store, 3};
        struct tensor t = slice_of_tensor(&whole, (struct slice){256, 128});
        assert_ptr_equal(t.data, data + STORES[i].data);
        if (whole.scale != NULL)
            assert_ptr_equal(t.scale, scale + STORES[i].scale);
        assert_true(t.rows == 128 && t.cols == 64 && t.store == whole.store && t.global == 3);
        assert_null(slice_of_tensor(&whole, (struct slice){256, 0}).data);
    }
    const struct tensor vector = {data, NULL, 64, 0, STORE_F32, 0};
    assert_ptr_equal(slice_of_tensor(&vector, (struct slice){8, 8}).data, data + 32);
    assert_int_equal(slice_axis_of("attn.wq_b"), SLICE_GROUPS);
    assert_int_equal(slice_axis_of("attn.wkv"), SLICE_NONE);
}

/* ---- operations ----------------------------------------------------------------------------- */

/* A rank whose exchange loses something. */
struct lossy {
    struct backend_ops ops;
    const struct backend_ops *true_ops;
    enum { LOSES_NOTHING, LOSES_A_PIECE, LOSES_A_COLUMN } loss;
};
static struct lossy lossy;

static void lossy_gather(struct backend *b, const struct gather_params *p)
{
    struct gather_params less = *p;
    if (p->rank == 1 && lossy.loss == LOSES_A_PIECE)
        less.n_pieces--;
    if (p->rank == 1 && lossy.loss == LOSES_A_COLUMN)
        less.pieces[0].at[1] -= less.pieces[0].cols[1] > 0;
    lossy.true_ops->gather(b, &less);
}

static struct backend *open_rank(void *user, int32_t rank)
{
    (void)user;
    struct backend *b = backend_cpu_create(CPU_BASELINE, 1, &LIMITS);
    assert_non_null(b);
    if (rank == 1) {
        lossy.true_ops = b->ops;
        lossy.ops = *b->ops;
        lossy.ops.gather = lossy_gather;
        b->ops = &lossy.ops;
    }
    return b;
}

/* The weights of all tests. */
static struct {
    struct matrix cut, whole, w1[ROUTED + 1], w2[ROUTED + 1], w3[ROUTED + 1];
    struct expert experts[ROUTED + 1];
    float *x;
    int32_t chosen[N * TOP];
    float weights[N * TOP];
} given;

/* What is computed with them: two products over one input, then experts. */
enum { OUTS = N * ROWS + N * HIDDEN, OUT_ALL = OUTS + N * HIDDEN };

static void compute(struct backend *b, float *out)
{
    size_t bytes = (size_t)(OUT_ALL + N * HIDDEN) * sizeof(float);
    char *memory = b->ops->reserve(b, bytes), *more = b->ops->reserve(b, 4096);
    assert_true(memory != NULL && more != NULL);
    float *y = (float *)(void *)memory, *x = y + OUT_ALL;
    int32_t *chosen = (int32_t *)(void *)more;
    float *weights = (float *)(void *)(more + 2048);
    b->ops->upload(b, x, given.x, N * HIDDEN * sizeof(float));
    b->ops->upload(b, chosen, given.chosen, sizeof given.chosen);
    b->ops->upload(b, weights, given.weights, sizeof given.weights);
    struct linear_params linear = {
        .x = x,
        .n = N,
        .cols = HIDDEN,
        .n_outs = 2,
        .outs = {{given.cut.tensor, y, ROUND_NONE, 0, LINEAR_PLAIN},
                 {given.whole.tensor, y + N * ROWS, ROUND_NONE, 1, LINEAR_PLAIN}}};
    b->ops->linear(b, &linear);
    struct experts_params experts = {.experts = given.experts,
                                     .n_routed = ROUTED,
                                     .n_shared = 1,
                                     .x = x,
                                     .chosen = chosen,
                                     .weights = weights,
                                     .n = N,
                                     .hidden = HIDDEN,
                                     .inner = INNER,
                                     .top = TOP,
                                     .limit = SWIGLU_LIMIT,
                                     .round_in = ROUND_FP8_128,
                                     .out = y + OUTS};
    b->ops->experts(b, &experts);
    b->ops->copy(b, x, y + OUTS, N * HIDDEN * sizeof(float));
    b->ops->download(b, out, y, OUTS * sizeof(float));
    b->ops->download(b, out + OUTS, x, N * HIDDEN * sizeof(float));
    b->ops->release(b, more, 4096);
    b->ops->release(b, memory, bytes);
}

static void compute_by(int32_t ranks, float *out, struct witness_table *seen)
{
    const struct ranks_tensor tensors[] = {{given.cut.tensor.data, SLICE_ROWS}};
    const struct ranks_plan plan = {.ranks = ranks,
                                    .limits = LIMITS,
                                    .blocks = 1,
                                    .limit_ms = LIMIT_MS,
                                    .tensors = tensors,
                                    .n_tensors = 1,
                                    .open = open_rank};
    struct backend *b = backend_ranks_create(&plan);
    assert_non_null(b);
    assert_string_equal(b->ops->variant(b), "baseline");
    compute(b, out);
    b->ops->witness_read(b, seen);
    b->ops->destroy(b);
}

static void test_operations(void **state)
{
    (void)state;
    static float alone[OUT_ALL], together[OUT_ALL];
    static struct witness_table own, seen;
    struct backend *b = backend_cpu_create(CPU_BASELINE, 1, &LIMITS);
    compute(b, alone);
    b->ops->witness_read(b, &own);
    b->ops->destroy(b);
    for (int32_t ranks = 1; ranks <= RANKS_MAX; ranks++) {
        compute_by(ranks, together, &seen);
        assert_memory_equal(alone, together, sizeof alone);
        /* One for the products that are cut, one for each half of the experts. */
        const struct witness_cell *cell =
            &seen.cells[ROW_REDUCE_ORDER][0][LEG_PREFILL][REDUCE_ORDER_FIXED];
        assert_int_equal(cell->launches, 3);
        memset(seen.cells[ROW_REDUCE_ORDER], 0, sizeof seen.cells[0]);
        memset(seen.cells[ROW_REDUCE_WIRE], 0, sizeof seen.cells[0]);
        assert_memory_equal(&own, &seen, sizeof own);
    }
    for (int loss = LOSES_A_PIECE; loss <= LOSES_A_COLUMN; loss++) {
        lossy.loss = loss;
        compute_by(2, together, &seen);
        assert_memory_not_equal(alone, together, sizeof alone);
    }
    lossy.loss = LOSES_NOTHING;
}

/* Rows of logits are shared among the ranks; what is picked behind each is what the sampler picks.
 */
static void test_picks(void **state)
{
    (void)state;
    enum { VOCAB = 200 };
    static float logits[N * VOCAB], row[VOCAB];
    struct sampler sampler;
    sampler_init(&sampler, VOCAB);
    for (int32_t i = 0; i < N * VOCAB; i++)
        logits[i] = (float)(8 * sampler_uniform(3, (uint64_t)i));
    for (int32_t ranks = 1; ranks <= RANKS_MAX; ranks++) {
        const struct ranks_tensor none[1] = {{0}};
        const struct ranks_plan plan = {.ranks = ranks,
                                        .limits = LIMITS,
                                        .blocks = 1,
                                        .limit_ms = LIMIT_MS,
                                        .tensors = none,
                                        .open = open_rank};
        struct backend *b = backend_ranks_create(&plan);
        struct pick picks[N];
        struct pick_row rows[N];
        assert_non_null(b);
        float *device = b->ops->reserve(b, sizeof logits);
        b->ops->upload(b, device, logits, sizeof logits);
        for (int32_t i = 0; i < N; i++) {
            picks[i] = (struct pick){.sampling = {.temperature = i, .top_p = 0.9, .seed = 7},
                                     .position = (uint64_t)i,
                                     .logprobs = i != 2,
                                     .n_top = i,
                                     .id = -9};
            rows[i] = (struct pick_row){N - 1 - i, &picks[i]};
        }
        for (int32_t n = 0; n < N; n += 3) { /* also fewer rows than ranks */
            b->ops->pick(b, &(struct pick_params){device, rows + n, N - n, VOCAB});
            b->ops->upload(b, device, logits, sizeof logits);
        }
        for (int32_t i = 0; i < N; i++) {
            struct pick alone = picks[i];
            alone.id = -9;
            memcpy(row, logits + (N - 1 - i) * VOCAB, sizeof row);
            sampler_take(&sampler, row, &alone);
            assert_memory_equal(&alone, &picks[i], sizeof alone);
        }
        b->ops->release(b, device, sizeof logits);
        b->ops->destroy(b);
    }
    sampler_clear(&sampler);
}

static struct backend *refuse_last(void *user, int32_t rank)
{
    return rank == 2 ? NULL : open_rank(user, rank);
}

static void test_refused(void **state)
{
    (void)state;
    const struct ranks_tensor none[1] = {{0}};
    const struct ranks_plan plan = {.ranks = 3,
                                    .limits = LIMITS,
                                    .blocks = 1,
                                    .limit_ms = LIMIT_MS,
                                    .tensors = none,
                                    .open = refuse_last};
    assert_null(backend_ranks_create(&plan));
}

/* ---- weights to their ranks ----------------------------------------------------------------- */

/* A rank that keeps what it was told to load; on threads of their own. */
static struct loader {
    struct backend_ops ops;
    struct tensor tensors[2], w1, w2;
    const struct expert *experts;
    bool refuses;
} loaders[RANKS_MAX];

static const char *loader_load(struct backend *b, const struct load_params *p)
{
    struct loader *l = (struct loader *)(uintptr_t)b->ops; /* its first member */
    ASSERT(p->n == 2 && p->blocks == 1 && p->n_experts == ROUTED + 1);
    memcpy(l->tensors, p->tensors, sizeof l->tensors);
    l->experts = p->experts[0];
    l->w1 = p->experts[0][ROUTED].w1;
    l->w2 = p->experts[0][ROUTED].w2;
    return l->refuses ? "GPU 1: none" : NULL;
}

static struct backend *open_loader(void *user, int32_t rank)
{
    (void)user;
    struct backend *b = backend_cpu_create(CPU_BASELINE, 1, &LIMITS);
    ASSERT(b != NULL);
    loaders[rank].ops = *b->ops;
    loaders[rank].ops.load = loader_load;
    b->ops = &loaders[rank].ops;
    return b;
}

/* Each rank is given its rows, all together every row once, and what is not cut in full. */
static void test_load(void **state)
{
    (void)state;
    enum { RANKS = 3 };
    const struct ranks_tensor cut[] = {{given.cut.tensor.data, SLICE_ROWS}};
    const struct ranks_plan plan = {.ranks = RANKS,
                                    .limits = LIMITS,
                                    .blocks = 1,
                                    .limit_ms = LIMIT_MS,
                                    .tensors = cut,
                                    .n_tensors = 1,
                                    .open = open_loader};
    const struct tensor tensors[] = {given.cut.tensor, given.whole.tensor};
    const struct expert *experts[] = {given.experts};
    const struct load_params p = {tensors, 2, experts, 1, ROUTED + 1, NULL};
    struct backend *b = backend_ranks_create(&plan);
    assert_non_null(b);
    assert_null(b->ops->load(b, &p));
    int32_t rows = 0, inner = 0, outer = 0;
    for (int r = 0; r < RANKS; r++) {
        const struct loader *l = &loaders[r];
        assert_ptr_equal(l->tensors[0].data,
                         l->tensors[0].rows == 0
                             ? NULL
                             : (const char *)given.cut.tensor.data + (size_t)rows * HIDDEN);
        assert_true(l->tensors[1].data == given.whole.tensor.data && l->tensors[1].rows == HIDDEN);
        rows += l->tensors[0].rows;
        inner += l->w1.rows;
        outer += l->w2.rows;
    }
    assert_true(rows == ROWS && inner == INNER && outer == HIDDEN);
    loaders[1].refuses = true;
    assert_string_equal(b->ops->load(b, &p), "GPU 1: none");
    b->ops->destroy(b);
}

/* ---- steps that come again ------------------------------------------------------------------ */

/* Ranks that record: what each was asked for last. */
static struct recorder {
    struct backend_ops ops;
    uint8_t key[64];
    size_t bytes;
    int asked, ended;
} recorders[RANKS_MAX];

static bool recorder_replay(struct backend *b, const void *key, size_t bytes)
{
    struct recorder *r = (struct recorder *)(uintptr_t)b->ops; /* its first member */
    ASSERT(bytes <= sizeof r->key);
    memcpy(r->key, key, bytes);
    r->bytes = bytes;
    return r->asked++ > 0;
}

static void recorder_end(struct backend *b)
{
    ((struct recorder *)(uintptr_t)b->ops)->ended++;
}

static struct backend *open_recorder(void *user, int32_t rank)
{
    (void)user;
    struct backend *b = backend_cpu_create(CPU_BASELINE, 1, &LIMITS);
    ASSERT(b != NULL);
    recorders[rank].ops = *b->ops;
    recorders[rank].ops.replay = recorder_replay;
    recorders[rank].ops.replay_end = recorder_end;
    b->ops = &recorders[rank].ops;
    return b;
}

static struct recorder asked(struct backend *b, const char *key)
{
    b->ops->replay(b, key, strlen(key));
    assert_memory_equal(recorders[0].key, recorders[1].key, recorders[0].bytes);
    return recorders[0];
}

static bool same_key(const struct recorder *a, const struct recorder *b)
{
    return a->bytes == b->bytes && memcmp(a->key, b->key, a->bytes) == 0;
}

/* Two of them, with no weights. */
static struct backend *two_ranks(struct backend *(*open)(void *user, int32_t rank))
{
    const struct ranks_tensor none[1] = {{0}};
    struct backend *b = backend_ranks_create(&(struct ranks_plan){.ranks = 2,
                                                                  .limits = LIMITS,
                                                                  .blocks = 1,
                                                                  .limit_ms = LIMIT_MS,
                                                                  .tensors = none,
                                                                  .open = open});
    assert_non_null(b);
    return b;
}

/* All ranks are asked, in one way; and anew once memory lies elsewhere, which a key that names that
 * of rank 0 does not say. */
static void test_replay(void **state)
{
    (void)state;
    struct backend *b = two_ranks(open_recorder);
    assert_false(b->ops->replay(b, "one", 3));
    b->ops->replay_end(b);
    assert_true(b->ops->replay(b, "one", 3));
    for (int r = 0; r < 2; r++)
        assert_true(recorders[r].asked == 2 && recorders[r].ended == 1);
    struct recorder first = asked(b, "one"), again = asked(b, "one"), other = asked(b, "two");
    assert_true(same_key(&first, &again) && !same_key(&first, &other));
    void *memory = b->ops->reserve(b, 64);
    struct recorder taken = asked(b, "one");
    b->ops->release(b, memory, 64);
    struct recorder given_back = asked(b, "one");
    assert_false(same_key(&first, &taken) || same_key(&taken, &given_back) ||
                 same_key(&first, &given_back));
    b->ops->destroy(b);
}

/* A backend that reads host memory has nothing to load and records nothing, however many of it
 * there are. */
static void test_nothing(void **state)
{
    (void)state;
    struct backend *b = two_ranks(open_rank);
    assert_null(b->ops->load);
    assert_null(b->ops->replay);
    b->ops->destroy(b);
}

/* ---- a rank that is missing ----------------------------------------------------------------- */

static void test_missing(void **state)
{
    (void)state;
    int said[2], how;
    char text[200] = "";
    assert_int_equal(pipe(said), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(said[1], STDERR_FILENO);
        meeting_wait(meeting_create(2, 50), 0);
        _exit(0);
    }
    close(said[1]);
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == EXIT_FAILURE);
    assert_true(read(said[0], text, sizeof text - 1) > 0);
    assert_non_null(strstr(text, "rank 1 of 2 has not come within 50 ms"));
    close(said[0]);
}

static int set_up(void **state)
{
    (void)state;
    given.cut = matrix_random(STORE_FP8, ROWS, HIDDEN);
    given.whole = matrix_random(STORE_FP8, HIDDEN, HIDDEN);
    for (int e = 0; e <= ROUTED; e++) {
        enum store store = e < ROUTED ? STORE_FP4 : STORE_FP8;
        given.w1[e] = matrix_random(store, INNER, HIDDEN);
        given.w2[e] = matrix_random(store, HIDDEN, INNER);
        given.w3[e] = matrix_random(store, INNER, HIDDEN);
        given.experts[e] =
            (struct expert){given.w1[e].tensor, given.w2[e].tensor, given.w3[e].tensor};
    }
    given.x = random_floats(N * HIDDEN, 2);
    for (int i = 0; i < N * TOP; i++) {
        given.chosen[i] = (i * 5 + i / TOP) % ROUTED;
        given.weights[i] = (float)(0.1 + 0.05 * i);
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    matrix_free(&given.cut);
    matrix_free(&given.whole);
    for (int e = 0; e <= ROUTED; e++) {
        matrix_free(&given.w1[e]);
        matrix_free(&given.w2[e]);
        matrix_free(&given.w3[e]);
    }
    free(given.x);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shares),     cmocka_unit_test(test_wanted),
        cmocka_unit_test(test_slices),     cmocka_unit_test(test_missing),
        cmocka_unit_test(test_operations), cmocka_unit_test(test_picks),
        cmocka_unit_test(test_refused),    cmocka_unit_test(test_load),
        cmocka_unit_test(test_nothing),    cmocka_unit_test(test_replay),
    };
    return cmocka_run_group_tests_name("ranks", tests, set_up, tear_down);
}
