/* SPDX-License-Identifier: MIT
 *
 * Whether the figures of a run are worth anything: how many samples were disturbed, and how much other
 * work there was. Per row of the record: disturbed, load_others. Of the whole run, in its context:
 *
 *     emb_disturbed_samples   rows that count as disturbed: the last try was, too
 *     emb_load_worst          the highest, over workloads and rules, of the mean load_others of their
 *                             samples: threads of other processes that ran or waited for a CPU
 *     emb_cpus_allowed        CPUs that this process may use
 *     emb_cut_short           why not all samples are there, and how many: a signal, or the run did not
 *                             end, as far as this record knows. A whole run does not have it
 *
 * The load of a run is its own threads plus emb_load_worst. emb_load_before, the system's averages over
 * 1, 5 and 15 minutes, counts what has ended since: a build, the run before.
 */
#ifndef EMBFUSE_GBENCH_DOUBT_H
#define EMBFUSE_GBENCH_DOUBT_H

#include <omp.h>

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "harness/record/gbench_record.h"

/* Other work, over the samples of one workload at a time. */
class Load {
  public:
    void add(double others) {
        sum += others;
        count++;
    }
    void close() {
        if (count && !(sum / count <= highest)) highest = sum / count; /* NAN at first */
        sum = count = 0;
    }
    double worst() const {
        return highest;
    }
    std::string text() const {
        char value[32];
        snprintf(value, sizeof value, "%.2f", highest);
        return std::isnan(highest) ? "unavailable" : value;
    }

  private:
    double sum = 0, count = 0, highest = NAN;
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

/* Half a thread of other work is what a quiet system does by itself. */
inline void say_doubt(const Samples &s, double others, int threads) {
    const double tolerated = 0.5;
    const int cpus = omp_get_num_procs();
    double load = threads + (std::isnan(others) ? 0 : others);
    if (10 * s.disturbed <= s.all && load <= cpus + tolerated) return;
    fprintf(stderr, "bench: %d of %d samples disturbed, load %.1f on %d CPU%s: do not quote\n",
            s.disturbed, s.all, load, cpus, cpus == 1 ? "" : "s");
}

#endif
