/* SPDX-License-Identifier: MIT
 *
 * A rung of the technique ladder: cpu_fused without prefetch of gradients, except those of hot rows.
 */
#define LEFT_OUT GRAD_PREFETCH
#include "kernels/cpu/cpu_fused.c"

DEFINE_KERNEL(without_grad_prefetch) =
    FUSED("without_grad_prefetch", "without prefetch of gradients",
          "cpu_fused without prefetch of gradients, except those of hot rows.");
