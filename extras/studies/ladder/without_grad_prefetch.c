/* SPDX-License-Identifier: MIT */
#define WITHOUT GRAD_PREFETCH
#include "extras/studies/ladder/rung.h"

DEFINE_KERNEL(without_grad_prefetch) = {
    .name = "without_grad_prefetch",
    .label = "without prefetch of gradients",
    .idea = "cpu_fused without prefetch of gradients, except those of hot rows.",
    RUNG,
};
