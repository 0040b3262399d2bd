#!/bin/bash
# Makes sure that the machine has what the build, the image and the tests need:  setup.sh [LIST]
# Installs what is missing of LIST (config/host-packages.txt) by apt; removes and upgrades nothing.
# When nothing is missing it costs one dpkg-query and changes nothing.
set -euo pipefail
LIST=${1:-$(dirname "$0")/../config/host-packages.txt}
# The API tests use the fetch and the test runner that came with this version.
NODE_MAJOR_MIN=18

# The packages of the list that this machine must have from Debian.
wanted() {
    local package command
    while read -r package command; do
        case $package in '' | '#'*) continue ;; esac
        if [ -z "$command" ] || ! command -v "$command" >/dev/null || dpkg -s "$package" >/dev/null 2>&1; then
            echo "$package"
        fi
    done <"$LIST"
}

missing() {
    local all
    all=$(wanted)
    comm -23 <(sort <<<"$all") \
        <(dpkg-query -W -f '${db:Status-Abbrev}${Package}\n' $all 2>/dev/null | sed -n 's/^ii *//p' | sort)
}

lacks=$(missing)
if [ -n "$lacks" ]; then
    if [ "$(id -u)" -ne 0 ]; then
        echo "setup: this machine lacks packages; run as root:" >&2
        echo "  apt-get update && apt-get install --no-install-recommends" $lacks >&2
        exit 1
    fi
    echo "setup: installing" $lacks
    export DEBIAN_FRONTEND=noninteractive
    # Another build, or the machine's own updates, may hold the lock.
    wait=(-o DPkg::Lock::Timeout=600)
    apt-get "${wait[@]}" update -qq
    apt-get "${wait[@]}" install -y -qq --no-install-recommends --no-remove --no-upgrade $lacks >/dev/null
fi

major=$(node --version | sed 's/^v\([0-9]*\).*/\1/')
if [ "$major" -lt "$NODE_MAJOR_MIN" ]; then
    echo "setup: $(command -v node) is version $major, the tests need $NODE_MAJOR_MIN or later" >&2
    exit 1
fi
