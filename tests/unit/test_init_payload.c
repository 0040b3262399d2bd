/* The GPU payload on its way: the tree that the kernel will believe, every cut, every damaged
 * block, disks that take nothing; and what an EFI program says of it. */
#include "tests/unit/toy_payload.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <fcntl.h>
#include <unistd.h>

#define BLOCKS 129 /* the fewest with two levels, the leaves of which take two blocks */

static struct toy_payload toy, other;
static struct payload payload;
static char path[2][64]; /* of two files that are partitions */

static int set_up(void **state)
{
    (void)state;
    toy_make(&toy, BLOCKS, 0);
    toy_make(&other, BLOCKS, 1);
    for (int i = 0; i < 2; i++) {
        snprintf(path[i], sizeof path[i], "/tmp/test_init_payload.%d.%d", (int)getpid(), i);
        int fd = open(path[i], O_RDWR | O_CREAT | O_TRUNC, 0600);
        if (fd < 0 || ftruncate(fd, (off_t)toy_bytes(&toy)) != 0)
            return 1;
        close(fd);
    }
    return sodium_init() < 0;
}

static int take_down(void **state)
{
    (void)state;
    return unlink(path[0]) | unlink(path[1]);
}

static void plan(const struct toy_payload *p)
{
    struct verity v;
    assert_true(verity_parse(&v, p->line, strlen(p->line)));
    assert_true(payload_plan(&payload, &v));
    assert_int_equal(payload_bytes(&payload), toy_bytes(p));
}

/* Root hashes by `veritysetup format --no-superblock` (2.6.1) over the same bytes. */
static void trees_are_those_of_veritysetup(void **state)
{
    (void)state;
    static struct toy_payload p;
    static const struct {
        size_t blocks, tree;
        const char *root;
    } KNOWN[] = {
        {1, 0, "58946740cd120ab4146bdacb548523b8e61d27f1c6bb1faf921a871b5b783cb8"},
        {2, 1, "a83008566e7c0aa225c727f1564b63c3165781eef935e5c9884f0cef9ecad7c5"},
        {128, 1, "c29e3fe5e62c0c1b00273fe90ecc8eb51796193201d3a35de457371eb36f9622"},
        {129, 3, "9539398b7d1ec001ed90df1a37c89f123bc28220eab782259e11adfd79d273f6"},
        {300, 4, "4380a8ef28d123b61e9cee74a1e3a51642971a50e1c7da1b4819835fd8ec2982"},
    };
    for (size_t k = 0; k < sizeof KNOWN / sizeof KNOWN[0]; k++) {
        toy_make(&p, KNOWN[k].blocks, 0);
        assert_memory_equal(p.line, KNOWN[k].root, 64);
        assert_int_equal(p.tree, KNOWN[k].tree);
        plan(&p);
        assert_int_equal(payload.tree.blocks, KNOWN[k].tree);
        assert_true(hashtree_whole(&payload.tree, p.way));
        for (size_t i = 0; i < p.blocks; i++)
            assert_true(hashtree_fits(&payload.tree, p.way, i, p.data[i]));
        assert_false(hashtree_fits(&payload.tree, p.way, p.blocks, p.data[0]));
    }
}

static void every_block_of_hashes_and_data_counts(void **state)
{
    (void)state;
    plan(&toy);
    for (size_t i = 0; i < toy.tree; i++)
        for (size_t at = 0; at < VERITY_BLOCK_BYTES; at += 511) {
            toy.way[i * VERITY_BLOCK_BYTES + at] ^= 0x40;
            assert_false(hashtree_whole(&payload.tree, toy.way));
            toy.way[i * VERITY_BLOCK_BYTES + at] ^= 0x40;
        }
    assert_true(hashtree_whole(&payload.tree, toy.way));
    for (size_t i = 0; i < toy.blocks; i++) {
        assert_false(hashtree_fits(&payload.tree, toy.way, i, other.data[i]));
        assert_int_equal(hashtree_fits(&payload.tree, toy.way, i, toy.data[0]), i == 0);
    }
}

/* Takes a stream into the partition, whatever was there; what was wrong. */
static const char *take(const uint8_t *bytes, size_t n, int fd)
{
    struct toy_stream stream = {.bytes = bytes, .n = n};
    const char *wrong = payload_take_hashes(&payload, toy_read, &stream);
    return wrong != NULL ? wrong : payload_take_data(&payload, toy_read, &stream, fd);
}

