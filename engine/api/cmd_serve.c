/*
 * `engine serve`: opens everything in order, serves until SIGTERM or SIGINT, and closes in reverse
 * order.  Knows what belongs together, nothing of how it works.
 */
#include "common/layout.h"
#include "engine/admin/admin.h"
#include "engine/api/api.h"
#include "engine/api/listen.h"
#include "engine/api/profiles.h"
#include "engine/base/log.h"
#include "engine/base/secret.h"
#include "engine/commands.h"
#include "engine/model/manifest.h"
#include "engine/model/model.h"
#include "engine/model/options.h"
#include "engine/precision/control.h"
#include "engine/precision/served.h"

#include "config/defaults.h"
#include "config/limits.h"

#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define PATH_BYTES 4096 /* PATH_MAX of Linux */

struct flags {
    const char *model, *listen, *keys, *admin, *metrics; /* borrow from argv */
    const char *profile, *profiles, *prefixes, *prefixes_key, *audits, *worker, *weights, *gpus;
    int32_t threads, ranks, context, sessions, draft, keepalive_ms, receipts, front, worker_limit_s;
    int32_t state_mib, gpu, groups;
    struct layout layout; /* of --gpus */
    enum isa isa;
    const char *names[HTTP_NAMES_MAX];
    int n_names;
};

/* What runs; half-open while it is opened or closed. */
struct box {
    struct engine *engine;                 /* owns; and through it the model */
    struct profile profile;                /* what the engine starts with */
    char prefixes[GROUPS_MAX][PATH_BYTES]; /* where each group's are kept */
    char layout[2 * ERROR_TEXT_BYTES];     /* how GPUs are shared out, for people */
    struct tokenizer *tokenizer;           /* owns */
    struct keys *keys;                     /* owns */
    struct listener listener;              /* owns the path; the fd goes to `http` */
    struct listener scraped;               /* the same for `http_metrics` */
    struct turns *turns;                   /* owns */
    struct meter *meter;                   /* owns */
    struct metrics *metrics;               /* owns */
    struct sensors *sensors;               /* owns */
    struct mask_vocab *masks;              /* owns */
    bool saves;                            /* what the prefix cache holds, at the end */
    struct api api;
    struct http_server *http;         /* owns */
    struct http_server *http_metrics; /* owns; NULL without --metrics */
    struct store *profiles;           /* owns */
    struct control *control;          /* owns */
    struct auditor *auditor;          /* owns; NULL without --audits */
    struct recorder *recorder;        /* owns; where there is an auditor */
    struct admin *admin;              /* owns; NULL without --admin */
    struct admin_scope scope;         /* borrows all of the above */
};

/* ---- flags ---------------------------------------------------------------------------------- */

