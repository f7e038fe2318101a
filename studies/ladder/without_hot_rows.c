/* SPDX-License-Identifier: MIT */
#include "studies/ladder/rung.h"

DEFINE_RUNG(without_hot_rows, HOT_ROWS, "without hot rows", "cpu_fused without hot rows.");
