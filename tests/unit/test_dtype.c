/* SPDX-License-Identifier: MIT
 *
 * Element types: every value of the narrow ones and both roundings against the oracle, which states them again,
 * and stochastic rounding against its expected value.
 */
#include <math.h>
#include <stdint.h>

#include "harness/check/oracle.h"

#include "tests/support/cmocka_cases.h"

static const enum dtype narrow[] = {BF16, FP16, FP8};
enum { NARROW = sizeof narrow / sizeof *narrow };

static void assert_same(float got, float want) {
    assert_true(isnan(want) ? isnan(got) : float_bits(got) == float_bits(want));
}

static void assert_rounds(enum dtype type, float x, uint32_t word) {
    for (int how = ROUND_NEAREST; how <= ROUND_STOCHASTIC; how++)
        assert_same(dtype_widen(type, dtype_narrow(type, x, (enum rounding)how, word)),
                    oracle_narrow(type, (enum rounding)how, word, x));
}

/* Every code has its value, and survives any rounding, as does the middle to the next one its own. */
static void every_value(void **state) {
    (void)state;
    for (int n = 0; n < NARROW; n++)
        for (uint32_t code = 0; code < (narrow[n] == FP8 ? 1u << 8 : 1u << 16); code++) {
            uint32_t memory = 0;
            dtype_put(narrow[n], &memory, 0, code);
            const float x = dtype_widen(narrow[n], code), next = dtype_widen(narrow[n], code + 1);
            assert_same(x, oracle_element(narrow[n], &memory, 0));
            for (uint32_t word = 0; word < 3; word++) { /* all ones, 0, 1 */
                assert_rounds(narrow[n], x, word - 1u);
                if (!isnan(x))
                    assert_int_equal(dtype_narrow(narrow[n], x, ROUND_STOCHASTIC, word - 1u), code);
                if (isfinite(x) && isfinite(next))
                    assert_rounds(narrow[n], (x + next) / 2, word - 1u);
            }
        }
}

static void rounds_as_the_oracle(void **state) {
    (void)state;
    for (int n = 0; n < NARROW; n++)
        for (uint32_t i = 0; i < 100000; i++) { /* any float, then some in the type's range */
            assert_rounds(narrow[n], bits_float(rng_u32(7, i)), rng_u32(12, i));
            assert_rounds(narrow[n],
                          ldexpf((float)(int32_t)rng_u32(8, i) * 0x1p-31f, (int)(i % 40) - 24),
                          rng_u32(13, i));
        }
    assert_true(dtype_round(BF16, 0x1.01p0f) == 1 && dtype_round(BF16, 0x1.03p0f) == 0x1.04p0f);
    assert_true(isinf(dtype_round(BF16, INFINITY)) && isinf(dtype_round(FP16, -INFINITY)));
    assert_true(isinf(dtype_round(FP16, 65520)) && dtype_round(FP16, 65519) == 65504);
    assert_true(dtype_round(FP8, 1e30f) == 448 && dtype_round(FP8, -449) == -448);
    assert_true(isnan(dtype_round(FP8, INFINITY)) && isnan(dtype_round(FP8, NAN)));
}

/* Stochastic rounding is unbiased: over N words, the mean of what x becomes differs from x by less than 5
 * standard deviations. It takes what the least or what the largest word gives. Values have parts of a unit of
 * the last place near 0, 1/2 and 1, and results are normal and subnormal. */
static void stochastic_is_unbiased(void **state) {
    (void)state;
    enum { N = 20000, VALUES = 60 };
    for (int n = 0; n < NARROW; n++)
        for (uint32_t v = 0; v < VALUES; v++) {
            const int least = dtype_least_exponent(narrow[n]);
            const int scale = v % 3 == 0 ? least - 2 : v % 3 == 1 ? least + 1 : 0;
            const float x = ldexpf(1 + rng_u32(11, v) * 0x1p-32f, scale) * (v % 2 ? -1.0f : 1.0f);
            double end[2], sum = 0;
            for (uint32_t k = 0; k < 2; k++)
                end[k] =
                    dtype_widen(narrow[n], dtype_narrow(narrow[n], x, ROUND_STOCHASTIC, 0 - k));
            const double unit = end[1] - end[0], part = (x - end[0]) / unit;
            for (uint32_t i = 0; i < N; i++) {
                const double drawn = dtype_widen(
                    narrow[n], dtype_narrow(narrow[n], x, ROUND_STOCHASTIC, rng_u32(1000 + v, i)));
                assert_true(drawn == end[0] || drawn == end[1]);
                sum += (drawn - end[0]) / unit;
            }
            assert_true(fabs(sum / N - part) <= 5 * sqrt(part * (1 - part) / N) + 1e-9);
        }
}

TESTS(dtype) {
    ADD_TEST(every_value);
    ADD_TEST(rounds_as_the_oracle);
    ADD_TEST(stochastic_is_unbiased);
    return run_listed("dtype");
}
