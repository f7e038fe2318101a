/* SPDX-License-Identifier: MIT
 *
 * A thread that admits batches which are announced, in their order, while others run. The caller runs every batch
 * that it has announced, in the same order.
 */
#pragma once

#include "extras/tiers/resident.h"

enum { AHEAD_MOST = 8 }; /* batches announced, and not done */

struct ahead;

struct ahead *ahead_open(struct resident *r);
/* Announced batches are dropped. */
void ahead_close(struct ahead *a);

/* Fails if AHEAD_MOST are announced, or that batch of the ring is among them. changes: its rows will change. */
int ahead_announce(struct ahead *a, int batch, bool changes, struct error *err);
/* Waits until the rows of the batch are there. It must be the next one that was announced, with the same changes; if none
 * is announced, it is admitted here. If it was not admitted, the batches that are announced are dropped. */
int ahead_take(struct ahead *a, int batch, bool changes, struct error *err);
/* The batch that was taken has run. */
void ahead_done(struct ahead *a);

/* Fails if a batch is announced. */
int ahead_none(struct ahead *a, struct error *err);
