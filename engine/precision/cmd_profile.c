/*
 * `engine profile table|verify|rank`: the table of switches as documentation, and the proof and the
 * ranking of a checkpoint without a box around it.
 */
#include "engine/commands.h"
#include "engine/model/options.h"
#include "engine/precision/proof.h"
#include "engine/precision/rank.h"
#include "engine/precision/served.h"
#include "kernels/check.h"

#include "config/defaults.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct profile_options {
    const char *model, *ids, *worker;
    struct profile profile;
    enum isa isa;
    int32_t threads, ranks;
    bool json;
};

/* ---- the table ------------------------------------------------------------------------------ */

static void bits_dump(struct buf *out, uint32_t bits, int n, const char *(*name)(int))
{
    const char *between = "";
    for (int i = 0; i < n; i++) {
        if (bits >> i & 1) {
            buf_printf(out, "%s%s", between, name(i));
            between = ", ";
        }
    }
}

static const char *name_of_leg(int leg)
{
    return leg_name((enum leg)leg);
}

static const char *name_of_kind(int kind)
{
    return layer_kind_name((enum layer_kind)kind);
}

static void table_dump(struct buf *out)
{
    buf_puts(out,
             "| row | what it changes | values, the reference first | legs | layers | official "
             "| balanced | fast |\n|---|---|---|---|---|---|---|---|\n");
    for (int row = 0; row < PRECISION_ROWS; row++) {
        const struct precision_switch *s = &PRECISION[row];
        buf_printf(out, "| %s | %s | ", s->name, s->changes);
        for (int value = 0; value < s->n_values; value++)
            buf_printf(out, "%s**%s** %s%s", value == 0 ? "" : "; ", s->values[value].name,
                       s->values[value].meaning,
                       s->values[value].use == USE_AUDIT ? " (audits only)" : "");
        buf_puts(out, " | ");
        bits_dump(out, s->legs, LEGS, name_of_leg);
        buf_puts(out, " | ");
        bits_dump(out, s->kinds, LAYER_KINDS, name_of_kind);
        buf_printf(out, " | %s | %s | %s |\n", s->values[s->official].name,
                   s->values[s->balanced].name, s->values[s->fast].name);
    }
}

/* ---- proof and ranking ---------------------------------------------------------------------- */

static enum status run_verify(struct lab *lab, struct engine *engine,
                              const struct profile_options *o, struct buf *out)
{
    struct proof *proof = calloc(1, sizeof *proof);
    ASSERT(proof != NULL);
    proof_run(
        lab,
        &(struct proof_options){.profile = &o->profile, .serve = served_run, .serve_user = engine},
        proof);
    (o->json ? proof_json : proof_text)(proof, out);
    enum status status = proof->good ? OK : ERR_CHECK;
    free(proof);
    return status;
}

static enum status run_rank(struct lab *lab, const struct profile_options *o, struct buf *out,
                            struct error *err)
{
    struct ids ids = {0};
    enum status status = OK;
    if (o->ids != NULL)
        status = ids_file_read(o->ids, lab->config->vocab_size, &ids, err);
    for (int i = 0; o->ids == NULL && i < RANK_PROMPT_MAX; i++) {
        int32_t id;
        lab_ids(&id, 1, lab->config->vocab_size, (uint64_t)i);
        ids_add(&ids, id);
    }
    struct rank *rank = calloc(1, sizeof *rank);
    ASSERT(rank != NULL);
    if (status == OK) {
        rank_run(lab, ids.data, (int32_t)ids.len, NULL, rank);
        (o->json ? rank_json : rank_text)(rank, out);
    }
    ids_free(&ids);
    free(rank);
    return status;
}

static enum status run_on_model(const char *verb, const struct profile_options *o,
                                struct error *err)
{
    struct model *model;
    struct engine *engine;
    struct buf out = {0};
    const struct model_options options = {
        .isa = o->isa, .threads = o->threads, .ranks = o->ranks, .worker = o->worker};
    const struct engine_options serving = {.sessions_max = 1,
                                           .context_max = 2 * SPAN_TOKENS_MAX,
                                           .queue_max = 1,
                                           .prefix_bytes = PREFIX_BYTES_DEFAULT};
    enum status status = model_open(o->model, &options, &model, err);
    if (status == OK)
        status = engine_create(model, &serving, &engine, err);
    if (status != OK)
        return status;
    struct lab *lab = calloc(1, sizeof *lab);
    ASSERT(lab != NULL);
    lab_open_engine(lab, engine);
    status = strcmp(verb, "verify") == 0 ? run_verify(lab, engine, o, &out)
                                         : run_rank(lab, o, &out, err);
    fwrite(out.data, 1, out.len, stdout);
    if (o->json && out.len > 0)
        putchar('\n');
    buf_free(&out);
    free(lab);
    engine_destroy(engine);
    return status;
}

int cmd_profile(int argc, char **argv)
{
    struct error err = {0};
    struct profile_options o = {.profile = *profile_builtin(PROFILE_DEFAULT)};
    struct flag flags[] = {
        {"--model", FLAG_TEXT, &o.model, .required = true},
        {"--profile", FLAG_PROFILE, &o.profile, .required = false},
        {"--ids", FLAG_TEXT, &o.ids, .required = false},
        {"--isa", FLAG_ISA, &o.isa, .required = false},
        {"--threads", FLAG_NUMBER, &o.threads, .required = false},
        {"--ranks", FLAG_NUMBER, &o.ranks, .required = false},
        {"--worker", FLAG_TEXT, &o.worker, .required = false},
        {"--json", FLAG_SWITCH, &o.json, .required = false},
    };
    const char *verb = argc > 1 ? argv[1] : "";
    enum status status = OK;
    if (strcmp(verb, "table") == 0 && argc == 2) {
        struct buf out = {0};
        table_dump(&out);
        fwrite(out.data, 1, out.len, stdout);
        buf_free(&out);
    } else if (strcmp(verb, "verify") == 0 || strcmp(verb, "rank") == 0) {
        status = flags_parse(argc - 1, argv + 1, flags, sizeof flags / sizeof flags[0], &err);
        if (status == OK)
            status = run_on_model(verb, &o, &err);
    } else {
        status = error_set(&err, ERR_USAGE, "want table, verify or rank");
    }
    if (status != OK && err.text[0] != '\0')
        fprintf(stderr, "engine profile: %s\n", err.text);
    return status_exit_code(status);
}
