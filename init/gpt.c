/* The partition table of the box's own disk. */
#include "init/gpt.h"

#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#define SECTOR      512
#define HEADER      92 /* of revision 1.0, and what its checksum covers */
#define ENTRIES     128
#define ENTRY       128
#define TABLE       (ENTRIES * ENTRY)
#define TABLE_LBAS  (TABLE / SECTOR)
#define PRIMARY_LBA 1
#define ENTRIES_LBA 2
#define MIB         1048576
#define NAME_CHARS  36
#define CRC_POLY    0xedb88320u

/* Offsets of the header and of an entry: UEFI 2.10, 5.3. */
enum {
    AT_REVISION = 8,
    AT_HEADER_SIZE = 12,
    AT_HEADER_CRC = 16,
    AT_MY_LBA = 24,
    AT_OTHER_LBA = 32,
    AT_LAST_USABLE = 48,
    AT_ENTRIES_LBA = 72,
    AT_ENTRY_COUNT = 80,
    AT_ENTRY_SIZE = 84,
    AT_ENTRIES_CRC = 88,
    AT_FIRST = 32,
    AT_LAST = 40,
    AT_NAME = 56
};

struct table {
    uint8_t header[SECTOR], entries[TABLE];
};

static uint64_t get(const uint8_t *at, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes; i-- > 0;)
        value = value << 8 | at[i];
    return value;
}

static void put(uint8_t *at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++, value >>= 8)
        at[i] = (uint8_t)value;
}

uint32_t gpt_crc(const void *bytes, size_t n)
{
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < n; i++) {
        crc ^= ((const uint8_t *)bytes)[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? CRC_POLY : 0);
    }
    return ~crc;
}

static bool read_whole(int fd, void *bytes, size_t n, uint64_t lba)
{
    return pread(fd, bytes, n, (off_t)(lba * SECTOR)) == (ssize_t)n;
}

static bool write_whole(int fd, const void *bytes, size_t n, uint64_t lba)
{
    return pwrite(fd, bytes, n, (off_t)(lba * SECTOR)) == (ssize_t)n;
}

/* The table as the image has it: 128 entries behind the header, both with their checksums. */
static bool load(int fd, struct table *t)
{
    uint8_t plain[HEADER];
    if (!read_whole(fd, t->header, sizeof t->header, PRIMARY_LBA) ||
        !read_whole(fd, t->entries, sizeof t->entries, ENTRIES_LBA))
        return false;
    memcpy(plain, t->header, sizeof plain);
    put(plain + AT_HEADER_CRC, 0, 4);
    return memcmp(t->header, "EFI PART", 8) == 0 && get(t->header + AT_REVISION, 4) == 0x00010000 &&
           get(t->header + AT_HEADER_SIZE, 4) == HEADER &&
           get(t->header + AT_HEADER_CRC, 4) == gpt_crc(plain, sizeof plain) &&
           get(t->header + AT_MY_LBA, 8) == PRIMARY_LBA &&
           get(t->header + AT_ENTRIES_LBA, 8) == ENTRIES_LBA &&
           get(t->header + AT_ENTRY_COUNT, 4) == ENTRIES &&
           get(t->header + AT_ENTRY_SIZE, 4) == ENTRY &&
           get(t->header + AT_ENTRIES_CRC, 4) == gpt_crc(t->entries, sizeof t->entries);
}

static bool is_used(const uint8_t *entry)
{
    static const uint8_t NOTHING[16];
    return memcmp(entry, NOTHING, sizeof NOTHING) != 0;
}

/* Names are UTF-16; ours are ASCII. */
static bool is_called(const uint8_t *entry, const char *label)
{
    size_t n = strlen(label);
    for (size_t i = 0; i < NAME_CHARS; i++)
        if (get(entry + AT_NAME + 2 * i, 2) != (i < n ? (uint8_t)label[i] : 0))
            return false;
    return is_used(entry) && n <= NAME_CHARS;
}

static uint8_t *find(struct table *t, const char *label)
{
    uint8_t *found = NULL;
    for (int i = 0; i < ENTRIES; i++) {
        uint8_t *entry = t->entries + (size_t)i * ENTRY;
        if (!is_called(entry, label))
            continue;
        if (found != NULL)
            return NULL; /* two of one name */
        found = entry;
    }
    return found;
}

static bool is_last(const struct table *t, const uint8_t *mine)
{
    for (int i = 0; i < ENTRIES; i++) {
        const uint8_t *entry = t->entries + (size_t)i * ENTRY;
        if (entry != mine && is_used(entry) && get(entry + AT_LAST, 8) > get(mine + AT_FIRST, 8))
            return false;
    }
    return true;
}

static void seal(struct table *t, uint64_t my_lba, uint64_t other_lba, uint64_t entries_lba)
{
    put(t->header + AT_MY_LBA, my_lba, 8);
    put(t->header + AT_OTHER_LBA, other_lba, 8);
    put(t->header + AT_ENTRIES_LBA, entries_lba, 8);
    put(t->header + AT_ENTRIES_CRC, gpt_crc(t->entries, sizeof t->entries), 4);
    put(t->header + AT_HEADER_CRC, 0, 4);
    put(t->header + AT_HEADER_CRC, gpt_crc(t->header, HEADER), 4);
}

/* The copy first: until the other one is whole again, it is the table. */
static bool store(int fd, struct table *t, uint64_t last_lba)
{
    seal(t, last_lba, PRIMARY_LBA, last_lba - TABLE_LBAS);
    if (!write_whole(fd, t->entries, sizeof t->entries, last_lba - TABLE_LBAS) ||
        !write_whole(fd, t->header, sizeof t->header, last_lba) || fsync(fd) != 0)
        return false;
    seal(t, PRIMARY_LBA, last_lba, ENTRIES_LBA);
    return write_whole(fd, t->entries, sizeof t->entries, ENTRIES_LBA) &&
           write_whole(fd, t->header, sizeof t->header, PRIMARY_LBA) && fsync(fd) == 0;
}

const char *gpt_grow(int fd, uint64_t disk_bytes, const char *label, struct gpt_part *part)
{
    struct table t;
    if (!load(fd, &t))
        return "the partition table is not the one that the image has";
    uint8_t *entry = find(&t, label);
    if (entry == NULL || !is_last(&t, entry))
        return "another partition lies behind the models'";
    uint64_t first = get(entry + AT_FIRST, 8), last = get(entry + AT_LAST, 8);
    uint64_t last_lba = disk_bytes / SECTOR - 1, usable = last_lba - TABLE_LBAS - 1;
    uint64_t end = (usable + 1) / (MIB / SECTOR) * (MIB / SECTOR); /* whole MiB, as the others */
    if (disk_bytes < 4 * (uint64_t)MIB || first >= end || last < first)
        return "the partition table does not fit the disk";
    *part = (struct gpt_part){.number = (int)((entry - t.entries) / ENTRY) + 1,
                              .start = first * SECTOR,
                              .bytes = (last + 1 - first) * SECTOR};
    if (end <= last + 1)
        return NULL;
    put(entry + AT_LAST, end - 1, 8);
    put(t.header + AT_LAST_USABLE, usable, 8);
    if (!store(fd, &t, last_lba))
        return "the partition table can not be written";
    part->bytes = (end - first) * SECTOR;
    return NULL;
}
