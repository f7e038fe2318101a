/* SPDX-License-Identifier: MIT
 *
 * Element types: every value of the narrow ones, rounding to nearest against arithmetic in doubles,
 * and stochastic rounding against its expected value.
 */
#include <math.h>
#include <stdint.h>

#include "kernels/dtype.h"
#include "kernels/rng.h"

#include "tests/support/cmocka_cases.h"

static const enum dtype narrow[] = {BF16, FP16, FP8};
enum { NARROW = sizeof narrow / sizeof *narrow };

static uint32_t codes(enum dtype type) {
    return type == FP8 ? 1u << 8 : 1u << 16;
}

/* The value of a code, from the definition of its format; fp8 has only NaN where others have
 * infinity. */
static double value_of(enum dtype type, uint32_t code) {
    const int mantissa = dtype_mantissa(type), bits = type == FP8 ? 8 : 16;
    const uint32_t fields = 1u << mantissa, exponents = 1u << (bits - 1 - mantissa);
    const uint32_t exponent = code >> mantissa & (exponents - 1), fraction = code & (fields - 1);
    const double sign = code >> (bits - 1) ? -1 : 1;
    if (type == FP8 ? (code & 0x7f) == 0x7f : exponent == exponents - 1)
        return type == FP8 || fraction ? (double)NAN : sign * INFINITY;
    const int power = dtype_least_exponent(type) - mantissa + (exponent ? (int)exponent - 1 : 0);
    return sign * ldexp((exponent ? fields : 0) + fraction, power);
}

static uint32_t nearest_code(enum dtype type, float x) {
    return dtype_narrow(type, x, ROUND_NEAREST, 0);
}

/* Every code has its value, and survives any rounding. A NaN stays a NaN. */
static void every_value(void **state) {
    (void)state;
    for (int n = 0; n < NARROW; n++)
        for (uint32_t code = 0; code < codes(narrow[n]); code++) {
            const double want = value_of(narrow[n], code);
            const float x = dtype_widen(narrow[n], code);
            assert_true(isnan(want) ? isnan(x) : x == want && !signbit(x) == !signbit(want));
            for (uint32_t word = 0; word < 3; word++) {
                const uint32_t random = word - 1u; /* all ones, 0, 1 */
                const uint32_t near = nearest_code(narrow[n], x);
                const uint32_t drawn = dtype_narrow(narrow[n], x, ROUND_STOCHASTIC, random);
                if (isnan(x))
                    assert_true(isnan(dtype_widen(narrow[n], near)) &&
                                isnan(dtype_widen(narrow[n], drawn)));
                else
                    assert_true(near == code && drawn == code);
            }
        }
}

/* A positive code around x: the last whose value is at most |x|. Finite codes ascend with their
 * values. */
