#!/bin/sh
# SPDX-License-Identifier: MIT
# A rule with too many states or hyper-parameters must not compile. Prints TAP; runs from the suite's root with
# BUILD set (tests/run.sh).
set -u
work=$BUILD/tests/rules
n=0

# compiles EXPECTED NAME RULE SED: EXPECTED is yes or no; SED changes rules/RULE.h.
compiles() {
    n=$((n + 1))
    rm -rf "$work"
    mkdir -p "$work/rules"
    sed "$4" "rules/$3.h" >"$work/rules/$3.h"
    if cmp -s "rules/$3.h" "$work/rules/$3.h" && [ "$1" = no ]; then
        echo "not ok $n - $2: rules/$3.h has changed"
        return
    fi
    if echo '#include "kernels/rules.h"' | "${CC:-cc}" -std=gnu11 -Werror -fsyntax-only -I"$work" -I. \
        -I"$BUILD" -x c - 2>"$work/stderr"; then
        result=yes
    elif grep -q "$work/rules/$3.h.*excess elements in array initializer" "$work/stderr"; then
        result=no
    else
        result=another
    fi
    if [ $result = "$1" ]; then echo "ok $n - $2"; else echo "not ok $n - $2: $result"; fi
}

compiles yes 'the rules as they are' sgd ''
state='{"x", 0, 0, 1}'
compiles no 'a row state too many' rowwise_adagrad "s/\.row = {/&$state, $state, /"
compiles no 'an element state too many' adagrad "s/\.elem = {/&$state, $state, $state, /"
two='{"x", 0, RULE_ANY}, {"y", 0, RULE_ANY}, '
compiles no 'a hyper-parameter too many' lamb "s/\.params = {/&$two$two/"
echo "1..$n"
