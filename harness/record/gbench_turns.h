/* SPDX-License-Identifier: MIT
 *
 * What the Google Benchmark driver knows of its rows: their samples of all visits, and how well they are known. Cold and
 * warm samples of a host kernel are taken in pairs.
 */
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "harness/record/gbench_cases.h"

extern "C" {
#include "harness/record/worklist.h"
}

/* Without REPS, a kernel SLOW_TIMES as slow as the fastest one of its place has half as many samples of a mode. */
enum { SLOW_TIMES = 8 };

/* Fewer visits say nothing of how far they differ. */
enum { VISITS_LEAST = 3 };

/* The samples of a case: one row of a table. */
struct Row {
    struct {
        bool dropped = false; /* could not run, or was wrong: it has no samples, and gets no more */
        struct scratch_use use = {};
        int samples = 0;
        double least = INFINITY; /* seconds of the fastest sample */
    } all;
    std::vector<double> medians; /* of every visit, in seconds */
    std::string text;            /* of the record */
};

inline double median(std::vector<double> times) {
    std::sort(times.begin(), times.end());
    return (times[(times.size() - 1) / 2] + times[times.size() / 2]) / 2;
}

/* By workload * SUBJECTS_MAX + number of the subject in its list, and by the name of the case. */
using Rows = std::map<std::pair<int, std::string>, Row>;

/* The rows of a run, without samples. */
inline Rows rows_of(const struct options &o, unsigned places, const struct worklist &list) {
    char name[SPEC_NAME_MAX];
    Rows rows;
    for (int i = 0; i < list.count; i++) {
        const struct subject_list subjects = worklist_subjects(&list, i);
        for (int k = 0; k < subjects.count; k++)
            for (const Case &c : cases_of(o, places, worklist_name(&list, i, name), subjects.at[k]))
                rows[{i * SUBJECTS_MAX + k, c.name}];
    }
    return rows;
}

/* Half the 95 % interval of the mean logarithm of a row's medians over those of the reference, or without one of the
 * medians: Student's t, by Cornish and Fisher, as reports/verdict.py has it exactly. */
inline double half_width(const Row &row, const Row *reference) {
    const size_t n = row.medians.size();
    if (n < VISITS_LEAST || (reference && reference->medians.size() != n)) return INFINITY;
    std::vector<double> logs(n);
    double mean = 0, square = 0;
    for (size_t v = 0; v < n; v++) {
        logs[v] = std::log(row.medians[v] / (reference ? reference->medians[v] : 1));
        mean += logs[v] / (double)n;
    }
    for (double x : logs) square += (x - mean) * (x - mean);
    const double free = (double)(n - 1), t = 1.960 + (2.372 + (2.822 + 2.556 / free) / free) / free;
    return t * std::sqrt(square / free / (double)n);
}

/* True if every row, or each at this point, is known within so many percent: of its mode's fastest row, or that one of
 * itself. */
inline bool narrow(const Rows &rows, int percent, int point = -1) {
    std::map<std::pair<int, std::string>, std::vector<const Row *>> modes;
    for (const auto &[key, row] : rows)
        if ((point < 0 || key.first == point) && !row.all.dropped)
            modes[{key.first, key.second.substr(key.second.rfind('/'))}].push_back(&row);
    auto faster = [](const Row *a, const Row *b) { return a->all.least < b->all.least; };
    for (const auto &[mode, some] : modes) {
        const Row *best = *std::min_element(some.begin(), some.end(), faster);
        for (const Row *row : some)
            if (half_width(*row, row == best ? nullptr : best) > std::log1p(percent / 100.0))
                return false;
    }
    return true;
}

/* The samples of one visit on one workload with one rule. */
struct Turns {
    std::map<std::string, int> begun; /* of a case: samples taken or left out */
    std::map<std::string, std::vector<double>> times;
    std::set<const struct kernel *>
        both; /* host kernels of which cold and warm samples are wanted */
    std::map<std::tuple<const struct kernel *, int, int>, struct sample> waiting;

    /* Measures sample `number` of a case, which chooses the batch. A warm sample is measured right after the cold one of
     * the same kernel and number. The second of the two waits until its turn comes. */
    int measure(struct measure *m, const Case &c, int number, struct sample *s, struct error *err) {
        const struct kernel *k = c.entry->kernel;
        if (c.mode == MODE_ITERATION || !both.count(k))
            return measure_sample(m, k, c.mode, number, nullptr, s, err);
        const auto own = waiting.find({k, c.mode, number});
        if (own == waiting.end()) {
            struct sample cold, warm;
            if (measure_sample(m, k, MODE_COLD, number, nullptr, &cold, err) ||
                measure_sample(m, k, MODE_WARM, 0, &cold, &warm, err))
                return -1;
            *s = c.mode == MODE_COLD ? cold : warm;
            const enum cache_mode other = c.mode == MODE_COLD ? MODE_WARM : MODE_COLD;
            waiting[{k, other, number}] = c.mode == MODE_COLD ? warm : cold;
            return 0;
        }
        *s = own->second;
        waiting.erase(own);
        return 0;
    }
};
