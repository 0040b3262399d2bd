#!/bin/bash
# Makes keys of one's own for Secure Boot:  secure.sh DIR
#
#   DIR/key.pem   secret; whoever has it makes programs that the box starts
#   DIR/cert.pem  its certificate, for 100 years: firmware does not look at the date
#   DIR/enrol     what `ssh admin@BOX secure-boot enrol` takes: db, KEK and PK, each as a line
#                 "NAME BYTES" and so many bytes, signed by the key itself
#
# One key for all three: they would lie in one place anyway.  What is there already is kept.
set -euo pipefail
DIR=$1
OWNER=5e1c7a52-3f0b-4c0e-9b56-76346f780b01 # EFI_OWN of init/efi.h
umask 077
mkdir -p "$DIR"
if [ -e "$DIR/enrol" ]; then
    exit 0
fi
openssl req -new -x509 -newkey rsa:2048 -nodes -sha256 -days 36500 -subj '/CN=v4box/' \
    -keyout "$DIR/key.pem" -out "$DIR/cert.pem" 2>"$DIR/openssl.log" || { cat "$DIR/openssl.log" >&2; exit 1; }
cert-to-efi-sig-list -g "$OWNER" "$DIR/cert.pem" "$DIR/list"
for name in db KEK PK; do
    sign-efi-sig-list -g "$OWNER" -k "$DIR/key.pem" -c "$DIR/cert.pem" "$name" "$DIR/list" "$DIR/$name" >/dev/null
    echo "$name $(stat -c %s "$DIR/$name")"
    cat "$DIR/$name"
done >"$DIR/enrol.part"
rm -f "$DIR/list" "$DIR/db" "$DIR/KEK" "$DIR/PK" "$DIR/openssl.log"
mv "$DIR/enrol.part" "$DIR/enrol"
