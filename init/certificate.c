/* Certificates and their keys, by OpenSSL. */
#include "init/certificate.h"

#include "config/box.h"

#include <arpa/inet.h>
#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct certificate {
    EVP_PKEY *key;                  /* owns */
    X509 *chain[TLS_CHAIN_MAX + 1]; /* owns; its own first, then who signed it; one too many */
    int count;
};

void certificate_free(struct certificate *c)
{
    if (c == NULL)
        return;
    EVP_PKEY_free(c->key);
    for (int i = 0; i < c->count; i++)
        X509_free(c->chain[i]);
    free(c);
}

/* ---- reading ------------------------------------------------------------------------------------
 */

/* A pass phrase would have to lie beside the key. */
static int no_phrase(char *bytes, int cap, int writing, void *context)
{
    (void)bytes, (void)cap, (void)writing, (void)context;
    return -1;
}

/* Each kind of block is looked for from the beginning: they come in any order. */
static void read_blocks(struct certificate *c, const char *pem, size_t n)
{
    BIO *bio = BIO_new_mem_buf(pem, (int)n);
    if (bio == NULL)
        return;
    c->key = PEM_read_bio_PrivateKey(bio, NULL, no_phrase, NULL);
    BIO_free(bio);
    bio = BIO_new_mem_buf(pem, (int)n);
    while (bio != NULL && c->count <= TLS_CHAIN_MAX) {
        c->chain[c->count] = PEM_read_bio_X509(bio, NULL, no_phrase, NULL);
        if (c->chain[c->count] == NULL)
            break;
        c->count++;
    }
    BIO_free(bio);
}

/* What every client of TLS 1.3 takes. */
static bool key_is_common(const EVP_PKEY *key)
{
    int bits = EVP_PKEY_get_bits(key);
    if (EVP_PKEY_get_base_id(key) == EVP_PKEY_EC)
        return bits == 256 || bits == 384;
    return EVP_PKEY_get_base_id(key) == EVP_PKEY_RSA && bits >= 2048 && bits <= 4096;
}

static const char *find_fault(const struct certificate *c)
{
    if (c->key == NULL)
        return "there is no private key in it, or it has a pass phrase";
    if (!key_is_common(c->key))
        return "the private key is none of EC P-256, P-384, and RSA of 2048 to 4096 bits";
    if (c->count == 0)
        return "there is no certificate in it";
    if (c->count > TLS_CHAIN_MAX)
        return "there are too many certificates in it";
    if (X509_check_private_key(c->chain[0], c->key) != 1)
        return "the private key does not belong to the first certificate";
    for (int i = 0; i + 1 < c->count; i++)
        if (X509_check_issued(c->chain[i + 1], c->chain[i]) != X509_V_OK)
            return "a certificate of the chain did not sign the one before it";
    return NULL;
}

struct certificate *certificate_parse(const char *pem, size_t n, const char **wrong)
{
    struct certificate *c = calloc(1, sizeof *c);
    *wrong = c == NULL ? "no memory" : n > TLS_FILE_BYTES ? "it is too large" : NULL;
    if (*wrong == NULL) {
        read_blocks(c, pem, n);
        *wrong = find_fault(c);
    }
    if (*wrong == NULL)
        return c;
    certificate_free(c);
    return NULL;
}

/* ---- making -------------------------------------------------------------------------------------
 */

/* A number that no other box has, as browsers mind two certificates with one. */
static bool set_serial(X509 *x)
{
    unsigned char bytes[TLS_SERIAL_BYTES];
    if (getentropy(bytes, sizeof bytes) != 0)
        return false;
    bytes[0] = (bytes[0] & 0x7f) | 0x40; /* positive, and of full length */
    BIGNUM *number = BN_bin2bn(bytes, sizeof bytes, NULL);
    bool good = number != NULL && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(x)) != NULL;
    BN_free(number);
    return good;
}

static bool add_extension(X509 *x, int nid, const char *value)
{
    X509V3_CTX context;
    X509V3_set_ctx(&context, x, x, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, nid, value);
    bool good = extension != NULL && X509_add_ext(x, extension, -1) == 1;
    X509_EXTENSION_free(extension);
    return good;
}

