/* The choice of the next request, what timelines take, and the next step's segments. */
#include "engine/serve/schedule.h"

#include "config/limits.h"
#include "kernels/check.h"

/* With these, "one token for everybody" always fits, and no order of service is needed. */
_Static_assert(STEP_PREFILL_MIXED_MAX >= SESSIONS_MAX, "every prompt advances in a mixed step");
_Static_assert(SPAN_TOKENS_MAX >= STEP_PREFILL_MIXED_MAX + SESSIONS_MAX, "decodes fit beside it");

int32_t schedule_chunk(const struct profile *profile, int32_t step_tokens)
{
    const int32_t tokens[PREFILL_CHUNK_VALUES] = {
        [PREFILL_CHUNK_STEP] = step_tokens,
        [PREFILL_CHUNK_QUARTER] = step_tokens / 4,
        [PREFILL_CHUNK_SIXTEENTH] = step_tokens / 16,
    };
    return tokens[profile->values[ROW_PREFILL_CHUNK]];
}

static int32_t min(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

int32_t schedule_first(const struct schedule_waiting *waiting, int32_t n)
{
    ASSERT(n >= 1);
    int32_t best = 0, most = INT32_MIN;
    for (int32_t i = 0; i < n; i++) {
        int32_t weight = waiting[i].priority + waiting[i].passed / PRIORITY_PATIENCE;
        if (weight > most) {
            most = weight;
            best = i;
        }
    }
    return best;
}

int32_t schedule_retry_after_s(double mean_ms, int32_t n_slots)
{
    ASSERT(n_slots >= 1);
    double seconds = mean_ms / 1000 / n_slots;
    if (!(seconds > 1))
        return 1;
    return seconds < RETRY_AFTER_S_MAX ? (int32_t)(seconds + 0.5) : RETRY_AFTER_S_MAX;
}

/* Whether one of these has the page that stands there. */
static bool has_page(const struct schedule_claim *claims, int n, int32_t at, int32_t page)
{
    for (int i = 0; i < n; i++) {
        if (at < claims[i].n_pages && claims[i].pages[at] == page)
            return true;
    }
    return false;
}

uint64_t schedule_taken(const struct schedule_claim *claims, int n)
{
    uint64_t sum = 0;
    for (int i = 0; i < n; i++) {
        const struct schedule_claim *c = &claims[i];
        uint64_t shared = 0;
        for (int32_t at = 0; at < c->n_pages; at++)
            shared += c->pages[at] >= 0 && has_page(claims, i, at, c->pages[at]);
        ASSERT(shared * c->page_bytes <= c->bytes);
        sum += c->bytes - shared * c->page_bytes;
    }
    return sum;
}

/* Deals `budget` tokens evenly to the prompts; what short ones leave over goes round again. */
static int32_t deal_prefill(const struct schedule_slot *slots, int n_slots, int n_hungry,
                            int32_t budget, int32_t *take)
{
    int32_t dealt = 0;
    while (n_hungry > 0 && dealt < budget) {
        int32_t share = (budget - dealt) / n_hungry;
        if (share == 0)
            share = 1;
        for (int i = 0; i < n_slots && dealt < budget; i++) {
            int32_t want = slots[i].prefill - take[i];
            if (slots[i].prefill == 0 || want == 0)
                continue;
            int32_t n = min(min(share, want), budget - dealt);
            take[i] += n;
            dealt += n;
            n_hungry -= n == want;
        }
    }
    return dealt;
}

int32_t schedule_draft_depth(int32_t depth_max, int32_t n_decode, double right, int32_t quiet)
{
    ASSERT(depth_max >= 0 && n_decode >= 1);
    int32_t depth = 0, most = min(depth_max, DRAFT_STEP_MAX / n_decode);
    for (double chance = right; depth < most && chance * 100 >= DRAFT_RIGHT_MIN; depth++)
        chance *= right;
    return depth == 0 && most > 0 && quiet >= DRAFT_RETRY ? 1 : depth;
}

/* The one that waits longest for its profile's turn; NULL: nobody wants anything. */
static const struct schedule_slot *most_starved(const struct schedule_slot *slots, int n_slots)
{
    const struct schedule_slot *most = NULL;
    for (int i = 0; i < n_slots; i++) {
        if ((slots[i].decode || slots[i].prefill > 0) &&
            (most == NULL || slots[i].starved > most->starved))
            most = &slots[i];
    }
    return most;
}

int32_t schedule_step(const struct schedule_slot *slots, int n_slots, int32_t step_tokens,
                      int32_t *take)
{
    ASSERT(n_slots >= 0 && n_slots <= SESSIONS_MAX);
    struct schedule_slot group[SESSIONS_MAX] = {{0}}; /* those of the step's profile */
    const struct schedule_slot *first = most_starved(slots, n_slots);
    int n_decode = 0, n_prefill = 0;
    for (int i = 0; i < n_slots; i++) {
        ASSERT(slots[i].prefill >= 0 && slots[i].starved >= 0);
        ASSERT(!(slots[i].decode && slots[i].prefill > 0));
        if (first != NULL && slots[i].profile == first->profile)
            group[i] = slots[i];
        take[i] = group[i].decode;
        n_decode += group[i].decode;
        n_prefill += group[i].prefill > 0;
    }
    int32_t budget = n_decode > 0 ? STEP_PREFILL_MIXED_MAX : step_tokens;
    return n_decode + deal_prefill(group, n_slots, n_prefill, budget, take);
}
