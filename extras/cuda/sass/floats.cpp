/* SPDX-License-Identifier: MIT
 *
 * Floats.
 *
 * MUFU is the correctly rounded value; a device's differs in the last bits. The Newton steps that
 * nvcc adds after it for a division or a root correct both.
 */
#include "extras/cuda/sass/step.h"

namespace sass {

/* The neighbour of `nearest` in the direction that the instruction rounds to. above: the exact value
 * is greater (1), less (-1) or equal (0). */
static float directed(const instruction &i, float nearest, int above) {
    const bool up = has(i, MOD_RP) || (has(i, MOD_RZ) && nearest < 0);
    const bool down = has(i, MOD_RM) || (has(i, MOD_RZ) && nearest > 0);
    if (up && above > 0) return std::nextafter(nearest, INFINITY);
    if (down && above < 0) return std::nextafter(nearest, -INFINITY);
    return nearest;
}

float fused(const instruction &i, float a, float b, float c) {
    const float nearest = std::fma(a, b, c);
    if (!(has(i, MOD_RP) || has(i, MOD_RM) || has(i, MOD_RZ))) return nearest;
    /* The product is exact in double; of the sum, `lost` is what its rounding left out. */
    const double product = (double)a * b, sum = product + c, part = sum - product;
    const double lost = (product - (sum - part)) + (c - part);
    const double above = sum != nearest ? sum - nearest : lost;
    return directed(i, nearest, (above > 0) - (above < 0));
}

/* True if a/b needs the slow way: an exponent of the operands or of the quotient is near the ends. Zero
 * needs it, too, because the fast way loses the sign of -0/b. */
bool division_is_slow(uint32_t a, uint32_t b) {
    const int x = a >> 23 & 255, y = b >> 23 & 255;
    return x == 255 || x <= 24 || y <= 1 || y >= 252 || x - y >= 127 || x - y <= -125;
}

float special(const instruction &i, float value) {
    const double x = value;
    if (has(i, MOD_RCP)) return (float)(1 / x);
    if (has(i, MOD_RSQ)) return (float)(1 / std::sqrt(x));
    if (has(i, MOD_SQRT)) return (float)std::sqrt(x);
    if (has(i, MOD_EX2)) return (float)std::exp2(x);
    return (float)std::log2(x);
}

void integer_to_float(step &s) {
    uint64_t wide[LANES];
    const bool is_signed = !has(s.i, MOD_U32) && !has(s.i, MOD_U64);
    const bool is_wide = has(s.i, MOD_S64) || has(s.i, MOD_U64);
    wide_values(s.w, s.i.from[0], wide);
    EACH(l) {
        const uint64_t x = is_wide ? wide[l] : is_signed ? (uint64_t)(int32_t)s.a[l] : s.a[l];
        const long double exact = is_signed ? (long double)(int64_t)x : (long double)x;
        const float nearest = (float)exact;
        s.result[l] = float_bits(directed(s.i, nearest, (exact > nearest) - (exact < nearest)));
    }
    put(s.w, s.i.to, s.result, s.lanes);
}

static uint64_t whole(const instruction &i, float value) {
    const bool is_signed = !has(i, MOD_U32) && !has(i, MOD_U64);
    const int bits = (has(i, MOD_S64) || has(i, MOD_U64) ? 64 : 32) - is_signed;
    const double most = std::ldexp(1.0, bits), least = is_signed ? -most : 0;
    double x = has(i, MOD_FTZ) ? step::flushed(value) : value;
    if (x != x) return 0;
    x = has(i, MOD_TRUNC)   ? std::trunc(x)
        : has(i, MOD_FLOOR) ? std::floor(x)
        : has(i, MOD_CEIL)  ? std::ceil(x)
                            : std::nearbyint(x);
    if (x >= most) return bits == 64 ? ~0ull : (1ull << bits) - 1;
    return x < least ? (uint64_t)(int64_t)least : is_signed ? (uint64_t)(int64_t)x : (uint64_t)x;
}

void float_to_integer(step &s) {
    uint32_t high[LANES];
    EACH(l) {
        const uint64_t x = whole(s.i, bits_float(s.a[l]));
        s.result[l] = (uint32_t)x, high[l] = (uint32_t)(x >> 32);
    }
    put(s.w, s.i.to, s.result, s.lanes);
    operand to = s.i.to;
    to.reg++;
    if (has(s.i, MOD_S64) || has(s.i, MOD_U64)) put(s.w, to, high, s.lanes);
}

void compare_floats(step &s) {
    const bool flush = has(s.i, MOD_FTZ);
    join(s, s.votes([&](int l) {
        float x = bits_float(s.a[l]), y = bits_float(s.b[l]);
        if (flush) x = step::flushed(x), y = step::flushed(y);
        return s.i.compare >> relation(x, y) & 1;
    }));
}

} // namespace sass
