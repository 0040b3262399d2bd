#!/bin/bash
# Makes the keys and chains of tests/unit/test_init_certificate.c anew, with openssl 3.
set -eu
cd "$(dirname "$0")"
request() { # NAME
    openssl req -new -key "$1.key" -subj "/CN=$1.example" -addext "subjectAltName=DNS:$1.example"
}
sign() { # NAME BY CA
    request "$1" | openssl x509 -req -CA "$2.pem" -CAkey "$2.key" -days 36500 -out "$1.pem" \
        -extfile <(printf 'basicConstraints=CA:%s\nsubjectAltName=DNS:%s.example\n' "$3" "$1") 2>/dev/null
}
ec() { openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 "$@" 2>/dev/null; }
for name in root middle leaf; do ec -out $name.key; done
openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out rsa.key 2>/dev/null
openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:1024 -out small.key 2>/dev/null
openssl genpkey -algorithm ED25519 -out edwards.key
ec -aes-128-cbc -pass pass:phrase -out locked.key
openssl req -x509 -key root.key -subj /CN=root.example -days 36500 -out root.pem
sign middle root TRUE
sign leaf middle FALSE
sign rsa root FALSE
rm root.key middle.key
