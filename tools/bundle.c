/*
 * bundle: makes, signs and shows updates (format: init/bundle.h).
 *
 *   bundle keygen SECRET_FILE PUBLIC_FILE
 *   bundle sign --secret FILE --program FILE [--payload FILE] --out FILE [--header-only]
 *               [--version TEXT] [--sequence N] [--floor N] [--board TEXT]
 *   bundle show --public FILE BUNDLE
 *
 * Version, sequence and floor are those of config/version.h unless told otherwise.  A secret file
 * holds 64 bytes in hexadecimal, a public one 32.  A payload is a gpu.img of tools/payload.sh, and
 * must be the one that the program names.  Exit codes: 0 good, 2 anything else.
 */
#include "init/bundle.h"
#include "config/slots.h"
#include "config/version.h"
#include "init/payload.h"
#include "init/uki.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HEX_BYTES (2 * BUNDLE_SECRET_BYTES + 2)

static uint8_t file[BUNDLE_HEADER_BYTES + UPDATE_BYTES_MAX + 1];
static struct payload payload;

static int complain(const char *what, const char *which)
{
    fprintf(stderr, "bundle: %s: %s\n", which, what);
    return 2;
}

static ssize_t read_file(const char *path, uint8_t *bytes, size_t cap)
{
    FILE *f = fopen(path, "rb");
    if (f == NULL)
        return -1;
    size_t n = fread(bytes, 1, cap, f);
    bool good = ferror(f) == 0;
    fclose(f);
    return good ? (ssize_t)n : -1;
}

static bool write_file(const char *path, const void *head, size_t head_bytes, const void *rest,
                       size_t rest_bytes, int mode)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, mode);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "wb");
    if (f == NULL)
        return false;
    bool good = fwrite(head, 1, head_bytes, f) == head_bytes &&
                fwrite(rest, 1, rest_bytes, f) == rest_bytes;
    return fclose(f) == 0 && good;
}

static bool write_hex(const char *path, const uint8_t *bytes, size_t n, int mode)
{
    char text[HEX_BYTES];
    sodium_bin2hex(text, sizeof text, bytes, n);
    return write_file(path, text, strlen(text), "\n", 1, mode);
}

static bool read_hex(const char *path, uint8_t *bytes, size_t n)
{
    char text[HEX_BYTES];
    size_t len = 0;
    ssize_t got = read_file(path, (uint8_t *)text, sizeof text);
    return got == (ssize_t)(2 * n + 1) && text[2 * n] == '\n' &&
           sodium_hex2bin(bytes, n, text, 2 * n, NULL, &len, NULL) == 0 && len == n;
}

static int keygen(int argc, char **argv)
{
    uint8_t public[BUNDLE_KEY_BYTES], secret[BUNDLE_SECRET_BYTES];
    if (argc != 4)
        return complain("SECRET_FILE PUBLIC_FILE", "keygen");
    crypto_sign_keypair(public, secret);
    if (!write_hex(argv[2], secret, sizeof secret, 0600))
        return complain("can not be written", argv[2]);
    if (!write_hex(argv[3], public, sizeof public, 0644))
        return complain("can not be written", argv[3]);
    return 0;
}

static bool take_number(uint64_t *out, const char *text)
{
    char *end;
    *out = strtoull(text, &end, 10);
    return text[0] >= '0' && text[0] <= '9' && *end == '\0';
}

/* What `sign` was asked for. */
struct order {
    const char *secret, *program, *payload, *out, *version, *sequence, *floor, *board;
    bool header_only;
};

static const char *parse_order(struct order *o, int argc, char **argv)
{
    const struct {
        const char *name, **value;
    } OPTIONS[] = {
        {"--secret", &o->secret},   {"--program", &o->program},   {"--out", &o->out},
        {"--version", &o->version}, {"--sequence", &o->sequence}, {"--floor", &o->floor},
        {"--board", &o->board},     {"--payload", &o->payload},
    };
    for (int i = 2; i < argc; i++) {
        size_t k = 0, count = sizeof OPTIONS / sizeof OPTIONS[0];
        if (strcmp(argv[i], "--header-only") == 0) {
            o->header_only = true;
            continue;
        }
        while (k < count && strcmp(OPTIONS[k].name, argv[i]) != 0)
            k++;
        if (k == count || i + 1 == argc)
            return argv[i];
        *OPTIONS[k].value = argv[++i];
    }
    return o->secret == NULL || o->program == NULL || o->out == NULL
               ? "--secret, --program and --out are needed"
               : NULL;
}

/* Opens the payload that the program names; its hashes are then in `payload`. */
static const char *open_payload(const char *path, size_t program_bytes, int *fd)
{
    struct verity v;
    bool named;
    uint64_t bad;
    const char *wrong = uki_payload(&v, &named, file, program_bytes);
    *fd = wrong == NULL && named && payload_plan(&payload, &v) ? open(path, O_RDONLY) : -1;
    if (*fd >= 0 && payload_check(&payload, *fd, &bad))
        return NULL;
    return wrong != NULL ? wrong : "not the GPU payload that the program names";
}

/* As it travels: the tree, then the data. */
static bool append_payload(const char *path, int fd)
{
    static uint8_t bytes[VERITY_BLOCK_BYTES];
    FILE *out = fopen(path, "ab");
    if (out == NULL)
        return false;
    bool good = fwrite(payload.hashes, VERITY_BLOCK_BYTES, payload.tree.blocks, out) ==
                    payload.tree.blocks &&
                lseek(fd, 0, SEEK_SET) == 0;
    for (uint64_t i = 0; good && i < payload.tree.data; i++)
        good = read(fd, bytes, sizeof bytes) == (ssize_t)sizeof bytes &&
               fwrite(bytes, sizeof bytes, 1, out) == 1;
    return fclose(out) == 0 && good;
}

