/* Writing and reading the file of prefixes; prefix_file.h draws it. */
#include "engine/model/prefix_file.h"

#include "config/limits.h"
#include "engine/base/file.h"
#include "engine/model/prefix_tree.h"
#include "kernels/check.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC_BYTES 16
#define SEAL_BYTES  crypto_secretstream_xchacha20poly1305_ABYTES
#define HEAD_BYTES  crypto_secretstream_xchacha20poly1305_HEADERBYTES
#define MORE        crypto_secretstream_xchacha20poly1305_TAG_MESSAGE
#define LAST        crypto_secretstream_xchacha20poly1305_TAG_FINAL

_Static_assert(PREFIX_FILE_KEY_BYTES == crypto_secretstream_xchacha20poly1305_KEYBYTES, "the key");

/* The last byte is the version. */
static const uint8_t MAGIC[MAGIC_BYTES] = "v4box prefixes\n\2";

/* Little-endian, as this processor has them, without gaps. */
struct head {
    uint8_t probe[SNAPSHOT_PROBE_BYTES];
    uint64_t turn;
    uint64_t block_bytes, tail_bytes;
    uint32_t n_nodes, block_tokens;
};

struct record {
    uint64_t reuse_namespace, used;
    int32_t parent; /* number of an earlier record; NONE */
    uint32_t has_tail;
    int32_t ids[SNAPSHOT_TOKENS];
};

_Static_assert(sizeof(struct head) == SNAPSHOT_PROBE_BYTES + 3 * 8 + 2 * 4, "no gaps");
_Static_assert(sizeof(struct record) == 2 * 8 + 2 * 4 + SNAPSHOT_TOKENS * 4, "no gaps");

enum status prefix_probe(struct prefix *p, struct model *model, const struct profile *profile,
                         struct error *err)
{
    if (p->probed && profile_equal(&p->profile, profile))
        return OK;
    enum status status = snapshot_probe(model, profile, p->probe, err);
    p->profile = *profile;
    p->probed = status == OK;
    return status;
}

/* Of the pieces in the file, which are all of the probed profile. */
static size_t block_bytes(const struct prefix *p)
{
    return snapshot_block_bytes(p->model, &p->profile);
}

static size_t tail_bytes(const struct prefix *p)
{
    return snapshot_tail_bytes(p->model, &p->profile);
}

/* The largest message. */
static size_t message_bytes(const struct prefix *p)
{
    size_t most = block_bytes(p) > tail_bytes(p) ? block_bytes(p) : tail_bytes(p);
    return most > sizeof(struct record) ? most : sizeof(struct record);
}

/* ---- writing -------------------------------------------------------------------------------- */

struct writer {
    crypto_secretstream_xchacha20poly1305_state stream;
    struct file_new file;
    uint8_t *sealed; /* owns; one message and its seal */
    uint8_t *piece;  /* owns; one message */
};

static void write_message(struct writer *w, const void *message, size_t len, uint8_t tag)
{
    ASSERT(crypto_secretstream_xchacha20poly1305_push(&w->stream, w->sealed, NULL, message, len,
                                                      MAGIC, MAGIC_BYTES, tag) == 0);
    file_new_write(&w->file, w->sealed, len + SEAL_BYTES);
}

static void write_node(struct writer *w, const struct prefix *p, int32_t at, int32_t parent)
{
    const struct node *node = &p->nodes[at];
    struct record record = {
        .reuse_namespace = node->reuse_namespace,
        .used = node->used,
        .parent = parent,
        .has_tail = node->tail != NONE,
    };
    memcpy(record.ids, node->ids, sizeof record.ids);
    write_message(w, &record, sizeof record, MORE);
    snapshot_get_block(p->snapshots, at, &p->profile, w->piece);
    write_message(w, w->piece, block_bytes(p), MORE);
    if (node->tail == NONE)
        return;
    snapshot_get_tail(p->snapshots, node->tail, &p->profile, w->piece);
    write_message(w, w->piece, tail_bytes(p), MORE);
}

/* The node behind `at` in an order that has parents first. */
static int32_t next_node(const struct prefix *p, int32_t at)
{
    if (p->nodes[at].child != NONE)
        return p->nodes[at].child;
    while (at != NONE && p->nodes[at].next == NONE)
        at = p->nodes[at].parent;
    return at == NONE ? NONE : p->nodes[at].next;
}

/* Only what the probed profile computed goes to the file. */
static bool goes_to_file(const struct prefix *p, int32_t at)
{
    return p->nodes[at].profile_hash == p->profile.hash;
}

