#!/bin/sh
# A rule with more states than the check looks at does not compile. Prints TAP; runs from the suite's
# root with BUILD set (tests/run.sh).
set -u
work=$BUILD/tests/rules
rm -rf "$work"
mkdir -p "$work"
n=0

# compiles EXPECTED NAME SED: exit status 0 of the compiler, or its message about states.
compiles() {
    n=$((n + 1))
    sed "$3" kernels/rules.h >"$work/rules.h"
    cmp -s kernels/rules.h "$work/rules.h" && [ "$1" = no ] && echo "not ok $n - $2: the rules have changed" && return
    if echo '#include "rules.h"' | "${CC:-cc}" -std=gnu11 -fsyntax-only -I"$work" -x c - 2>"$work/stderr"; then
        result=yes
    elif grep -q 'adagrad: more states than' "$work/stderr"; then
        result=no
    else
        result=another
    fi
    if [ $result = "$1" ]; then echo "ok $n - $2"; else echo "not ok $n - $2: $result"; fi
}

compiles yes 'the rules as they are' ''
compiles no 'a row state too many' 's/"rowwise_adagrad", 0, 1/"rowwise_adagrad", 0, 2/'
compiles no 'an element state too many' 's/"adagrad", 1, 0/"adagrad", 3, 0/'
echo "1..$n"