static int sign(int argc, char **argv)
{
    int fd = -1;
    struct order o = {.version = V4BOX_VERSION,
                      .sequence = V4BOX_SEQUENCE,
                      .floor = V4BOX_FLOOR,
                      .board = UPDATE_BOARD};
    struct bundle b = {.sequence = 0};
    uint8_t secret[BUNDLE_SECRET_BYTES], header[BUNDLE_HEADER_BYTES];
    const char *wrong = parse_order(&o, argc, argv);
    if (wrong != NULL)
        return complain(wrong, "sign");
    if (!take_number(&b.sequence, o.sequence) || !take_number(&b.floor, o.floor))
        return complain("--sequence and --floor are numbers", "sign");
    if (strlen(o.version) > BUNDLE_VERSION_BYTES || strlen(o.board) > BUNDLE_BOARD_BYTES)
        return complain("--version or --board is too long", "sign");
    strcpy(b.version, o.version);
    strcpy(b.board, o.board);
    ssize_t n = read_file(o.program, file, sizeof file);
    if (n <= 0 || n > UPDATE_BYTES_MAX)
        return complain("no program of at most 16 MB", o.program);
    if (!read_hex(o.secret, secret, sizeof secret))
        return complain("no secret key", o.secret);
    wrong = o.payload == NULL ? NULL : open_payload(o.payload, (size_t)n, &fd);
    if (wrong != NULL)
        return complain(wrong, o.payload);
    b.program_bytes = (uint64_t)n;
    b.payload_bytes = o.payload == NULL ? 0 : payload_bytes(&payload);
    crypto_hash_sha256(b.hash, file, (size_t)n);
    bundle_sign(header, &b, secret);
    sodium_memzero(secret, sizeof secret);
    if (!write_file(o.out, header, sizeof header, file, o.header_only ? 0 : (size_t)n, 0644) ||
        (o.payload != NULL && !o.header_only && !append_payload(o.out, fd)))
        return complain("can not be written", o.out);
    return 0;
}

static size_t read_on(void *in, void *bytes, size_t n)
{
    return fread(bytes, 1, n, in);
}

/* What lies behind the program. */
static const char *check_payload(const struct bundle *b, const uint8_t *bytes, const char *path,
                                 struct verity *v)
{
    bool named;
    const char *wrong = uki_payload(v, &named, bytes, (size_t)b->program_bytes);
    FILE *in = fopen(path, "rb");
    if (wrong == NULL &&
        (!named || !payload_plan(&payload, v) || b->payload_bytes != payload_bytes(&payload) ||
         in == NULL || fseek(in, (long)(BUNDLE_HEADER_BYTES + b->program_bytes), SEEK_SET) != 0))
        wrong = "the GPU payload is not the one that the program names";
    if (wrong == NULL)
        wrong = payload_take_hashes(&payload, read_on, in);
    if (wrong == NULL)
        wrong = payload_take_data(&payload, read_on, in, -1);
    if (wrong == NULL && fgetc(in) != EOF)
        wrong = "there are bytes behind the GPU payload";
    if (in != NULL)
        fclose(in);
    return wrong;
}

static int show(int argc, char **argv)
{
    struct verity v;
    struct bundle b;
    uint8_t key[BUNDLE_KEY_BYTES];
    if (argc != 5 || strcmp(argv[2], "--public") != 0)
        return complain("--public FILE BUNDLE", "show");
    if (!read_hex(argv[3], key, sizeof key))
        return complain("no public key", argv[3]);
    ssize_t n = read_file(argv[4], file, sizeof file);
    if (n < 0)
        return complain("can not be read", argv[4]);
    const char *wrong = bundle_check_header(&b, file, (size_t)n, key);
    size_t left = (size_t)n - BUNDLE_HEADER_BYTES; /* of which a payload is no part */
    if (wrong == NULL && b.payload_bytes > 0 && left > b.program_bytes)
        left = (size_t)b.program_bytes;
    if (wrong == NULL)
        wrong = bundle_check_program(&b, file + BUNDLE_HEADER_BYTES, left);
    if (wrong == NULL && b.payload_bytes > 0)
        wrong = check_payload(&b, file + BUNDLE_HEADER_BYTES, argv[4], &v);
    if (wrong != NULL)
        return complain(wrong, argv[4]);
    printf("board %s\nversion %s\nsequence %" PRIu64 "\nfloor %" PRIu64 "\nbytes %" PRIu64 "\n",
           b.board, b.version, b.sequence, b.floor, b.program_bytes);
    if (b.payload_bytes > 0)
        printf("payload %" PRIu64 ", driver %s\n", b.payload_bytes, v.version);
    return 0;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(int argc, char **argv);
    } VERBS[] = {{"keygen", keygen}, {"sign", sign}, {"show", show}};
    if (sodium_init() < 0)
        return complain("libsodium can not start", "bundle");
    for (size_t i = 0; argc > 1 && i < sizeof VERBS / sizeof VERBS[0]; i++)
        if (strcmp(VERBS[i].name, argv[1]) == 0)
            return VERBS[i].run(argc, argv);
    fprintf(stderr, "usage: bundle keygen|sign|show, see the top of tools/bundle.c\n");
    return 2;
}
