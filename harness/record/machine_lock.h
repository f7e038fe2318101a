/* SPDX-License-Identifier: MIT
 *
 * One bench at a time on a machine: two at once would measure each other. A lock on a file that all
 * users share, which the system drops when its holder ends, however that ends. Containers with a
 * /tmp of their own do not see each other's lock; the load in the record tells of those.
 */
#ifndef EMBFUSE_MACHINE_LOCK_H
#define EMBFUSE_MACHINE_LOCK_H

#include <signal.h>

#include "harness/error.h"

/* Takes the lock until this process ends, whatever it executes until then. Waits up to `minutes` for who holds it, and says so on
 * stderr; a *stop that is not 0 ends the waiting. Fails, and names the holder, if it was in vain.
 * EMBFUSE_LOCK in the environment names another file. */
int machine_lock(int minutes, const volatile sig_atomic_t *stop, struct error *err);

#endif
