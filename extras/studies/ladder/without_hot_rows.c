/* SPDX-License-Identifier: MIT */
#define WITHOUT HOT_ROWS
#include "extras/studies/ladder/rung.h"

RUNG(without_hot_rows, "without hot rows", "cpu_fused without hot rows.");
