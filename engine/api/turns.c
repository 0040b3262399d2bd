/*
 * The store of answers (turns.h): a fixed array of records in one list by time of use, and a hash
 * table over their names.  Linear work is done only when something must go.
 */
#include "engine/api/turns.h"

#include "config/limits.h"
#include "kernels/check.h"

#include <json-c/json_visit.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define N_BUCKETS 8192 /* as many as records have names; a power of two */
#define N_NAMES   2    /* by its call, by its place */

struct record;

/* One way to find a record. */
struct name {
    uint8_t hash[TURN_HASH_BYTES];
    struct record *record; /* borrows; NULL: the record has no such name */
    struct name *next;     /* in its bucket */
};

struct record {
    struct name names[N_NAMES];
    uint64_t key; /* 0: free */
    uint8_t seen[TURN_HASH_BYTES];
    bool thinking;
    struct ids ids;               /* owns; empty: the answer can not be replayed */
    struct buf reasoning;         /* owns */
    int64_t bytes;                /* of both */
    struct record *newer, *older; /* by last use */
};

struct turns {
    pthread_mutex_t lock;                  /* protects everything below */
    struct record *records;                /* owns [TURNS_MAX] */
    struct record *newest, *oldest, *free; /* `free` is chained by `older` */
    struct name *buckets[N_BUCKETS];
    struct turns_stats stats;
};

_Static_assert((N_BUCKETS & (N_BUCKETS - 1)) == 0, "buckets are chosen by a mask");

/* ---- hashes ---------------------------------------------------------------------------------- */

static void hash_add(crypto_hash_sha256_state *state, const void *bytes, size_t n)
{
    crypto_hash_sha256_update(state, bytes, n);
}

/* Length first, so that no two lists of texts hash the same bytes. */
static void hash_text(crypto_hash_sha256_state *state, const char *text, size_t n)
{
    uint64_t len = n;
    hash_add(state, &len, sizeof len);
    if (n > 0)
        hash_add(state, text, n);
}

void turns_hash(const int32_t *ids, size_t n, uint8_t out[TURN_HASH_BYTES])
{
    crypto_hash_sha256(out, (const unsigned char *)ids, n * sizeof *ids);
}

/* One value of the arguments.  Numbers by value: clients print 1.0 as 1. */
static int hash_value(struct json_object *value, int flags, struct json_object *parent,
                      const char *key, size_t *index, void *user)
{
    crypto_hash_sha256_state *state = user;
    char type = (char)json_object_get_type(value);
    (void)parent;
    (void)index;
    if ((flags & JSON_C_VISIT_SECOND) != 0) {
        hash_text(state, "end", 3);
        return JSON_C_VISIT_RETURN_CONTINUE;
    }
    if (key != NULL)
        hash_text(state, key, strlen(key));
    if (type == json_type_int)
        type = json_type_double;
    hash_add(state, &type, 1);
    if (type == json_type_double) {
        double number = json_object_get_double(value) + 0.0; /* -0 is 0 */
        hash_add(state, &number, sizeof number);
    } else if (type == json_type_string) {
        hash_text(state, json_object_get_string(value), (size_t)json_object_get_string_len(value));
    } else if (type == json_type_boolean) {
        char flag = (char)json_object_get_boolean(value);
        hash_add(state, &flag, 1);
    }
    return JSON_C_VISIT_RETURN_CONTINUE;
}

/* Arguments by what they say, as clients parse them and print them anew. */
static void hash_arguments(crypto_hash_sha256_state *state, const char *text, size_t len)
{
    struct json_object *value = NULL;
    if (json_parse(text, len, &value, NULL, NULL) == OK)
        json_c_visit(value, 0, hash_value, state);
    else
        hash_text(state, text, len);
    json_object_put(value);
}

/* Some clients trim what they keep. */
static void trim(const char **text, size_t *len)
{
    static const char SPACE[] = " \t\r\n";
    while (*len > 0 && memchr(SPACE, (*text)[*len - 1], 4) != NULL)
        (*len)--;
    while (*len > 0 && memchr(SPACE, **text, 4) != NULL) {
        (*text)++;
        (*len)--;
    }
}

