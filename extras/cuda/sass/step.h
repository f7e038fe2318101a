/* SPDX-License-Identifier: MIT
 *
 * One instruction on one group of lanes: its operands, where results go, and the functions for its kinds.
 */
#pragma once

#include <cfloat>
#include <cmath>

#include "extras/cuda/sass/machine.h"
#include "kernels/dtype.h"

namespace sass {

#define EACH(l) for (int l = 0; l < LANES; l++)

/* Three operands of an instruction, and where results go. */
struct step {
    warp &w;
    const instruction &i;
    const uint32_t lanes;
    uint32_t space[3][LANES], result[LANES];
    const uint32_t *a, *b, *c;

    step(warp &w, const instruction &i, uint32_t lanes)
        : w(w), i(i), lanes(lanes), a(values(w, i.from[0], space[0])),
          b(values(w, i.from[1], space[1])), c(values(w, i.from[2], space[2])) {}

    uint32_t in(int k) const {
        return predicate(w, i.in[k]);
    }

    void out(int k, uint32_t value) {
        put_predicate(w, i.out[k], value, lanes);
    }

    template <class F> void integers(F f) {
        EACH(l) result[l] = f(a[l], b[l], c[l]);
        put(w, i.to, result, lanes);
    }

    template <class F> void floats(F f) {
        const bool flush = has(i, MOD_FTZ);
        EACH(l) {
            float x = bits_float(a[l]), y = bits_float(b[l]), z = bits_float(c[l]);
            if (flush) x = flushed(x), y = flushed(y), z = flushed(z);
            float r = f(x, y, z);
            if (flush) r = flushed(r);
            result[l] = r != r ? 0x7fffffff : float_bits(r);
        }
        put(w, i.to, result, lanes);
    }

    template <class F> uint32_t votes(F f) const {
        uint32_t mask = 0;
        EACH(l) mask |= (uint32_t) !!f(l) << l;
        return mask;
    }

    static float flushed(float x) {
        return std::fabs(x) < FLT_MIN ? std::copysign(0.0f, x) : x;
    }
};

/* The bit of instruction.compare: less, equal, greater or unordered. */
template <class T> static inline int relation(T a, T b) {
    return a < b ? 0 : a == b ? 1 : a > b ? 2 : 3;
}

template <class T> static inline T extreme(T a, T b, bool least) {
    return (a < b) == least ? a : b;
}

/* integers.cpp */
void add3(step &s);
void multiply_add(step &s);
void scaled_add(step &s);
void shift(step &s);
void logic3(step &s);
void predicate_logic3(step &s);
uint32_t permuted(uint32_t a, uint32_t selector, uint32_t c);
uint32_t reversed(uint32_t x);
uint32_t leading(const instruction &i, uint32_t x);
void join(step &s, uint32_t value);
void compare_integers(step &s);
void extremes(step &s);

/* floats.cpp */
float fused(const instruction &i, float a, float b, float c);
float special(const instruction &i, float value);
bool division_is_slow(uint32_t a, uint32_t b);
void integer_to_float(step &s);
void float_to_integer(step &s);
void compare_floats(step &s);

/* lanes.cpp */
void vote(step &s);
void shuffle(step &s);
void match(step &s);
void reduce(step &s);
void to_uniform(step &s);
void from_predicates(step &s);
void to_predicates(step &s);
void special_register(step &s);

} // namespace sass
