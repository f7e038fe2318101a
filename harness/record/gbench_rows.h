/* SPDX-License-Identifier: MIT
 *
 * The rows of a run of the Google Benchmark driver: samples of a case, of all visits, and how well they are known.
 */
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "harness/record/gbench_cases.h"

/* Without REPS, a kernel SLOW_TIMES as slow as the fastest one of its place has half as many samples of a mode. */
enum { SLOW_TIMES = 8 };

/* Of a narrow row, as in reports/verdict.py. */
enum { SAMPLES_LEAST = 5, VISITS_LEAST = 3 };

inline double median(std::vector<double> times) {
    std::sort(times.begin(), times.end());
    return (times[(times.size() - 1) / 2] + times[times.size() / 2]) / 2;
}

/* The samples of a case. */
struct Row {
    struct {
        bool dropped = false; /* could not run, or was wrong: it has no samples, and gets no more */
        struct scratch_use use = {};
        int samples = 0;
        double least = INFINITY; /* seconds of the fastest sample */
    } all;
    std::string text;            /* of the record */
    std::vector<double> medians; /* seconds, of each visit since the program started */
    int begun = 0;               /* in this visit: samples taken or left out */
    std::vector<double> times;   /* in this visit */

    void drop() {
        *this = {};
        all.dropped = true;
    }
    void end_visit() {
        if (!times.empty()) medians.push_back(median(times));
        begun = 0;
        times.clear();
    }
};

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
    if (row.all.samples < SAMPLES_LEAST || n < VISITS_LEAST) return INFINITY;
    if (reference && reference->medians.size() != n) return INFINITY;
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
