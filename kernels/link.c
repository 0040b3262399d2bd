/* Shared memory between engine and worker: making, checking, sleeping on it. */
#include "kernels/link.h"

#include "config/model.h"
#include "kernels/check.h"

#include <assert.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The same bytes whoever compiles it: no padding, words that any processor changes at once. */
static_assert(sizeof(struct link_segment) == 16, "no padding");
static_assert(sizeof(struct link_step) ==
                  16 + PRECISION_ROWS_MAX + LINK_SEGMENTS_MAX * 16 + STEP_TOKENS_MAX * 4,
              "no padding");
static_assert(sizeof(struct link_head) == 40 && offsetof(struct link, posted) == 40, "fixed");
static_assert(ATOMIC_INT_LOCK_FREE == 2, "atomics are words of memory");
static_assert((int)PRECISION_ROWS <= PRECISION_ROWS_MAX, "every row has its place");
static_assert((LINK_STEPS & (LINK_STEPS - 1)) == 0, "numbers wrap");

static struct link_head head_of(int32_t slots, int32_t tokens_max)
{
    return (struct link_head){.magic = LINK_MAGIC,
                              .version = LINK_VERSION,
                              .bytes = sizeof(struct link),
                              .rows = PRECISION_ROWS,
                              .table = PRECISION_TABLE_VERSION,
                              .slots = slots,
                              .tokens_max = tokens_max,
                              .engine = (int32_t)getpid()};
}

static struct link *map(int fd)
{
    void *memory = mmap(NULL, sizeof(struct link), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

struct link *link_create(int32_t slots, int32_t tokens_max, int *fd)
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
    link->head = head_of(slots, tokens_max);
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
    struct link_head own = head_of(h->slots, h->tokens_max);
    const struct {
        const char *name;
        bool good;
    } fields[] = {
        {"magic", h->magic == own.magic},
        {"version", h->version == own.version},
        {"bytes", h->bytes == own.bytes},
        {"rows", h->rows == own.rows},
        {"table", h->table == own.table},
        {"slots", h->slots >= 1 && h->slots <= LINK_SEGMENTS_MAX},
        {"zero", h->zero == 0},
        {"tokens_max", h->tokens_max >= 1 && h->tokens_max <= POSITIONS_MAX},
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (!fields[i].good)
            return fields[i].name;
    }
    return NULL;
}

/* @param taken  tokens of the segments before */
static const char *segment_wrong(const struct link_step *step, const struct link_segment *g,
                                 int32_t taken, const struct link_limits *limits)
{
    if (g->slot < 0 || g->slot >= limits->slots)
        return "slot";
    if (g->n < 1 || g->n > step->n_ids - taken)
        return "n";
    if (g->leg != LEG_DECODE && (g->leg != LEG_PREFILL || step->kind == LINK_DRAFT))
        return "leg";
    if ((g->flags & ~LINK_FLAGS) != 0)
        return "flags";
    if (g->zero[0] != 0 || g->zero[1] != 0)
        return "zero";
    const struct link_timeline *t = &limits->timelines[g->slot];
    if (step->kind == LINK_DRAFT) {
        /* Streams of more positions than those of one step and the last one are not kept. */
        int32_t behind = t->length - t->draft_length;
        if (g->position != t->draft_length || behind > STEP_TOKENS_MAX + 1)
            return "position";
        return g->n > behind ? "n" : NULL;
    }
    if (g->position != 0 && g->position != t->length)
        return "position";
    return g->n > limits->tokens_max - g->position ? "n" : NULL;
}

const char *link_step_wrong(const struct link_step *step, const struct link_limits *limits)
{
    bool seen[LINK_SEGMENTS_MAX] = {false};
    int32_t taken = 0;
    if (step->kind >= LINK_KINDS || (step->kind == LINK_DRAFT && !limits->drafts))
        return "kind";
    if (step->n_segments < 1 || step->n_segments > LINK_SEGMENTS_MAX)
        return "n_segments";
    if (step->n_ids < 1 || step->n_ids > STEP_TOKENS_MAX)
        return "n_ids";
    for (int row = 0; row < PRECISION_ROWS_MAX; row++) {
        if (step->values[row] >= (row < (int)PRECISION_ROWS ? PRECISION[row].n_values : 1))
            return "values";
    }
    for (int32_t i = 0; i < step->n_segments; i++) {
        const struct link_segment *g = &step->segments[i];
        const char *wrong = segment_wrong(step, g, taken, limits);
        if (wrong != NULL)
            return wrong;
        if (seen[g->slot])
            return "slot";
        seen[g->slot] = true;
        taken += g->n;
    }
    if (taken != step->n_ids)
        return "n_ids";
    for (int32_t i = 0; i < step->n_ids; i++) {
        if (step->ids[i] < 0 || step->ids[i] >= limits->vocab)
            return "ids";
    }
    return NULL;
}

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
