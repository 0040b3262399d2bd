/*
 * A certificate chain and the private key that belongs to it: checked, made, written and described.
 * Owns the one use of OpenSSL in the box's programs; knows no file and no socket.
 */
#ifndef V4BOX_INIT_CERTIFICATE_H
#define V4BOX_INIT_CERTIFICATE_H

#include "init/text.h"

#include <stdbool.h>
#include <stddef.h>

struct certificate;

/**
 * Reads PEM: a private key without pass phrase and a chain, the box's own certificate first.  Other
 * blocks and what stands around them are left out.
 * @own certificate_free  @err NULL, and `wrong` says why
 */
struct certificate *certificate_parse(const char *pem, size_t n, const char **wrong);

/**
 * Makes a key and a self-signed certificate for `names` [count]: addresses and host names.
 * @own certificate_free  @err NULL, and `wrong` says why
 */
struct certificate *certificate_make(const char *const *names, int count, const char **wrong);

void certificate_free(struct certificate *c);

/** Appends the key and then the chain as PEM: a secret.  @err false: OpenSSL refused, or no room */
bool certificate_write(const struct certificate *c, struct text *out);

/** Appends the chain as PEM.  @err false: OpenSSL refused, or no room */
bool certificate_write_public(const struct certificate *c, struct text *out);

/** Appends the SHA-256 of the first certificate, in hexadecimal digits. */
void certificate_fingerprint(const struct certificate *c, struct text *out);

/** Appends what it says of itself: fingerprint, names, who signed it, from when to when. */
void certificate_describe(const struct certificate *c, struct text *out);

#endif
