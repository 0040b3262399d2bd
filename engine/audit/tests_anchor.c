/* What logits are held against outside of the network that computes: the CPU's on the same weights,
 * and golden files.  A fault that the audited profile shares with the reference shows only here. */
#include "engine/audit/tests_common.h"
#include "kernels/check.h"

#include <math.h>
#include <stdlib.h>

/* What one anchor says about one profile. */
struct held {
    double sum, most;
    int64_t n, same_top, same_bits, broken;
};

static void held_add(struct held *h, double kl, bool same_top, bool same_bits)
{
    h->n++;
    h->same_top += same_top;
    h->same_bits += same_bits;
    h->broken += !isfinite(kl);
    h->sum += isfinite(kl) ? kl : 0;
    h->most = fmax(h->most, kl);
}

static double mean(const struct held *h)
{
    return h->n == 0 ? INFINITY : h->broken > 0 ? INFINITY : h->sum / (double)h->n;
}

static struct json_object *anchor_new(const char *what, const char *made_by,
                                      const struct profile *profile)
{
    struct json_object *out = json_object_new_object();
    json_set(out, "what", json_object_new_string(what));
    json_set(out, "made_by", json_object_new_string(made_by));
    json_set(out, "profile", json_object_new_string(profile->name));
    return out;
}

/* The numbers, and the sentence.  @return false: over the gate */
static bool anchor_judge(const struct held *h, double gate, struct json_object *anchor,
                         struct json_object *list, struct buf *why)
{
    bool good = mean(h) <= gate;
    json_set(anchor, "n", json_object_new_int64(h->n));
    result_number(anchor, "kl", mean(h));
    result_number(anchor, "kl_most", h->most);
    result_number(anchor, "gate", gate);
    result_number(anchor, "same_top", (double)h->same_top / (double)(h->n > 0 ? h->n : 1));
    json_set(anchor, "holds", json_object_new_boolean(good));
    json_object_array_add(list, anchor);
    buf_printf(why, "; against %s (%s), %s: mean KL %.2g of at most %.2g",
               json_object_get_string(json_object_object_get(anchor, "what")),
               json_object_get_string(json_object_object_get(anchor, "made_by")),
               json_object_get_string(json_object_object_get(anchor, "profile")), mean(h), gate);
    return good;
}

/* What two programs may differ by: where nothing is rounded on the way, next to nothing; else what
 * the profile may cost. */
static double same_gate(const struct profile *profile)
{
    bool exact = profile->hash == profile_builtin_at(PROFILE_REFERENCE)->hash;
    return exact ? AUDIT_KL_EXACT : audit_gates(profile)->kl_mean;
}

/* ---- the CPU --------------------------------------------------------------------------------- */

static bool cpu_holds_under(const struct audit_run *run, const struct profile *profile,
                            const struct ids *ids, struct json_object *list, struct buf *why)
{
    struct audit_setting setting = {profile, profile, CARRY_NONE};
    struct held h = {0};
    int32_t n = (int32_t)ids->len;
    struct audit_difference *diff = calloc((size_t)n, sizeof *diff);
    ASSERT(diff != NULL);
    machine_beside(run->machine, run->anchors->cpu, ids->data, n, n - AUDIT_DECODED, &setting,
                   diff);
    for (int32_t i = 0; i < n; i++)
        held_add(&h, diff[i].kl, diff[i].same_top, diff[i].same_bits);
    free(diff);
    struct json_object *anchor = anchor_new("cpu", "this program, on the CPU", profile);
    result_number(anchor, "same_bits", (double)h.same_bits / (double)h.n);
    return anchor_judge(&h, same_gate(profile), anchor, list, why);
}

/* The reference, too: a fault that all profiles share is seen there before roundings hide it. */
static bool cpu_holds(const struct audit_run *run, struct json_object *list, struct buf *why)
{
    const struct profile *reference = profile_builtin_at(PROFILE_REFERENCE);
    struct audit_item item;
    int32_t least = audit_text_least(run);
    if (run->anchors->cpu == NULL || least > machine_context(run->anchors->cpu) ||
        !audit_text_of(run, least, &item))
        return true;
    bool good = cpu_holds_under(run, reference, &item.ids, list, why);
    if (run->profile->hash != reference->hash && !audit_cancelled(run))
        good = cpu_holds_under(run, run->profile, &item.ids, list, why) && good;
    audit_item_free(&item);
    return good;
}

/* ---- golden files ---------------------------------------------------------------------------- */

/* The audited profile, and the one that the file is of. */
struct golden_seen {
    const struct golden *golden;
    int32_t vocab;
    struct held own, same;
};

static void see_golden(void *user, int32_t position, float *a, float *b)
{
    struct golden_seen *s = user;
    double kl;
    bool same_top;
    if (golden_kl(s->golden, position, a, s->vocab, &kl, &same_top))
        held_add(&s->own, kl, same_top, false);
    if (golden_kl(s->golden, position, b, s->vocab, &kl, &same_top))
        held_add(&s->same, kl, same_top, false);
}

/* Who made it, and which file it is. */
static struct json_object *golden_anchor(const struct golden *golden, const struct profile *profile)
{
    struct json_object *anchor = anchor_new("golden", golden_made_by(golden), profile);
    json_set(anchor, "sha256", json_object_new_string(golden_sha256(golden)));
    return anchor;
}

static bool golden_holds(const struct audit_run *run, const struct golden *golden,
                         struct json_object *list, struct buf *why)
{
    const struct profile *made = profile_builtin(golden_profile(golden));
    const struct ids *ids = golden_ids(golden);
    int32_t n = (int32_t)ids->len;
    struct golden_seen seen = {.golden = golden, .vocab = machine_config(run->machine)->vocab_size};
    struct audit_setting own = {run->profile, run->profile, CARRY_NONE};
    struct audit_setting same = {made, made, CARRY_NONE};
    if (n > machine_context(run->machine)) {
        buf_printf(why, "; a golden text of %d tokens does not fit the context", (int)n);
        return false;
    }
    machine_both(run->machine, ids->data, n, n > 2 * AUDIT_DECODED ? n - AUDIT_DECODED : n, &own,
                 &same, see_golden, &seen);
    bool good = anchor_judge(&seen.same, same_gate(made), golden_anchor(golden, made), list, why);
    if (run->profile->hash == made->hash)
        return good;
    double gate = fmax(audit_gates(run->profile)->kl_mean, same_gate(made));
    return anchor_judge(&seen.own, gate, golden_anchor(golden, run->profile), list, why) && good;
}

bool audit_anchors_hold(const struct audit_run *run, struct json_object *result, struct buf *why)
{
    if (run->anchors == NULL || (run->anchors->cpu == NULL && run->anchors->n_golden == 0))
        return true;
    struct json_object *list = result_part(result, "anchors", true);
    bool good = cpu_holds(run, list, why);
    for (int i = 0; i < run->anchors->n_golden && !audit_cancelled(run); i++)
        good = golden_holds(run, run->anchors->golden[i], list, why) && good;
    return good;
}
