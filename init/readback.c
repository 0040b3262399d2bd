/* Reads a model's folder, leaf by leaf. */
#include "init/readback.h"

#include "init/files.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PATH_BYTES 512

struct work {
    const char *path; /* borrows */
    const struct leaves *m;
    uint8_t *state;
    atomic_uint next; /* the leaf that nobody has taken yet; the threads share nothing else */
};

static bool read_whole(int fd, uint8_t *bytes, size_t n, off_t at)
{
    for (size_t len = 0; len < n;) {
        ssize_t got = pread(fd, bytes + len, n - len, at + (off_t)len);
        if (got <= 0)
            return false;
        len += (size_t)got;
    }
    return true;
}

/* A file of another size has no leaf that could be trusted. */
static int open_file(const struct work *w, const struct leaves_file *file)
{
    char path[PATH_BYTES];
    off_t size;
    if (snprintf(path, sizeof path, "%s/%s", w->path, file->name) >= (int)sizeof path)
        return -1;
    int fd = file_open(path, O_RDONLY, &size);
    if (fd >= 0 && size != (off_t)file->bytes) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static enum leaf_state look(const struct leaves *m, const struct leaves_file *file, uint32_t leaf,
                            int fd, uint8_t *bytes)
{
    off_t at = (off_t)(leaf - file->first) * LEAF_BYTES;
    size_t n = leaves_size(file, leaf);
    if (fd < 0 || !read_whole(fd, bytes, n, at))
        return LEAF_UNREADABLE;
    /* What was read once is of no use to the kernel's memory, which the engine needs. */
    posix_fadvise(fd, at, (off_t)n, POSIX_FADV_DONTNEED);
    return leaves_fit(m, leaf, bytes, n) ? LEAF_GOOD : LEAF_DIFFERS;
}

static void *run(void *context)
{
    struct work *w = context;
    const struct leaves_file *file = NULL;
    uint8_t *bytes = malloc(LEAF_BYTES);
    int fd = -1;
    for (;;) {
        uint32_t leaf = atomic_fetch_add(&w->next, 1);
        if (leaf >= w->m->count || bytes == NULL)
            break;
        const struct leaves_file *owner = leaves_owner(w->m, leaf);
        if (owner != file) {
            if (fd >= 0)
                close(fd);
            file = owner;
            fd = open_file(w, file);
        }
        w->state[leaf] = (uint8_t)look(w->m, file, leaf, fd, bytes);
    }
    if (fd >= 0)
        close(fd);
    free(bytes);
    return NULL;
}

/* What was written a moment ago is read from the disk, not from the memory it was written through.
 */
static void forget(const struct work *w)
{
    for (int i = 0; i < w->m->files; i++) {
        int fd = open_file(w, &w->m->file[i]);
        if (fd < 0)
            continue;
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        close(fd);
    }
}

uint32_t readback(const char *path, const struct leaves *m, uint8_t *state)
{
    struct work work = {.path = path, .m = m, .state = state};
    pthread_t thread[LEAVES_THREADS_MAX];
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int threads = 0, wanted = cores < LEAVES_THREADS_MAX ? (int)cores : LEAVES_THREADS_MAX;
    uint32_t bad = 0;
    for (uint32_t i = 0; i < m->count; i++)
        state[i] = LEAF_UNREADABLE;
    forget(&work);
    while (threads < wanted - 1 && pthread_create(&thread[threads], NULL, run, &work) == 0)
        threads++;
    run(&work);
    while (threads > 0)
        pthread_join(thread[--threads], NULL);
    for (uint32_t i = 0; i < m->count; i++)
        bad += state[i] != LEAF_GOOD;
    return bad;
}
