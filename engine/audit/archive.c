/* Files named by number; their heads are read once and then kept in memory. */
#include "engine/audit/archive.h"

#include "engine/audit/report_fields.h"
#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/base/secret.h"
#include "kernels/check.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_BYTES 4096
#define ID_DIGITS  7
#define ID_MAX     9999999
#define NAME_END   ".json"

struct archive {
    pthread_mutex_t lock; /* protects all below and the files */
    char folder[PATH_BYTES];
    uint8_t seed[REPORT_SEED_BYTES];
    char key[REPORT_KEY_CHARS + 1];
    struct archive_head heads[AUDIT_KEPT_MAX]; /* by number */
    int n;
    int32_t last; /* number that was used last */
};

static const char *const STATE_NAMES[ARCHIVE_STATES] = {
    [ARCHIVE_UNFINISHED] = "unfinished", [ARCHIVE_FINISHED] = "finished",
    [ARCHIVE_ABORTED] = "aborted",       [ARCHIVE_CUT] = "cut",
    [ARCHIVE_DAMAGED] = "damaged",
};

const char *archive_state_name(enum archive_state state)
{
    return STATE_NAMES[state];
}

/* ---- heads ----------------------------------------------------------------------------------- */

static enum archive_state state_parse(const char *name)
{
    for (int i = 0; i < ARCHIVE_DAMAGED; i++) {
        if (strcmp(STATE_NAMES[i], name) == 0)
            return (enum archive_state)i;
    }
    return ARCHIVE_DAMAGED;
}

static void copy_word(char *out, size_t size, const char *word)
{
    snprintf(out, size, "%s", word);
}

static struct archive_head head_of(struct json_object *report, int32_t id)
{
    struct json_object *run = report_member(report, "run");
    struct archive_head head = {
        .id = id,
        .time_s = json_object_get_int64(report_member(run, "time_s")),
        .state = state_parse(report_string(run, "state")),
        .verdict = audit_verdict_parse(report_string(report, "verdict")),
        .scheduled = strcmp(report_string(run, "by"), "schedule") == 0,
    };
    copy_word(head.what, sizeof head.what, report_string(run, "what"));
    copy_word(head.budget, sizeof head.budget, report_string(report, "budget"));
    copy_word(head.profile, sizeof head.profile,
              report_string(report_member(report, "profile"), "name"));
    return head;
}

static void path_of(const struct archive *a, int32_t id, char out[PATH_BYTES])
{
    int n = snprintf(out, PATH_BYTES, "%s/%0*d" NAME_END, a->folder, ID_DIGITS, (int)id);
    ASSERT(n < PATH_BYTES); /* archive_open has seen to that */
}

/* Under the lock. */
static enum status read_report(const struct archive *a, int32_t id, struct json_object **out,
                               struct error *err)
{
    char path[PATH_BYTES];
    struct error why;
    path_of(a, id, path);
    enum status status = report_read(path, out, err);
    if (status != OK)
        return status;
    bool own = report_verify(*out, a->key, &why) == OK &&
               json_object_get_int64(report_member(report_member(*out, "run"), "id")) == id;
    if (own)
        return OK;
    json_object_put(*out);
    *out = NULL;
    return error_set(err, ERR_INPUT, "report %d is damaged: not what this box has signed", (int)id);
}

/* Makes room for one more.  Under the lock. */
static void drop_oldest(struct archive *a)
{
    char path[PATH_BYTES];
    path_of(a, a->heads[0].id, path);
    if (unlink(path) != 0 && errno != ENOENT)
        log_line(LOG_LEVEL_ERROR, "audit", "%s: %s", path, strerror(errno));
    a->n--;
    memmove(&a->heads[0], &a->heads[1], (size_t)a->n * sizeof a->heads[0]);
}

