/* SPDX-License-Identifier: MIT */
#define WITHOUT NUMBERED_TABLES
#include "extras/studies/ladder/rung.h"

RUNG(without_numbered_tables, "without numbered tables",
     "cpu_fused with an index for large tables of which few rows are looked up, too.");
