/* Weights made of a seed: states and numbers of each tensor, and addresses. */
#include "engine/model/made.h"

#include "kernels/check.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* As MADE_RMS_FP4. */
#define RMS_FP8 1.68

/* Of every tensor's address: whole cache lines, and what the widest loads ask for. */
#define MADE_ALIGN 256

struct made {
    struct model_weights weights; /* owns the expert tables */
    struct synth_part *parts;     /* owns; those of the table */
    struct synth_table table;
    char *memory; /* owns; [bytes] addresses */
    uint64_t bytes;
    const struct model_config *config; /* borrows */
    uint64_t seed;
};

/* ---- how a tensor is filled ----------------------------------------------------------------- */

uint64_t made_state(const char *name, uint64_t seed)
{
    uint64_t hash = 0xCBF29CE484222325u;
    for (; *name != '\0'; name++)
        hash = (hash ^ (uint8_t)*name) * 0x100000001B3u;
    return hash ^ seed;
}

/* value = base + factor * unit */
static void plain_of(const struct weight_spec *spec, struct synth *out)
{
    switch (spec->fill) {
    case FILL_MATRIX:
        out->factor = sqrt(3.0 / spec->cols);
        return;
    case FILL_EMBED:
        out->factor = sqrt(3.0);
        return;
    case FILL_NORM:
    case FILL_ONE:
        out->base = 1.0, out->factor = 0.25;
        return;
    case FILL_BASE:
        out->factor = 1.0;
        return;
    case FILL_BIAS:
        out->factor = 0.25;
        return;
    case FILL_LINEAR:
    case FILL_TID:
        break;
    }
    ASSERT(!"a fill with plain values");
}

struct synth made_stored(const struct model_config *config, const struct weight_spec *spec,
                         int part, const char *name, uint64_t seed)
{
    static const enum synth_kind DATA[] = {
        [STORE_BF16] = SYNTH_BF16,   [STORE_F32] = SYNTH_F32, [STORE_FP8] = SYNTH_FP8,
        [STORE_I64] = SYNTH_EXPERTS, [STORE_FP4] = SYNTH_FP4, [STORE_NVFP4] = SYNTH_FP4,
    };
    struct synth s = {.kind = DATA[spec->store],
                      .state = made_state(name, seed),
                      .top = (uint32_t)spec->cols,
                      .experts = (uint32_t)config->n_routed_experts};
    ASSERT(part == STORED_DATA || part == STORED_SCALE);
    if (part == STORED_SCALE) {
        double rms = spec->store == STORE_FP8 ? RMS_FP8 : MADE_RMS_FP4;
        s.kind = spec->store == STORE_NVFP4 ? SYNTH_NVFP4_SCALE : SYNTH_SCALE;
        s.exponent = 127 + (int32_t)rint(log2(1.0 / sqrt(spec->cols) / rms));
    } else if (s.kind == SYNTH_F32 || s.kind == SYNTH_BF16) {
        plain_of(spec, &s);
    }
    return s;
}

_Bool made_seed(const char *text, uint64_t *seed)
{
    static const char KIND[] = "synth:";
    char *end;
    if (strncmp(text, KIND, sizeof KIND - 1) != 0)
        return false;
    text += sizeof KIND - 1;
    errno = 0;
    *seed = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && *end == '\0' && errno == 0;
}

/* ---- all tensors ---------------------------------------------------------------------------- */

static int stored_of(const struct weight_spec *spec, struct stored_tensor stored[STORED_MAX])
{
    int n = weight_stored(spec, stored);
    ASSERT(n <= STORED_SCALE + 1); /* the list has no NVFP4 */
    return n;
}

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + MADE_ALIGN - 1) / MADE_ALIGN * MADE_ALIGN;
}

