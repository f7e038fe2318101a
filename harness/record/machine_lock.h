/* SPDX-License-Identifier: MIT
 *
 * One bench at a time on a machine: two at once would measure each other. The lock is on a file
 * that all users share. The system drops it when its holder ends, even by a crash. Containers with
 * their own /tmp do not see each other's lock; the load in the record shows them.
 */
#pragma once

#include <signal.h>

#include "harness/error.h"

/* Takes the lock until this process ends, even across execve(). If another process holds it, says
 * so on stderr and waits up to `minutes`, or until *stop is not 0; then fails and names the holder.
 * EMBFUSE_LOCK in the environment names another file. */
int machine_lock(int minutes, const volatile sig_atomic_t *stop, struct error *err);
