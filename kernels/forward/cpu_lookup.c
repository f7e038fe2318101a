/* SPDX-License-Identifier: MIT
 *
 * The plain lookup: threads take bags, and read the rows of a bag one after another.
 *
 * Who owns what: each feature's bags are split over the threads, about equally many lookups for each.
 * Scratch and traffic: none; every lookup reads its row, every output is written once.
 * Deterministic: a bag is summed in the order of its lookups.
 * Wins where the rows are in a near cache. Loses to cpu_lookup_ahead where they are in memory: a
 * CPU sees only as many misses as its window of instructions covers.
 * Source: the loop over bags of torch.nn.functional.embedding_bag (PyTorch) on a CPU.
 */
#include "kernels/host/lookup.h"

static int run(const struct batch *in, const struct rule_step *steps, const struct table *io,
               const struct launch *how) {
    (void)steps;
    return lookup_run(in, io, how, 0);
}

DEFINE_KERNEL(cpu_lookup) = {
    .name = "cpu_lookup",
    .label = "lookup",
    .idea = "A thread sums the rows of a bag in registers.",
    .operation = OP_FORWARD,
    .place = ON_HOST,
    .traits = DETERMINISTIC,
    .run = run,
};
