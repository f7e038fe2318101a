/* SPDX-License-Identifier: MIT */
#define WITHOUT NUMBERED_TABLES
#include "extras/studies/ladder/rung.h"

DEFINE_KERNEL(without_numbered_tables) = {
    .name = "without_numbered_tables",
    .label = "without numbered tables",
    .idea = "cpu_fused with an index for large tables of which few rows are looked up, too.",
    RUNG,
};
