/*
 * A fixed pool of what has to be kept of a prefix so that a timeline can be continued from it, bit
 * for bit (model.md 2.9).  Prefixes end at multiples of SNAPSHOT_TOKENS, where the coarser
 * compressor is empty and the finer one has no open block.  Two kinds of pieces:
 *
 *   block  the compressed entries and index keys of SNAPSHOT_TOKENS tokens.  They are final when
 *          the block is: every prefix that runs through these tokens can share one copy.
 *   tail   what the tokens behind the prefix read of its end: the window, and the compressor rows
 *          of the last finer block (their first halves, as the next block reads no more).
 *
 * Tails are copied.  Blocks are pages (pages.h) that the pool and timelines share, none of which is
 * written while somebody else has it; a backend without pages has them copied too.
 * Knows no tokens and does not know which piece belongs to what: prefix.c does.
 */
#ifndef V4BOX_ENGINE_MODEL_SNAPSHOT_H
#define V4BOX_ENGINE_MODEL_SNAPSHOT_H

#include "engine/model/model.h"

#define SNAPSHOT_TOKENS      RATIO_HCA
#define SNAPSHOT_PROBE_BYTES 32

/* Tokens of the probe: steps of two sizes, and blocks of both ratios behind a full window. */
#define SNAPSHOT_PROBE_TOKENS (3 * SNAPSHOT_TOKENS)

struct snapshots;

/** Bytes of one piece of a timeline under this profile. */
uint64_t snapshot_block_bytes(const struct model *model, const struct profile *profile);
uint64_t snapshot_tail_bytes(const struct model *model, const struct profile *profile);

/** A pool with room for so many pieces of each kind, of whichever profile, all reserved now; memory
 * is touched by the bytes that pieces have.
 *  @own snapshots_destroy, before the model is closed  @err ERR_CAPACITY */
enum status MUST_CHECK snapshots_create(const struct model *model, int32_t n_blocks,
                                        int32_t n_tails, struct snapshots **out, struct error *err);
void snapshots_destroy(struct snapshots *snapshots);
/** model_lost of theirs: nothing that was put in since is there, nothing that was got is true. */
const char *snapshots_lost(const struct snapshots *snapshots);

/** Keeps tokens block * SNAPSHOT_TOKENS .. of a sequence, which must be at least that long. */
void snapshot_save_block(struct snapshots *snapshots, int32_t slot, const struct sequence *sequence,
                         int32_t block);
/** The page that a block is kept in (sequence_pages).  @return PAGE_NONE: in a copy of its own */
int32_t snapshot_page(const struct snapshots *snapshots, int32_t slot);
/** The pool does not keep it any more.  A worker's keeps it until the slot is used again. */
void snapshot_drop_block(struct snapshots *snapshots, int32_t slot);
/** Keeps the end of the prefix of `length` tokens.  The sequence may be longer by less than a span
 *  (ASSERTed: its rings hold no more). */
void snapshot_save_tail(struct snapshots *snapshots, int32_t slot, const struct sequence *sequence,
                        int32_t length);
/** Puts pieces into a sequence that was reset; the tail comes last and sets the length.  The draft
 *  block has nothing in front of it: its guesses are worse until its window is full. */
void snapshot_load_block(const struct snapshots *snapshots, int32_t slot, struct sequence *sequence,
                         int32_t block);
void snapshot_load_tail(const struct snapshots *snapshots, int32_t slot, struct sequence *sequence,
                        int32_t length);

/** A piece that this profile made as bytes in memory of the host, and back.
 *  @shape host: snapshot_block_bytes or snapshot_tail_bytes under it */
void snapshot_get_block(const struct snapshots *snapshots, int32_t slot,
                        const struct profile *profile, void *host);
void snapshot_put_block(struct snapshots *snapshots, int32_t slot, const struct profile *profile,
                        const void *host);
void snapshot_get_tail(const struct snapshots *snapshots, int32_t slot,
                       const struct profile *profile, void *host);
void snapshot_put_tail(struct snapshots *snapshots, int32_t slot, const struct profile *profile,
                       const void *host);

/**
 * Digests the pieces of a fixed text that is fed now.  Whatever could make pieces of an earlier
 * engine differ from what this one would compute (weights, arithmetic, instruction set, the form of
 * the pieces) shows here, without anybody having to name it.
 * @err ERR_CAPACITY: no memory for the text; ERR_CHECK: the network is lost
 */
enum status MUST_CHECK snapshot_probe(struct model *model, const struct profile *profile,
                                      uint8_t digest[SNAPSHOT_PROBE_BYTES], struct error *err);

#endif