static void what_comes_is_on_the_disk(void **state)
{
    (void)state;
    static uint8_t read_back[sizeof toy.data];
    uint64_t bad;
    int fd = open(path[0], O_RDWR);
    plan(&toy);
    assert_false(payload_check(&payload, fd, &bad));
    assert_null(take(toy.way, toy_bytes(&toy), fd));
    assert_int_equal(pread(fd, read_back, sizeof read_back, 0), toy_bytes(&toy));
    assert_memory_equal(read_back, toy.data, toy_bytes(&toy));
    assert_true(payload_check(&payload, fd, &bad));
    assert_null(take(toy.way, toy_bytes(&toy), -1));
    for (size_t i = 0; i < toy.blocks + toy.tree; i++) {
        uint8_t flipped = read_back[i * VERITY_BLOCK_BYTES + 77] ^ 1;
        assert_int_equal(pwrite(fd, &flipped, 1, (off_t)(i * VERITY_BLOCK_BYTES + 77)), 1);
        assert_false(payload_check(&payload, fd, &bad));
        assert_int_equal(bad, (i < toy.blocks ? i : toy.blocks) * VERITY_BLOCK_BYTES);
        flipped ^= 1;
        assert_int_equal(pwrite(fd, &flipped, 1, (off_t)(i * VERITY_BLOCK_BYTES + 77)), 1);
    }
    assert_true(payload_check(&payload, fd, &bad));
    close(fd);
}

/* Around the end of every block. */
static void every_cut_is_seen(void **state)
{
    (void)state;
    uint64_t bad;
    size_t whole = toy_bytes(&toy);
    int fd = open(path[0], O_RDWR);
    plan(&toy);
    for (size_t end = VERITY_BLOCK_BYTES; end <= whole; end += VERITY_BLOCK_BYTES)
        for (size_t n = end - 1; n <= end + 1 && n < whole; n++) {
            assert_int_equal(pwrite(fd, other.data, whole, 0), whole);
            assert_string_equal(take(toy.way, n, fd), "the GPU payload is cut off");
            assert_false(payload_check(&payload, fd, &bad));
        }
    close(fd);
}

/* And nothing of what is wrong is written. */
static void every_damaged_block_is_refused(void **state)
{
    (void)state;
    static uint8_t read_back[sizeof toy.data];
    size_t whole = toy_bytes(&toy);
    int fd = open(path[0], O_RDWR);
    plan(&toy);
    for (size_t i = 0; i < toy.blocks + toy.tree; i++) {
        assert_int_equal(pwrite(fd, other.data, whole, 0), whole);
        toy.way[i * VERITY_BLOCK_BYTES + i] ^= 2;
        assert_non_null(take(toy.way, whole, fd));
        assert_int_equal(pread(fd, read_back, whole, 0), whole);
        for (size_t k = 0; k < toy.blocks; k++)
            assert_true(
                memcmp(read_back + k * VERITY_BLOCK_BYTES, toy.data[k], VERITY_BLOCK_BYTES) == 0 ||
                memcmp(read_back + k * VERITY_BLOCK_BYTES, other.data[k], VERITY_BLOCK_BYTES) == 0);
        toy.way[i * VERITY_BLOCK_BYTES + i] ^= 2;
    }
    /* The other one, whole and good, is not the one that is wanted. */
    assert_string_equal(take(other.way, whole, fd),
                        "the GPU payload is not the one that the program names, or damaged");
    close(fd);
}

static void a_disk_that_takes_nothing_is_seen(void **state)
{
    (void)state;
    plan(&toy);
    int full = open("/dev/full", O_RDWR), read_only = open(path[0], O_RDONLY);
    assert_string_equal(take(toy.way, toy_bytes(&toy), full), "the GPU payload can not be written");
    assert_string_equal(take(toy.way, toy_bytes(&toy), read_only),
                        "the GPU payload can not be written");
    close(full);
    close(read_only);
}

