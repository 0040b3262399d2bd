/*
 * bundle: makes, signs and shows updates (format: init/bundle.h).
 *
 *   bundle keygen SECRET_FILE PUBLIC_FILE
 *   bundle sign --secret FILE --program FILE --out FILE [--header-only]
 *               [--version TEXT] [--sequence N] [--floor N] [--board TEXT]
 *   bundle show --public FILE BUNDLE
 *
 * Version, sequence and floor are those of config/version.h unless told otherwise.  A secret file
 * holds 64 bytes in hexadecimal, a public one 32.  Exit codes: 0 good, 2 anything else.
 */
#include "init/bundle.h"
#include "config/slots.h"
#include "config/version.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HEX_BYTES (2 * BUNDLE_SECRET_BYTES + 2)

static uint8_t file[BUNDLE_HEADER_BYTES + UPDATE_BYTES_MAX + 1];

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
    const char *secret, *program, *out, *version, *sequence, *floor, *board;
    bool header_only;
};

static const char *parse_order(struct order *o, int argc, char **argv)
{
    const struct {
        const char *name, **value;
    } OPTIONS[] = {
        {"--secret", &o->secret},   {"--program", &o->program},   {"--out", &o->out},
        {"--version", &o->version}, {"--sequence", &o->sequence}, {"--floor", &o->floor},
        {"--board", &o->board},
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

static int sign(int argc, char **argv)
{
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
    b.program_bytes = (uint64_t)n;
    crypto_hash_sha256(b.hash, file, (size_t)n);
    bundle_sign(header, &b, secret);
    sodium_memzero(secret, sizeof secret);
    if (!write_file(o.out, header, sizeof header, file, o.header_only ? 0 : (size_t)n, 0644))
        return complain("can not be written", o.out);
    return 0;
}

static int show(int argc, char **argv)
{
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
    if (wrong == NULL)
        wrong =
            bundle_check_program(&b, file + BUNDLE_HEADER_BYTES, (size_t)n - BUNDLE_HEADER_BYTES);
    if (wrong != NULL)
        return complain(wrong, argv[4]);
    printf("board %s\nversion %s\nsequence %" PRIu64 "\nfloor %" PRIu64 "\nbytes %" PRIu64 "\n",
           b.board, b.version, b.sequence, b.floor, b.program_bytes);
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
