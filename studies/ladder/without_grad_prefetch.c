/* SPDX-License-Identifier: MIT */
#include "studies/ladder/rung.h"

DEFINE_RUNG(without_grad_prefetch, GRAD_PREFETCH, "without prefetch of gradients",
            "cpu_fused without prefetch of gradients, except those of hot rows.");
