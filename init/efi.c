/* The firmware's variables. */
#include "init/efi.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define PATH_BYTES 256
#define ATTRIBUTES 7    /* lasting, for boot services and for the system */
#define SIGNED     0x27 /* the same, with a signature and a time before the content */
#define ACTIVE     1
#define HEAD_BYTES 6  /* of a load option, before its description */
#define HD_BYTES   42 /* the node of a partition */

static bool path_of(char path[PATH_BYTES], const char *folder, const char *name, const char *guid)
{
    int n = snprintf(path, PATH_BYTES, "%s/%s-%s", folder, name, guid);
    return n > 0 && n < PATH_BYTES;
}

/* ---- variables --------------------------------------------------------------------------------
 */

ssize_t efi_get(const char *folder, const char *name, const char *guid, uint8_t *bytes, size_t cap)
{
    char path[PATH_BYTES];
    uint8_t raw[4 + EFI_VARIABLE_BYTES + 1];
    errno = ENAMETOOLONG;
    int fd = path_of(path, folder, name, guid) ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return -1;
    ssize_t n = read(fd, raw, sizeof raw); /* efivarfs gives all of it, or what fits */
    close(fd);
    if (n < 0)
        return -1;
    errno = n < 4 ? EINVAL : EFBIG;
    if (n < 4 || n == (ssize_t)sizeof raw || (size_t)n - 4 > cap)
        return -1;
    memcpy(bytes, raw + 4, (size_t)n - 4);
    return n - 4;
}

/* The kernel keeps variables that it does not know from being changed by a slip. */
static void make_changeable(const char *path)
{
    int flags, fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    if (ioctl(fd, FS_IOC_GETFLAGS, &flags) == 0 && (flags & FS_IMMUTABLE_FL) != 0) {
        flags &= ~FS_IMMUTABLE_FL;
        (void)ioctl(fd, FS_IOC_SETFLAGS, &flags); /* the write below tells whether it took */
    }
    close(fd);
}

