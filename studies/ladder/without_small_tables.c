/* SPDX-License-Identifier: MIT
 *
 * A rung of the technique ladder: cpu_fused without separate sums for tables of few rows.
 */
#define LEFT_OUT SMALL_TABLES
#include "kernels/cpu/cpu_fused.c"

DEFINE_KERNEL(without_small_tables) = FUSED("without_small_tables", "without small tables apart",
                                            "cpu_fused with an index for tables of few rows too.");
