/* SPDX-License-Identifier: MIT
 *
 * The subcommands of the program embfuse. Each takes its arguments, its own name in argv[0], and
 * returns an exit status; unless that is EXIT_FINE, err says why. Only main prints it.
 */
#ifndef EMBFUSE_CLI_H
#define EMBFUSE_CLI_H

#include "harness/error.h"

int list_command(int argc, char **argv, struct error *err);
int gen_command(int argc, char **argv, struct error *err);
int stats_command(int argc, char **argv, struct error *err);
int step_command(int argc, char **argv, struct error *err);

#endif
