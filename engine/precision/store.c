/*
 * The store of profiles: a strict text file, read once and then only written.  `text` is made from
 * the content, never kept beside it; what is on the disk and what is in memory change together or
 * not at all.
 */
#include "engine/precision/store.h"

#include "config/limits.h"
#include "engine/base/file.h"
#include "engine/base/log.h"
#include "kernels/check.h"

#include <errno.h>
#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define HEAD_LINE  "v4box-profiles 1"
#define HASH_CHARS (2 * crypto_hash_sha256_BYTES)
#define PATH_BYTES 4096
/* The longest line: "event", 20 digits, a kind and two names. */
#define LINE_WORDS_MAX 5

struct content {
    struct profile own[PROFILES_MAX - PROFILE_BUILTINS];
    int n_own;
    char current[PROFILE_NAME_BYTES], previous[PROFILE_NAME_BYTES];
    char trial[PROFILE_NAME_BYTES]; /* served until confirmed, while `current` is what was before;
                                       "": none */
    struct switch_event events[SWITCH_EVENTS_MAX];
    int n_events;
};

struct store {
    pthread_mutex_t lock; /* protects all below */
    char path[PATH_BYTES];
    struct content content, next; /* next: a change that is not on the disk yet */
    char lost[ERROR_TEXT_BYTES];  /* why the file was put aside; "": it was not */
};

static const char *const KIND_NAMES[SWITCH_KINDS] = {
    [SWITCH_SET] = "set",
    [SWITCH_TRIED] = "tried",
    [SWITCH_CONFIRMED] = "confirmed",
    [SWITCH_EXPIRED] = "expired",
    [SWITCH_UNPROVEN] = "unproven",
    [SWITCH_ROLLED_BACK] = "rolled-back",
    [SWITCH_RESTARTED] = "restarted",
    [SWITCH_LOST] = "lost",
};

const char *switch_kind_name(enum switch_kind kind)
{
    return KIND_NAMES[kind];
}

/* ---- content -------------------------------------------------------------------------------- */

static struct profile *own_find(struct content *c, const char *name)
{
    for (int i = 0; i < c->n_own; i++) {
        if (strcmp(c->own[i].name, name) == 0)
            return &c->own[i];
    }
    return NULL;
}

static const struct profile *find(struct content *c, const char *name)
{
    const struct profile *builtin = profile_builtin(name);
    return builtin != NULL ? builtin : own_find(c, name);
}

static void name_set(char out[PROFILE_NAME_BYTES], const char *name)
{
    ASSERT(strlen(name) < PROFILE_NAME_BYTES);
    memmove(out, name, strlen(name) + 1);
}

static void event_add(struct content *c, const struct switch_event *event)
{
    if (c->n_events == SWITCH_EVENTS_MAX) {
        c->n_events--;
        memmove(&c->events[0], &c->events[1], (size_t)c->n_events * sizeof *event);
    }
    c->events[c->n_events++] = *event;
}

/* ---- reading -------------------------------------------------------------------------------- */

/* What is read, and which rows the last profile has been given. */
struct reader {
    struct content *content;
    bool rows[PRECISION_ROWS];
};

/* A row that the file does not name is younger than the file: the reference is the careful choice,
 * and it must not come in silence. */
static void rows_finish(struct reader *r)
{
    struct content *c = r->content;
    for (int row = 0; c->n_own > 0 && row < PRECISION_ROWS; row++) {
        if (!r->rows[row])
            log_line(LOG_LEVEL_WARN, "profile", "%s: %s is not in the file, so it is %s",
                     c->own[c->n_own - 1].name, PRECISION[row].name, PRECISION[row].values[0].name);
        r->rows[row] = true;
    }
}

static const char *read_profile(struct reader *r, char **words)
{
    struct content *c = r->content;
    rows_finish(r);
    if (!profile_name_valid(words[1]))
        return "the name of a profile is none";
    if (find(c, words[1]) != NULL)
        return "a profile is there twice, or built in";
    if (c->n_own == PROFILES_MAX - PROFILE_BUILTINS)
        return "is one profile too many";
    struct profile *p = &c->own[c->n_own++];
    *p = *profile_builtin_at(PROFILE_REFERENCE);
    name_set(p->name, words[1]);
    memset(r->rows, 0, sizeof r->rows);
    return NULL;
}

