/* SPDX-License-Identifier: MIT
 *
 * Tells whether other work held up this process: how long its threads waited for a CPU while they could
 * have run, as /proc/self/task/TID/schedstat says, and how long a hypervisor ran others on the CPUs
 * of this process meanwhile, the steal of /proc/stat (in ticks of 10 ms). Lost time disturbs a sample, not the number
 * of events: an involuntary context switch of microseconds does nothing to a sample of milliseconds.
 */
#pragma once

#include <stdbool.h>

/* The share of a sample that its threads may lose. */
static const double waiting_tolerated = 0.01;

struct disturbance {
    double waited; /* seconds, of all threads together; 0 where the system does not count */
    double stolen; /* seconds, of all CPUs that this process may use; 0 as above */
};

/* Until now. proc: "/proc", or a folder with the same files in tests. */
struct disturbance disturbance_now(const char *proc);

/* Was a sample of so many seconds between `before` and `after` disturbed? */
bool disturbed(struct disturbance before, struct disturbance after, double seconds);
