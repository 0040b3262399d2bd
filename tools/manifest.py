"""Writes manifest.sha256 and leaves.sha256 of a model folder (formats: common/leaves.h):

  manifest.py DIR

Whoever loads or receives the model checks it by them.  Reads each file once, several at a time.
"""

import concurrent.futures
import hashlib
import os
import sys

LEAF = 1 << 20  # LEAF_BYTES of config/limits.h
MANIFEST, LEAVES = "manifest.sha256", "leaves.sha256"


def hashes(path):
    """SHA-256 and size of a file, and the SHA-256 of each of its leaves."""
    whole, leaves, size = hashlib.sha256(), [], 0
    with open(path, "rb") as f:
        while piece := f.read(LEAF):
            whole.update(piece)
            leaves.append(hashlib.sha256(piece).hexdigest())
            size += len(piece)
    return whole.hexdigest(), size, leaves


def names_of(folder):
    names = sorted((name for name in os.listdir(folder) if os.path.isfile(os.path.join(folder, name))),
                   key=os.fsencode)
    for name in names:
        if not all("!" <= c <= "~" and c not in "/\\" for c in name) or name.startswith("."):
            sys.exit("manifest.py: %r: a name is printable ASCII without blanks, and begins with no dot" % name)
    return [name for name in names if name not in (MANIFEST, LEAVES)]


def main(folder):
    names = names_of(folder)
    with concurrent.futures.ProcessPoolExecutor() as pool:
        found = dict(zip(names, pool.map(hashes, [os.path.join(folder, name) for name in names])))
    leaves = "".join(leaf + "\n" for name in names for leaf in found[name][2]).encode()
    found[LEAVES] = hashlib.sha256(leaves).hexdigest(), len(leaves), []
    lines = ["%s  %d  %s\n" % (found[name][0], found[name][1], name) for name in sorted(found, key=os.fsencode)]
    for name, data in ((LEAVES, leaves), (MANIFEST, "".join(lines).encode())):
        with open(os.path.join(folder, name), "wb") as f:
            f.write(data)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: manifest.py DIR")
    main(sys.argv[1])