static uint32_t count_nodes(const struct prefix *p)
{
    uint32_t n = 0;
    for (int32_t at = p->roots; at != NONE; at = next_node(p, at))
        n += goes_to_file(p, at);
    return n;
}

static void write_all(struct writer *w, const struct prefix *p, const uint8_t *key, uint64_t turn,
                      int32_t *numbers)
{
    uint8_t header[HEAD_BYTES];
    struct head head = {
        .turn = turn,
        .block_bytes = block_bytes(p),
        .tail_bytes = tail_bytes(p),
        .n_nodes = count_nodes(p),
        .block_tokens = SNAPSHOT_TOKENS,
    };
    memcpy(head.probe, p->probe, sizeof head.probe);
    ASSERT(crypto_secretstream_xchacha20poly1305_init_push(&w->stream, header, key) == 0);
    file_new_write(&w->file, MAGIC, MAGIC_BYTES);
    file_new_write(&w->file, header, sizeof header);
    write_message(w, &head, sizeof head, MORE);
    int32_t number = 0;
    for (int32_t at = p->roots; at != NONE; at = next_node(p, at)) {
        int32_t parent = p->nodes[at].parent;
        if (!goes_to_file(p, at))
            continue;
        numbers[at] = number++;
        write_node(w, p, at, parent == NONE ? NONE : numbers[parent]);
    }
    ASSERT(number == (int32_t)head.n_nodes);
    write_message(w, NULL, 0, LAST);
}

enum status prefix_write_file(const struct prefix *p, const char *path,
                              const uint8_t key[PREFIX_FILE_KEY_BYTES], uint64_t turn,
                              int32_t *n_blocks, struct error *err)
{
    ASSERT(p->probed);
    *n_blocks = (int32_t)count_nodes(p);
    struct writer w = {.piece = calloc(1, message_bytes(p)),
                       .sealed = malloc(message_bytes(p) + SEAL_BYTES)};
    int32_t *numbers = calloc((size_t)p->n_nodes, sizeof *numbers); /* of the record of a node */
    enum status status = w.piece == NULL || w.sealed == NULL || numbers == NULL
                             ? error_set(err, ERR_CAPACITY, "%s: no memory to write it", path)
                             : file_new_begin(path, &w.file, err);
    if (status == OK) {
        write_all(&w, p, key, turn, numbers);
        if (snapshots_lost(p->snapshots) != NULL)
            w.file.code = EREMOTEIO; /* not all pieces are what they were */
        status = file_new_finish(&w.file, err);
    }
    sodium_memzero(&w.stream, sizeof w.stream);
    free(numbers);
    free(w.piece);
    free(w.sealed);
    return status;
}

/* ---- reading -------------------------------------------------------------------------------- */

struct reader {
    crypto_secretstream_xchacha20poly1305_state stream;
    int fd;          /* owns */
    uint8_t *sealed; /* owns; one message and its seal */
    uint8_t *piece;  /* owns; one message */
};