/* In the place of the one with this number, or behind all.  Under the lock. */
static void head_put(struct archive *a, const struct archive_head *head)
{
    for (int i = 0; i < a->n; i++) {
        if (a->heads[i].id == head->id) {
            a->heads[i] = *head;
            return;
        }
    }
    if (a->n == AUDIT_KEPT_MAX)
        drop_oldest(a);
    a->heads[a->n++] = *head;
    a->last = head->id > a->last ? head->id : a->last;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* @return the number of a report's file, or 0: it is none */
static int32_t id_parse(const char *name)
{
    size_t digits = strspn(name, "0123456789");
    if (digits != ID_DIGITS || strcmp(name + digits, NAME_END) != 0)
        return 0;
    return (int32_t)strtol(name, NULL, 10);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_report_file(const struct dirent *entry)
{
    return id_parse(entry->d_name) > 0;
}

/* The heads of all reports, in the order of their numbers. */
static enum status scan(struct archive *a, struct error *err)
{
    struct dirent **entries;
    int n = scandir(a->folder, &entries, is_report_file, by_name);
    if (n < 0)
        return error_set(err, ERR_IO, "%s: %s", a->folder, strerror(errno));
    for (int i = 0; i < n; i++) {
        struct json_object *report = NULL;
        struct error why;
        int32_t id = id_parse(entries[i]->d_name);
        struct archive_head head = {.id = id, .state = ARCHIVE_DAMAGED, .verdict = VERDICT_INVALID};
        if (read_report(a, id, &report, &why) == OK)
            head = head_of(report, id);
        else
            log_line(LOG_LEVEL_WARN, "audit", "%s", why.text);
        json_object_put(report);
        head_put(a, &head);
        free(entries[i]);
    }
    free(entries);
    return OK;
}

enum status archive_open(const char *folder, struct archive **out, struct error *err)
{
    char path[PATH_BYTES];
    if (strlen(folder) + sizeof "/0000000" NAME_END ".new" > sizeof path)
        return error_set(err, ERR_INPUT, "the path of the folder of reports is too long");
    struct archive *a = calloc(1, sizeof *a);
    ASSERT(a != NULL && pthread_mutex_init(&a->lock, NULL) == 0);
    strcpy(a->folder, folder);
    snprintf(path, sizeof path, "%s/key", folder);
    enum status status = mkdir(folder, 0700) == 0 || errno == EEXIST
                             ? OK
                             : error_set(err, ERR_IO, "%s: %s", folder, strerror(errno));
    if (status == OK)
        status = secret_open(path, a->seed, sizeof a->seed, err);
    if (status == OK) {
        report_key(a->seed, a->key);
        status = scan(a, err);
    }
    if (status != OK) {
        archive_close(a);
        return status;
    }
    *out = a;
    return OK;
}

void archive_close(struct archive *a)
{
    if (a == NULL)
        return;
    pthread_mutex_destroy(&a->lock);
    sodium_memzero(a->seed, sizeof a->seed);
    free(a);
}

/* ---- reports --------------------------------------------------------------------------------- */

int32_t archive_next_id(struct archive *a)
{
    pthread_mutex_lock(&a->lock);
    int32_t id = a->last < ID_MAX ? a->last + 1 : ID_MAX;
    pthread_mutex_unlock(&a->lock);
    return id;
}

enum status archive_put(struct archive *a, struct json_object *report, struct error *err)
{
    char path[PATH_BYTES];
    struct buf text = {0};
    int32_t id = json_object_get_int(report_member(report_member(report, "run"), "id"));
    ASSERT(id >= 1 && id <= ID_MAX);
    enum status status = OK;
    pthread_mutex_lock(&a->lock);
    report_sign(report, a->seed);
    json_dump(&text, report);
    buf_puts(&text, "\n");
    path_of(a, id, path);
    if (text.len > AUDIT_KEPT_BYTES_MAX)
        status = error_set(err, ERR_CAPACITY, "report %d has %zu bytes, more than %d", (int)id,
                           text.len, AUDIT_KEPT_BYTES_MAX);
    if (status == OK)
        status = file_replace(path, &text, err);
    if (status == OK) {
        struct archive_head head = head_of(report, id);
        head_put(a, &head);
    }
    pthread_mutex_unlock(&a->lock);
    buf_free(&text);
    return status;
}

enum status archive_get(struct archive *a, int32_t id, struct json_object **out, struct error *err)
{
    bool known = false;
    pthread_mutex_lock(&a->lock);
    for (int i = 0; i < a->n; i++)
        known = known || a->heads[i].id == id;
    enum status status = known ? read_report(a, id, out, err)
                               : error_set(err, ERR_INPUT,
                                           "no report has the number %d; `audit "
                                           "history` lists them",
                                           (int)id);
    pthread_mutex_unlock(&a->lock);
    return status;
}

int archive_list(struct archive *a, struct archive_head out[AUDIT_KEPT_MAX])
{
    pthread_mutex_lock(&a->lock);
    int n = a->n;
    memcpy(out, a->heads, (size_t)n * sizeof *out);
    pthread_mutex_unlock(&a->lock);
    return n;
}

void archive_key(struct archive *a, char out[REPORT_KEY_CHARS + 1])
{
    memcpy(out, a->key, sizeof a->key);
}
