/* manifest.sha256: parsed whole, then compared with the folder, then hashed by its leaves. */
#include "engine/model/manifest.h"

#include "engine/base/file.h"
#include "engine/model/leafcheck.h"
#include "kernels/check.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HASH_HEX (2 * crypto_hash_sha256_BYTES)

struct line {
    unsigned char hash[crypto_hash_sha256_BYTES];
    uint64_t bytes;
    char name[CHECKPOINT_FILE_NAME_BYTES];
};

struct manifest {
    struct line *lines; /* owns; [count], sorted by name */
    size_t count;
};

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct line *)a)->name, ((const struct line *)b)->name);
}

/* ---- parsing -------------------------------------------------------------------------------- */

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool hash_parse(const char *text, unsigned char *out)
{
    for (size_t i = 0; i < crypto_hash_sha256_BYTES; i++) {
        int high = hex_digit(text[2 * i]), low = hex_digit(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        out[i] = (unsigned char)(high << 4 | low);
    }
    return true;
}

static bool name_parse(const char *text, size_t n, char *out)
{
    if (n == 0 || n >= CHECKPOINT_FILE_NAME_BYTES || text[0] == '.')
        return false;
    for (size_t i = 0; i < n; i++) {
        if (text[i] < ' ' || text[i] > '~' || text[i] == '/' || text[i] == '\\')
            return false;
    }
    memcpy(out, text, n);
    out[n] = '\0';
    return strcmp(out, MANIFEST_FILE) != 0;
}

/* One line without its newline. */
static bool line_parse(const char *text, size_t n, struct line *out)
{
    const char *end = text + n;
    if (n < HASH_HEX + 2 || !hash_parse(text, out->hash) || memcmp(text + HASH_HEX, "  ", 2) != 0)
        return false;
    const char *at = text + HASH_HEX + 2, *digits = at;
    out->bytes = 0;
    for (; at < end && *at >= '0' && *at <= '9'; at++) {
        if (__builtin_mul_overflow(out->bytes, (uint64_t)10, &out->bytes) ||
            __builtin_add_overflow(out->bytes, (uint64_t)(*at - '0'), &out->bytes))
            return false;
    }
    if (at == digits || end - at < 2 || memcmp(at, "  ", 2) != 0)
        return false;
    return name_parse(at + 2, (size_t)(end - at - 2), out->name);
}

static enum status manifest_parse(const struct buf *text, const char *path, struct manifest *out,
                                  struct error *err)
{
    size_t at = 0;
    while (at < text->len) {
        const char *start = text->data + at, *end = memchr(start, '\n', text->len - at);
        if (out->count == MANIFEST_FILES_MAX)
            return error_set(err, ERR_INPUT, "%s: more than %d lines", path, MANIFEST_FILES_MAX);
        if (end == NULL || !line_parse(start, (size_t)(end - start), &out->lines[out->count]))
            return error_set(err, ERR_INPUT, "%s: line %zu: expected 'sha256  size  name'", path,
                             out->count + 1);
        out->count++;
        at += (size_t)(end - start) + 1;
    }
    qsort(out->lines, out->count, sizeof out->lines[0], by_name);
    for (size_t i = 1; i < out->count; i++) {
        if (by_name(&out->lines[i - 1], &out->lines[i]) == 0)
            return error_set(err, ERR_INPUT, "%s: %s stands in two lines", path,
                             out->lines[i].name);
    }
    return OK;
}

/* ---- comparing ------------------------------------------------------------------------------ */

static enum status folder_listed(const char *dir, const struct manifest *m, struct error *err)
{
    DIR *folder = opendir(dir);
    if (folder == NULL)
        return error_set(err, ERR_IO, "%s: %s", dir, strerror(errno));
    enum status status = OK;
    for (struct dirent *entry; status == OK && (entry = readdir(folder)) != NULL;) {
        struct stat st;
        struct line key = {0};
        if (fstatat(dirfd(folder), entry->d_name, &st, 0) == 0 && S_ISDIR(st.st_mode))
            continue;
        if (strcmp(entry->d_name, MANIFEST_FILE) == 0)
            continue;
        bool fits = strlen(entry->d_name) < sizeof key.name;
        if (fits)
            strcpy(key.name, entry->d_name);
        if (!fits || bsearch(&key, m->lines, m->count, sizeof key, by_name) == NULL)
            status = error_set(err, ERR_CHECK, "%s/%.*s: not in %s", dir,
                               CHECKPOINT_FILE_NAME_BYTES, entry->d_name, MANIFEST_FILE);
    }
    closedir(folder);
    return status;
}

/* Mapped, and of the size that the manifest says. */
static enum status file_open_listed(const char *path, const struct line *line, struct mapping *map,
                                    struct error *err)
{
    if (access(path, F_OK) != 0)
        return error_set(err, ERR_CHECK, "%s: missing, but in %s", path, MANIFEST_FILE);
    enum status status = file_map(path, map, err);
    if (status == OK && map->size != line->bytes)
        status = error_set(err, ERR_CHECK, "%s: %zu bytes, %s says %" PRIu64, path, map->size,
                           MANIFEST_FILE, line->bytes);
    return status;
}

/* leaves.sha256 itself is hashed whole. */
static enum status leaves_read(const char *path, const struct manifest *m, struct buf *text,
                               struct error *err)
{
    unsigned char hash[crypto_hash_sha256_BYTES];
    struct line key = {.name = MANIFEST_LEAVES};
    const struct line *line = bsearch(&key, m->lines, m->count, sizeof key, by_name);
    if (line == NULL)
        return error_set(err, ERR_INPUT, "%s: not in %s; tools/manifest.py writes both", path,
                         MANIFEST_FILE);
    if (access(path, F_OK) != 0)
        return error_set(err, ERR_CHECK, "%s: missing, but in %s", path, MANIFEST_FILE);
    enum status status = file_read(path, (size_t)LEAVES_MAX * (HASH_HEX + 1), text, err);
    if (status != OK)
        return status;
    crypto_hash_sha256(hash, (const unsigned char *)text->data, text->len);
    if (text->len != line->bytes || memcmp(hash, line->hash, sizeof hash) != 0)
        return error_set(err, ERR_CHECK, "%s: SHA-256 differs from %s", path, MANIFEST_FILE);
    return OK;
}

struct opened {
    struct buf *paths;            /* owns; [count] */
    struct leafcheck_file *files; /* owns, and the mappings; [count], without leaves.sha256 */
    size_t count;
};

static enum status open_all(const char *dir, const struct manifest *m, struct opened *o,
                            struct manifest_result *out, struct error *err)
{
    enum status status = OK;
    for (size_t i = 0; status == OK && i < m->count; i++) {
        out->bytes += m->lines[i].bytes;
        if (strcmp(m->lines[i].name, MANIFEST_LEAVES) == 0)
            continue;
        struct buf *path = &o->paths[o->count];
        struct leafcheck_file *file = &o->files[o->count++];
        buf_printf(path, "%s/%s", dir, m->lines[i].name);
        file->path = buf_cstr(path);
        status = file_open_listed(file->path, &m->lines[i], &file->map, err);
    }
    out->files = m->count;
    return status;
}

static void close_all(struct opened *o)
{
    for (size_t i = 0; i < o->count; i++) {
        file_unmap(&o->files[i].map);
        buf_free(&o->paths[i]);
    }
    free(o->paths);
    free(o->files);
}

static enum status lines_match(const char *dir, const struct manifest *m,
                               struct manifest_result *out, struct error *err)
{
    struct buf path = {0}, text = {0};
    struct opened o = {.paths = calloc(m->count + 1, sizeof *o.paths),
                       .files = calloc(m->count + 1, sizeof *o.files)};
    ASSERT(o.paths != NULL);
    ASSERT(o.files != NULL);
    buf_printf(&path, "%s/%s", dir, MANIFEST_LEAVES);
    enum status status = open_all(dir, m, &o, out, err);
    if (status == OK)
        status = leaves_read(buf_cstr(&path), m, &text, err);
    if (status == OK)
        status = leafcheck(o.files, o.count, buf_cstr(&path), &text, err);
    close_all(&o);
    buf_free(&text);
    buf_free(&path);
    return status;
}

enum status manifest_verify(const char *dir, struct manifest_result *out, struct error *err)
{
    struct buf path = {0}, text = {0};
    struct manifest m = {.lines = calloc(MANIFEST_FILES_MAX, sizeof(struct line))};
    struct manifest_result result = {0};
    ASSERT(m.lines != NULL);
    buf_printf(&path, "%s/%s", dir, MANIFEST_FILE);
    enum status status = OK;
    result.present = access(buf_cstr(&path), F_OK) == 0;
    if (result.present) {
        status = file_read(buf_cstr(&path), MANIFEST_BYTES_MAX, &text, err);
        if (status == OK)
            status = manifest_parse(&text, path.data, &m, err);
        if (status == OK)
            status = folder_listed(dir, &m, err);
        if (status == OK)
            status = lines_match(dir, &m, &result, err);
    }
    if (status == OK)
        *out = result;
    free(m.lines);
    buf_free(&text);
    buf_free(&path);
    return status;
}
