/*
 * Inside the network: what network.c (what callers see), model.c (opening), state.c (sequences),
 * snapshot.c (pieces) and forward.c (steps) share, and what remote_network.c does instead of the
 * latter four when another process computes.  Device pointers are never dereferenced here; they
 * belong to the backend.
 */
#ifndef V4BOX_ENGINE_MODEL_NETWORK_H
#define V4BOX_ENGINE_MODEL_NETWORK_H

#include "engine/model/checkpoint.h"
#include "engine/model/inspect.h"
#include "engine/model/made.h"
#include "engine/model/model.h"
#include "engine/model/pages.h"
#include "engine/model/snapshot.h"
#include "kernels/backend.h"

#include <stdbool.h>

/* What a profile says, as the operations take it; made for every step, so that no stage decides for
 * itself. */
struct numerics {
    enum round activation;        /* tensors between operations */
    enum round streams;           /* residual streams */
    enum round linear_in;         /* in front of FP8 weights */
    enum round group_in;          /* in front of the grouped output matrix */
    enum round entry, entry_nope; /* key/value entries, and their unrotated channels */
    enum round key, key_rotated;  /* index queries and keys, and behind the Hadamard transform */
    enum round project;           /* what the compressors pool */
    enum round route;             /* router logits */
    enum round routed_in;         /* in front of routed experts */
    enum round logits;
    bool precise, precise_entries; /* sums in double */
    bool rotate_queries, rotate_keys;
    enum attn_math attention[LEGS]; /* of LEG_PREFILL and LEG_DECODE */
    enum precision_ATTN_QUERY query;
    enum precision_ATTN_QNORM query_norm;
    enum precision_INDEX_SCORE score;
    enum precision_INDEX_TOPK choice;
    enum precision_HC_MIX mix;
    enum precision_MOE_SCALE scale;
    double limit, scaling; /* of the clamp; of routed experts */
    int32_t topk;
    bool hc_transposed;
};

/** @param perturbation  all zero: none */
struct numerics numerics_of(const struct profile *profile, const struct model_config *config,
                            const struct perturbation *perturbation);
/** Names the state that a step leaves behind: the profile's hash, and another for each
 * perturbation. */
uint64_t numerics_hash(const struct profile *profile, const struct perturbation *perturbation);

/* Window layers turn with the plain frequencies, layers with a compressor with YaRN's. */
enum rope_kind { ROPE_WINDOW, ROPE_COMPRESSED, ROPE_KINDS };

/* Slots of the rings (model.md 2.9): what the oldest query of a span reads is still there when all
 * of the span's rows are written, so no row is saved or rolled back. */
#define WINDOW_SLOTS (SLIDING_WINDOW + SPAN_TOKENS_MAX)
#define CSA_SLOTS    (2 * RATIO_CSA + SPAN_TOKENS_MAX)
#define HCA_SLOTS    (RATIO_HCA + SPAN_TOKENS_MAX)
#define STREAM_SLOTS (SPAN_TOKENS_MAX + 1) /* the last position waits for its next token */

/* How the rows of a timeline lie that its profile rounds (kernels/entry.h). */
struct state_format {
    enum entry_format entry, key;
};

/** What this profile leaves, as small as this network can keep it. */
struct state_format state_format_of(const struct model *model, const struct profile *profile);

/* The state of one block (layer or draft) of one sequence; all device memory.  Entries and keys
 * are rows of the sequence's format. */
struct block_state {
    float *window;                    /* [WINDOW_SLOTS, HEAD_DIM] final entries */
    float *kappa, *gamma;             /* [slots, width] per token, ape added to gamma */
    float *index_kappa, *index_gamma; /* [CSA_SLOTS, 2 * INDEX_HEAD_DIM] */
    /* Rows that grow: flat, or in the sequence's pages if it has any. */
    float *compressed; /* [tokens_max / ratio, HEAD_DIM] */
    float *index_keys; /* [tokens_max / RATIO_CSA, INDEX_HEAD_DIM] */
    struct entry_pages compressed_pages, index_pages;
};

struct sequence {
    const struct model *model; /* borrows */
    int32_t tokens_max, length, draft_length;
    struct state_format format; /* set when the first token comes, or a piece */
    bool mixed;                 /* it stays float32, which holds what any profile makes */
    uint64_t profile_hash;      /* of what made the state (numerics_hash); 0: unknown */
    bool crossed;   /* whose state it is was said by sequence_crossover since the last step */
    int32_t number; /* of the timeline in a worker, which has what follows */
    struct block_state blocks[LAYERS_MAX]; /* main layers, then draft blocks */
    float *streams; /* [STREAM_SLOTS, HC_MULT, hidden] of the last layer; NULL without drafts */
    void *memory;   /* owns (device); everything above lies in it, or in pages */
    size_t memory_bytes;
    size_t bytes;      /* of all of it */
    int32_t n_pages;   /* of SNAPSHOT_TOKENS tokens each; 0: what grows lies in `memory` too */
    size_t page_bytes; /* of one, in the format */
    int32_t *pages;    /* owns; [n_pages] references, PAGE_NONE: nothing was written there yet */
    void **pages_at;   /* owns; [n_pages] where they lie (device) */
};