static void hash_content(crypto_hash_sha256_state *state, const char *text, size_t len)
{
    trim(&text, &len);
    hash_text(state, text, len);
}

/* ---- what a client saw of an answer ---------------------------------------------------------- */

static const char *text_of(const struct buf *b)
{
    return b->len == 0 ? "" : b->data;
}

static void hash_turn(const struct turn *turn, uint8_t out[TURN_HASH_BYTES])
{
    crypto_hash_sha256_state state;
    crypto_hash_sha256_init(&state);
    hash_content(&state, text_of(turn->content), turn->content->len);
    for (int32_t i = 0; i < turn->n_calls; i++) {
        const struct dsml_call *call = turn->calls[i].call;
        hash_text(&state, call->name.data, call->name.len);
        hash_arguments(&state, call->arguments.data, call->arguments.len);
    }
    crypto_hash_sha256_final(&state, out);
}

static const char *string_of(struct json_object *string, size_t *len)
{
    *len = string == NULL ? 0 : (size_t)json_object_get_string_len(string);
    return string == NULL ? "" : json_object_get_string(string);
}

/* The same of a turn that a client sent; its fields are checked and its content is one string. */
static void hash_sent(const struct chat_sent *sent, uint8_t out[TURN_HASH_BYTES])
{
    crypto_hash_sha256_state state;
    size_t n = sent->tool_calls == NULL ? 0 : json_object_array_length(sent->tool_calls), len;
    const char *text = string_of(sent->content, &len);
    crypto_hash_sha256_init(&state);
    hash_content(&state, text, len);
    for (size_t i = 0; i < n; i++) {
        struct json_object *function =
            json_member(json_object_array_get_idx(sent->tool_calls, i), "function", NULL);
        text = string_of(json_member(function, "name", NULL), &len);
        hash_text(&state, text, len);
        text = string_of(json_member(function, "arguments", NULL), &len);
        hash_arguments(&state, text, len);
    }
    crypto_hash_sha256_final(&state, out);
}

/* ---- names ----------------------------------------------------------------------------------- */

static void name_by_call(uint64_t key, const char *id, size_t len, uint8_t out[TURN_HASH_BYTES])
{
    crypto_hash_sha256_state state;
    crypto_hash_sha256_init(&state);
    hash_text(&state, "call", 4);
    hash_add(&state, &key, sizeof key);
    hash_text(&state, id, len);
    crypto_hash_sha256_final(&state, out);
}

static void name_by_place(uint64_t key, const uint8_t context[TURN_HASH_BYTES],
                          const uint8_t seen[TURN_HASH_BYTES], uint8_t out[TURN_HASH_BYTES])
{
    crypto_hash_sha256_state state;
    crypto_hash_sha256_init(&state);
    hash_text(&state, "place", 5);
    hash_add(&state, &key, sizeof key);
    hash_add(&state, context, TURN_HASH_BYTES);
    hash_add(&state, seen, TURN_HASH_BYTES);
    crypto_hash_sha256_final(&state, out);
}

static struct name **bucket_of(struct turns *t, const uint8_t hash[TURN_HASH_BYTES])
{
    uint32_t bits;
    memcpy(&bits, hash, sizeof bits);
    return &t->buckets[bits & (N_BUCKETS - 1)];
}

static struct record *find(struct turns *t, const uint8_t hash[TURN_HASH_BYTES])
{
    for (struct name *name = *bucket_of(t, hash); name != NULL; name = name->next) {
        if (memcmp(name->hash, hash, TURN_HASH_BYTES) == 0)
            return name->record;
    }
    return NULL;
}

static void name_enter(struct turns *t, struct name *name, struct record *record)
{
    struct name **bucket = bucket_of(t, name->hash);
    name->record = record;
    name->next = *bucket;
    *bucket = name;
}

