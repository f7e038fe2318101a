/* SPDX-License-Identifier: MIT
 *
 * A rung of the technique ladder: cpu_fused without hot rows.
 */
#define LEFT_OUT HOT_ROWS
#include "kernels/cpu/cpu_fused.c"

DEFINE_KERNEL(without_hot_rows) = FUSED("without_hot_rows", "without hot rows",
                                        "cpu_fused without hot rows.");
