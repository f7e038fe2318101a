/* SPDX-License-Identifier: MIT
 *
 * Measures what extras/ranks/cost.h wants to know of a machine, with all ranks at work at the same time.
 *
 * Links: exchanges of 8 bytes to 10 MB per pair, in the node and between nodes apart, one behind the
 * other, the median of several such rows, of the slowest rank; alpha and speed by least squares of the relative error. Local speeds: a stream copy,
 * random rows of 256 bytes in more memory than caches hold, and such rows in a part of it that caches hold. Their
 * time is that of the last rank to end, so ranks that share a CPU get their share of its speed. Where
 * there is no link of a kind, it gets the figures of the other kind. The
 * speeds of packing, updates and grouping are not measured: 0.
 */
#pragma once

#include "extras/ranks/cost.h"
#include "extras/ranks/transport.h"

/* Collective; takes about a second, with N ranks on a CPU N times as long. threads: of a rank. The memory is what is available now, for each
 * rank of the fullest node. */
int calibrate(struct transport *t, int threads, struct machine *out, struct error *err);

/* Other work only slows a machine: of several calibrations the best speeds count, and the link that has 1 MB there
 * first: its alpha and its speed are one fit. best: zeroed, or of the calibrations before. */
void calibrate_keep_best(struct machine *best, const struct machine *now);

/* Least squares of 1 - (alpha * messages + bytes / speed) / seconds over the points. Neither is negative. */
struct link_point {
    double messages, bytes, seconds;
};
struct link calibrate_fit(const struct link_point *points, int count);