/* Device memory of one step, for model->step_tokens rows. */
struct step_memory {
    int32_t *ids, *positions;
    int32_t *csa_positions, *hca_positions;  /* first tokens of finished blocks */
    double *rope[ROPE_KINDS];                /* [tokens, ROPE_ROW] */
    double *block_rope_csa, *block_rope_hca; /* [tokens, ROPE_ROW] of finished blocks */
    float *streams, *streams_next;           /* [tokens, HC_MULT, hidden] */
    double *post, *comb;
    float *u, *y; /* [tokens, hidden] into and out of a sub-layer */
    float *q_lora, *q, *kv, *heads_out, *grouped;
    float *kappa, *gamma, *index_kappa, *index_gamma, *index_q, *index_weights;
    int32_t *selected, *n_selected;
    int32_t *experts;
    float *expert_weights;
    float *logits; /* [LOGITS_ROWS_MAX, vocab] */
};

/* A pool of pieces (snapshot.h). */
struct snapshots {
    const struct model *model; /* borrows */
    int32_t n_blocks, n_tails;
    size_t block_bytes, tail_bytes; /* of a piece in float32; smaller ones take their part */
    struct state_format *formats;   /* owns; [n_blocks + n_tails] of the pieces */
    int32_t number;                 /* of the pool in a worker, which has what follows */
    char *blocks, *tails;           /* own (device); blocks is NULL where there are pages */
    int32_t *pages;                 /* owns; [n_blocks] references; NULL: none */
};

/* What is done with one piece. */
enum piece_way { PIECE_SAVE, PIECE_LOAD, PIECE_GET, PIECE_PUT, PIECE_DROP };
struct piece {
    enum piece_way way;
    bool tail;                       /* else a block */
    int32_t slot;                    /* in the pool */
    int32_t at;                      /* block of the sequence, or length of the prefix */
    const struct sequence *sequence; /* borrows; of SAVE and LOAD */
    const struct profile *profile;   /* borrows; of GET and PUT: it made the piece */
    void *to;                        /* borrows, host; of GET */
    const void *from;                /* borrows, host; of PUT */
};

/** Bytes of what GET and PUT move. */
size_t piece_bytes(const struct snapshots *p, const struct piece *piece);
/** Whether a piece may be loaded into a timeline: a mixed one takes float32 only. */
bool piece_fits(const struct snapshots *p, bool tail, int32_t slot,
                const struct sequence *sequence);

struct layer_rows {
    struct sequence *sequence; /* NULL: the experts of a block alone */
    int32_t block;
    enum leg leg;
    const int32_t *ids; /* [n] */
    int32_t n;
    size_t width;    /* floats of a row */
    const float *in; /* [n, width] */
    float *out;      /* [n, width] */
};

/* A network, whoever computes it.  Lengths, and who may go on with what, are network.c's: every
 * operation finds the sequences as they were before the call.  One that can not be carried out
 * leaves the network lost and its outputs as they were. */
struct network_ops {
    void (*close)(struct model *m);
    const char *(*lost)(const struct model *m);
    bool (*recover)(struct model *m);
    double (*seconds)(const struct model *m);
    void (*witness)(struct model *m, struct witness_table *out);
    bool (*reserve)(struct sequence *s); /* memory for s->tokens_max; false: refused */
    void (*release)(struct sequence *s);
    void (*clear)(struct sequence *s);
    void (*step)(struct model *m, const struct profile *profile, const struct segment *segments,
                 int n);
    void (*draft)(struct model *m, const struct profile *profile,
                  const struct draft_segment *segments, int n);
    void (*rows)(struct model *m, const struct profile *profile, const struct layer_rows *rows);
    bool (*pool_reserve)(struct snapshots *p); /* false: refused */
    void (*pool_release)(struct snapshots *p);
    void (*piece)(const struct snapshots *p, const struct piece *piece);
};

struct model {
    const struct network_ops *ops;
    struct remote_network *remote;     /* owns; NULL: this process computes, with what follows */
    struct checkpoint *checkpoint;     /* owns; NULL: there is none, or the weights are made */
    struct made *made;                 /* owns; NULL: they are those of the checkpoint */
    const struct model_config *config; /* borrows */
    const char *variant;               /* borrows; model_isa_name */
    bool packs;                        /* its backend does (kernels/backend.h) */
    int32_t step_tokens;               /* of its backend, too */
    const struct model_weights *weights;
    struct backend *backend;  /* owns */
    struct pages *pages;      /* owns; NULL: the backend takes none */
    struct numerics numerics; /* of the step that runs */
    struct perturbation perturbation;
    struct expert *experts; /* owns; [blocks, n_routed + n_shared] */
    double frequency[ROPE_KINDS][ROPE_HEAD_DIM / 2];
    struct step_memory step; /* points into memory */
    void *memory;            /* owns (device) */
    size_t bytes;
    int32_t ranks; /* that compute it here */
    model_trace_fn *trace;
    void *trace_user;
};

