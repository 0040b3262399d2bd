/*
 * Secure Boot: whether the firmware asks for signatures, and giving it keys of the operator's own
 * while it is in setup mode.  What makes the keys is tools/secure.sh; the firmware checks them.
 *
 *   enrolment: "db BYTES\n", so many bytes, then the same for KEK and PK, in this order, and no
 * more
 *
 * Each part is an EFI_VARIABLE_AUTHENTICATION_2 and behind it a list of one X.509 certificate:
 *
 *   0   16   time
 *   16  4    bytes of the signature with this field; 20: its kind and content
 *            list: 16 type, 4 bytes of it, 4 of its header, 4 of an entry, then 16 owner,
 * certificate
 */
#ifndef V4BOX_INIT_SECURE_H
#define V4BOX_INIT_SECURE_H

#include "init/efi.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SECURE_DB, SECURE_KEK, SECURE_PK, SECURE_PARTS };

/* An enrolment, taken apart: views into the caller's bytes. */
struct secure_keys {
    const uint8_t *part[SECURE_PARTS];
    size_t part_bytes[SECURE_PARTS];
    const uint8_t *certificate; /* of db: what programs must be signed by */
    size_t certificate_bytes;
};

/** Takes an enrolment apart.  @err false: malformed; *keys is then untouched */
bool secure_keys_parse(struct secure_keys *keys, const uint8_t *bytes, size_t n);

/** Whether a variable of one byte (SecureBoot, SetupMode) is 1. */
bool secure_flag(const char *folder, const char *name);

/** Gives the keys to firmware in setup mode; with the last one it leaves that.  @err false, errno
 */
bool secure_enrol(const char *folder, const struct secure_keys *keys);

#endif
