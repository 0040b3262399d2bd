/* Shared memory between engine and worker: making, checking, sleeping on it. */
#include "kernels/link.h"

#include "config/model.h"
#include "kernels/check.h"

#include <assert.h>
#include <fcntl.h>
#include <float.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The same bytes whoever compiles it: no padding, words that any processor changes at once. */
static_assert(sizeof(struct link_segment) == 24 && sizeof(struct link_perturbation) == 24,
              "no padding");
static_assert(sizeof(struct link_step) ==
                  8 + 24 + PRECISION_ROWS_MAX + 48 + LINK_TIMELINES * 24 + STEP_TOKENS_MAX * 4,
              "no padding");
static_assert(sizeof(struct link_pick) == 80 && sizeof(struct link_said) == 8 &&
                  sizeof(struct link_choice) == 12 + 8 * LOGPROBS_TOP_MAX &&
                  LINK_VOCAB_MAX % 64 == 0,
              "no padding");
static_assert(sizeof(struct link_head) == 32 && offsetof(struct link, posted) == 32, "fixed");
static_assert(ATOMIC_INT_LOCK_FREE == 2, "atomics are words of memory");
static_assert((int)PRECISION_ROWS <= PRECISION_ROWS_MAX, "every row has its place");
static_assert((LINK_STEPS & (LINK_STEPS - 1)) == 0, "numbers wrap");

static_assert(sizeof(struct link_board) == 8 + sizeof(struct gauges) &&
                  offsetof(struct link, board) % 8 == 0,
              "no padding");

static struct link_head head_of(void)
{
    return (struct link_head){.magic = LINK_MAGIC,
                              .version = LINK_VERSION,
                              .bytes = sizeof(struct link),
                              .rows = PRECISION_ROWS,
                              .table = PRECISION_TABLE_VERSION,
                              .engine = (int32_t)getpid()};
}

