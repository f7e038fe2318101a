/* SPDX-License-Identifier: MIT
 *
 * The subcommands of embfuse. argv[0] is the name of the subcommand. Each returns an exit status;
 * if that is not EXIT_FINE, err says why. Only main prints err.
 * An extra adds a command by a file extras/NAME/command_WORD.c, which defines `const struct subcommand WORD_command`.
 */
#pragma once

#include "harness/error.h"

struct subcommand {
    const char *name, *does;
    int (*run)(int argc, char **argv, struct error *err);
};

int list_command(int argc, char **argv, struct error *err);
int gen_command(int argc, char **argv, struct error *err);
int stats_command(int argc, char **argv, struct error *err);
/* step, forward, gradient and weight-grad: argv[0] says which. */
int operation_command(int argc, char **argv, struct error *err);
