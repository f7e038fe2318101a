#!/bin/sh
# SPDX-License-Identifier: MIT
# Packs programs without their debug information, the libraries that they need but those of libc, specs, and the scripts of
# extras/studies/gpu/lease.py: FOLDER, and FOLDER.tar.xz. The programs share most of their device code, so one dictionary for all
# makes 420 MiB 30. Fails if the archive has more than 64 MiB.
# Usage: extras/studies/gpu/pack.sh FOLDER PROGRAM...
set -eu
to=$1
shift
rm -rf "$to" "$to.tar.xz"
mkdir -p "$to/bin" "$to/lib"
for program in "$@"; do
    strip -o "$to/bin/$(basename "$program")" "$program"
    ldd "$program" | sed -n 's|.* => \(/[^ ]*\) .*|\1|p'
done | sort -u | grep -Ev '/(libc|libm|libdl|librt|libpthread|libcuda|ld-[^/]*)\.so' | while read -r library; do
    cp -L "$library" "$to/lib/"
done
mkdir -p "$to/datasets" "$to/reports" "$to/extras/peers" "$to/extras/studies"
cp datasets/gpu.spec datasets/dynamicemb.spec "$to/datasets/"
cp reports/*.py "$to/reports/"
cp extras/peers/*.py "$to/extras/peers/"
cp -r extras/studies/gpu "$to/extras/studies/"
echo "commit: $(git rev-parse HEAD 2>/dev/null || echo unknown)$([ -z "$(git status --porcelain 2>/dev/null)" ] || echo ', with changes')" >"$to/commit.txt"
tar -C "$(dirname "$to")" -cf - "$(basename "$to")" | xz --lzma2=preset=1,dict=256MiB -c >"$to.tar.xz"
size=$(du -m "$to.tar.xz" | cut -f 1)
[ "$size" -le 64 ] || { echo "gpu-lease: $to.tar.xz has $size MiB, more than 64" >&2; exit 1; }
echo "$to.tar.xz: $size MiB"
