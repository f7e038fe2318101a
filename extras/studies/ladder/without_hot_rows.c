/* SPDX-License-Identifier: MIT */
#define WITHOUT HOT_ROWS
#include "extras/studies/ladder/rung.h"

DEFINE_KERNEL(without_hot_rows) = {
    .name = "without_hot_rows",
    .label = "without hot rows",
    .idea = "cpu_fused without hot rows.",
    RUNG,
};
