/* SPDX-License-Identifier: MIT
 *
 * Which sample of the Google Benchmark driver comes next: cold and warm samples of a host kernel are taken in pairs.
 */
#pragma once

#include <map>
#include <set>
#include <tuple>

#include "harness/record/gbench_cases.h"

/* Cold and warm samples of a kernel in one visit. */
struct Pairs {
    std::set<const struct kernel *> of; /* host kernels of which both are wanted */
    std::map<std::tuple<const struct kernel *, int, int>, struct sample> waiting;

    /* Measures sample `number` of a case, which chooses the batch. A warm sample is measured right after the cold one of
     * the same kernel and number. The second of the two waits until its turn comes. */
    int measure(struct measure *m, const Case &c, int number, struct sample *s, struct error *err) {
        const struct kernel *k = c.entry->kernel;
        if (c.mode == MODE_ITERATION || !of.count(k))
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
