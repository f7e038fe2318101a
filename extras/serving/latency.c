/* SPDX-License-Identifier: MIT */
#include "extras/serving/latency.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "harness/memory.h"

double latency_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The smallest value that a share of the values does not exceed. */
static double rank(const double *sorted, int64_t count, double share) {
    const int64_t at = (int64_t)ceil(share * (double)count);
    return count ? sorted[at > 0 ? at - 1 : 0] : 0;
}

struct latency latency_of(double *seconds, int passes, const int64_t *offsets, int64_t requests) {
    const int64_t all = passes * requests;
    struct latency x = {.requests = requests, .lookups = offsets[requests] - offsets[0]};
    double *each = must_have(malloc((size_t)(all + 1) * sizeof *each)), total = 0;
    int64_t counted = 0;
    for (int64_t i = 0; i < all; i++) {
        const int64_t lookups = offsets[i % requests + 1] - offsets[i % requests];
        total += seconds[i];
        if (lookups) each[counted++] = seconds[i] / (double)lookups;
    }
    qsort(seconds, (size_t)all, sizeof *seconds, ascending);
    qsort(each, (size_t)counted, sizeof *each, ascending);
    x.p50 = rank(seconds, all, 0.5), x.p99 = rank(seconds, all, 0.99);
    x.lookup_p50 = rank(each, counted, 0.5), x.lookup_p99 = rank(each, counted, 0.99);
    x.lookups_per_second = total > 0 ? (double)x.lookups * passes / total : 0;
    free(each);
    return x;
}

int latency_measure(const struct frozen *t, const struct batch *in, int passes, struct latency *out,
                    struct error *err) {
    int64_t most = 1;
    const int64_t bags = in->flat_bags;
    for (int64_t b = 0; b < bags; b++) {
        const int64_t lookups = in->offsets[b + 1] - in->offsets[b];
        most = lookups > most ? lookups : most;
    }
    double *seconds = array_require(passes * bags, sizeof *seconds, "times", err);
    float *answer = seconds ? array_require(most * t->dim, sizeof *answer, "an answer", err) : NULL;
    for (int pass = -1; answer && pass < passes; pass++)
        for (int64_t b = 0; b < bags; b++) {
            struct feature feature;
            const struct batch one = frozen_one_bag(in, b, &feature);
            const double begin = latency_now();
            frozen_lookup(t, &one, answer, 1);
            if (pass >= 0) seconds[pass * bags + b] = latency_now() - begin;
        }
    if (answer) *out = latency_of(seconds, passes, in->offsets, bags);
    free(answer);
    free(seconds);
    return answer ? 0 : -1;
}
