/* SPDX-License-Identifier: MIT
 *
 * Arithmetic of struct num: each operation also computes the error bound of its result.
 */
#pragma once

#include <float.h>
#include <math.h>

#include "harness/check/oracle.h"

/* Relative error of one rounding to float, and the absolute error for subnormal floats. */
static const double unit = 0x1p-24, tiny = 0x1p-149;

/* fmax() and fmin(), inlined; the C library's are calls. If one argument is a NaN, the result is the other. */
static inline double greater(double a, double b) {
    return a > b || b != b ? a : b;
}

static inline double lesser(double a, double b) {
    return a < b || b != b ? a : b;
}

static inline struct num exactly(double value) {
    return (struct num){value, 0};
}

/* A value with error `inherited` before its own rounding to float. */
static inline struct num rounded(double value, double inherited) {
    if (value == 0 && inherited == 0) return exactly(0);
    double error = inherited + unit * (fabs(value) + inherited) + tiny;
    return (struct num){value, fabs(value) + error < FLT_MAX ? error : INFINITY};
}

static inline struct num add(struct num a, struct num b) {
    return rounded(a.value + b.value, a.error + b.error);
}

static inline struct num sub(struct num a, struct num b) {
    return rounded(a.value - b.value, a.error + b.error);
}

static inline struct num mul(struct num a, struct num b) {
    return rounded(a.value * b.value,
                   fabs(a.value) * b.error + fabs(b.value) * a.error + a.error * b.error);
}

/* b is positive, and its evaluation is never below `least`. */
static inline struct num quot(struct num a, struct num b, double least) {
    double value = a.value / b.value, low = greater(b.value - b.error, least);
    if (!(low > 0) || !isfinite(b.error)) return (struct num){value, INFINITY};
    double below = lesser(b.error, b.value - least); /* b.value - low would round */
    double off = greater(below / low, b.error / (b.value + b.error));
    return rounded(value, a.error / low + fabs(value) * off);
}

static inline struct num larger(struct num a, struct num b) {
    return (struct num){greater(a.value, b.value), greater(a.error, b.error)};
}

/* decay*before + (1-decay)*value; the rest is 1 - decay. */
static inline struct num averaged(float decay, struct num before, struct num value) {
    const struct num beta = exactly(decay), rest = sub(exactly(1), beta);
    return add(mul(beta, before), mul(rest, value));
}

/* An accumulator of squares is at least 0, unless its state starts negative. */
static inline struct num accumulate(struct num state, struct num square) {
    struct num sum = add(state, square);
    if (state.value < 0 && sum.value - sum.error < 0) sum.error = INFINITY;
    return sum;
}

/* The differences of two roots, without a subtraction that rounds. */
static inline struct num root(struct num s) {
    double value = sqrt(s.value), low = sqrt(greater(s.value - s.error, 0));
    if (s.error == 0) return rounded(value, 0);
    if (!isfinite(s.error)) return (struct num){value, INFINITY};
    double below = lesser(s.error, s.value) / (value + low); /* NaN for 0 */
    return rounded(value, greater(below, s.error / (sqrt(s.value + s.error) + value)));
}

/* sqrt(s) + eps of such an accumulator: its evaluation is not below eps. */
static inline struct num denominator(struct num s, float eps) {
    return add(root(s), exactly(eps));
}

/* sqrt(s) + eps or sqrt(s + eps), and a lower bound of its evaluation. */
struct divisor {
    struct num value;
    double least;
};

static inline struct divisor divisor(struct num s, float eps, bool inside) {
    if (!inside) return (struct divisor){denominator(s, eps), eps};
    return (struct divisor){root(add(s, exactly(eps))), sqrt(eps) * (1 - 4 * unit)};
}

/* The counter n after `more` steps: without error if it counts whole steps. */
static inline struct num counted(struct num n, double more) {
    const double sum = n.value + more;
    const bool whole = n.error == 0 && sum == floor(sum) && fabs(sum) < 0x1p24;
    return whole ? exactly(sum) : add(n, exactly(more));
}

/* 1 - base^n for 0 <= base < 1 and the whole part of n, by doubling n: two roundings each, and
 * three for a sum. If rounding decides about the whole part, the bound holds every outcome. */
static inline struct num correction(float base, struct num n) {
    const double least = greater(floor(n.value - n.error), 0),
                 most = greater(floor(n.value + n.error), 0);
    const double value = 1 - pow(base, greater(floor(n.value), 0));
    const double spread = pow(base, least) - pow(base, most), doublings = log2(greater(most, 1));
    return rounded(value, spread + (1 + 5.1 * doublings) * unit * value);
}

/* base^n for 0 <= base <= 1 and the whole part of n, by squaring: less than one rounding for each factor, and products
 * that are subnormal. If rounding decides about the whole part, the bound holds every outcome. */
static inline struct num power(struct num base, struct num n) {
    const double least = greater(floor(n.value - n.error), 0),
                 most = greater(floor(n.value + n.error), 0);
    const double value = pow(base.value, greater(floor(n.value), 0)),
                 high = pow(lesser(base.value + base.error, 1), least),
                 low = pow(greater(base.value - base.error, 0), most);
    const double roundings = base.value < 1 ? 1.001 * unit * most * high + 4 * tiny : 0;
    return (struct num){value, greater(high - value, value - low) + roundings};
}

/* A sum over a row in floats, as kernels compute it: each term passes one addition for every 128
 * columns, and seven more. */
struct total {
    double value, magnitude, inherited;
};

static inline void total_add(struct total *x, struct num term) {
    x->value += term.value;
    x->magnitude += fabs(term.value) + term.error;
    x->inherited += term.error;
}

static inline struct num total_of(const struct total *x, int32_t dim) {
    const double additions = (dim + 127) / 128 + 7;
    double error = x->inherited + 1.001 * additions * unit * x->magnitude;
    return (struct num){x->value, x->magnitude + error < FLT_MAX ? error : INFINITY};
}
