/* SPDX-License-Identifier: MIT
 *
 * What the ranks of a node do: a file in memory with a line for each, so that a rank that dies or stops leaves
 * behind what it did. A thread of each rank shows that the rank is alive, and looks after the others: if
 * one has shown nothing for BOARD_SECONDS, this rank says so in one line and ends the run. A rank in a long
 * kernel shows life, a stopped one does not. If all ranks wait for each other and none has gone on for
 * BOARD_LIMIT seconds, or those of EMBFUSE_RANKS_LIMIT, the run ends, too; on several nodes only if that variable is there,
 * since nobody sees the ranks of other nodes. Of the ranks of a node that want to say why a run ends, the first one does.
 */
#pragma once

#include "extras/ranks/transport.h"

enum { BOARD_SECONDS = 6, BOARD_LIMIT = 600 };
enum { BOARD_LINE = 128 /* bytes of a rank; extras/ranks/launch.py reads them */ };

/* Opens the file for this rank and starts the thread. The path is that of EMBFUSE_RANKS_BOARD, on every node; without it
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
