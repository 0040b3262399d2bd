/*
 * The prefix cache as a file, so that conversations outlive the engine.
 *
 *   offset 0   "v4box prefixes\n" and one byte: the version of this format
 *   offset 16  the header of a crypto_secretstream (XChaCha20-Poly1305), which is all the rest:
 *              struct head | for each node, parents first: struct record, its block [, its tail] |
 *              an empty final message
 *
 * What people said is in it, so nothing but its size can be read without the key.  Each message is
 * authentic, in its place, and the last one is there, or the whole file is refused: no part of it
 * is ever used.  So is a file whose pieces another network, another arithmetic or another build
 * would not compute (snapshot_probe).  No length is taken from the file: all follow from the model.
 */
#ifndef V4BOX_ENGINE_MODEL_PREFIX_FILE_H
#define V4BOX_ENGINE_MODEL_PREFIX_FILE_H

#include "config/limits.h"
#include "engine/model/prefix.h"

/** Only what one profile computed goes to a file.  What the file is bound to: the probe of the
 * network that serves under this profile.  Takes about as long as a prompt of SNAPSHOT_PROBE_TOKENS
 * tokens.  @err ERR_CAPACITY */
enum status MUST_CHECK prefix_probe(struct prefix *prefix, struct model *model,
                                    const struct profile *profile, struct error *err);

/** Puts what the cache holds in place of the file, which a power cut leaves old or new.  Only
 * behind prefix_probe.
 *  @unit turn: as in prefix_save; *n_blocks: how many went to the file
 *  @err  ERR_IO, ERR_CAPACITY */
enum status MUST_CHECK prefix_write_file(const struct prefix *prefix, const char *path,
                                         const uint8_t key[PREFIX_FILE_KEY_BYTES], uint64_t turn,
                                         int32_t *n_blocks, struct error *err);
/** Fills an empty cache, as far as it has room, and gives the turn to go on with.  Only behind
 * prefix_probe.  @err ERR_IO; ERR_CAPACITY; ERR_CHECK: not to be used.  Then the cache is empty. */
enum status MUST_CHECK prefix_read_file(struct prefix *prefix, const char *path,
                                        const uint8_t key[PREFIX_FILE_KEY_BYTES], uint64_t *turn,
                                        struct error *err);

#endif