/** The backend that this program computes with, or of one rank of options->ranks, on the thread
 *  that will use it; each program links one of these (backend_cpu.c).
 *  @own  ops->destroy  @err ERR_USAGE: not on this machine; ERR_CAPACITY */
enum status MUST_CHECK model_backend_open(const struct model_options *options, int32_t rank,
                                          const struct backend_limits *limits, struct backend **out,
                                          struct error *err);
/** How many ranks that backend wants for weights of so many bytes, where the options do not say. */
int32_t model_backend_ranks(const struct model_options *options, uint64_t weights);
/** How many GPUs that backend sees; 0: it computes on processors. */
int32_t model_backend_gpus(void);
/** Tells how the devices of that backend fare, from now on, in the memory that a worker shares with
 *  the engine; once in a process, which has a model open. */
struct link_board;
void model_backend_watch(const struct model_options *options, struct link_board *board);
/** model_backend_open, or all ranks as one, as many as m->ranks then says; the weights are known.
 */
enum status MUST_CHECK model_ranks_open(const struct model_options *options,
                                        const struct backend_limits *limits, struct model *m,
                                        struct error *err);

/* ---- this process computes ------------------------------------------------------------------ */

/** model_open without a worker; a model that failed is closed as any other. */
enum status MUST_CHECK local_open(const char *dir, const struct model_options *options,
                                  struct model *m, struct error *err);
/** The same of weights that are made of a seed. */
enum status MUST_CHECK local_open_made(const struct model_config *config, uint64_t seed,
                                       const struct model_options *options, struct model *m,
                                       struct error *err);
/** The rest of it: over m->config and m->weights. */
enum status MUST_CHECK local_bind(const struct model_options *options, struct model *m,
                                  struct error *err);
void local_close(struct model *m);
bool local_reserve(struct sequence *s);
void local_release(struct sequence *s);
void local_clear(struct sequence *s);
void local_step(struct model *m, const struct profile *profile, const struct segment *segments,
                int n_segments);
void local_draft(struct model *m, const struct profile *profile,
                 const struct draft_segment *segments, int n_segments);
void local_rows(struct model *m, const struct profile *profile, const struct layer_rows *rows);
bool local_pool_reserve(struct snapshots *p);
void local_pool_release(struct snapshots *p);
void local_piece(const struct snapshots *p, const struct piece *piece);

/* ---- another one does ----------------------------------------------------------------------- */

/** model_open with a worker. */
enum status MUST_CHECK remote_network_open(const char *dir, const struct model_options *options,
                                           struct model *m, struct error *err);
int32_t remote_network_gpus(const struct remote_network *network);
int remote_network_process(const struct remote_network *n);
bool remote_network_gauges(const struct remote_network *n, struct gauges *out);
int remote_network_starts_failed(const struct remote_network *n);
uint32_t remote_network_life(const struct remote_network *n);

/* ---- both ----------------------------------------------------------------------------------- */

/** Bytes of a page of this format, laid out as a block in a pool is. */
size_t page_bytes(const struct model_config *config, struct state_format format);
/** Gives a timeline that has pages its own for the n tokens that it takes next: what others hold is
 * copied. */
void sequence_pages_own(struct sequence *s, int32_t n);
/** Gives back the pages of a timeline that begin between these tokens. */
void sequence_pages_forget(struct sequence *s, int32_t from, int32_t to);
/** Lets page i of a timeline be this one, whose reference it takes over. */
void sequence_page_set(const struct sequence *s, int32_t i, int32_t page);

/** Bytes of the state of a timeline of this format. */
size_t state_bytes(const struct sequence *s, struct state_format format);
/** Gives an empty timeline its format, and lays it out if its memory is here: room for any. */
void state_lay_out(struct sequence *s, struct state_format format);
/** Whether a step under this profile can go on with what the timeline holds. */
bool state_takes(const struct sequence *s, const struct profile *profile);

/* Hands out aligned pieces of one reservation; without a base it only counts. */
struct carve {
    char *base;
    size_t used;
};
void *carve_take(struct carve *carve, int64_t count, size_t size);

/** P8: radians a token, for both kinds of layer. */
void rope_frequencies(double frequency[ROPE_KINDS][ROPE_HEAD_DIM / 2]);

int32_t model_blocks(const struct model_config *config); /* layers and draft blocks */
const struct layer_weights *model_block_weights(const struct model *model, int32_t block);

#endif
