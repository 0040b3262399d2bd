/*
 * A toy network for tests of the serving core: an automaton whose logits are a hash of all tokens
 * fed so far, so that any token lost, doubled, reordered or leaked from another timeline changes
 * the answer.  Its definitions of model_* and sequence_* replace those of the library in the
 * program that includes this file. What the engine should say is computed by `expect`, without any
 * engine.
 */
#ifndef V4BOX_TESTS_ENGINE_TOY_H
#define V4BOX_TESTS_ENGINE_TOY_H

#include "tests/unit/engine_client.h"

#include "engine/model/pages.h"
#include "engine/model/sampler.h"
#include "engine/model/snapshot.h"
#include "kernels/check.h"

#include <math.h>
#include <unistd.h>

#define VOCAB     64
#define CONTEXT   2048
#define NAN_ID    63 /* feeding this token makes the toy's next logits NaN */
#define STEPS_MAX 20000

#define TOY_PAGES (CONTEXT / SNAPSHOT_TOKENS)

#define TOY_PIECE_BYTES SNAPSHOT_TOKENS /* of the prefix cache, and what a timeline shares */

/* ---- the toy network ------------------------------------------------------------------------ */

struct model {
    int alive;
};

struct sequence {
    int32_t n, n_draft, tokens_max, number;
    uint64_t profile; /* hash of what made it; 0: nothing */
    uint64_t hash;
    uint64_t guessed; /* hash behind the last guess */
    int32_t n_beyond;
    uint64_t hashes[CONTEXT + 1]; /* behind so many tokens */
    int32_t pages[TOY_PAGES];     /* numbers; PAGE_NONE: nothing was fed there */
    uint64_t token_bytes;         /* under its profile */
};

/* What the toy keeps of a prefix: a block is the hash behind it, so is a tail. */
struct snapshots {
    uint64_t blocks[64], tails[64];
    int32_t pages[64];
    uint64_t token_bytes[64];
};

struct step_entry {
    int32_t step, sequence, n, length_before;
};

static struct toy {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool held;    /* the next step waits until released */
    bool waiting; /* a step is waiting */
    int32_t steps, n_entries, n_sequences, sequences_alive, models_closed;
    int32_t n_pages;       /* given a number so far */
    uint64_t taken_most;   /* bytes that sequences held together, at most */
    uint64_t state_bytes;  /* of engines that are started; 0: as many as they want */
    int32_t fail_sequence; /* number of the sequence whose creation fails; -1: none */
    bool chunk_bug;        /* negative control: results depend on where a step ends */
    bool reset_bug;        /* negative control: a reset forgets to clear the state */
    bool fail_snapshots;   /* their memory is refused */
    bool never_right;      /* guesses */
    bool watched;          /* it can be lost */
    bool lost;
    int32_t lose_at; /* the step of this number loses it; 0: none */
    int32_t recoveries_left, recoveries_failed;
    struct sequence *sequences[64];
    struct snapshots *pool;
    struct sampler sampler; /* of the step that runs */
    uint8_t weights;        /* another number is another network */
    int32_t step_tokens;    /* 0: SPAN_TOKENS_MAX */
    struct step_entry entries[STEPS_MAX];
} toy = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static const struct model_config TOY_CONFIG = {
    .name = "toy", .vocab_size = VOCAB, .num_nextn_predict_layers = 1};

/* Bytes that all sequences hold: a page that several have takes its place once.  Said another way
 * than the engine says it: by the numbers of the pages, wherever they stand. */
static inline uint64_t toy_taken(void)
{
    uint64_t sum = 0;
    bool *seen = calloc((size_t)toy.n_pages + 1, sizeof *seen);
    ASSERT(seen != NULL);
    for (int32_t i = 0; i < toy.n_sequences && i < 64; i++) {
        const struct sequence *s = toy.sequences[i];
        for (int32_t at = 0; s != NULL && at < TOY_PAGES; at++) {
            int32_t page = s->pages[at];
            if (page == PAGE_NONE || seen[page])
                continue;
            seen[page] = true;
            sum += SNAPSHOT_TOKENS * s->token_bytes;
        }
    }
    free(seen);
    return sum;
}

