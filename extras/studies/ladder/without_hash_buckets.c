/* SPDX-License-Identifier: MIT */
#define WITHOUT HASH_BUCKETS
#include "extras/studies/ladder/rung.h"

RUNG(without_hash_buckets, "without hash tables for buckets",
     "cpu_fused with a sort of every bucket.");
