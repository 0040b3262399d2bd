/*
 * `engine logits`: what the network says about given token ids, as one JSON object.  The way that
 * golden tests and people look at the numbers; the ids go through the same steps as in serving.
 */
#include "engine/commands.h"
#include "engine/model/inspect.h"
#include "engine/model/logits.h"
#include "engine/model/options.h"
#include "kernels/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct logits_options {
    const char *dir, *ids_path, *positions;
    struct model_options model;
    struct profile profile, decode_profile;
    int32_t chunk, threads, ranks, decode_from;
    bool draft, trace;
};

/* What one layer did at one probed position, as JSON. */
struct probe_trace {
    struct buf rms, experts, selected; /* own */
};

struct logits_run {
    struct logits_options options;
    struct model *model;       /* owns */
    struct sequence *sequence; /* owns */
    const struct model_config *config;
    struct ids ids; /* owns */
    int32_t vocab, layers;
    int32_t taken, drafted; /* ids that the layers, the draft block have */
    float *rows;            /* owns; [LOGITS_ROWS_MAX, vocab] */

    int32_t probes[PROBES_MAX], n_probes; /* positions, as asked for */
    struct probe_trace *traces;           /* owns; [layers, n_probes] */

    /* Output, written while steps run. */
    struct buf top1, logprob, logits, draft_top1, draft_logits; /* own */
};

/* ---- arguments ------------------------------------------------------------------------------ */

static enum status options_parse(int argc, char **argv, struct logits_options *o, struct error *err)
{
    struct flag flags[] = {
        {"--model", FLAG_TEXT, &o->dir, .required = true},
        {"--ids", FLAG_TEXT, &o->ids_path, .required = true},
        {"--profile", FLAG_PROFILE, &o->profile, .required = true},
        {"--decode-from", FLAG_NUMBER, &o->decode_from, .required = false},
        {"--decode-profile", FLAG_PROFILE, &o->decode_profile, .required = false},
        {"--chunk", FLAG_NUMBER, &o->chunk, .required = false},
        {"--positions", FLAG_TEXT, &o->positions, .required = false},
        {"--draft", FLAG_SWITCH, &o->draft, .required = false},
        {"--trace", FLAG_SWITCH, &o->trace, .required = false},
        {"--worker", FLAG_TEXT, &o->model.worker, .required = false},
        {"--isa", FLAG_ISA, &o->model.isa, .required = false},
        {"--threads", FLAG_NUMBER, &o->threads, .required = false},
        {"--ranks", FLAG_NUMBER, &o->ranks, .required = false},
        {"--weights", FLAG_TEXT, &o->model.weights, .required = false},
        {"--gpu", FLAG_NUMBER, &o->model.gpu, .required = false},
    };
    *o = (struct logits_options){
        .positions = "-1", .chunk = LOGITS_ROWS_MAX, .decode_from = INT32_MAX};
    enum status status = flags_parse(argc, argv, flags, sizeof flags / sizeof *flags, err);
    if (status != OK)
        return status;
    if (o->decode_profile.hash == 0)
        o->decode_profile = o->profile;
    else if (o->draft)
        return error_set(err, ERR_USAGE, "--draft: not with --decode-profile");
    if (o->trace && o->model.worker != NULL)
        return error_set(err, ERR_USAGE, "--trace: not with --worker");
    if (o->chunk < 1)
        return error_set(err, ERR_USAGE, "--chunk: must be at least 1");
    if (o->chunk > LOGITS_ROWS_MAX)
        o->chunk = LOGITS_ROWS_MAX; /* each token's row is looked at */
    o->model.threads = o->threads;
    o->model.ranks = o->ranks;
    return OK;
}

/* Positions count from the end when negative. */
static enum status probes_parse(struct logits_run *run, struct error *err)
{
    int32_t n = (int32_t)run->ids.len;
    for (const char *at = run->options.positions; at != NULL;) {
        const char *comma = strchr(at, ',');
        size_t len = comma == NULL ? strlen(at) : (size_t)(comma - at);
        char item[16] = "";
        int32_t position;
        if (len < sizeof item)
            memcpy(item, at, len);
        if (run->n_probes == PROBES_MAX)
            return error_set(err, ERR_USAGE, "--positions: at most %d", PROBES_MAX);
        if (!number_parse(item, -n, n - 1, &position))
            return error_set(err, ERR_USAGE, "--positions: number %d is none from %d to %d",
                             (int)run->n_probes + 1, (int)-n, (int)n - 1);
        run->probes[run->n_probes++] = position < 0 ? n + position : position;
        at = comma == NULL ? NULL : comma + 1;
    }
    return OK;
}

/* ---- collecting ----------------------------------------------------------------------------- */

