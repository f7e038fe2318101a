/* SPDX-License-Identifier: MIT
 *
 * Functions that CUDA offers without a header, beyond those of math.h. A GPU approximates rsqrtf
 * and the functions that begin with __, so their last bits differ.
 */
#pragma once

#include <cmath>

inline int min(int a, int b) {
    return b < a ? b : a;
}
inline unsigned min(unsigned a, unsigned b) {
    return b < a ? b : a;
}
inline unsigned min(int a, unsigned b) {
    return min(unsigned(a), b);
}
inline unsigned min(unsigned a, int b) {
    return min(a, unsigned(b));
}
inline long min(long a, long b) {
    return b < a ? b : a;
}
inline unsigned long min(unsigned long a, unsigned long b) {
    return b < a ? b : a;
}
inline long long min(long long a, long long b) {
    return b < a ? b : a;
}
inline unsigned long long min(unsigned long long a, unsigned long long b) {
    return b < a ? b : a;
}
inline float min(float a, float b) {
    return std::fmin(a, b);
}
inline double min(double a, double b) {
    return std::fmin(a, b);
}

inline int max(int a, int b) {
    return a < b ? b : a;
}
inline unsigned max(unsigned a, unsigned b) {
    return a < b ? b : a;
}
inline unsigned max(int a, unsigned b) {
    return max(unsigned(a), b);
}
inline unsigned max(unsigned a, int b) {
    return max(a, unsigned(b));
}
inline long max(long a, long b) {
    return a < b ? b : a;
}
inline unsigned long max(unsigned long a, unsigned long b) {
    return a < b ? b : a;
}
inline long long max(long long a, long long b) {
    return a < b ? b : a;
}
inline unsigned long long max(unsigned long long a, unsigned long long b) {
    return a < b ? b : a;
}
inline float max(float a, float b) {
    return std::fmax(a, b);
}
inline double max(double a, double b) {
    return std::fmax(a, b);
}

inline float rsqrtf(float x) {
    return 1.0f / std::sqrt(x);
}
inline double rsqrt(double x) {
    return 1.0 / std::sqrt(x);
}
inline float __fdividef(float a, float b) {
    return a / b;
}
inline float __frsqrt_rn(float x) {
    return float(1.0 / std::sqrt(double(x)));
}
/* glibc has private functions __expf and __logf with another linkage. */
inline float emulated_expf(float x) {
    return std::exp(x);
}
inline float emulated_logf(float x) {
    return std::log(x);
}
#define __expf emulated_expf
#define __logf emulated_logf
