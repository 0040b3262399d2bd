/*
 * The one EFI program that is a whole system, looked into: its sections, and the GPU payload that
 * it names.  The section ".gpuroot" has the line of /etc/gpu.root, which lies packed in the program
 * as well: who installs a system must know what else it needs without unpacking it.
 */
#ifndef V4BOX_INIT_UKI_H
#define V4BOX_INIT_UKI_H

#include "init/verity.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UKI_PAYLOAD ".gpuroot"

enum uki_result { UKI_FOUND, UKI_ABSENT, UKI_MALFORMED };

/** A section by its name of at most eight characters; *bytes are then those of `program`. */
enum uki_result uki_section(const uint8_t *program, size_t n, const char *name,
                            const uint8_t **bytes, size_t *len);

/**
 * The payload that a system names; *named is false when it names none.
 * @err NULL: good; else what is wrong, for people
 */
const char *uki_payload(struct verity *v, bool *named, const uint8_t *program, size_t n);

#endif
