/* Leaves of files, hashed by several threads. */
#include "engine/model/leafcheck.h"

#include "engine/base/thread.h"

#include <sodium.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#define HASH_HEX   (2 * crypto_hash_sha256_BYTES)
#define LINE_BYTES (HASH_HEX + 1)

/* What the threads share; a leaf is counted over all files. */
struct work {
    const struct leafcheck_file *files;
    size_t count;
    const char *text;
    size_t leaves;
    atomic_size_t next; /* the leaf that nobody has taken yet */
    atomic_size_t bad;  /* the lowest that differs; `leaves`: none */
};

static size_t leaves_of(const struct leafcheck_file *file)
{
    return file->map.size / LEAF_BYTES + (file->map.size % LEAF_BYTES != 0);
}

/* The file of a leaf, and the leaf's number in it. */
static const struct leafcheck_file *owner(const struct work *w, size_t *leaf)
{
    const struct leafcheck_file *file = w->files;
    while (*leaf >= leaves_of(file))
        *leaf -= leaves_of(file++);
    return file;
}

static bool is_hash(const char *line)
{
    for (int i = 0; i < (int)HASH_HEX; i++)
        if (!((line[i] >= '0' && line[i] <= '9') || (line[i] >= 'a' && line[i] <= 'f')))
            return false;
    return true;
}

static bool fits(const struct work *w, size_t leaf)
{
    unsigned char hash[crypto_hash_sha256_BYTES];
    char hex[HASH_HEX + 1];
    const char *line = w->text + leaf * LINE_BYTES;
    const struct leafcheck_file *file = owner(w, &leaf);
    size_t at = leaf * LEAF_BYTES, left = file->map.size - at;
    crypto_hash_sha256(hash, file->map.data + at, left < LEAF_BYTES ? left : LEAF_BYTES);
    sodium_bin2hex(hex, sizeof hex, hash, sizeof hash);
    return memcmp(hex, line, HASH_HEX) == 0;
}

static void *run(void *context)
{
    struct work *w = context;
    for (size_t leaf; (leaf = atomic_fetch_add(&w->next, 1)) < w->leaves;) {
        if (fits(w, leaf))
            continue;
        size_t lowest = atomic_load(&w->bad);
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

enum status leafcheck(const struct leafcheck_file *files, size_t count, const char *path,
                      const struct buf *text, struct error *err)
{
    struct work work = {.files = files, .count = count, .text = text->data};
    for (size_t i = 0; i < count; i++)
        work.leaves += leaves_of(&files[i]);
    if (work.leaves > LEAVES_MAX || text->len != work.leaves * LINE_BYTES)
        return error_set(err, ERR_INPUT, "%s: %zu bytes, not a line for each of %zu leaves", path,
                         text->len, work.leaves);
    for (size_t i = 0; i < work.leaves; i++) {
        const char *line = text->data + i * LINE_BYTES;
        if (!is_hash(line) || line[HASH_HEX] != '\n')
            return error_set(err, ERR_INPUT, "%s: line %zu: expected a sha256", path, i + 1);
    }
    atomic_init(&work.next, 0);
    atomic_init(&work.bad, work.leaves);
    run_all(&work);
    size_t bad = atomic_load(&work.bad);
    if (bad == work.leaves)
        return OK;
    const struct leafcheck_file *file = owner(&work, &bad);
    return error_set(err, ERR_CHECK, "%s: SHA-256 differs within the MiB at byte %zu", file->path,
                     bad * LEAF_BYTES);
}
