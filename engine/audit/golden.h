/*
 * Golden files: what somebody else's program says about a text, with who made it.  They are held
 * against the engine, since a fault that the audited profile and the reference share shows in no
 * comparison of the two.  Knows no network: rows of logits come from outside.
 *
 *   {"schema": "v4box-golden/1",
 *    "made": {"by": TEXT, "profile": a built-in profile's name},
 *    "model": {"name": TEXT, "weights": SHA-256 of manifest.sha256, 64 hex digits, "" without one},
 *    "ids": [id, ..],
 *    "rows": [{"position": P, "tail": mass, "top": [[id, log-probability], ..]}, ..]}
 *
 * A row speaks of the token behind ids[0..P]: its likeliest ids, and how much is left for all
 * others.
 */
#ifndef V4BOX_ENGINE_AUDIT_GOLDEN_H
#define V4BOX_ENGINE_AUDIT_GOLDEN_H

#include "engine/base/buf.h"
#include "engine/base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct golden;

/* What a golden file must be of. */
struct golden_model {
    const char *name; /* of the configuration; borrows */
    char weights[65]; /* hex SHA-256 of the folder's manifest; "" without one */
    int32_t vocab;
};

/** What the model in this folder is.  @err ERR_IO naming the manifest */
enum status MUST_CHECK golden_model_of(const char *dir, const char *name, int32_t vocab,
                                       struct golden_model *out, struct error *err);

/** What a golden file's text says.
 *  @own golden_free  @err ERR_INPUT naming the field; other weights than these are an error, too */
enum status MUST_CHECK golden_parse(const struct buf *text, const struct golden_model *model,
                                    struct golden **out, struct error *err);
/** The same of a file.  @own golden_free  @err ERR_INPUT or ERR_IO naming the file and the field */
enum status MUST_CHECK golden_read(const char *path, const struct golden_model *model,
                                   struct golden **out, struct error *err);
/** Accepts NULL. */
void golden_free(struct golden *golden);

const char *golden_made_by(const struct golden *golden);
/** The name of the built-in profile that it is of. */
const char *golden_profile(const struct golden *golden);
/** Hex SHA-256 of the file, all of it.  @own the golden's */
const char *golden_sha256(const struct golden *golden);
/** Its text.  @own the golden's */
const struct ids *golden_ids(const struct golden *golden);
/** Rows that it has. */
int32_t golden_rows(const struct golden *golden);

/** KL of the golden's row at a position against a row of logits, over its likeliest ids and the
 *  rest as one: never above the KL over all ids.  @shape row [vocab]
 *  @return false: it has no row there; else nats in *out, and whether the likeliest id is the same
 *  @src fidelity.md 1, consequence (3) */
bool golden_kl(const struct golden *golden, int32_t position, const float *row, int32_t vocab,
               double *out, bool *same_top);

#endif
