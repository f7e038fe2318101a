/* SPDX-License-Identifier: MIT
 *
 * A kernel that does nothing and reports success. It tests that the bench records no time for a
 * wrong result and exits with status 2.
 */
#include "kernels/kernel.h"

static int run(const struct batch *in, const struct rule_step *steps, const struct table *io,
               const struct launch *how) {
    (void)in, (void)steps, (void)io;
    stage_done(how, STAGE_UPDATE);
    return 0;
}

DEFINE_KERNEL(planted_wrong) = {
    .name = "planted_wrong",
    .label = "does nothing",
    .idea = "Leaves every row as it was.",
    .place = ON_HOST,
    .traits = DETERMINISTIC,
    .run = run,
};
