/* SPDX-License-Identifier: MIT */
#include "harness/workload/lengths.h"

#include <math.h>
#include <stdlib.h>

#include "kernels/rng.h"
#include "harness/workload/zipf.h"
#include "kernels/shape.h"

/* Longest bag that a spec may have, and most entries of a table of probabilities. */
#define LENGTH_MAX 1e9
#define TABLE_MAX  4e6

/* The table leaves this share of a tail out: less than one draw in 10^12. */
#define TAIL 1e-12

/* Entries that a table needs. The tail falls like exp(-l / (mean * cv^2)), so 28 * mean * cv^2 entries leave out
 * about TAIL, as -log(TAIL) is 28; the rest is a margin. */
static double table_entries(double mean, double cv) {
    return mean + 64.0 + 30.0 * (mean * cv * cv + sqrt(mean) + mean * cv);
}

int length_spec_check(const struct length_spec *spec, struct error *err) {
    double a = spec->a, b = spec->b;
    switch (spec->kind) {
    case LENGTH_FIXED:
        if (a >= 1 && a <= LENGTH_MAX && a == floor(a)) return 0;
        return fail(err, "fixed %g is no bag length; give a whole number from 1 to 1e9", a);
    case LENGTH_UNIFORM:
        if (a >= 0 && b >= 1 && a <= b && b <= LENGTH_MAX && a == floor(a) && b == floor(b))
            return 0;
        return fail(err,
                    "uniform %g %g is no range of bag lengths; give whole LO <= HI, 0 <= LO, "
                    "1 <= HI <= 1e9",
                    a, b);
    case LENGTH_NEGBIN:
        if (!(a > 0 && b > 0 && table_entries(a, b) <= TABLE_MAX))
            return fail(err,
                        "negbin %g %g is out of range; give a MEAN and a CV above 0 with "
                        "30*MEAN*CV^2 below 4e6",
                        a, b);
        if (a * b * b < 1.0 + 1e-6) /* at 1 it is a Poisson, with infinite r */
            return fail(err,
                        "negbin %g %g: a negative binomial varies more than a Poisson; give a "
                        "CV above 1/sqrt(MEAN) = %.4g",
                        a, b, 1.0 / sqrt(a));
        return 0;
    }
    return fail(err, "unknown kind of bag length");
}

double length_spec_mean(const struct length_spec *spec) {
    return spec->kind == LENGTH_UNIFORM ? 0.5 * (spec->a + spec->b) : spec->a;
}

/* r and p follow from mean and variance. P(0) = p^r, and P(l+1) = P(l) * (l+r)/(l+1) * (1-p). The
 * products are sums of logarithms, because P(0) underflows if the mean is large. */
static int negbin_table(struct lengths *l, struct error *err) {
    double mean = l->spec.a, variance = mean * mean * l->spec.b * l->spec.b;
    double r = mean * mean / (variance - mean), p = mean / variance;
    double log_pmf = r * log(p), log_q = log1p(-p), sum = 0.0;
    int64_t most = (int64_t)table_entries(mean, l->spec.b);
    l->draws = malloc((size_t)(most + 1) * sizeof *l->draws);
    if (!l->draws) return fail(err, "out of memory for the bag lengths");
    l->draws[0] = 0;
    while (l->count < most && sum < 1.0 - TAIL) {
        sum += exp(log_pmf);
        l->draws[l->count + 1] = (int64_t)ceil(sum * 0x1p53);
        log_pmf += log(((double)l->count + r) / ((double)l->count + 1.0)) + log_q;
        l->count++;
    }
    return 0;
}

int lengths_make(const struct length_spec *spec, struct lengths *out, struct error *err) {
    *out = (struct lengths){.spec = *spec};
    if (length_spec_check(spec, err)) return -1;
    return spec->kind == LENGTH_NEGBIN ? negbin_table(out, err) : 0;
}

void lengths_free(struct lengths *l) {
    free(l->draws);
    *l = (struct lengths){0};
}

int64_t lengths_draw(const struct lengths *l, uint64_t key, uint64_t i) {
    int64_t a = (int64_t)l->spec.a, b = (int64_t)l->spec.b;
    switch (l->spec.kind) {
    case LENGTH_FIXED: return a;
    case LENGTH_UNIFORM: return a + uniform_draw(b - a + 1, key, i);
    case LENGTH_NEGBIN: /* the last length also takes the tail */
        return last_at_most(l->draws, sizeof *l->draws, 0, l->count,
                            (int64_t)(rng_u64(key, i) >> 11));
    }
    return 0;
}
