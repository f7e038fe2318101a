/* SPDX-License-Identifier: MIT
 *
 * The times of a step, or of an iteration, on ranks: of one rank, or the largest of all ranks.
 */
#pragma once

#include "extras/ranks/transport.h"
#include "harness/measure/place.h"

/* The exchanges of an iteration. */
enum exchange { EXCHANGE_IDS, EXCHANGE_OUTPUT, EXCHANGE_GRADIENT, EXCHANGES };

struct exchanged {
    double seconds;         /* packing and unpacking included */
    int64_t sent, received; /* bytes of the rank that sends, or receives, most */
    int64_t sent_all;       /* of all ranks */
};

/* Equal names mean the same as in struct step_times. */
struct rank_times {
    double seconds, forward, plan, stage[STAGE_COUNT];
    struct exchanged exchange[EXCHANGES];
    bool disturbed;
};

/* Adds the bytes that the exchanges of a transport have moved since it had counted `before`. */
void times_add_bytes(struct rank_times *x, const struct transport *t,
                     const struct transport_bytes before[CHANNELS]);

/* Each number of *x becomes the largest of all ranks. of_rank: [ranks] receives the times of each. Collective. */
int times_merge(struct rank_times *x, struct transport *t, struct rank_times *of_rank,
                struct error *err);

/* The most counters that times_counters() writes. */
enum { COUNTERS_OF_RANK = 2 + STAGE_COUNT + 4 * EXCHANGES };
static inline size_t times_counters_most(int ranks) {
    return (size_t)(ranks + 1) * COUNTERS_OF_RANK;
}

/* Writes the counters of the record: exchange_ids_ms ..., and for each rank rank0_ms, rank0_exchange_ids_ms ... Returns
 * their number. */
int times_counters(const struct rank_times *most, const struct rank_times *of_rank, int ranks,
                   bool iteration, struct place_counter *out);

/* The times that a place of ranks measured last: the largest of all ranks. On rank 0. */
const struct rank_times *place_ranks_times(const struct place *p);
