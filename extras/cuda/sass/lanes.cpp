/* SPDX-License-Identifier: MIT
 *
 * Exchanges between lanes, and moves between predicates, uniform and special registers.
 */
#include "extras/cuda/sass/step.h"

namespace sass {

void vote(step &s) {
    const uint32_t yes = s.in(0) & s.lanes;
    EACH(l) s.result[l] = yes;
    put(s.w, s.i.to, s.result, s.lanes);
    const bool all = yes == s.lanes;
    const bool r = has(s.i, MOD_ALL) ? all : has(s.i, MOD_EQ) ? all || !yes : yes != 0;
    s.out(0, r ? 0xffffffff : 0);
}

void shuffle(step &s) {
    uint32_t good = 0;
    EACH(l) {
        const uint32_t me = (uint32_t)l, n = s.b[l] & 31, clamp = s.c[l] & 31,
                       segment = s.c[l] >> 8 & 31;
        const uint32_t first = me & segment, last = first | (clamp & ~segment);
        int from = has(s.i, MOD_UP)     ? (int)(me - n)
                   : has(s.i, MOD_DOWN) ? (int)(me + n)
                   : has(s.i, MOD_BFLY) ? (int)(me ^ n)
                                        : (int)(first | (n & ~segment));
        const bool fine = has(s.i, MOD_UP) ? from >= (int)last : from <= (int)last;
        if (!fine) from = l;
        good |= (uint32_t)fine << l;
        s.result[l] = s.a[from];
    }
    put(s.w, s.i.to, s.result, s.lanes);
    s.out(0, good);
}

void match(step &s) {
    EACH(l) {
        s.result[l] = 0;
        EACH(k) s.result[l] |= (uint32_t)(s.lanes >> k & 1 && s.a[k] == s.a[l]) << k;
    }
    put(s.w, s.i.to, s.result, s.lanes);
}

void reduce(step &s) {
    if (!s.lanes) return;
    uint32_t r = s.a[__builtin_ctz(s.lanes)];
    for (uint32_t rest = s.lanes & (s.lanes - 1); rest; rest &= rest - 1) {
        const uint32_t x = s.a[__builtin_ctz(rest)];
        const bool is_signed = has(s.i, MOD_S32), least = has(s.i, MOD_MIN);
        if (least || has(s.i, MOD_MAX))
            r = is_signed ? (uint32_t)extreme((int32_t)r, (int32_t)x, least) : extreme(r, x, least);
        else
            r = has(s.i, MOD_SUM)   ? r + x
                : has(s.i, MOD_OR)  ? r | x
                : has(s.i, MOD_XOR) ? r ^ x
                                    : r & x;
    }
    EACH(l) s.result[l] = r;
    put(s.w, s.i.to, s.result, s.lanes);
}

/* The predicate: lanes that have another value than the one that was taken. */
void to_uniform(step &s) {
    if (!s.lanes) return;
    const uint32_t taken = s.a[__builtin_ctz(s.lanes)];
    const uint32_t others = s.votes([&](int l) { return s.a[l] != taken; });
    put(s.w, s.i.to, s.a, s.lanes);
    s.out(0, has(s.i, MOD_OR) ? others | predicate(s.w, s.i.out[0]) : others);
}

void from_predicates(step &s) {
    EACH(l) {
        uint32_t all = 0;
        for (int k = 0; k < PT; k++) all |= (s.w.predicate[k] >> l & 1) << k;
        s.result[l] = (s.a[l] & ~s.i.extra) | (all & s.i.extra);
    }
    put(s.w, s.i.to, s.result, s.lanes);
}

void to_predicates(step &s) {
    for (int k = 0; k < PT; k++)
        if (s.i.extra >> k & 1)
            put_predicate(s.w, k, s.votes([&](int l) { return s.a[l] >> k & 1; }), s.lanes);
}

/* Special registers, in the order of decode.py. */
void special_register(step &s) {
    EACH(l) {
        const uint32_t me = 1u << l;
        const uint32_t all[] = {
            0,      s.w.first + (uint32_t)l, s.w.machine->block, (uint32_t)l, SHARED_WINDOW, me,
            me - 1, me | (me - 1),           ~(me | (me - 1)),   ~(me - 1)};
        s.result[l] = all[s.i.extra];
    }
    put(s.w, s.i.to, s.result, s.lanes);
}

} // namespace sass
