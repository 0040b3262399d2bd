/* The files of the config partition that init answers for. */
#include "init/stored.h"

#include "config/box.h"
#include "init/files.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PATH_BYTES   256
#define ID_CHARS     8  /* of engine/api/keys.h, which init does not know */
#define HASH_CHARS   64 /* SHA-256 in hexadecimal */
#define NAME_CHARS   64
#define LIMITS_CHARS 128 /* of all limits together, in config/key_limits.def */
#define BASE62       "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
#define BASE64       BASE62 "+/"
#define ED25519_NAME "ssh-ed25519"
#define ED25519_LINE                                                                               \
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI" /* type, and what all such keys begin with */
#define ED25519_REST 43                     /* characters of the key itself */

/* The length of the run of bytes from `set` at the start of the text. */
static size_t span(const char *bytes, size_t n, const char *set)
{
    size_t length = 0;
    while (length < n && bytes[length] != '\0' && strchr(set, bytes[length]) != NULL)
        length++;
    return length;
}

static bool printable(const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (bytes[i] < ' ' || bytes[i] > '~')
            return false;
    return true;
}

/* " word=value", any number of times. */
static bool limits(const char *bytes, size_t n)
{
    if (n > LIMITS_CHARS)
        return false;
    while (n > 0) {
        const char *blank = memchr(bytes + 1, ' ', n - 1);
        size_t length = blank == NULL ? n : (size_t)(blank - bytes);
        size_t word = span(bytes + 1, length - 1, "abcdefghijklmnopqrstuvwxyz");
        if (word == 0 || length < word + 3 || bytes[1 + word] != '=')
            return false;
        bytes += length;
        n -= length;
    }
    return true;
}

static bool key_line(const char *line, size_t n)
{
    size_t name = ID_CHARS + 1 + HASH_CHARS + 1;
    if (n <= name || span(line, n, BASE62) != ID_CHARS || line[ID_CHARS] != ' ' ||
        span(line + ID_CHARS + 1, n - ID_CHARS - 1, "0123456789abcdef") != HASH_CHARS ||
        line[name - 1] != ' ')
        return false;
    const char *blank = memchr(line + name, ' ', n - name);
    size_t name_n = blank == NULL ? n - name : (size_t)(blank - line) - name;
    return name_n >= 1 && name_n <= NAME_CHARS && limits(line + name + name_n, n - name - name_n);
}

/* A key by itself is looked at closely; one behind options, or on a hardware token, by its name. */
static bool ed25519_line(const char *line, size_t n)
{
    size_t head = strlen(ED25519_LINE), name = strlen(ED25519_NAME);
    if (n < name || memcmp(line, ED25519_NAME, name) != 0)
        return n > 0 && line[0] != '#' && memmem(line, n, ED25519_NAME, name) != NULL;
    return n >= head + ED25519_REST && memcmp(line, ED25519_LINE, head) == 0 &&
           span(line + head, n - head, BASE64) == ED25519_REST &&
           (n == head + ED25519_REST || line[head + ED25519_REST] == ' ');
}

/* Calls a text good when every line ends, is printable, and is blank, a comment, or `fits`; of
 * lines that do not fit, `strict` allows none.  Returns how many fit, -1: not good. */
static int count_lines(const char *bytes, size_t n, bool (*fits)(const char *line, size_t n),
                       bool strict)
{
    int count = 0;
    for (size_t i = 0; i < n;) {
        const char *line = bytes + i, *newline = memchr(line, '\n', n - i);
        if (newline == NULL || !printable(line, (size_t)(newline - line)))
            return -1;
        size_t length = (size_t)(newline - line);
        bool fit = fits(line, length);
        if (!fit && strict && length > 0 && line[0] != '#')
            return -1;
        count += fit;
        i += length + 1;
    }
    return count;
}

bool stored_keys_good(const char *bytes, size_t n)
{
    return count_lines(bytes, n, key_line, true) >= 0;
}

bool stored_authorized_good(const char *bytes, size_t n)
{
    return count_lines(bytes, n, ed25519_line, false) > 0;
}

bool stored_host_key_good(const char *bytes, size_t n)
{
    static const char HEAD[] = "\0\0\0\x0bssh-ed25519\0\0\0\x40";
    return n == sizeof HEAD - 1 + 64 && memcmp(bytes, HEAD, sizeof HEAD - 1) == 0;
}

/* On a disk too full for a second copy, the copy itself: a rename needs no room. */
static bool put_back(const struct stored *file, const char *path, const char *copy, size_t n)
{
    return file_save(file->path, copy, n, file->owner) ||
           (lchown(path, file->owner, file->owner) == 0 && rename(path, file->path) == 0);
}

enum stored_result stored_check(const struct stored *file, const char *copies)
{
    static char bytes[STORED_BYTES_MAX], copy[STORED_BYTES_MAX];
    char path[PATH_BYTES], aside[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", copies, file->name);
    snprintf(aside, sizeof aside, "%s.bad", file->path);
    ssize_t n = file_load(file->path, bytes, sizeof bytes);
    bool absent = n < 0 && errno == ENOENT;
    ssize_t copy_n = file_load(path, copy, sizeof copy);
    bool have_copy = copy_n >= 0 && file->good(copy, (size_t)copy_n);
    if (n >= 0 && file->good(bytes, (size_t)n)) {
        /* A full disk keeps the older copy, which is good as well. */
        if (copy_n != n || memcmp(bytes, copy, (size_t)n) != 0)
            (void)file_save(path, bytes, (size_t)n, BOX_UID_ROOT);
        return STORED_GOOD;
    }
    if (have_copy && put_back(file, path, copy, (size_t)copy_n))
        return STORED_RESTORED;
    if (absent)
        return STORED_ABSENT;
    rename(file->path, aside);
    return STORED_LOST;
}
