/*
 * In which order a slot is written, so that whatever is cut off where leaves a slot that is not
 * used or one that is whole: the header first goes and last comes.  How things are written is the
 * caller's; the running slot is none of its business.
 */
#ifndef V4BOX_INIT_INSTALL_H
#define V4BOX_INIT_INSTALL_H

#include "init/bundle.h"

struct install {
    void *context; /* of the calls, each of which has reached the disk when it returns */
    const uint8_t *header, *program;
    size_t program_bytes;
    /* @err NULL: good; else what is wrong, for people */
    const char *(*put_header)(void *context, const uint8_t header[BUNDLE_HEADER_BYTES]);
    const char *(*put_program)(void *context, const uint8_t *program, size_t n);
    const char *(*put_payload)(void *context); /* NULL: none comes */
};

/** @err NULL: the slot is whole; else what is wrong, for people, and the slot is not used */
const char *install_run(const struct install *i);

#endif
