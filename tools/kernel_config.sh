#!/bin/bash
# Holds a kernel's configuration against config/kernel.txt:  kernel_config.sh CONFIG [TABLE]
# Prints each symbol that is not as the table says, and ends with 1 when there is one.
set -euo pipefail
ROOT=$(cd "$(dirname "$0")/.." && pwd)
CONFIG=$1 TABLE=${2:-$ROOT/config/kernel.txt}

awk '
    FILENAME == config { if ($0 ~ /^CONFIG_[A-Za-z0-9_]+=/) { split($0, part, "="); found[part[1]] = part[2] } next }
    /^[ \t]*(#|$)/ { next }
    { rows++; value = found["CONFIG_" $1]; if (value == "") value = "n"
      if (NF < 3) { print table ": " $1 ": no reason"; bad = 1 }
      else if (value != $2) { print table ": " $1 " is " value " in " config ", not " $2; bad = 1 } }
    END { if (rows == 0) print table ": empty"; exit bad || rows == 0 }
' config="$CONFIG" table="$TABLE" "$CONFIG" "$TABLE"