static void name_remove(struct turns *t, struct name *name)
{
    struct name **link = bucket_of(t, name->hash);
    if (name->record == NULL)
        return;
    while (*link != name)
        link = &(*link)->next;
    *link = name->next;
    name->record = NULL;
}

/* ---- records --------------------------------------------------------------------------------- */

static void list_take(struct turns *t, struct record *r)
{
    *(r->newer != NULL ? &r->newer->older : &t->newest) = r->older;
    *(r->older != NULL ? &r->older->newer : &t->oldest) = r->newer;
}

static void list_enter(struct turns *t, struct record *r)
{
    r->newer = NULL;
    r->older = t->newest;
    *(t->newest != NULL ? &t->newest->newer : &t->oldest) = r;
    t->newest = r;
}

static void drop(struct turns *t, struct record *r)
{
    list_take(t, r);
    for (int i = 0; i < N_NAMES; i++)
        name_remove(t, &r->names[i]);
    ids_free(&r->ids);
    buf_free(&r->reasoning);
    t->stats.kept--;
    t->stats.bytes -= r->bytes;
    *r = (struct record){.older = t->free};
    t->free = r;
}

static int64_t bytes_of_key(const struct turns *t, uint64_t key)
{
    int64_t bytes = 0;
    for (const struct record *r = t->newest; r != NULL; r = r->older)
        bytes += r->key == key ? r->bytes : 0;
    return bytes;
}

/* Makes room for a record of `bytes` for `key`. */
static void make_room(struct turns *t, uint64_t key, int64_t bytes)
{
    int64_t own = bytes_of_key(t, key);
    for (struct record *r = t->oldest, *newer; r != NULL && own + bytes > TURNS_KEY_BYTES_MAX;
         r = newer) {
        newer = r->newer;
        if (r->key == key) {
            own -= r->bytes;
            drop(t, r);
        }
    }
    while (t->oldest != NULL && (t->free == NULL || t->stats.bytes + bytes > TURNS_BYTES_MAX))
        drop(t, t->oldest);
}

void turns_put(struct turns *t, const struct turn *turn)
{
    struct record new = {.key = turn->key, .thinking = turn->thinking};
    size_t n_ids = turn->ids == NULL ? 0 : turn->ids->len;
    if (t == NULL || turn->key == 0 || (n_ids == 0 && turn->reasoning->len == 0))
        return;
    hash_turn(turn, new.seen);
    for (size_t i = 0; i < n_ids; i++)
        ids_add(&new.ids, turn->ids->data[i]);
    buf_add(&new.reasoning, text_of(turn->reasoning), turn->reasoning->len);
    new.bytes = (int64_t)(new.ids.cap * sizeof(int32_t) + new.reasoning.cap);
    if (new.bytes > TURNS_KEY_BYTES_MAX) {
        ids_free(&new.ids);
        buf_free(&new.reasoning);
        return;
    }
    name_by_place(turn->key, turn->context, new.seen, new.names[1].hash);
    if (turn->n_calls > 0)
        name_by_call(turn->key, turn->calls[0].id, CALL_ID_CHARS, new.names[0].hash);

    pthread_mutex_lock(&t->lock);
    struct record *same = find(t, new.names[1].hash);
    if (same != NULL) /* the newer one counts */
        drop(t, same);
    make_room(t, turn->key, new.bytes);
    struct record *r = t->free;
    t->free = r->older;
    *r = new;
    if (turn->n_calls > 0)
        name_enter(t, &r->names[0], r);
    name_enter(t, &r->names[1], r);
    list_enter(t, r);
    t->stats.kept++;
    t->stats.bytes += r->bytes;
    pthread_mutex_unlock(&t->lock);
}

/* ---- reading --------------------------------------------------------------------------------- */

void turns_reader_init(struct turns_reader *reader, struct turns *turns, uint64_t key)
{
    *reader = (struct turns_reader){.turns = turns, .key = key};
    crypto_hash_sha256_init(&reader->hash);
}

