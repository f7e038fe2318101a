/* SPDX-License-Identifier: MIT
 *
 * Tells whether other work held up this process: how long its threads waited for a CPU while they could
 * have run, as /proc/self/task/TID/schedstat says, and how long a hypervisor ran others on the CPUs
 * of this process meanwhile, the steal of /proc/stat (in ticks of 10 ms). A kernel without schedstat
 * reports involuntary context switches instead: then any switch counts, however short.
 */
#pragma once

#include <stdbool.h>

/* The share of a sample that its threads may lose. */
static const double waiting_tolerated = 0.01;

struct disturbance {
    double waited; /* seconds, of all threads together; NaN: the system does not report it */
    double
        stolen; /* seconds, of all CPUs that this process may use; 0 where there is no /proc/stat */
    long switches;
};

/* Until now. proc: "/proc", or a folder with the same files in tests. */
struct disturbance disturbance_now(const char *proc);

/* Was a sample of so many seconds between `before` and `after` disturbed? */
bool disturbed(struct disturbance before, struct disturbance after, double seconds);