static const char *read_row(struct reader *r, char **words)
{
    struct content *c = r->content;
    int row = profile_row_parse(words[1]);
    if (c->n_own == 0)
        return "a row stands in front of all profiles";
    if (row < 0)
        return "no row has this name";
    int value = profile_value_parse((enum precision_row)row, words[2]);
    if (value < 0 || PRECISION[row].values[value].use != USE_SERVE)
        return "the row has no such value for serving";
    if (r->rows[row])
        return "the row is there twice";
    r->rows[row] = true;
    ASSERT(profile_set(&c->own[c->n_own - 1], (enum precision_row)row, value));
    return NULL;
}

static const char *read_serve(struct reader *r, char **words)
{
    struct content *c = r->content;
    if (c->current[0] != '\0')
        return "what serves is there twice";
    if (find(c, words[1]) == NULL || find(c, words[2]) == NULL)
        return "no profile has this name";
    name_set(c->current, words[1]);
    name_set(c->previous, words[2]);
    return NULL;
}

static const char *read_trial(struct reader *r, char **words)
{
    if (r->content->trial[0] != '\0' || find(r->content, words[1]) == NULL)
        return "the trial is there twice, or of no profile";
    name_set(r->content->trial, words[1]);
    return NULL;
}

static const char *read_event(struct reader *r, char **words)
{
    struct switch_event event = {0};
    size_t digits = strspn(words[1], "0123456789");
    if (digits == 0 || digits > 15 || words[1][digits] != '\0')
        return "the time of an event is none";
    event.time_s = strtoll(words[1], NULL, 10);
    while (event.kind < SWITCH_KINDS && strcmp(KIND_NAMES[event.kind], words[2]) != 0)
        event.kind++;
    if (event.kind == SWITCH_KINDS)
        return "no event has this kind";
    if (!profile_name_valid(words[3]) || !profile_name_valid(words[4]))
        return "the name of a profile is none";
    if (r->content->n_events == SWITCH_EVENTS_MAX)
        return "is one event too many";
    name_set(event.from, words[3]);
    name_set(event.to, words[4]);
    event_add(r->content, &event);
    return NULL;
}

static const struct {
    const char *word;
    int n_words;
    const char *(*read)(struct reader *r, char **words);
} LINES[] = {
    {"profile", 2, read_profile}, {"row", 3, read_row},     {"serve", 3, read_serve},
    {"trial", 2, read_trial},     {"event", 5, read_event},
};

/* Takes one line apart, in place.  @return NULL, or what is wrong */
static const char *read_line(struct reader *r, char *line)
{
    char *words[LINE_WORDS_MAX];
    int n = 0;
    for (char *word = line;; n++) {
        char *blank = strchr(word, ' ');
        if (n == LINE_WORDS_MAX || *word == '\0' || blank == word)
            return "is no line of this file";
        words[n] = word;
        if (blank == NULL)
            break;
        *blank = '\0';
        word = blank + 1;
    }
    n++;
    for (size_t i = 0; i < sizeof LINES / sizeof LINES[0]; i++) {
        if (strcmp(LINES[i].word, words[0]) == 0 && LINES[i].n_words == n)
            return LINES[i].read(r, words);
    }
    return "is no line of this file";
}

static void sum_of(const char *bytes, size_t n, char hex[HASH_CHARS + 1])
{
    uint8_t hash[crypto_hash_sha256_BYTES];
    crypto_hash_sha256(hash, (const unsigned char *)bytes, n);
    sodium_bin2hex(hex, HASH_CHARS + 1, hash, sizeof hash);
}

/* The content's length in front of its sum line, or 0: there is no good sum. */
static size_t sum_check(const struct buf *text)
{
    const size_t tail = sizeof "sum " - 1 + HASH_CHARS + 1;
    char line[sizeof "sum " + HASH_CHARS + 1], hex[HASH_CHARS + 1];
    if (text->len <= tail)
        return 0;
    size_t n = text->len - tail;
    sum_of(text->data, n, hex);
    snprintf(line, sizeof line, "sum %s\n", hex);
    return memcmp(text->data + n, line, tail) == 0 ? n : 0;
}

