/* Counters of keys and addresses: two fixed tables under one lock. */
#include "engine/api/meter.h"

#include "config/limits.h"
#include "engine/base/clock.h"
#include "kernels/check.h"

#include <pthread.h>
#include <sodium.h>
#include <stdlib.h>
#include <time.h>

#define MINUTE_MS 60000
#define DAY_S     86400
#define USES      (2 * KEYS_MAX) /* keys that are gone may still run something */

/* A bucket that fills evenly, as the time at which it will be full again. */
struct bucket {
    int64_t full_ms;
};

struct use {
    uint64_t key; /* 0: free */
    struct bucket rate;
    int64_t running, last_ms;
    int64_t day, tokens; /* of this day */
};

struct address {
    uint64_t hash;
    struct bucket failures;
};

struct meter {
    pthread_mutex_t lock; /* protects everything below */
    struct use uses[USES];
    struct address addresses[KEY_FAILURE_ADDRESSES];
    unsigned char hash_key[crypto_shorthash_KEYBYTES]; /* nobody can choose an address to collide */
};

struct meter_time meter_now(void)
{
    return (struct meter_time){.ms = clock_ms(), .utc_s = (int64_t)time(NULL)};
}

struct meter *meter_create(void)
{
    struct meter *meter = calloc(1, sizeof *meter);
    ASSERT(meter != NULL);
    ASSERT(pthread_mutex_init(&meter->lock, NULL) == 0);
    randombytes_buf(meter->hash_key, sizeof meter->hash_key);
    return meter;
}

void meter_destroy(struct meter *meter)
{
    if (meter == NULL)
        return;
    pthread_mutex_destroy(&meter->lock);
    free(meter);
}

/* Takes one of `per_minute`.  @return 0, or the wait in ms until there is one */
static int64_t bucket_take(struct bucket *bucket, int64_t per_minute, int64_t now_ms)
{
    int64_t from = bucket->full_ms > now_ms ? bucket->full_ms : now_ms;
    int64_t full = from + (MINUTE_MS + per_minute - 1) / per_minute;
    if (full - now_ms > MINUTE_MS)
        return full - now_ms - MINUTE_MS;
    bucket->full_ms = full;
    return 0;
}

/* ---- keys ------------------------------------------------------------------------------------ */

_Static_assert(USES > HTTP_CONNECTIONS_MAX, "some entry runs nothing");

/* The counters of a key.  A place that was never used makes room, else a key that runs nothing and
 * came longest ago: one that was deleted, since there are more places than keys. */
static struct use *use_of(struct meter *meter, uint64_t key)
{
    struct use *idle = NULL;
    for (int i = 0; i < USES; i++) {
        struct use *use = &meter->uses[i];
        if (use->key == key)
            return use;
        bool older = idle == NULL || (idle->key != 0 && use->last_ms < idle->last_ms);
        if (use->running == 0 && older)
            idle = use;
    }
    ASSERT(idle != NULL);
    *idle = (struct use){.key = key};
    return idle;
}

static void turn_day(struct use *use, int64_t utc_s)
{
    if (use->day == utc_s / DAY_S)
        return;
    use->day = utc_s / DAY_S;
    use->tokens = 0;
}

static bool refuse(struct api_error *err, enum api_code code, int64_t limit, int64_t wait_s)
{
    api_fail_limit(err, code, NULL, limit, NUMBER_NONE);
    err->retry_s = (int32_t)wait_s;
    return false;
}

static bool begin(struct use *use, const struct key_limits *limits, struct meter_time now,
                  struct api_error *err)
{
    int64_t rate = limits->values[KEY_RATE], tokens = limits->values[KEY_TOKENS];
    int64_t concurrent = limits->values[KEY_CONCURRENT];
    turn_day(use, now.utc_s);
    if (tokens > 0 && use->tokens >= tokens)
        return refuse(err, API_TOKENS, tokens, DAY_S - now.utc_s % DAY_S);
    if (concurrent > 0 && use->running >= concurrent)
        return refuse(err, API_CONCURRENT, concurrent, 0);
    int64_t wait_ms = rate == 0 ? 0 : bucket_take(&use->rate, rate, now.ms);
    if (wait_ms > 0)
        return refuse(err, API_RATE, rate, (wait_ms + 999) / 1000);
    use->running++;
    return true;
}

bool meter_begin(struct meter *meter, const struct key *key, struct meter_time now,
                 struct api_error *err)
{
    pthread_mutex_lock(&meter->lock);
    struct use *use = use_of(meter, key->number);
    use->last_ms = now.ms;
    bool good = begin(use, &key->limits, now, err);
    pthread_mutex_unlock(&meter->lock);
    return good;
}

void meter_end(struct meter *meter, uint64_t key_number)
{
    pthread_mutex_lock(&meter->lock);
    struct use *use = use_of(meter, key_number);
    ASSERT(use->running > 0);
    use->running--;
    pthread_mutex_unlock(&meter->lock);
}

void meter_tokens(struct meter *meter, uint64_t key_number, struct meter_time now, int64_t tokens)
{
    pthread_mutex_lock(&meter->lock);
    struct use *use = use_of(meter, key_number);
    turn_day(use, now.utc_s);
    use->tokens += tokens;
    pthread_mutex_unlock(&meter->lock);
}

/* ---- addresses ------------------------------------------------------------------------------- */

static struct address *address_of(struct meter *meter, const void *address, size_t len)
{
    uint64_t hash;
    struct address *least = &meter->addresses[0];
    crypto_shorthash((unsigned char *)&hash, address, len, meter->hash_key);
    for (int i = 0; i < KEY_FAILURE_ADDRESSES; i++) {
        struct address *one = &meter->addresses[i];
        if (one->hash == hash && one->failures.full_ms > 0)
            return one;
        if (one->failures.full_ms < least->failures.full_ms)
            least = one;
    }
    *least = (struct address){.hash = hash};
    return least;
}

bool meter_failed(struct meter *meter, const void *address, size_t len, struct meter_time now,
                  struct api_error *err)
{
    pthread_mutex_lock(&meter->lock);
    int64_t wait_ms =
        bucket_take(&address_of(meter, address, len)->failures, KEY_FAILURES_PER_MIN, now.ms);
    pthread_mutex_unlock(&meter->lock);
    if (wait_ms == 0)
        return api_fail(err, API_KEY, NULL);
    return refuse(err, API_KEY_RATE, NUMBER_NONE, (wait_ms + 999) / 1000);
}
