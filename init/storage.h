/*
 * What outlives a reboot: the config partition at BOX_CONFIG, the models at BOX_MODELS, and the log
 * at BOX_LOG; and a disk with more models at BOX_ATTACHED, when there is one.  Whatever is wrong
 * with them, the box boots: config then lies in memory, and status says so and why. Knows the
 * disk's parts, not the files on them.
 */
#ifndef V4BOX_INIT_STORAGE_H
#define V4BOX_INIT_STORAGE_H

#include "init/disk.h"
#include "init/journal.h"
#include "init/text.h"

enum storage_place {
    STORAGE_UNUSED, /* no disk was asked for: config in memory, models in the image */
    STORAGE_DISK,
    STORAGE_MISSING, /* no disk of ours */
    STORAGE_BROKEN   /* there is a partition, but it can not be used */
};

struct storage {
    struct disk disk;
    bool has_disk;
    enum storage_place config, models, log, attached;
    struct text notes; /* over `bytes`: what people must know, a line each */
    char bytes[STORAGE_NOTES_BYTES];
};

/**
 * Finds the disk, if it is wanted, and mounts its parts.  Takes at most STORAGE_WAIT_MS and, for
 * each partition, STORAGE_MOUNT_MS.
 * @err false: something has to be told; BOX_CONFIG is there all the same, unless not even memory
 * was
 */
bool storage_open(struct storage *s, struct journal *journal, bool wanted);

/**
 * Mounts the models of another disk, read only, when there are some; waits up to `wait_ms` for it.
 * @err false: none, or it can not be used
 */
bool storage_attach(struct storage *s, struct journal *journal, int wait_ms);

/** Adds a line to the notes, and to the journal. */
void storage_note(struct storage *s, struct journal *journal, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/** Unmounts config, log and models, so that nothing of them is left to write. */
void storage_close(struct storage *s);

/** Overwrites the partitions of config and log with empty file systems.  After storage_close.  @err
 * false */
bool storage_reset(const struct storage *s);

/** The name of a place, for people and for programs. */
const char *storage_place_name(enum storage_place place);

#endif