/* Reads all lines; `text` is used up.  @err ERR_INPUT naming the line */
static enum status content_parse(const char *path, struct buf *text, struct content *out,
                                 struct error *err)
{
    struct reader r = {.content = out};
    *out = (struct content){0};
    size_t n = sum_check(text);
    if (n == 0)
        return error_set(err, ERR_INPUT, "%s: the checksum is wrong or missing", path);
    if (memchr(text->data, '\0', n) != NULL || text->data[n - 1] != '\n')
        return error_set(err, ERR_INPUT, "%s: is no text", path);
    text->data[n - 1] = '\0';
    char *line = text->data;
    for (int number = 1; line != NULL; number++) {
        char *end = strchr(line, '\n');
        if (end != NULL)
            *end = '\0';
        const char *wrong = number > 1                     ? read_line(&r, line)
                            : strcmp(line, HEAD_LINE) != 0 ? "is not " HEAD_LINE
                                                           : NULL;
        if (wrong != NULL)
            return error_set(err, ERR_INPUT, "%s: line %d: %s", path, number, wrong);
        line = end == NULL ? NULL : end + 1;
    }
    rows_finish(&r);
    if (out->current[0] == '\0')
        return error_set(err, ERR_INPUT, "%s: does not say what serves", path);
    return OK;
}

/* ---- writing -------------------------------------------------------------------------------- */

static void content_dump(const struct content *c, struct buf *out)
{
    buf_puts(out, HEAD_LINE "\n");
    for (int i = 0; i < c->n_own; i++) {
        buf_printf(out, "profile %s\n", c->own[i].name);
        for (int row = 0; row < PRECISION_ROWS; row++)
            buf_printf(out, "row %s %s\n", PRECISION[row].name,
                       profile_value_name(&c->own[i], (enum precision_row)row));
    }
    buf_printf(out, "serve %s %s\n", c->current, c->previous);
    if (c->trial[0] != '\0')
        buf_printf(out, "trial %s\n", c->trial);
    for (int i = 0; i < c->n_events; i++)
        buf_printf(out, "event %lld %s %s %s\n", (long long)c->events[i].time_s,
                   KIND_NAMES[c->events[i].kind], c->events[i].from, c->events[i].to);
    char hex[HASH_CHARS + 1];
    sum_of(out->data, out->len, hex);
    buf_printf(out, "sum %s\n", hex);
}

/* Lets `next` count, once it is on the disk. */
static enum status commit(struct store *s, struct error *err)
{
    struct buf text = {0};
    enum status status = OK;
    content_dump(&s->next, &text);
    ASSERT(text.len <= PROFILES_FILE_BYTES_MAX);
    if (s->path[0] != '\0')
        status = file_replace(s->path, &text, err);
    if (status == OK)
        s->content = s->next;
    buf_free(&text);
    return status;
}

/* ---- opening -------------------------------------------------------------------------------- */

static void note(struct content *c, enum switch_kind kind, const char *from, const char *to)
{
    struct switch_event event = {.time_s = (int64_t)time(NULL), .kind = kind};
    name_set(event.from, from);
    name_set(event.to, to);
    event_add(c, &event);
}

static void content_default(struct content *c, const char *fallback)
{
    *c = (struct content){0};
    name_set(c->current, fallback);
    name_set(c->previous, fallback);
}

/* Puts a damaged file aside, so that it can be looked at and is not read again. */
static enum status put_aside(struct store *s, const char *fallback, const struct error *why,
                             struct error *err)
{
    char aside[PATH_BYTES + sizeof ".bad"];
    snprintf(aside, sizeof aside, "%s.bad", s->path);
    if (rename(s->path, aside) != 0)
        return error_set(err, ERR_IO, "%s: %s", s->path, strerror(errno));
    snprintf(s->lost, sizeof s->lost, "%s", why->text);
    log_line(LOG_LEVEL_ERROR, "profile", "%s; it is %s.bad now, and %s serves", why->text, s->path,
             fallback);
    content_default(&s->content, fallback);
    s->next = s->content;
    note(&s->next, SWITCH_LOST, fallback, fallback);
    /* A disk that can not be written does not keep the box from serving. */
    if (commit(s, err) != OK)
        log_line(LOG_LEVEL_ERROR, "profile", "%s", err->text);
    return OK;
}

/* A trial that a restart cut short: what was before it serves. */
static void trial_end(struct store *s)
{
    struct error err;
    if (s->content.trial[0] == '\0')
        return;
    log_line(LOG_LEVEL_WARN, "profile", "%s was on trial and not confirmed; %s serves",
             s->content.trial, s->content.current);
    s->next = s->content;
    s->next.trial[0] = '\0';
    note(&s->next, SWITCH_RESTARTED, s->content.trial, s->content.current);
    if (commit(s, &err) != OK) {
        log_line(LOG_LEVEL_ERROR, "profile", "%s", err.text);
        s->content = s->next;
    }
}

