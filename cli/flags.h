/* SPDX-License-Identifier: MIT
 *
 * Parses command lines by a table of flags.
 */
#pragma once

#include <stdint.h>

#include "harness/error.h"
#include "harness/workload/spec.h"

struct flag {
    const char *name;  /* without the dashes */
    const char *value; /* name of its value in the help; NULL: takes none */
    const char *help;
    const char **text; /* receives the value, "" if it takes none, NULL if not given */
};

struct usage {
    const char *command;
    const char *operand; /* name of the argument without dashes; NULL: takes none */
    const char *more;    /* end of the help */
    const struct flag *flags;
    int count;
};

/* 0: parsed; 1: help was printed; -1: err. *operand is NULL if none was given. */
int flags_parse(const struct usage *u, int argc, char **argv, const char **operand,
                struct error *err);

/* Reads a whole number from least to most. Without a text, *out keeps its value. */
int flag_whole(const char *name, const char *text, int64_t least, int64_t most, int64_t *out,
               struct error *err);

/* Fails if the flag is missing or empty. */
int flag_required(const char *name, const char *text, struct error *err);

/* Returns the workload of that name (--workload); name NULL: the only one. NULL: err, which lists the
 * names. */
const struct spec *spec_pick(const struct spec_list *list, const char *path, const char *name,
                             struct error *err);
