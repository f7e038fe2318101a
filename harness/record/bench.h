/* SPDX-License-Identifier: MIT
 *
 * The bench program. Its places are those of one process, or what a program with more of them gives.
 */
#pragma once

#include "harness/measure/place.h"

struct bench_places {
    struct place *(*open)(enum backend backend, const struct place_setup *setup, struct error *err);
    /* Calls add() for what the record has to say of them. */
    void (*describe)(void (*add)(void *ctx, const char *key, const char *value), void *ctx);
};

/* Returns the exit status. places NULL: one process, which starts itself again to bind threads, and after a
 * crash. */
int bench_main(int argc, char **argv, const struct bench_places *places);
