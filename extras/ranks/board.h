/* SPDX-License-Identifier: MIT
 *
 * The board of a node: a file in memory with a line for each rank, so that a rank that dies or stops leaves behind what
 * it did. A thread of each rank shows that the rank is alive, also in a long kernel, and watches the others. If one has
 * shown nothing for BOARD_SECONDS, the thread says so in one line and ends the run. If all ranks have waited for each
 * other for BOARD_LIMIT seconds, or EMBFUSE_RANKS_LIMIT, the run ends, too; on several nodes only if that variable is
 * set, since a board has no ranks of other nodes. Only the first rank of a node to end a run says why.
 */
#pragma once

#include "extras/ranks/transport.h"

enum { BOARD_SECONDS = 6, BOARD_LIMIT = 600 };
enum { BOARD_LINE = 128 /* bytes of a rank; extras/ranks/launch.py reads them */ };

/* Opens the file for this rank and starts the thread. EMBFUSE_RANKS_BOARD names the file on every node; without it
 * there is no board. */
int board_open(struct transport *t, struct error *err);

/* These do nothing without a board; the first process to explain is this one then. */
void board_show(const char *phase); /* what the rank does now */
void board_waits(void); /* before and after the rank waits for others, perhaps for ever */
/* Asks once: does no other rank of this node say why the run ends? */
bool board_first_to_explain(void);

/* Takes the name of the file away, so that nothing stays on any node. All ranks have opened it. */
void board_unlink(void);

/* Stops the thread. */
void board_close(void);
