/* SPDX-License-Identifier: MIT */
#define WITHOUT SMALL_TABLES
#include "extras/studies/ladder/rung.h"

RUNG(without_small_tables, "without small tables apart",
     "cpu_fused with an index for tables of few rows too.");