/* Only these bytes get into the text that OpenSSL parses. */
static bool is_host_name(const char *name)
{
    static const char ALLOWED[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.";
    size_t n = strlen(name);
    return n > 0 && n <= TLS_NAME_BYTES && strspn(name, ALLOWED) == n && name[0] != '-' &&
           name[0] != '.';
}

static bool write_names(struct text *out, const char *const *names, int count)
{
    unsigned char address[sizeof(struct in6_addr)];
    for (int i = 0; i < count; i++) {
        bool is_address = inet_pton(AF_INET, names[i], address) == 1 ||
                          inet_pton(AF_INET6, names[i], address) == 1;
        if (!is_address && !is_host_name(names[i]))
            return false;
        text_printf(out, "%s%s:%s", i > 0 ? "," : "", is_address ? "IP" : "DNS", names[i]);
    }
    return count > 0 && !out->cut;
}

/* No clock is trusted here: valid from the year of the first release, without an end (RFC 5280,
 * 4.1.2.5).  The subject is fixed, too: it is the fingerprint that tells boxes apart. */
static bool fill(X509 *x, EVP_PKEY *key, const char *names)
{
    X509_NAME *name = X509_get_subject_name(x);
    return X509_set_version(x, X509_VERSION_3) == 1 && set_serial(x) &&
           ASN1_TIME_set_string(X509_getm_notBefore(x), "20260101000000Z") == 1 &&
           ASN1_TIME_set_string(X509_getm_notAfter(x), "99991231235959Z") == 1 &&
           X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"v4box", -1,
                                      -1, 0) == 1 &&
           X509_set_issuer_name(x, name) == 1 && X509_set_pubkey(x, key) == 1 &&
           add_extension(x, NID_basic_constraints, "critical,CA:FALSE") &&
           add_extension(x, NID_subject_alt_name, names) &&
           add_extension(x, NID_ext_key_usage, "serverAuth");
}

struct certificate *certificate_make(const char *const *names, int count, const char **wrong)
{
    char bytes[TLS_NAMES_BYTES];
    struct text listed = text_over(bytes, sizeof bytes);
    *wrong = "a name is an address or a host name";
    if (!write_names(&listed, names, count))
        return NULL;
    *wrong = "OpenSSL can not make it";
    struct certificate *c = calloc(1, sizeof *c);
    if (c == NULL)
        return NULL;
    c->key = EVP_EC_gen("P-256");
    c->chain[0] = X509_new();
    c->count = c->chain[0] != NULL;
    if (c->key != NULL && c->count == 1 && fill(c->chain[0], c->key, listed.data) &&
        X509_sign(c->chain[0], c->key, EVP_sha256()) > 0)
        return c;
    certificate_free(c);
    return NULL;
}

/* ---- writing ------------------------------------------------------------------------------------
 */

static bool write_chain(const struct certificate *c, BIO *bio)
{
    for (int i = 0; i < c->count; i++)
        if (PEM_write_bio_X509(bio, c->chain[i]) != 1)
            return false;
    return true;
}

/* Takes the memory that `bio` was written into. */
static bool take_text(BIO *bio, bool good, struct text *out)
{
    char *bytes;
    long n = good ? BIO_get_mem_data(bio, &bytes) : 0;
    if (n > 0)
        text_add(out, bytes, (size_t)n);
    BIO_free(bio);
    return n > 0 && !out->cut;
}

bool certificate_write(const struct certificate *c, struct text *out)
{
    BIO *bio = BIO_new(BIO_s_secmem()); /* cleared when it is freed */
    bool good = bio != NULL &&
                PEM_write_bio_PrivateKey(bio, c->key, NULL, NULL, 0, NULL, NULL) == 1 &&
                write_chain(c, bio);
    return take_text(bio, good, out);
}

bool certificate_write_public(const struct certificate *c, struct text *out)
{
    BIO *bio = BIO_new(BIO_s_mem());
    return take_text(bio, bio != NULL && write_chain(c, bio), out);
}

void certificate_fingerprint(const struct certificate *c, struct text *out)
{
    unsigned char hash[EVP_MAX_MD_SIZE];
    unsigned int n = 0;
    if (X509_digest(c->chain[0], EVP_sha256(), hash, &n) != 1)
        n = 0;
    for (unsigned int i = 0; i < n; i++)
        text_printf(out, "%02x", hash[i]);
}

static void describe_names(const X509 *x, struct text *out)
{
    int at = X509_get_ext_by_NID(x, NID_subject_alt_name, -1);
    BIO *bio = BIO_new(BIO_s_mem());
    bool good = at >= 0 && bio != NULL && X509V3_EXT_print(bio, X509_get_ext(x, at), 0, 0) == 1;
    if (!take_text(bio, good, out))
        text_printf(out, "none");
}

static void describe_time(const char *what, const ASN1_TIME *when, struct text *out)
{
    struct tm tm;
    if (ASN1_TIME_to_tm(when, &tm) == 1)
        text_printf(out, "%s %04d-%02d-%02d\n", what, tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday);
}

void certificate_describe(const struct certificate *c, struct text *out)
{
    const X509 *x = c->chain[0];
    bool own = X509_NAME_cmp(X509_get_subject_name(x), X509_get_issuer_name(x)) == 0;
    text_printf(out, "SHA-256 ");
    certificate_fingerprint(c, out);
    text_printf(out, "\nnames ");
    describe_names(x, out);
    text_printf(out, own ? "\nsigned by itself\n" : "\nsigned by another, %d in the chain\n",
                c->count);
    describe_time("from", X509_get0_notBefore(x), out);
    describe_time("to", X509_get0_notAfter(x), out);
}