static enum status load(struct store *s, const char *fallback, struct error *err)
{
    struct stat st;
    struct buf text = {0};
    struct error why = {0};
    content_default(&s->content, fallback);
    if (s->path[0] == '\0' || (lstat(s->path, &st) != 0 && errno == ENOENT))
        return OK;
    enum status status = file_read(s->path, PROFILES_FILE_BYTES_MAX, &text, &why);
    if (status == OK)
        status = content_parse(s->path, &text, &s->next, &why);
    buf_free(&text);
    if (status == ERR_INPUT)
        return put_aside(s, fallback, &why, err);
    if (status != OK)
        return error_set(err, status, "%s", why.text);
    s->content = s->next;
    trial_end(s);
    return OK;
}

enum status store_open(const char *path, const char *fallback, struct store **out,
                       struct error *err)
{
    if (sodium_init() < 0)
        return error_set(err, ERR_IO, "no random numbers on this system");
    if (path != NULL && (path[0] == '\0' || strlen(path) >= PATH_BYTES))
        return error_set(err, ERR_INPUT, "the path of the profiles file has 1 to %d bytes",
                         PATH_BYTES - 1);
    if (profile_builtin(fallback) == NULL)
        return error_set(err, ERR_INPUT, "no profile '%.32s' is built in", fallback);
    struct store *s = calloc(1, sizeof *s);
    ASSERT(s != NULL);
    ASSERT(pthread_mutex_init(&s->lock, NULL) == 0);
    if (path != NULL)
        memcpy(s->path, path, strlen(path));
    enum status status = load(s, fallback, err);
    if (status != OK) {
        store_close(s);
        return status;
    }
    *out = s;
    return OK;
}

void store_close(struct store *s)
{
    if (s == NULL)
        return;
    pthread_mutex_destroy(&s->lock);
    free(s);
}

/* ---- looking -------------------------------------------------------------------------------- */

bool store_find(struct store *s, const char *name, struct profile *out)
{
    pthread_mutex_lock(&s->lock);
    const struct profile *p = find(&s->content, name);
    if (p != NULL)
        *out = *p;
    pthread_mutex_unlock(&s->lock);
    return p != NULL;
}

int store_list(struct store *s, struct profile out[PROFILES_MAX])
{
    int n = 0;
    for (int column = 0; column < PROFILE_BUILTINS; column++)
        out[n++] = *profile_builtin_at((enum profile_column)column);
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < s->content.n_own; i++)
        out[n++] = s->content.own[i];
    pthread_mutex_unlock(&s->lock);
    return n;
}

void store_serving(struct store *s, struct profile *current, struct profile *previous)
{
    pthread_mutex_lock(&s->lock);
    struct content *c = &s->content;
    *current = *find(c, c->trial[0] != '\0' ? c->trial : c->current);
    *previous = *find(c, c->trial[0] != '\0' ? c->current : c->previous);
    pthread_mutex_unlock(&s->lock);
}

int store_history(struct store *s, struct switch_event out[SWITCH_EVENTS_MAX])
{
    pthread_mutex_lock(&s->lock);
    int n = s->content.n_events;
    memcpy(out, s->content.events, (size_t)n * sizeof *out);
    pthread_mutex_unlock(&s->lock);
    return n;
}

const char *store_lost(const struct store *s)
{
    return s->lost;
}

/* ---- the operator's own --------------------------------------------------------------------- */

enum status store_copy(struct store *s, const char *from, const char *to, struct error *err)
{
    enum status status = OK;
    pthread_mutex_lock(&s->lock);
    struct content *c = &s->content;
    const struct profile *source = find(c, from);
    if (source == NULL)
        status = error_set(err, ERR_INPUT, "no profile is named %.32s", from);
    else if (!profile_name_valid(to))
        status = error_set(err, ERR_INPUT, "a name has 1 to %d letters, digits, '-' and '_'",
                           PROFILE_NAME_BYTES - 1);
    else if (find(c, to) != NULL)
        status = error_set(err, ERR_INPUT, "%s is there already", to);
    else if (c->n_own == PROFILES_MAX - PROFILE_BUILTINS)
        status = error_set(err, ERR_CAPACITY, "there are %d own profiles, no more fit", c->n_own);
    if (status == OK) {
        s->next = *c;
        struct profile *p = &s->next.own[s->next.n_own++];
        *p = *source;
        name_set(p->name, to);
        status = commit(s, err);
    }
    pthread_mutex_unlock(&s->lock);
    return status;
}

