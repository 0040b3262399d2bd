/*
 * Who may log in over SSH, and as what: lines of authorized_keys, shown, added and taken away by
 * name.  A key of the console's making has a role and tells the console whose it is, by the command
 * that dropbear then runs whatever the client asks for:
 *
 *   command="as viewer anna" ssh-ed25519 AAAA... anna
 *
 * Any other line is an admin's.  Knows no SSH; one file, replaced as a whole.
 */
#ifndef V4BOX_INIT_SSHKEYS_H
#define V4BOX_INIT_SSHKEYS_H

#include "init/commands.h"
#include "init/text.h"

/** Appends a line a key, its role first.  A missing file is an empty one.  @return NULL, or what is
 * wrong */
const char *ssh_keys_list(const char *path, struct text *out);

/**
 * Adds a key: its type, its base64 text, and a name that no other line has, of letters, digits and
 * a few signs.
 * @return NULL, or what is wrong; the file is then as it was
 */
const char *ssh_keys_add(const char *path, const char *type, const char *key, const char *name,
                         enum role role);

/** Takes away the key with this name.  @return NULL, or what is wrong */
const char *ssh_keys_delete(const char *path, const char *name);

#endif
