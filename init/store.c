/* The folder of the models, and a model on its way in. */
#include "init/store.h"

#include "init/files.h"
#include "init/modelplan.h"
#include "init/readback.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define PATH_BYTES 256 /* what file_save takes */
#define INCOMING   ".incoming"
#define GB         1000000000.0

static bool refuse(struct text *said, const char *what, const char *why)
{
    text_printf(said, "%s: %s", what, why);
    return false;
}

static const char *path_of(char path[PATH_BYTES], const struct store *s, const char *folder,
                           const char *name)
{
    int n = snprintf(path, PATH_BYTES, "%s/%s%s%s", s->root, folder, folder[0] == '\0' ? "" : "/",
                     name);
    return n < PATH_BYTES ? path : "";
}

static const char *file_path(char path[PATH_BYTES], const char *folder, const char *name)
{
    return snprintf(path, PATH_BYTES, "%s/%s", folder, name) < PATH_BYTES ? path : "";
}

/* The bits of what is there of a model on its way. */
static const char *have_path(char path[PATH_BYTES], const struct store *s, const char *name)
{
    char file[MODEL_NAME_CHARS + sizeof ".have"];
    snprintf(file, sizeof file, "%s.have", name);
    return path_of(path, s, INCOMING, file);
}

static bool is_folder(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static bool sync_path(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    bool good = fd >= 0 && fsync(fd) == 0;
    if (fd >= 0)
        close(fd);
    return good;
}

/* Held until the process or store_unlock ends it. */
static bool lock(struct store *s, const char *name, struct text *said)
{
    if (!modelplan_name_good(name))
        return refuse(
            said, "the name",
            "letters and digits, between them also dots, hyphens, underscores; 63 at most");
    s->lock = open(s->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (s->lock >= 0 && flock(s->lock, LOCK_EX | LOCK_NB) == 0)
        return true;
    refuse(said, name,
           errno == EWOULDBLOCK ? "another model is being written or removed" : strerror(errno));
    if (s->lock >= 0)
        close(s->lock);
    s->lock = -1;
    return false;
}

static bool unlock(struct store *s, bool good)
{
    close(s->lock);
    s->lock = -1;
    return good;
}

/* ---- what is there ------------------------------------------------------------------------------
 */

/* Both files, one behind the other in s->text.  @err why not, for people, until the next call */
static const char *parse(struct store *s, size_t manifest_n, size_t n)
{
    static char said[128];
    struct leaves_fault at;
    const char *wrong =
        leaves_parse(&s->leaves, s->text, manifest_n, s->text + manifest_n, n - manifest_n, &at);
    if (wrong == NULL)
        return NULL;
    if (at.line > 0)
        snprintf(said, sizeof said, "%s: line %zu: %s", at.file, at.line, wrong);
    else
        snprintf(said, sizeof said, "%s: %s", at.file, wrong);
    return said;
}

/* Reads manifest and leaves of a folder into s->text and s->leaves.  @err why not, for people */
static const char *load_leaves(struct store *s, const char *folder)
{
    char path[PATH_BYTES];
    ssize_t n = file_load(file_path(path, folder, LEAVES_MANIFEST), s->text, MANIFEST_BYTES_MAX);
    if (n < 0)
        return errno == ENOENT ? "it has no " LEAVES_MANIFEST : LEAVES_MANIFEST " can not be read";
    ssize_t more = file_load(file_path(path, folder, LEAVES_FILE), s->text + n, LEAVES_TEXT_BYTES);
    if (more < 0)
        return errno == ENOENT ? "it has no " LEAVES_FILE : LEAVES_FILE " can not be read";
    return parse(s, (size_t)n, (size_t)(n + more));
}

static size_t have_bytes(const struct store *s)
{
    return ((size_t)s->leaves.count + 7) / 8;
}

static bool save_have(const struct store *s, const char *name)
{
    char path[PATH_BYTES];
    return file_save(have_path(path, s, name), (const char *)s->have, have_bytes(s), geteuid());
}

static bool has(const struct store *s, uint32_t leaf)
{
    return (s->have[leaf / 8] >> leaf % 8 & 1) != 0;
}

static uint32_t count_missing(const struct store *s)
{
    uint32_t missing = 0;
    for (uint32_t i = 0; i < s->leaves.count; i++)
        missing += !has(s, i);
    return missing;
}

/* A model on its way, and what is there of it. */
static bool open_incoming(struct store *s, const char *name, char folder[PATH_BYTES],
                          struct text *said)
{
    char path[PATH_BYTES];
    if (!modelplan_name_good(name) || !is_folder(path_of(folder, s, INCOMING, name)))
        return refuse(said, name, "no such model is on its way; `model receive NAME` begins one");
    const char *wrong = load_leaves(s, folder);
    if (wrong != NULL)
        return refuse(said, name, wrong);
    ssize_t n = file_load(have_path(path, s, name), (char *)s->have, sizeof s->have);
    if (n == (ssize_t)have_bytes(s))
        return true;
    /* What is not known to be there is asked for again. */
    memset(s->have, 0, sizeof s->have);
    return save_have(s, name) || refuse(said, name, strerror(errno));
}

/* ---- beginning ----------------------------------------------------------------------------------
 */

/* Removes the files of a folder and the folder; a model has no folders inside. */
static bool remove_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;
    if (folder == NULL)
        return errno == ENOENT;
    while ((entry = readdir(folder)) != NULL)
        unlinkat(fd, entry->d_name, 0);
    closedir(folder);
    return rmdir(path) == 0;
}

/* The room is taken at once: a disk that is too small is known before the first byte comes. */
static bool take_room(const char *folder, const struct leaves_file *file)
{
    char path[PATH_BYTES];
    off_t size;
    int fd = file_open(file_path(path, folder, file->name), O_WRONLY | O_CREAT, &size);
    if (fd < 0)
        return false;
    int code = file->bytes == 0 ? 0 : posix_fallocate(fd, 0, (off_t)file->bytes);
    if (code == 0 && fsync(fd) != 0)
        code = errno;
    close(fd);
    errno = code;
    return code == 0;
}

static bool save_part(const char *folder, const char *name, const char *bytes, size_t n)
{
    char path[PATH_BYTES];
    return file_save(file_path(path, folder, name), bytes, n, geteuid());
}

/* The manifest comes last: where it is, everything else is. */
static bool prepare(struct store *s, const char *name, const char *folder, size_t manifest_n,
                    size_t n)
{
    char path[PATH_BYTES];
    path_of(path, s, "", INCOMING);
    if (!folder_make(path, 0755, geteuid()) || !folder_make(folder, 0700, geteuid()))
        return false;
    for (int i = 0; i < s->leaves.files; i++)
        if (!take_room(folder, &s->leaves.file[i]))
            return false;
    memset(s->have, 0, sizeof s->have);
    return save_have(s, name) &&
           save_part(folder, LEAVES_FILE, s->text + manifest_n, n - manifest_n) &&
           save_part(folder, LEAVES_MANIFEST, s->text, manifest_n) &&
           sync_path(path_of(path, s, "", INCOMING)) && sync_path(s->root);
}

static bool has_room(const struct store *s, struct text *said, const char *name)
{
    struct statvfs fs;
    if (statvfs(s->root, &fs) != 0)
        return refuse(said, name, strerror(errno));
    uint64_t free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
    if (free_bytes >= s->leaves.bytes + MODEL_SPARE_BYTES)
        return true;
    text_printf(
        said,
        "%s: it takes %.3f GB, and %.3f GB are free; `model grow` takes the rest of the disk, "
        "`model delete` removes one",
        name, (double)s->leaves.bytes / GB, (double)free_bytes / GB);
    return false;
}

/* Whether what is on its way under this name is of the same manifest. */
static bool same_manifest(const char *folder, const char *manifest, size_t n)
{
    static char there[MANIFEST_BYTES_MAX];
    char path[PATH_BYTES];
    return file_load(file_path(path, folder, LEAVES_MANIFEST), there, sizeof there) == (ssize_t)n &&
           memcmp(there, manifest, n) == 0;
}

static bool begin(struct store *s, const char *name, size_t n, struct text *said)
{
    char folder[PATH_BYTES], path[PATH_BYTES];
    size_t manifest_n = leaves_divide(s->text, n);
    const char *wrong = parse(s, manifest_n, n);
    if (wrong != NULL)
        return refuse(said, name, wrong);
    if (is_folder(path_of(path, s, "", name)))
        return refuse(said, name, "a model of this name is here already");
    path_of(folder, s, INCOMING, name);
    if (access(file_path(path, folder, LEAVES_MANIFEST), F_OK) == 0) {
        if (!same_manifest(folder, s->text, manifest_n))
            return refuse(said, name,
                          "another model is on its way under this name; `model delete` removes it");
        if (!open_incoming(s, name, folder, said))
            return false;
        text_printf(said, "%s goes on: %" PRIu32 " of %" PRIu32 " MiB are missing\n", name,
                    count_missing(s), s->leaves.count);
        return true;
    }
    if (!remove_folder(folder) || !has_room(s, said, name))
        return said->len > 0 ? false : refuse(said, name, strerror(errno));
    if (!prepare(s, name, folder, manifest_n, n)) {
        refuse(said, name, strerror(errno));
        remove_folder(folder);
        return false;
    }
    text_printf(said, "%s begins: %d files, %" PRIu32 " MiB\n", name, s->leaves.files,
                s->leaves.count);
    return true;
}

bool store_begin(struct store *s, const char *name, size_t n, struct text *said)
{
    return lock(s, name, said) && unlock(s, begin(s, name, n, said));
}

bool store_missing(struct store *s, const char *name, struct text *said)
{
    char folder[PATH_BYTES];
    uint32_t runs = 0;
    if (!open_incoming(s, name, folder, said))
        return false;
    for (int f = 0; f < s->leaves.files; f++) {
        const struct leaves_file *file = &s->leaves.file[f];
        for (uint32_t i = 0, run; i < file->count && runs < MODEL_RUNS_MAX; i += run) {
            bool missing = !has(s, file->first + i);
            run = 1;
            while (i + run < file->count && !has(s, file->first + i + run) == missing)
                run++;
            if (missing)
                text_printf(said, "%s %" PRIu32 " %" PRIu32 "\n", file->name, i, run);
            runs += missing;
        }
    }
    if (runs == 0)
        text_printf(said,
                    "nothing is missing; `model finish %s` checks it all and puts it in its "
                    "place\n",
                    name);
    return true;
}

/* ---- taking -------------------------------------------------------------------------------------
 */

struct taking {
    struct store *s;
    const struct leaves_file *file;
    int fd, have_fd;        /* owns */
    uint32_t next, written; /* leaves of the file; those up to `written` are remembered */
};

static bool write_whole(int fd, const void *bytes, size_t n, off_t at)
{
    for (size_t len = 0; len < n;) {
        ssize_t done = pwrite(fd, (const char *)bytes + len, n - len, at + (off_t)len);
        if (done <= 0 && errno != EINTR)
            return false;
        len += done > 0 ? (size_t)done : 0;
    }
    return true;
}

/* First the bytes are on the disk, then the word that they are. */
static bool remember(struct taking *t)
{
    uint8_t *have = t->s->have;
    uint32_t first = t->file->first + t->written, last = t->file->first + t->next;
    if (first == last)
        return true;
    for (uint32_t i = first; i < last; i++)
        have[i / 8] = (uint8_t)(have[i / 8] | 1 << i % 8);
    size_t from = first / 8, to = (last + 7) / 8;
    bool good = fdatasync(t->fd) == 0 &&
                write_whole(t->have_fd, have + from, to - from, (off_t)from) &&
                fdatasync(t->have_fd) == 0;
    if (good)
        t->written = t->next;
    return good;
}

enum took { TOOK_ONE, TOOK_END, TOOK_WRONG };

static enum took take_one(struct taking *t, store_source source, void *context, struct text *said)
{
    static uint8_t bytes[LEAF_BYTES];
    const struct leaves_file *file = t->file;
    if (t->next == file->count) {
        if (source(context, bytes, 1) == 0)
            return TOOK_END;
        refuse(said, file->name, "more bytes came than it has");
        return TOOK_WRONG;
    }
    size_t n = leaves_size(file, file->first + t->next), got = source(context, bytes, n);
    if (got == 0)
        return TOOK_END;
    if (got < n || !leaves_fit(&t->s->leaves, file->first + t->next, bytes, n)) {
        text_printf(said, "%s: MiB %" PRIu32 " %s; send it again\n", file->name, t->next,
                    got < n ? "came in part" : "is not what the manifest says");
        return TOOK_WRONG;
    }
    if (!write_whole(t->fd, bytes, n, (off_t)t->next * LEAF_BYTES)) {
        refuse(said, file->name, strerror(errno));
        return TOOK_WRONG;
    }
    t->next++;
    return TOOK_ONE;
}

static bool take_file(struct taking *t, store_source source, void *context, struct text *said)
{
    enum took took = TOOK_ONE;
    uint32_t first = t->next;
    bool good = true;
    while (took == TOOK_ONE && good) {
        took = take_one(t, source, context, said);
        if (t->next - t->written >= MODEL_SYNC_LEAVES || took != TOOK_ONE)
            good = remember(t);
    }
    if (!good)
        refuse(said, t->file->name, strerror(errno));
    text_printf(said, "%s: %" PRIu32 " MiB taken\n", t->file->name, t->written - first);
    return good && took == TOOK_END;
}

static bool take(struct store *s, const char *name, const char *file, uint32_t first,
                 store_source source, void *context, struct text *said)
{
    char folder[PATH_BYTES], path[PATH_BYTES];
    off_t size;
    struct taking t = {.s = s, .next = first, .written = first};
    if (!open_incoming(s, name, folder, said))
        return false;
    t.file = leaves_find(&s->leaves, file);
    if (t.file == NULL || first >= t.file->count)
        return refuse(said, file, "the manifest has no such file, or not so many MiB of it");
    t.fd = file_open(file_path(path, folder, file), O_WRONLY, &size);
    if (t.fd < 0 || size != (off_t)t.file->bytes) {
        if (t.fd >= 0)
            close(t.fd);
        return refuse(said, file, "the disk has lost it; `model delete` and begin again");
    }
    t.have_fd = file_open(have_path(path, s, name), O_WRONLY, &size);
    bool good = t.have_fd >= 0 && take_file(&t, source, context, said);
    if (t.have_fd >= 0)
        close(t.have_fd);
    close(t.fd);
    return good;
}

bool store_take(struct store *s, const char *name, const char *file, uint32_t first,
                store_source source, void *context, struct text *said)
{
    return lock(s, name, said) && unlock(s, take(s, name, file, first, source, context, said));
}

/* ---- the end ------------------------------------------------------------------------------------
 */

static void say_bad(const struct store *s, uint32_t bad, struct text *said)
{
    uint32_t leaf = 0;
    while (leaf < s->leaves.count && s->state[leaf] == LEAF_GOOD)
        leaf++;
    const struct leaves_file *file = leaves_owner(&s->leaves, leaf);
    if (file == NULL)
        return;
    text_printf(said, "%s: MiB %" PRIu32 " %s; %" PRIu32 " of %" PRIu32 " MiB are not good\n",
                file->name, leaf - file->first,
                s->state[leaf] == LEAF_DIFFERS ? "is not what the manifest says"
                                               : "can not be read",
                bad, s->leaves.count);
}

/* The engine has another user: from now on everybody may read, and nobody writes. */
static bool open_to_all(const struct store *s, const char *folder)
{
    char path[PATH_BYTES];
    bool good = chmod(file_path(path, folder, LEAVES_MANIFEST), 0444) == 0 &&
                chmod(file_path(path, folder, LEAVES_FILE), 0444) == 0;
    for (int i = 0; i < s->leaves.files; i++)
        good = chmod(file_path(path, folder, s->leaves.file[i].name), 0444) == 0 && good;
    return chmod(folder, 0755) == 0 && good && sync_path(folder);
}

static bool finish(struct store *s, const char *name, struct text *said)
{
    char folder[PATH_BYTES], place[PATH_BYTES], path[PATH_BYTES];
    if (!open_incoming(s, name, folder, said))
        return false;
    if (count_missing(s) > 0)
        return refuse(said, name, "not everything is here; `model missing` tells");
    uint32_t bad = readback(folder, &s->leaves, s->state);
    if (bad > 0) {
        for (uint32_t i = 0; i < s->leaves.count; i++)
            if (s->state[i] != LEAF_GOOD)
                s->have[i / 8] = (uint8_t)(s->have[i / 8] & ~(1 << i % 8));
        save_have(s, name);
        say_bad(s, bad, said);
        return false;
    }
    if (!open_to_all(s, folder) || rename(folder, path_of(place, s, "", name)) != 0 ||
        !sync_path(s->root))
        return refuse(said, name, strerror(errno));
    /* What a power cut leaves of it is written over by the next of this name. */
    unlink(have_path(path, s, name));
    text_printf(said, "%s is complete: %d files, %.3f GB, read back and good\n", name,
                s->leaves.files, (double)s->leaves.bytes / GB);
    return true;
}

bool store_finish(struct store *s, const char *name, struct text *said)
{
    return lock(s, name, said) && unlock(s, finish(s, name, said));
}

/* ---- models in their place ----------------------------------------------------------------------
 */

static bool open_whole(struct store *s, const char *name, char folder[PATH_BYTES],
                       struct text *said)
{
    if (!modelplan_name_good(name) || !is_folder(path_of(folder, s, "", name)))
        return refuse(said, name, "there is no such model");
    const char *wrong = load_leaves(s, folder);
    return wrong == NULL || refuse(said, name, wrong);
}

bool store_is_whole(struct store *s, const char *name, struct text *said)
{
    char folder[PATH_BYTES], path[PATH_BYTES];
    if (!open_whole(s, name, folder, said))
        return false;
    for (int i = 0; i < s->leaves.files; i++) {
        struct stat st;
        const struct leaves_file *file = &s->leaves.file[i];
        if (lstat(file_path(path, folder, file->name), &st) != 0 || !S_ISREG(st.st_mode) ||
            st.st_size != (off_t)file->bytes)
            return refuse(said, file->name, "absent, or not of the size that the manifest says");
    }
    return true;
}

bool store_verify(struct store *s, const char *name, struct text *said)
{
    char folder[PATH_BYTES];
    if (!open_whole(s, name, folder, said))
        return false;
    uint32_t bad = readback(folder, &s->leaves, s->state);
    if (bad > 0) {
        say_bad(s, bad, said);
        return false;
    }
    text_printf(said, "%s: %d files, %.3f GB, all of it as the manifest says\n", name,
                s->leaves.files, (double)s->leaves.bytes / GB);
    return true;
}

static bool drop(struct store *s, const char *name, struct text *said)
{
    char place[PATH_BYTES], incoming[PATH_BYTES], path[PATH_BYTES];
    bool whole = is_folder(path_of(place, s, "", name));
    bool partial = is_folder(path_of(incoming, s, INCOMING, name));
    if (!whole && !partial)
        return refuse(said, name, "there is no such model");
    /* Without its manifest a model is no model: nothing half removed is taken for one. */
    unlink(file_path(path, whole ? place : incoming, LEAVES_MANIFEST));
    unlink(have_path(path, s, name));
    if ((whole && !remove_folder(place)) || (partial && !remove_folder(incoming)))
        return refuse(said, name, strerror(errno));
    sync_path(s->root);
    text_printf(said, "%s is removed\n", name);
    return true;
}

bool store_delete(struct store *s, const char *name, struct text *said)
{
    return lock(s, name, said) && unlock(s, drop(s, name, said));
}

static void list_one(struct store *s, const char *name, const char *mark, struct text *said)
{
    char why[PATH_BYTES], hex[2 * LEAF_HASH_BYTES + 1], path[PATH_BYTES], folder[PATH_BYTES];
    uint8_t hash[LEAF_HASH_BYTES];
    struct text wrong = text_over(why, sizeof why);
    if (!store_is_whole(s, name, &wrong)) {
        text_printf(said, "%-32s not to be used: %s%s\n", name, why, mark);
        return;
    }
    ssize_t n = file_load(file_path(path, path_of(folder, s, "", name), LEAVES_MANIFEST), s->text,
                          MANIFEST_BYTES_MAX);
    crypto_hash_sha256(hash, (const uint8_t *)s->text, n < 0 ? 0 : (size_t)n);
    sodium_bin2hex(hex, sizeof hex, hash, sizeof hash);
    text_printf(said, "%-32s %9.3f GB  manifest %.16s%s\n", name, (double)s->leaves.bytes / GB, hex,
                mark);
}

static void list_incoming(struct store *s, const char *name, struct text *said)
{
    char folder[PATH_BYTES], why[PATH_BYTES];
    struct text wrong = text_over(why, sizeof why);
    if (!open_incoming(s, name, folder, &wrong))
        return; /* a manifest that did not come to its end */
    text_printf(said, "%-32s on its way: %" PRIu32 " of %" PRIu32 " MiB are missing\n", name,
                count_missing(s), s->leaves.count);
}

/* Calls `one` for each folder of `path` with a name that a model may have. */
static void each(struct store *s, const char *path,
                 void (*one)(struct store *s, const char *name, void *context), void *context)
{
    DIR *folder = opendir(path);
    struct dirent *entry;
    int left = MODEL_LIST_MAX;
    if (folder == NULL)
        return;
    while (left > 0 && (entry = readdir(folder)) != NULL) {
        char inside[PATH_BYTES];
        if (!modelplan_name_good(entry->d_name) ||
            !is_folder(file_path(inside, path, entry->d_name)))
            continue;
        one(s, entry->d_name, context);
        left--;
    }
    closedir(folder);
}

struct listing {
    const char *active, *mark;
    struct text *said;
};

static void each_whole(struct store *s, const char *name, void *context)
{
    const struct listing *l = context;
    list_one(s, name, strcmp(name, l->active) == 0 ? l->mark : "", l->said);
}

static void each_incoming(struct store *s, const char *name, void *context)
{
    const struct listing *l = context;
    list_incoming(s, name, l->said);
}

void store_list(struct store *s, const char *active, const char *mark, struct text *said)
{
    char path[PATH_BYTES];
    struct listing listing = {active, mark, said};
    each(s, s->root, each_whole, &listing);
    each(s, path_of(path, s, "", INCOMING), each_incoming, &listing);
}