static inline uint64_t token_bytes(const struct profile *profile)
{
    return profile->values[ROW_SUM] == SUM_F64 ? 2 : 1;
}

static inline uint64_t mix(uint64_t x)
{
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

/* The state behind one more token; profiles that sum differently make different ones. */
static inline uint64_t toy_next(uint64_t hash, int32_t id, const struct profile *profile)
{
    uint64_t sum = profile->values[ROW_SUM] == SUM_F64;
    return mix(hash ^ (uint64_t)(id + 1) ^ sum << 32);
}

static inline void toy_logits(uint64_t hash, int32_t last, float *logits)
{
    for (int i = 0; i < VOCAB; i++)
        logits[i] = last == NAN_ID ? NAN : (float)(mix(hash ^ (uint64_t)i) % 1000) / 100;
    if (last != NAN_ID)
        logits[NAN_ID] = -INFINITY; /* never sampled: faults come from prompts */
}

void model_close(struct model *model)
{
    model->alive = 0;
    toy.models_closed++;
}

const struct model_config *model_config(const struct model *model)
{
    ASSERT(model->alive);
    return &TOY_CONFIG;
}

int32_t model_step_tokens(const struct model *model)
{
    ASSERT(model->alive);
    return toy.step_tokens > 0 ? toy.step_tokens : SPAN_TOKENS_MAX;
}

uint32_t model_life(const struct model *model)
{
    (void)model;
    return 0;
}

int model_worker(const struct model *model)
{
    (void)model;
    return toy.watched ? 1 : 0;
}

_Bool model_pages(const struct model *model, struct pages_stats *out)
{
    *out = (struct pages_stats){.all = 30, .free = 20, .own = 7, .shared = 3};
    return model->alive;
}

_Bool model_gauges(const struct model *model, struct gauges *out)
{
    (void)model;
    *out = (struct gauges){.n = 1, .at_ms = 1, .gpu = {{.name = "toy"}}};
    return toy.watched;
}

const char *model_lost(const struct model *model)
{
    (void)model;
    return toy.lost ? "lost" : NULL;
}

int model_starts_failed(const struct model *model)
{
    (void)model;
    return toy.recoveries_failed;
}

/* A lost toy comes back when it was asked often enough; what sequences and pieces held then is
 * something else, so that who still believes in it says something wrong. */
bool model_recover(struct model *model)
{
    ASSERT(model->alive && toy.lost);
    usleep(1000);
    pthread_mutex_lock(&toy.lock);
    if (toy.recoveries_left > 0) {
        toy.recoveries_left--;
        toy.recoveries_failed++;
    } else {
        toy.lost = false;
        toy.recoveries_failed = 0;
        for (int32_t i = 0; i < toy.n_sequences; i++) {
            struct sequence *s = toy.sequences[i];
            ASSERT(s->n == 0); /* the engine has emptied them */
        }
        for (int i = 0; toy.pool != NULL && i < 64; i++)
            toy.pool->blocks[i] = toy.pool->tails[i] = 0;
    }
    bool back = !toy.lost;
    pthread_mutex_unlock(&toy.lock);
    return back;
}

const char *snapshots_lost(const struct snapshots *p)
{
    (void)p;
    return toy.lost ? "lost" : NULL;
}

enum status sequence_create(const struct model *model, int32_t tokens_max, struct sequence **out,
                            struct error *err)
{
    ASSERT(model->alive);
    if (toy.n_sequences == toy.fail_sequence)
        return error_set(err, ERR_CAPACITY, "no memory for this sequence");
    struct sequence *s = calloc(1, sizeof *s);
    s->tokens_max = tokens_max;
    s->number = toy.n_sequences++;
    for (int32_t i = 0; i < TOY_PAGES; i++)
        s->pages[i] = PAGE_NONE;
    if (s->number < 64)
        toy.sequences[s->number] = s;
    toy.sequences_alive++;
    *out = s;
    return OK;
}

void sequence_destroy(struct sequence *s)
{
    toy.sequences_alive--;
    if (s->number < 64)
        toy.sequences[s->number] = NULL;
    free(s);
}

void sequence_reset(struct sequence *s)
{
    s->n = s->n_draft = 0;
    s->profile = 0;
    for (int32_t i = 0; i < TOY_PAGES; i++)
        s->pages[i] = PAGE_NONE;
    if (!toy.reset_bug)
        s->hash = 0;
}

int32_t sequence_length(const struct sequence *s)
{
    return s->n;
}

void sequence_crossover(struct sequence *s, const struct profile *profile)
{
    s->profile = profile->hash;
}

/* Under the profile that takes the most. */
uint64_t sequence_bytes(const struct sequence *s)
{
    return 2 * (uint64_t)s->tokens_max;
}

uint64_t sequence_bytes_under(const struct model *model, const struct profile *profile,
                              int32_t tokens)
{
    ASSERT(model->alive);
    return (uint64_t)tokens * token_bytes(profile);
}

const int32_t *sequence_pages(const struct sequence *s)
{
    return s->pages;
}

/* Pieces of the profile that sums in double are as large as two. */
uint64_t snapshot_block_bytes(const struct model *model, const struct profile *profile)
{
    ASSERT(model->alive);
    return TOY_PIECE_BYTES * token_bytes(profile);
}

uint64_t snapshot_tail_bytes(const struct model *model, const struct profile *profile)
{
    return snapshot_block_bytes(model, profile);
}

enum status snapshots_create(const struct model *model, int32_t n_blocks, int32_t n_tails,
                             struct snapshots **out, struct error *err)
{
    ASSERT(model->alive && n_blocks <= 64 && n_tails <= 64);
    if (toy.fail_snapshots)
        return error_set(err, ERR_CAPACITY, "no memory for snapshots");
    *out = toy.pool = calloc(1, sizeof **out);
    return OK;
}

void snapshots_destroy(struct snapshots *p)
{
    toy.pool = NULL;
    free(p);
}

void snapshot_save_block(struct snapshots *p, int32_t slot, const struct sequence *s, int32_t block)
{
    int32_t end = (block + 1) * SNAPSHOT_TOKENS;
    ASSERT(slot >= 0 && slot < 64 && block >= 0 && end <= s->n);
    p->blocks[slot] = s->hashes[end];
    p->pages[slot] = s->pages[block];
    p->token_bytes[slot] = s->token_bytes;
}

int32_t snapshot_page(const struct snapshots *p, int32_t slot)
{
    ASSERT(slot >= 0 && slot < 64);
    return p->pages[slot];
}

void snapshot_drop_block(struct snapshots *p, int32_t slot)
{
    ASSERT(slot >= 0 && slot < 64);
    p->blocks[slot] = 0;
}

void snapshot_save_tail(struct snapshots *p, int32_t slot, const struct sequence *s, int32_t length)
{
    ASSERT(slot >= 0 && slot < 64 && length % SNAPSHOT_TOKENS == 0 && length <= s->n);
    ASSERT(s->n - length < SPAN_TOKENS_MAX);
    p->tails[slot] = s->hashes[length];
}

void snapshot_load_block(const struct snapshots *p, int32_t slot, struct sequence *s, int32_t block)
{
    int32_t end = (block + 1) * SNAPSHOT_TOKENS;
    ASSERT(slot >= 0 && slot < 64 && block >= 0 && end <= s->tokens_max && s->n == 0);
    s->hashes[end] = p->blocks[slot];
    s->pages[block] = p->pages[slot];
    s->token_bytes = p->token_bytes[slot];
}

/* The blocks count too: the state is a mix of all of them. */
void snapshot_load_tail(const struct snapshots *p, int32_t slot, struct sequence *s, int32_t length)
{
    ASSERT(slot >= 0 && slot < 64 && length <= s->tokens_max && s->n == 0);
    s->hash = s->hashes[length] == p->tails[slot] ? p->tails[slot] : 0;
    s->n = s->n_draft = length;
}

void snapshot_get_block(const struct snapshots *p, int32_t slot, const struct profile *profile,
                        void *host)
{
    (void)profile;
    memset(host, 0, TOY_PIECE_BYTES);
    memcpy(host, &p->blocks[slot], sizeof p->blocks[slot]);
}

void snapshot_put_block(struct snapshots *p, int32_t slot, const struct profile *profile,
                        const void *host)
{
    memcpy(&p->blocks[slot], host, sizeof p->blocks[slot]);
    p->pages[slot] = toy.n_pages++;
    p->token_bytes[slot] = token_bytes(profile);
}

void snapshot_get_tail(const struct snapshots *p, int32_t slot, const struct profile *profile,
                       void *host)
{
    (void)profile;
    memset(host, 0, TOY_PIECE_BYTES);
    memcpy(host, &p->tails[slot], sizeof p->tails[slot]);
}

void snapshot_put_tail(struct snapshots *p, int32_t slot, const struct profile *profile,
                       const void *host)
{
    (void)profile;
    memcpy(&p->tails[slot], host, sizeof p->tails[slot]);
}

enum status snapshot_probe(struct model *model, const struct profile *profile,
                           uint8_t digest[SNAPSHOT_PROBE_BYTES], struct error *err)
{
    ASSERT(model->alive);
    if (toy.fail_snapshots)
        return error_set(err, ERR_CAPACITY, "no memory for the probe");
    memset(digest, toy.weights, SNAPSHOT_PROBE_BYTES);
    memcpy(digest, &profile->hash, sizeof profile->hash);
    return OK;
}

void sequence_rewind(struct sequence *s, int32_t length)
{
    ASSERT(length >= s->n_draft && length <= s->n);
    s->n = length;
    s->hash = s->hashes[length];
    for (int32_t at = (length + SNAPSHOT_TOKENS - 1) / SNAPSHOT_TOKENS; at < TOY_PAGES; at++)
        s->pages[at] = PAGE_NONE;
}

int32_t sequence_draft_length(const struct sequence *s)
{
    return s->n_draft;
}

void sequence_draft_skip(struct sequence *s, int32_t length)
{
    ASSERT(length >= s->n_draft && length <= s->n);
    s->n_draft = length;
}

/* Picks as the network does, from its own rows. */
static inline void toy_pick(uint64_t hash, int32_t last, struct pick *pick)
{
    float logits[VOCAB];
    if (toy.sampler.vocab_size == 0)
        sampler_init(&toy.sampler, VOCAB);
    toy_logits(hash, last, logits);
    sampler_take(&toy.sampler, logits, pick);
}

/* Guesses the token behind the next one, right in two of three cases; and on from its own guess. */
void model_draft(struct model *model, const struct profile *profile,
                 const struct draft_segment *segments, int n_segments)
{
    const struct draft_segment *g = segments;
    struct sequence *s = g->sequence;
    ASSERT(model->alive && n_segments == 1 && s->profile == profile->hash);
    ASSERT(g->n > 0 && g->logits_all == NULL && g->logits_last == NULL && g->pick != NULL);
    for (int32_t t = 0; g->beyond == 0 && t + 1 < g->n; t++) {
        int32_t at = s->n_draft + t + 1;
        ASSERT(toy_next(s->hashes[at], g->next_ids[t], profile) == s->hashes[at + 1]);
    }
    if (g->beyond == 0) {
        ASSERT(s->n_draft + g->n == s->n);
        s->n_draft = s->n;
        s->guessed = s->hash;
        s->n_beyond = 0;
    } else {
        ASSERT(g->n == 1 && g->beyond == ++s->n_beyond && s->n_draft == s->n);
    }
    int32_t id = g->next_ids[g->n - 1];
    s->guessed = toy_next(s->guessed, id, profile);
    bool wrong = toy.never_right || mix(s->guessed) % 3 == 0;
    toy_pick(wrong ? ~s->guessed : s->guessed, id, g->pick);
}

void model_step(struct model *model, const struct profile *profile, const struct segment *segments,
                int n_segments)
{
    ASSERT(model->alive && n_segments > 0);
    pthread_mutex_lock(&toy.lock);
    toy.waiting = true;
    pthread_cond_broadcast(&toy.changed);
    while (toy.held)
        pthread_cond_wait(&toy.changed, &toy.lock);
    toy.waiting = false;
    int32_t total = 0;
    for (int i = 0; i < n_segments; i++) {
        const struct segment *g = &segments[i];
        struct sequence *s = g->sequence;
        for (int j = 0; j < i; j++)
            ASSERT(segments[j].sequence != s);
        ASSERT(g->n > 0 && s->n + g->n <= s->tokens_max);
        ASSERT(s->profile == profile->hash || (s->profile == 0 && s->n == 0));
        s->profile = profile->hash;
        s->token_bytes = token_bytes(profile);
        for (int32_t at = s->n / SNAPSHOT_TOKENS; at <= (s->n + g->n - 1) / SNAPSHOT_TOKENS; at++)
            s->pages[at] = s->pages[at] == PAGE_NONE ? toy.n_pages++ : s->pages[at];
        total += g->n;
        ASSERT(total <= model_step_tokens(model) && toy.n_entries < STEPS_MAX);
        toy.entries[toy.n_entries++] = (struct step_entry){toy.steps, s->number, g->n, s->n};
        for (int32_t t = 0; t < g->n; t++) {
            ASSERT(g->ids[t] >= 0 && g->ids[t] < VOCAB);
            s->hash = toy_next(s->hash, g->ids[t], profile);
            s->hashes[s->n + t + 1] = s->hash;
            if (t >= g->n - g->n_picks)
                toy_pick(s->hash, g->ids[t], &g->picks[t - (g->n - g->n_picks)]);
        }
        if (toy.chunk_bug)
            s->hash = mix(s->hash);
        s->n += g->n;
        if (g->logits_last != NULL)
            toy_logits(s->hash, g->ids[g->n - 1], g->logits_last);
    }
    uint64_t taken = toy_taken();
    ASSERT(toy.state_bytes == 0 || taken <= toy.state_bytes);
    toy.taken_most = taken > toy.taken_most ? taken : toy.taken_most;
    toy.steps++;
    toy.lost = toy.steps == toy.lose_at;
    for (int i = 0; toy.lost && i < n_segments; i++) {
        if (segments[i].n_picks > 0)
            segments[i].picks[0].id = 0; /* nonsense that looks good */
    }
    pthread_mutex_unlock(&toy.lock);
}

/* Lets steps wait, so that a test can arrange things between two of them. */
static inline void toy_hold(void)
{
    pthread_mutex_lock(&toy.lock);
    toy.held = true;
    pthread_mutex_unlock(&toy.lock);
}

/* The most timelines that were in one step. */
static inline int32_t toy_most_at_once(void)
{
    int32_t most = 0, n = 0;
    for (int32_t i = 0; i < toy.n_entries; i++) {
        n = i > 0 && toy.entries[i].step == toy.entries[i - 1].step ? n + 1 : 1;
        most = n > most ? n : most;
    }
    return most;
}

/* Returns when the engine stands in a step that is held. */
static inline void toy_wait_held(void)
{
    pthread_mutex_lock(&toy.lock);
    while (!(toy.held && toy.waiting))
        wait_or_die(&toy.changed, &toy.lock);
    pthread_mutex_unlock(&toy.lock);
}

static inline void toy_release(void)
{
    pthread_mutex_lock(&toy.lock);
    toy.held = false;
    pthread_cond_broadcast(&toy.changed);
    pthread_mutex_unlock(&toy.lock);
}

/* ---- requests ------------------------------------------------------------------------------- */

/* With a prefix cache of so many blocks and as many tails; 0: none. */
static inline struct engine *engine_start_all(int32_t sessions, int32_t queue, int32_t pieces,
                                              int32_t draft_depth)
{
    static struct model model;
    ASSERT(toy.sequences_alive == 0);
    model.alive = 1;
    toy.held = toy.waiting = toy.chunk_bug = toy.reset_bug = toy.fail_snapshots = toy.never_right =
        false;
    toy.steps = toy.n_entries = toy.n_sequences = toy.models_closed = toy.n_pages = 0;
    toy.taken_most = 0;
    toy.fail_sequence = -1;
    toy.lost = false;
    toy.lose_at = toy.recoveries_left = toy.recoveries_failed = 0;
    client_started = 0;
    struct engine *engine = NULL;
    struct error err;
    struct profile profile = *profile_builtin_at(PROFILE_OFFICIAL);
    assert_true(profile_set(&profile, ROW_DRAFT_DEPTH, draft_depth));
    const struct engine_options options = {.sessions_max = sessions,
                                           .context_max = CONTEXT,
                                           .queue_max = queue,
                                           .state_bytes = toy.state_bytes,
                                           .prefix_bytes = (uint64_t)pieces * 2 * TOY_PIECE_BYTES,
                                           .profile = &profile};
    assert_int_equal(engine_create(&model, &options, &engine, &err), OK);
    return engine;
}

static inline struct engine *engine_start_cached(int32_t sessions, int32_t queue, int32_t pieces)
{
    return engine_start_all(sessions, queue, pieces, 0);
}

static inline struct engine *engine_start(int32_t sessions, int32_t queue)
{
    return engine_start_all(sessions, queue, 0, 0);
}

static inline void engine_end(struct engine *engine)
{
    engine_destroy(engine);
    assert_int_equal(toy.sequences_alive, 0);
    assert_int_equal(toy.models_closed, 1);
}

/* A prompt of n tokens that nobody else has: `seed` names it. */
static inline const int32_t *prompt(uint64_t seed, int32_t n)
{
    static int32_t ids[CONTEXT];
    for (int32_t i = 0; i < n; i++)
        ids[i] = (int32_t)(mix(seed * 100003 + (uint64_t)i) % (VOCAB - 1));
    return ids;
}

static inline enum status refused(struct engine *engine, const struct engine_request *r,
                                  struct error *err)
{
    uint64_t number = 0;
    struct client *c = client_create(engine);
    enum status status = engine_submit(engine, r, on_event, c, &number, err);
    if (status == OK)
        client_wait_end(c);
    client_destroy(c);
    return status;
}

/* What a request should be answered, by the toy's rule alone.  @return how many tokens */
static inline int32_t expect(const struct engine_request *r, int32_t *answer,
                             enum end_reason *reason)
{
    const struct profile *profile =
        r->profile == NULL ? profile_builtin_at(PROFILE_OFFICIAL) : r->profile;
    struct sampler sampler;
    sampler_init(&sampler, VOCAB);
    uint64_t hash = 0;
    int32_t last = 0, n = 0;
    float logits[VOCAB];
    int32_t all[CONTEXT];
    for (int32_t i = 0; i < r->n_ids; i++) {
        last = all[i] = r->ids[i];
        hash = toy_next(hash, last, profile);
    }
    for (;;) {
        toy_logits(hash, last, logits);
        sampler_penalise(&sampler, logits, &r->sampling, all, r->n_ids, n);
        last = sampler_pick(&sampler, logits, &r->sampling, (uint64_t)(r->n_ids + n));
        bool stop = false;
        for (int32_t i = 0; i < r->n_stop_ids; i++)
            stop |= last == r->stop_ids[i];
        *reason = last == SAMPLE_FAULT ? END_FAULT : stop ? END_STOP : END_LENGTH;
        if (last == SAMPLE_FAULT || stop)
            break;
        all[r->n_ids + n] = last;
        answer[n++] = last;
        if (n == r->tokens_max)
            break;
        hash = toy_next(hash, last, profile);
    }
    sampler_clear(&sampler);
    return n;
}

/* NULL, or how the client's answer differs from the expected one. */
static inline const char *differs(const struct client *c, const struct engine_request *r)
{
    int32_t answer[ANSWER_MAX];
    enum end_reason reason;
    int32_t n = expect(r, answer, &reason);
    if (c->n_answer != n)
        return "its length";
    if (memcmp(c->answer, answer, (size_t)n * sizeof *answer) != 0)
        return "its tokens";
    return c->reason == reason ? NULL : "its reason";
}

static inline void check_answer(struct client *c, const struct engine_request *r)
{
    client_wait_end(c);
    const char *what = differs(c, r);
    if (what != NULL)
        fail_msg("prompt of %d: the answer differs in %s", r->n_ids, what);
}

/* Submits, waits, compares, and gives the tokens that were reused. */
static inline int32_t converse(struct engine *engine, const struct engine_request *r)
{
    struct client *c = submit(engine, r);
    check_answer(c, r);
    int32_t reused = c->reused;
    client_destroy(c);
    return reused;
}

#endif