/* Not mapped: a bad sector must not end the engine.  @return false: it ends before */
static bool read_exactly(int fd, void *to, size_t len)
{
    for (size_t done = 0; done < len;) {
        ssize_t n = read(fd, (uint8_t *)to + done, len - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        done += (size_t)n;
    }
    return true;
}

/* @return false: it is not this message that stands here */
static bool read_message(struct reader *r, void *message, size_t len, uint8_t want)
{
    uint8_t tag;
    return read_exactly(r->fd, r->sealed, len + SEAL_BYTES) &&
           crypto_secretstream_xchacha20poly1305_pull(&r->stream, message, NULL, &tag, r->sealed,
                                                      len + SEAL_BYTES, MAGIC, MAGIC_BYTES) == 0 &&
           tag == want;
}

/* Whoever has the key could write anything: nothing is believed that could break the tree. */
static bool record_good(const struct prefix *p, const struct record *r, int32_t number,
                        uint64_t turn)
{
    bool good = r->reuse_namespace != 0 && r->used <= turn && r->has_tail <= 1;
    good = good && r->parent >= NONE && r->parent < number;
    for (int32_t i = 0; i < SNAPSHOT_TOKENS; i++)
        good = good && r->ids[i] >= 0 && r->ids[i] < p->vocab_size;
    return good;
}

/* Reads a node with its pieces.  nodes [number]: where the earlier ones went; NONE: no room.
 *  @return NULL, or what is wrong */
static const char *read_node(struct reader *r, struct prefix *p, int32_t *nodes, int32_t number,
                             uint64_t turn)
{
    struct record record;
    if (!read_message(r, &record, sizeof record, MORE))
        return "is damaged";
    if (!record_good(p, &record, number, turn))
        return "has a malformed record";
    int32_t parent = record.parent == NONE ? NONE : nodes[record.parent];
    const struct prefix_owner owner = {record.reuse_namespace, &p->profile};
    bool fits = prefix_has_room(p, &owner, 1, 0) && (record.parent == NONE || parent != NONE);
    if (fits && parent != NONE && p->nodes[parent].reuse_namespace != record.reuse_namespace)
        return "has a prefix of two namespaces";
    if (fits && prefix_child_find(p, parent, &owner, record.ids) != NONE)
        return "has a prefix twice";
    if (!read_message(r, r->piece, block_bytes(p), MORE))
        return "is damaged";
    if (fits) {
        nodes[number] = prefix_child_add(p, parent, &owner, record.ids);
        p->nodes[nodes[number]].used = record.used;
        snapshot_put_block(p->snapshots, nodes[number], &p->profile, r->piece);
    }
    if (record.has_tail && !read_message(r, r->piece, tail_bytes(p), MORE))
        return "is damaged";
    if (record.has_tail && fits && prefix_has_room(p, &owner, 0, 1))
        snapshot_put_tail(p->snapshots, prefix_tail_take(p, nodes[number]), &p->profile, r->piece);
    return NULL;
}

/* @return NULL, or what is wrong */
static const char *read_all(struct reader *r, struct prefix *p, const uint8_t *key, uint64_t *turn,
                            int32_t *nodes)
{
    struct head head;
    uint8_t start[MAGIC_BYTES + HEAD_BYTES], beyond;
    if (!read_exactly(r->fd, start, sizeof start) || memcmp(start, MAGIC, MAGIC_BYTES) != 0)
        return "is not a file of prefixes of this version";
    if (crypto_secretstream_xchacha20poly1305_init_pull(&r->stream, start + MAGIC_BYTES, key) !=
            0 ||
        !read_message(r, &head, sizeof head, MORE))
        return "has another key, or is damaged";
    if (memcmp(head.probe, p->probe, sizeof head.probe) != 0 ||
        head.block_bytes != block_bytes(p) || head.tail_bytes != tail_bytes(p) ||
        head.block_tokens != SNAPSHOT_TOKENS)
        return "is of another network or another arithmetic";
    if (head.n_nodes > PREFIX_PIECES_MAX)
        return "has too many prefixes";
    for (int32_t i = 0; i < (int32_t)head.n_nodes; i++) {
        nodes[i] = NONE;
        const char *wrong = read_node(r, p, nodes, i, head.turn);
        if (wrong != NULL)
            return wrong;
    }
    if (!read_message(r, NULL, 0, LAST) || read_exactly(r->fd, &beyond, 1))
        return "is damaged at its end";
    *turn = head.turn;
    return NULL;
}

static enum status file_open(const char *path, int *fd, struct error *err)
{
    /* O_NONBLOCK: something that is no file is refused below, not waited for. */
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat st;
    if (*fd < 0)
        return error_set(err, ERR_IO, "%s: %s", path, strerror(errno));
    if (fstat(*fd, &st) == 0 && S_ISREG(st.st_mode))
        return OK;
    close(*fd);
    return error_set(err, ERR_CHECK, "%s: not a regular file", path);
}

/* Removes what led to tails that had no room. */
static void drop_dead_ends(struct prefix *p)
{
    for (int32_t i = 0; i < p->n_nodes; i++) {
        if (p->nodes[i].live)
            prefix_prune(p, i);
    }
}

enum status prefix_read_file(struct prefix *p, const char *path,
                             const uint8_t key[PREFIX_FILE_KEY_BYTES], uint64_t *turn,
                             struct error *err)
{
    ASSERT(p->probed && p->n_free_nodes == p->n_nodes);
    struct reader r = {.piece = malloc(message_bytes(p)),
                       .sealed = malloc(message_bytes(p) + SEAL_BYTES)};
    int32_t *nodes = calloc(PREFIX_PIECES_MAX, sizeof *nodes);
    enum status status = r.piece == NULL || r.sealed == NULL || nodes == NULL
                             ? error_set(err, ERR_CAPACITY, "%s: no memory to read it", path)
                             : file_open(path, &r.fd, err);
    if (status == OK) {
        const char *wrong = read_all(&r, p, key, turn, nodes);
        close(r.fd);
        if (wrong == NULL) {
            drop_dead_ends(p);
        } else {
            prefix_clear(p);
            status = error_set(err, ERR_CHECK, "%s: %s", path, wrong);
        }
    }
    sodium_memzero(&r.stream, sizeof r.stream);
    free(nodes);
    free(r.sealed);
    free(r.piece);
    return status;
}
