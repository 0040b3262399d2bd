/*
 * The GPU payload of a system, on its way to a partition and there: every block is checked against
 * the tree of hashes that the system's root stands for before it is written, and again from the
 * disk.  Knows no bundle and no slot, and mounts nothing.
 *
 *   on its way   the tree, then the data: nothing of it has to be kept to be checked
 *   on the disk  the data, then the tree, as tools/payload.sh makes it
 */
#ifndef V4BOX_INIT_PAYLOAD_H
#define V4BOX_INIT_PAYLOAD_H

#include "config/box.h"
#include "config/slots.h"
#include "init/hashtree.h"

/* Of the largest payload: a hash for each of its blocks, and less than a sixty-fourth more. */
#define PAYLOAD_TREE_BYTES_MAX (PAYLOAD_BYTES_MAX / 128 / 64 * 65 + 4096)

struct payload {
    struct hashtree tree;
    uint8_t hashes[PAYLOAD_TREE_BYTES_MAX];
};

/* Gives the next `n` bytes; fewer at their end. */
typedef size_t (*payload_source)(void *context, void *bytes, size_t n);

/** @err false: larger than PAYLOAD_BYTES_MAX, data and tree together */
bool payload_plan(struct payload *p, const struct verity *v);

/** Bytes of data and tree. */
uint64_t payload_bytes(const struct payload *p);

/** Takes the tree.  @err NULL: good; else what is wrong, for people */
const char *payload_take_hashes(struct payload *p, payload_source source, void *context);

/**
 * Takes the data, writes each piece of it once it was checked, then the tree, and waits for the
 * disk; fd < 0 only checks.  @err NULL: good; else what is wrong, for people
 */
const char *payload_take_data(const struct payload *p, payload_source source, void *context,
                              int fd);

/** Reads all of it from the disk, tree included.  @err false: *bad is the first byte that differs
 */
bool payload_check(struct payload *p, int fd, uint64_t *bad);

/**
 * Opens the first of two partitions ("vda2"; "": none) that is free, that of `first` before the
 * other: a system that runs keeps the one that it has its payload from, whichever that is.
 * @own close()  @err -1: neither is there, free, and large enough; *wrong says so, for people
 */
int payload_open(const struct payload *p, const char device[SLOT_COUNT][STORAGE_NAME_BYTES],
                 int first, const char **wrong);

/** Which partition has it whole, that of `first` looked at first.  @err -1: neither */
int payload_find(struct payload *p, const char device[SLOT_COUNT][STORAGE_NAME_BYTES], int first);

#endif
