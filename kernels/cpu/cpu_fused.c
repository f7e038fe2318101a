/* SPDX-License-Identifier: MIT
 *
 * Fully fused: a two-level index groups the lookups by row; then a thread sums the gradients of a
 * row in registers and updates the row at once. No gradient leaves the caches.
 *
 * Who owns what: all tables in one parallel region. Small tables need no index: threads take slices
 * of their lookups, or ranges of rows of these, and sum them in order (small.h, with the criterion). Of large tables of
 * which few rows are looked up, a thread numbers the rows and sums them (numbered.h, with the criterion).
 * If a few hot rows have most of the other lookups, a walk over the lookups sums these rows (hot.h,
 * with the criterion). The other lookups are split evenly over threads for the partition into buckets
 * of neighbouring rows (partition.h). Then one thread owns a bucket: it groups the bucket by row in
 * its caches, by a sort or by a hash table (bucket.h), and walks its runs. It postpones runs of
 * LONG_RUN or more lookups: these are cut into pieces of a fixed number of lookups, all threads sum
 * pieces, and the pieces of a row are added in order.
 * Stages: "index" includes the sums of hot rows; "update" includes small tables, the grouping of
 * buckets and the rest.
 * Scratch and traffic: 16 bytes per lookup for entries, 256 KiB per thread for buckets, one partial
 * row per PIECE lookups of long runs, at most one accumulator per HOT_SLICE_OF lookups; for small
 * tables SMALL_BYTES per thread, or one accumulator per SMALL_FEW lookups; if a table may be numbered, 4.7 MiB per
 * thread. Each gradient row is read once per lookup, mostly from a cache after the first; each touched row is read and
 * written once.
 * Deterministic: the order of a row's sum depends only on the batch. The cost, compared to about as
 * many slices as threads, with two threads: up to 3 % with hot rows, 6 to 8 % on small tables,
 * otherwise nothing.
 * Wins nearly everywhere. Ties: cpu_hash and cpu_sort on batches of 10^4 lookups of skewed ids on
 * Granite Rapids, and cpu_dense on one thread if a gradient of all rows fits in the last-level cache;
 * cpu_hash on batches of 10^3 lookups on Emerald Rapids, if code and scratch are cold, too, and on
 * Zen 3 if rows come a dozen times and those of a table stay in the last-level cache.
 * Tried: kernels/cpu/tried.md.
 * Source: FBGEMM's exact fused optimizers; two-level grouping as in radix-partitioned joins
 * (Manegold, Boncz and Kersten 2002).
 */
#include "kernels/cpu/fused.h"

static int run(const struct batch *in, const struct rule_step *steps, const struct table *io,
               const struct launch *how) {
    return fused_run(in, steps, io, how);
}

DEFINE_KERNEL(cpu_fused) = {
    .name = "cpu_fused",
    .label = "fully fused",
    .idea = "Group lookups in L1-sized buckets, sum a row in registers and update it at once.",
    .place = ON_HOST,
    .traits = DETERMINISTIC,
    .accepts = accepts_32bit_rows_and_positions,
    .scratch_bytes = fused_scratch_bytes,
    .run = run,
};
