/* SPDX-License-Identifier: MIT
 *
 * Integers, bits and predicates.
 */
#include "extras/cuda/sass/step.h"

namespace sass {

void add3(step &s) {
    const bool carries = has(s.i, MOD_X);
    const uint32_t p = carries ? s.in(0) : 0, q = carries ? s.in(1) : 0;
    uint32_t one = 0, two = 0;
    EACH(l) {
        const uint64_t sum =
            (uint64_t)s.a[l] + s.b[l] + s.c[l] + s.i.extra + (p >> l & 1) + (q >> l & 1);
        s.result[l] = (uint32_t)sum;
        one |= (uint32_t)(sum >> 32 > 0) << l, two |= (uint32_t)(sum >> 32 > 1) << l;
    }
    put(s.w, s.i.to, s.result, s.lanes);
    s.out(0, one), s.out(1, two);
}

void multiply_add(step &s) {
    const bool wide = has(s.i, MOD_WIDE), high = has(s.i, MOD_HI), is_signed = !has(s.i, MOD_U32);
    const uint32_t carry = has(s.i, MOD_X) ? s.in(0) : 0;
    if (!wide && !high) {
        EACH(l) s.result[l] = s.a[l] * s.b[l] + s.c[l] + (carry >> l & 1);
        put(s.w, s.i.to, s.result, s.lanes);
        return;
    }
    uint64_t c[LANES], sum[LANES];
    uint32_t over = 0;
    wide_values(s.w, s.i.from[2], c);
    EACH(l) {
        const uint64_t product = is_signed ? (uint64_t)((int64_t)(int32_t)s.a[l] * (int32_t)s.b[l])
                                           : (uint64_t)s.a[l] * s.b[l];
        sum[l] = product + c[l];
        over |= (uint32_t)(sum[l] < product) << l;
        sum[l] += carry >> l & 1;
        over |= (uint32_t)((carry >> l & 1) && sum[l] == 0) << l;
    }
    operand to = s.i.to;
    if (wide) {
        EACH(l) s.result[l] = (uint32_t)sum[l];
        put(s.w, to, s.result, s.lanes);
        to.reg += to.reg != RZ && to.reg != URZ;
    }
    EACH(l) s.result[l] = (uint32_t)(sum[l] >> 32);
    put(s.w, to, s.result, s.lanes);
    s.out(0, over);
}

void scaled_add(step &s) {
    const int shift = (int)s.i.extra;
    const uint32_t carry = has(s.i, MOD_X) ? s.in(0) : 0;
    uint32_t over = 0;
    EACH(l) {
        uint64_t x = (uint64_t)s.a[l] << shift;
        if (has(s.i, MOD_SX32))
            x = (uint64_t)((int64_t)(int32_t)s.a[l] << shift);
        else if (has(s.i, MOD_HI))
            x = (s.a[l] | (uint64_t)s.c[l] << 32) << shift;
        const uint64_t sum =
            (has(s.i, MOD_HI) ? x >> 32 : (uint32_t)x) + (uint64_t)s.b[l] + (carry >> l & 1);
        s.result[l] = (uint32_t)sum;
        over |= (uint32_t)(sum >> 32 != 0) << l;
    }
    put(s.w, s.i.to, s.result, s.lanes);
    s.out(0, over);
}

/* {c, a} shifted by b bits; its lower or higher half. */
void shift(step &s) {
    const bool wide = has(s.i, MOD_U64) || has(s.i, MOD_S64), left = has(s.i, MOD_L);
    const bool is_signed = has(s.i, MOD_S32) || has(s.i, MOD_S64), high = has(s.i, MOD_HI);
    const uint32_t most = wide ? 63 : 32, wraps = wide ? 63 : 31;
    s.integers([=](uint32_t a, uint32_t b, uint32_t c) {
        const uint32_t n = has(s.i, MOD_W) ? b & wraps : b < most ? b : most;
        const uint64_t both = a | (uint64_t)c << 32;
        const uint64_t r = left        ? both << n
                           : is_signed ? (uint64_t)((int64_t)both >> n)
                                       : both >> n;
        return (uint32_t)(high ? r >> 32 : r);
    });
}

/* Any function of three bits: bit 4a + 2b + c of the table is its value. */
static uint32_t by_table(uint32_t table, uint32_t a, uint32_t b, uint32_t c) {
    uint32_t r = 0;
    for (int k = 0; k < 8; k++)
        if (table >> k & 1) r |= (k & 4 ? a : ~a) & (k & 2 ? b : ~b) & (k & 1 ? c : ~c);
    return r;
}

void logic3(step &s) {
    EACH(l) s.result[l] = by_table(s.i.extra, s.a[l], s.b[l], s.c[l]);
    const uint32_t some = s.votes([&](int l) { return s.result[l] != 0; });
    put(s.w, s.i.to, s.result, s.lanes);
    s.out(0, has(s.i, MOD_PAND) ? some & s.in(0) : some | s.in(0));
}

void predicate_logic3(step &s) {
    const uint32_t p = s.in(0), q = s.in(1), r = s.in(2);
    s.out(0, by_table(s.i.extra & 0xff, p, q, r)), s.out(1, by_table(s.i.extra >> 8, p, q, r));
}

uint32_t permuted(uint32_t a, uint32_t selector, uint32_t c) {
    const uint64_t both = a | (uint64_t)c << 32;
    uint32_t r = 0;
    for (int k = 0; k < 4; k++) {
        const uint32_t n = selector >> (4 * k) & 15;
        uint32_t byte = (uint32_t)(both >> (n & 7) * 8) & 255;
        if (n & 8) byte = byte & 128 ? 255 : 0;
        r |= byte << 8 * k;
    }
    return r;
}

uint32_t reversed(uint32_t x) {
    uint32_t r = 0;
    for (int k = 0; k < 32; k++) r |= (x >> k & 1) << (31 - k);
    return r;
}

/* The number of the first bit that is not the sign; with SH, by how much to shift it to the top. */
uint32_t leading(const instruction &i, uint32_t x) {
    if (has(i, MOD_S32) && x >> 31) x = ~x;
    if (!x) return 0xffffffff;
    return (uint32_t)(has(i, MOD_SH) ? __builtin_clz(x) : 31 - __builtin_clz(x));
}

void join(step &s, uint32_t r) {
    const uint32_t p = s.in(0);
    auto with = [&](uint32_t x) {
        return has(s.i, MOD_OR) ? x | p : has(s.i, MOD_XOR) ? x ^ p : x & p;
    };
    const uint32_t no = with(~r);
    s.out(0, with(r)), s.out(1, no);
}

/* With EX a and b are the upper halves, and the second predicate says how the lower ones compare. */
void compare_integers(step &s) {
    const bool is_signed = !has(s.i, MOD_U32), extends = has(s.i, MOD_EX);
    const uint32_t low = s.in(1);
    join(s, s.votes([&](int l) -> uint32_t {
        const uint32_t a = s.a[l], b = s.b[l];
        if (extends && a == b) return low >> l & 1;
        const int r = is_signed ? relation((int32_t)a, (int32_t)b) : relation(a, b);
        return s.i.compare >> r & 1;
    }));
}

void extremes(step &s) {
    const bool is_signed = !has(s.i, MOD_U32), adds = s.i.op == OP_VIADDMNMX;
    const bool three = !adds && s.i.from[2].kind != NONE;
    const uint32_t p = s.in(0);
    auto of_two = [&](uint32_t x, uint32_t y, bool least) {
        return is_signed ? (uint32_t)extreme((int32_t)x, (int32_t)y, least) : extreme(x, y, least);
    };
    EACH(l) {
        const bool least = p >> l & 1;
        uint32_t r = adds ? of_two(s.a[l] + s.b[l], s.c[l], least) : of_two(s.a[l], s.b[l], least);
        if (three) r = of_two(r, s.c[l], least);
        s.result[l] = r;
    }
    put(s.w, s.i.to, s.result, s.lanes);
}

} // namespace sass
