/*
 * The firmware's variables, and the load options among them: read bounded, written whole.  Knows
 * their formats, not what is booted when, nor why.
 *
 * A variable is a file NAME-GUID of efivarfs: 4 bytes of attributes, then the content, written at
 * once.  A load option (Boot####) is
 *
 *   0   4  attributes, 1: active
 *   4   2  bytes of the device path
 *   6      description, UTF-16 with its end
 *          device path: HD(partition, start, size, GUID) / file path / end
 */
#ifndef V4BOX_INIT_EFI_H
#define V4BOX_INIT_EFI_H

#include "config/slots.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define EFI_GUID_BYTES 16
#define EFI_GLOBAL     "8be4df61-93ca-11d2-aa0d-00e098032b8c" /* of UEFI */
#define EFI_LOADER     "4a67b082-0a4c-41cf-b6c7-440b29bb8c4f" /* of boot loaders; the stub's */
#define EFI_OWN        "5e1c7a52-3f0b-4c0e-9b56-76346f780b01" /* of this box */

/* Where an EFI program lies, as the firmware finds it. */
struct efi_partition {
    uint32_t number;
    uint64_t start, size; /* @unit sectors of 512 bytes */
    uint8_t guid[EFI_GUID_BYTES];
};

/**
 * Reads a variable's content, without the attributes.
 * @err -1 with errno: ENOENT absent, EFBIG larger than `cap`, EINVAL shorter than its attributes
 */
ssize_t efi_get(const char *folder, const char *name, const char *guid, uint8_t *bytes, size_t cap);

/** Writes a lasting variable; one that holds the same already is left alone.  @err false, errno */
bool efi_set(const char *folder, const char *name, const char *guid, const uint8_t *bytes,
             size_t n);

/** Writes a variable that carries its own signature, as Secure Boot's do.  @err false, errno */
bool efi_set_signed(const char *folder, const char *name, const char *guid, const uint8_t *bytes,
                    size_t n);

/** Takes a GUID from its text, 8-4-4-4-12 hexadecimal digits.  @err false: anything else */
bool efi_guid_parse(uint8_t guid[EFI_GUID_BYTES], const char *text, size_t n);

/** UTF-16 content as ASCII, NUL-terminated.  @err false: other characters, or too long */
bool efi_text(char *text, size_t cap, const uint8_t *bytes, size_t n);

/**
 * Makes a load option for the file `path` (slashes between its parts).
 * Returns its bytes, 0: they do not fit.
 */
size_t efi_option_write(uint8_t *bytes, size_t cap, const char *description,
                        const struct efi_partition *partition, const char *path);

/** True when the bytes are a load option with this description. */
bool efi_option_is(const uint8_t *bytes, size_t n, const char *description);

/**
 * Finds the entry with this description, or the first number that is free, and makes it hold the
 * load option.  Returns its number.
 * @err -1 with errno
 */
int efi_entry_keep(const char *folder, const char *description, const uint8_t *option, size_t n);

/** The BootOrder; returns how many.  An absent or malformed one is empty. */
size_t efi_order_get(const char *folder, uint16_t order[EFI_ORDER_MAX]);

/** Puts `first` before the rest of the BootOrder, in this order.  @err false with errno */
bool efi_order_lead(const char *folder, const uint16_t *first, size_t n);

/** The next start, and only that, is of this entry.  @err false with errno */
bool efi_next_set(const char *folder, uint16_t entry);

#endif
