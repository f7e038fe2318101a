#!/bin/sh
# SPDX-License-Identifier: MIT
# DEPS=dir, a prefix with libraries: what make says of it, and what it hands to compiler and linker. Prints TAP; runs
# from the suite's root with BUILD set (tests/run.sh).
set -u
work=$BUILD/tests/deps
rm -rf "$work"
mkdir -p "$work/own/include" "$work/own/lib"
n=0

ok() { # STATUS NAME: 0 passes
    n=$((n + 1))
    if [ "$1" -eq 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; sed 's/^/# /' "$work/said"; fi
}
clean_make() { # as a user starts it, without the variables of the make that runs this test
    env -u MAKEFLAGS -u MAKELEVEL make --no-print-directory CC=gcc NATIVE=1 SANITIZE= NVCC= B="$work/build" "$@" \
        >"$work/said" 2>&1
}

only='libraries_ci=only_here.h:only_here'
clean_make deps DEPS="$work/own" "$only" programs_ci='sh no_such_program'
[ $? -eq 2 ] && grep -q "^DEPS=$work/own lacks include/only_here.h with lib/libonly_here$" "$work/said" &&
    grep -q '^no_such_program is not on the path$' "$work/said" && [ "$(grep -vc '^make' "$work/said")" -eq 2 ]
ok $? 'make deps lists what is missing'

touch "$work/own/include/only_here.h"
echo 'int only_here;' | gcc -shared -fPIC -x c - -o "$work/own/lib/libonly_here.so"
clean_make deps DEPS="$work/own" "$only" programs_ci=sh
ok $? 'what is only in the prefix is found'

# --- a prefix as Debian's packages have it, unpacked without root
root=$(pwd)/$work/debian
mkdir -p "$root/usr/include" "$root/usr/lib/any-linux-gnu"
cp "$(echo '#include <xxhash.h>' | gcc -E - | sed -n 's/^# 1 "\(.*xxhash.h\)".*/\1/p' | head -n 1)" "$root/usr/include"
clean_make "$work/build/embfuse" -n V=1 DEPS="$root/usr"
tr ' ' '\n' <"$work/said" >"$work/words"
grep -qx "$root/usr/include" "$work/words" && grep -q "^-Wl,-rpath,$root/usr/lib/" "$work/words"
ok $? 'Debian packages: compiler and linker get their folders'

objects="$work/build/harness/workload/id_stats.o $work/build/build_info.h"
(CFLAGS=-H && export CFLAGS && clean_make $objects DEPS="$root/usr") &&
    grep -q "^[.]* $root/usr/include/xxhash.h" "$work/said" && ! grep -q "$root" "$work/build/build_info.h"
ok $? 'their headers are read, and a record does not name the folder'
echo "1..$n"
