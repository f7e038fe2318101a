/* SPDX-License-Identifier: MIT */
#define WITHOUT CONSTANT_DIM
#include "extras/studies/ladder/rung.h"

DEFINE_KERNEL(without_constant_dim) = {
    .name = "without_constant_dim",
    .label = "without code of its own for common dims",
    .idea = "cpu_fused without code of its own for common dims.",
    RUNG,
};
