/* A ranking for people and for programs. */
#include "engine/precision/rank.h"

const char *rank_tier_name(enum rank_tier tier)
{
    static const char *const NAMES[RANK_TIERS] = {"equal", "strict", "balanced", "fast", "beyond"};
    return NAMES[tier];
}

void rank_text(const struct rank *rank, struct buf *out)
{
    if (!rank->complete) {
        buf_puts(out, "the ranking was not finished\n");
        return;
    }
    buf_printf(out,
               "%d prompt tokens and %d of an answer; the reference makes %.0f and %.0f a second "
               "of a core\n"
               "%-26s %9s %9s %9s %7s %7s %8s %7s %7s  %s\n",
               rank->tokens[LEG_PREFILL], rank->tokens[LEG_DECODE], rank->rate[LEG_PREFILL],
               rank->rate[LEG_DECODE], "alone in the reference", "KL", "prefill", "decode", "top1",
               "expos.", "risk", "speed-p", "speed-d", "tier");
    for (int i = 0; i < rank->n; i++) {
        const struct rank_entry *e = &rank->entries[i];
        const struct precision_switch *s = &PRECISION[e->row];
        buf_printf(out, "%-13s %-12s ", s->name, s->values[e->value].name);
        if (!e->ran)
            buf_puts(out, "unproven: did not run here\n");
        else
            buf_printf(out, "%9.2e %9.2e %9.2e %6.2f%% %6.1f%% %8.1e %6.2fx %6.2fx  %s\n",
                       e->kl_mean, e->kl[LEG_PREFILL], e->kl[LEG_DECODE], 100 * e->top1_loss,
                       100 * e->exposure, e->kl_mean * e->exposure, e->speed[LEG_PREFILL],
                       e->speed[LEG_DECODE], rank_tier_name(e->tier));
    }
}

void rank_json(const struct rank *rank, struct buf *out)
{
    buf_printf(out,
               "{\"complete\": %s, \"time\": %lld, \"seconds\": %.3f, \"prefill_tokens\": %d, "
               "\"decode_tokens\": %d, \"prefill_rate\": %.1f, \"decode_rate\": %.1f, \"rows\": [",
               rank->complete ? "true" : "false", (long long)rank->time_s, rank->seconds,
               rank->tokens[LEG_PREFILL], rank->tokens[LEG_DECODE], rank->rate[LEG_PREFILL],
               rank->rate[LEG_DECODE]);
    for (int i = 0; i < rank->n; i++) {
        const struct rank_entry *e = &rank->entries[i];
        const struct precision_switch *s = &PRECISION[e->row];
        buf_printf(out, "%s{\"row\": \"%s\", \"value\": \"%s\", \"ran\": %s", i == 0 ? "" : ", ",
                   s->name, s->values[e->value].name, e->ran ? "true" : "false");
        if (e->ran)
            buf_printf(out,
                       ", \"kl\": %.6e, \"kl_max\": %.6e, \"kl_prefill\": %.6e, \"kl_decode\": "
                       "%.6e, \"top1_loss\": %.6f, \"exposure\": %.6f, \"speed_prefill\": %.4f, "
                       "\"speed_decode\": %.4f, \"tier\": \"%s\"",
                       e->kl_mean, e->kl_max, e->kl[LEG_PREFILL], e->kl[LEG_DECODE], e->top1_loss,
                       e->exposure, e->speed[LEG_PREFILL], e->speed[LEG_DECODE],
                       rank_tier_name(e->tier));
        buf_puts(out, "}");
    }
    buf_puts(out, "]}");
}
