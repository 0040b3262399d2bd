/*
 * The files of the config partition that init answers for: at each boot every one is looked at, and
 * one that is not what it should be is replaced by the copy of the last boot that found it good.
 * A file has no checksum of its own, since other programs write some of them; its shape is strict
 * instead.  Knows neither disks nor what the programs do with the files.
 */
#ifndef V4BOX_INIT_STORED_H
#define V4BOX_INIT_STORED_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum stored_result {
    STORED_ABSENT,   /* neither the file nor a copy */
    STORED_GOOD,     /* as it should be; the copy is equal by now, if it could be written */
    STORED_RESTORED, /* was damaged or gone; the copy took its place */
    STORED_LOST      /* damaged without a good copy, and moved aside as PATH.bad */
};

struct stored {
    const char *name; /* for people, and of the copy */
    const char *path;
    uid_t owner;
    bool (*good)(const char *bytes, size_t n);
};

/** Looks at one file.  `copies` is the folder of the copies. */
enum stored_result stored_check(const struct stored *file, const char *copies);

/** "ID SHA256HEX NAME" lines, comments and empty lines, each with its end. */
bool stored_keys_good(const char *bytes, size_t n);

/** Printable lines, each with its end, of which at least one is a public ed25519 key. */
bool stored_authorized_good(const char *bytes, size_t n);

/** An ed25519 key as dropbear keeps it: name, then both halves, each with its length before it. */
bool stored_host_key_good(const char *bytes, size_t n);

#endif
