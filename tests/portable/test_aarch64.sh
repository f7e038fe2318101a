#!/bin/sh
# SPDX-License-Identifier: MIT
# Hosts that are not x86-64: the flags of the Makefile, and every C source of the programs and the library, read by a
# compiler for aarch64 (Debian's gcc-aarch64-linux-gnu). Prints TAP; runs from the suite's root with BUILD set
# (tests/run.sh).
set -u
work=$BUILD/tests/aarch64
rm -rf "$work"
mkdir -p "$work"
cross=aarch64-linux-gnu-gcc
n=0

ok() { # STATUS NAME: 0 passes
    n=$((n + 1))
    if [ "$1" -eq 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; sed 's/^/# /' "$work/said" | head -n 20; fi
}
flags() { # of an object, by a compiler that says it is for that machine
    printf '#!/bin/sh\n[ "$*" = -dumpmachine ] && echo %s || exec gcc "$@"\n' "$1" >"$work/$1-gcc"
    chmod +x "$work/$1-gcc"
    env -u MAKEFLAGS -u MAKELEVEL make --no-print-directory -n V=1 NATIVE=1 SANITIZE= NVCC= CC="$work/$1-gcc" CXX=g++ \
        B="$work/none" "$work/none/harness/memory.o" >"$work/said" 2>&1
}

flags aarch64-linux-gnu && grep -q -- '-march=native' "$work/said" && ! grep -q 'prefer-vector-width' "$work/said"
ok $? 'the width of vectors is no flag on aarch64'
flags x86_64-linux-gnu && grep -q -- '-march=native -mprefer-vector-width=512' "$work/said"
ok $? 'and is one on x86-64'

if ! command -v $cross >/dev/null; then
    echo "ok 3 - host sources # SKIP no $cross"
    echo 1..3
    exit 0
fi
mkdir -p "$work/lists"
for list in rule_list rule_files oracle_files build_info; do cp "$BUILD/$list.h" "$work/lists"; done
cp "$BUILD"/*_verified.inc "$BUILD/extra_commands.inc" "$work/lists"
(cd "$BUILD" && find cli extras -name '*.gp.h' -exec tar cf - {} +) | tar xf - -C "$work/lists"
printf 'KERNEL(cpu, cpu_fused, )\n' >"$work/lists/kernel_list.inc"
# The library's headers of this machine serve: they are looked up last. Files of CUDA have tests of their own.
find harness kernels cli extras/*/*.c -name '*.c' |
    grep -v 'device_\(cuda\|graph\|step\)\|transport_[mn]' |
    xargs -P 2 -n 8 $cross -std=gnu11 -march=armv9-a -fopenmp -ffp-contract=off -Wall -Wextra -Wshadow -Wpointer-arith \
        -Wno-missing-field-initializers -Wstrict-prototypes -Wmissing-prototypes -Werror -fsyntax-only -I. -I"$work/lists" \
        -DRULE=sgd -DISAS='ISA(native, )' -idirafter /usr/include -idirafter "/usr/include/$(gcc -dumpmachine)" \
        >"$work/said" 2>&1
ok $? 'host sources for the CPUs beside GPUs (armv9-a)'
echo "1..$n"
