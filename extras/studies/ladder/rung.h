/* SPDX-License-Identifier: MIT
 *
 * A rung of the technique ladder: cpu_fused without one technique, a bit of enum technique.
 */
#include "kernels/cpu/fused.h"

#define RUNG(own, what, how)                                                                       \
    DEFINE_KERNEL(own) = {.name = #own,                                                            \
                          .label = what,                                                           \
                          .idea = how,                                                             \
                          .place = ON_HOST,                                                        \
                          .traits = DETERMINISTIC,                                                 \
                          .accepts = accepts_32bit_rows_and_positions,                             \
                          .scratch_bytes = fused_scratch_bytes,                                    \
                          .run = fused_run}
