/* Secure Boot. */
#include "init/secure.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SECURITY "d719b2cb-3d3a-4596-a3bc-dad00e67656f" /* the GUID of db */

static const struct {
    const char *name, *guid;
} PARTS[SECURE_PARTS] = {
    [SECURE_DB] = {"db", SECURITY},
    [SECURE_KEK] = {"KEK", EFI_GLOBAL},
    [SECURE_PK] = {"PK", EFI_GLOBAL},
};

static uint32_t get32(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* The certificate in a part; false: not of the one shape that tools/secure.sh makes. */
static bool find_certificate(struct secure_keys *keys, const uint8_t *part, size_t n)
{
    if (n < 16 + 24)
        return false;
    size_t signature = get32(part + 16);
    if (signature < 24 || signature > n - 16)
        return false;
    const uint8_t *list = part + 16 + signature;
    size_t list_bytes = n - 16 - signature;
    if (list_bytes <= 28 + 16 || get32(list + 16) != list_bytes || get32(list + 20) != 0 ||
        get32(list + 24) != list_bytes - 28)
        return false;
    keys->certificate = list + 28 + 16;
    keys->certificate_bytes = list_bytes - 28 - 16;
    return true;
}

/* "NAME BYTES\n"; returns how long the line is, 0: another one. */
static size_t take_head(const char *name, const uint8_t *bytes, size_t n, size_t *part_bytes)
{
    size_t at = strlen(name) + 1, size = 0, digits = 0;
    if (n <= at || memcmp(bytes, name, at - 1) != 0 || bytes[at - 1] != ' ')
        return 0;
    for (; at < n && bytes[at] >= '0' && bytes[at] <= '9' && digits < 6; at++, digits++)
        size = size * 10 + (size_t)(bytes[at] - '0');
    if (digits == 0 || at == n || bytes[at] != '\n')
        return 0;
    *part_bytes = size;
    return at + 1;
}

bool secure_keys_parse(struct secure_keys *keys, const uint8_t *bytes, size_t n)
{
    struct secure_keys read;
    size_t at = 0;
    for (int i = 0; i < SECURE_PARTS; i++) {
        size_t head = take_head(PARTS[i].name, bytes + at, n - at, &read.part_bytes[i]);
        if (head == 0 || read.part_bytes[i] > n - at - head ||
            read.part_bytes[i] > EFI_SIGNED_BYTES)
            return false;
        read.part[i] = bytes + at + head;
        at += head + read.part_bytes[i];
    }
    if (at != n || !find_certificate(&read, read.part[SECURE_DB], read.part_bytes[SECURE_DB]))
        return false;
    *keys = read;
    return true;
}

bool secure_flag(const char *folder, const char *name)
{
    uint8_t flag;
    return efi_get(folder, name, EFI_GLOBAL, &flag, 1) == 1 && flag == 1;
}

bool secure_enrol(const char *folder, const struct secure_keys *keys)
{
    for (int i = 0; i < SECURE_PARTS; i++)
        if (!efi_set_signed(folder, PARTS[i].name, PARTS[i].guid, keys->part[i],
                            keys->part_bytes[i]))
            return false;
    return true;
}