static enum status parse_flags(int argc, char **argv, struct flags *out, struct error *err)
{
    *out = (struct flags){.profile = PROFILE_DEFAULT,
                          .context = CONTEXT_DEFAULT,
                          .sessions = SESSIONS_DEFAULT,
                          .keepalive_ms = KEEPALIVE_MS,
                          .receipts = RECEIPT_MESSAGES_DEFAULT};
    struct flag_list hosts = {.texts = out->names, .max = HTTP_NAMES_MAX};
    struct flag flags[] = {
        {"--model", FLAG_TEXT, &out->model, .required = true},
        {"--listen", FLAG_TEXT, &out->listen, .required = true},
        {"--keys", FLAG_TEXT, &out->keys, .required = true},
        {"--admin", FLAG_TEXT, &out->admin, .required = false},
        {"--metrics", FLAG_TEXT, &out->metrics, .required = false},
        {"--isa", FLAG_ISA, &out->isa, .required = false},
        {"--profile", FLAG_TEXT, &out->profile, .required = false},
        {"--profiles", FLAG_TEXT, &out->profiles, .required = false},
        {"--threads", FLAG_NUMBER, &out->threads, .max = CPU_THREADS_MAX},
        {"--ranks", FLAG_NUMBER, &out->ranks, .max = RANKS_MAX},
        {"--weights", FLAG_TEXT, &out->weights, .required = false},
        {"--gpu", FLAG_NUMBER, &out->gpu, .max = RANKS_MAX - 1},
        {"--groups", FLAG_NUMBER, &out->groups, .max = GROUPS_MAX},
        {"--gpus", FLAG_TEXT, &out->gpus, .required = false},
        {"--context", FLAG_NUMBER, &out->context, .max = POSITIONS_MAX},
        {"--sessions", FLAG_NUMBER, &out->sessions, .max = SESSIONS_MAX},
        {"--state-mib", FLAG_NUMBER, &out->state_mib, .max = STATE_MIB_MAX},
        {"--draft", FLAG_NUMBER, &out->draft, .max = DRAFT_DEPTH_MAX},
        {"--audits", FLAG_TEXT, &out->audits, .required = false},
        {"--prefixes", FLAG_TEXT, &out->prefixes, .required = false},
        {"--prefixes-key", FLAG_TEXT, &out->prefixes_key, .required = false},
        {"--worker", FLAG_TEXT, &out->worker, .required = false},
        {"--worker-limit", FLAG_NUMBER, &out->worker_limit_s, .max = WORKER_STEP_SECONDS},
        {"--keepalive-ms", FLAG_NUMBER, &out->keepalive_ms, .max = KEEPALIVE_MS_MAX},
        {"--receipts", FLAG_NUMBER, &out->receipts, .max = MESSAGES_MAX},
        {"--front", FLAG_NUMBER, &out->front, .max = HTTP_UID_MAX},
        {"--host", FLAG_LIST, &hosts, .required = false},
    };
    enum status status = flags_parse(argc, argv, flags, sizeof flags / sizeof *flags, err);
    if (status != OK)
        return status;
    out->n_names = hosts.n;
    if (out->worker != NULL && strcmp(out->worker, "none") == 0)
        out->worker = NULL; /* the list of words that the box starts it with is a fixed one */
    if ((out->prefixes == NULL) != (out->prefixes_key == NULL))
        return error_set(err, ERR_USAGE, "--prefixes and --prefixes-key go together");
    if (out->groups > 1 && (out->worker == NULL || out->ranks == 0))
        return error_set(err, ERR_USAGE, "--groups: each is a --worker of so many --ranks");
    if (out->gpus != NULL && !layout_parse(out->gpus, &out->layout))
        return error_set(err, ERR_USAGE,
                         "--gpus: must be auto, or GROUPSxRANKS of %d GPUs at most, as 2x4",
                         RANKS_MAX);
    if (out->gpus != NULL && (out->groups != 0 || out->ranks != 0 || out->gpu != 0))
        return error_set(err, ERR_USAGE, "--gpus says what --groups, --ranks and --gpu say");
    return OK;
}

/* ---- opening and closing -------------------------------------------------------------------- */

/* The engine of one group, and how many ranks and GPUs its model says there are. */
static enum status open_group(struct box *box, const struct flags *flags,
                              const struct model_options *options,
                              struct engine_options *engine_options, struct engine **out,
                              int32_t *ranks, int32_t *gpus, struct error *err)
{
    struct model *model;
    char *path = box->prefixes[options->group];
    if (flags->prefixes != NULL) { /* those of the first are where one alone has them */
        int bytes = options->group == 0
                        ? snprintf(path, PATH_BYTES, "%s", flags->prefixes)
                        : snprintf(path, PATH_BYTES, "%s.%d", flags->prefixes, options->group);
        if (bytes >= PATH_BYTES)
            return error_set(err, ERR_USAGE, "--prefixes: the path is too long");
        engine_options->prefix_path = path;
    }
    enum status status = model_open(flags->model, options, &model, err);
    if (status != OK)
        return status;
    box->scope.isa = model_isa_name(model); /* a constant */
    *ranks = model_ranks(model);
    *gpus = model_gpus(model);
    return engine_create(model, engine_options, out, err);
}

/* An engine for each group, and one of them all.
 * @param layout  0 groups: as many as there are GPUs for, and those that can not be opened are told
 *                and missed; what is meant is then what it has become */
