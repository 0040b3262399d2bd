/*
 * Where a convicted row departs from the reference: the first layer, the first position, and the
 * shortest prompt that shows it.  Knows no search.
 */
#ifndef V4BOX_ENGINE_AUDIT_LOCATE_H
#define V4BOX_ENGINE_AUDIT_LOCATE_H

#include "engine/audit/tests.h"

/**
 * Feeds the item's ids under the reference and under `alone`, which is the reference with the
 * convicted rows; the last AUDIT_DECODED of a text that has twice as many are decoded, since some
 * rows act there only.  `first`: where any bit is another; `over`: where it is more than rounding,
 * by AUDIT_DEPARTED in a layer's streams and by `budget` nats in the logits.
 * @return an object; a member is left out where there is nothing, or the model cannot be looked
 *         into (one in another process).  @own the caller: json_object_put
 */
struct json_object *locate(const struct audit_run *run, const struct profile *alone, double budget,
                           const struct audit_item *item);

/** The first place, in the order of layers, whose streams differ by more than `share`.  A layer's
 *  streams can only depart where the layer itself does or one in front of it has.
 *  @shape a, b [n, layers], as machine_rows notes them  @return false: none */
bool locate_layer(const double *a, const double *b, int32_t n, int32_t layers, double share,
                  int32_t *layer, int32_t *position);

#endif
