/* A slot is written, and the power goes at every byte of it: the slot that runs stays as it is, and
 * the other one is not used unless it is whole. */
#include "init/install.h"
#include "tests/unit/toy_payload.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#define BLOCKS 5

struct slot {
    uint8_t header[BUNDLE_HEADER_BYTES], program[TOY_UKI_BYTES];
};

/* What a disk holds, and how many bytes it takes before the power goes. */
struct disk {
    struct slot slot[SLOT_COUNT];
    size_t left;
    size_t sent; /* of the payload, before its sender is cut off */
};

static uint8_t public[BUNDLE_KEY_BYTES], secret[BUNDLE_SECRET_BYTES];
static struct toy_payload old, new;
static struct slot old_slot, new_slot, older_slot;
static struct payload payload;
static struct disk disk;
static char device[SLOT_COUNT][STORAGE_NAME_BYTES]; /* files that are partitions */

static void release(struct slot *slot, const struct toy_payload *p, uint64_t sequence)
{
    struct bundle b = {.board = UPDATE_BOARD, .version = "1.0", .sequence = sequence};
    toy_uki(slot->program, p == NULL ? NULL : p->line);
    b.program_bytes = sizeof slot->program;
    b.payload_bytes = p == NULL ? 0 : toy_bytes(p);
    crypto_hash_sha256(b.hash, slot->program, sizeof slot->program);
    bundle_sign(slot->header, &b, secret);
}

static int set_up(void **state)
{
    static const uint8_t SEED[crypto_sign_SEEDBYTES] = {4};
    (void)state;
    if (sodium_init() < 0)
        return 1;
    crypto_sign_seed_keypair(public, secret, SEED);
    toy_make(&old, BLOCKS, 0);
    toy_make(&new, BLOCKS, 9);
    release(&older_slot, NULL, 1);
    release(&old_slot, &old, 2);
    release(&new_slot, &new, 3);
    for (int i = 0; i < SLOT_COUNT; i++)
        snprintf(device[i], sizeof device[i], "../tmp/test_init_install.%d.%d", (int)getpid(), i);
    return 0;
}

static int open_part(int i)
{
    char path[64];
    snprintf(path, sizeof path, "/dev/%s", device[i]);
    return open(path, O_RDWR | O_CREAT, 0600);
}

static int take_down(void **state)
{
    (void)state;
    for (int i = 0; i < SLOT_COUNT; i++) {
        char path[64];
        snprintf(path, sizeof path, "/dev/%s", device[i]);
        unlink(path);
    }
    return 0;
}

static void put_part(int i, const uint8_t *bytes, size_t n)
{
    int fd = open_part(i);
    assert_int_equal(pwrite(fd, bytes, n, 0), n);
    close(fd);
}

/* Slot a runs with its payload on the first partition; slot b holds a release without one. */
static void fresh(size_t left, size_t sent)
{
    disk = (struct disk){.slot = {old_slot, older_slot}, .left = left, .sent = sent};
    put_part(0, (const uint8_t *)old.data, toy_bytes(&old));
    put_part(1, (const uint8_t *)old.data, toy_bytes(&old));
}

/* As the updater looks at a slot before it lets it start. */
static bool usable(int slot)
{
    struct bundle b;
    struct verity v;
    bool named;
    const struct slot *s = &disk.slot[slot];
    if (bundle_check_header(&b, s->header, sizeof s->header, public) != NULL ||
        bundle_check_program(&b, s->program, sizeof s->program) != NULL ||
        uki_payload(&v, &named, s->program, sizeof s->program) != NULL)
        return false;
    return !named || (payload_plan(&payload, &v) && payload_find(&payload, device, slot) >= 0);
}

/* ---- what is written, as far as the power lets it -----------------------------------------------
 */

static const char *put(uint8_t *to, const uint8_t *bytes, size_t n)
{
    size_t len = disk.left < n ? disk.left : n;
    memcpy(to, bytes, len);
    disk.left -= len;
    return len == n ? NULL : "the power went";
}

static const char *put_header(void *context, const uint8_t header[BUNDLE_HEADER_BYTES])
{
    return put(((struct slot *)context)->header, header, BUNDLE_HEADER_BYTES);
}

static const char *put_program(void *context, const uint8_t *program, size_t n)
{
    return put(((struct slot *)context)->program, program, n);
}