static enum status open_groups(struct box *box, const struct flags *flags,
                               struct model_options *options, struct engine_options *engine_options,
                               struct layout *layout, struct error *err)
{
    struct engine *groups[GROUPS_MAX];
    int32_t n = 0, wanted = layout->groups > 0 ? layout->groups : GROUPS_MAX, gpus = 0;
    enum status status = OK;
    options->ranks = layout->ranks;
    while (n < wanted && status == OK) {
        options->group = n;
        status =
            open_group(box, flags, options, engine_options, &groups[n], &layout->ranks, &gpus, err);
        n += status == OK;
        if (layout->groups == 0 && status == OK) {
            options->ranks = layout->ranks; /* of all groups */
            options->apart = gpus > 0;
            wanted = layout_groups(layout->ranks, gpus);
        } else if (options->apart && status == OK && wanted * layout->ranks > gpus) {
            status = error_set(err, ERR_CAPACITY, "%d GPUs are asked for, and %d are there",
                               (int)(wanted * layout->ranks), (int)gpus);
        }
    }
    if (layout->groups == 0 && n > 0 && status != OK) {
        log_line(LOG_LEVEL_ERROR, "gpus", "group %d of %d serves not: %s", (int)n + 1, (int)wanted,
                 err->text);
        status = OK;
    }
    if (status == OK)
        box->engine = n > 1 ? engine_join(groups, n) : groups[0];
    for (int32_t i = 0; i < n && status != OK; i++)
        engine_destroy(groups[i]);
    layout->groups = n;
    return status;
}

/* The same by --gpus.  A box that does not serve helps nobody: where the layout that was set can
 * not be had, the one that the GPUs have room for is, and says so. */
static enum status open_layout(struct box *box, const struct flags *flags,
                               struct model_options *options, struct engine_options *engine_options,
                               struct error *err)
{
    struct layout layout = flags->layout;
    char refused[ERROR_TEXT_BYTES + 64] = "";
    options->apart = layout.ranks > 0;
    enum status status = open_groups(box, flags, options, engine_options, &layout, err);
    if (status != OK && flags->layout.groups > 0) {
        snprintf(refused, sizeof refused, ", for %s can not be had: %s", flags->gpus, err->text);
        log_line(LOG_LEVEL_ERROR, "gpus", "%s can not be had, so auto is: %s", flags->gpus,
                 err->text);
        layout = (struct layout){0, 0};
        options->apart = false;
        status = open_groups(box, flags, options, engine_options, &layout, err);
    }
    bool automatic = flags->layout.groups == 0 || refused[0] != '\0';
    snprintf(box->layout, sizeof box->layout, "%d group%s of %d rank%s%s%s", (int)layout.groups,
             layout.groups == 1 ? "" : "s", (int)layout.ranks, layout.ranks == 1 ? "" : "s",
             automatic ? " (auto)" : " (set)", refused);
    if (status == OK)
        log_line(LOG_LEVEL_INFO, "gpus", "%s", box->layout);
    return status;
}

static enum status open_engine(struct box *box, const struct flags *flags, struct error *err)
{
    struct model_options options = {.isa = flags->isa,
                                    .threads = flags->threads,
                                    .ranks = flags->ranks,
                                    .gpu = flags->gpu,
                                    .weights = flags->weights,
                                    .worker = flags->worker,
                                    .worker_step_ms = 1000 * flags->worker_limit_s};
    const struct profile *builtin = profile_builtin(flags->profile);
    if (builtin == NULL)
        return error_set(err, ERR_USAGE, "--profile: want reference, official, balanced or fast");
    box->profile = *builtin;
    if (flags->draft > 0)
        profile_set(&box->profile, ROW_DRAFT_DEPTH, flags->draft);
    struct engine_options engine_options = {.sessions_max = flags->sessions,
                                            .context_max = flags->context,
                                            .queue_max = QUEUE_DEFAULT,
                                            .state_bytes = (uint64_t)flags->state_mib << 20,
                                            .prefix_bytes = PREFIX_BYTES_DEFAULT,
                                            .profile = &box->profile};
    if (flags->prefixes != NULL) {
        enum status status = secret_open(flags->prefixes_key, engine_options.prefix_key,
                                         sizeof engine_options.prefix_key, err);
        if (status != OK)
            return status;
    }
    /* Nothing is parsed before it is what the manifest says, where there is one. */
    struct manifest_result manifest;
    enum status status = manifest_verify(flags->model, &manifest, err);
    if (status != OK)
        return status;
    struct layout layout = {flags->groups > 1 ? flags->groups : 1, flags->ranks};
    if (flags->gpus != NULL && flags->worker != NULL) /* on a box without GPUs it means nothing */
        status = open_layout(box, flags, &options, &engine_options, err);
    else
        status = open_groups(box, flags, &options, &engine_options, &layout, err);
    box->saves = status == OK && flags->prefixes != NULL;
    sodium_memzero(&engine_options, sizeof engine_options);
    return status;
}

