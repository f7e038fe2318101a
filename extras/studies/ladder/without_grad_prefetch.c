/* SPDX-License-Identifier: MIT */
#define WITHOUT GRAD_PREFETCH
#include "extras/studies/ladder/rung.h"

RUNG(without_grad_prefetch, "without prefetch of gradients",
     "cpu_fused without prefetch of gradients, except those of hot rows.");