/* Whole into a file of its own, and as much of that to the disk as there is power. */
static const char *put_payload(void *context)
{
    static uint8_t part[sizeof new.data];
    struct toy_stream stream = {.bytes = new.way, .n = disk.sent};
    struct verity v;
    (void)context;
    int fd = memfd_create("part", MFD_CLOEXEC);
    assert_true(verity_parse(&v, new.line, strlen(new.line)) && payload_plan(&payload, &v));
    const char *wrong = payload_take_hashes(&payload, toy_read, &stream);
    if (wrong == NULL)
        wrong = payload_take_data(&payload, toy_read, &stream, fd);
    ssize_t n = pread(fd, part, sizeof part, 0);
    close(fd);
    assert_true(n >= 0);
    size_t len = disk.left < (size_t)n ? disk.left : (size_t)n;
    put_part(1, part, len);
    disk.left -= len;
    return wrong != NULL ? wrong : len == (size_t)n ? NULL : "the power went";
}

static const char *install_new(void)
{
    struct install i = {.context = &disk.slot[1],
                        .header = new_slot.header,
                        .program = new_slot.program,
                        .program_bytes = sizeof new_slot.program,
                        .put_header = put_header,
                        .put_program = put_program,
                        .put_payload = put_payload};
    return install_run(&i);
}

static void the_running_slot_is_whole(void)
{
    assert_memory_equal(&disk.slot[0], &old_slot, sizeof old_slot);
    assert_true(usable(0));
}

/* ---- cuts ---------------------------------------------------------------------------------------
 */

static void with_power_all_is_there(void **state)
{
    (void)state;
    fresh(SIZE_MAX, toy_bytes(&new));
    assert_true(usable(1));
    assert_null(install_new());
    the_running_slot_is_whole();
    assert_memory_equal(&disk.slot[1], &new_slot, sizeof new_slot);
    assert_true(usable(1));
    disk.slot[1].program[TOY_UKI_BYTES - 1] ^= 1; /* as seen by what looks: each part counts */
    assert_false(usable(1));
    disk.slot[1] = new_slot;
    put_part(1, (const uint8_t *)old.data, VERITY_BLOCK_BYTES);
    assert_false(usable(1));
    the_running_slot_is_whole();
}

/* Within headers and program byte by byte, within the payload around its blocks. */
static void the_power_goes_anywhere(void **state)
{
    (void)state;
    size_t before = BUNDLE_HEADER_BYTES, behind = before + toy_bytes(&new);
    size_t all = behind + TOY_UKI_BYTES + BUNDLE_HEADER_BYTES, cuts = 0;
    for (size_t left = 0; left < all; left++) {
        size_t within = (left - before) % VERITY_BLOCK_BYTES;
        if (left > before && left < behind && within > 1 && within < VERITY_BLOCK_BYTES - 1)
            continue;
        fresh(left, toy_bytes(&new));
        assert_string_equal(install_new(), "the power went");
        the_running_slot_is_whole();
        /* The release before until its first byte goes; the new one once what lacks are zeros. */
        bool whole = memcmp(&disk.slot[1], &new_slot, sizeof new_slot) == 0;
        assert_int_equal(usable(1), left == 0 || whole);
        assert_true(!whole || left > all - BUNDLE_HEADER_BYTES);
        cuts++;
    }
    assert_true(cuts > 1500);
    fresh(all, toy_bytes(&new));
    assert_null(install_new());
    assert_true(usable(1));
}

static void the_sender_stops_anywhere(void **state)
{
    (void)state;
    for (size_t sent = 0; sent < toy_bytes(&new); sent += 64) {
        fresh(SIZE_MAX, sent);
        assert_string_equal(install_new(), "the GPU payload is cut off");
        the_running_slot_is_whole();
        assert_false(usable(1));
    }
}

/* The firmware may be told to go back at any time: system and payload are a pair. */
static void both_slots_have_their_own(void **state)
{
    (void)state;
    struct verity v;
    fresh(SIZE_MAX, toy_bytes(&new));
    assert_null(install_new());
    assert_true(verity_parse(&v, old.line, strlen(old.line)) && payload_plan(&payload, &v));
    assert_int_equal(payload_find(&payload, device, 0), 0);
    assert_true(verity_parse(&v, new.line, strlen(new.line)) && payload_plan(&payload, &v));
    assert_int_equal(payload_find(&payload, device, 0), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(with_power_all_is_there),
        cmocka_unit_test(the_power_goes_anywhere),
        cmocka_unit_test(the_sender_stops_anywhere),
        cmocka_unit_test(both_slots_have_their_own),
    };
    return cmocka_run_group_tests_name("install", tests, set_up, take_down);
}
