/*
 * Who may log in over SSH: lines of authorized_keys, shown, added and taken away by name.
 * Knows no SSH; one file, replaced as a whole.
 */
#ifndef V4BOX_INIT_SSHKEYS_H
#define V4BOX_INIT_SSHKEYS_H

#include "init/text.h"

/** Appends the file's lines.  A missing file is an empty one.  @return NULL, or what is wrong */
const char *ssh_keys_list(const char *path, struct text *out);

/**
 * Adds a key: its type, its base64 text, and a name that no other line has.
 * @return NULL, or what is wrong; the file is then as it was
 */
const char *ssh_keys_add(const char *path, const char *type, const char *key, const char *name);

/** Takes away the key with this name.  @return NULL, or what is wrong */
const char *ssh_keys_delete(const char *path, const char *name);

#endif