static void what_is_too_large_has_no_plan(void **state)
{
    (void)state;
    struct verity v;
    assert_true(verity_parse(&v, toy.line, strlen(toy.line)));
    for (v.blocks = PAYLOAD_BYTES_MAX / VERITY_BLOCK_BYTES; !payload_plan(&payload, &v); v.blocks--)
        ;
    assert_true(payload_bytes(&payload) <= PAYLOAD_BYTES_MAX);
    assert_true(payload.tree.blocks * VERITY_BLOCK_BYTES <= PAYLOAD_TREE_BYTES_MAX);
    assert_true(v.blocks > 250000); /* nearly all of it is data */
    v.blocks = UINT64_C(999999999999);
    assert_false(payload_plan(&payload, &v));
}

static void partitions_are_found(void **state)
{
    (void)state;
    char device[SLOT_COUNT][STORAGE_NAME_BYTES] = {"", ""};
    const char *wrong = NULL;
    plan(&toy);
    assert_int_equal(payload_open(&payload, device, 0, &wrong), -1);
    assert_non_null(wrong);
    assert_int_equal(payload_find(&payload, device, 0), -1);
    for (int i = 0; i < 2; i++)
        snprintf(device[i], sizeof device[i], "../%s", path[i]);
    for (int i = 0; i < 2; i++) {
        int fd = payload_open(&payload, device, i, &wrong);
        assert_true(fd >= 0);
        assert_null(wrong);
        assert_null(take(toy.way, toy_bytes(&toy), fd));
        close(fd);
        assert_int_equal(payload_find(&payload, device, i), i);
    }
    assert_int_equal(truncate(path[1], (off_t)toy_bytes(&toy) - 1), 0);
    assert_int_equal(payload_find(&payload, device, 1), 0);
    device[0][0] = '\0';
    assert_int_equal(payload_open(&payload, device, 1, &wrong), -1);
    assert_string_equal(wrong, "the GPU payload is larger than the partition for it");
    assert_int_equal(payload_find(&payload, device, 0), -1);
}

/* ---- what a program says ------------------------------------------------------------------------
 */

static const char *names(const uint8_t *program, size_t n, bool *named)
{
    struct verity v;
    uint8_t *exact = malloc(n > 0 ? n : 1); /* so that a read behind the end is seen */
    memcpy(exact, program, n);
    const char *wrong = uki_payload(&v, named, exact, n);
    free(exact);
    return wrong;
}

static void a_program_names_its_payload(void **state)
{
    (void)state;
    uint8_t program[TOY_UKI_BYTES];
    struct verity v;
    bool named;
    toy_uki(program, NULL);
    assert_null(uki_payload(&v, &named, program, sizeof program));
    assert_false(named);
    toy_uki(program, toy.line);
    assert_null(uki_payload(&v, &named, program, sizeof program));
    assert_true(named);
    assert_int_equal(v.blocks, BLOCKS);
    size_t end = TOY_UKI_LINE_AT + strlen(toy.line);
    for (size_t n = 0; n < end; n++)
        assert_non_null(names(program, n, &named));
    assert_null(names(program, end, &named));
}

/* None of them makes one read behind the end, nor of the payload one without. */
static void every_bit_of_a_program_may_be_wrong(void **state)
{
    (void)state;
    uint8_t program[TOY_UKI_BYTES];
    bool named;
    toy_uki(program, toy.line);
    for (size_t bit = 0; bit < 8 * sizeof program; bit++) {
        program[bit / 8] ^= (uint8_t)(1u << bit % 8);
        (void)names(program, sizeof program, &named);
        program[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    program[TOY_UKI_LINE_AT] = 'G';
    assert_non_null(names(program, sizeof program, &named));
    assert_true(named);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trees_are_those_of_veritysetup),
        cmocka_unit_test(every_block_of_hashes_and_data_counts),
        cmocka_unit_test(what_comes_is_on_the_disk),
        cmocka_unit_test(every_cut_is_seen),
        cmocka_unit_test(every_damaged_block_is_refused),
        cmocka_unit_test(a_disk_that_takes_nothing_is_seen),
        cmocka_unit_test(what_is_too_large_has_no_plan),
        cmocka_unit_test(partitions_are_found),
        cmocka_unit_test(a_program_names_its_payload),
        cmocka_unit_test(every_bit_of_a_program_may_be_wrong),
    };
    return cmocka_run_group_tests_name("payload", tests, set_up, take_down);
}
