#!/bin/bash
# Prints the modules of a list with everything they need, in loading order:
#   modules.sh LIST MODULES_DEP
# One path a line, as in modules.dep, dependencies first, each once.  What only soft dependencies ask
# for must stand in the list itself: nothing in the image resolves them at run time.
set -euo pipefail
LIST=$1 DEP=$2

awk '
    function name_of(path) { sub(/.*\//, "", path); sub(/\.ko$/, "", path); gsub(/-/, "_", path); return path }
    # modules.dep: "PATH: DEP DEP ...", the nearest dependency first.
    FILENAME == dep { path = $1; sub(/:$/, "", path); file[name_of(path)] = path
                      sub(/^[^:]*: */, ""); needs[path] = $0; next }
    /^[ \t]*(#|$)/ { next }
    { name = $1; gsub(/-/, "_", name)
      if (!(name in file)) { print list ": no module \"" $1 "\" in this kernel" > "/dev/stderr"; exit 1 }
      count = split(needs[file[name]], need, " ")
      for (i = count; i > 0; i--) if (!seen[need[i]]++) print need[i]
      if (!seen[file[name]]++) print file[name] }
' dep="$DEP" list="$LIST" "$DEP" "$LIST"
