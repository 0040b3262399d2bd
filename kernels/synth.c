/* Weights made of a seed: bytes on the host, and which tensor an address belongs to. */
#include "kernels/synth.h"

#include "kernels/check.h"

void synth_fill(const struct synth *s, uint64_t first, uint64_t bytes, uint8_t *out)
{
    uint32_t width = synth_width(s->kind);
    ASSERT(first % width == 0 && bytes % width == 0);
    for (uint64_t i = first / width; i < (first + bytes) / width; i++) {
        uint64_t stored = synth_stored(s, i);
        for (uint32_t k = 0; k < width; k++) /* little endian, whatever the machine */
            *out++ = (uint8_t)(stored >> (8 * k));
    }
}

const struct synth_part *synth_find(const struct synth_table *table, const void *at)
{
    size_t low = 0, high = table->n;
    while (low < high) { /* the first part behind the address */
        size_t mid = low + (high - low) / 2;
        if ((uintptr_t)table->parts[mid].at <= (uintptr_t)at)
            low = mid + 1;
        else
            high = mid;
    }
    if (low == 0)
        return NULL;
    const struct synth_part *part = &table->parts[low - 1];
    return (uintptr_t)at - (uintptr_t)part->at < part->bytes ? part : NULL;
}