static uint32_t code_below(enum dtype type, double x) {
    uint32_t lo = 0, hi = codes(type) / 2;
    while (hi - lo > 1) {
        const uint32_t mid = lo + (hi - lo) / 2;
        if (value_of(type, mid) <= x)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

/* The nearest of two neighbours; in the middle, the even one. The neighbour above the largest is
 * where the next exponent would begin; fp8 saturates there. */
static uint32_t code_near(enum dtype type, float x) {
    const uint32_t below = code_below(type, fabs((double)x)), above = below + 1;
    const double low = value_of(type, below), high = value_of(type, above);
    const double gap = low - value_of(type, below - 1); /* where `above` is no number */
    const double up = (isfinite(high) ? high : low + gap) - fabs((double)x);
    const double down = fabs((double)x) - low;
    const bool takes_lower = down < up || (down == up && below % 2 == 0);
    const bool saturates = type == FP8 && !isfinite(high);
    return (takes_lower || saturates ? below : above) | (signbit(x) ? codes(type) / 2 : 0);
}

static void rounds_to_nearest_even(void **state) {
    (void)state;
    for (int n = 0; n < NARROW; n++) {
        const enum dtype type = narrow[n];
        for (uint32_t i = 0; i < 100000; i++) { /* any float, then some in the type's range */
            const float any = bits_float(rng_u32(7, i));
            const float near = ldexpf((float)(int32_t)rng_u32(8, i) * 0x1p-31f, (int)(i % 40) - 24);
            if (isfinite(any)) assert_int_equal(nearest_code(type, any), code_near(type, any));
            assert_int_equal(nearest_code(type, near), code_near(type, near));
        }
        for (uint32_t code = 0; code < codes(type) / 2 - 1;
             code++) { /* values, and middles of two */
            const double x = value_of(type, code), y = value_of(type, code + 1);
            if (!isfinite(x) || !isfinite(y)) continue;
            assert_int_equal(nearest_code(type, (float)((x + y) / 2)),
                             code_near(type, (float)((x + y) / 2)));
        }
    }
    assert_true(isinf(dtype_round(BF16, INFINITY)) && isinf(dtype_round(FP16, -INFINITY)));
    assert_true(isinf(dtype_round(FP16, 65520)) && dtype_round(FP16, 65519) == 65504);
    assert_true(dtype_round(FP8, 1e30f) == 448 && dtype_round(FP8, -449) == -448);
    assert_true(isnan(dtype_round(FP8, INFINITY)) && isnan(dtype_round(FP8, NAN)));
}

/* dtype_unit() and dtype_tiny() bound the error of one rounding, and not by far. */
static void error_is_bounded(void **state) {
    (void)state;
    for (int n = 0; n < NARROW; n++)
        for (int how = ROUND_NEAREST; how <= ROUND_STOCHASTIC; how++) {
            double worst = 0;
            for (uint32_t i = 0; i < 100000; i++) {
                const float x =
                    ldexpf((float)(int32_t)rng_u32(9, i) * 0x1p-31f, (int)(i % 30) - 22);
                const uint32_t code =
                    dtype_narrow(narrow[n], x, (enum rounding)how, rng_u32(10, i));
                const double off = fabs((double)dtype_widen(narrow[n], code) - x);
                const double bound =
                    fmax(dtype_unit(narrow[n], (enum rounding)how) * fabs((double)x),
                         dtype_tiny(narrow[n]));
                assert_true(off <= bound);
                if (off / bound > worst) worst = off / bound;
            }
            assert_true(worst > 0.9);
        }
}

/* Stochastic rounding is unbiased: over N words, the mean of what x becomes differs from x by
 * less than 5 standard deviations. It takes one of x's two neighbours, each at some time. Values
 * have parts of a unit of the last place near 0, 1/2 and 1, and results are normal and
 * subnormal. */
static void stochastic_is_unbiased(void **state) {
    (void)state;
    enum { N = 20000, VALUES = 60 };
    for (int n = 0; n < NARROW; n++)
        for (uint32_t v = 0; v < VALUES; v++) {
            const int least = dtype_least_exponent(narrow[n]);
            const int scale = v % 3 == 0 ? least - 2 : v % 3 == 1 ? least + 1 : 0;
            const float x = ldexpf(1 + rng_u32(11, v) * 0x1p-32f, scale) * (v % 2 ? -1.0f : 1.0f);
            const uint32_t below = code_below(narrow[n], fabs((double)x));
            const double low = value_of(narrow[n], below),
                         unit = value_of(narrow[n], below + 1) - low;
            const double part = (fabs((double)x) - low) / unit;
            int64_t upper = 0;
            for (uint32_t i = 0; i < N; i++) {
                const uint32_t code =
                    dtype_narrow(narrow[n], x, ROUND_STOCHASTIC, rng_u32(1000 + v, i));
                const uint32_t step = (code & (codes(narrow[n]) / 2 - 1)) - below;
                assert_true(step <= 1);
                assert_true(code / (codes(narrow[n]) / 2) == (x < 0));
                upper += step;
            }
            const double off = (double)upper / N - part;
            assert_true(fabs(off) <= 5 * sqrt(part * (1 - part) / N) + 1e-9);
        }
}

TESTS(dtype) {
    ADD_TEST(every_value);
    ADD_TEST(rounds_to_nearest_even);
    ADD_TEST(error_is_bounded);
    ADD_TEST(stochastic_is_unbiased);
    return run_added("dtype");
}
