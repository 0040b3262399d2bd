/* Two runs over the same ids, layer by layer and logits by logits. */
#include "engine/audit/locate.h"

#include "engine/audit/tests_common.h"
#include "kernels/check.h"

#include <math.h>
#include <stdlib.h>

bool locate_layer(const double *a, const double *b, int32_t n, int32_t layers, double share,
                  int32_t *layer, int32_t *position)
{
    for (*layer = 0; *layer < layers; ++*layer) {
        for (*position = 0; *position < n; ++*position) {
            int64_t at = (int64_t)*position * layers + *layer;
            if (fabs(a[at] - b[at]) > share * fabs(a[at])) /* false where nothing was seen */
                return true;
        }
    }
    return false;
}

static int32_t first_position(const struct audit_difference *diff, int32_t n, double budget)
{
    for (int32_t i = 0; i < n; i++) {
        if (budget < 0 ? !diff[i].same_bits : !(diff[i].kl <= budget))
            return i;
    }
    return -1;
}

/* budget < 0: any bit. */
static struct json_object *place(const double *a, const double *b, int32_t layers,
                                 const struct audit_difference *diff, int32_t n, double budget)
{
    struct json_object *out = json_object_new_object();
    int32_t layer, at, position = first_position(diff, n, budget);
    if (locate_layer(a, b, n, layers, budget < 0 ? 0 : AUDIT_DEPARTED, &layer, &at)) {
        json_set(out, "layer", json_object_new_int(layer));
        json_set(out, "position_in_layer", json_object_new_int(at));
    }
    if (position >= 0) {
        json_set(out, "position", json_object_new_int(position));
        json_set(out, "length",
                 json_object_new_int(position + 1)); /* of a prompt that ends there */
        result_number(out, "kl", diff[position].kl);
    }
    return out;
}

struct json_object *locate(const struct audit_run *run, const struct profile *alone, double budget,
                           const struct audit_item *item)
{
    int32_t n = (int32_t)item->ids.len;
    int32_t layers = machine_config(run->machine)->num_hidden_layers;
    double *a = calloc((size_t)n * (size_t)layers, sizeof *a);
    double *b = calloc((size_t)n * (size_t)layers, sizeof *b);
    struct audit_difference *diff = calloc((size_t)n, sizeof *diff);
    ASSERT(a != NULL && b != NULL && diff != NULL);
    struct audit_setting reference = {run->reference, run->reference, CARRY_NONE};
    struct audit_setting convicted = {alone, alone, CARRY_NONE};
    int32_t from = n > 2 * AUDIT_DECODED ? n - AUDIT_DECODED : n;
    machine_rows(run->machine, item->ids.data, n, from, run->reference, WAY_COLD, NULL, a);
    machine_rows(run->machine, item->ids.data, n, from, alone, WAY_COLD, NULL, b);
    machine_compare(run->machine, item->ids.data, n, from, &reference, &convicted, diff);
    struct json_object *out = json_object_new_object();
    double most = 0;
    for (int32_t i = 0; i < n; i++)
        most = fmax(most, diff[i].kl);
    json_set(out, "tokens", json_object_new_int(n));
    result_number(out, "kl_most", most);
    json_set(out, "first", place(a, b, layers, diff, n, -1));
    json_set(out, "over", place(a, b, layers, diff, n, budget));
    free(a);
    free(b);
    free(diff);
    return out;
}
