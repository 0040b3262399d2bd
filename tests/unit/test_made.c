/*
 * Weights made of a seed: which address belongs to which tensor, that any part of one is made as
 * the whole is, and what a seed may look like.  That the bytes are the reference's is a matter of
 * tests/golden (test_synth.py).
 */
#include "engine/model/config.h"
#include "engine/model/made.h"
#include "kernels/check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct model_config *nano(void)
{
    for (size_t i = 0; i < MODEL_CONFIG_COUNT; i++) {
        if (strcmp(MODEL_CONFIGS[i].name, "golden-nano") == 0)
            return &MODEL_CONFIGS[i];
    }
    return NULL;
}

static void test_seeds(void **state)
{
    (void)state;
    static const char *const BAD[] = {
        "",         "synth",    "synth:",    "synth:-1", "synth: 1",
        "synth:+1", "synth:1 ", "synth:0x1", "Synth:1",  "synth:18446744073709551616"};
    uint64_t seed = 7;
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++)
        assert_false(made_seed(BAD[i], &seed));
    assert_true(made_seed("synth:0", &seed) && seed == 0);
    assert_true(made_seed("synth:18446744073709551615", &seed) && seed == UINT64_MAX);
}

static void test_addresses(void **state)
{
    (void)state;
    struct made *made;
    struct error err;
    assert_int_equal(made_open(nano(), 1, &made, &err), OK);
    const struct synth_table *t = made_table(made);
    const char *first = t->parts[0].at, *last = t->parts[t->n - 1].at;
    assert_null(synth_find(t, first - 1));
    assert_null(synth_find(t, last + t->parts[t->n - 1].bytes));
    for (size_t i = 0; i < t->n; i++) {
        const struct synth_part *part = &t->parts[i];
        const char *at = part->at, *end = at + part->bytes;
        assert_ptr_equal(synth_find(t, at), part);
        assert_ptr_equal(synth_find(t, end - 1), part);
        if (i + 1 == t->n)
            continue;
        assert_true(end <= (const char *)part[1].at);
        if (end < (const char *)part[1].at) /* between two tensors is none */
            assert_null(synth_find(t, end));
    }
    made_close(made);
}

/* Every kind, in pieces that begin and end anywhere. */
static void test_pieces(void **state)
{
    (void)state;
    struct made *made;
    struct error err;
    bool seen[SYNTH_KINDS] = {false};
    assert_int_equal(made_open(nano(), 5, &made, &err), OK);
    assert_int_equal(made_fill(made, &err), OK);
    const struct synth_table *t = made_table(made);
    for (size_t i = 0; i < t->n; i++) {
        const struct synth_part *part = &t->parts[i];
        uint32_t width = synth_width(part->made.kind);
        uint8_t piece[24 * 8];
        uint64_t from = part->bytes / width / 3 * width, bytes = 24 * (uint64_t)width;
        if (seen[part->made.kind] || part->bytes - from < bytes)
            continue;
        seen[part->made.kind] = true;
        synth_fill(&part->made, from, bytes, piece);
        assert_memory_equal(piece, (const uint8_t *)part->at + from, bytes);
    }
    for (int kind = 0; kind < SYNTH_KINDS; kind++)
        assert_true(seen[kind] || kind == SYNTH_NVFP4_SCALE); /* the list has none */
    made_close(made);
}

/* The published size has addresses everywhere, and memory where it fits. */
static void test_full_size(void **state)
{
    (void)state;
    struct made *made;
    struct error err;
    assert_string_equal(MODEL_CONFIGS[0].name, "flash");
    assert_int_equal(made_open(&MODEL_CONFIGS[0], 1, &made, &err), OK);
    uint64_t bytes = 0;
    for (size_t i = 0; i < made_table(made)->n; i++)
        bytes += made_table(made)->parts[i].bytes;
    assert_true(bytes == UINT64_C(159609485896)); /* of the published checkpoint */
    made_close(made);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_seeds),
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_full_size),
    };
    return cmocka_run_group_tests_name("made", tests, NULL, NULL);
}
