/* SPDX-License-Identifier: MIT
 *
 * Popularity ranks, most popular first, by two laws, each with an "alpha":
 *
 *   zipf      the exact bounded Zipf-Mandelbrot law, P(r) ~ (r + 1 + q)^-s for r = 0 .. n-1
 *   powerlaw  the floored continuous Pareto of cuEmbed, TorchRec and dynamicemb, for comparability:
 *             its most popular rank gets only 72-80 % of its share under Zipf
 *
 * Draw i of a key is a pure function of (key, i).
 */
#pragma once

#include <stdint.h>

struct zipf {
    int64_t n;
    double s;           /* exponent */
    double scale;       /* 1 + q */
    double from, to;    /* the integral at both ends of its range */
    double sure_accept; /* draws this close below a rank need no test */
};

/* Takes any n >= 1, s >= 0 (also 1) and q >= 0. Needs no memory and almost no time. */
struct zipf zipf_make(int64_t n, double s, double q);

/* Rank of draw i, 0 .. n-1. */
int64_t zipf_draw(const struct zipf *z, uint64_t key, uint64_t i);

struct powerlaw {
    int64_t n;
    double g;    /* 1 - alpha */
    double span; /* the integral of x^-alpha over [1, n+1) */
};

struct powerlaw powerlaw_make(int64_t n, double alpha);
int64_t powerlaw_draw(const struct powerlaw *p, uint64_t key, uint64_t i);

/* Uniform over 0 .. n-1. */
int64_t uniform_draw(int64_t n, uint64_t key, uint64_t i);
