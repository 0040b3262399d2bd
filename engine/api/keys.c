/*
 * The keys file and its table.  A change reads the file again, edits its text (comments stay) and
 * replaces it as a whole; the table in memory is swapped only after the file is safe.
 */
#include "engine/api/keys.h"

#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "kernels/check.h"

#include <errno.h>
#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define HASH_BYTES crypto_hash_sha256_BYTES
#define HASH_CHARS (2 * HASH_BYTES)
#define PATH_BYTES 4096

static const char BASE62[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

struct entry {
    struct key key;
    uint8_t hash[HASH_BYTES];
};

struct table {
    struct entry entries[KEYS_MAX];
    int n;
};

struct keys {
    pthread_mutex_t lock; /* protects table, pass and pass_end_ms */
    pthread_mutex_t edit; /* one change at a time; taken before lock */
    char path[PATH_BYTES];
    struct table table, next; /* next: being read, belongs to whoever holds edit */
    struct entry pass;
    int64_t pass_end_ms; /* it is a key until then */
};

/* ---- one line ------------------------------------------------------------------------------- */

/* The number of an id, or 0 when it is none.  Ids from 1: 0 means "never reuse" to the engine. */
static uint64_t id_number(const char *id, size_t len)
{
    if (len != KEY_ID_CHARS)
        return 0;
    uint64_t number = 0;
    for (size_t i = 0; i < len; i++) {
        const char *at = memchr(BASE62, id[i], sizeof BASE62 - 1);
        if (at == NULL)
            return 0;
        number = number * (sizeof BASE62 - 1) + (uint64_t)(at - BASE62);
    }
    return number + 1;
}

static bool name_good(const char *name, size_t len)
{
    if (len == 0 || len > KEY_NAME_BYTES_MAX)
        return false;
    for (size_t i = 0; i < len; i++) {
        if (name[i] <= ' ' || name[i] > '~')
            return false;
    }
    return true;
}

static bool hash_parse(const char *hex, size_t len, uint8_t hash[HASH_BYTES])
{
    static const char DIGITS[] = "0123456789abcdef";
    if (len != HASH_CHARS)
        return false;
    for (size_t i = 0; i < len; i++) {
        const char *at = memchr(DIGITS, hex[i], sizeof DIGITS - 1);
        if (at == NULL)
            return false;
        hash[i / 2] = (uint8_t)(hash[i / 2] << 4 | (at - DIGITS));
    }
    return true;
}

/* " word=VALUE ..." up to the end of the line.  @return NULL, or what is wrong */
static const char *limits_parse(const char *at, const char *end, struct key_limits *out)
{
    while (at < end) {
        const char *word = at + 1; /* behind the blank */
        const char *blank = memchr(word, ' ', (size_t)(end - word));
        const char *stop = blank == NULL ? end : blank;
        const char *equals = memchr(word, '=', (size_t)(stop - word));
        int limit = equals == NULL ? -1 : key_limit_find(word, (size_t)(equals - word));
        if (limit < 0)
            return "what follows NAME must be limits, LIMIT=VALUE";
        if (out->values[limit] != 0)
            return "a limit is there twice";
        if (key_limit_parse((enum key_limit)limit, equals + 1, (size_t)(stop - equals - 1),
                            &out->values[limit]) != NULL)
            return "a limit has a value that it can not have";
        at = stop;
    }
    return NULL;
}

/* "ID SHA256HEX NAME" and limits.  @return NULL, or what is wrong */
static const char *entry_parse(const char *line, size_t len, struct entry *out)
{
    const char *end = line + len;
    const char *blank = memchr(line, ' ', len);
    if (blank == NULL)
        return "is not ID SHA256HEX NAME";
    uint64_t number = id_number(line, (size_t)(blank - line));
    if (number == 0)
        return "ID must be 8 characters of 0-9 A-Z a-z";
    const char *hex = blank + 1;
    blank = memchr(hex, ' ', (size_t)(end - hex));
    if (blank == NULL)
        return "is not ID SHA256HEX NAME";
    *out = (struct entry){.key.number = number};
    if (!hash_parse(hex, (size_t)(blank - hex), out->hash))
        return "SHA256HEX must be 64 characters of 0-9 a-f";
    const char *name = blank + 1;
    blank = memchr(name, ' ', (size_t)(end - name));
    size_t name_len = (size_t)((blank == NULL ? end : blank) - name);
    if (!name_good(name, name_len))
        return "NAME must be 1 to 64 printable ASCII characters without blanks";
    memcpy(out->key.id, line, KEY_ID_CHARS);
    memcpy(out->key.name, name, name_len);
    return limits_parse(name + name_len, end, &out->key.limits);
}

/* ---- the table ------------------------------------------------------------------------------ */

static const struct entry *table_find(const struct table *table, uint64_t number)
{
    for (int i = 0; i < table->n; i++) {
        if (table->entries[i].key.number == number)
            return &table->entries[i];
    }
    return NULL;
}

/* Adds one line's entry.  @return NULL, or what is wrong */
static const char *table_add(struct table *table, const char *line, size_t len)
{
    struct entry entry;
    const char *wrong = entry_parse(line, len, &entry);
    if (wrong != NULL)
        return wrong;
    if (table_find(table, entry.key.number) != NULL)
        return "ID is there twice";
    if (table->n == KEYS_MAX)
        return "is one key too many";
    table->entries[table->n++] = entry;
    return NULL;
}

static enum status table_parse(const char *path, const struct buf *text, struct table *out,
                               struct error *err)
{
    out->n = 0;
    if (text->len == 0)
        return OK;
    const char *at = text->data, *end = at + text->len;
    for (int number = 1; at < end; number++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        if (newline == NULL)
            return error_set(err, ERR_INPUT, "%s: line %d: has no end", path, number);
        size_t len = (size_t)(newline - at);
        const char *wrong = len == 0 || at[0] == '#' ? NULL : table_add(out, at, len);
        if (wrong != NULL)
            return error_set(err, ERR_INPUT, "%s: line %d: %s", path, number, wrong);
        at = newline + 1;
    }
    return OK;
}

/* ---- the file ------------------------------------------------------------------------------- */

/* The file's text; a missing file is an empty one. */
static enum status text_read(const char *path, struct buf *out, struct error *err)
{
    if (access(path, F_OK) != 0 && errno == ENOENT)
        return OK;
    return file_read(path, KEYS_FILE_BYTES_MAX, out, err);
}

/* ---- public --------------------------------------------------------------------------------- */

enum status keys_open(const char *path, struct keys **out, struct error *err)
{
    if (sodium_init() < 0)
        return error_set(err, ERR_IO, "no random numbers on this system");
    if (strlen(path) >= PATH_BYTES)
        return error_set(err, ERR_INPUT, "the path of the keys file is too long");
    struct keys *keys = calloc(1, sizeof *keys);
    ASSERT(keys != NULL);
    snprintf(keys->path, sizeof keys->path, "%s", path);
    ASSERT(pthread_mutex_init(&keys->lock, NULL) == 0);
    ASSERT(pthread_mutex_init(&keys->edit, NULL) == 0);
    struct buf text = {0};
    enum status status = text_read(path, &text, err);
    if (status == OK)
        status = table_parse(path, &text, &keys->table, err);
    buf_free(&text);
    if (status != OK) {
        keys_close(keys);
        return status;
    }
    *out = keys;
    return OK;
}

void keys_close(struct keys *keys)
{
    if (keys == NULL)
        return;
    pthread_mutex_destroy(&keys->edit);
    pthread_mutex_destroy(&keys->lock);
    free(keys);
}

/* Not the hash that the file holds: who reads the file must not be able to open what was sealed. */
static void seal_make(const char secret[KEY_SECRET_CHARS], uint8_t out[SEAL_KEY_BYTES])
{
    static const unsigned char PURPOSE[] = "v4box seal";
    crypto_hash_sha256_state state;
    crypto_hash_sha256_init(&state);
    crypto_hash_sha256_update(&state, PURPOSE, sizeof PURPOSE);
    crypto_hash_sha256_update(&state, (const unsigned char *)secret, KEY_SECRET_CHARS);
    crypto_hash_sha256_final(&state, out);
}

bool keys_check(struct keys *keys, const char *secret, size_t len, struct key *out)
{
    /* Whatever comes in is hashed, at most one character more than a real secret: the time tells
     * nothing about which ids exist. */
    uint8_t hash[HASH_BYTES];
    size_t n = len < KEY_SECRET_CHARS + 1 ? len : KEY_SECRET_CHARS + 1;
    crypto_hash_sha256(hash, (const unsigned char *)secret, n);
    uint64_t number = 0;
    if (len == KEY_SECRET_CHARS && memcmp(secret, "ds_", 3) == 0)
        number = id_number(secret + 3, KEY_ID_CHARS);

    static const struct entry NOBODY;
    pthread_mutex_lock(&keys->lock);
    const struct entry *found = table_find(&keys->table, number);
    if (found == NULL && number == keys->pass.key.number && clock_ms() < keys->pass_end_ms)
        found = &keys->pass;
    const struct entry *entry = found != NULL ? found : &NOBODY;
    bool equal = sodium_memcmp(hash, entry->hash, HASH_BYTES) == 0;
    bool good = equal && found != NULL && key_limits_allow(&entry->key.limits, (int64_t)time(NULL));
    if (good)
        *out = found->key;
    pthread_mutex_unlock(&keys->lock);
    if (good)
        seal_make(secret, out->seal);
    return good;
}

static void random_base62(char *out, int n)
{
    for (int i = 0; i < n; i++)
        out[i] = BASE62[randombytes_uniform(sizeof BASE62 - 1)];
}

/* Fills secret and hash for a new id that `table` does not have. */
static void secret_make(const struct table *table, char secret[KEY_SECRET_CHARS + 1],
                        uint8_t hash[HASH_BYTES])
{
    memcpy(secret, "ds_", 3);
    do
        random_base62(secret + 3, KEY_ID_CHARS);
    while (table_find(table, id_number(secret + 3, KEY_ID_CHARS)) != NULL);
    secret[3 + KEY_ID_CHARS] = '_';
    random_base62(secret + 3 + KEY_ID_CHARS + 1, KEY_RANDOM_CHARS);
    secret[KEY_SECRET_CHARS] = '\0';
    crypto_hash_sha256(hash, (const unsigned char *)secret, KEY_SECRET_CHARS);
}

/* Checks the edited text as a start would, writes it, and only then lets it count. */
static enum status commit(struct keys *keys, const struct buf *text, struct error *err)
{
    if (text->len > KEYS_FILE_BYTES_MAX)
        return error_set(err, ERR_CAPACITY, "%s: full", keys->path);
    enum status status = table_parse(keys->path, text, &keys->next, err);
    if (status == OK)
        status = file_replace(keys->path, text, err);
    if (status != OK)
        return status;
    pthread_mutex_lock(&keys->lock);
    keys->table = keys->next;
    pthread_mutex_unlock(&keys->lock);
    return OK;
}

enum status keys_create(struct keys *keys, const char *name, struct key *out,
                        char secret[KEY_SECRET_CHARS + 1], struct error *err)
{
    if (!name_good(name, strlen(name)))
        return error_set(err, ERR_INPUT,
                         "the name must be 1 to %d printable ASCII characters "
                         "without blanks",
                         KEY_NAME_BYTES_MAX);
    struct buf text = {0};
    pthread_mutex_lock(&keys->edit);
    enum status status = text_read(keys->path, &text, err);
    if (status == OK)
        status = table_parse(keys->path, &text, &keys->next, err);
    if (status == OK && keys->next.n == KEYS_MAX)
        status = error_set(err, ERR_CAPACITY, "%s: holds %d keys already", keys->path, KEYS_MAX);
    if (status == OK) {
        uint8_t hash[HASH_BYTES];
        char fresh[KEY_SECRET_CHARS + 1], hex[HASH_CHARS + 1];
        secret_make(&keys->next, fresh, hash);
        sodium_bin2hex(hex, sizeof hex, hash, sizeof hash);
        buf_printf(&text, "%.*s %s %s\n", KEY_ID_CHARS, fresh + 3, hex, name);
        status = commit(keys, &text, err);
        if (status == OK) {
            *out = keys->next.entries[keys->next.n - 1].key;
            memcpy(secret, fresh, sizeof fresh);
        }
        sodium_memzero(fresh, sizeof fresh);
    }
    pthread_mutex_unlock(&keys->edit);
    buf_free(&text);
    return status;
}

void keys_pass(struct keys *keys, char secret[KEY_SECRET_CHARS + 1])
{
    struct entry pass = {.key.name = "self-test"};
    pthread_mutex_lock(&keys->lock);
    secret_make(&keys->table, secret, pass.hash);
    memcpy(pass.key.id, secret + 3, KEY_ID_CHARS);
    pass.key.number = id_number(pass.key.id, KEY_ID_CHARS);
    keys->pass = pass;
    keys->pass_end_ms = clock_ms() + KEY_PASS_MS;
    pthread_mutex_unlock(&keys->lock);
}

/* Puts `line` in the place of the line of key `id`.  @return false: there is none */
static bool line_replace(struct buf *text, const char *id, const struct buf *line)
{
    for (size_t at = 0; at < text->len;) {
        const char *newline = memchr(text->data + at, '\n', text->len - at);
        size_t next = (size_t)(newline - text->data) + 1; /* table_parse saw that every line ends */
        if (next - at > KEY_ID_CHARS && memcmp(text->data + at, id, KEY_ID_CHARS) == 0 &&
            text->data[at + KEY_ID_CHARS] == ' ') {
            struct buf edited = {0};
            buf_add(&edited, text->data, at);
            buf_add(&edited, line->data, line->len);
            buf_add(&edited, text->data + next, text->len - next);
            buf_free(text);
            *text = edited;
            return true;
        }
        at = next;
    }
    return false;
}

/* Reads the file and finds the key in it.  @err ERR_INPUT: there is none */
static enum status edit_begin(struct keys *keys, const char *id, struct buf *text,
                              const struct entry **out, struct error *err)
{
    uint64_t number = id_number(id, strlen(id));
    if (number == 0)
        return error_set(err, ERR_INPUT, "the id must be 8 characters of 0-9 A-Z a-z");
    enum status status = text_read(keys->path, text, err);
    if (status == OK)
        status = table_parse(keys->path, text, &keys->next, err);
    if (status != OK)
        return status;
    *out = table_find(&keys->next, number);
    return *out != NULL ? OK : error_set(err, ERR_INPUT, "no key has this id");
}

enum status keys_delete(struct keys *keys, const char *id, struct error *err)
{
    const struct entry *entry;
    struct buf text = {0}, nothing = {0};
    pthread_mutex_lock(&keys->edit);
    enum status status = edit_begin(keys, id, &text, &entry, err);
    if (status == OK) {
        ASSERT(line_replace(&text, id, &nothing));
        status = commit(keys, &text, err);
    }
    pthread_mutex_unlock(&keys->edit);
    buf_free(&text);
    return status;
}

static enum status limit_parse(const char *word, const char *value, struct key_limits *out,
                               struct error *err)
{
    int limit = key_limit_find(word, strlen(word));
    if (limit < 0)
        return error_set(err, ERR_INPUT, "no limit has this name");
    if (value == NULL) {
        out->values[limit] = 0;
        return OK;
    }
    const char *wrong =
        key_limit_parse((enum key_limit)limit, value, strlen(value), &out->values[limit]);
    return wrong == NULL ? OK : error_set(err, ERR_INPUT, "%s: %s", word, wrong);
}

enum status keys_limit(struct keys *keys, const char *id, const char *word, const char *value,
                       struct error *err)
{
    const struct entry *entry;
    struct key_limits limits;
    struct buf text = {0}, line = {0};
    pthread_mutex_lock(&keys->edit);
    enum status status = edit_begin(keys, id, &text, &entry, err);
    if (status == OK) {
        limits = entry->key.limits;
        status = limit_parse(word, value, &limits, err);
    }
    if (status == OK) {
        char hex[HASH_CHARS + 1];
        sodium_bin2hex(hex, sizeof hex, entry->hash, sizeof entry->hash);
        buf_printf(&line, "%s %s %s", entry->key.id, hex, entry->key.name);
        key_limits_print(&limits, &line);
        buf_puts(&line, "\n");
        ASSERT(line_replace(&text, id, &line));
        status = commit(keys, &text, err);
    }
    pthread_mutex_unlock(&keys->edit);
    buf_free(&text);
    buf_free(&line);
    return status;
}

int keys_list(struct keys *keys, struct key out[KEYS_MAX])
{
    pthread_mutex_lock(&keys->lock);
    int n = keys->table.n;
    for (int i = 0; i < n; i++)
        out[i] = keys->table.entries[i].key;
    pthread_mutex_unlock(&keys->lock);
    return n;
}
