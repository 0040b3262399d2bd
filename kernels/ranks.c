/*
 * Ranks: their threads, memory that all of them have, and the queue of operations.  Every rank
 * takes every job in order; those of ranks_cut.c it does for its slice.
 */
#include "kernels/ranks_inside.h"

#include "kernels/check.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* Jobs on their way: more than an operation's launch costs, less than a step. */
#define JOBS 64
/* Timelines, pools and scratch memory. */
#define REGIONS_MAX (LINK_TIMELINES + 2 * LINK_POOLS + 4)
/* What two compressors of a layer leave for pooling. */
#define COMPRESSOR_COLS (4 * HEAD_DIM + 4 * INDEX_HEAD_DIM)
#define POINTERS_MAX    9

typedef void call_fn(struct rank *rank, void *user);

struct copy_params {
    void *to;
    const void *from;
    size_t bytes;
};

struct call_params {
    call_fn *fn;
    void *user;
};

/* ---- what operations take ------------------------------------------------------------------- */

#define OPERATIONS(X)                                                                              \
    X(embed)                                                                                       \
    X(hc_pre)                                                                                      \
    X(hc_post)                                                                                     \
    X(hc_head)                                                                                     \
    X(rms_norm)                                                                                    \
    X(linear)                                                                                      \
    X(grouped)                                                                                     \
    X(rope_table)                                                                                  \
    X(query)                                                                                       \
    X(kv_store)                                                                                    \
    X(compressor_store)                                                                            \
    X(compressor_pool)                                                                             \
    X(index_query)                                                                                 \
    X(index_select)                                                                                \
    X(attention)                                                                                   \
    X(route)                                                                                       \
    X(experts)                                                                                     \
    X(mtp_join)

enum job_kind {
#define KIND(name) JOB_##name,
    OPERATIONS(KIND)
#undef KIND
        JOB_OPERATIONS,
    JOB_copy = JOB_OPERATIONS,
    JOB_call,
};

union params {
#define MEMBER(name) struct name##_params name;
    OPERATIONS(MEMBER)
#undef MEMBER
    struct copy_params copy;
    struct call_params call;
};

#define CALL(name)                                                                                 \
    static void call_##name(struct backend *b, const void *p)                                      \
    {                                                                                              \
        b->ops->name(b, p);                                                                        \
    }
OPERATIONS(CALL)
#undef CALL

#define AT(name, member) offsetof(struct name##_params, member)

