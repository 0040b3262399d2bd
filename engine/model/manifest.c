/* manifest.sha256: read whole, then compared with the folder, then hashed by its leaves. */
#include "engine/model/manifest.h"

#include "common/leaves.h"
#include "engine/base/file.h"
#include "engine/model/leafcheck.h"
#include "kernels/check.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What is known of a folder while it is checked. */
struct folder {
    const char *dir;              /* borrows */
    struct buf path;              /* of the manifest, then of whatever is looked at */
    struct buf text, leaves;      /* of both files */
    struct leaves *m;             /* owns */
    struct buf *paths;            /* owns; [MANIFEST_FILES_MAX] */
    struct leafcheck_file *files; /* owns, and the mappings; [MANIFEST_FILES_MAX] */
    size_t count;                 /* of those that are open */
};

static const char *path_of(struct folder *f, const char *name)
{
    f->path.len = 0;
    buf_printf(&f->path, "%s/%s", f->dir, name);
    return buf_cstr(&f->path);
}

/* ---- reading -----------------------------------------------------------------------------------
 */

static enum status parse(struct folder *f, struct error *err)
{
    struct leaves_fault at;
    const char *wrong =
        leaves_parse(f->m, f->text.data, f->text.len, f->leaves.data, f->leaves.len, &at);
    if (wrong == NULL)
        return OK;
    enum status status = at.foreign ? ERR_CHECK : ERR_INPUT;
    const char *path = path_of(f, at.file);
    return at.line > 0 ? error_set(err, status, "%s: line %zu: %s", path, at.line, wrong)
                       : error_set(err, status, "%s: %s", path, wrong);
}

static enum status read_both(struct folder *f, struct error *err)
{
    enum status status = file_read(path_of(f, LEAVES_MANIFEST), MANIFEST_BYTES_MAX, &f->text, err);
    if (status != OK)
        return status;
    const char *path = path_of(f, LEAVES_FILE);
    if (access(path, F_OK) != 0)
        return error_set(err, ERR_CHECK, "%s: missing; tools/manifest.py writes it with %s", path,
                         LEAVES_MANIFEST);
    status = file_read(path, LEAVES_TEXT_BYTES, &f->leaves, err);
    return status == OK ? parse(f, err) : status;
}

/* ---- comparing ---------------------------------------------------------------------------------
 */

static bool is_listed(const struct leaves *m, const char *name)
{
    return strcmp(name, LEAVES_MANIFEST) == 0 || strcmp(name, LEAVES_FILE) == 0 ||
           leaves_find(m, name) != NULL;
}

static enum status folder_listed(const struct folder *f, struct error *err)
{
    DIR *folder = opendir(f->dir);
    if (folder == NULL)
        return error_set(err, ERR_IO, "%s: %s", f->dir, strerror(errno));
    enum status status = OK;
    for (struct dirent *entry; status == OK && (entry = readdir(folder)) != NULL;) {
        struct stat st;
        if (fstatat(dirfd(folder), entry->d_name, &st, 0) == 0 && S_ISDIR(st.st_mode))
            continue;
        if (!is_listed(f->m, entry->d_name))
            status = error_set(err, ERR_CHECK, "%s/%.*s: not in %s", f->dir,
                               CHECKPOINT_FILE_NAME_BYTES, entry->d_name, LEAVES_MANIFEST);
    }
    closedir(folder);
    return status;
}

/* Mapped, and of the size that the manifest says. */
static enum status file_open_listed(const char *path, const struct leaves_file *file,
                                    struct mapping *map, struct error *err)
{
    if (access(path, F_OK) != 0)
        return error_set(err, ERR_CHECK, "%s: missing, but in %s", path, LEAVES_MANIFEST);
    enum status status = file_map(path, map, err);
    if (status == OK && map->size != file->bytes)
        status = error_set(err, ERR_CHECK, "%s: %zu bytes, %s says %" PRIu64, path, map->size,
                           LEAVES_MANIFEST, file->bytes);
    return status;
}

static enum status open_all(struct folder *f, struct error *err)
{
    enum status status = OK;
    for (int i = 0; status == OK && i < f->m->files; i++) {
        struct buf *path = &f->paths[f->count];
        struct leafcheck_file *file = &f->files[f->count++];
        buf_printf(path, "%s/%s", f->dir, f->m->file[i].name);
        file->path = buf_cstr(path);
        status = file_open_listed(file->path, &f->m->file[i], &file->map, err);
    }
    return status;
}

static void folder_close(struct folder *f)
{
    for (size_t i = 0; i < f->count; i++) {
        file_unmap(&f->files[i].map);
        buf_free(&f->paths[i]);
    }
    free(f->paths);
    free(f->files);
    free(f->m);
    buf_free(&f->text);
    buf_free(&f->leaves);
    buf_free(&f->path);
}

enum status manifest_verify(const char *dir, struct manifest_result *out, struct error *err)
{
    struct folder f = {.dir = dir,
                       .m = calloc(1, sizeof *f.m),
                       .paths = calloc(MANIFEST_FILES_MAX, sizeof *f.paths),
                       .files = calloc(MANIFEST_FILES_MAX, sizeof *f.files)};
    ASSERT(f.m != NULL);
    ASSERT(f.paths != NULL);
    ASSERT(f.files != NULL);
    enum status status = OK;
    struct manifest_result result = {.present = access(path_of(&f, LEAVES_MANIFEST), F_OK) == 0};
    if (result.present) {
        status = read_both(&f, err);
        if (status == OK)
            status = folder_listed(&f, err);
        if (status == OK)
            status = open_all(&f, err);
        if (status == OK)
            status = leafcheck(f.m, f.files, err);
        result.files = (size_t)f.m->files + 1; /* leaves.sha256 itself */
        result.bytes = f.m->bytes + f.leaves.len;
    }
    if (status == OK)
        *out = result;
    folder_close(&f);
    return status;
}
