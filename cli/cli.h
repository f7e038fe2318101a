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
int step_command(int argc, char **argv, struct error *err);
int forward_command(int argc, char **argv, struct error *err);
int gradient_command(int argc, char **argv, struct error *err);
int weight_grad_command(int argc, char **argv, struct error *err);
