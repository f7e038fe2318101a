/* SPDX-License-Identifier: MIT
 *
 * The cases of the Google Benchmark driver: the kernels and cache modes that the options select for a
 * workload and a rule, or another operation.
 */
#pragma once

#include <string>
#include <tuple>
#include <vector>

#include "harness/record/gbench_record.h"

extern "C" {
#include "harness/record/worklist.h"
#include "harness/registry.h"
}

/* A kernel by itself, or in iterations: each is admitted, checked and dropped as one. */
struct Candidate {
    const struct kernel *kernel;
    bool iteration;

    bool operator<(const Candidate &other) const {
        return std::tie(kernel, iteration) < std::tie(other.kernel, other.iteration);
    }
    bool operator==(const Candidate &other) const {
        return kernel == other.kernel && iteration == other.iteration;
    }
    enum cache_mode mode() const { /* for measure_admit and measure_check */
        return iteration ? MODE_ITERATION : MODE_COLD;
    }
};

/* One kernel on one workload, in one cache mode. */
struct Case {
    const struct registered *entry;
    enum cache_mode mode;
    std::string name; /* WORKLOAD/RULE/KERNEL/MODE */

    Candidate candidate() const {
        return {entry->kernel, mode == MODE_ITERATION};
    }
};

/* places: bits 1 << enum backend. */
inline std::vector<Case> cases_of(const struct options &o, unsigned places,
                                  const std::string &workload, struct subject subject) {
    std::vector<Case> cases;
    for (const struct registered *r = registry(); r->kernel; r++) {
        if (!(places & (1u << r->kernel->place)) || r->kernel->operation != subject.operation)
            continue;
        for (enum cache_mode mode : {MODE_COLD, MODE_WARM, MODE_ITERATION}) {
            if (mode == MODE_ITERATION && r->kernel->operation != OP_STEP) continue;
            std::string name = workload + "/" + subject_name(subject) + "/" + r->kernel->name +
                               "/" + mode_name(mode);
            if (o.modes & (1u << mode) && !regexec(&o.pattern, name.c_str(), 0, nullptr, 0))
                cases.push_back({r, mode, name});
        }
    }
    return cases;
}
