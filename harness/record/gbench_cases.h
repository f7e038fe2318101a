/* SPDX-License-Identifier: MIT
 *
 * What the Google Benchmark driver runs: the kernels and cache modes that the options select for a
 * workload and a rule, or the forward.
 */
#pragma once

#include <string>
#include <tuple>
#include <vector>

#include "harness/record/gbench_record.h"

extern "C" {
#include "harness/record/options.h"
#include "harness/registry.h"
}

/* What is admitted, checked and dropped as one: a kernel by itself, or in iterations. */
struct Way {
    const struct kernel *kernel;
    bool iteration;

    bool operator<(const Way &other) const {
        return std::tie(kernel, iteration) < std::tie(other.kernel, other.iteration);
    }
    enum cache_mode mode() const { /* for measure_admit and measure_check */
        return iteration ? MODE_ITERATION : MODE_COLD;
    }
    /* Whether a case of this name is one of this way. */
    bool has(const std::string &name) const {
        const std::string own = std::string("/") + kernel->name + "/";
        const size_t at = name.find(own);
        return at != name.npos &&
               (name.find(mode_name(MODE_ITERATION), at) == at + own.size()) == iteration;
    }
};

/* One kernel on one workload, in one cache mode. */
struct Case {
    const struct registered *entry;
    enum cache_mode mode;
    std::string name; /* WORKLOAD/RULE/KERNEL/MODE */

    Way way() const {
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

inline int count_cases(const struct options &o, unsigned places, const struct plan &plan) {
    char name[SPEC_NAME_MAX];
    size_t cases = 0;
    for (int i = 0; i < plan.count; i++) {
        const struct subject_list list = plan_subjects(&plan, i);
        for (int k = 0; k < list.count; k++)
            cases += cases_of(o, places, plan_name(&plan, i, name), list.at[k]).size();
    }
    return (int)cases;
}
