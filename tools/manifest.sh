#!/bin/sh
# Prints the manifest.sha256 of a model folder: tools/manifest.sh DIR > DIR/manifest.sha256
# One line a file, "sha256  size  name"; `engine verify` checks it.
set -eu
cd "$1"
for file in $(LC_ALL=C ls); do
    if [ -f "$file" ] && [ "$file" != manifest.sha256 ]; then
        hash=$(sha256sum "$file")
        printf '%s  %s  %s\n' "${hash%% *}" "$(stat -c %s "$file")" "$file"
    fi
done
