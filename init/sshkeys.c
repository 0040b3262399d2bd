/* Who may log in over SSH. */
#include "init/sshkeys.h"

#include "config/box.h"
#include "init/files.h"
#include "init/stored.h"

#include <errno.h>
#include <string.h>

#define AS         "command=\"as "
#define NAME_SIGNS "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz._@+-"

static char bytes[BOOT_SITE_BYTES_MAX]; /* the file; PID 1 has one thread */

/* The file's length; -1: it can not be read. */
static ssize_t load(const char *path)
{
    ssize_t n = file_load(path, bytes, sizeof bytes);
    return n < 0 && errno == ENOENT ? 0 : n;
}

/* The line, with its end, whose last word is `name`; NULL: none. */
static char *find(size_t n, const char *name, size_t *length)
{
    size_t name_len = strlen(name);
    for (char *line = bytes; line < bytes + n; line += *length) {
        char *newline = memchr(line, '\n', (size_t)(bytes + n - line));
        *length = newline == NULL ? (size_t)(bytes + n - line) : (size_t)(newline - line) + 1;
        size_t text = *length - (newline != NULL);
        if (text > name_len && line[text - name_len - 1] == ' ' && line[0] != '#' &&
            memcmp(line + text - name_len, name, name_len) == 0)
            return line;
    }
    return NULL;
}

/* The role of a line of ours, and in `rest` what follows the options; NULL: not of ours. */
static const char *line_role(const char *line, size_t n, const char **rest)
{
    size_t head = strlen(AS);
    if (n < head || memcmp(line, AS, head) != 0)
        return NULL;
    for (int i = 0; i < ROLE_COUNT; i++) {
        const char *role = role_name((enum role)i);
        size_t length = strlen(role);
        if (n <= head + length || memcmp(line + head, role, length) != 0 ||
            line[head + length] != ' ')
            continue;
        const char *quote = memchr(line + head, '"', n - head);
        if (quote == NULL || quote + 2 >= line + n)
            return NULL;
        *rest = quote + 2;
        return role;
    }
    return NULL;
}

const char *ssh_keys_list(const char *path, struct text *out)
{
    ssize_t n = load(path);
    if (n < 0)
        return "the file can not be read";
    for (const char *line = bytes; line < bytes + n;) {
        const char *newline = memchr(line, '\n', (size_t)(bytes + n - line)), *rest = line;
        const char *end = newline == NULL ? bytes + n : newline;
        const char *role = line_role(line, (size_t)(end - line), &rest);
        if (end > line && line[0] != '#')
            text_printf(out, "%-8s %.*s\n", role == NULL ? role_name(ROLE_ADMIN) : role,
                        (int)(end - rest), rest);
        line = end + 1;
    }
    return NULL;
}

/* It stands in quotes, before blanks, and in the log of changes. */
static bool name_good(const char *name)
{
    size_t n = strlen(name);
    return n > 0 && n <= CONSOLE_WHO_BYTES && strspn(name, NAME_SIGNS) == n;
}

const char *ssh_keys_add(const char *path, const char *type, const char *key, const char *name,
                         enum role role)
{
    char line[SSH_KEY_LINE_BYTES];
    struct text t = text_over(line, sizeof line);
    size_t length;
    if (!name_good(name))
        return "a name has 1 to 64 letters, digits, and of ._@+-";
    text_printf(&t, "%s %s %s\n", type, key, name);
    if (t.cut || strcmp(type, "ssh-ed25519") != 0 || !stored_authorized_good(t.data, t.len))
        return "not a public ed25519 key: ssh-ed25519 AAAA... NAME";
    t = text_over(line, sizeof line);
    text_printf(&t, AS "%s %s\" %s %s %s\n", role_name(role), name, type, key, name);
    if (t.cut)
        return "the line is too long";
    ssize_t n = load(path);
    if (n < 0)
        return "the file can not be read";
    if (find((size_t)n, name, &length) != NULL)
        return "a key of this name is there already";
    if ((size_t)n + t.len > sizeof bytes)
        return "the file is full";
    memcpy(bytes + n, t.data, t.len);
    return file_save(path, bytes, (size_t)n + t.len, BOX_UID_ROOT) ? NULL : strerror(errno);
}

const char *ssh_keys_delete(const char *path, const char *name)
{
    size_t length;
    ssize_t n = load(path);
    char *line = n < 0 ? NULL : find((size_t)n, name, &length);
    if (line == NULL)
        return "no key has this name";
    memmove(line, line + length, (size_t)(bytes + n - (line + length)));
    return file_save(path, bytes, (size_t)n - length, BOX_UID_ROOT) ? NULL : strerror(errno);
}
