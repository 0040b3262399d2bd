/*
 * A signed update: a header of fixed size, then one EFI program that is the whole system, then the
 * GPU payload, when it brings one.  What that must be, the program says itself (init/uki.h).
 *
 *   0    8   "V4BOXUP1"
 *   8    64  ed25519 signature of bytes 72 to 255
 *   72   16  board, padded with zeros: UPDATE_BOARD
 *   88   32  version for people, printable, padded with zeros
 *   120  8   sequence: rises with every release
 *   128  8   floor: once this release is good, the box takes no sequence below it
 *   136  8   bytes of the program
 *   144  32  SHA-256 of the program
 *   176  8   bytes of the GPU payload (init/payload.h), 0: it brings none
 *   184  72  zeros
 *   256      the program, the payload, and nothing behind them
 *
 * Numbers are little-endian.  The signature covers the length and the hash, and the program has
 * the root of the payload's hashes, so all that follows is known to be whole before it is used.
 * Knows no disk and no slot.
 */
#ifndef V4BOX_INIT_BUNDLE_H
#define V4BOX_INIT_BUNDLE_H

#include "config/slots.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BUNDLE_HEADER_BYTES  256
#define BUNDLE_KEY_BYTES     32
#define BUNDLE_SECRET_BYTES  64
#define BUNDLE_BOARD_BYTES   16
#define BUNDLE_VERSION_BYTES 32
#define BUNDLE_HASH_BYTES    32

struct bundle {
    char board[BUNDLE_BOARD_BYTES + 1];
    char version[BUNDLE_VERSION_BYTES + 1];
    uint64_t sequence, floor, program_bytes, payload_bytes;
    uint8_t hash[BUNDLE_HASH_BYTES];
};

/**
 * Reads a header and checks its signature, and that it is of this box's board.
 * @err NULL: good; else what is wrong, for people; *b is then untouched
 */
const char *bundle_check_header(struct bundle *b, const uint8_t *bytes, size_t n,
                                const uint8_t key[BUNDLE_KEY_BYTES]);

/** Checks the program against a header that was found good.  @err as above */
const char *bundle_check_program(const struct bundle *b, const uint8_t *program, size_t n);

/** Writes and signs the header of a program. */
void bundle_sign(uint8_t header[BUNDLE_HEADER_BYTES], const struct bundle *b,
                 const uint8_t secret[BUNDLE_SECRET_BYTES]);

/** A public key as text: 64 hexadecimal digits and a newline.  @err false: anything else */
bool bundle_key_parse(uint8_t key[BUNDLE_KEY_BYTES], const char *text, size_t n);

#endif
