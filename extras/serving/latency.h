/* SPDX-License-Identifier: MIT
 *
 * How long requests take, one after another: what a client that waits for each answer sees.
 */
#pragma once

#include "extras/library/frozen/frozen.h"

struct latency {
    int64_t requests, lookups;     /* of one pass */
    double p50, p99;               /* seconds of a request: nearest rank over all passes */
    double lookup_p50, lookup_p99; /* seconds of a request, divided by its lookups */
    double lookups_per_second;     /* all lookups / all time */
};

/* Seconds since some moment. */
double latency_now(void);

/* seconds[passes][requests] of requests that look up offsets[i + 1] - offsets[i] rows. Requests without
 * lookups do not count in lookup_p50 and lookup_p99. Sorts `seconds`. */
struct latency latency_of(double *seconds, int passes, const int64_t *offsets, int64_t requests);

/* Times every bag of a batch of one feature as a request on one thread, over that many passes, after one
 * pass that is not timed and brings the rows into memory. Each answer is written to the same room. */
int latency_measure(const struct frozen *t, const struct batch *in, int passes, struct latency *out,
                    struct error *err);
