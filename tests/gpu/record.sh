#!/bin/sh
# SPDX-License-Identifier: MIT
# Makes a hardware record: runs gpu-verify and bench-gpu, and packs what they write into OUT/DEVICE-DRIVER-DATE.tar.gz.
# Status 1 if there is no device, or if one of them fails; then the archive has what there is.
# Usage: MAKE=make OUT=build/results tests/gpu/record.sh [VARIABLE=value of make...]
set -u
work=$OUT/gpu-record
rm -rf "$work"
$MAKE --no-print-directory gpu-verify OUT="$work" "$@"
verified=$?
[ -e "$work/gpu-verify.txt" ] || exit 1
$MAKE --no-print-directory bench-gpu OUT="$work" "$@"
measured=$?
fact() { sed -n "s/^$1: *//p" "$work/gpu-verify.txt" | head -n 1; }
day=$(fact date)
name=$(echo "$(fact device)-$(fact driver)-${day%T*}" | tr A-Z a-z | tr -cs 'a-z0-9.\n' -)
rm -rf "$OUT/$name"
mv "$work" "$OUT/$name" && tar -C "$OUT" -czf "$OUT/$name.tar.gz" "$name" || exit 1
[ $verified -eq 0 ] || echo 'gpu-record: gpu-verify failed' >&2
[ $measured -eq 0 ] || echo 'gpu-record: bench-gpu failed' >&2
echo "$OUT/$name.tar.gz"
[ $verified -eq 0 ] && [ $measured -eq 0 ]