static struct link *map(int fd)
{
    void *memory = mmap(NULL, sizeof(struct link), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

struct link *link_create(int *fd)
{
    *fd = memfd_create("v4box-link", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (*fd < 0)
        return NULL;
    /* Sealed: who has it cannot take pages from under the other. */
    struct link *link = NULL;
    if (ftruncate(*fd, sizeof *link) == 0 &&
        fcntl(*fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        link = map(*fd);
    if (link == NULL) {
        close(*fd);
        return NULL;
    }
    link->head = head_of();
    return link;
}

struct link *link_map(int fd, const char **wrong)
{
    struct stat stat;
    *wrong = "is no shared memory of this size";
    int seals = fcntl(fd, F_GET_SEALS); /* -1: no shared memory */
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
        return NULL;
    if (fstat(fd, &stat) != 0 || stat.st_size != (off_t)sizeof(struct link))
        return NULL;
    *wrong = "cannot be mapped";
    return map(fd);
}

void link_unmap(struct link *link)
{
    if (link != NULL)
        ASSERT(munmap(link, sizeof *link) == 0);
}

const char *link_head_wrong(const struct link_head *h)
{
    struct link_head own = head_of();
    const struct {
        const char *name;
        bool good;
    } fields[] = {
        {"magic", h->magic == own.magic}, {"version", h->version == own.version},
        {"bytes", h->bytes == own.bytes}, {"rows", h->rows == own.rows},
        {"table", h->table == own.table}, {"zero", h->zero == 0},
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (!fields[i].good)
            return fields[i].name;
    }
    return NULL;
}

/* ---- what a step may say -------------------------------------------------------------------- */

/* What each kind is about. */
enum about {
    ABOUT_ONE = 1,   /* one timeline */
    ABOUT_MANY = 2,  /* one or more */
    ABOUT_IDS = 4,   /* tokens */
    ABOUT_POOL = 8,  /* a pool that is there */
    ABOUT_PIECE = 16 /* a piece of it */
};

static const uint8_t ABOUT[LINK_KINDS] = {
    [LINK_STEP] = ABOUT_MANY | ABOUT_IDS,
    [LINK_DRAFT] = ABOUT_MANY | ABOUT_IDS,
    [LINK_LAYER] = ABOUT_ONE | ABOUT_IDS,
    [LINK_EXPERTS] = ABOUT_IDS,
    [LINK_OPEN] = ABOUT_ONE,
    [LINK_CLOSE] = ABOUT_ONE,
    [LINK_RESET] = ABOUT_ONE,
    [LINK_POOL_CLOSE] = ABOUT_POOL,
    [LINK_SAVE] = ABOUT_ONE | ABOUT_POOL | ABOUT_PIECE,
    [LINK_LOAD] = ABOUT_ONE | ABOUT_POOL | ABOUT_PIECE,
    [LINK_GET] = ABOUT_POOL | ABOUT_PIECE,
    [LINK_PUT] = ABOUT_POOL | ABOUT_PIECE,
};

static bool leg_runs(int32_t leg)
{
    return leg == LEG_PREFILL || leg == LEG_DECODE;
}

/* Rows of the draft block: those that the timeline has streams for, or one beyond it. */
static const char *draft_wrong(const struct link_segment *g, int32_t room)
{
    int32_t behind = g->length - g->drafted;
    if (g->leg != LEG_DECODE)
        return "leg";
    /* Streams of more positions than those of one span and the last one are not kept. */
    if (behind > SPAN_TOKENS_MAX + 1)
        return "drafted";
    if (g->beyond == 0)
        return g->n > behind ? "n" : NULL;
    if (g->beyond < 0 || g->beyond > DRAFT_DEPTH_MAX || behind != 0 || g->beyond > room - g->length)
        return "beyond";
    return g->n != 1 ? "n" : NULL;
}

/* Tokens behind a timeline. */
static const char *tokens_wrong(const struct link_step *step, const struct link_segment *g,
                                int32_t taken, const struct link_timeline *t)
{
    if (g->n < 1 || g->n > step->n_ids - taken)
        return "n";
    if (step->kind == LINK_DRAFT)
        return draft_wrong(g, t->room);
    if (!leg_runs(g->leg))
        return "leg";
    if (g->beyond != 0)
        return "beyond";
    return g->n > t->room - g->length ? "n" : NULL;
}

static int32_t picks_most(uint32_t kind)
{
    return kind == LINK_STEP ? PICKS_MAX : kind == LINK_DRAFT;
}

/* @param taken  tokens of the segments before */
static const char *segment_wrong(const struct link_step *step, const struct link_segment *g,
                                 int32_t taken, const struct link_limits *limits)
{
    if (g->timeline < 0 || g->timeline >= LINK_TIMELINES)
        return "timeline";
    if ((g->flags & ~LINK_FLAGS) != 0 || (g->flags & 3) == 3)
        return "flags";
    if (g->zero != 0)
        return "zero";
    if (g->n_picks > picks_most(step->kind) || g->n_picks > g->n)
        return "n_picks";
    const struct link_timeline *t = &limits->timelines[g->timeline];
    if ((t->room == 0) != (step->kind == LINK_OPEN))
        return "timeline";
    if (step->kind == LINK_OPEN)
        return step->room < 1 || step->room > POSITIONS_MAX ? "room" : NULL;
    /* The layers never forward, and both back by no more than the rings hold. */
    if (g->length < 0 || g->length > t->length || t->length - g->length > SLIDING_WINDOW)
        return "length";
    if (g->drafted < 0 || g->drafted > g->length || t->drafted - g->drafted > SLIDING_WINDOW)
        return "drafted";
    if ((ABOUT[step->kind] & ABOUT_IDS) != 0)
        return tokens_wrong(step, g, taken, t);
    return g->n != 0 ? "n" : NULL;
}

/* Rows that are given, and those of the draft block, are of one span. */
static int32_t ids_most(const struct link_step *step, const struct link_limits *limits)
{
    return step->kind == LINK_STEP ? limits->step_tokens : SPAN_TOKENS_MAX;
}

/* Rows of logits that a segment asks for. */
static int32_t rows_of(const struct link_segment *g)
{
    return (g->flags & LINK_WANT_ALL) != 0 ? g->n : (g->flags & LINK_WANT_LAST) != 0;
}

static const char *segments_wrong(const struct link_step *step, const struct link_limits *limits)
{
    bool seen[LINK_TIMELINES] = {false};
    int32_t about = ABOUT[step->kind], taken = 0, rows = 0;
    int32_t most = (about & ABOUT_MANY) != 0 ? LINK_TIMELINES : about & ABOUT_ONE;
    if (step->n_segments < (most > 0) || step->n_segments > most)
        return "n_segments";
    bool ids = (about & ABOUT_IDS) != 0;
    if (step->n_ids < ids || step->n_ids > (ids ? ids_most(step, limits) : 0))
        return "n_ids";
    for (int32_t i = 0; i < step->n_segments; i++) {
        const struct link_segment *g = &step->segments[i];
        const char *wrong = segment_wrong(step, g, taken, limits);
        if (wrong != NULL)
            return wrong;
        if (seen[g->timeline])
            return "timeline";
        seen[g->timeline] = true;
        taken += g->n;
        rows += rows_of(g);
        if (rows > LOGITS_ROWS_MAX)
            return "flags";
    }
    if (step->n_segments > 0 && taken != step->n_ids)
        return "n_ids";
    for (int32_t i = 0; i < step->n_ids; i++) {
        if (step->ids[i] < 0 || step->ids[i] >= limits->vocab)
            return "ids";
    }
    return NULL;
}

/* Where a piece comes from or goes to in a timeline. */
static bool at_good(const struct link_step *step, const struct link_limits *limits)
{
    const struct link_segment *g = &step->segments[0];
    bool load = step->kind == LINK_LOAD;
    int32_t end = load ? limits->timelines[g->timeline].room : g->length;
    if (load && (g->length != 0 || g->drafted != 0))
        return false;
    if (step->tail == 0)
        return step->at >= 0 && step->at < end / RATIO_HCA;
    if (step->at < 1 || step->at > end || step->at % RATIO_HCA != 0)
        return false;
    return load || g->length - step->at < SPAN_TOKENS_MAX;
}

static const char *pieces_wrong(const struct link_step *step, const struct link_limits *limits)
{
    int32_t about = ABOUT[step->kind];
    bool opens = step->kind == LINK_POOL_OPEN;
    if (!opens && (about & ABOUT_POOL) == 0)
        return NULL;
    if (step->pool < 0 || step->pool >= LINK_POOLS ||
        (limits->pools[step->pool].n_blocks == 0) != opens)
        return "pool";
    if (opens && (step->n_blocks < 1 || step->n_blocks > PREFIX_PIECES_MAX))
        return "n_blocks";
    if (opens && (step->n_tails < 1 || step->n_tails > PREFIX_PIECES_MAX))
        return "n_tails";
    if ((about & ABOUT_PIECE) == 0)
        return NULL;
    const struct link_pool *pool = &limits->pools[step->pool];
    if (step->tail != 0 && step->tail != 1)
        return "tail";
    if (step->piece < 0 || step->piece >= (step->tail != 0 ? pool->n_tails : pool->n_blocks))
        return "piece";
    return (about & ABOUT_ONE) != 0 && !at_good(step, limits) ? "at" : NULL;
}

static const char *numbers_wrong(const struct link_step *step)
{
    const struct link_perturbation *p = &step->perturbation;
    for (int row = 0; row < PRECISION_ROWS_MAX; row++) {
        if (step->values[row] >= (row < (int)PRECISION_ROWS ? PRECISION[row].n_values : 1))
            return "values";
    }
    bool numbers = p->clamp_limit >= 0 && p->clamp_limit < DBL_MAX && p->routed_factor >= 0 &&
                   p->routed_factor < DBL_MAX && p->index_topk >= 0;
    bool flags = p->routed_zero <= 1 && p->rotate_keys_only <= 1 && p->hc_transposed <= 1;
    if (!numbers || !flags)
        return "perturbation";
    if (step->mixed < 0 || step->mixed > (step->kind == LINK_OPEN))
        return "mixed";
    return p->zero != 0 ? "zero" : NULL;
}

const char *link_step_wrong(const struct link_step *step, const struct link_limits *limits)
{
    if (step->kind >= LINK_KINDS || (step->kind == LINK_DRAFT && !limits->drafts))
        return "kind";
    const char *wrong = numbers_wrong(step);
    if (wrong == NULL)
        wrong = segments_wrong(step, limits);
    if (wrong == NULL)
        wrong = pieces_wrong(step, limits);
    bool experts = step->kind == LINK_EXPERTS;
    int32_t blocks = limits->layers + (experts && limits->drafts ? 1 : 0);
    if (wrong == NULL && (experts || step->kind == LINK_LAYER) &&
        (step->block < 0 || step->block >= blocks))
        return "block";
    return wrong == NULL && experts && !leg_runs(step->leg) ? "leg" : wrong;
}

const char *link_pick_wrong(const struct link_pick *pick, int32_t vocab)
{
    if (pick->n_top < -1 || pick->n_top > LOGPROBS_TOP_MAX)
        return "n_top";
    if (pick->n_said < 0 || pick->n_said > vocab)
        return "n_said";
    if (pick->masked > 1)
        return "masked";
    return pick->zero[0] != 0 || pick->zero[1] != 0 || pick->zero[2] != 0 ? "zero" : NULL;
}

/* ---- sleeping ------------------------------------------------------------------------------- */

void link_sleep(_Atomic uint32_t *word, uint32_t seen, uint32_t ms)
{
    struct timespec time = {ms / 1000, (long)(ms % 1000) * 1000000};
    /* Not the private kind: the other side is another process. */
    syscall(SYS_futex, word, FUTEX_WAIT, seen, &time, NULL, 0);
}

void link_tell(_Atomic uint32_t *word, uint32_t value)
{
    atomic_store_explicit(word, value, memory_order_release);
    syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* ---- what is shown of GPUs ------------------------------------------------------------------ */

void link_show(struct link_board *board, const struct gauges *gauges)
{
    uint32_t turn = atomic_load_explicit(&board->turn, memory_order_relaxed);
    atomic_store_explicit(&board->turn, turn | 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release); /* nobody sees new bytes under the old number */
    board->gauges = *gauges;
    atomic_store_explicit(&board->turn, (turn | 1) + 1, memory_order_release);
}

bool link_look(const struct link_board *board, struct gauges *out)
{
    for (int i = 0; i < GAUGE_LOOKS; i++) {
        uint32_t before = atomic_load_explicit(&board->turn, memory_order_acquire);
        struct gauges copy = board->gauges;
        atomic_thread_fence(memory_order_acquire);
        uint32_t after = atomic_load_explicit(&board->turn, memory_order_relaxed);
        if (before != after || (before & 1) != 0)
            continue;
        gauges_clean(&copy);
        *out = copy;
        return true;
    }
    return false;
}
