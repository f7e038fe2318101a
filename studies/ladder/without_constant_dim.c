/* SPDX-License-Identifier: MIT */
#include "studies/ladder/rung.h"

DEFINE_RUNG(without_constant_dim, CONSTANT_DIM, "without code of its own for common dims",
            "cpu_fused without code of its own for common dims.");
