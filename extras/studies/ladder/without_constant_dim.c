/* SPDX-License-Identifier: MIT */
#define WITHOUT CONSTANT_DIM
#include "extras/studies/ladder/rung.h"

RUNG(without_constant_dim, "without code of its own for common dims",
     "cpu_fused without code of its own for common dims.");
