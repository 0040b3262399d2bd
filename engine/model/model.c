/*
 * Opening a network of this process: checkpoint, backend, scratch memory.  Runs no step.
 */
#include "engine/model/config.h"
#include "engine/model/network.h"
#include "kernels/check.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int32_t model_blocks(const struct model_config *c)
{
    return c->num_hidden_layers + c->num_nextn_predict_layers;
}

const struct layer_weights *model_block_weights(const struct model *model, int32_t block)
{
    int32_t layers = model->config->num_hidden_layers;
    return block < layers ? &model->weights->layers[block]
                          : &model->weights->mtp[block - layers].block;
}

/* P8.  YaRN blends each frequency with itself divided by the factor, over a ramp of channels. */
void rope_frequencies(double frequency[ROPE_KINDS][ROPE_HEAD_DIM / 2])
{
    const double pi = 3.14159265358979323846;
    const double span = ROPE_HEAD_DIM / (2 * log(COMPRESS_THETA));
    double low = floor(span * log(YARN_ORIGINAL / (YARN_BETA_FAST * 2 * pi)));
    double high = ceil(span * log(YARN_ORIGINAL / (YARN_BETA_SLOW * 2 * pi)));
    for (int i = 0; i < ROPE_HEAD_DIM / 2; i++) {
        double exponent = -2.0 * i / ROPE_HEAD_DIM;
        double plain = pow(COMPRESS_THETA, exponent);
        double ramp = fmin(fmax((i - low) / (high - low), 0), 1);
        frequency[ROPE_WINDOW][i] = pow(ROPE_THETA, exponent);
        frequency[ROPE_COMPRESSED][i] = plain * (1 - ramp) + plain / YARN_FACTOR * ramp;
    }
}

/* The shared experts stand behind the routed ones: every token takes them. */
static bool experts_bind(struct model *m)
{
    const struct model_config *c = m->config;
    int32_t n = c->n_routed_experts + c->n_shared_experts;
    ASSERT(c->n_shared_experts == 1); /* one set of tensors in config/weights.def */
    m->experts = calloc((size_t)model_blocks(c) * (size_t)n, sizeof *m->experts);
    if (m->experts == NULL)
        return false;
    for (int32_t block = 0; block < model_blocks(c); block++) {
        const struct layer_weights *w = model_block_weights(m, block);
        struct expert *experts = m->experts + (int64_t)block * n;
        for (int32_t e = 0; e < c->n_routed_experts; e++)
            experts[e] = (struct expert){w->experts[e].w1, w->experts[e].w2, w->experts[e].w3};
        experts[n - 1] = (struct expert){w->shared_w1, w->shared_w2, w->shared_w3};
    }
    return true;
}