/* How an operation runs on a rank. */
static const struct operation {
    void (*call)(struct backend *b, const void *p);
    void (*cut)(struct rank *rank, const void *asked, void *own); /* NULL: the same on all ranks */
    size_t bytes;
    int n_pointers; /* to device memory */
    uint16_t pointers[POINTERS_MAX];
} TABLE[JOB_OPERATIONS] = {
#define SAME(name, n, ...)                                                                         \
    [JOB_##name] = {call_##name, NULL, sizeof(struct name##_params), n, {__VA_ARGS__}}
#define CUT(name, n, ...)                                                                          \
    [JOB_##name] = {call_##name, rank_##name, sizeof(struct name##_params), n, {__VA_ARGS__}}
    SAME(embed, 2, AT(embed, ids), AT(embed, out)),
    SAME(hc_pre, 4, AT(hc_pre, streams), AT(hc_pre, out), AT(hc_pre, post), AT(hc_pre, comb)),
    SAME(hc_post, 5, AT(hc_post, y), AT(hc_post, streams), AT(hc_post, post), AT(hc_post, comb),
         AT(hc_post, streams_out)),
    SAME(hc_head, 2, AT(hc_head, streams), AT(hc_head, out)),
    SAME(rms_norm, 2, AT(rms_norm, x), AT(rms_norm, out)),
    CUT(linear, 6, AT(linear, x), AT(linear, outs[0].y), AT(linear, outs[1].y),
        AT(linear, outs[2].y), AT(linear, outs[3].y), AT(linear, outs[4].y)),
    CUT(grouped, 2, AT(grouped, x), AT(grouped, y)),
    SAME(rope_table, 2, AT(rope_table, positions), AT(rope_table, rows)),
    CUT(query, 2, AT(query, q), AT(query, rope)),
    SAME(kv_store, 4, AT(kv_store, kv), AT(kv_store, rope), AT(kv_store, at), AT(kv_store, ring)),
    SAME(compressor_store, 5, AT(compressor_store, at), AT(compressor_store, kappa),
         AT(compressor_store, gamma), AT(compressor_store, kappa_ring),
         AT(compressor_store, gamma_ring)),
    SAME(compressor_pool, 5, AT(compressor_pool, at), AT(compressor_pool, kappa_ring),
         AT(compressor_pool, gamma_ring), AT(compressor_pool, rope), AT(compressor_pool, cache)),
    SAME(index_query, 2, AT(index_query, q), AT(index_query, rope)),
    SAME(index_select, 6, AT(index_select, at), AT(index_select, q), AT(index_select, weights),
         AT(index_select, keys), AT(index_select, selected), AT(index_select, n_selected)),
    CUT(attention, 8, AT(attention, at), AT(attention, q), AT(attention, ring),
        AT(attention, compressed), AT(attention, selected), AT(attention, n_selected),
        AT(attention, rope), AT(attention, out)),
    SAME(route, 4, AT(route, x), AT(route, ids), AT(route, experts), AT(route, weights)),
    CUT(experts, 4, AT(experts, x), AT(experts, chosen), AT(experts, weights), AT(experts, out)),
    SAME(mtp_join, 3, AT(mtp_join, e), AT(mtp_join, h), AT(mtp_join, streams)),
#undef SAME
#undef CUT
};

struct job {
    enum job_kind kind;
    union params p;
};

struct ranks {
    struct backend base;    /* first */
    struct backend_ops ops; /* OPS, with what the ranks can do */
    struct ranks_plan plan;
    struct ranks_tensor *tensors; /* owns; [plan.n_tensors], ascending */
    struct rank list[RANKS_MAX];
    struct meeting *meeting; /* owns */
    struct region regions[REGIONS_MAX];
    int32_t n_regions;
    uint64_t layout; /* another number behind every change of them */

    pthread_mutex_t lock;
    pthread_cond_t posted_more, done_more;
    struct job jobs[JOBS]; /* job k lies in k mod JOBS */
    uint64_t posted;       /* lock */
    bool stop;             /* lock */
};

static struct ranks *ranks_of(struct backend *b)
{
    return (struct ranks *)b;
}

const struct ranks_plan *ranks_plan(const struct ranks *r)
{
    return &r->plan;
}

/* Results of one operation: logits, what SwiGLU leaves, or compressors. */
static size_t ranks_part_bytes(const struct ranks_plan *plan)
{
    const struct backend_limits *l = &plan->limits;
    const int64_t widths[] = {(int64_t)l->top * l->inner, l->cols, l->hidden, COMPRESSOR_COLS};
    int64_t most = (int64_t)LOGITS_ROWS_MAX * l->vocab;
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        most = l->tokens * widths[i] > most ? l->tokens * widths[i] : most;
    return (size_t)most * sizeof(float);
}

static size_t ranks_inner_bytes(const struct ranks_plan *plan)
{
    const struct backend_limits *l = &plan->limits;
    return (size_t)l->tokens * (size_t)l->top * (size_t)l->inner * sizeof(float);
}

/* ---- pointers and tensors ------------------------------------------------------------------- */

static void *own_of(const struct ranks *r, int32_t number, const void *pointer)
{
    if (pointer == NULL)
        return NULL;
    for (int32_t i = 0; i < r->n_regions; i++) {
        const struct region *region = &r->regions[i];
        uintptr_t offset = (uintptr_t)pointer - (uintptr_t)region->at[0];
        if (offset < region->bytes)
            return region->at[number] + offset;
    }
    ASSERT(!"device memory that was reserved");
    return NULL;
}

void *rank_own(const struct rank *rank, const void *pointer)
{
    return own_of(rank->all, rank->number, pointer);
}

static int by_place(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t)((const struct ranks_tensor *)a)->data;
    uintptr_t y = (uintptr_t)((const struct ranks_tensor *)b)->data;
    return (x > y) - (x < y);
}

enum slice_axis ranks_axis(const struct ranks *r, const struct tensor *tensor)
{
    const struct ranks_tensor key = {tensor->data, SLICE_NONE};
    const struct ranks_tensor *found =
        bsearch(&key, r->tensors, (size_t)r->plan.n_tensors, sizeof key, by_place);
    return found == NULL ? SLICE_NONE : found->axis;
}

/* ---- between ranks -------------------------------------------------------------------------- */

size_t rank_piece(const struct rank *rank, struct gather_params *gather, size_t from, int32_t n,
                  int32_t width, int32_t unit, const float *whole)
{
    ASSERT(gather->n_pieces < LINEAR_OUTS_MAX);
    struct gather_piece *piece = &gather->pieces[gather->n_pieces++];
    *piece = (struct gather_piece){.part = rank->part + from, .n = n, .width = width};
    for (int32_t r = 0; r < gather->ranks; r++) {
        struct slice cols = slice_rows(width, unit, r, gather->ranks);
        piece->at[r] = cols.first;
        piece->cols[r] = cols.n;
        piece->whole[r] = whole == NULL ? rank->all->list[r].inner : own_of(rank->all, r, whole);
    }
    return from + (size_t)n * (size_t)piece->cols[rank->number];
}

void rank_gather(struct rank *rank, struct gather_params *gather, const struct place *place,
                 int32_t n)
{
    if (gather->n_pieces == 0)
        return;
    gather->place = *place;
    gather->n = n;
    rank->backend->ops->gather(rank->backend, gather);
}

/* ---- the queue ------------------------------------------------------------------------------ */

static void job_run(struct rank *rank, const struct job *job)
{
    if (job->kind == JOB_call) {
        job->p.call.fn(rank, job->p.call.user);
        return;
    }
    if (job->kind == JOB_copy) {
        rank->backend->ops->copy(rank->backend, rank_own(rank, job->p.copy.to),
                                 rank_own(rank, job->p.copy.from), job->p.copy.bytes);
        return;
    }
    const struct operation *operation = &TABLE[job->kind];
    union params own = job->p;
    for (int i = 0; i < operation->n_pointers; i++) {
        char *at = (char *)&own + operation->pointers[i];
        void *pointer;
        memcpy(&pointer, at, sizeof pointer);
        pointer = rank_own(rank, pointer);
        memcpy(at, &pointer, sizeof pointer);
    }
    if (operation->cut != NULL)
        operation->cut(rank, &job->p, &own);
    else
        operation->call(rank->backend, &own);
}

static void *rank_main(void *context)
{
    struct rank *rank = context;
    struct ranks *r = rank->all;
    for (;;) {
        pthread_mutex_lock(&r->lock);
        while (rank->done == r->posted && !r->stop)
            pthread_cond_wait(&r->posted_more, &r->lock);
        bool stop = rank->done == r->posted;
        const struct job *job = &r->jobs[rank->done % JOBS];
        pthread_mutex_unlock(&r->lock);
        if (stop)
            return NULL;
        job_run(rank, job);
        pthread_mutex_lock(&r->lock);
        rank->done++;
        pthread_cond_signal(&r->done_more);
        pthread_mutex_unlock(&r->lock);
    }
}

/* Jobs that the slowest rank has done.  Under the lock. */
static uint64_t done_by_all(const struct ranks *r)
{
    uint64_t done = r->posted;
    for (int32_t i = 0; i < r->plan.ranks; i++)
        done = r->list[i].done < done ? r->list[i].done : done;
    return done;
}

/* @return its number */
static void post(struct ranks *r, enum job_kind kind, const void *params, size_t bytes, bool wait)
{
    pthread_mutex_lock(&r->lock);
    while (r->posted - done_by_all(r) == JOBS)
        pthread_cond_wait(&r->done_more, &r->lock);
    struct job *job = &r->jobs[r->posted % JOBS];
    job->kind = kind;
    memcpy(&job->p, params, bytes);
    r->posted++;
    pthread_cond_broadcast(&r->posted_more);
    while (wait && done_by_all(r) < r->posted)
        pthread_cond_wait(&r->done_more, &r->lock);
    pthread_mutex_unlock(&r->lock);
}

/* Runs fn on every rank's thread, behind everything that was posted; returns when all have. */
static void on_all(struct ranks *r, call_fn *fn, void *user)
{
    post(r, JOB_call, &(struct call_params){fn, user}, sizeof(struct call_params), true);
}

#define POST(name)                                                                                 \
    static void post_##name(struct backend *b, const struct name##_params *p)                      \
    {                                                                                              \
        post(ranks_of(b), JOB_##name, p, sizeof *p, false);                                        \
    }
OPERATIONS(POST)
#undef POST

/* ---- memory --------------------------------------------------------------------------------- */

/* What is done with memory on all ranks, or on the first. */
struct memory_work {
    struct region *region;
    void *to;
    const void *from;
    size_t bytes;
};

static void reserve_on(struct rank *rank, void *user)
{
    struct memory_work *w = user;
    w->region->at[rank->number] = rank->backend->ops->reserve(rank->backend, w->bytes);
}

static void release_on(struct rank *rank, void *user)
{
    struct memory_work *w = user;
    if (w->region->at[rank->number] != NULL)
        rank->backend->ops->release(rank->backend, w->region->at[rank->number], w->bytes);
}

static void clear_on(struct rank *rank, void *user)
{
    struct memory_work *w = user;
    rank->backend->ops->clear(rank->backend, rank_own(rank, w->to), w->bytes);
}

static void upload_on(struct rank *rank, void *user)
{
    struct memory_work *w = user;
    rank->backend->ops->upload(rank->backend, rank_own(rank, w->to), w->from, w->bytes);
}

static void download_on(struct rank *rank, void *user)
{
    struct memory_work *w = user;
    if (rank->number == 0)
        rank->backend->ops->download(rank->backend, w->to, w->from, w->bytes);
}

static void *ranks_reserve(struct backend *b, size_t bytes)
{
    struct ranks *r = ranks_of(b);
    ASSERT(r->n_regions < REGIONS_MAX);
    struct region region = {.bytes = bytes};
    struct memory_work work = {.region = &region, .bytes = bytes};
    on_all(r, reserve_on, &work);
    for (int32_t i = 0; i < r->plan.ranks; i++) {
        if (region.at[i] == NULL) {
            on_all(r, release_on, &work);
            return NULL;
        }
    }
    r->regions[r->n_regions++] = region;
    r->layout++;
    return region.at[0];
}

static void ranks_release(struct backend *b, void *memory, size_t bytes)
{
    struct ranks *r = ranks_of(b);
    int32_t i = 0;
    if (memory == NULL)
        return;
    while (i < r->n_regions && r->regions[i].at[0] != memory)
        i++;
    ASSERT(i < r->n_regions && r->regions[i].bytes == bytes);
    struct memory_work work = {.region = &r->regions[i], .bytes = bytes};
    on_all(r, release_on, &work);
    r->regions[i] = r->regions[--r->n_regions];
    r->layout++;
}

static void ranks_clear(struct backend *b, void *memory, size_t bytes)
{
    on_all(ranks_of(b), clear_on, &(struct memory_work){.to = memory, .bytes = bytes});
}

static void ranks_upload(struct backend *b, void *device, const void *host, size_t bytes)
{
    on_all(ranks_of(b), upload_on,
           &(struct memory_work){.to = device, .from = host, .bytes = bytes});
}

static void ranks_download(struct backend *b, void *host, const void *device, size_t bytes)
{
    on_all(ranks_of(b), download_on,
           &(struct memory_work){.to = host, .from = device, .bytes = bytes});
}

static void ranks_copy(struct backend *b, void *device_to, const void *device_from, size_t bytes)
{
    const struct copy_params p = {device_to, device_from, bytes};
    post(ranks_of(b), JOB_copy, &p, sizeof p, false);
}

/* ---- tokens ---------------------------------------------------------------------------------- */

/* All ranks have all logits: each picks behind some of the rows. */
static void pick_on(struct rank *rank, void *user)
{
    struct pick_params p = *(const struct pick_params *)user;
    struct slice some = slice_rows(p.n, 1, rank->number, ranks_plan(rank->all)->ranks);
    p.logits = rank_own(rank, p.logits);
    p.rows += some.first;
    p.n = some.n;
    if (p.n > 0)
        rank->backend->ops->pick(rank->backend, &p);
}

static void ranks_pick(struct backend *b, const struct pick_params *p)
{
    struct pick_params work = *p;
    on_all(ranks_of(b), pick_on, &work);
}

/* ---- weights -------------------------------------------------------------------------------- */

struct load_work {
    const struct load_params *p;
    const char *wrong[RANKS_MAX];
};

static void load_on(struct rank *rank, void *user)
{
    struct load_work *w = user;
    w->wrong[rank->number] = rank_load(rank, w->p);
}

static const char *ranks_load(struct backend *b, const struct load_params *p)
{
    struct load_work work = {.p = p};
    on_all(ranks_of(b), load_on, &work);
    for (int32_t i = 0; i < RANKS_MAX; i++) {
        if (work.wrong[i] != NULL)
            return work.wrong[i];
    }
    return NULL;
}

/* ---- evidence ------------------------------------------------------------------------------- */

/* That of rank 0, which does everything that is the same on all ranks, and is never without a
 * slice of the rest. */
static void witness_on(struct rank *rank, void *user)
{
    struct witness_table other;
    rank->backend->ops->witness_read(rank->backend, rank->number == 0 ? user : &other);
}

static void ranks_witness_read(struct backend *b, struct witness_table *out)
{
    struct ranks *r = ranks_of(b);
    on_all(r, witness_on, out);
}

static const char *ranks_variant(const struct backend *b)
{
    const struct backend *first = ((const struct ranks *)b)->list[0].backend;
    return first->ops->variant(first);
}

/* ---- steps that come again ------------------------------------------------------------------ */

/* Every rank has seen the same keys in the same order, so that all have the same answer. */
struct replay_work {
    const void *key;
    size_t bytes;
    bool replayed[RANKS_MAX];
};

static void replay_on(struct rank *rank, void *user)
{
    struct replay_work *w = user;
    w->replayed[rank->number] = rank->backend->ops->replay(rank->backend, w->key, w->bytes);
}

static void replay_end_on(struct rank *rank, void *user)
{
    (void)user;
    rank->backend->ops->replay_end(rank->backend);
}

/* The caller's key names memory as rank 0 has it.  Where the others have theirs follows from that
 * only as long as nothing is taken or given back. */
static bool ranks_replay(struct backend *b, const void *key, size_t bytes)
{
    struct ranks *r = ranks_of(b);
    char *own = malloc(sizeof r->layout + bytes);
    ASSERT(own != NULL);
    memcpy(own, &r->layout, sizeof r->layout);
    memcpy(own + sizeof r->layout, key, bytes);
    struct replay_work work = {.key = own, .bytes = sizeof r->layout + bytes};
    on_all(r, replay_on, &work);
    free(own);
    for (int32_t i = 1; i < r->plan.ranks; i++)
        ASSERT(work.replayed[i] == work.replayed[0]);
    return work.replayed[0];
}

static void ranks_replay_end(struct backend *b)
{
    on_all(ranks_of(b), replay_end_on, NULL);
}

/* ---- the object ----------------------------------------------------------------------------- */

static void gather_never(struct backend *b, const struct gather_params *p)
{
    (void)b;
    (void)p;
    ASSERT(!"ranks of ranks");
}

static void meet_never(struct backend *b, struct meeting *meeting, int32_t rank)
{
    (void)b;
    (void)meeting;
    (void)rank;
    ASSERT(!"ranks of ranks");
}

static void close_on(struct rank *rank, void *user)
{
    (void)user;
    if (rank->backend == NULL)
        return;
    const struct backend_ops *ops = rank->backend->ops;
    ops->release(rank->backend, rank->part, ranks_part_bytes(&rank->all->plan));
    ops->release(rank->backend, rank->inner, ranks_inner_bytes(&rank->all->plan));
    ops->destroy(rank->backend);
    for (int32_t i = 0; i < rank->all->plan.blocks && rank->experts != NULL; i++)
        free(rank->experts[i].own);
    free(rank->experts);
}

static void ranks_destroy(struct backend *b)
{
    struct ranks *r = ranks_of(b);
    if (r == NULL)
        return;
    int32_t started = 0;
    while (started < r->plan.ranks && r->list[started].started)
        started++;
    if (started == r->plan.ranks)
        on_all(r, close_on, NULL);
    pthread_mutex_lock(&r->lock);
    r->stop = true;
    pthread_cond_broadcast(&r->posted_more);
    pthread_mutex_unlock(&r->lock);
    for (int32_t i = 0; i < started; i++)
        pthread_join(r->list[i].thread, NULL);
    pthread_cond_destroy(&r->posted_more);
    pthread_cond_destroy(&r->done_more);
    pthread_mutex_destroy(&r->lock);
    meeting_destroy(r->meeting);
    free(r->tensors);
    free(r);
}

static const struct backend_ops OPS = {
    .destroy = ranks_destroy,
    .variant = ranks_variant,
    .reserve = ranks_reserve,
    .release = ranks_release,
    .clear = ranks_clear,
    .upload = ranks_upload,
    .download = ranks_download,
    .copy = ranks_copy,
#define ENTRY(name) .name = post_##name,
    OPERATIONS(ENTRY)
#undef ENTRY
        .pick = ranks_pick,
    .meet = meet_never,
    .gather = gather_never,
    .witness_read = ranks_witness_read,
};

static void open_on(struct rank *rank, void *user)
{
    struct ranks *r = rank->all;
    bool *refused = user;
    rank->backend = r->plan.open(r->plan.user, rank->number);
    if (rank->backend != NULL) {
        const struct backend_ops *ops = rank->backend->ops;
        rank->part = ops->reserve(rank->backend, ranks_part_bytes(&r->plan));
        rank->inner = ops->reserve(rank->backend, ranks_inner_bytes(&r->plan));
        rank->experts = calloc((size_t)r->plan.blocks, sizeof *rank->experts);
    }
    refused[rank->number] =
        rank->backend == NULL || rank->part == NULL || rank->inner == NULL || rank->experts == NULL;
}

static void meet_on(struct rank *rank, void *user)
{
    (void)user;
    rank->backend->ops->meet(rank->backend, rank->all->meeting, rank->number);
}

static bool threads_start(struct ranks *r)
{
    bool good = true;
    /* Signals belong to the program's main thread. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int32_t i = 0; i < r->plan.ranks && good; i++) {
        r->list[i].all = r;
        r->list[i].number = i;
        good = pthread_create(&r->list[i].thread, NULL, rank_main, &r->list[i]) == 0;
        r->list[i].started = good;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return good;
}

static bool all_open(struct ranks *r)
{
    bool refused[RANKS_MAX] = {false};
    if (!threads_start(r))
        return false;
    on_all(r, open_on, refused);
    for (int32_t i = 0; i < r->plan.ranks; i++) {
        if (refused[i])
            return false;
    }
    on_all(r, meet_on, NULL);
    const struct backend_ops *first = r->list[0].backend->ops;
    r->ops.packs = first->packs;
    r->ops.step_tokens = first->step_tokens;
    r->ops.load = first->load == NULL ? NULL : ranks_load;
    r->ops.replay = first->replay == NULL ? NULL : ranks_replay;
    r->ops.replay_end = ranks_replay_end;
    return true;
}

struct backend *backend_ranks_create(const struct ranks_plan *plan)
{
    ASSERT(plan->ranks >= 1 && plan->ranks <= RANKS_MAX);
    struct ranks *r = calloc(1, sizeof *r);
    if (r == NULL)
        return NULL;
    r->ops = OPS;
    r->base.ops = &r->ops;
    r->plan = *plan;
    size_t bytes = (size_t)plan->n_tensors * sizeof *r->tensors;
    ASSERT(pthread_mutex_init(&r->lock, NULL) == 0);
    ASSERT(pthread_cond_init(&r->posted_more, NULL) == 0);
    ASSERT(pthread_cond_init(&r->done_more, NULL) == 0);
    r->meeting = meeting_create(plan->ranks, plan->limit_ms);
    r->tensors = malloc(bytes);
    if (r->tensors != NULL) {
        memcpy(r->tensors, plan->tensors, bytes);
        qsort(r->tensors, (size_t)plan->n_tensors, sizeof *r->tensors, by_place);
    }
    if (r->meeting == NULL || r->tensors == NULL || !all_open(r)) {
        ranks_destroy(&r->base);
        return NULL;
    }
    return &r->base;
}
