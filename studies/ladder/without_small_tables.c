/* SPDX-License-Identifier: MIT */
#include "studies/ladder/rung.h"

DEFINE_RUNG(without_small_tables, SMALL_TABLES, "without small tables apart",
            "cpu_fused with an index for tables of few rows too.");
