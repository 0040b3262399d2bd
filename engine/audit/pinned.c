/* Both profiles over the same tokens, and the sampler of the request on what each says. */
#include "engine/audit/pinned.h"

#include "engine/audit/machine.h"

#include "engine/audit/tests_common.h"
#include "engine/model/logits.h"
#include "engine/model/sampler.h"
#include "kernels/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct replaying {
    const struct recording *recording;
    struct sampler sampler;
    const int32_t *ids; /* prompt, answer */
    int32_t n_prompt, vocab;
    int32_t seen, reproduced, parted, first_lost, first_parted; /* of answer tokens; -1: none */
    double kl_sum, kl_max, least_lead;
};

static int32_t pick(struct replaying *r, float *row, int32_t at)
{
    sampler_penalise(&r->sampler, row, &r->recording->sampling, r->ids, r->n_prompt,
                     at - r->n_prompt);
    return sampler_pick(&r->sampler, row, &r->recording->sampling, (uint64_t)at);
}

/* The rows behind position `at - 1` say the token at `at`. */
static void see(void *user, int32_t position, float *own, float *other)
{
    struct replaying *r = user;
    int32_t at = position + 1;
    if (at < r->n_prompt)
        return;
    double kl = logits_kl(own, other, r->vocab), ahead = machine_lead(other, r->vocab, r->ids[at]);
    r->kl_sum += kl;
    r->kl_max = fmax(r->kl_max, kl);
    r->least_lead = r->seen == 0 ? ahead : fmin(r->least_lead, ahead);
    int32_t own_id = pick(r, own, at), other_id = pick(r, other, at);
    if (own_id == r->ids[at])
        r->reproduced++;
    else if (r->first_lost < 0)
        r->first_lost = r->seen;
    if (own_id != other_id && r->parted++ == 0)
        r->first_parted = r->seen;
    r->seen++;
}

static void judge(const struct replaying *r, const struct profile *profile, struct buf *why,
                  enum audit_verdict *verdict)
{
    bool lost = r->reproduced < r->seen;
    *verdict = r->seen == 0                  ? VERDICT_UNDECIDED
               : r->parted > 0               ? VERDICT_FAIL
               : lost && r->recording->ruled ? VERDICT_UNDECIDED
               : lost                        ? VERDICT_FAIL
                                             : VERDICT_PASS;
    if (r->seen == 0)
        buf_puts(why, "no token of an answer to compare within this context");
    else if (lost)
        buf_printf(why, "%s itself gives other tokens, first at token %d of the answer%s; ",
                   r->recording->profile.name, (int)r->first_lost,
                   r->recording->ruled ? ", where a rule of the request may have barred its choice"
                                       : "");
    else
        buf_printf(why, "%s gives the recorded answer again; ", r->recording->profile.name);
    if (r->seen > 0 && r->parted > 0)
        buf_printf(why, "%s parts from it %d times, first at token %d of the answer", profile->name,
                   (int)r->parted, (int)r->first_parted);
    else if (r->seen > 0)
        buf_printf(why, "%s never parts from it", profile->name);
}

static void run(struct audit_machine *machine, const struct profile *profile, struct replaying *r)
{
    const struct recording *recording = r->recording;
    struct audit_setting own = {&recording->profile, &recording->profile, CARRY_NONE};
    struct audit_setting other = {profile, profile, CARRY_NONE};
    struct ids ids = {0};
    int32_t n = (int32_t)(recording->prompt.len + recording->answer.len);
    if (recording->answer.len == 0 || recording->prompt.len == 0 || n > machine_context(machine))
        return;
    for (size_t i = 0; i < recording->prompt.len; i++)
        ids_add(&ids, recording->prompt.data[i]);
    for (size_t i = 0; i < recording->answer.len; i++)
        ids_add(&ids, recording->answer.data[i]);
    r->ids = ids.data;
    r->n_prompt = (int32_t)recording->prompt.len;
    sampler_init(&r->sampler, r->vocab);
    machine_both(machine, ids.data, n - 1, r->n_prompt, &own, &other, see, r);
    sampler_clear(&r->sampler);
    ids_free(&ids);
}

struct json_object *pinned_replay(struct audit_machine *machine, const struct recording *recording,
                                  const struct profile *profile, enum audit_verdict *verdict)
{
    struct replaying r = {.recording = recording,
                          .vocab = machine_config(machine)->vocab_size,
                          .first_lost = -1,
                          .first_parted = -1};
    struct buf why = {0};
    run(machine, profile, &r);
    judge(&r, profile, &why, verdict);
    struct json_object *out = result_new("pinned", *verdict, buf_cstr(&why), r.seen,
                                         "the recorded answer, token for token");
    buf_free(&why);
    if (r.seen > 0)
        result_estimate(out, (double)r.parted / r.seen,
                        stats_rate(r.parted, r.seen, AUDIT_CONFIDENCE));
    struct json_object *numbers = result_part(out, "numbers", false);
    result_number(numbers, "tokens of the prompt", (double)recording->prompt.len);
    result_number(numbers, "tokens that were reused", recording->reused);
    result_number(numbers, "given again by its own profile", r.reproduced);
    result_number(numbers, "parted", r.parted);
    result_number(numbers, "first parted", r.first_parted);
    result_number(numbers, "mean KL from its own profile, nats",
                  r.seen > 0 ? r.kl_sum / r.seen : 0);
    result_number(numbers, "KL most", r.kl_max);
    result_number(numbers, "least lead of a recorded token, nats", r.least_lead);
    return out;
}
