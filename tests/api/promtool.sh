#!/bin/bash
# Prints the path of promtool: the machine's own, or that of Debian's package `prometheus`, fetched once
# into the cache and not installed, since installing it would start a server.
set -euo pipefail
command -v promtool && exit
cache=${1:-$HOME/.cache/v4box}/promtool
if [ ! -x "$cache/usr/bin/promtool" ]; then
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    chmod 755 "$folder"
    (cd "$folder" && apt-get download -qq prometheus) >&2
    mkdir -p "$cache"
    dpkg-deb --fsys-tarfile "$folder"/prometheus_*.deb | tar -x -C "$folder" ./usr/bin/promtool
    mkdir -p "$cache/usr/bin"
    mv "$folder/usr/bin/promtool" "$cache/usr/bin/"
fi
echo "$cache/usr/bin/promtool"
