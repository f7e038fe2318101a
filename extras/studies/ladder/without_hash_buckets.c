/* SPDX-License-Identifier: MIT */
#define WITHOUT HASH_BUCKETS
#include "extras/studies/ladder/rung.h"

DEFINE_KERNEL(without_hash_buckets) = {
    .name = "without_hash_buckets",
    .label = "without hash tables for buckets",
    .idea = "cpu_fused with a sort of every bucket.",
    RUNG,
};
