/* The trie of byte strings, against plain search. */
#include "engine/text/trie.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ENTRIES 3000
#define BYTES   6

static uint32_t random_state = 7;

static uint32_t draw(uint32_t n)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (random_state >> 8) % n;
}

/* Values of all strings that begin `text`, found by a pruned walk, as bits. */
static void walk(const struct trie *trie, const uint8_t *text, size_t len, bool *found)
{
    for (uint32_t i = 0; i < trie->n_nodes;) {
        const struct trie_node *node = &trie->nodes[i];
        if (node->depth >= len || node->byte != text[node->depth]) {
            i = node->skip;
            continue;
        }
        if (node->value >= 0)
            found[node->value] = true;
        i++;
    }
}

static void test_against_search(void **state)
{
    (void)state;
    static uint8_t bytes[ENTRIES][BYTES];
    static struct trie_entry entries[ENTRIES], sorted[ENTRIES];
    for (int i = 0; i < ENTRIES; i++) {
        uint32_t len = 1 + draw(BYTES);
        for (uint32_t k = 0; k < len; k++)
            bytes[i][k] = (uint8_t)(draw(3) == 0 ? 255 - draw(2) : draw(3)); /* many share */
        entries[i] = sorted[i] = (struct trie_entry){bytes[i], len, i};
    }
    struct trie trie;
    trie_build(&trie, sorted, ENTRIES);
    assert_int_equal(trie.nodes[0].depth, 0);
    for (int round = 0; round < 300; round++) {
        static bool found[ENTRIES];
        const uint8_t *text = bytes[draw(ENTRIES)];
        memset(found, 0, sizeof found);
        walk(&trie, text, BYTES, found);
        for (int i = 0; i < ENTRIES; i++)
            assert_int_equal(found[i], memcmp(entries[i].bytes, text, entries[i].len) == 0);
    }
    trie_free(&trie);
}

static void test_small(void **state)
{
    (void)state;
    struct trie trie;
    trie_build(&trie, NULL, 0);
    assert_int_equal(trie.n_nodes, 0);
    trie_free(&trie);
    struct trie_entry entries[] = {
        {(const uint8_t *)"ab", 2, 5}, {(const uint8_t *)"a", 1, 3}, {(const uint8_t *)"ab", 2, 4}};
    trie_build(&trie, entries, 3);
    assert_int_equal(trie.n_nodes, 3); /* a, b, and b once more */
    assert_int_equal(trie.nodes[0].value, 3);
    assert_int_equal(trie.nodes[0].skip, 3);
    assert_int_equal(trie.nodes[1].value, 4);
    assert_int_equal(trie.nodes[1].skip, 2);
    assert_int_equal(trie.nodes[2].value, 5);
    trie_free(&trie);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_search),
        cmocka_unit_test(test_small),
    };
    return cmocka_run_group_tests_name("trie", tests, NULL, NULL);
}
