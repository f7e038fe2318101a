/* SPDX-License-Identifier: MIT
 *
 * A place that is made of ranks: it holds the tables in shards, and its steps exchange ids and gradients
 * and run the kernel on every rank. The harness uses it as any other place: on rank 0, while the other ranks
 * follow.
 *
 * The times are the largest of all ranks; `plan` has the exchange of ids and the kernel's plan, which are
 * outside of the step. Tables of the place are not in host memory: get_rows() collects them, and
 * compares the copies of tables that every rank has.
 */
#pragma once

#include "harness/measure/place.h"
#include "extras/ranks/checkpoint.h"
#include "extras/ranks/transport.h"

struct ranks_options {
    const char *sharding; /* see sharding_make(); extras/ranks/plan.py chooses one */
    bool all_rows;        /* see extras/ranks/route.h */
    bool
        overlap; /* tables in two groups: one is updated while the gradients of the other are on their way */
    bool staged; /* rows of devices travel through host memory, even if there is NCCL */
    /* The file of a saved state that fills the tables; NULL: initial values. Its seed
     * of roundings is that of the tables; rules and steps are the caller's, see ranks_loaded(). */
    const char *load;
};

/* On rank 0. */
struct place *place_ranks_open(struct transport *t, const struct ranks_options *o,
                               enum backend backend, const struct place_setup *setup,
                               struct error *err);

/* The state that a place has loaded; NULL: none. On rank 0. */
const struct checkpoint *ranks_loaded(const struct place *p);

/* Saves the tables to a file, see extras/ranks/checkpoint.h. rules and steps (taken so far): [num_tables]. On rank 0. */
int ranks_save(struct place *p, const char *path, const struct rule *rules, const int64_t *steps,
               uint64_t seed, struct error *err);

/* On all other ranks: carries out orders, until rank 0 calls ranks_dismiss(). */
int ranks_follow(struct transport *t, struct error *err);
int ranks_dismiss(struct transport *t, struct error *err);
