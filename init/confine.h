/*
 * What a program gives up before it starts: its user, core dumps, new privileges, and every file it
 * has no business with (Landlock).  Called in the child between fork and exec, and by the console
 * on itself.  Knows no service.
 */
#ifndef V4BOX_INIT_CONFINE_H
#define V4BOX_INIT_CONFINE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum file_access {
    FILE_READ = 1,    /* read files, list directories */
    FILE_EXECUTE = 2, /* read and execute */
    FILE_WRITE = 4    /* read, write, create, rename, remove; sockets included */
};

struct file_rule {
    const char *path; /* a file, or a directory with all below it */
    enum file_access access;
};

/**
 * Leaves only the listed files reachable, for this process and all it starts; nothing listed: none.
 * Open descriptors stay usable.  Sets no_new_privs.  A listed path that is missing is skipped.
 * @err -1 with errno; ENOSYS or EOPNOTSUPP: this kernel has no Landlock and nothing was restricted
 */
int confine_files(const struct file_rule *rules, size_t rule_count);
/**
 * Leaves no file reachable where the kernel can do that; elsewhere the user and the files' modes
 * are what there is.  @err -1 with errno
 */
int confine_no_files(void);

/** Sets no_new_privs, and takes core dumps away for good.  @err -1 with errno */
int confine_process(void);

/** Becomes `uid` with the group of the same number and no other.  @err -1 with errno */
int confine_user(uid_t uid);

/** The same, and keeps that one capability.  @err -1 with errno */
int confine_user_but(uid_t uid, int capability);

/**
 * Drops every capability but CAP_DAC_OVERRIDE (the console connects to the engine's own socket).
 * No effect without privileges.  @err -1 with errno
 */
int confine_capabilities(void);

#endif
