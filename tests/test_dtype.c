/* SPDX-License-Identifier: MIT
 *
 * Types of weights: every bfloat16, and rounding to bfloat16, against arithmetic in doubles.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "harness/rng.h"
#include "kernels/dtype.h"

#include "tests/cmocka_cases.h"

static float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Every value survives; a NaN stays a NaN. */
static void every_bf16(void **state) {
    (void)state;
    for (uint32_t bits = 0; bits < 1u << 16; bits++) {
        const float x = bf16_widen((uint16_t)bits);
        assert_int_equal(bits_of(x), bits << 16);
        if (x != x)
            assert_true(isnan(bf16_widen(bf16_round(x))));
        else
            assert_int_equal(bf16_round(x), bits);
    }
}

/* The nearest of the two neighbours; in the middle, the even one. */
static uint16_t nearest(float x) {
    const uint16_t below = (uint16_t)(bits_of(x) >> 16), above = (uint16_t)(below + 1);
    const double down = fabs((double)x - bf16_widen(below));
    const double up = isinf(bf16_widen(above)) ? ldexp(1, 128) - fabs((double)x)
                                               : fabs((double)x - bf16_widen(above));
    return down < up || (down == up && below % 2 == 0) ? below : above;
}

static void rounds_to_nearest_even(void **state) {
    (void)state;
    static const uint32_t corners[] = {0,          1,          0x7fff,     0x8000,     0x8001,
                                       0x18000,    0x3f808000, 0x3f818000, 0x3f80ffff, 0x7f7f7fff,
                                       0x7f7f8000, 0x7f7fffff, 0x00800000, 0x007fffff};
    for (size_t i = 0; i < sizeof corners / sizeof *corners; i++)
        for (uint32_t sign = 0; sign < 2; sign++) {
            const float x = float_of(corners[i] | sign << 31);
            assert_int_equal(bf16_round(x), nearest(x));
        }
    for (uint32_t i = 0; i < 1000000; i++) {
        const float x = float_of(rng_u32(7, i));
        if (isfinite(x)) assert_int_equal(bf16_round(x), nearest(x));
    }
    assert_int_equal(bf16_round(INFINITY), 0x7f80);
    assert_int_equal(bf16_round(float_of(0x7f800001)), 0x7fc0); /* no infinity */
}

/* dtype_unit() and dtype_tiny() bound the error of one rounding. */
static void error_is_bounded(void **state) {
    (void)state;
    double worst = 0;
    for (uint32_t i = 0; i < 1000000; i++) {
        const float x = float_of(rng_u32(8, i) & ~(1u << 30)); /* below 2 */
        const double off = fabs((double)dtype_round(BF16, x) - x);
        const double bound = fmax(dtype_unit(BF16) * fabs((double)x), dtype_tiny(BF16));
        assert_true(off <= bound);
        if (off / bound > worst) worst = off / bound;
    }
    assert_true(worst > 0.9);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_bf16),
                                       cmocka_unit_test(rounds_to_nearest_even),
                                       cmocka_unit_test(error_is_bounded)};
    return cmocka_run_group_tests_name("dtype", tests, NULL, NULL);
}