/* The profile in `next` that may be changed.  @err ERR_INPUT */
static enum status changeable(struct store *s, const char *name, struct profile **out,
                              struct error *err)
{
    const struct content *c = &s->content;
    if (profile_builtin(name) != NULL)
        return error_set(err, ERR_INPUT, "%s is built in; copy it first", name);
    s->next = s->content;
    *out = own_find(&s->next, name);
    if (*out == NULL)
        return error_set(err, ERR_INPUT, "no profile is named %.32s", name);
    /* What answers were given under must stay what it is. */
    if (strcmp(c->current, name) == 0 || strcmp(c->previous, name) == 0 ||
        strcmp(c->trial, name) == 0)
        return error_set(err, ERR_INPUT, "%s serves, or is what rollback goes to", name);
    return OK;
}

/* Takes names apart.  @err ERR_INPUT saying what there is instead */
static enum status row_parse(const char *row, const char *value, enum precision_row *row_out,
                             int *value_out, struct error *err)
{
    int at = profile_row_parse(row);
    if (at < 0)
        return error_set(err, ERR_INPUT, "no row is named %.32s; `profile show` lists them", row);
    *row_out = (enum precision_row)at;
    *value_out = profile_value_parse(*row_out, value);
    if (*value_out < 0) {
        char names[96] = "";
        for (int i = 0; i < PRECISION[at].n_values; i++)
            snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s",
                     i == 0 ? "" : ", ", PRECISION[at].values[i].name);
        return error_set(err, ERR_INPUT, "%s has no value %.32s; it has %s", PRECISION[at].name,
                         value, names);
    }
    if (PRECISION[at].values[*value_out].use != USE_SERVE)
        return error_set(err, ERR_INPUT, "%s %s is for audits alone", PRECISION[at].name, value);
    return OK;
}

enum status store_row(struct store *s, const char *name, const char *row, const char *value,
                      struct error *err)
{
    struct profile *p;
    enum precision_row at = 0;
    int choice = 0;
    pthread_mutex_lock(&s->lock);
    enum status status = changeable(s, name, &p, err);
    if (status == OK)
        status = row_parse(row, value, &at, &choice, err);
    if (status == OK) {
        ASSERT(profile_set(p, at, choice));
        status = commit(s, err);
    }
    pthread_mutex_unlock(&s->lock);
    return status;
}

enum status store_delete(struct store *s, const char *name, struct error *err)
{
    struct profile *p;
    pthread_mutex_lock(&s->lock);
    enum status status = changeable(s, name, &p, err);
    if (status == OK) {
        struct profile *end = s->next.own + s->next.n_own;
        memmove(p, p + 1, (size_t)(end - p - 1) * sizeof *p);
        s->next.n_own--;
        status = commit(s, err);
    }
    pthread_mutex_unlock(&s->lock);
    return status;
}

/* ---- what serves ---------------------------------------------------------------------------- */

enum status store_note(struct store *s, enum switch_kind kind, const char *to, struct error *err)
{
    enum status status = OK;
    pthread_mutex_lock(&s->lock);
    s->next = s->content;
    struct content *c = &s->next;
    char from[PROFILE_NAME_BYTES];
    name_set(from, c->trial[0] != '\0' ? c->trial : c->current);
    if (find(c, to) == NULL) {
        status = error_set(err, ERR_INPUT, "no profile is named %.32s", to);
        goto out_lock;
    }
    bool trial = c->trial[0] != '\0';
    if (kind != SWITCH_UNPROVEN)
        c->trial[0] = '\0';
    if (kind == SWITCH_TRIED) {
        name_set(c->trial, to);
    } else if (kind == SWITCH_SET || kind == SWITCH_CONFIRMED ||
               (kind == SWITCH_ROLLED_BACK && !trial)) {
        name_set(c->previous, c->current);
        name_set(c->current, to);
    }
    note(c, kind, from, to);
    status = commit(s, err);
    /* What goes back goes back: a restart would not find the trial confirmed either. */
    if (status != OK && kind == SWITCH_EXPIRED)
        s->content = s->next;

out_lock:
    pthread_mutex_unlock(&s->lock);
    return status;
}