static int32_t most(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

static struct backend_limits limits_of(const struct model_config *c)
{
    int32_t cols = HC_MULT * c->hidden_size;
    cols = most(cols, c->num_attention_heads * HEAD_DIM / c->o_groups);
    cols = most(cols, c->o_groups * c->o_lora_rank);
    cols = most(cols, most(c->q_lora_rank, c->moe_intermediate_size));
    return (struct backend_limits){
        .tokens = STEP_TOKENS_MAX,
        .cols = cols,
        .groups = c->o_groups,
        .group_cols = c->num_attention_heads * HEAD_DIM,
        .index_heads = c->index_n_heads,
        .topk = c->index_topk,
        .inner = c->moe_intermediate_size,
        .hidden = c->hidden_size,
        .experts = c->n_routed_experts + c->n_shared_experts,
        .top = c->num_experts_per_tok + c->n_shared_experts,
        .vocab = c->vocab_size,
    };
}

static void step_carve(struct model *m, struct carve *carve)
{
    const struct model_config *c = m->config;
    struct step_memory *s = &m->step;
    const int64_t tokens = m->step_tokens, heads = (int64_t)c->num_attention_heads * HEAD_DIM;
    const struct {
        void *member;
        int64_t width;
    } PIECES[] = {
        {&s->ids, 1},
        {&s->positions, 1},
        {&s->csa_positions, 1},
        {&s->hca_positions, 1},
        {&s->rope[ROPE_WINDOW], 2 * ROPE_ROW}, /* two floats make a double */
        {&s->rope[ROPE_COMPRESSED], 2 * ROPE_ROW},
        {&s->block_rope_csa, 2 * ROPE_ROW},
        {&s->block_rope_hca, 2 * ROPE_ROW},
        {&s->streams, HC_MULT * c->hidden_size},
        {&s->streams_next, HC_MULT * c->hidden_size},
        {&s->post, 2 * HC_MULT},
        {&s->comb, 2 * HC_MULT * HC_MULT},
        {&s->u, c->hidden_size},
        {&s->y, c->hidden_size},
        {&s->q_lora, c->q_lora_rank},
        {&s->q, heads},
        {&s->kv, HEAD_DIM},
        {&s->heads_out, heads},
        {&s->grouped, c->o_groups * c->o_lora_rank},
        {&s->kappa, 2 * HEAD_DIM},
        {&s->gamma, 2 * HEAD_DIM},
        {&s->index_kappa, 2 * INDEX_HEAD_DIM},
        {&s->index_gamma, 2 * INDEX_HEAD_DIM},
        {&s->index_q, c->index_n_heads * INDEX_HEAD_DIM},
        {&s->index_weights, c->index_n_heads},
        {&s->selected, c->index_topk},
        {&s->n_selected, 1},
        {&s->experts, c->num_experts_per_tok},
        {&s->expert_weights, c->num_experts_per_tok},
    };
    static_assert(sizeof(float) == sizeof(int32_t), "one element size for all pieces");
    for (size_t i = 0; i < sizeof PIECES / sizeof *PIECES; i++) {
        void *at = carve_take(carve, tokens * PIECES[i].width, sizeof(float));
        memcpy(PIECES[i].member, &at, sizeof at);
    }
    s->logits = carve_take(carve, (int64_t)LOGITS_ROWS_MAX * c->vocab_size, sizeof *s->logits);
}

enum status local_open(const char *dir, const struct model_options *options, struct model *m,
                       struct error *err)
{
    uint64_t seed;
    if (options->weights != NULL) {
        const struct model_config *config;
        if (!made_seed(options->weights, &seed))
            return error_set(err, ERR_USAGE, "--weights: must be synth:SEED");
        enum status found = config_open(dir, &config, err);
        return found != OK ? found : local_open_made(config, seed, options, m, err);
    }
    enum status status = checkpoint_open(dir, &m->checkpoint, err);
    if (status != OK)
        return status;
    m->config = checkpoint_config(m->checkpoint);
    m->weights = checkpoint_weights(m->checkpoint);
    return local_bind(options, m, err);
}

enum status local_open_made(const struct model_config *config, uint64_t seed,
                            const struct model_options *options, struct model *m, struct error *err)
{
    enum status status = made_open(config, seed, &m->made, err);
    if (status != OK)
        return status;
    m->config = config;
    m->weights = made_weights(m->made);
    return local_bind(options, m, err);
}

/* ---- weights to where they are read --------------------------------------------------------- */

struct listing {
    const struct model *model;
    struct tensor *tensors; /* owns; NULL: they are counted */
    int32_t n;
};

static enum status list_tensor(void *user, const struct weight_spec *spec, struct error *err)
{
    (void)err;
    struct listing *l = user;
    const struct model *m = l->model;
    if (spec->scope == SCOPE_EXPERT || spec->scope == SCOPE_SHARED)
        return OK; /* tables of experts have these */
    if (l->tensors != NULL)
        l->tensors[l->n] = *weight_member((struct model_weights *)m->weights, m->config, spec);
    l->n++;
    return OK;
}

static enum status weights_load(struct model *m, struct error *err)
{
    const struct model_config *c = m->config;
    struct listing list = {.model = m};
    const struct expert *experts[LAYERS_MAX];
    int32_t n_experts = c->n_routed_experts + c->n_shared_experts;
    if (m->backend->ops->load == NULL)
        return m->made == NULL ? OK : made_fill(m->made, err);
    enum status status = weights_visit(c, list_tensor, &list, err);
    ASSERT(status == OK); /* nothing there fails */
    list.tensors = calloc((size_t)list.n, sizeof *list.tensors);
    ASSERT(list.tensors != NULL);
    list.n = 0;
    status = weights_visit(c, list_tensor, &list, err);
    ASSERT(model_blocks(c) <= LAYERS_MAX);
    for (int32_t block = 0; block < model_blocks(c); block++)
        experts[block] = m->experts + (int64_t)block * n_experts;
    const struct load_params p = {.tensors = list.tensors,
                                  .n = list.n,
                                  .experts = experts,
                                  .blocks = model_blocks(c),
                                  .n_experts = n_experts,
                                  .made = m->made == NULL ? NULL : made_table(m->made)};
    const char *wrong = m->backend->ops->load(m->backend, &p);
    if (wrong != NULL)
        status = error_set(err, ERR_CAPACITY, "weights: %.400s", wrong);
    free(list.tensors);
    return status;
}

/* ---- opening -------------------------------------------------------------------------------- */

enum status local_bind(const struct model_options *options, struct model *m, struct error *err)
{
    rope_frequencies(m->frequency);
    struct backend_limits limits = limits_of(m->config);
    enum status status = model_ranks_open(options, &limits, m, err);
    if (status != OK)
        return status;
    m->variant = m->backend->ops->variant(m->backend);
    m->packs = m->backend->ops->packs;
    m->step_tokens = m->backend->ops->step_tokens;
    ASSERT(m->step_tokens >= SPAN_TOKENS_MAX && m->step_tokens <= STEP_TOKENS_MAX);
    struct carve carve = {NULL, 0};
    step_carve(m, &carve);
    m->bytes = carve.used;
    m->memory = m->backend->ops->reserve(m->backend, m->bytes);
    const struct state_format widest = {ENTRY_F32, ENTRY_F32};
    if (m->backend->ops->pages)
        m->pages = pages_create(m->backend, page_bytes(m->config, widest));
    if (m->memory == NULL || !experts_bind(m) || (m->backend->ops->pages && m->pages == NULL))
        return error_set(err, ERR_CAPACITY, "model: no memory for a step (%zu bytes)", m->bytes);
    carve = (struct carve){m->memory, 0};
    step_carve(m, &carve);
    return weights_load(m, err);
}

void local_close(struct model *m)
{
    if (m->backend != NULL) {
        pages_destroy(m->pages);
        m->backend->ops->release(m->backend, m->memory, m->bytes);
        m->backend->ops->destroy(m->backend);
    }
    free(m->experts);
    checkpoint_close(m->checkpoint);
    made_close(m->made);
}
