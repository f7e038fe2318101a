/* SPDX-License-Identifier: MIT */
#define WITHOUT ROW_PREFETCH
#include "extras/studies/ladder/rung.h"

DEFINE_KERNEL(without_row_prefetch) = {
    .name = "without_row_prefetch",
    .label = "without prefetch of table rows",
    .idea = "cpu_fused without prefetch of table rows.",
    RUNG,
};
