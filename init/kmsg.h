/*
 * One record of /dev/kmsg, which the kernel's documentation calls dev-kmsg.  Pure.
 *
 *   6,339,5140900,-;NET: Registered PF_PACKET protocol family
 */
#ifndef V4BOX_INIT_KMSG_H
#define V4BOX_INIT_KMSG_H

#include <stddef.h>

/**
 * The record's message, without the lines that describe its device; a view into it.
 * @err NULL: another form, no message of the kernel itself, or less than KERNEL_LEVEL_MAX important
 */
const char *kmsg_text(const char *record, size_t n, size_t *length);

#endif
