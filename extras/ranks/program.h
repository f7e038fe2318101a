/* SPDX-License-Identifier: MIT
 *
 * Programs of several ranks share this code: they start under mpirun, make sure that all ranks run one program, and say
 * in one line what went wrong. Rank 0 leads, the others follow its orders.
 */
#pragma once

#include "extras/ranks/transport.h"

/* NULL: it has said why, and the program ends with EXIT_USAGE. */
struct transport *program_open(int *argc, char ***argv);

/* Threads of a rank, unless they are given: the CPUs that it is bound to, or else its share of the node's. */
int program_threads(const struct transport *t);

/* The end of this process as a rank. */
void program_close(struct transport *t);

/* Calls lead() on rank 0, which returns the exit status, and closes. Returns the exit status of this process. */
int program_run(struct transport *t, int (*lead)(void *ctx), void *ctx);