static bool write_variable(const char *folder, const char *name, const char *guid,
                           uint8_t attributes, const uint8_t *bytes, size_t n)
{
    char path[PATH_BYTES];
    uint8_t raw[4 + EFI_SIGNED_BYTES] = {attributes};
    errno = EINVAL;
    if (n == 0 || n > EFI_SIGNED_BYTES || !path_of(path, folder, name, guid))
        return false;
    memcpy(raw + 4, bytes, n);
    make_changeable(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    ssize_t done = write(fd, raw, 4 + n);
    int code = errno;
    close(fd);
    errno = done < 0 ? code : EIO;
    return done == (ssize_t)(4 + n);
}

bool efi_set(const char *folder, const char *name, const char *guid, const uint8_t *bytes, size_t n)
{
    uint8_t old[EFI_VARIABLE_BYTES];
    errno = EINVAL;
    if (n > sizeof old)
        return false;
    if (efi_get(folder, name, guid, old, sizeof old) == (ssize_t)n && memcmp(old, bytes, n) == 0)
        return true; /* the memory behind wears out */
    return write_variable(folder, name, guid, ATTRIBUTES, bytes, n);
}

bool efi_set_signed(const char *folder, const char *name, const char *guid, const uint8_t *bytes,
                    size_t n)
{
    return write_variable(folder, name, guid, SIGNED, bytes, n);
}

/* ---- numbers and texts ------------------------------------------------------------------------
 */

static uint16_t get16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

/* Appends little-endian bytes; what does not fit makes the whole too long. */
struct writer {
    uint8_t *bytes;
    size_t cap, n;
};

static void put(struct writer *w, uint64_t value, size_t width)
{
    for (size_t i = 0; i < width; i++, w->n++)
        if (w->n < w->cap)
            w->bytes[w->n] = (uint8_t)(value >> (8 * i));
}

/* UTF-16 with its end; `slash` stands for the slashes. */
static void put_text(struct writer *w, const char *text, char slash)
{
    for (const char *p = text; *p != '\0'; p++)
        put(w, *p == '/' ? (uint8_t)slash : (uint8_t)*p, 2);
    put(w, 0, 2);
}

static int digit(char symbol)
{
    static const char DIGITS[] = "0123456789abcdef0123456789ABCDEF";
    const char *found = symbol == '\0' ? NULL : strchr(DIGITS, symbol);
    return found == NULL ? -1 : (int)(found - DIGITS) % 16;
}

bool efi_guid_parse(uint8_t guid[EFI_GUID_BYTES], const char *text, size_t n)
{
    /* Where each pair of digits goes: the first three groups are little-endian numbers. */
    static const uint8_t PLACES[EFI_GUID_BYTES] = {3, 2, 1,  0,  5,  4,  7,  6,
                                                   8, 9, 10, 11, 12, 13, 14, 15};
    uint8_t out[EFI_GUID_BYTES];
    size_t at = 0;
    if (n != 36)
        return false;
    for (size_t i = 0; i < EFI_GUID_BYTES; i++) {
        if (at == 8 || at == 13 || at == 18 || at == 23)
            if (text[at++] != '-')
                return false;
        int high = digit(text[at]), low = digit(text[at + 1]);
        if (high < 0 || low < 0)
            return false;
        out[PLACES[i]] = (uint8_t)(high << 4 | low);
        at += 2;
    }
    memcpy(guid, out, sizeof out);
    return true;
}

bool efi_text(char *text, size_t cap, const uint8_t *bytes, size_t n)
{
    size_t len = 0;
    for (size_t i = 0; i + 1 < n && get16(bytes + i) != 0; i += 2) {
        if (bytes[i + 1] != 0 || bytes[i] < ' ' || bytes[i] > '~' || len + 1 >= cap)
            return false;
        text[len++] = (char)bytes[i];
    }
    text[len] = '\0';
    return true;
}

/* ---- load options -----------------------------------------------------------------------------
 */

size_t efi_option_write(uint8_t *bytes, size_t cap, const char *description,
                        const struct efi_partition *partition, const char *path)
{
    struct writer w = {bytes, cap, 0};
    size_t file_bytes = 4 + 2 * (strlen(path) + 2); /* a leading backslash and the end */
    put(&w, ACTIVE, 4);
    put(&w, HD_BYTES + file_bytes + 4, 2);
    put_text(&w, description, '/');
    put(&w, 0x0104, 2);
    put(&w, HD_BYTES, 2);
    put(&w, partition->number, 4);
    put(&w, partition->start, 8);
    put(&w, partition->size, 8);
    for (size_t i = 0; i < EFI_GUID_BYTES; i++)
        put(&w, partition->guid[i], 1);
    put(&w, 0x0202, 2); /* a GPT, and the signature is a GUID */
    put(&w, 0x0404, 2);
    put(&w, file_bytes, 2);
    put(&w, '\\', 2);
    put_text(&w, path, '\\');
    put(&w, 0xff7f, 2);
    put(&w, 4, 2);
    return w.n <= cap ? w.n : 0;
}

bool efi_option_is(const uint8_t *bytes, size_t n, const char *description)
{
    char text[EFI_VARIABLE_BYTES];
    return n > HEAD_BYTES && efi_text(text, sizeof text, bytes + HEAD_BYTES, n - HEAD_BYTES) &&
           strcmp(text, description) == 0;
}

/* The number of a file Boot####-GUID, -1: another one. */
static int entry_of(const char *name)
{
    int number = 0;
    if (strlen(name) != strlen("Boot####-" EFI_GLOBAL) || memcmp(name, "Boot", 4) != 0 ||
        strcmp(name + 8, "-" EFI_GLOBAL) != 0)
        return -1;
    for (int i = 4; i < 8; i++) {
        if (digit(name[i]) < 0)
            return -1;
        number = number << 4 | digit(name[i]);
    }
    return number;
}

static void entry_name(char name[9], int number)
{
    snprintf(name, 9, "Boot%04X", (unsigned)number & 0xffff);
}

/* The entry with this description, -1: none, -2: the folder can not be read. */
static int find_entry(const char *folder, const char *description, uint8_t taken[0x100])
{
    uint8_t bytes[EFI_VARIABLE_BYTES];
    int found = -1, seen = 0;
    DIR *entries = opendir(folder);
    if (entries == NULL)
        return -2;
    struct dirent *entry;
    while (found < 0 && seen++ < EFI_SCAN_MAX && (entry = readdir(entries)) != NULL) {
        char name[9];
        int number = entry_of(entry->d_name);
        if (number < 0)
            continue;
        if (number < 0x100)
            taken[number] = 1;
        entry_name(name, number);
        ssize_t n = efi_get(folder, name, EFI_GLOBAL, bytes, sizeof bytes);
        if (n > 0 && efi_option_is(bytes, (size_t)n, description))
            found = number;
    }
    closedir(entries);
    return found;
}

int efi_entry_keep(const char *folder, const char *description, const uint8_t *option, size_t n)
{
    uint8_t taken[0x100] = {0};
    char name[9];
    int number = find_entry(folder, description, taken);
    if (number == -2)
        return -1;
    if (number == -1)
        for (number = EFI_FIRST_ENTRY; number < 0x100 && taken[number] != 0;)
            number++;
    errno = ENOSPC;
    if (number == 0x100)
        return -1;
    entry_name(name, number);
    return efi_set(folder, name, EFI_GLOBAL, option, n) ? number : -1;
}

size_t efi_order_get(const char *folder, uint16_t order[EFI_ORDER_MAX])
{
    uint8_t bytes[2 * EFI_ORDER_MAX];
    ssize_t n = efi_get(folder, "BootOrder", EFI_GLOBAL, bytes, sizeof bytes);
    if (n < 0 || n % 2 != 0)
        return 0;
    for (size_t i = 0; i < (size_t)n / 2; i++)
        order[i] = get16(bytes + 2 * i);
    return (size_t)n / 2;
}

static bool among(const uint16_t *list, size_t n, uint16_t value)
{
    for (size_t i = 0; i < n; i++)
        if (list[i] == value)
            return true;
    return false;
}

bool efi_order_lead(const char *folder, const uint16_t *first, size_t n)
{
    uint16_t old[EFI_ORDER_MAX];
    uint8_t bytes[2 * EFI_ORDER_MAX];
    struct writer w = {bytes, sizeof bytes, 0};
    size_t count = efi_order_get(folder, old);
    for (size_t i = 0; i < n; i++)
        put(&w, first[i], 2);
    for (size_t i = 0; i < count && w.n + 2 <= w.cap; i++)
        if (!among(first, n, old[i]))
            put(&w, old[i], 2);
    return efi_set(folder, "BootOrder", EFI_GLOBAL, bytes, w.n);
}

bool efi_next_set(const char *folder, uint16_t entry)
{
    uint8_t bytes[2] = {(uint8_t)entry, (uint8_t)(entry >> 8)};
    return efi_set(folder, "BootNext", EFI_GLOBAL, bytes, sizeof bytes);
}