static void list_ints(struct buf *out, const int32_t *values, int32_t n)
{
    buf_puts(out, "[");
    for (int32_t i = 0; i < n; i++)
        buf_printf(out, "%s%d", i > 0 ? ", " : "", (int)values[i]);
    buf_puts(out, "]");
}

static void on_trace(void *user, const struct layer_trace *trace)
{
    struct logits_run *run = user;
    for (int32_t i = 0; i < run->n_probes; i++) {
        if (run->probes[i] != trace->position)
            continue;
        struct probe_trace *probe = &run->traces[trace->layer * run->n_probes + i];
        buf_printf(&probe->rms, "%.9g", trace->rms);
        list_ints(&probe->experts, trace->experts, trace->n_experts);
        if (trace->n_selected >= 0)
            list_ints(&probe->selected, trace->selected, trace->n_selected);
    }
}

static void separate(struct buf *list)
{
    if (list->len > 0)
        buf_puts(list, ", ");
}

/* One row of the network or of the draft block into its lists. */
static enum status row_collect(const struct logits_run *run, const float *row, int32_t position,
                               struct buf *top1, struct buf *logits, struct error *err)
{
    for (int32_t i = 0; i < run->vocab; i++) {
        if (!isfinite(row[i]))
            return error_set(err, ERR_CHECK, "%s: the logits at position %d are not finite",
                             run->options.dir, (int)position);
    }
    separate(top1);
    buf_printf(top1, "%d", (int)logits_top(row, run->vocab));
    bool probed = false; /* a position asked for twice is one key */
    for (int32_t i = 0; i < run->n_probes; i++)
        probed = probed || run->probes[i] == position;
    if (!probed)
        return OK;
    separate(logits);
    buf_printf(logits, "\"%d\": [", (int)position);
    for (int32_t i = 0; i < run->vocab; i++)
        buf_printf(logits, "%s%.9g", i > 0 ? ", " : "", (double)row[i]);
    buf_puts(logits, "]");
    return OK;
}

/* A step holds one leg. */
static int32_t step_size(const struct logits_run *run, int32_t at)
{
    const struct logits_options *o = &run->options;
    int32_t end = (int32_t)run->ids.len;
    if (at < o->decode_from && o->decode_from < end)
        end = o->decode_from;
    return end - at < o->chunk ? end - at : o->chunk;
}

/* What a lost worker gave is worth nothing. */
static enum status network_check(struct logits_run *run, struct error *err)
{
    const char *lost = model_lost(run->model);
    return lost == NULL ? OK : error_set(err, ERR_CHECK, "%.400s", lost);
}

static enum status layers_run(struct logits_run *run, int32_t at, int32_t n, struct error *err)
{
    const struct logits_options *o = &run->options;
    bool decode = at >= o->decode_from;
    const struct profile *profile = decode ? &o->decode_profile : &o->profile;
    enum leg leg = decode ? LEG_DECODE : LEG_PREFILL;
    struct segment segment = {.sequence = run->sequence,
                              .ids = run->ids.data + at,
                              .n = n,
                              .logits_all = run->rows,
                              .leg = leg};
    if (at == o->decode_from)
        sequence_crossover(run->sequence, &o->decode_profile);
    model_step(run->model, profile, &segment, 1);
    return network_check(run, err);
}

static enum status step_run(struct logits_run *run, int32_t at, int32_t n, struct error *err)
{
    int32_t total = (int32_t)run->ids.len;
    enum status status = layers_run(run, at, n, err);
    if (status != OK)
        return status;
    run->taken = at + n;
    for (int32_t i = 0; i < n; i++) {
        const float *row = run->rows + (int64_t)i * run->vocab;
        status = row_collect(run, row, at + i, &run->top1, &run->logits, err);
        if (status != OK)
            return status;
        if (at + i + 1 == total)
            continue;
        separate(&run->logprob);
        buf_printf(&run->logprob, "%.9g",
                   logits_logprob(row, run->vocab, run->ids.data[at + i + 1]));
    }
    return OK;
}

static enum status draft_rows(struct logits_run *run, int32_t at, int32_t n, struct error *err)
{
    struct draft_segment draft = {.sequence = run->sequence,
                                  .next_ids = run->ids.data + at + 1,
                                  .n = n,
                                  .logits_all = run->rows};
    model_draft(run->model, &run->options.profile, &draft, 1);
    return network_check(run, err);
}

/* Brings the draft block up to one row behind the ids taken so far. */
static enum status draft_run(struct logits_run *run, struct error *err)
{
    int32_t total = (int32_t)run->ids.len, at = run->drafted;
    int32_t end = run->taken < total ? run->taken : total - 1;
    while (at < end) {
        int32_t n = end - at < LOGITS_ROWS_MAX ? end - at : LOGITS_ROWS_MAX;
        enum status status = draft_rows(run, at, n, err);
        for (int32_t i = 0; i < n && status == OK; i++)
            status = row_collect(run, run->rows + (int64_t)i * run->vocab, at + i, &run->draft_top1,
                                 &run->draft_logits, err);
        if (status != OK)
            return status;
        at += n;
    }
    run->drafted = at;
    return OK;
}

