/* SPDX-License-Identifier: MIT
 *
 * Whether the figures of a run are reliable: how many samples were disturbed, and how much other
 * work ran. Rows of the record have disturbed and load_others; the context has, for the run:
 *
 *     emb_disturbed_samples   rows whose last try was disturbed, too
 *     emb_load_worst          the highest mean load_others of any workload and rule: threads of
 *                             other processes that ran or waited for a CPU
 *     emb_cpus_allowed        CPUs that this process may use
 *     emb_cut_short           only in an incomplete record: how many samples it has, and whether a
 *                             signal stopped the run or the record was written before its end
 *
 * The load of a run is its own threads plus emb_load_worst. emb_load_before, the system's averages
 * over 1, 5 and 15 minutes, also counts work that has ended since: a build, the previous run.
 */
#pragma once

#include <omp.h>

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "harness/record/gbench_record.h"

/* Other work, over the samples of one workload at a time. */
struct Load {
    double sum = 0, count = 0, worst = NAN;

    void add(double others) {
        sum += others;
        count++;
    }
    void close() {
        if (count && !(sum / count <= worst)) worst = sum / count; /* NAN at first */
        sum = count = 0;
    }
    std::string text() const {
        char value[32];
        snprintf(value, sizeof value, "%.2f", worst);
        return std::isnan(worst) ? "unavailable" : value;
    }
};

struct Samples {
    int all = 0, disturbed = 0;

    void add(const std::vector<Run> &runs) {
        for (const Run &run : runs) {
            if (run.run_type != Run::RT_Iteration) continue;
            auto found = run.counters.find("disturbed");
            all++;
            disturbed += found != run.counters.end() && found->second.value > 0;
        }
    }
};

/* Even a quiet system runs about half a thread of other work. */
inline void say_doubt(const Samples &s, double others, int threads) {
    const double tolerated = 0.5;
    const int cpus = omp_get_num_procs();
    double load = threads + (std::isnan(others) ? 0 : others);
    if (10 * s.disturbed <= s.all && load <= cpus + tolerated) return;
    fprintf(stderr, "bench: %d of %d samples disturbed, load %.1f on %d CPU%s: do not quote\n",
            s.disturbed, s.all, load, cpus, cpus == 1 ? "" : "s");
}
