/* SPDX-License-Identifier: MIT
 *
 * A kernel that does nothing in step 1 and is right afterwards. It tests that every step is
 * checked, not only the last one. It needs a rule that derives a constant from the step number.
 */
#include "kernels/kernel.h"

extern const struct kernel kernel_cpu_sort;

static int run(const struct batch *in, const struct rule_step *steps, const struct table *io,
               const struct launch *how) {
    struct rule_step first = rule_step(steps[0].rule, 1);
    if (steps[0].derived[0] != first.derived[0]) return kernel_cpu_sort.run(in, steps, io, how);
    stage_done(how, STAGE_UPDATE);
    return 0;
}

static size_t scratch_bytes(const struct batch *shape, int threads) {
    return kernel_cpu_sort.scratch_bytes(shape, threads);
}

DEFINE_KERNEL(planted_first_step) = {
    .name = "planted_first_step",
    .label = "idle in step 1",
    .idea = "Leaves every row as it was in step 1.",
    .place = ON_HOST,
    .traits = DETERMINISTIC,
    .scratch_bytes = scratch_bytes,
    .run = run,
};
