"""Makes the template of the empty config file system (format: init/format.h):

  config_fs.py OUT_FILE

Of the size that config/disk.txt gives the partition.  The same bytes from every run.
"""

import os
import re
import struct
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BLOCK = 4096
FILE_TIME = "1767225600"  # 2026-01-01, as in the initramfs
UUID = "7b4f0c52-6c7c-4d5e-9a52-76346f780001"  # a constant: there is one such partition in a box
# Few and small files: 1024 inodes are plenty.  The reserve is root's: when the engine has filled the
# rest, init can still write.  Everything is laid out now, so that no kernel thread does it later.
OPTIONS = ["-t", "ext4", "-b", str(BLOCK), "-N", "1024", "-m", "10", "-L", "config", "-U", UUID,
           "-O", "^resize_inode,^orphan_file,^metadata_csum_seed,metadata_csum", "-J", "size=4",
           "-E", "hash_seed=%s,lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0" % UUID]


def config_bytes():
    with open(os.path.join(ROOT, "config", "disk.txt")) as table:
        return int(re.search(r"^config +(\d+) ", table.read(), re.M).group(1)) << 20


def main(out):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "fs")
        with open(path, "wb") as f:
            f.truncate(config_bytes())
        subprocess.run(["mke2fs", "-q", "-F", *OPTIONS, path], check=True,
                       env={"PATH": os.environ["PATH"] + ":/usr/sbin:/sbin",
                            "E2FSPROGS_FAKE_TIME": FILE_TIME, "TZ": "UTC"})
        with open(path, "rb") as f:
            data = f.read()
    blocks = len(data) // BLOCK
    records = [(n, data[n * BLOCK:(n + 1) * BLOCK]) for n in range(blocks)]
    records = [(n, block) for n, block in records if block.strip(b"\0")]
    with open(out, "wb") as f:
        f.write(b"V4BOXFS1" + struct.pack("<II", blocks, len(records)))
        for n, block in records:
            f.write(struct.pack("<I", n) + block)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: config_fs.py OUT_FILE")
    main(sys.argv[1])
