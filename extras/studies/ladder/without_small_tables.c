/* SPDX-License-Identifier: MIT */
#define WITHOUT SMALL_TABLES
#include "extras/studies/ladder/rung.h"

DEFINE_KERNEL(without_small_tables) = {
    .name = "without_small_tables",
    .label = "without small tables apart",
    .idea = "cpu_fused with an index for tables of few rows too.",
    RUNG,
};
