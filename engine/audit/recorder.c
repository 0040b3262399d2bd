/* A fixed number of places; the oldest that is not pinned is taken. */
#include "engine/audit/recorder.h"

#include "kernels/check.h"

#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PLACES (RECORDER_RECENT + RECORDER_PINS_MAX)

struct recorder {
    pthread_mutex_t lock;            /* protects all below */
    struct recording places[PLACES]; /* own their ids; id "": free */
    uint64_t turns[PLACES];          /* when each was taken: the smallest is the oldest */
    uint64_t turn;
    bool next; /* the next request is pinned */
};

struct recorder *recorder_create(void)
{
    struct recorder *r = calloc(1, sizeof *r);
    ASSERT(r != NULL && pthread_mutex_init(&r->lock, NULL) == 0);
    return r;
}

void recorder_destroy(struct recorder *r)
{
    if (r == NULL)
        return;
    for (int i = 0; i < PLACES; i++)
        recording_clear(&r->places[i]);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

static void ids_wipe(struct ids *ids)
{
    if (ids->cap > 0)
        sodium_memzero(ids->data, ids->cap * sizeof *ids->data);
    ids_free(ids);
    *ids = (struct ids){0};
}

void recording_clear(struct recording *recording)
{
    ids_wipe(&recording->prompt);
    ids_wipe(&recording->answer);
    *recording = (struct recording){0};
}

static void ids_copy(struct ids *out, const struct ids *from)
{
    for (size_t i = 0; i < from->len; i++)
        ids_add(out, from->data[i]);
}

/* Of ids as little-endian 32-bit numbers, which they are in memory here. */
static void hash_ids(const struct ids *ids, char out[RECORDING_HASH_CHARS + 1])
{
    uint8_t hash[crypto_hash_sha256_BYTES];
    crypto_hash_sha256(hash, (const uint8_t *)ids->data, ids->len * sizeof *ids->data);
    sodium_bin2hex(out, RECORDING_HASH_CHARS + 1, hash, sizeof hash);
}

/* Surfaces put words in front: "chatcmpl-", "msg_", "resp_", "req_". */
static const char *bare(const char *id)
{
    const char *line = strrchr(id, '-'), *under = strrchr(id, '_');
    const char *last = line > under || under == NULL ? line : under;
    return last == NULL ? id : last + 1;
}

/* Under the lock.  @return NULL: none */
static struct recording *find(struct recorder *r, const char *id, bool pinned)
{
    const char *wanted = bare(id);
    for (int i = 0; i < PLACES && wanted[0] != '\0'; i++) {
        struct recording *one = &r->places[i];
        if (strcmp(one->id, wanted) == 0 && (one->pinned || !pinned))
            return one;
    }
    return NULL;
}

static int count_pinned(const struct recorder *r)
{
    int n = 0;
    for (int i = 0; i < PLACES; i++)
        n += r->places[i].pinned;
    return n;
}

/* A free place, or that of the oldest that is not pinned: there are more places than pins. */
static int choose(const struct recorder *r)
{
    int chosen = -1;
    for (int i = 0; i < PLACES; i++) {
        if (!r->places[i].pinned && (chosen < 0 || r->turns[i] < r->turns[chosen]))
            chosen = i;
    }
    ASSERT(chosen >= 0);
    return chosen;
}

void recorder_begin(struct recorder *r, const struct recording *what, const struct ids *prompt)
{
    if (prompt->len > RECORDING_TOKENS_MAX)
        return;
    pthread_mutex_lock(&r->lock);
    int place = choose(r);
    struct recording *one = &r->places[place];
    recording_clear(one);
    *one = *what;
    snprintf(one->id, sizeof one->id, "%s", bare(what->id));
    one->prompt = one->answer = (struct ids){0};
    ids_copy(&one->prompt, prompt);
    hash_ids(prompt, one->prompt_hash);
    one->ended = false;
    one->pinned = r->next;
    r->next = false;
    r->turns[place] = ++r->turn;
    pthread_mutex_unlock(&r->lock);
}

void recorder_end(struct recorder *r, const char *id, const struct ids *answer, int32_t reused)
{
    pthread_mutex_lock(&r->lock);
    struct recording *one = find(r, id, false);
    if (one != NULL && !one->ended) {
        ids_copy(&one->answer, answer);
        one->reused = reused;
        one->ended = true;
    }
    pthread_mutex_unlock(&r->lock);
}

enum status recorder_pin(struct recorder *r, const char *id, struct error *err)
{
    enum status status = OK;
    pthread_mutex_lock(&r->lock);
    bool next = strcmp(id, "next") == 0;
    struct recording *one = next ? NULL : find(r, id, false);
    if (!next && one == NULL)
        status = error_set(err, ERR_INPUT,
                           "no request of that id is among the newest %d; `audit pin next` pins "
                           "the one that comes next",
                           RECORDER_RECENT);
    else if ((next || !one->pinned) && count_pinned(r) + r->next >= RECORDER_PINS_MAX)
        status = error_set(err, ERR_CAPACITY, "%d requests are pinned; `audit unpin` forgets one",
                           RECORDER_PINS_MAX);
    else if (next)
        r->next = true;
    else
        one->pinned = true;
    pthread_mutex_unlock(&r->lock);
    return status;
}

enum status recorder_unpin(struct recorder *r, const char *id, struct error *err)
{
    pthread_mutex_lock(&r->lock);
    bool next = strcmp(id, "next") == 0 && r->next;
    struct recording *one = next ? NULL : find(r, id, true);
    if (next)
        r->next = false;
    if (one != NULL)
        recording_clear(one);
    pthread_mutex_unlock(&r->lock);
    return next || one != NULL ? OK : error_set(err, ERR_INPUT, "no request of that id is pinned");
}

enum status recorder_get(struct recorder *r, const char *id, struct recording *out,
                         struct error *err)
{
    enum status status = OK;
    pthread_mutex_lock(&r->lock);
    struct recording *one = find(r, id, true);
    if (one == NULL)
        status = error_set(err, ERR_INPUT, "no request of that id is pinned");
    else if (!one->ended)
        status = error_set(err, ERR_INPUT, "the request runs still");
    if (status == OK) {
        *out = *one;
        out->prompt = out->answer = (struct ids){0};
        ids_copy(&out->prompt, &one->prompt);
        ids_copy(&out->answer, &one->answer);
    }
    pthread_mutex_unlock(&r->lock);
    return status;
}

int recorder_list(struct recorder *r, struct recording out[RECORDER_PINS_MAX])
{
    int n = 0;
    uint64_t after = 0;
    pthread_mutex_lock(&r->lock);
    for (int found = 0; found >= 0;) {
        found = -1;
        for (int i = 0; i < PLACES; i++) {
            bool older = found < 0 || r->turns[i] < r->turns[found];
            if (r->places[i].pinned && r->turns[i] > after && older)
                found = i;
        }
        if (found >= 0) {
            ASSERT(n < RECORDER_PINS_MAX);
            after = r->turns[found];
            out[n++] = r->places[found]; /* the ids are views that nobody follows */
        }
    }
    pthread_mutex_unlock(&r->lock);
    return n;
}
