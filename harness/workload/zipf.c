/* SPDX-License-Identifier: MIT
 *
 * Rejection-inversion: W. Hoermann and G. Derflinger, "Rejection-inversion to generate variates
 * from monotone discrete distributions", ACM TOMACS 6.3, 1996. It draws a point under the
 * continuous hat h(x) = (x+q)^-s (its integral H has a closed inverse), rounds it to a rank k, and
 * rejects it if the histogram bar of k does not cover it (less than 1 % of the draws).
 *
 * Three deviations keep it exact in double precision for every s and q:
 *   - H and its inverse go through expm1(t)/t and log1p(t)/t, smooth across s = 1 (as in Apache
 *     commons-rng);
 *   - h is scaled to h(1) = 1, so that a large q does not cancel;
 *   - everything is a function of l(x) = log((x+q)/(1+q)), which is log1p of something exact.
 */
#include "harness/workload/zipf.h"

#include <math.h>

#include "kernels/rng.h"

/* (exp(t) - 1) / t */
static double expm1_over(double t) {
    return fabs(t) > 1e-8 ? expm1(t) / t : 1.0 + 0.5 * t;
}

/* log(1 + t) / t; rounding may push t a little below its limit of -1. */
static double log1p_over(double t) {
    if (t < -1.0) t = -1.0;
    return fabs(t) > 1e-8 ? log1p(t) / t : 1.0 - 0.5 * t;
}

/* Integral of y^-a over [1, exp(l)], and its inverse, which returns l. g = 1 - a. */
static double integral(double l, double g) {
    return l * expm1_over(g * l);
}

static double integral_inverse(double area, double g) {
    return area * log1p_over(g * area);
}

static double hat(const struct zipf *z, double x) {
    return exp(-z->s * log1p((x - 1.0) / z->scale));
}

static double hat_integral(const struct zipf *z, double x) {
    return z->scale * integral(log1p((x - 1.0) / z->scale), 1.0 - z->s);
}

static double hat_integral_inverse(const struct zipf *z, double area) {
    return 1.0 + z->scale * expm1(integral_inverse(area / z->scale, 1.0 - z->s));
}

struct zipf zipf_make(int64_t n, double s, double q) {
    struct zipf z = {.n = n, .s = s, .scale = 1.0 + q};
    z.from = hat_integral(&z, 1.5) - 1.0; /* the whole bar of rank 1 is under the hat */
    z.to = hat_integral(&z, (double)n + 0.5);
    z.sure_accept = 2.0 - hat_integral_inverse(&z, hat_integral(&z, 2.5) - hat(&z, 2.0));
    return z;
}

int64_t zipf_draw(const struct zipf *z, uint64_t key, uint64_t i) {
    uint64_t draw = rng_key(key, i);
    for (uint64_t attempt = 0;; attempt++) {
        double area = z->to + rng_unit(draw, attempt) * (z->from - z->to);
        double x = hat_integral_inverse(z, area);
        double k = fmin(fmax(floor(x + 0.5), 1.0), (double)z->n);
        if (k - x <= z->sure_accept || area >= hat_integral(z, k + 0.5) - hat(z, k))
            return (int64_t)k - 1;
    }
}

struct powerlaw powerlaw_make(int64_t n, double alpha) {
    double g = 1.0 - alpha;
    return (struct powerlaw){n, g, integral(log((double)n + 1.0), g)};
}

/* x = (u * (hi^g - 1) + 1)^(1/g) with hi = n + 1; at g = 0 its limit, x = hi^u. */
int64_t powerlaw_draw(const struct powerlaw *p, uint64_t key, uint64_t i) {
    double x = exp(integral_inverse(rng_unit(key, i) * p->span, p->g));
    return (int64_t)fmin(fmax(floor(x), 1.0), (double)p->n) - 1;
}

int64_t uniform_draw(int64_t n, uint64_t key, uint64_t i) {
    return (int64_t)((unsigned __int128)rng_u64(key, i) * (uint64_t)n >> 64);
}
