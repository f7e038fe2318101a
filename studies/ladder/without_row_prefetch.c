/* SPDX-License-Identifier: MIT
 *
 * A rung of the technique ladder: cpu_fused without prefetch of table rows.
 */
#define LEFT_OUT ROW_PREFETCH
#include "kernels/cpu/cpu_fused.c"

DEFINE_KERNEL(without_row_prefetch) = FUSED("without_row_prefetch",
                                            "without prefetch of table rows",
                                            "cpu_fused without prefetch of table rows.");
