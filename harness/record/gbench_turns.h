/* SPDX-License-Identifier: MIT
 *
 * Which sample of the Google Benchmark driver comes next: cold and warm samples of a host kernel are taken in pairs, slow
 * kernels have fewer, and SECONDS adds rounds.
 */
#pragma once

#include <algorithm>
#include <cmath>

#include "harness/record/gbench_cases.h"

/* Without REPS, a kernel SLOW_TIMES as slow as the fastest one of its place has SLOW_SAMPLES samples of a mode; with
 * SECONDS, so many more in every round. */
enum { SLOW_SAMPLES = 5, SLOW_TIMES = 8 };

/* The samples of a kernel so far, by enum cache_mode. */
struct Turn {
    bool both; /* a host kernel of which cold and warm samples are wanted */
    int round[3];
    std::vector<double> times[3]; /* seconds of the samples */
    std::vector<struct sample> waiting[3];

    double least(enum cache_mode mode) const {
        return *std::min_element(times[mode].begin(), times[mode].end());
    }
    /* True if the two samples between which the median lies in 95 % of the cases are within this share of it. */
    bool narrow(enum cache_mode mode, double share) const {
        std::vector<double> t = times[mode];
        std::sort(t.begin(), t.end());
        const double n = (double)t.size(), low = std::floor((n - 1.96 * std::sqrt(n)) / 2);
        if (n < SLOW_SAMPLES) return false;
        const double median = (t[(t.size() - 1) / 2] + t[t.size() / 2]) / 2;
        return t[(size_t)low] >= (1 - share) * median &&
               t[t.size() - 1 - (size_t)low] <= (1 + share) * median;
    }
};

/* The turns of all kernels on one workload with one rule. */
struct Turns {
    std::map<const struct kernel *, Turn> of;
    int rounds = 1; /* of samples; all after the first one are SECONDS' */
    double begin = clock_seconds();

    /* Rounds end in time. */
    bool late(const struct options &o) const {
        return rounds > 1 && clock_seconds() - begin > o.seconds;
    }

    bool enough(const Case &c) {
        const struct kernel *k = c.entry->kernel;
        const Turn &own = of[k];
        double least = INFINITY;
        for (const auto &turn : of)
            if (turn.first->place == k->place && !turn.second.times[c.mode].empty())
                least = std::min(least, turn.second.least(c.mode));
        return own.times[c.mode].size() >= (size_t)(SLOW_SAMPLES * rounds) &&
               own.least(c.mode) > SLOW_TIMES * least;
    }

    /* Measures a warm sample right after a cold one of the same kernel, which is then the run before it.
     * The second of the two waits until its turn comes: so repetition r of every kernel is on the same
     * batch of the ring. Ranks keep the times of one sample only. */
    int measure(struct measure *m, const Case &c, struct sample *s, struct error *err) {
        const struct kernel *k = c.entry->kernel;
        Turn &own = of[k];
        std::vector<struct sample> &waiting = own.waiting[c.mode];
        const bool warm = c.mode == MODE_WARM;
        if (!waiting.empty()) {
            *s = waiting.front();
            waiting.erase(waiting.begin());
            return 0;
        }
        if (!own.both || c.mode == MODE_ITERATION)
            return measure_sample(m, k, c.mode, own.round[c.mode]++, nullptr, s, err);
        struct sample cold, after;
        if (measure_sample(m, k, MODE_COLD, own.round[MODE_COLD]++, nullptr, &cold, err) ||
            measure_sample(m, k, MODE_WARM, 0, &cold, &after, err))
            return -1;
        *s = warm ? after : cold;
        own.waiting[warm ? MODE_COLD : MODE_WARM].push_back(warm ? cold : after);
        return 0;
    }
};
