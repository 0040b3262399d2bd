/*
 * What can be said to the box: the table of the console's commands, who serves each, and which role
 * may use it.  Pure: asks nobody and prints nothing.
 */
#ifndef V4BOX_INIT_COMMANDS_H
#define V4BOX_INIT_COMMANDS_H

#include "init/protocol.h"

#include <stdbool.h>
#include <stddef.h>

/* Who serves a command. */
enum target {
    TARGET_LOCAL, /* the console itself */
    TARGET_INIT,
    TARGET_ENGINE,
    TARGET_BOTH,
    TARGET_UPDATER,
    TARGET_TLS,
    TARGET_CLOCK,
    TARGET_MODELS,
    TARGET_COUNT
};

/* Each may what the one before it may, and more. */
enum role {
    ROLE_VIEWER,   /* looks */
    ROLE_OPERATOR, /* runs the service: API keys, profiles, restarts */
    ROLE_ADMIN,    /* changes the box itself, and who may log in */
    ROLE_COUNT
};

struct command {
    const char *name;
    enum target target;
    enum role role;    /* who may do what is no look */
    const char *looks; /* words behind the name that change nothing, "-": none at all, "*": any */
    bool confirm;      /* asked for a `yes` when typed at the prompt */
    const char *takes; /* the word behind which a file follows, "": none, NULL: never */
    const char *alone; /* what is meant when nothing follows; NULL: that itself */
    const char *args;  /* the ways to go on, divided by " | " */
    const char *help;  /* within a line, behind the name */
};

/** The row of that index, NULL behind the last one. */
const struct command *command_at(size_t i);

/** The row of that name, or NULL. */
const struct command *command_find(const char *name);

/** The i-th way to go on behind the name, and its bytes; NULL behind the last one. */
const char *command_way(const struct command *command, size_t i, size_t *n);

/** The word that the i-th way begins with, and its bytes; 0: it begins with a value, or there is no
 * such way (*verb is NULL). */
size_t command_verb(const struct command *command, size_t i, const char **verb);

/** Appends what the command is for, every way to write it, and who may. */
void command_explain(const struct command *command, struct text *out);

/** Adds the word that is meant when the name stands alone. */
void command_complete(const struct command *command, struct request *request);

/** Whether the request changes something, as opposed to a look. */
bool command_changes(const struct command *command, const struct request *request);

bool command_allowed(const struct command *command, const struct request *request, enum role role);

const char *role_name(enum role role);

/** @err false: no role has this name */
bool role_parse(const char *name, enum role *out);

#endif
