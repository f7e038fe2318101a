#!/bin/sh
# SPDX-License-Identifier: MIT
# The C example learns, on drawn ids and on recorded ones, and says what is wrong with its arguments.
set -u
B=${BUILD:-build}
W=$B/tests/examples
rm -rf "$W" && mkdir -p "$W" || exit 1
n=0 failed=0

try() { # NAME COMMAND...
    name=$1
    shift
    n=$((n + 1))
    if "$@" >"$W/log" 2>&1; then
        echo "ok $n - $name"
    else
        failed=1
        echo "not ok $n - $name"
        sed 's/^/# /' "$W/log" | head -20
    fi
}

# learns COMMAND...: the log loss of the last line is below 0.8 times that of the first.
learns() {
    "$@" >"$W/out" && cat "$W/out" && awk '{ loss = $5 + 0; if (NR == 1) first = loss } END { exit !(NR > 2 && loss < 0.8 * first) }' "$W/out"
}

try "make example" make --no-print-directory example B="$B" NVCC="${NVCC:-}"
try "drawn ids" learns "$B/examples/dlrm" 200
awk 'BEGIN { for (i = 0; i < 3000; i++) print (i * 7919) % 500, (i * 104729) % 90 >"'"$W/a.txt"'"
             for (i = 0; i < 3000; i++) print (i * 31) % 40 >"'"$W/b.txt"'" }'
try "recorded ids" learns "$B/examples/dlrm" 200 "$W/a.txt" "$W/b.txt"
fails() { "$@" && return 1 || [ $? -eq 1 ]; }
try "no such file" fails "$B/examples/dlrm" 10 "$W/nowhere.txt"
try "no number of steps" fails "$B/examples/dlrm" x
echo "1..$n"
exit $failed
