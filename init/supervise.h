/*
 * Starts, watches and ends the services of a table: processes, pipes and timers around the pure
 * state machine of service.h.  Reaps every child of PID 1, its own or orphaned.
 * Knows neither what the services do nor who asks for their state.  One thread, never blocks.
 */
#ifndef V4BOX_INIT_SUPERVISE_H
#define V4BOX_INIT_SUPERVISE_H

#include "config/box.h"
#include "init/confine.h"
#include "init/journal.h"
#include "init/options.h"
#include "init/service.h"
#include "init/settings.h"

#include <poll.h>
#include <stdbool.h>
#include <sys/types.h>

enum service_condition {
    WHEN_ALWAYS,
    WHEN_DHCP,        /* the address comes from DHCP */
    WHEN_AUTHORIZED,  /* somebody may log in: there is an authorized_keys file */
    WHEN_UNCLAIMED,   /* nobody may, and there is a code to change that */
    WHEN_ENGINE,      /* a start with an engine: not in rescue */
    WHEN_SLOTS,       /* the firmware started one of the two slots */
    WHEN_CERTIFICATE, /* there is one, and an engine behind it */
    WHEN_LOG,         /* there is a partition for the log */
    WHEN_REMOTE,      /* it is wanted elsewhere, too */
    WHEN_MODELS,      /* there is one for models */
    WHEN_CONFIRMED    /* from the moment that this start counts as good */
};

enum service_output {
    OUTPUT_LOG,      /* stdout and stderr into the journal */
    OUTPUT_TERMINAL, /* the serial line as its controlling terminal */
};

struct service_spec {
    const char *name;
    enum service_policy policy;
    enum service_condition condition;
    enum service_output output;
    uid_t uid;
    const char *argv[SERVICE_ARGS_MAX];        /* NULL-terminated */
    struct file_rule files[SERVICE_PATHS_MAX]; /* ends at the first NULL path */
};

struct child {
    const struct service_spec *spec; /* borrows */
    struct service life;
    pid_t pid;     /* 0: no process */
    bool again;    /* to be started once it has ended */
    int output_fd; /* owns: read end of its output, or -1 */
    struct line_splitter output;
    int64_t started_ms;
    int last_status;                    /* of waitpid; -1 before the first end */
    char last_line[SERVICE_SAID_BYTES]; /* of its output, cut; mostly why it ended */
};

struct supervisor {
    struct child child[SERVICES_MAX];
    int count;
    struct journal *journal;         /* borrows */
    const struct options *options;   /* borrows; may be NULL when no argument names one */
    const struct settings *settings; /* borrows; may be NULL likewise */
    const char *serial_path;         /* borrows: OUTPUT_TERMINAL */
    uint64_t orphans;                /* reaped children that were no service */
};

/** Takes over the specs whose condition `wanted` answers true to.  Starts nothing. */
void supervisor_init(struct supervisor *s, const struct service_spec *specs, int spec_count,
                     bool (*wanted)(enum service_condition), struct journal *journal,
                     const struct options *options);

void supervisor_start(struct supervisor *s);

/** Takes over one more spec and starts it, unless it is there already.  @err false: no room */
bool supervisor_add(struct supervisor *s, const struct service_spec *spec);

/** Starts one service, or asks it to end; one that is ending already is started at a later call. */
void supervisor_switch(struct supervisor *s, struct child *c, bool on);

/** Starts a service anew, or ends it for good: what it is started with has changed. */
void supervisor_renew(struct supervisor *s, const struct service_spec *spec, bool on);

/** Asks every service to end; supervisor_idle tells when all have. */
void supervisor_stop(struct supervisor *s);
bool supervisor_idle(const struct supervisor *s);

/** Collects every ended child.  Call after SIGCHLD. */
void supervisor_reap(struct supervisor *s);

/** Applies the timers that are due; returns milliseconds until the next one, -1: none. */
int supervisor_timers(struct supervisor *s);

/** Adds the output pipes to a poll set; returns how many. */
int supervisor_poll_fds(const struct supervisor *s, struct pollfd *fds);

/** Reads what has arrived on one of those pipes. */
void supervisor_read(struct supervisor *s, int fd);

#endif
