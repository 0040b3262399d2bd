/*
 * What a tokenizer is made of, and the reader that fills it from tokenizer.json.  Internal to the
 * tokenizer; everybody else sees engine/text/tokenizer.h.
 */
#ifndef V4BOX_ENGINE_TEXT_TOKENIZER_FILE_H
#define V4BOX_ENGINE_TEXT_TOKENIZER_FILE_H

#include "engine/base/status.h"
#include "engine/text/bpe.h"
#include "engine/text/unicode.h"
#include "engine/text/vocab.h"

struct tokenizer {
    struct vocab vocab;
    struct bpe bpe;
    struct unicode unicode;
};

/**
 * Reads, checks and fills vocab and bpe; after an error they may be half filled, to be freed all
 * the same.
 * @err ERR_IO, ERR_INPUT naming the file and the field
 */
enum status MUST_CHECK tokenizer_file_read(const char *path, struct tokenizer *out,
                                           struct error *err);

#endif