static enum status open_text(struct box *box, const struct flags *flags, struct error *err)
{
    char path[PATH_BYTES];
    int n = snprintf(path, sizeof path, "%s/tokenizer.json", flags->model);
    if (n >= (int)sizeof path)
        return error_set(err, ERR_USAGE, "--model: the path is too long");
    enum status status = tokenizer_open(path, &box->tokenizer, err);
    if (status != OK)
        return status;
    /* Ids beyond the embedding must not exist. */
    int32_t rows = engine_model_config(box->engine)->vocab_size;
    if (tokenizer_vocab_size(box->tokenizer) > rows)
        return error_set(err, ERR_INPUT, "%s: %d entries, but the model knows %d", path,
                         tokenizer_vocab_size(box->tokenizer), rows);
    status = api_init(&box->api, box->engine, box->tokenizer, box->scope.isa, err);
    box->api.heartbeat_ms = flags->keepalive_ms;
    box->api.receipt_messages = flags->receipts;
    box->api.turns = box->turns = turns_create();
    box->api.meter = box->meter = meter_create();
    box->api.metrics = box->metrics = metrics_create();
    if (status == OK)
        status = sensors_start(box->engine, SENSORS_HWMON, &box->sensors, err);
    box->api.sensors = box->scope.sensors = box->sensors;
    if (status == OK)
        status = mask_vocab_create(box->tokenizer, &box->api.tokens, &box->masks, err);
    box->api.masks = box->masks;
    return status;
}

/* What serves from here on is what the store says; --profile is for a box that was never switched.
 */
static enum status open_profiles(struct box *box, const struct flags *flags, struct error *err)
{
    enum status status = store_open(flags->profiles, flags->profile, &box->profiles, err);
    if (status != OK)
        return status;
    const struct control_options options = {.engine = box->engine,
                                            .store = box->profiles,
                                            .render = api_probe_render,
                                            .render_user = &box->api,
                                            .serve = served_run};
    status = control_start(&options, &box->control, err);
    box->api.profiles = box->profiles;
    box->api.control = box->control;
    return status;
}

/* Reports need a folder of their own.  What is wrong with it is no reason not to serve. */
static void open_audits(struct box *box, const struct flags *flags)
{
    struct error err;
    if (flags->audits == NULL)
        return;
    const struct auditor_options options = {
        .engine = box->engine,
        .text = {box->tokenizer, &box->api.tokens},
        .proving = {.render = api_probe_render, .render_user = &box->api, .serve = served_run},
        .folder = flags->audits,
        .model = flags->model};
    if (auditor_start(&options, &box->auditor, &err) != OK)
        log_line(LOG_LEVEL_ERROR, "audit", "no audits: %s", err.text);
    else
        box->recorder = recorder_create();
    box->api.auditor = box->auditor;
    box->api.recorder = box->recorder;
}

static enum status open_http(struct box *box, const struct flags *flags, struct error *err)
{
    enum status status = listener_open(flags->listen, &box->listener, err);
    if (status == OK && flags->front != 0)
        status = listener_share(&box->listener, err);
    if (status != OK)
        return status;
    struct http_options options = {.take_listen_fd = box->listener.fd,
                                   .keys = box->keys,
                                   .meter = box->meter,
                                   .metrics = box->metrics,
                                   .names = flags->names,
                                   .n_names = flags->n_names,
                                   .body_bytes_max = api_body_bytes_max(&box->api),
                                   .front_uid = flags->front,
                                   .profile = api_profile_now,
                                   .user = &box->api};
    options.routes = api_routes(&options.n_routes);
    box->listener.fd = -1;
    return http_start(&options, &box->http, err);
}

