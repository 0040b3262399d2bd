#!/bin/bash
# Prints the path of promtool, of the package and version in config/test-packages.txt: fetched once into
# the cache and not installed, since installing it would start a server.
set -euo pipefail
read -r version sha256 < <(sed -n 's/^prometheus  *//p' "$(dirname "$0")/../../config/test-packages.txt")
cache=${1:-$HOME/.cache/v4box}/promtool-$version
if [ ! -x "$cache/promtool" ]; then
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    chmod 755 "$folder"
    (cd "$folder" && apt-get download -qq "prometheus=$version") >&2
    mv "$folder"/prometheus_*.deb "$folder/deb"
    sha256sum --check --quiet <<<"$sha256  $folder/deb" >&2
    dpkg-deb --fsys-tarfile "$folder/deb" | tar -x -C "$folder" ./usr/bin/promtool
    mkdir -p "$cache"
    mv "$folder/usr/bin/promtool" "$cache/"
fi
echo "$cache/promtool"
