/* SPDX-License-Identifier: MIT */
#define WITHOUT ROW_PREFETCH
#include "extras/studies/ladder/rung.h"

RUNG(without_row_prefetch, "without prefetch of table rows",
     "cpu_fused without prefetch of table rows.");