/* The hash of the ids in front; `before` only ever grows. */
static void hash_before(struct turns_reader *reader, const struct ids *before,
                        uint8_t out[TURN_HASH_BYTES])
{
    hash_add(&reader->hash, before->data + reader->n_hashed,
             (before->len - reader->n_hashed) * sizeof *before->data);
    reader->n_hashed = before->len;
    crypto_hash_sha256_state all = reader->hash;
    crypto_hash_sha256_final(&all, out);
}

/* True for reasoning that is absent, empty, whole, or cut at the front. */
static bool is_rest_of(struct json_object *sent, const struct buf *whole)
{
    size_t len, whole_len = whole->len;
    const char *text = string_of(sent, &len), *whole_text = text_of(whole);
    trim(&text, &len);
    trim(&whole_text, &whole_len);
    return len <= whole_len && memcmp(text, whole_text + whole_len - len, len) == 0;
}

static enum chat_source recall(const struct record *r, const struct chat_sent *sent,
                               const uint8_t seen[TURN_HASH_BYTES], struct chat_recalled *out)
{
    if (sent->thinking && !is_rest_of(sent->reasoning, &r->reasoning))
        return CHAT_SENT; /* the client's own words */
    if (r->thinking == sent->thinking && r->ids.len > 0 &&
        memcmp(r->seen, seen, TURN_HASH_BYTES) == 0) {
        for (size_t i = 0; i < r->ids.len; i++)
            ids_add(&out->ids, r->ids.data[i]);
        return CHAT_REPLAYED;
    }
    size_t len;
    string_of(sent->reasoning, &len);
    if (!sent->thinking || r->reasoning.len == 0 || len == r->reasoning.len)
        return CHAT_SENT;
    buf_add(&out->reasoning, r->reasoning.data, r->reasoning.len);
    return CHAT_REASONING;
}

enum chat_source turns_recall(void *user, const struct chat_sent *sent, const struct ids *before,
                              struct chat_recalled *out)
{
    struct turns_reader *reader = user;
    struct turns *t = reader->turns;
    uint8_t context[TURN_HASH_BYTES], seen[TURN_HASH_BYTES], names[N_NAMES][TURN_HASH_BYTES];
    hash_before(reader, before, context);
    if (t == NULL || json_object_is_type(sent->content, json_type_array))
        return CHAT_SENT;
    hash_sent(sent, seen);
    name_by_place(reader->key, context, seen, names[1]);
    if (sent->tool_calls != NULL) {
        size_t len;
        const char *id = string_of(
            json_member(json_object_array_get_idx(sent->tool_calls, 0), "id", NULL), &len);
        name_by_call(reader->key, id, len, names[0]);
    }
    pthread_mutex_lock(&t->lock);
    struct record *r = sent->tool_calls == NULL ? NULL : find(t, names[0]);
    if (r == NULL)
        r = find(t, names[1]);
    enum chat_source source = CHAT_SENT;
    if (r != NULL) {
        source = recall(r, sent, seen, out);
        list_take(t, r);
        list_enter(t, r);
    }
    pthread_mutex_unlock(&t->lock);
    return source;
}

/* ---- life ------------------------------------------------------------------------------------ */

struct turns *turns_create(void)
{
    struct turns *t = calloc(1, sizeof *t);
    ASSERT(t != NULL);
    t->records = calloc(TURNS_MAX, sizeof *t->records);
    ASSERT(t->records != NULL);
    ASSERT(pthread_mutex_init(&t->lock, NULL) == 0);
    for (int i = 0; i < TURNS_MAX; i++) {
        t->records[i].older = t->free;
        t->free = &t->records[i];
    }
    return t;
}

void turns_destroy(struct turns *t)
{
    if (t == NULL)
        return;
    while (t->newest != NULL)
        drop(t, t->newest);
    pthread_mutex_destroy(&t->lock);
    free(t->records);
    free(t);
}

void turns_stats_get(struct turns *t, struct turns_stats *out)
{
    *out = (struct turns_stats){0};
    if (t == NULL)
        return;
    pthread_mutex_lock(&t->lock);
    *out = t->stats;
    pthread_mutex_unlock(&t->lock);
}
