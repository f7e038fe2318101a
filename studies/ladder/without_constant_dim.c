/* SPDX-License-Identifier: MIT
 *
 * A rung of the technique ladder: cpu_fused without specialised code for common dims.
 */
#define LEFT_OUT CONSTANT_DIM
#include "kernels/cpu/cpu_fused.c"

DEFINE_KERNEL(without_constant_dim) = FUSED("without_constant_dim",
                                            "without code of its own for common dims",
                                            "cpu_fused without code of its own for common dims.");
