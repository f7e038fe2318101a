#!/bin/sh
# SPDX-License-Identifier: MIT
# make install, as a packager calls it, and programs that use what it installed: C99 to C++17, with pkg-config and
# with CMake, shared and static. What the header and the library promise equals tests/golden/abi.txt: after an intended
# change, RENEW=1 writes that file anew.
set -u
B=${BUILD:-build}
case $B in /*) ;; *) B=$PWD/$B ;; esac
W=$B/tests/install
here=extras/library/tests/install
CC=${CC:-gcc} CXX=${CXX:-g++}
rm -rf "$W" && mkdir -p "$W" || exit 1
n=0 failed=0

# try NAME COMMAND...: status 0.
try() {
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

P=$W/root/opt/embfuse
in_root() { make --no-print-directory "$1" B="$BUILD" NATIVE="${NATIVE:-1}" NVCC="${NVCC:-}" PREFIX=/opt/embfuse DESTDIR="$W/root"; }
try "make install with DESTDIR" in_root install
try "no file names the folder it was built in" sh -c "! grep -rl '$W' '$P/lib/pkgconfig' '$P/lib/cmake'"
try "the installed program runs" "$P/bin/embfuse" list
if ! command -v gnuplot >/dev/null; then
    n=$((n + 1))
    echo "ok $n - pictures, outside of the source tree # SKIP gnuplot is not installed"
else
    printf '1 2 3\n1 4\n1\n' >"$W/ids.txt"
    try "pictures, outside of the source tree" sh -c "cd '$W' && '$P/bin/embfuse' stats ids.txt --plot stats && \
        '$P/bin/embfuse' monitor ids.txt --plot monitor && test -s stats.png && test -s monitor.svg"
fi

# --- copied examples
T=$(mktemp -d) && trap 'rm -rf "$T"' EXIT && cp extras/library/examples/dlrm.c extras/library/examples/libembfuse.py "$T"
copied() { (cd "$T" && env -u EMBFUSE_LIBRARY "$@" "${PYTHON:-python3}" -c "$program"); }
program='import libembfuse as e; e.Model([dict(rows=3, dim=2, rule="sgd")], [{}]); assert e.constant.NONE == 2'
try "a copy of libembfuse.py" copied EMBFUSE_PREFIX="$P"
program='
try: import libembfuse
except ImportError as e: assert "EMBFUSE_PREFIX" in str(e), e
else: raise SystemExit("found a library")'
try "a copy of libembfuse.py says what it needs" copied -u EMBFUSE_PREFIX
try "... where nothing is installed, too" copied EMBFUSE_PREFIX="$T"

# --- the header alone
for how in "$CC -std=c99" "$CC -std=c11" "$CXX -std=c++17 -x c++"; do
    try "the header compiles alone: $how" $how -Wall -Wextra -Wpedantic -Werror -fsyntax-only "$P/include/embfuse.h"
done

# --- pkg-config
if ! command -v pkg-config >/dev/null; then
    n=$((n + 1))
    echo "ok $n - programs with pkg-config # SKIP pkg-config is not installed"
else
    export PKG_CONFIG_PATH=$P/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$W/root
    flags() { pkg-config --cflags --libs "$@" embfuse; }
    for how in "$CC -std=c99" "$CC -std=c11" "$CXX -std=c++17 -x c++"; do
        try "shared: $how" sh -c "$how -Wall -Wextra -Werror $here/user.c -x none $(flags) -o '$W/user' && LD_LIBRARY_PATH='$P/lib' '$W/user'"
    done
    # The static library, though the shared one lies beside it.
    static=$(flags --static | sed 's/-lembfuse/-l:libembfuse.a/')
    try "a copy of dlrm.c" sh -c "cd '$T' && $CC -O2 -Wall -Wextra -Werror dlrm.c $(flags) -lm -o dlrm && LD_LIBRARY_PATH='$P/lib' ./dlrm 3"
    try "static: $CC" sh -c "$CC $here/user.c $static -o '$W/user_static' && '$W/user_static'"
    try "the version is that of CITATION.cff" test "$(pkg-config --modversion embfuse)" = "$(sed -n 's/^version: //p' CITATION.cff)"
fi

# --- CMake
if ! command -v cmake >/dev/null; then
    n=$((n + 1))
    echo "ok $n - programs with CMake # SKIP cmake is not installed"
else
    try "CMake finds it" cmake -S $here -B "$W/cmake" -DCMAKE_PREFIX_PATH="$P" -DCMAKE_C_COMPILER="$CC"
    try "CMake builds with it" cmake --build "$W/cmake"
    try "CMake's programs" sh -c "'$W/cmake/user_shared' && '$W/cmake/user_static'"
fi

# --- symbols
try "the shared library shows nothing else" sh -c "! nm -D --defined-only '$P/lib/libembfuse.so' | grep -v ' embfuse_\| EMBFUSE_'"
try "the static library shows nothing else" sh -c "! nm --defined-only '$P/lib/libembfuse.a' | grep ' [A-TV-Z] ' | grep -v ' embfuse_'"
try "the library neither prints nor exits" sh -c "! nm -D --undefined-only '$P/lib/libembfuse.so' | grep -w 'exit\|_exit\|puts\|printf\|perror\|stdout\|stderr'"

# --- uninstall
touch "$P/lib/cmake/another" "$P/bin/another"
try "make uninstall" in_root uninstall
try "it leaves what others installed and nothing else" test "$(cd "$P" && find . ! -type d | sort)" = "./bin/another
./lib/cmake/another"
try "no folder is left that is named embfuse" test -z "$(find "$P"/* -name 'embfuse*')"
rm "$P/lib/cmake/another"
try "make uninstall, again" in_root uninstall

# The folder that it would install from. MAKEFLAGS has the NATIVE of a make that runs this test.
from() { env -u MAKEFLAGS -u NATIVE make -n install NVCC= "$@" | sed -n 's|^install \(.*\)/embfuse .*|\1|p'; }
try "what is installed is portable" expr "$(from)" : 'build/.*portable'
try "NATIVE=1 wins" sh -c "case '$(from NATIVE=1)' in '' | *portable*) exit 1 ;; esac"

echo "1..$n"
exit $failed
