/* SPDX-License-Identifier: MIT
 *
 * CUDA offers these functions without a header, and math.h does not have them.
 */
#pragma once

#include <cmath>

#define EMULATED_EXTREMA(type)                                                                     \
    inline type min(type a, type b) {                                                              \
        return b < a ? b : a;                                                                      \
    }                                                                                              \
    inline type max(type a, type b) {                                                              \
        return a < b ? b : a;                                                                      \
    }
EMULATED_EXTREMA(int)
EMULATED_EXTREMA(unsigned)
EMULATED_EXTREMA(long)
EMULATED_EXTREMA(unsigned long)
EMULATED_EXTREMA(long long)
EMULATED_EXTREMA(unsigned long long)
#undef EMULATED_EXTREMA

/* An int beside an unsigned is converted to unsigned. */
inline unsigned min(int a, unsigned b) {
    return min(unsigned(a), b);
}
inline unsigned min(unsigned a, int b) {
    return min(a, unsigned(b));
}
inline unsigned max(int a, unsigned b) {
    return max(unsigned(a), b);
}
inline unsigned max(unsigned a, int b) {
    return max(a, unsigned(b));
}

/* A NaN loses against a number. */
inline float min(float a, float b) {
    return std::fmin(a, b);
}
inline double min(double a, double b) {
    return std::fmin(a, b);
}
inline float max(float a, float b) {
    return std::fmax(a, b);
}
inline double max(double a, double b) {
    return std::fmax(a, b);
}
