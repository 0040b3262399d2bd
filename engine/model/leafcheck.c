/* Leaves of files, hashed by several threads. */
#include "engine/model/leafcheck.h"

#include "engine/base/thread.h"
#include "kernels/check.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

/* What the threads share; a leaf is counted over all files. */
struct work {
    const struct leaves *m;
    const struct leafcheck_file *files;
    atomic_uint next; /* the leaf that nobody has taken yet */
    atomic_uint bad;  /* the lowest that differs; `count`: none */
};

static bool fits(const struct work *w, uint32_t leaf)
{
    const struct leaves_file *file = leaves_owner(w->m, leaf);
    const struct mapping *map = &w->files[file - w->m->file].map;
    size_t at = (size_t)(leaf - file->first) * LEAF_BYTES;
    return leaves_fit(w->m, leaf, map->data + at, leaves_size(file, leaf));
}

static void *run(void *context)
{
    struct work *w = context;
    for (uint32_t leaf; (leaf = atomic_fetch_add(&w->next, 1)) < w->m->count;) {
        if (fits(w, leaf))
            continue;
        uint32_t lowest = atomic_load(&w->bad);
        while (leaf < lowest && !atomic_compare_exchange_weak(&w->bad, &lowest, leaf))
            ;
    }
    return NULL;
}

/* This thread does its part; with fewer of them it only takes longer. */
static void run_all(struct work *w)
{
    pthread_t thread[LEAVES_THREADS_MAX];
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int threads = 0, wanted = cores < LEAVES_THREADS_MAX ? (int)cores : LEAVES_THREADS_MAX;
    while (threads < wanted - 1 && thread_start(&thread[threads], "leaves", run, w, NULL) == OK)
        threads++;
    run(w);
    while (threads > 0)
        pthread_join(thread[--threads], NULL);
}

enum status leafcheck(const struct leaves *m, const struct leafcheck_file *files, struct error *err)
{
    struct work work = {.m = m, .files = files};
    for (int i = 0; i < m->files; i++)
        ASSERT(files[i].map.size == m->file[i].bytes);
    atomic_init(&work.next, 0);
    atomic_init(&work.bad, m->count);
    run_all(&work);
    uint32_t bad = atomic_load(&work.bad);
    if (bad == m->count)
        return OK;
    const struct leaves_file *file = leaves_owner(m, bad);
    return error_set(err, ERR_CHECK, "%s: SHA-256 differs within the MiB at byte %zu",
                     files[file - m->file].path, (size_t)(bad - file->first) * LEAF_BYTES);
}
