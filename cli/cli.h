/* SPDX-License-Identifier: MIT
 *
 * The subcommands of embfuse. argv[0] is the name of the subcommand. Each returns an exit status;
 * if that is not EXIT_FINE, err says why. Only main prints err.
 */
#pragma once

#include "harness/error.h"

int list_command(int argc, char **argv, struct error *err);
int gen_command(int argc, char **argv, struct error *err);
int stats_command(int argc, char **argv, struct error *err);
int step_command(int argc, char **argv, struct error *err);
int forward_command(int argc, char **argv, struct error *err);
int gradient_command(int argc, char **argv, struct error *err);
int monitor_command(int argc, char **argv, struct error *err);
int weight_grad_command(int argc, char **argv, struct error *err);
int export_command(int argc, char **argv, struct error *err);
int lookup_command(int argc, char **argv, struct error *err);