static enum status count_weight(void *user, const struct weight_spec *spec, struct error *err)
{
    (void)err;
    struct made *made = user;
    struct stored_tensor stored[STORED_MAX];
    int n = stored_of(spec, stored);
    for (int i = 0; i < n; i++)
        made->bytes += aligned(stored[i].bytes);
    made->table.n += (size_t)n;
    return OK;
}

static enum status place_weight(void *user, const struct weight_spec *spec, struct error *err)
{
    (void)err;
    struct made *made = user;
    struct stored_tensor stored[STORED_MAX];
    const void *at[STORED_MAX] = {NULL};
    int n = stored_of(spec, stored);
    for (int i = 0; i < n; i++) {
        at[i] = made->memory + made->bytes;
        made->parts[made->table.n++] = (struct synth_part){
            at[i], stored[i].bytes, made_stored(made->config, spec, i, stored[i].name, made->seed)};
        made->bytes += aligned(stored[i].bytes);
    }
    *weight_member(&made->weights, made->config, spec) = (struct tensor){.data = at[STORED_DATA],
                                                                         .scale = at[STORED_SCALE],
                                                                         .rows = spec->rows,
                                                                         .cols = spec->cols,
                                                                         .store = spec->store};
    return OK;
}

static void tables_make(struct made *made)
{
    const struct model_config *c = made->config;
    ASSERT(c->num_hidden_layers <= LAYERS_MAX && c->num_nextn_predict_layers <= 1);
    for (int32_t block = 0; block < c->num_hidden_layers + c->num_nextn_predict_layers; block++) {
        struct layer_weights *layer = block < c->num_hidden_layers ? &made->weights.layers[block]
                                                                   : &made->weights.mtp[0].block;
        layer->experts = calloc((size_t)c->n_routed_experts, sizeof *layer->experts);
        ASSERT(layer->experts != NULL);
    }
}

enum status made_open(const struct model_config *config, uint64_t seed, struct made **out,
                      struct error *err)
{
    struct made *made = calloc(1, sizeof *made);
    ASSERT(made != NULL);
    made->config = config;
    made->seed = seed;
    ASSERT(weights_visit(config, count_weight, made, err) == OK); /* nothing there fails */
    uint64_t all = made->bytes;
    made->parts = calloc(made->table.n, sizeof *made->parts);
    ASSERT(made->parts != NULL);
    made->memory = mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (made->memory == MAP_FAILED) {
        made->memory = NULL;
        made_close(made);
        return error_set(err, ERR_CAPACITY, "weights: no addresses for %llu bytes",
                         (unsigned long long)all);
    }
    made->table = (struct synth_table){.parts = made->parts};
    made->bytes = 0;
    tables_make(made);
    ASSERT(weights_visit(config, place_weight, made, err) == OK && made->bytes == all);
    *out = made;
    return OK;
}

void made_close(struct made *made)
{
    if (made == NULL)
        return;
    for (int32_t layer = 0; layer < LAYERS_MAX; layer++)
        free(made->weights.layers[layer].experts);
    free(made->weights.mtp[0].block.experts);
    if (made->memory != NULL)
        ASSERT(munmap(made->memory, made->bytes) == 0);
    free(made->parts);
    free(made);
}

const struct model_weights *made_weights(const struct made *made)
{
    return &made->weights;
}

const struct synth_table *made_table(const struct made *made)
{
    return &made->table;
}

enum status made_fill(struct made *made, struct error *err)
{
    uint64_t room = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    if (made->bytes > room || mprotect(made->memory, made->bytes, PROT_READ | PROT_WRITE) != 0)
        return error_set(err, ERR_CAPACITY, "weights: %llu bytes; this machine has %llu",
                         (unsigned long long)made->bytes, (unsigned long long)room);
    for (size_t i = 0; i < made->table.n; i++) {
        const struct synth_part *part = &made->table.parts[i];
        uint64_t offset = (uint64_t)((const char *)part->at - made->memory);
        synth_fill(&part->made, 0, part->bytes, (uint8_t *)made->memory + offset);
    }
    return OK;
}
