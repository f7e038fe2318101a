/* SPDX-License-Identifier: MIT
 *
 * The times of a step, or of an iteration, on ranks: those of a rank, or the largest of all ranks.
 */
#pragma once

#include "harness/measure/place.h"

/* Where the bytes go. */
enum exchange { EXCHANGE_IDS, EXCHANGE_OUTPUT, EXCHANGE_GRADIENT, EXCHANGES };

struct exchanged {
    double seconds;         /* packing and unpacking included */
    int64_t sent, received; /* bytes of the rank that sends, or receives, most */
    int64_t sent_all;       /* of all ranks */
};

/* As struct step_times where the names are equal. */
struct rank_times {
    double seconds, forward, plan, stage[STAGE_COUNT];
    struct exchanged exchange[EXCHANGES];
    bool disturbed;
};

/* The last ones of a place of ranks: the largest of all ranks. On rank 0. */
const struct rank_times *place_ranks_times(const struct place *p);