/* Nothing of it is routed where the API listens. */
static enum status open_metrics(struct box *box, const struct flags *flags, struct error *err)
{
    if (flags->metrics == NULL)
        return OK;
    enum status status = listener_open(flags->metrics, &box->scraped, err);
    if (status != OK)
        return status;
    struct http_options options = {.take_listen_fd = box->scraped.fd,
                                   .names = flags->names,
                                   .n_names = flags->n_names,
                                   .profile = api_profile_now,
                                   .user = &box->api};
    options.routes = api_metrics_routes(&options.n_routes);
    box->scraped.fd = -1;
    status = http_start(&options, &box->http_metrics, err);
    if (status == OK)
        printf("metrics on %s\n", box->scraped.text);
    return status;
}

static enum status open_box(struct box *box, const struct flags *flags, struct error *err)
{
    enum status status = open_engine(box, flags, err);
    if (status == OK)
        status = open_text(box, flags, err);
    if (status == OK)
        status = open_profiles(box, flags, err);
    if (status == OK)
        open_audits(box, flags);
    if (status == OK)
        status = keys_open(flags->keys, &box->keys, err);
    if (status == OK)
        status = open_metrics(box, flags, err);
    if (status == OK)
        status = open_http(box, flags, err);
    if (status != OK || flags->admin == NULL)
        return status;
    box->scope.engine = box->engine;
    box->scope.keys = box->keys;
    box->scope.turns = box->turns;
    box->scope.profiles = box->profiles;
    box->scope.control = box->control;
    box->scope.metrics = api_metrics_dump;
    box->scope.metrics_user = &box->api;
    box->scope.auditor = box->auditor;
    box->scope.recorder = box->recorder;
    box->scope.model = box->api.model;
    box->scope.listening = box->listener.text;
    box->scope.layout = box->layout;
    return admin_start(flags->admin, &box->scope, &box->admin, err);
}

/* Leaves the conversations for the next engine, if it was asked for. */
static void save_prefixes(struct box *box)
{
    struct error err;
    if (box->saves && engine_save(box->engine, &err) != OK)
        log_line(LOG_LEVEL_ERROR, "api", "%s", err.text);
}

static void close_box(struct box *box)
{
    admin_stop(box->admin);
    http_stop(box->http_metrics);
    listener_close(&box->scraped);
    http_stop(box->http);
    save_prefixes(box);
    listener_close(&box->listener);
    keys_close(box->keys);
    auditor_stop(box->auditor);
    recorder_destroy(box->recorder);
    control_stop(box->control);
    sensors_stop(box->sensors);
    engine_destroy(box->engine);
    store_close(box->profiles);
    turns_destroy(box->turns);
    meter_destroy(box->meter);
    metrics_destroy(box->metrics);
    mask_vocab_destroy(box->masks);
    tokenizer_close(box->tokenizer);
}

/* ---- the command ---------------------------------------------------------------------------- */

/* Before any thread starts, so that all of them leave these signals to sigwait. */
static void prepare_process(sigset_t *stop_signals)
{
    sigemptyset(stop_signals);
    sigaddset(stop_signals, SIGTERM);
    sigaddset(stop_signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, stop_signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    /* A core file would hold what people said. */
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
}

int cmd_serve(int argc, char **argv)
{
    struct flags flags;
    struct error err = {0};
    struct box box = {.listener = {.fd = -1}, .scraped = {.fd = -1}};
    sigset_t stop_signals;
    int signal_number = 0;
    prepare_process(&stop_signals);
    enum status status = parse_flags(argc, argv, &flags, &err);
    if (status == OK)
        status = open_box(&box, &flags, &err);
    if (status == OK) {
        printf("listening on %s\n", box.listener.text);
        fflush(stdout);
        sigwait(&stop_signals, &signal_number);
        log_line(LOG_LEVEL_INFO, "api", "signal %d: going down", signal_number);
    } else {
        fprintf(stderr, "engine serve: %s\n", err.text);
    }
    close_box(&box);
    return status_exit_code(status);
}