/* ---- output --------------------------------------------------------------------------------- */

static void list_print(const char *name, struct buf *items, const char *open, const char *close)
{
    printf("\"%s\": %s%s%s", name, open, buf_cstr(items), close);
}

static void trace_member_print(const struct logits_run *run, int32_t layer, const char *name,
                               size_t member)
{
    struct probe_trace *probes = run->traces + layer * run->n_probes;
    printf("\"%s\": [", name);
    for (int32_t i = 0; i < run->n_probes; i++)
        printf("%s%s", i > 0 ? ", " : "", buf_cstr((struct buf *)((char *)&probes[i] + member)));
    printf("]");
}

static void traces_print(const struct logits_run *run)
{
    printf(", \"layers\": [");
    for (int32_t layer = 0; layer < run->layers; layer++) {
        printf("%s{", layer > 0 ? ", " : "");
        trace_member_print(run, layer, "rms", offsetof(struct probe_trace, rms));
        printf(", ");
        trace_member_print(run, layer, "experts", offsetof(struct probe_trace, experts));
        if (run->config->compress_ratios[layer] != 0) {
            printf(", ");
            trace_member_print(run, layer, "selected", offsetof(struct probe_trace, selected));
        }
        printf("}");
    }
    printf("]");
}

static void result_print(struct logits_run *run)
{
    printf("{");
    list_print("top1", &run->top1, "[", "], ");
    list_print("next_logprob", &run->logprob, "[", "], ");
    list_print("logits", &run->logits, "{", "}");
    if (run->options.draft) {
        printf(", ");
        list_print("draft_top1", &run->draft_top1, "[", "], ");
        list_print("draft_logits", &run->draft_logits, "{", "}");
    }
    if (run->options.trace)
        traces_print(run);
    printf("}\n");
}

/* ---- the run -------------------------------------------------------------------------------- */

static enum status run_prepare(struct logits_run *run, struct error *err)
{
    const struct logits_options *o = &run->options;
    enum status status = model_open(o->dir, &o->model, &run->model, err);
    if (status != OK)
        return status;
    run->config = model_config(run->model);
    run->vocab = run->config->vocab_size;
    run->layers = run->config->num_hidden_layers;
    if (o->draft && run->config->num_nextn_predict_layers == 0)
        return error_set(err, ERR_USAGE, "--draft: %s has no draft block", run->config->name);
    status = ids_file_read(o->ids_path, run->vocab, &run->ids, err);
    if (status == OK)
        status = probes_parse(run, err);
    if (status == OK)
        status = (profile_equal(&o->profile, &o->decode_profile) ? sequence_create
                                                                 : sequence_create_mixed)(
            run->model, (int32_t)run->ids.len, &run->sequence, err);
    if (status != OK)
        return status;
    run->rows = calloc((size_t)LOGITS_ROWS_MAX * (size_t)run->vocab, sizeof *run->rows);
    run->traces = calloc((size_t)run->layers * (size_t)run->n_probes, sizeof *run->traces);
    if (run->rows == NULL || run->traces == NULL)
        return error_set(err, ERR_CAPACITY, "out of memory");
    if (o->trace)
        model_trace_set(run->model, on_trace, run);
    return OK;
}

static void run_clear(struct logits_run *run)
{
    for (int32_t i = 0; i < run->layers * run->n_probes && run->traces != NULL; i++) {
        buf_free(&run->traces[i].rms);
        buf_free(&run->traces[i].experts);
        buf_free(&run->traces[i].selected);
    }
    free(run->traces);
    free(run->rows);
    buf_free(&run->top1);
    buf_free(&run->logprob);
    buf_free(&run->logits);
    buf_free(&run->draft_top1);
    buf_free(&run->draft_logits);
    ids_free(&run->ids);
    sequence_destroy(run->sequence);
    model_close(run->model);
}

int cmd_logits(int argc, char **argv)
{
    static struct logits_run run; /* large, and once in a program */
    struct error err = {0};
    enum status status = options_parse(argc, argv, &run.options, &err);
    if (status == OK)
        status = run_prepare(&run, &err);
    for (int32_t at = 0, n; status == OK && at < (int32_t)run.ids.len; at += n) {
        n = step_size(&run, at);
        status = step_run(&run, at, n, &err);
        if (status == OK && run.options.draft)
            status = draft_run(&run, &err);
    }
    if (status == OK)
        result_print(&run);
    else
        fprintf(stderr, "engine logits: %s\n", err.text);
    run_clear(&run);
    return status_exit_code(status);
}
