/* The record of GPUs, and its table. */
#include "kernels/gauges.h"

#include <assert.h>
#include <string.h>

static const struct {
    const char *name, *help;
    int64_t most;
} ROWS[GAUGES] = {
#define GAUGE(id, name, most, help) [GAUGE_##id] = {name, help, most},
#include "config/gauges.def"
#undef GAUGE
};

/* The same bytes whoever compiles it. */
static_assert(sizeof(struct gpu_gauges) == GAUGE_BUS_BYTES + GAUGE_NAME_BYTES + 8 * GAUGES &&
                  sizeof(struct gauges) == 16 + GAUGE_NAME_BYTES + GAUGE_NOTE_BYTES +
                                               RANKS_MAX * sizeof(struct gpu_gauges),
              "no padding");

const char *gauge_name(enum gauge gauge)
{
    return ROWS[gauge].name;
}

const char *gauge_help(enum gauge gauge)
{
    return ROWS[gauge].help;
}

const char *gauge_peers_text(enum gauge_peers peers)
{
    static const char *const TEXTS[PEERS] = {
        [PEERS_ALONE] = "one rank, which needs no other",
        [PEERS_PUSH] = "ranks push: every byte has come",
        [PEERS_SHARED] = "ranks copy: they share GPUs, or do not reach each other's memory",
        [PEERS_LOST] = "ranks copy: bytes pushed to another GPU's memory were lost",
        [PEERS_UNKNOWN] = "nothing is known of how ranks reach each other"};
    return TEXTS[peers];
}

static void word_clean(char *word, size_t size)
{
    size_t n = strnlen(word, size - 1);
    for (size_t i = 0; i < n; i++)
        word[i] = (char)(word[i] >= ' ' && word[i] <= '~' ? word[i] : '?');
    memset(word + n, 0, size - n);
}

void gauges_clean(struct gauges *g)
{
    g->n = g->n < 0 || g->n > RANKS_MAX ? 0 : g->n;
    g->peers = g->peers < 0 || g->peers >= PEERS ? PEERS_UNKNOWN : g->peers;
    g->at_ms = g->at_ms < 0 ? 0 : g->at_ms;
    word_clean(g->driver, sizeof g->driver);
    word_clean(g->note, sizeof g->note);
    for (int32_t i = 0; i < g->n; i++) {
        word_clean(g->gpu[i].bus, sizeof g->gpu[i].bus);
        word_clean(g->gpu[i].name, sizeof g->gpu[i].name);
        for (int row = 0; row < GAUGES; row++) {
            int64_t value = g->gpu[i].value[row];
            g->gpu[i].value[row] = value < 0 || value > ROWS[row].most ? GAUGE_UNKNOWN : value;
        }
    }
}
