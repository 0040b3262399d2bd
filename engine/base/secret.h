/*
 * A key of the box's own in a file: made once, read at every start.
 */
#ifndef V4BOX_ENGINE_SECRET_H
#define V4BOX_ENGINE_SECRET_H

#include "engine/base/status.h"

#include <stddef.h>
#include <stdint.h>

/**
 * Reads a file of exactly `len` bytes that nobody but its owner can read or write; makes it from
 * random bytes when it is missing.  Follows no link.  The caller wipes `out`.
 * @err ERR_INPUT naming the file: its size or its mode; ERR_IO
 */
enum status MUST_CHECK secret_open(const char *path, uint8_t *out, size_t len, struct error *err);

#endif
