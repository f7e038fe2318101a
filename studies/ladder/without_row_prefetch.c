/* SPDX-License-Identifier: MIT */
#include "studies/ladder/rung.h"

DEFINE_RUNG(without_row_prefetch, ROW_PREFETCH, "without prefetch of table rows",
            "cpu_fused without prefetch of table rows.");
