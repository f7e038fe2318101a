/* SPDX-License-Identifier: MIT
 *
 * The samplers against their laws: rank frequencies against the exact probabilities (chi-square),
 * and the number of unique rows against expectations computed elsewhere. All draws are functions of
 * fixed keys, so a test that passes once always passes.
 */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "harness/workload/zipf.h"

#include "tests/support/cmocka_cases.h"

enum law { ZIPF, POWERLAW, UNIFORM };

struct chi_case {
    const char *test;
    enum law law;
    double s, q;
};

static const struct chi_case chi_cases[] = {
    {"zipf s=1", ZIPF, 1, 0},
    {"zipf s=0.6 q=2.7", ZIPF, 0.6, 2.7},
    {"zipf s=20 q=1e6", ZIPF, 20, 1e6},
    {"zipf s=1+1e-9", ZIPF, 1 + 1e-9, 0},
    {"zipf s=1-1e-13", ZIPF, 1 - 1e-13, 2.7},
    {"powerlaw alpha=1", POWERLAW, 1, 0},
    {"powerlaw alpha=1.05", POWERLAW, 1.05, 0},
    {"uniform", UNIFORM, 0, 0},
};
enum { RANKS = 1000, DRAWS = 500000 };

/* Integral of x^-a over [from, to). */
static double power_integral(double from, double to, double a) {
    if (a == 1.0) return log(to / from);
    return (pow(to, 1.0 - a) - pow(from, 1.0 - a)) / (1.0 - a);
}

static double weight_of(const struct chi_case *c, int rank) {
    if (c->law == UNIFORM) return 1.0;
    if (c->law == POWERLAW) return power_integral(rank + 1, rank + 2, c->s);
    return pow((rank + 1 + c->q) / (1 + c->q), -c->s);
}

static int64_t draw(const struct chi_case *c, const struct zipf *z, const struct powerlaw *p,
                    int64_t i) {
    switch (c->law) {
    case ZIPF: return zipf_draw(z, 11, (uint64_t)i);
    case POWERLAW: return powerlaw_draw(p, 11, (uint64_t)i);
    default: return uniform_draw(RANKS, 11, (uint64_t)i);
    }
}

/* Neighbouring ranks share a cell until 20 draws are expected in it. A cell may be off by 4.5
 * standard deviations, the sum of all cells by three: the draws are always the same. */
static void ranks_follow_the_law(void **state) {
    const struct chi_case *c = *state;
    struct zipf z = zipf_make(RANKS, c->s, c->q);
    struct powerlaw p = powerlaw_make(RANKS, c->s);
    static int64_t count[RANKS];
    double total = 0.0, expected = 0.0, seen = 0.0, left = DRAWS, chi = 0.0;
    int cells = 0;
    for (int r = 0; r < RANKS; r++) {
        count[r] = 0;
        total += weight_of(c, r);
    }
    for (int64_t i = 0; i < DRAWS; i++) {
        int64_t r = draw(c, &z, &p, i);
        assert_in_range(r, 0, RANKS - 1);
        count[r]++;
    }
    for (int r = 0; r < RANKS; r++) {
        expected += weight_of(c, r) / total * DRAWS;
        left -= weight_of(c, r) / total * DRAWS;
        seen += (double)count[r];
        if (r + 1 < RANKS && (expected < 20 || left < 20)) continue;
        double off = (seen - expected) / sqrt(expected * (1.0 - expected / DRAWS));
        if (fabs(off) > 4.5) fail_msg("rank %d: %.0f draws, expected %.1f", r, seen, expected);
        chi += (seen - expected) * (seen - expected) / expected;
        cells++;
        expected = seen = 0.0;
    }
    double freedom = cells - 1;
    if (fabs(chi - freedom) > 3.0 * sqrt(2.0 * freedom))
        fail_msg("chi-square %.1f with %.0f degrees of freedom", chi, freedom);
}

struct distinct_case {
    const char *test;
    enum law law;
    int64_t rows;
    double s, expected;
};

/* Expected unique ids of 104 857 draws; the test takes the mean of KEYS runs. The powers of 1
 * 677 721 and 26 843 545 rows are a tenth of NVIDIA's dynamicemb figures for ten tables. */
static const struct distinct_case distinct_cases[] = {
    {"distinct zipf 1M 0.8", ZIPF, 1048576, 0.8, 69890},
    {"distinct zipf 10M 1", ZIPF, 10000000, 1, 48963},
    {"distinct zipf 25M 1.05", ZIPF, 26843545, 1.05, 41557},
    {"distinct powerlaw dynamicemb 25M", POWERLAW, 26843545, 1.05, 43372.3},
};
enum { KEYS = 2 };

static void distinct_rows_as_expected(void **state) {
    const struct distinct_case *c = *state;
    struct zipf z = zipf_make(c->rows, c->s, 0);
    struct powerlaw p = powerlaw_make(c->rows, c->s);
    unsigned char *hit = calloc((size_t)c->rows, 1);
    assert_non_null(hit);
    double distinct = 0.0;
    for (uint64_t key = 1; key <= KEYS; key++) /* a hit of key k is marked k */
        for (uint64_t i = 0; i < 104857; i++) {
            int64_t r = c->law == ZIPF ? zipf_draw(&z, key, i) : powerlaw_draw(&p, key, i);
            assert_in_range(r, 0, c->rows - 1);
            distinct += hit[r] != key;
            hit[r] = (unsigned char)key;
        }
    free(hit);
    if (fabs(distinct / KEYS - c->expected) > 0.01 * c->expected)
        fail_msg("%.0f distinct, expected %.0f", distinct / KEYS, c->expected);
}

/* The limits of a spec: every draw is a rank. */
static void extremes_stay_in_range(void **state) {
    static const double exponents[] = {0, 1e-12, 1, 1 + 1e-15, 30, 100}, shifts[] = {0, 1e-9, 1e12};
    static const int64_t rows[] = {1, 2, 1000000000000};
    (void)state;
    for (int c = 0; c < 6 * 3 * 3; c++) {
        const int64_t n = rows[c % 3];
        const struct zipf z = zipf_make(n, exponents[c / 9], shifts[c / 3 % 3]);
        const struct powerlaw p = powerlaw_make(n, exponents[c / 9]);
        for (uint64_t i = 0; i < 200; i++) {
            assert_in_range(powerlaw_draw(&p, 1, i), 0, n - 1);
            assert_in_range(zipf_draw(&z, 1, i), 0, n - 1);
        }
    }
}

TESTS(zipf) {
    ADD_CASES(chi_cases, ranks_follow_the_law);
    ADD_CASES(distinct_cases, distinct_rows_as_expected);
    ADD_TEST(extremes_stay_in_range);
    return run_listed("zipf");
}
