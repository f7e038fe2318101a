/* SPDX-License-Identifier: MIT
 *
 * Command lines: a table of flags, and the texts that were given for them.
 */
#ifndef EMBFUSE_CLI_FLAGS_H
#define EMBFUSE_CLI_FLAGS_H

#include <stdint.h>

#include "harness/error.h"

struct flag {
    const char *name;  /* without the dashes */
    const char *value; /* what it takes, for the help; NULL: nothing */
    const char *help;
    const char *
        *text; /* receives what was given, "" for a flag that takes nothing; NULL: not given */
};

struct usage {
    const char *command;
    const char *operand; /* what the argument without dashes is; NULL: there is none */
    const char *more;    /* end of the help */
    const struct flag *flags;
    int count;
};

/* 0: parsed; 1: help was printed; -1: err. *operand is NULL where none was given. */
int flags_parse(const struct usage *u, int argc, char **argv, const char **operand,
                struct error *err);

/* A number from least to most. Without a text, *out keeps its value. */
int flag_whole(const char *name, const char *text, int64_t least, int64_t most, int64_t *out,
               struct error *err);

/* Says which flag is missing. */
int flag_required(const char *name, const char *text, struct error *err);

#endif
