/*
 * The engine's admin socket: a unix stream socket for root or the engine's own user.  One request
 * is one line of JSON {"command":"keys","args":["list"]}, one answer one line
 * {"ok":true,"text":"..", "data":{..}} or {"ok":false,"text":"reason"}; then the server closes. A
 * file may follow the line of a few requests, until the sender's end (audit golden).  One thread
 * polls a fixed number of clients, each with a deadline, so that none holds up another; who
 * asked for a job that takes longer is answered when it is done.
 * Commands are a table in admin_commands.c.  Knows no HTTP and sees no prompt.
 */
#ifndef V4BOX_ENGINE_ADMIN_H
#define V4BOX_ENGINE_ADMIN_H

#include "engine/api/keys.h"
#include "engine/api/sensors.h"
#include "engine/api/turns.h"
#include "engine/audit/auditor.h"
#include "engine/audit/recorder.h"
#include "engine/base/buf.h"
#include "engine/base/status.h"
#include "engine/engine.h"
#include "engine/precision/control.h"

struct admin;

/* What the commands speak about; everything is borrowed until admin_stop. */
struct admin_scope {
    struct engine *engine;
    struct keys *keys;
    struct turns *turns;
    struct store *profiles;
    struct control *control;
    /* Appends the page that scrapers read; called with `metrics_user`. */
    void (*metrics)(void *user, struct buf *out);
    void *metrics_user;
    struct auditor *auditor;   /* NULL: there is nowhere to keep reports */
    struct sensors *sensors;   /* NULL: nobody looks how hot it is */
    struct recorder *recorder; /* where there is an auditor */
    const char *model;         /* the id the API shows */
    const char *isa;           /* model_isa_name() */
    const char *listening;     /* ADDR:PORT or unix:PATH */
    const char *layout;        /* how GPUs are shared out; "": nobody was asked to */
};

/**
 * Makes the socket (mode 0600; a dead one in its place is removed, a live one refused) and starts
 * the thread.
 * @own  admin_stop
 * @err  ERR_INPUT: the path; ERR_IO naming the path
 */
enum status MUST_CHECK admin_start(const char *path, const struct admin_scope *scope,
                                   struct admin **out, struct error *err);
/** Ends the thread and removes the socket.  Accepts NULL. */
void admin_stop(struct admin *admin);

#endif
