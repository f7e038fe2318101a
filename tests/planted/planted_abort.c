/* SPDX-License-Identifier: MIT
 *
 * A kernel that gives up in its first run, for the test that the bench goes on without it.
 */
#include "kernels/kernel.h"

#include <stdlib.h>

static int run(const struct batch *in, const struct rule_step *steps, const struct table *io,
               const struct launch *how) {
    (void)in, (void)steps, (void)io, (void)how;
    abort();
}

DEFINE_KERNEL(planted_abort) = {
    .name = "planted_abort",
    .label = "gives up",
    .idea = "Calls abort().",
    .place = ON_HOST,
    .traits = DETERMINISTIC,
    .run = run,
};
