/* What a model must be, byte for byte. */
#include "common/leaves.h"

#include <assert.h>
#include <sodium.h>
#include <string.h>

#define HASH_CHARS (2 * LEAF_HASH_BYTES)
#define LINE_BYTES (HASH_CHARS + 1) /* of leaves.sha256 */

static_assert(sizeof(char[LEAF_HASH_BYTES]) == crypto_hash_sha256_BYTES, "SHA-256");

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool take_hash(uint8_t out[LEAF_HASH_BYTES], const char *text)
{
    for (int i = 0; i < LEAF_HASH_BYTES; i++) {
        int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        out[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

/* Names go into paths and into words of a command: printable, no blank, no slash, nothing hidden.
 */
static bool take_name(char out[CHECKPOINT_FILE_NAME_BYTES], const char *text, size_t n)
{
    if (n == 0 || n >= CHECKPOINT_FILE_NAME_BYTES || text[0] == '.')
        return false;
    for (size_t i = 0; i < n; i++)
        if (text[i] <= ' ' || text[i] > '~' || text[i] == '/' || text[i] == '\\')
            return false;
    memcpy(out, text, n);
    out[n] = '\0';
    return strcmp(out, LEAVES_MANIFEST) != 0;
}

/* One line without its newline. */
static bool take_line(struct leaves_file *file, uint8_t hash[LEAF_HASH_BYTES], const char *line,
                      size_t n)
{
    size_t i = HASH_CHARS + 2, start = i;
    if (n < i || !take_hash(hash, line) || memcmp(line + HASH_CHARS, "  ", 2) != 0)
        return false;
    for (file->bytes = 0; i < n && line[i] >= '0' && line[i] <= '9'; i++) {
        file->bytes = file->bytes * 10 + (uint64_t)(line[i] - '0');
        if (file->bytes > LEAVES_MODEL_BYTES)
            return false;
    }
    return i > start && n - i > 2 && memcmp(line + i, "  ", 2) == 0 &&
           take_name(file->name, line + i + 2, n - i - 2);
}

/* Each but leaves.sha256 is told its leaves. */
static const char *add_file(struct leaves *out, const struct leaves_file *file)
{
    uint64_t count = (file->bytes + LEAF_BYTES - 1) / LEAF_BYTES;
    if (out->files == MANIFEST_FILES_MAX || out->bytes + file->bytes > LEAVES_MODEL_BYTES ||
        out->count + count > LEAVES_MAX)
        return "more than a model may have";
    if (out->files > 0 && strcmp(out->file[out->files - 1].name, file->name) >= 0)
        return "not sorted by name";
    struct leaves_file *added = &out->file[out->files++];
    *added = *file;
    added->first = out->count;
    added->count = (uint32_t)count;
    out->count += (uint32_t)count;
    out->bytes += file->bytes;
    return NULL;
}

static const char *take_leaves(struct leaves *out, const char *text, size_t n,
                               struct leaves_fault *at)
{
    at->file = LEAVES_FILE;
    at->line = 0;
    if (n != (size_t)out->count * LINE_BYTES)
        return "not one line for each MiB of each file";
    for (uint32_t i = 0; i < out->count; i++) {
        const char *line = text + (size_t)i * LINE_BYTES;
        at->line = i + 1;
        if (!take_hash(out->hash[i], line) || line[HASH_CHARS] != '\n')
            return "expected a sha256";
    }
    return NULL;
}

/* The lines of the manifest, one after the other; *listed: leaves.sha256 is one of them. */
static const char *take_manifest(struct leaves *out, const char *text, size_t n,
                                 struct leaves_file *leaves, uint8_t leaves_hash[LEAF_HASH_BYTES],
                                 bool *listed, struct leaves_fault *at)
{
    for (size_t i = 0; i < n;) {
        struct leaves_file file;
        uint8_t hash[LEAF_HASH_BYTES];
        const char *line = text + i, *newline = memchr(line, '\n', n - i), *wrong = NULL;
        at->line++;
        if (newline == NULL || !take_line(&file, hash, line, (size_t)(newline - line)))
            return "expected 'sha256  size  name'";
        i += (size_t)(newline - line) + 1;
        if (strcmp(file.name, LEAVES_FILE) != 0)
            wrong = add_file(out, &file);
        else if (*listed)
            wrong = LEAVES_FILE " stands in two lines";
        if (wrong != NULL)
            return wrong;
        if (strcmp(file.name, LEAVES_FILE) != 0)
            continue;
        *listed = true;
        *leaves = file;
        memcpy(leaves_hash, hash, sizeof hash);
    }
    return NULL;
}

const char *leaves_parse(struct leaves *out, const char *manifest, size_t manifest_n,
                         const char *leaves, size_t leaves_n, struct leaves_fault *at)
{
    uint8_t wanted[LEAF_HASH_BYTES], real[LEAF_HASH_BYTES];
    struct leaves_fault unasked;
    struct leaves_file file;
    bool listed = false;
    at = at != NULL ? at : &unasked;
    *at = (struct leaves_fault){.file = LEAVES_MANIFEST};
    out->files = 0;
    out->count = 0;
    out->bytes = 0;
    const char *wrong = take_manifest(out, manifest, manifest_n, &file, wanted, &listed, at);
    if (wrong != NULL)
        return wrong;
    at->line = 0;
    if (!listed || out->files == 0)
        return "it does not name " LEAVES_FILE " and a file of the model";
    crypto_hash_sha256(real, (const uint8_t *)leaves, leaves_n);
    if (file.bytes != leaves_n || memcmp(wanted, real, sizeof real) != 0) {
        *at = (struct leaves_fault){.file = LEAVES_FILE, .foreign = true};
        return "SHA-256 differs from " LEAVES_MANIFEST;
    }
    return take_leaves(out, leaves, leaves_n, at);
}

size_t leaves_divide(const char *text, size_t n)
{
    for (size_t i = 0; i < n;) {
        const char *newline = memchr(text + i, '\n', n - i);
        size_t length = newline == NULL ? n - i : (size_t)(newline - (text + i));
        if (length == HASH_CHARS || newline == NULL)
            return i;
        i += length + 1;
    }
    return n;
}

const struct leaves_file *leaves_find(const struct leaves *m, const char *name)
{
    for (int i = 0; i < m->files; i++)
        if (strcmp(m->file[i].name, name) == 0)
            return &m->file[i];
    return NULL;
}

const struct leaves_file *leaves_owner(const struct leaves *m, uint32_t leaf)
{
    for (int i = 0; i < m->files; i++)
        if (leaf - m->file[i].first < m->file[i].count)
            return &m->file[i];
    return NULL;
}

size_t leaves_size(const struct leaves_file *file, uint32_t leaf)
{
    uint64_t left = file->bytes - (uint64_t)(leaf - file->first) * LEAF_BYTES;
    return left < LEAF_BYTES ? (size_t)left : LEAF_BYTES;
}

bool leaves_fit(const struct leaves *m, uint32_t leaf, const void *bytes, size_t n)
{
    uint8_t hash[LEAF_HASH_BYTES];
    crypto_hash_sha256(hash, bytes, n);
    return memcmp(hash, m->hash[leaf], sizeof hash) == 0;
}
