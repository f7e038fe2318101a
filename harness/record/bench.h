/* SPDX-License-Identifier: MIT
 *
 * The bench program. It runs kernels in one process, or in the places that the caller gives.
 */
#pragma once

#include "harness/measure/place.h"

struct bench_places {
    struct place *(*open)(enum backend backend, const struct place_setup *setup, struct error *err);
    /* Calls add() with each fact about the places that the record holds. */
    void (*describe)(void (*add)(void *ctx, const char *key, const char *value), void *ctx);
};

/* Returns the exit status. places NULL: one process, which starts itself again to bind threads, and after a
 * crash. */
int bench_main(int argc, char **argv, const struct bench_places *places);
