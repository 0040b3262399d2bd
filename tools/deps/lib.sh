# Shared by the recipes of tools/deps: pins, the private apt view, fetching, cache keys.
# Owns the layout of the cache.  Knows no package by name.
#
#   $CACHE/apt/                   a package view of our own; /etc/apt stays untouched
#   $CACHE/download/NAME_VERSION/ verified files as fetched
#   $CACHE/pkg/NAME-KEY/          what a recipe installed; KEY hashes everything that shaped it
#
# Sourced, with ROOT (the tree) and CACHE set.

# What our own programs link against.
LIBRARIES="json-c libmicrohttpd utf8proc libsodium openssl"
PINS=$ROOT/config/packages.txt
APT_VIEW=$CACHE/apt
# No package list is older than this when a pin is fetched; a stale one answers 404.
APT_VIEW_MINUTES=720

die() { echo "$(basename "$0"): $*" >&2; exit 1; }

# The pin of package $1 as: KIND NAME VERSION SUITE SHA256 LICENCE.
pin() {
    awk -v n="$1" '!/^#/ && $2 == n { print; found = 1 } END { exit !found }' "$PINS" ||
        die "config/packages.txt: no package \"$1\""
}

# Prints the address of the Debian mirror that this machine itself is set up with.
mirror() {
    local uri
    uri=$(apt-get indextargets --format '$(RELEASE) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' |
        awk '$1 == "bookworm" && $2 == "main" { print $3; exit }')
    [ -n "$uri" ] || die "apt has no bookworm main on this machine; run apt-get update, or see /etc/apt"
    echo "$uri"
}

# Runs an apt program ($1...) on the private view.
apt_view() {
    local program=$1; shift
    "$program" -o Dir::Etc::sourcelist="$APT_VIEW/sources.list" -o Dir::Etc::sourceparts=/dev/null \
        -o Dir::State::lists="$APT_VIEW/lists" -o Dir::Cache="$APT_VIEW/cache" \
        -o APT::Sandbox::User=root -qq "$@"
}

# Sets up or refreshes the private view: binaries of bookworm, sources of bookworm and trixie.
# Called with the lock of the view held.
apt_view_update() {
    if [ -f "$APT_VIEW/stamp" ] && [ -n "$(find "$APT_VIEW/stamp" -mmin -$APT_VIEW_MINUTES)" ]; then
        return
    fi
    local uri key=/usr/share/keyrings/debian-archive-keyring.gpg
    echo "reading the package lists" >&2
    uri=$(mirror) || exit 1
    mkdir -p "$APT_VIEW/lists/partial" "$APT_VIEW/cache/archives/partial"
    printf '%s\n' "deb [signed-by=$key] $uri bookworm main" "deb-src [signed-by=$key] $uri bookworm main" \
        "deb-src [signed-by=$key] $uri trixie main" >"$APT_VIEW/sources.list"
    apt_view apt-get update || die "the package lists of $uri could not be read"
    touch "$APT_VIEW/stamp"
}

sha256_of() { sha256sum "$1" | cut -d' ' -f1; }

# Fetches package $1 into the cache and prints the folder; files that do not match the pin are
# thrown away and the build ends.
fetch() {
    local line kind name version suite sha licence dir part file
    line=$(pin "$1") || exit 1
    read -r kind name version suite sha licence <<<"$line"
    dir=$CACHE/download/${name}_${version//:/%}
    # One fetch at a time: they share the view.
    mkdir -p "$CACHE/download"
    exec 8>"$CACHE/download/lock"
    flock 8
    if [ ! -d "$dir" ]; then
        apt_view_update
        part=$dir.part
        rm -rf "$part"; mkdir -p "$part"
        case $kind in
        source) (cd "$part" && apt_view apt-get source --download-only "$name=$version") ;;
        deb) (cd "$part" && apt_view apt-get download "$name=$version") ;;
        *) die "config/packages.txt: $name: kind \"$kind\"" ;;
        esac >&2 || die "$name $version ($suite) could not be fetched; has the release moved on? See config/packages.txt"
        file=$(fetched_file "$part")
        if [ "$(sha256_of "$file")" != "$sha" ]; then
            die "$name $version: $(basename "$file") has SHA-256 $(sha256_of "$file"), the pin says $sha"
        fi
        mv "$part" "$dir"
    fi
    exec 8>&-
    echo "$dir"
}

# The one file of a download folder whose checksum is pinned.
fetched_file() { find "$1" -name '*.dsc' -o -name '*.deb'; }

# Unpacks source package $1 into folder $2 (which must not exist) with Debian's patches applied.
unpack_source() {
    local dir
    mkdir -p "$(dirname "$2")"
    dir=$(fetch "$1") || exit 1
    dpkg-source --require-strong-checksums --no-copy -x "$(fetched_file "$dir")" "$2" >/dev/null 2>"$2.log" ||
        { cat "$2.log" >&2; die "$1: dpkg-source failed"; }
}
