/*
 * Signed reports: the member "signature" holds an ed25519 signature, by the box that made the
 * report, of the report's text without that member.  Whoever has the box's public key can tell a
 * report of it from any other, wherever it was kept meanwhile.  Knows no files.
 */
#ifndef V4BOX_ENGINE_AUDIT_SIGNATURE_H
#define V4BOX_ENGINE_AUDIT_SIGNATURE_H

#include "engine/base/json.h"
#include "engine/base/status.h"

#include <stdbool.h>
#include <stdint.h>

#define REPORT_SEED_BYTES 32
#define REPORT_KEY_BYTES  32
#define REPORT_KEY_CHARS  (2 * REPORT_KEY_BYTES) /* lower-case hexadecimal digits */

/** The public half of a seed, with a NUL. */
void report_key(const uint8_t seed[REPORT_SEED_BYTES], char out[REPORT_KEY_CHARS + 1]);
/** Signs a report (anew, when it was signed already). */
void report_sign(struct json_object *report, const uint8_t seed[REPORT_SEED_BYTES]);
/** Holds a report against a public key; the report is as before afterwards.
 *  @err ERR_CHECK: unsigned, signed by another, or changed since; ERR_INPUT: the key is none */
enum status MUST_CHECK report_verify(struct json_object *report, const char *key,
                                     struct error *err);

#endif
