/* SPDX-License-Identifier: MIT
 *
 * Whether other work held up this process: how long its threads waited for a CPU while they could
 * have run, as /proc/self/task/TID/schedstat says. A kernel without these files reports involuntary
 * context switches instead: then any switch counts, however short.
 */
#pragma once

#include <stdbool.h>

/* The share of a sample that its threads may wait. */
static const double waiting_tolerated = 0.01;

struct disturbance {
    double waited; /* seconds, of all threads together; NaN: the system does not report it */
    long switches;
};

/* Until now. tasks: the folder of the threads, /proc/self/task but in tests. */
struct disturbance disturbance_now(const char *tasks);

/* Was a sample of so many seconds between `before` and `after` disturbed? */
bool disturbed(struct disturbance before, struct disturbance after, double seconds);
